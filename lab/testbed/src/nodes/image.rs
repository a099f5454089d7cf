//! The disk image of a node: Debian with systemd, cloud-init, containerd and one version of Kubernetes, and the images
//! that kubeadm starts preloaded in containerd. Everything comes from Debian and the Go module proxy; nothing is pulled
//! from a registry.

use std::{
    env::consts::ARCH,
    fs,
    os::unix::fs::PermissionsExt as _,
    path::{Path, PathBuf},
    process::Command,
};

use serde_json::json;

use super::containers::{self, Image};
use crate::{
    error::{Doing, Error, Result, create_dir, write_file},
    process::run,
    sandbox::Sandbox,
    tools::{LXD_PACKAGES, NODE_PACKAGES, Progress, ToolSet, Tools, cache_root, ensure_packages, lock},
    versions::KubernetesVersion,
};

/// Raise this when the way images are built changes.
const REVISION: u32 = 2;
/// The Kubernetes version of real nodes.
pub const KUBERNETES: KubernetesVersion = KubernetesVersion::V1_36;
/// The version from which they are upgraded.
pub const OLDER_KUBERNETES: KubernetesVersion = KubernetesVersion::V1_36_3;
const SUITE: &str = "bookworm";
const MIRROR: &str = "http://deb.debian.org/debian";
/// The Debian packages of a node.
const IN_THE_NODE: &str = "systemd,systemd-sysv,dbus,udev,cloud-init,python3-oauthlib,iproute2,iputils-ping,iptables,nftables,\
    conntrack,socat,ethtool,ebtables,kmod,procps,mount,util-linux,netbase,ifupdown,ca-certificates,curl,containerd,runc,\
    containernetworking-plugins,busybox-static";
const IMPORT: &str = include_str!("import-images.sh");
/// Where images are assembled inside the root file system; removed at the end.
const SCRATCH: &str = "var/tmp/images";
/// The image that Cluster API's own specs use for a Pod that only waits. Its content is that of kubeadm's pause image.
const WAITING_IMAGE: &str = "registry.k8s.io/pause:3.10.1";
/// The image of the workload that scenarios start, and of the network plugin.
pub const BUSYBOX_IMAGE: &str = "capmaas.dev/busybox:node";

/// Files of the node: path, mode, content.
const FILES: [(&str, u32, &str); 6] = [
    ("etc/systemd/system/kubelet.service", 0o644, include_str!("files/kubelet.service")),
    ("etc/systemd/system/node-sysctls.service", 0o644, include_str!("files/node-sysctls.service")),
    ("usr/local/sbin/node-sysctls", 0o755, include_str!("files/node-sysctls")),
    ("etc/kubernetes/kubelet.conf.d/10-testbed.conf", 0o644, include_str!("files/kubelet.yaml")),
    ("etc/cloud/cloud.cfg.d/95-testbed.cfg", 0o644, include_str!("files/cloud.cfg")),
    ("etc/sysctl.d/90-kubernetes.conf", 0o644, "net.ipv4.ip_forward = 1\n"),
];
const MASKED: [&str; 6] = [
    "apt-daily.timer",
    "apt-daily-upgrade.timer",
    "console-getty.service",
    "dpkg-db-backup.timer",
    "fstrim.timer",
    "systemd-binfmt.service",
];

/// An image that exists.
#[derive(Clone, Debug)]
pub struct NodeImage {
    kubernetes: KubernetesVersion,
    path: PathBuf,
}

impl NodeImage {
    /// Ensures that the image with this Kubernetes version exists. The first build takes minutes and reports progress.
    /// Blocks.
    pub fn ensure(kubernetes: KubernetesVersion) -> Result<Self> {
        let image = Self::place(kubernetes)?;
        if image.path.exists() {
            return Ok(image);
        }
        create_dir(image.path.parent().unwrap_or(&image.path))?;
        let _lock = lock(&image.path.with_extension("lock"), &format!("the node image of Kubernetes {kubernetes}"))?;
        if !image.path.exists() {
            let partial = image.path.with_extension("partial");
            make(kubernetes, &partial)?;
            fs::rename(&partial, &image.path).doing(|| format!("put {} in its place", image.path.display()))?;
        }
        Ok(image)
    }

    /// Whether it exists already.
    pub fn is_there(kubernetes: KubernetesVersion) -> Result<bool> {
        Ok(Self::place(kubernetes)?.path.exists())
    }

    fn place(kubernetes: KubernetesVersion) -> Result<Self> {
        let name = format!("{SUITE}-{kubernetes}-r{REVISION}.tar.zst");
        Ok(Self { kubernetes, path: cache_root()?.join("nodes").join(name) })
    }

    /// Its Kubernetes version.
    pub fn kubernetes(&self) -> KubernetesVersion {
        self.kubernetes
    }

    /// The file that LXD imports.
    pub fn path(&self) -> &Path {
        &self.path
    }
}

/// The programs that go into the image.
struct Programs {
    version: KubernetesVersion,
    kubernetes: Tools,
    node: Tools,
    etcd: Tools,
    core_dns: Tools,
}

fn make(version: KubernetesVersion, target: &Path) -> Result<()> {
    ensure_packages(LXD_PACKAGES)?;
    ensure_packages(NODE_PACKAGES)?;
    let programs = Programs {
        version,
        kubernetes: ToolSet::Kubernetes(version).ensure()?,
        node: ToolSet::Node(version).ensure()?,
        etcd: ToolSet::NodeEtcd.ensure()?,
        core_dns: ToolSet::CoreDns.ensure()?,
    };
    let sandbox = Sandbox::create()?;
    let root = sandbox.dir().join("image/rootfs");
    create_dir(&root)?;
    step(&format!("installing Debian {SUITE} for nodes"), || install_debian(&sandbox, &root))?;
    step("putting Kubernetes into the node image", || {
        write_files(&root)?;
        for program in ["kubeadm", "kubectl"] {
            install(&programs.kubernetes.program(program), &root.join("usr/bin").join(program))?;
        }
        install(&programs.node.program("kubelet"), &root.join("usr/bin/kubelet"))?;
        add_images(&sandbox, &programs, &root)?;
        clean(&sandbox, &root)
    })?;
    step("packing the node image", || pack(&sandbox, target))?;
    sandbox.close();
    Ok(())
}

fn step<T>(what: &str, work: impl FnOnce() -> Result<T>) -> Result<T> {
    let progress = Progress::start(what.to_owned());
    let outcome = work()?;
    progress.done();
    Ok(outcome)
}

fn install_debian(sandbox: &Sandbox, root: &Path) -> Result<()> {
    let mut command = sandbox.command("mmdebstrap");
    command
        .args(["--variant=minbase", "--mode=root", "--format=directory", "--quiet"])
        .arg(format!("--include={}", IN_THE_NODE.replace(char::is_whitespace, "")))
        .arg("--aptopt=APT::Install-Recommends \"false\"")
        .arg(SUITE)
        .arg(root)
        .arg(MIRROR)
        .env("TMPDIR", sandbox.dir());
    run(command).map(drop)
}

fn write_files(root: &Path) -> Result<()> {
    for (path, mode, content) in FILES {
        let target = root.join(path);
        if let Some(parent) = target.parent() {
            create_dir(parent)?;
        }
        write_file(&target, content)?;
        set_mode(&target, mode)?;
    }
    Ok(())
}

fn install(program: &Path, target: &Path) -> Result<()> {
    fs::copy(program, target).doing(|| format!("copy {}", program.display()))?;
    set_mode(target, 0o755)
}

fn set_mode(path: &Path, mode: u32) -> Result<()> {
    fs::set_permissions(path, fs::Permissions::from_mode(mode)).doing(|| format!("set the mode of {}", path.display()))
}

/// The images that kubeadm of this version starts, as it lists them.
struct Names(Vec<String>);

impl Names {
    fn ask(programs: &Programs) -> Result<Self> {
        let mut command = Command::new(programs.kubernetes.program("kubeadm"));
        command.args(["config", "images", "list", "--kubernetes-version", programs.version.as_str()]);
        Ok(Self(run(command)?.lines().map(str::to_owned).collect()))
    }

    fn of(&self, program: &str, version: &str) -> Result<&str> {
        let found = self.0.iter().find(|name| name.contains(&format!("/{program}:")));
        let name =
            found.ok_or_else(|| Error::invalid(format!("kubeadm's image of {program}"), "is not in its list"))?;
        if !name.contains(version.trim_start_matches('v')) {
            let why = format!("kubeadm wants {name}, and the pinned version is {version}: see hack/tools/README.md");
            return Err(Error::invalid(format!("the node's {program}"), why));
        }
        Ok(name)
    }
}

fn add_images(sandbox: &Sandbox, programs: &Programs, root: &Path) -> Result<()> {
    let names = Names::ask(programs)?;
    let pause = names.of("pause", "")?;
    write_file(
        &root.join("etc/containerd/config.toml"),
        include_str!("files/containerd.toml").replace("PAUSE_IMAGE", pause),
    )?;
    let scratch = root.join(SCRATCH);
    let image = |name: &str, path: &str, program: &Path| Image::begin(&scratch, name, path)?.program(path, program);
    let proxy = names.of("kube-proxy", programs.version.as_str())?;
    let mut images = vec![
        image(pause, "/pause", &programs.node.program("pause"))?,
        image(WAITING_IMAGE, "/pause", &programs.node.program("pause"))?,
        image(names.of("etcd", ToolSet::NodeEtcd.version())?, "/usr/local/bin/etcd", &programs.etcd.program("etcd"))?,
        image(names.of("coredns", ToolSet::CoreDns.version())?, "/coredns", &programs.core_dns.program("coredns"))?,
        busybox(&scratch, root)?,
        kube_proxy(sandbox, &scratch, root, proxy, &programs.node)?,
    ];
    if programs.version != KUBERNETES {
        // As soon as the control plane is upgraded, every node runs kube-proxy of its version.
        let newer = proxy.replace(programs.version.as_str(), KUBERNETES.as_str());
        images.push(kube_proxy(sandbox, &scratch, root, &newer, &ToolSet::Node(KUBERNETES).ensure()?)?);
    }
    for (name, tools) in [
        ("kube-apiserver", &programs.kubernetes),
        ("kube-controller-manager", &programs.kubernetes),
        ("kube-scheduler", &programs.node),
    ] {
        let path = format!("/usr/local/bin/{name}");
        images.push(image(names.of(name, programs.version.as_str())?, &path, &tools.program(name))?);
    }
    let archive = scratch.join("images.tar");
    containers::archive(&images, &scratch.join("packed"), &archive)?;
    let mut import = sandbox.command("unshare");
    let script = sandbox.dir().join("import-images.sh");
    write_file(&script, IMPORT)?;
    import.args(["--mount", "--pid", "--fork", "--kill-child", "sh"]).arg(script);
    import.arg(root).arg(Path::new("/").join(SCRATCH).join("images.tar"));
    run(import)?;
    fs::remove_dir_all(&scratch).doing(|| format!("remove {}", scratch.display()))
}

fn busybox(scratch: &Path, root: &Path) -> Result<Image> {
    const APPLETS: [&str; 12] =
        ["cat", "hostname", "httpd", "ip", "ls", "mv", "nslookup", "ping", "sh", "sleep", "true", "wget"];
    Image::begin(scratch, BUSYBOX_IMAGE, "/bin/sh")?
        .program("/bin/busybox", &root.join("bin/busybox"))?
        .links("/bin", &APPLETS, "busybox")
}

/// kube-proxy calls iptables and nft, which need libraries and plugins of their own.
fn kube_proxy(sandbox: &Sandbox, scratch: &Path, root: &Path, name: &str, node: &Tools) -> Result<Image> {
    const CLOSURE: &str = r#"
        programs="/usr/sbin/xtables-nft-multi /usr/sbin/nft /usr/sbin/conntrack"
        plugins=$(ls /usr/lib/*/xtables/*.so)
        libraries=$(ldd $programs $plugins | grep -o '/[^ :]*' | sort -u)
        cp --dereference --parents $programs $plugins $libraries "$1"
    "#;
    const NAMES: [&str; 6] =
        ["iptables", "iptables-save", "iptables-restore", "ip6tables", "ip6tables-save", "ip6tables-restore"];
    let image = Image::begin(scratch, name, "/usr/local/bin/kube-proxy")?
        .program("/usr/local/bin/kube-proxy-program", &node.program("kube-proxy"))?
        .program("/bin/busybox", &root.join("bin/busybox"))?
        .script("/usr/local/bin/kube-proxy", include_str!("files/kube-proxy"))?
        .links("/usr/sbin", &NAMES, "xtables-nft-multi")?;
    let folder = image.folder().strip_prefix(root).map_err(|error| Error::invalid("the scratch folder", error))?;
    let mut copy = sandbox.command("chroot");
    copy.arg(root).args(["sh", "-euc", CLOSURE, "closure"]).arg(Path::new("/").join(folder));
    run(copy)?;
    Ok(image)
}

/// Resets the file system to the state before its first boot.
fn clean(sandbox: &Sandbox, root: &Path) -> Result<()> {
    const CLEAN: &str = r#"
        systemctl enable kubelet.service node-sysctls.service
        systemctl mask "$@"
        rm -rf /var/lib/apt/lists/* /var/cache/apt/* /var/log/* /var/lib/cloud/*
        rm -f /etc/machine-id /var/lib/dbus/machine-id /etc/hostname
        touch /etc/machine-id

        mkdir -p /etc/cni/net.d
    "#;
    let mut command = sandbox.command("chroot");
    command.arg(root).args(["sh", "-euc", CLEAN, "clean"]).args(MASKED);
    run(command).map(drop)
}

fn pack(sandbox: &Sandbox, target: &Path) -> Result<()> {
    let folder = sandbox.dir().join("image");
    let metadata = json!({"architecture": ARCH, "creation_date": 1, "properties": {"os": "debian", "release": SUITE}});
    write_file(&folder.join("metadata.yaml"), metadata.to_string())?;
    let mut tar = sandbox.command("tar");
    tar.arg("-C").arg(&folder);
    tar.args(["--numeric-owner", "--xattrs", "--use-compress-program=zstd -T0 -6", "-cf"]).arg(target);
    tar.args(["metadata.yaml", "rootfs"]);
    run(tar).map(drop)
}
