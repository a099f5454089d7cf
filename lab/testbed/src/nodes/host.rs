//! The LXD that runs the machines, and their network.

use std::{
    fs,
    io::Write as _,
    net::Ipv4Addr,
    path::{Path, PathBuf},
    process::{Command, Stdio},
    sync::Arc,
};

use serde_json::{Value, json};

use super::NodeImage;
use crate::{
    error::{Doing, Error, Result, create_dir, write_file},
    lxd::{LxdDaemon, LxdOptions},
    process::{run, tail},
    sandbox::MARKER,
    versions::KubernetesVersion,
};

/// The name of the machines' bridge and of the storage pool for their disks.
const BRIDGE: &str = "nodes";
const POOL: &str = "nodes";
/// A sparse file: it only uses what machines write.
const POOL_SIZE: &str = "60GiB";
/// Networks reserved for benchmarking: no real traffic goes there.
const SECOND_OCTETS: [u8; 2] = [18, 19];
pub(crate) const PREFIX: u8 = 24;
/// For kernels with cgroup v1, alone or next to v2: systemd uses v2 unless told otherwise.
const RAW_CGROUP_1: &str = "lxc.init.cmd = /sbin/init systemd.unified_cgroup_hierarchy=0 \
    systemd.legacy_systemd_cgroup_controller=1\nlxc.cgroup.devices.allow = a\n";
const RAW_CGROUP_2: &str = "lxc.cgroup2.devices.allow = a\n";
const RAW: &str = "lxc.mount.auto = cgroup:rw:force\nlxc.cap.drop =\n";

/// A machine to install.
#[derive(Clone, Debug)]
pub struct Machine {
    /// Its name here, which may differ from its host name.
    pub name: String,
    /// The Kubernetes version of its disk image.
    pub kubernetes: KubernetesVersion,
    /// The MAC address of its NIC.
    pub mac: String,
    /// The files that the installer writes to its disk: path and content.
    pub files: Vec<(String, String)>,
}

/// Where machines run. Stopped on drop, with its machines.
#[derive(Clone, Debug)]
pub struct NodeHost {
    daemon: Arc<LxdDaemon>,
    network: [u8; 3],
}

impl NodeHost {
    /// Starts LXD in its own network namespace, with a bridge on which this machine has an address.
    pub async fn start(image: &NodeImage) -> Result<Self> {
        check_machine(Path::new("/"))?;
        let options = LxdOptions { virtual_machines: false, host_network: false, containers: true };
        let host = Self { daemon: Arc::new(LxdDaemon::start(options).await?), network: free_network()? };
        let (prepared, image) = (host.clone(), image.clone());
        crate::blocking(move || prepared.prepare(&image)).await?;
        Ok(host)
    }

    /// `LXD_DIR` of its LXD.
    pub fn dir(&self) -> PathBuf {
        self.daemon.dir()
    }

    /// This machine's address in their network, where they reach MAAS and its DNS.
    pub fn address(&self) -> Ipv4Addr {
        self.member(1)
    }

    /// An address of their network.
    pub fn member(&self, number: u8) -> Ipv4Addr {
        let [a, b, c] = self.network;
        Ipv4Addr::new(a, b, c, number)
    }

    /// Their network.
    pub fn cidr(&self) -> String {
        format!("{}/{PREFIX}", self.member(0))
    }

    fn prepare(&self, image: &NodeImage) -> Result<()> {
        let id = self.daemon.sandbox().id();
        let namespace = self.daemon.network_namespace().unwrap_or_default();
        let (ours, theirs) = (format!("cm{id}"), "uplink");
        self.daemon.run_in_network(["ip", "link", "add", BRIDGE, "type", "bridge"])?;
        // The peer is deleted with the namespace, and this end with its peer.
        ip(&["link", "add", &ours, "type", "veth", "peer", "name", theirs, "netns", &namespace])?;
        ip(&["address", "add", &format!("{}/{PREFIX}", self.address()), "dev", &ours])?;
        ip(&["link", "set", &ours, "up"])?;
        self.daemon.run_in_network(["ip", "link", "set", "dev", theirs, "master", BRIDGE, "up"])?;
        self.daemon.run_in_network(["ip", "link", "set", BRIDGE, "up"])?;
        self.lxc(&["storage", "create", POOL, "btrfs", &format!("size={POOL_SIZE}")])?;
        self.import(image)
    }

    fn import(&self, image: &NodeImage) -> Result<()> {
        let path = image.path().display().to_string();
        self.lxc(&["image", "import", &path, "--alias", image.kubernetes().as_str()])?;
        // Unpacking the first disk of an image takes long; all others are copies of it.
        let first = self.instance("first");
        self.init(&first, image.kubernetes(), "00:16:3e:00:00:01")?;
        self.lxc(&["delete", &first]).map(drop)
    }

    /// Prepares another image for machines.
    pub async fn add_image(&self, image: &NodeImage) -> Result<()> {
        let (host, image) = (self.clone(), image.clone());
        crate::blocking(move || host.import(&image)).await
    }

    /// Installs a machine and starts it, replacing whatever was on its disk.
    pub async fn deploy(&self, machine: Machine) -> Result<()> {
        let host = self.clone();
        crate::blocking(move || {
            let name = host.instance(&machine.name);
            host.remove(&machine.name)?;
            host.init(&name, machine.kubernetes, &machine.mac)?;
            host.install(&name, &machine.files)?;
            host.lxc(&["start", &name]).map(drop)
        })
        .await
    }

    /// Starts it from its disk. A running machine keeps running.
    pub async fn power_on(&self, machine: &str) -> Result<()> {
        let (host, machine) = (self.clone(), machine.to_owned());
        crate::blocking(move || {
            let name = host.instance(&machine);
            if host.running()?.contains(&machine) { Ok(()) } else { host.lxc(&["start", &name]).map(drop) }
        })
        .await
    }

    /// Powers it off. A machine that is off or not installed stays so.
    pub async fn power_off(&self, machine: &str) -> Result<()> {
        let (host, machine) = (self.clone(), machine.to_owned());
        crate::blocking(move || {
            let name = host.instance(&machine);
            if host.running()?.contains(&machine) { host.lxc(&["stop", "--force", &name]).map(drop) } else { Ok(()) }
        })
        .await
    }

    /// Powers it off and erases its disk.
    pub async fn erase(&self, machine: &str) -> Result<()> {
        let (host, machine) = (self.clone(), machine.to_owned());
        crate::blocking(move || host.remove(&machine)).await
    }

    /// The machines with an installed disk.
    pub fn installed(&self) -> Result<Vec<String>> {
        Ok(self.list()?.into_iter().map(|(name, _)| name).collect())
    }

    pub fn running(&self) -> Result<Vec<String>> {
        Ok(self.list()?.into_iter().filter(|(_, status)| status == "Running").map(|(name, _)| name).collect())
    }

    /// Runs a command in a machine and returns its output.
    pub async fn run(&self, machine: &str, command: &[&str]) -> Result<String> {
        let (host, name) = (self.clone(), self.instance(machine));
        let command: Vec<String> = command.iter().map(|&word| word.to_owned()).collect();
        crate::blocking(move || {
            let mut words = vec!["exec", &name, "--"];
            words.extend(command.iter().map(String::as_str));
            host.lxc(&words)
        })
        .await
    }

    /// A name that distinguishes a machine of this host from those of others: its cgroups are named after it.
    fn instance(&self, machine: &str) -> String {
        format!("capmaas-{}-{machine}", self.daemon.sandbox().id())
    }

    fn list(&self) -> Result<Vec<(String, String)>> {
        let listed = self.lxc(&["list", "--format", "json"])?;
        let listed: Vec<Value> =
            serde_json::from_str(&listed).map_err(|error| Error::invalid("LXD's list of instances", error))?;
        let prefix = self.instance("");
        let text = |value: &Value| value.as_str().unwrap_or_default().to_owned();
        let named = |instance: &Value| {
            let name = text(&instance["name"]);
            name.strip_prefix(&prefix).map(|name| (name.to_owned(), text(&instance["status"])))
        };
        Ok(listed.iter().filter_map(named).collect())
    }

    fn remove(&self, machine: &str) -> Result<()> {
        if self.installed()?.iter().any(|name| name == machine) {
            self.lxc(&["delete", "--force", &self.instance(machine)])?;
        }
        Ok(())
    }

    fn init(&self, name: &str, kubernetes: KubernetesVersion, mac: &str) -> Result<()> {
        let marker = format!("environment.{MARKER}");
        let definition = json!({
            "config": {
                "security.privileged": "true",
                "security.nesting": "true",
                // Otherwise cloud-init would detect LXD and use it instead of the MAAS that installed the machine.
                "security.devlxd": "false",
                "raw.lxc": raw_lxc(has_cgroup_1()),
                // The guard finds its processes by this.
                marker: self.daemon.sandbox().id(),
            },
            "devices": {
                "root": {"type": "disk", "path": "/", "pool": POOL},
                "eth0": {"type": "nic", "nictype": "bridged", "parent": BRIDGE, "name": "eth0", "hwaddr": mac},
                "kmsg": {"type": "unix-char", "source": "/dev/kmsg", "path": "/dev/kmsg"},
            },
        });
        self.lxc_with(&["init", kubernetes.as_str(), name, "--no-profiles"], &definition.to_string()).map(drop)
    }

    /// Writes the installer's files to the disk of a machine that is off.
    fn install(&self, name: &str, files: &[(String, String)]) -> Result<()> {
        let folder = self.daemon.sandbox().dir().join("seeds").join(name);
        create_dir(&folder)?;
        for (path, content) in files {
            let target = folder.join(path.trim_start_matches('/'));
            create_dir(target.parent().unwrap_or(&folder))?;
            write_file(&target, content)?;
        }
        let top = |entry: fs::DirEntry| entry.path().display().to_string();
        let entries = fs::read_dir(&folder).doing(|| format!("read {}", folder.display()))?;
        for entry in entries.flatten() {
            self.lxc(&["file", "push", "--recursive", "--quiet", &top(entry), &format!("{name}/")])?;
        }
        fs::remove_dir_all(&folder).doing(|| format!("remove {}", folder.display()))
    }

    fn lxc(&self, words: &[&str]) -> Result<String> {
        self.lxc_with(words, "")
    }

    fn lxc_with(&self, words: &[&str], input: &str) -> Result<String> {
        let mut command = self.daemon.prepare(self.daemon.sandbox().command("lxc"));
        command.args(words).stdin(Stdio::piped()).stdout(Stdio::piped()).stderr(Stdio::piped());
        command.env("LXD_CONF", self.daemon.sandbox().dir().join("lxc"));
        let doing = || "start lxc (Debian package lxd)".to_owned();
        let mut child = command.spawn().doing(doing)?;
        if let Some(mut stdin) = child.stdin.take() {
            stdin.write_all(input.as_bytes()).doing(|| "talk to lxc".into())?;
        }
        let output = child.wait_with_output().doing(doing)?;
        if output.status.success() {
            return Ok(String::from_utf8_lossy(&output.stdout).into_owned());
        }
        Err(Error::Program {
            name: "lxc".into(),
            what: format!("{} failed ({})", words.join(" "), output.status),
            tail: tail(&String::from_utf8_lossy(&output.stderr)),
        })
    }
}

/// Whether this machine uses cgroup v1, alone or for most controllers.
pub fn has_cgroup_1() -> bool {
    has_cgroup_1_below(Path::new("/"))
}

fn has_cgroup_1_below(root: &Path) -> bool {
    !root.join("sys/fs/cgroup/cgroup.controllers").exists()
}

/// The raw LXC configuration of a machine.
fn raw_lxc(cgroup_1: bool) -> String {
    let more = if cgroup_1 { RAW_CGROUP_1 } else { RAW_CGROUP_2 };
    format!("{RAW}{more}")
}

/// Checks that a computer with this root folder can run machines that boot; the error names what it lacks.
fn check_machine(root: &Path) -> Result<()> {
    let lacks = |what: &str| Err(Error::Missing(format!("this machine cannot run nodes: {what}")));
    let groups = if has_cgroup_1_below(root) { "memory" } else { "cgroup.controllers" };
    if !root.join("sys/fs/cgroup").join(groups).exists() {
        return lacks("no control groups are mounted at /sys/fs/cgroup, or none for memory");
    }
    let filesystems = fs::read_to_string(root.join("proc/filesystems")).unwrap_or_default();
    for needed in ["btrfs", "overlay"] {
        if !filesystems.lines().any(|line| line.split_whitespace().next_back() == Some(needed)) {
            return lacks(&format!("its kernel has no {needed} (try: modprobe {needed})"));
        }
    }
    for (path, what, module) in [
        ("proc/sys/net/netfilter", "connection tracking", "nf_conntrack"),
        ("dev/loop-control", "loop devices", "loop"),
    ] {
        if !root.join(path).exists() {
            return lacks(&format!("its kernel has no {what} (try: modprobe {module})"));
        }
    }
    Ok(())
}

/// A network that no interface of this machine is in.
fn free_network() -> Result<[u8; 3]> {
    let mut show = Command::new("ip");
    show.args(["-4", "-oneline", "address"]);
    let taken = run(show)?;
    for _ in 0..100 {
        let second = SECOND_OCTETS[usize::from(rand::random::<bool>())];
        let network = [198, second, rand::random()];
        if !taken.contains(&format!(" 198.{second}.{}.", network[2])) {
            return Ok(network);
        }
    }
    Err(Error::Missing("every network of 198.18.0.0/15 is in use on this machine".into()))
}

fn ip(words: &[&str]) -> Result<String> {
    let mut command = Command::new("ip");
    command.args(words);
    run(command)
}

#[cfg(test)]
mod tests {
    use super::*;

    fn computer(files: &[&str], filesystems: &str) -> tempfile::TempDir {
        let root = tempfile::tempdir().unwrap();
        for file in files {
            create_dir(root.path().join(file).parent().unwrap()).unwrap();
            write_file(&root.path().join(file), "").unwrap();
        }
        create_dir(&root.path().join("proc")).unwrap();
        write_file(&root.path().join("proc/filesystems"), filesystems).unwrap();
        root
    }

    #[test]
    fn one_sentence_says_what_a_computer_lacks_for_nodes() {
        let (old, new) = ("sys/fs/cgroup/memory/tasks", "sys/fs/cgroup/cgroup.controllers");
        let (track, loops) = ("proc/sys/net/netfilter/x", "dev/loop-control");
        let both = "nodev\toverlay\n\tbtrfs\n";
        for groups in [old, new] {
            assert!(check_machine(computer(&[groups, track, loops], both).path()).is_ok(), "{groups}");
        }
        let said =
            |files: &[&str], filesystems| check_machine(computer(files, filesystems).path()).unwrap_err().to_string();
        assert!(said(&[track, loops], both).contains("no control groups are mounted at /sys/fs/cgroup"));
        let kernel = said(&[new, track, loops], "nodev\toverlay\n");
        assert_eq!(kernel, "this machine cannot run nodes: its kernel has no btrfs (try: modprobe btrfs)");
        assert!(said(&[old, loops], both).contains("no connection tracking"));
        assert!(said(&[old, track], both).contains("no loop devices"));
    }

    #[test]
    fn systemd_is_told_of_old_control_groups_and_of_new_ones_it_knows_itself() {
        let (old, new) = (raw_lxc(true), raw_lxc(false));
        assert!(old.contains("unified_cgroup_hierarchy=0") && old.contains("lxc.cgroup.devices.allow"), "{old}");
        assert!(!new.contains("lxc.init.cmd") && new.contains("lxc.cgroup2.devices.allow"), "{new}");
        assert!([old, new].iter().all(|raw| raw.starts_with(RAW)));
    }
}
