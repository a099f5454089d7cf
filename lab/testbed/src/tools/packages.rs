//! Debian packages that the testbed needs.

use std::process::{Command, Stdio};

use super::{cache, progress::Progress};
use crate::error::{Doing, Error, Result, create_dir};

/// What LXD needs from Debian, which is all that the demo needs: qemu and ovmf for VMs, btrfs-progs and lvm2 for
/// storage pools, the rest for networks.
pub const LXD_PACKAGES: &[&str] = &[
    "btrfs-progs",
    "dnsmasq-base",
    "iproute2",
    "lvm2",
    "lxd",
    "mount",
    "nftables",
    "ovmf",
    "qemu-system-x86",
    "util-linux",
];

/// What else tests call: Python for cloud-init's check of user data and for a third-party MAAS client, valgrind to
/// count instructions, musl-tools to build static programs, ssh to copy them to a server that needs libwrap0, openssl
/// to check signatures.
pub const TEST_PACKAGES: &[&str] = &[
    "libwrap0",
    "musl-tools",
    "openssh-client",
    "openssl",
    "python3-configobj",
    "python3-jinja2",
    "python3-jsonpatch",
    "python3-jsonschema",
    "python3-netifaces",
    "python3-oauthlib",
    "python3-requests",
    "python3-venv",
    "python3-yaml",
    "valgrind",
];

/// The browser and its WebDriver.
pub const BROWSER_PACKAGES: &[&str] = &["chromium", "chromium-driver"];

/// What node images need in addition to [`LXD_PACKAGES`].
pub(crate) const NODE_PACKAGES: &[&str] = &["debian-archive-keyring", "mmdebstrap", "musl-tools", "zstd"];

/// Installs missing packages. Blocks.
pub fn ensure_packages(packages: &[&str]) -> Result<()> {
    if missing(packages)?.is_empty() {
        return Ok(());
    }
    let root = cache::cache_root()?;
    create_dir(&root)?;
    let _lock = cache::lock(&root.join(".packages.lock"), "Debian packages")?;
    let missing = missing(packages)?;
    if missing.is_empty() {
        return Ok(());
    }
    if !rustix::process::geteuid().is_root() {
        return Err(Error::Missing(format!("run this as root, or install: apt-get install {}", missing.join(" "))));
    }
    let mut progress = Progress::start(format!("installing {}", missing.join(" ")));
    apt_get(&["update"], &mut progress)?;
    apt_get(&[&["install", "--yes", "--no-install-recommends"], missing.as_slice()].concat(), &mut progress)?;
    progress.done();
    Ok(())
}

/// Those that are not installed.
pub(super) fn missing<'a>(packages: &[&'a str]) -> Result<Vec<&'a str>> {
    let output = Command::new("dpkg-query")
        .args(["--show", "--showformat", "${Package} ${db:Status-Status}\n"])
        .args(packages)
        .stderr(Stdio::null())
        .output()
        .map_err(|_| {
            Error::Missing(format!(
                "dpkg-query is not here: this is no Debian, so install the likes of {} by hand",
                packages.join(" ")
            ))
        })?;
    let installed = String::from_utf8_lossy(&output.stdout);
    let is_missing = |package: &&str| !installed.lines().any(|line| line == format!("{package} installed"));
    Ok(packages.iter().copied().filter(is_missing).collect())
}

fn apt_get(args: &[&str], progress: &mut Progress) -> Result<()> {
    progress.tick();
    let output = Command::new("apt-get")
        .args(args)
        .env("DEBIAN_FRONTEND", "noninteractive")
        .stdin(Stdio::null())
        .output()
        .doing(|| "start apt-get".into())?;
    if output.status.success() {
        return Ok(());
    }
    Err(Error::Program {
        name: "apt-get".into(),
        what: format!("{} failed ({}): check the network and the package sources", args.join(" "), output.status),
        tail: crate::process::tail(&String::from_utf8_lossy(&output.stderr)),
    })
}
