//! A real LXD daemon with a directory, an address and a bridge of its own.

use std::{
    fs,
    net::{IpAddr, Ipv4Addr},
    path::PathBuf,
    process::{Command, Stdio},
    sync::atomic::{AtomicU8, Ordering},
};

use capmaas_testbed::{LxdDaemon, LxdOptions};
use lxd_client::Client;

pub(crate) struct RealLxd {
    daemon: LxdDaemon,
    pub(crate) ip: IpAddr,
    pub(crate) bridge: String,
    port: String,
}

static NEXT: AtomicU8 = AtomicU8::new(1);

fn run(program: &str, arguments: &[&str]) {
    let output = Command::new(program).args(arguments).output().unwrap_or_else(|error| panic!("{program}: {error}"));
    assert!(output.status.success(), "{program} {arguments:?}: {}", String::from_utf8_lossy(&output.stderr));
}

/// Interfaces of test processes that were killed.
fn sweep() {
    for entry in fs::read_dir("/sys/class/net").unwrap().flatten() {
        let name = entry.file_name().to_string_lossy().into_owned();
        let Some(rest) = name.strip_prefix("lxit") else { continue };
        let pid: String = rest.chars().take_while(char::is_ascii_digit).collect();
        if !pid.is_empty() && !PathBuf::from(format!("/proc/{pid}")).exists() {
            let _ = Command::new("ip").args(["link", "delete", &name]).stderr(Stdio::null()).status();
        }
    }
}

/// Every address of 127.0.0.0/8 is local, so each test process has its own.
fn address(number: u8) -> IpAddr {
    let [high, low] = u16::try_from(std::process::id() % 65_000).unwrap().to_be_bytes();
    IpAddr::V4(Ipv4Addr::new(127, high.max(1), low.max(1), number))
}

impl RealLxd {
    /// Starts one in the machine's own network, so that it can listen where the test and a played MAAS reach it.
    pub(crate) async fn start() -> Self {
        sweep();
        let number = NEXT.fetch_add(1, Ordering::SeqCst);
        let name = |kind: char| format!("lxit{}{kind}{number}", std::process::id());
        let (bridge, port) = (name('b'), name('p'));
        run("ip", &["link", "add", &bridge, "type", "bridge"]);
        run("ip", &["link", "add", &port, "type", "veth", "peer", "name", &name('q')]);
        run("ip", &["link", "set", &port, "master", &bridge]);
        let options = LxdOptions { host_network: true, ..LxdOptions::default() };
        let daemon = LxdDaemon::start(options).await.unwrap();
        Self { daemon, ip: address(number), bridge, port }
    }

    /// A loopback address that nobody else in this process has.
    pub(crate) fn another_ip() -> IpAddr {
        address(NEXT.fetch_add(1, Ordering::SeqCst))
    }

    pub(crate) fn dir(&self) -> PathBuf {
        self.daemon.dir()
    }

    pub(crate) fn socket(&self) -> PathBuf {
        self.daemon.socket()
    }

    pub(crate) fn address(&self) -> String {
        format!("https://{}:8443", self.ip)
    }

    pub(crate) fn client(&self) -> Client {
        Client::unix(self.socket()).unwrap()
    }

    /// kill -9.
    pub(crate) fn kill(&mut self) {
        self.daemon.kill();
    }

    /// Starts it again on what is in its directory.
    pub(crate) async fn launch(&mut self) {
        self.daemon.restart().await.unwrap();
    }

    /// Unmounts the pools of a daemon that was killed, as a reboot would.
    pub(crate) fn unmount_pools(&self) {
        let pools = self.dir().join("storage-pools").display().to_string();
        let mounts = fs::read_to_string("/proc/self/mounts").unwrap();
        for at in mounts.lines().filter_map(|line| line.split(' ').nth(1)).filter(|at| at.starts_with(&pools)) {
            run("umount", &["-l", at]);
        }
    }

    /// Makes an empty VM, as MAAS composes one.
    pub(crate) async fn make_vm(&self, project: &str, name: &str) {
        let text = |pairs: &[(&str, &str)]| pairs.iter().map(|(k, v)| ((*k).to_owned(), (*v).to_owned())).collect();
        let vm = lxd_client::NewInstance {
            name: name.to_owned(),
            config: text(&[
                ("limits.cpu", "1"),
                ("limits.memory", "1073741824"),
                ("limits.memory.hugepages", "false"),
                ("security.secureboot", "false"),
            ]),
            devices: [
                (
                    "root".to_owned(),
                    text(&[("type", "disk"), ("path", "/"), ("pool", "default"), ("size", "100000000")]),
                ),
                (
                    "eth0".to_owned(),
                    text(&[("type", "nic"), ("name", "eth0"), ("nictype", "bridged"), ("parent", &self.bridge)]),
                ),
            ]
            .into(),
        };
        self.client().create_virtual_machine(project, &vm).await.unwrap();
    }
}

impl Drop for RealLxd {
    fn drop(&mut self) {
        for link in [&self.bridge, &self.port] {
            let _ = Command::new("ip").args(["link", "delete", link]).stderr(Stdio::null()).status();
        }
    }
}
