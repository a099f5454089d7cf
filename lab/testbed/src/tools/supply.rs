//! Everything that is downloaded, built or installed for the tests, so that no test has to: `testbed tools` provides
//! it.

use std::{fmt, process::Command};

use super::{BROWSER_PACKAGES, LXD_PACKAGES, TEST_PACKAGES, ToolSet, ensure_packages, packages, python, unpacked};
use crate::{
    error::Result,
    nodes::{self, NodeImage},
    process::run,
    versions::{CapiVersion, KubernetesVersion},
};

/// Packages that are unpacked instead of installed.
const UNPACKED: [&str; 2] = ["cloud-init", "openssh-server"];

fn static_target() -> String {
    format!("{}-unknown-linux-musl", std::env::consts::ARCH)
}

/// Something that is provided once and cached.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub enum Supply {
    /// The Debian packages that LXD needs.
    LxdPackages,
    /// The Debian packages that tests call.
    TestPackages,
    /// A browser and its driver.
    Browser,
    /// A Debian package, unpacked into the cache.
    Unpacked(&'static str),
    /// Programs that are built.
    Set(ToolSet),
    /// The node image of a Kubernetes version, and everything built for it.
    NodeImage(KubernetesVersion),
    /// A Python with python-libmaas.
    Python,
    /// Rust's standard library for static programs of this architecture.
    StaticRust,
}

impl Supply {
    /// Everything that the gate needs, the most widely needed first.
    pub fn of_gate() -> Vec<Self> {
        let mut all = vec![Self::LxdPackages, Self::TestPackages];
        all.extend(ToolSet::all().into_iter().map(Self::Set).filter(|set| !Self::of_scenarios().contains(set)));
        all.extend(UNPACKED.map(Self::Unpacked));
        all.extend([Self::Python, Self::StaticRust]);
        all
    }

    /// What `make test-e2e` needs in addition: its build takes too long for a gate on a fresh machine.
    pub fn of_scenarios() -> Vec<Self> {
        let mut all = vec![Self::Browser, Self::Set(ToolSet::Helm), Self::Set(ToolSet::Cosign)];
        all.extend([nodes::KUBERNETES, nodes::OLDER_KUBERNETES].map(Self::NodeImage));
        all
    }

    /// What `make demo` needs.
    pub fn of_demo() -> Vec<Self> {
        let sets = [
            ToolSet::Etcd,
            ToolSet::Kubernetes(KubernetesVersion::default()),
            ToolSet::ClusterApi(CapiVersion::default()),
        ];
        std::iter::once(Self::LxdPackages)
            .chain(sets.map(Self::Set))
            .chain([Self::NodeImage(nodes::KUBERNETES)])
            .collect()
    }

    /// Whether it exists already.
    pub fn is_there(self) -> Result<bool> {
        match self {
            Self::LxdPackages => Ok(packages::missing(LXD_PACKAGES)?.is_empty()),
            Self::TestPackages => Ok(packages::missing(TEST_PACKAGES)?.is_empty()),
            Self::Browser => Ok(packages::missing(BROWSER_PACKAGES)?.is_empty()),
            Self::Unpacked(package) => Ok(unpacked::folder(package)?.exists()),
            Self::Set(set) => set.is_there(),
            Self::NodeImage(kubernetes) => NodeImage::is_there(kubernetes),
            Self::Python => python::is_there(),
            Self::StaticRust => {
                let mut listed = Command::new("rustup");
                listed.args(["target", "list", "--installed"]);
                Ok(run(listed)?.lines().any(|line| line == static_target()))
            }
        }
    }

    /// Provides it if it does not exist. Blocks.
    pub fn ensure(self) -> Result<()> {
        match self {
            Self::LxdPackages => ensure_packages(LXD_PACKAGES),
            Self::TestPackages => ensure_packages(TEST_PACKAGES),
            Self::Browser => ensure_packages(BROWSER_PACKAGES),
            Self::Unpacked(package) => unpacked::unpacked(package).map(drop),
            Self::Set(set) => set.ensure().map(drop),
            Self::NodeImage(kubernetes) => NodeImage::ensure(kubernetes).map(drop),
            Self::Python => python::python_with_libmaas().map(drop),
            Self::StaticRust => {
                let mut add = Command::new("rustup");
                add.args(["target", "add", &static_target()]);
                run(add).map(drop)
            }
        }
    }

    /// The approximate time in minutes on two idle cores.
    pub fn minutes(self) -> u32 {
        match self {
            Self::Set(set) => set.minutes(),
            Self::NodeImage(_) => 12,
            _ => 1,
        }
    }
}

impl fmt::Display for Supply {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        match self {
            Self::LxdPackages => f.write_str("lxd-packages"),
            Self::TestPackages => f.write_str("test-packages"),
            Self::Browser => f.write_str("browser"),
            Self::Unpacked(package) => f.write_str(package),
            Self::Set(set) => f.write_str(&set.to_string().replace(' ', "-")),
            Self::NodeImage(nodes::KUBERNETES) => f.write_str("node-image"),
            Self::NodeImage(kubernetes) => write!(f, "node-image-{kubernetes}"),
            Self::Python => f.write_str("python-libmaas"),
            Self::StaticRust => f.write_str("static-rust"),
        }
    }
}
