//! A node for LXD: a real daemon with its own address and bridge, reachable from the whole machine.

use std::{
    fs,
    net::{IpAddr, Ipv4Addr},
    path::PathBuf,
    process::{Command, Stdio},
    sync::atomic::{AtomicU8, Ordering},
};

use crate::{
    error::{Doing, Result},
    lxd::{LxdDaemon, LxdOptions},
    process::run,
};

/// The prefix of our interface names, followed by the id of the process that created them.
const PREFIX: &str = "lxn";

static NEXT: AtomicU8 = AtomicU8::new(1);

/// A real LXD as on its own node: an address on loopback, and a bridge with one port that represents the node's NIC.
/// Stopped on drop.
#[derive(Debug)]
pub struct LxdNode {
    daemon: LxdDaemon,
    ip: IpAddr,
    links: Links,
}

/// The bridge and its port, deleted on drop.
#[derive(Debug)]
struct Links {
    bridge: String,
    port: String,
}

impl LxdNode {
    /// Starts one in the machine's own network. It has no storage pool and does not listen yet.
    pub async fn start() -> Result<Self> {
        sweep();
        let number = NEXT.fetch_add(1, Ordering::SeqCst);
        let name = |kind: char| format!("{PREFIX}{}{kind}{number}", std::process::id());
        let links = Links { bridge: name('b'), port: name('p') };
        ip(&["link", "add", &links.bridge, "type", "bridge"])?;
        ip(&["link", "add", &links.port, "type", "veth", "peer", "name", &name('q')])?;
        ip(&["link", "set", &links.port, "master", &links.bridge])?;
        let daemon = LxdDaemon::start(LxdOptions { host_network: true, ..LxdOptions::default() }).await?;
        Ok(Self { daemon, ip: address(number), links })
    }

    /// A loopback address that is unique in this process.
    pub fn another_ip() -> IpAddr {
        address(NEXT.fetch_add(1, Ordering::SeqCst))
    }

    pub fn ip(&self) -> IpAddr {
        self.ip
    }

    /// The address of its LXD once it listens on LXD's usual port.
    pub fn address(&self) -> String {
        format!("https://{}:8443", self.ip)
    }

    /// The bridge for its VMs.
    pub fn bridge(&self) -> &str {
        &self.links.bridge
    }

    /// The MAC address of its NIC, by which MAAS identifies the machine that an LXD runs on.
    pub fn mac(&self) -> Result<String> {
        let file = format!("/sys/class/net/{}/address", self.links.port);
        let mac = fs::read_to_string(&file).doing(|| format!("read {file}"))?;
        Ok(mac.trim().to_owned())
    }

    pub fn daemon(&self) -> &LxdDaemon {
        &self.daemon
    }

    /// The daemon, for killing or restarting it.
    pub fn daemon_mut(&mut self) -> &mut LxdDaemon {
        &mut self.daemon
    }

    /// Unmounts the pools of a killed daemon, as a reboot would.
    pub fn unmount_pools(&self) -> Result<()> {
        let pools = self.daemon.dir().join("storage-pools").display().to_string();
        let mounts = fs::read_to_string("/proc/self/mounts").doing(|| "read /proc/self/mounts".into())?;
        for at in mounts.lines().filter_map(|line| line.split(' ').nth(1)).filter(|at| at.starts_with(&pools)) {
            let mut command = Command::new("umount");
            command.args(["-l", at]);
            run(command)?;
        }
        Ok(())
    }
}

impl Drop for Links {
    fn drop(&mut self) {
        for link in [&self.bridge, &self.port] {
            forget(link);
        }
    }
}

/// Every address of 127.0.0.0/8 is local, so each process and each node gets its own.
fn address(number: u8) -> IpAddr {
    let id = u16::try_from(std::process::id() % 65_000).unwrap_or_default();
    let [high, low] = id.to_be_bytes();
    IpAddr::V4(Ipv4Addr::new(127, high.max(1), low.max(1), number))
}

fn ip(arguments: &[&str]) -> Result<()> {
    let mut command = Command::new("ip");
    command.args(arguments);
    run(command).map(drop)
}

fn forget(link: &str) {
    // It may have been deleted with its peer.
    let _ = Command::new("ip").args(["link", "delete", link]).stderr(Stdio::null()).status();
}

/// Deletes the interfaces of processes that were killed.
fn sweep() {
    let Ok(entries) = fs::read_dir("/sys/class/net") else { return };
    for entry in entries.flatten() {
        let name = entry.file_name().to_string_lossy().into_owned();
        let Some(rest) = name.strip_prefix(PREFIX) else { continue };
        let pid: String = rest.chars().take_while(char::is_ascii_digit).collect();
        if !pid.is_empty() && !PathBuf::from(format!("/proc/{pid}")).exists() {
            forget(&name);
        }
    }
}
