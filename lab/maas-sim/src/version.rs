//! The simulated MAAS version, and all differences between releases, in one table.

use std::{fmt, str::FromStr};

/// A MAAS release, 3.0 to 3.8.
#[derive(Clone, Copy, Debug, PartialEq, Eq, PartialOrd, Ord)]
pub struct Version {
    /// The minor version.
    pub minor: u8,
    /// The patch version; only shown.
    pub patch: u8,
}

/// The recorded releases; a minor version alone selects one of them.
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

/// A version that is not simulated.
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

/// The evidence for a release's behaviour.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub enum Evidence {
    /// These recordings show it. Recordings exist only of 3.4.10 and 3.7.3: the release in between that introduced a
    /// change comes from MAAS's source where that shows it, and is otherwise assumed to be 3.5, the first with
    /// Temporal.
    Recorded(&'static [&'static str]),
    /// Not recorded: only read in MAAS's source.
    Source,
}

macro_rules! changes {
    ($($(#[$doc:meta])* $name:ident, $since:literal, $evidence:expr;)*) => {
        /// A behaviour that a MAAS release introduced.
        #[derive(Clone, Copy, Debug, PartialEq, Eq)]
        pub enum Change { $($(#[$doc])* $name,)* }

        impl Change {
            pub const ALL: &[Self] = &[$(Self::$name,)*];

            /// The first release with this behaviour, as its minor version, and the evidence.
            pub fn since(self) -> (u8, Evidence) {
                match self { $(Self::$name => ($since, $evidence),)* }
            }
        }
    };
}

use Evidence::{Recorded, Source};

changes! {
    /// VM hosts have their own certificates, and registration succeeds whether or not LXD answers.
    VmHostCertificates, 1, Recorded(&["610-create-unreachable"]);
    /// `POST machines/` supports `deployed`.
    CreateDeployed, 1, Recorded(&["1498-machine-create-deployed"]);
    /// Machines show `last_sync`, `next_sync` and `sync_interval`.
    HardwareSync, 2, Recorded(&["900-machine-ready-before-allocate"]);
    /// Machines show `parent`, `ephemeral_deploy` and `enable_hw_sync`.
    ParentShown, 3, Recorded(&["900-machine-ready-before-allocate"]);
    /// A list of machines has many more filters, `owner` among them.
    ManyFilters, 3, Recorded(&["1234-read-deployed-machine-of-other-as-non-admin"]);
    /// An operation may be in the path.
    OperationInPath, 3, Recorded(&["804-op-in-path-power_on"]);
    /// A failed look-up names what was not found.
    NamedNotFound, 3, Recorded(&["052-zone-404"]);
    /// Interfaces of New machines can be changed.
    NewInterfacesMayChange, 3, Recorded(&["1000-create-bridge-deploying"]);
    /// An allocate by system id never composes.
    NoComposeById, 3, Recorded(&["903-allocate-by-system-id-again-same-owner"]);
    /// Images show when they were last deployed.
    LastDeployed, 4, Recorded(&["210-boot-resources-list"]);
    /// A deployment that asks for a rack controller is refused.
    NoRackControllers, 4, Source;
    /// Machines show `error_description`, which a failure sets and no release clears.
    ErrorDescription, 5, Recorded(&["762-machine-after-deploy-500", "1188-machine-right-after-deploy-with-bmc-error"]);
    /// Power actions use Temporal: no separate events, a rack selected by the BMC's address, other error messages, and
    /// no action that is "already in progress".
    TemporalPower, 5, Recorded(&["502-abort-deploy-too-early", "760-query-power-bmc-in-no-known-subnet", "887-rack-down-deploy", "1175-query-power-state-bmc-500", "1190-events-deploy-with-bmc-error"]);
    /// The region itself serves images: none is missing because a rack lacks it.
    ImagesInRegion, 5, Recorded(&["770-deploy-default-series-image-gone", "771-deploy-custom-commissioning-image-gone", "774-deploy-image-incomplete-in-region"]);
    /// A deployment may take twice the `node_timeout`.
    LongDeployments, 5, Source;
    /// `op=release` supports `scripts`.
    ReleaseScripts, 5, Recorded(&["1301x-release-scripts-unknown"]);
    /// `op=allocate` supports `deployment_target`.
    DeploymentTarget, 5, Recorded(&["1300x-allocate-deployment_target-nosuch"]);
    /// Any image may be deployed to memory.
    EphemeralCustom, 5, Recorded(&["1277-deploy-ephemeral-custom", "1278-deploy-ephemeral-install-kvm"]);
    /// A user who may not change the machines of a tag is refused without a message.
    SilentTagRefusal, 5, Recorded(&["204-tag-update-nodes-as-user", "1196-tag-add-machine-as-non-admin"]);
    /// A second subnet with the network of an existing one is also reported as overlapping.
    OverlapTold, 5, Recorded(&["119-subnet-duplicate"]);
    /// A release keeps the record of the last installation.
    InstallationKept, 5, Recorded(&["481-released-read", "964-annotations-machine-ready-after-release"]);
    /// A machine that was deployed to memory stays marked so until it is deployed again.
    EphemeralKept, 5, Recorded(&["514-release-broken", "1120-release"]);
    /// Image files show their names on the region's disk.
    FilesOnDisk, 5, Recorded(&["214-boot-resource-read"]);
    /// Images are synced or uploaded, and no longer generated.
    NoGeneratedImages, 5, Recorded(&["212-boot-resources-bad-type"]);
    /// Times include the UTC time zone.
    ZonedTimes, 5, Recorded(&["146-ipaddresses-list-all"]);
    /// The description of the API has another hash.
    OtherApiHash, 5, Recorded(&["001-version", "002-version-authenticated", "003-whoami-admin"]);
    /// VLAN ids start at 5001.
    VlansFrom5001, 5, Recorded(&["100-fabrics-list"]);
    /// There are four more settings.
    MoreSettings, 6, Recorded(&["219-config-get-bad"]);
    /// Noble Numbat is the default for deployment and commissioning.
    NobleByDefault, 6, Recorded(&["218-config-get"]);
    /// Machines show `enable_kernel_crash_dump`.
    KernelCrashDump, 6, Recorded(&["1119-deploy-crash-dump"]);
    /// The filter `pod` compares whole names.
    ExactPodFilter, 6, Recorded(&["342b-machines-list-pod-substring"]);
    /// A series can be named by its version number.
    SeriesAliases, 6, Recorded(&["1297w-deploy-series-os-alias"]);
    /// Machines show `is_dpu`.
    DpuShown, 7, Recorded(&["1498-machine-create-deployed"]);
    /// A refusal names the missing permission.
    NamedPermissions, 8, Source;
    /// A timestamp that is not a number is a client error.
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
