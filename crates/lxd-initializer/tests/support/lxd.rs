//! A real LXD daemon with a directory, an address and a bridge of its own.

use std::{
    fs,
    net::{IpAddr, Ipv4Addr},
    os::unix::fs::PermissionsExt,
    path::PathBuf,
    process::{Child, Command, Stdio},
    sync::atomic::{AtomicU8, Ordering},
    time::Duration,
};

use lxd_client::Client;

pub(crate) struct RealLxd {
    folder: tempfile::TempDir,
    process: Option<Child>,
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
    /// Starts one. The test fails with a clear word if this machine cannot.
    pub(crate) async fn start() -> Self {
        assert!(
            PathBuf::from("/usr/bin/lxd").exists(),
            "these tests need LXD: apt-get install lxd (see `testbed tools`)"
        );
        sweep();
        let number = NEXT.fetch_add(1, Ordering::SeqCst);
        let pid = std::process::id();
        let name = |kind: char| format!("lxit{pid}{kind}{number}");
        let (bridge, port) = (name('b'), name('p'));
        run("ip", &["link", "add", &bridge, "type", "bridge"]);
        run("ip", &["link", "add", &port, "type", "veth", "peer", "name", &name('q')]);
        run("ip", &["link", "set", &port, "master", &bridge]);
        let folder = tempfile::Builder::new().prefix("lxd-initializer-").tempdir().unwrap();
        let shims = folder.path().join("bin");
        fs::create_dir_all(&shims).unwrap();
        // Kernels of test machines often lack the module; LXD only wants to hear that it is loaded.
        let modprobe = shims.join("modprobe");
        fs::write(&modprobe, "#!/bin/sh\ncase \"$*\" in *vhost_vsock*) exit 0;; esac\nexit 1\n").unwrap();
        fs::set_permissions(&modprobe, fs::Permissions::from_mode(0o755)).unwrap();
        let ip = address(number);
        let mut lxd = Self { folder, process: None, ip, bridge, port };
        lxd.launch().await;
        lxd
    }

    /// A loopback address that nobody else in this process has.
    pub(crate) fn another_ip() -> IpAddr {
        address(NEXT.fetch_add(1, Ordering::SeqCst))
    }

    fn dir(&self) -> PathBuf {
        self.folder.path().join("lxd")
    }

    pub(crate) fn socket(&self) -> PathBuf {
        self.dir().join("unix.socket")
    }

    pub(crate) fn address(&self) -> String {
        format!("https://{}:8443", self.ip)
    }

    pub(crate) fn client(&self) -> Client {
        Client::unix(self.socket()).unwrap()
    }

    /// Starts the daemon on what is in its directory.
    pub(crate) async fn launch(&mut self) {
        fs::create_dir_all(self.dir()).unwrap();
        let path = format!("{}:{}", self.folder.path().join("bin").display(), std::env::var("PATH").unwrap());
        let log = fs::File::create(self.folder.path().join("out.log")).unwrap();
        let child = Command::new("/usr/bin/lxd")
            .args(["--group", "root"])
            .env("LXD_DIR", self.dir())
            .env("PATH", path)
            .stdin(Stdio::null())
            .stdout(log.try_clone().unwrap())
            .stderr(log)
            .spawn()
            .unwrap();
        self.process = Some(child);
        for _ in 0..600 {
            if self.client().server().await.is_ok() {
                return;
            }
            tokio::time::sleep(Duration::from_millis(100)).await;
        }
        panic!("LXD did not start: {}", fs::read_to_string(self.folder.path().join("out.log")).unwrap_or_default());
    }

    /// kill -9.
    pub(crate) fn kill(&mut self) {
        if let Some(mut process) = self.process.take() {
            let _ = process.kill();
            let _ = process.wait();
        }
    }

    pub(crate) async fn restart(&mut self) {
        self.kill();
        self.launch().await;
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
        self.kill();
        // Helpers of the daemon (dnsmasq, forkproxy) do not exist here; mounts do.
        let below = self.folder.path().display().to_string();
        for _ in 0..5 {
            let mounts = fs::read_to_string("/proc/self/mounts").unwrap_or_default();
            let mine: Vec<&str> = mounts
                .lines()
                .rev()
                .filter_map(|line| line.split(' ').nth(1))
                .filter(|at| at.starts_with(&below))
                .collect();
            if mine.is_empty() {
                break;
            }
            for at in mine {
                let _ = Command::new("umount").args(["-l", at]).stderr(Stdio::null()).status();
            }
        }
        for link in [&self.bridge, &self.port] {
            let _ = Command::new("ip").args(["link", "delete", link]).stderr(Stdio::null()).status();
        }
    }
}
