//! Which MAAS is played, and everything that differs between its releases, in one table.

use std::{fmt, str::FromStr};

/// A MAAS release, 3.0 to 3.8.
#[derive(Clone, Copy, Debug, PartialEq, Eq, PartialOrd, Ord)]
pub struct Version {
    /// The number after "3.".
    pub minor: u8,
    /// The number after that; only shown.
    pub patch: u8,
}

/// Releases of which recordings exist; one of them is meant if only its minor number is given.
const RECORDED: [Version; 2] = [Version { minor: 4, patch: 10 }, Version { minor: 7, patch: 3 }];

impl Default for Version {
    fn default() -> Self {
        RECORDED[0]
    }
}

impl fmt::Display for Version {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        write!(f, "3.{}.{}", self.minor, self.patch)
    }
}

/// A version that the simulator does not play.
#[derive(Debug, thiserror::Error)]
#[error("MAAS version '{0}' is not known here: give one from 3.0 to 3.8, such as 3.4 or 3.4.10")]
pub struct UnknownVersion(String);

impl FromStr for Version {
    type Err = UnknownVersion;

    fn from_str(text: &str) -> Result<Self, Self::Err> {
        let unknown = || UnknownVersion(text.to_owned());
        let mut parts = text.split('.');
        if parts.next() != Some("3") {
            return Err(unknown());
        }
        let minor: u8 = parts.next().and_then(|part| part.parse().ok()).filter(|m| *m <= 8).ok_or_else(unknown)?;
        let patch = match parts.next() {
            Some(part) => part.parse().map_err(|_| unknown())?,
            None => RECORDED.iter().find(|recorded| recorded.minor == minor).map_or(0, |recorded| recorded.patch),
        };
        Ok(Version { minor, patch })
    }
}

/// How it is known that a release behaves so.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub enum Evidence {
    /// These recordings show it. Recordings exist of 3.4.10 and 3.7.3 only: which release in between brought a change
    /// was read in MAAS's source where that says so, and is otherwise taken to be 3.5, the first with Temporal inside.
    Recorded(&'static [&'static str]),
    /// Nobody has recorded it: it was only read in MAAS's source.
    Source,
}

macro_rules! changes {
    ($($(#[$doc:meta])* $name:ident, $since:literal, $evidence:expr;)*) => {
        /// Something that a release of MAAS began to do.
        #[derive(Clone, Copy, Debug, PartialEq, Eq)]
        pub enum Change { $($(#[$doc])* $name,)* }

        impl Change {
            /// All of them.
            pub const ALL: &[Self] = &[$(Self::$name,)*];

            /// The first release that does so, as its number after "3.", and how that is known.
            pub fn since(self) -> (u8, Evidence) {
                match self { $(Self::$name => ($since, $evidence),)* }
            }
        }
    };
}

use Evidence::{Recorded, Source};

changes! {
    /// VM hosts have certificates of their own, and registering one succeeds whether or not LXD answers.
    VmHostCertificates, 1, Recorded(&["610-create-unreachable"]);
    /// `POST machines/` knows `deployed`.
    CreateDeployed, 1, Recorded(&["1498-machine-create-deployed"]);
    /// Machines show `last_sync`, `next_sync` and `sync_interval`.
    HardwareSync, 2, Recorded(&["900-machine-ready-before-allocate"]);
    /// Machines show `parent`, `ephemeral_deploy` and `enable_hw_sync`.
    ParentShown, 3, Recorded(&["900-machine-ready-before-allocate"]);
    /// A list of machines has many more filters, `owner` among them.
    ManyFilters, 3, Recorded(&["1234-read-deployed-machine-of-other-as-non-admin"]);
    /// An operation may stand in the path.
    OperationInPath, 3, Recorded(&["804-op-in-path-power_on"]);
    /// A look-up that finds nothing says of what.
    NamedNotFound, 3, Recorded(&["052-zone-404"]);
    /// Interfaces of New machines may be changed.
    NewInterfacesMayChange, 3, Recorded(&["1000-create-bridge-deploying"]);
    /// An allocate by system id never composes.
    NoComposeById, 3, Recorded(&["903-allocate-by-system-id-again-same-owner"]);
    /// Images show when they were last deployed.
    LastDeployed, 4, Recorded(&["210-boot-resources-list"]);
    /// A deployment that asks for a rack controller is refused.
    NoRackControllers, 4, Source;
    /// Machines show `error_description`, which a failure sets and no release clears.
    ErrorDescription, 5, Recorded(&["762-machine-after-deploy-500", "1188-machine-right-after-deploy-with-bmc-error"]);
    /// Power goes through Temporal: no event of its own, a rack that is looked for by the BMC's address, other words for
    /// what fails, and no action that is "already in progress".
    TemporalPower, 5, Recorded(&["502-abort-deploy-too-early", "760-query-power-bmc-in-no-known-subnet", "887-rack-down-deploy", "1175-query-power-state-bmc-500", "1190-events-deploy-with-bmc-error"]);
    /// The region itself serves images: none is missing because a rack does not have it.
    ImagesInRegion, 5, Recorded(&["770-deploy-default-series-image-gone", "771-deploy-custom-commissioning-image-gone", "774-deploy-image-incomplete-in-region"]);
    /// A deployment may last twice the `node_timeout`.
    LongDeployments, 5, Source;
    /// `op=release` knows `scripts`.
    ReleaseScripts, 5, Recorded(&["1301x-release-scripts-unknown"]);
    /// `op=allocate` knows `deployment_target`.
    DeploymentTarget, 5, Recorded(&["1300x-allocate-deployment_target-nosuch"]);
    /// Any image may be deployed to memory.
    EphemeralCustom, 5, Recorded(&["1277-deploy-ephemeral-custom", "1278-deploy-ephemeral-install-kvm"]);
    /// Who may not change the machines of a tag is told so without words.
    SilentTagRefusal, 5, Recorded(&["204-tag-update-nodes-as-user", "1196-tag-add-machine-as-non-admin"]);
    /// A second subnet with the network of a first overlaps it, too.
    OverlapTold, 5, Recorded(&["119-subnet-duplicate"]);
    /// A release leaves the record of the last installation in place.
    InstallationKept, 5, Recorded(&["481-released-read", "964-annotations-machine-ready-after-release"]);
    /// What was deployed to memory stays marked so until it is deployed again.
    EphemeralKept, 5, Recorded(&["514-release-broken", "1120-release"]);
    /// Files of images show the name that they have on the region's disk.
    FilesOnDisk, 5, Recorded(&["214-boot-resource-read"]);
    /// Images are synchronised or uploaded, and no longer generated.
    NoGeneratedImages, 5, Recorded(&["212-boot-resources-bad-type"]);
    /// Times say that they are UTC.
    ZonedTimes, 5, Recorded(&["146-ipaddresses-list-all"]);
    /// Numbers of VLANs begin at 5001.
    VlansFrom5001, 5, Recorded(&["100-fabrics-list"]);
    /// There are four more settings.
    MoreSettings, 6, Recorded(&["219-config-get-bad"]);
    /// Noble Numbat is what is deployed and commissioned with if nothing else is said.
    NobleByDefault, 6, Recorded(&["218-config-get"]);
    /// Machines show `enable_kernel_crash_dump`.
    KernelCrashDump, 6, Recorded(&["1119-deploy-crash-dump"]);
    /// The filter `pod` compares whole names.
    ExactPodFilter, 6, Recorded(&["342b-machines-list-pod-substring"]);
    /// A series may be named by its number.
    SeriesAliases, 6, Recorded(&["1297w-deploy-series-os-alias"]);
    /// Machines show `is_dpu`.
    DpuShown, 7, Recorded(&["1498-machine-create-deployed"]);
    /// A refusal names the permission that is missing.
    NamedPermissions, 8, Source;
    /// A time stamp that is no number is the client's fault.
    StrictTimestamps, 8, Source;
    /// Answers carry `MAAS-trace-id`.
    TraceId, 8, Source;
    /// Uploads of images may have any size.
    LargeUploads, 8, Source;
}

impl Version {
    /// Whether this release does so.
    pub fn has(self, change: Change) -> bool {
        self.minor >= change.since().0
    }
}
