//! A real LXD daemon with its own folder and, by default, its own network.

use std::{
    ffi::OsStr,
    fs,
    os::unix::fs::PermissionsExt as _,
    path::{Path, PathBuf},
    process::Command,
    sync::Arc,
    time::Duration,
};

use serde_json::Value;
use tokio::{
    io::{AsyncReadExt as _, AsyncWriteExt as _},
    net::UnixStream,
};

use crate::{
    error::{Doing, Error, Result, create_dir, write_file},
    process::{Process, run},
    sandbox::Sandbox,
};

const READY_WITHIN: Duration = Duration::from_secs(60);
const ANSWER_WITHIN: Duration = Duration::from_secs(5);
const SHUTDOWN_SECONDS: u64 = 20;
/// Nothing listens there: LXD's requests to image servers at startup fail immediately on this machine.
const NOWHERE: &str = "http://127.0.0.1:9";
/// LXD loads vhost_vsock before it reports VM support. Kernels without modules cannot do that, and creating and
/// describing VMs does not need it.
const MODPROBE: &str = "#!/bin/sh\nexit 0\n";
/// `ip netns exec` mounts a fresh /sys, so that a program sees its own network there. That hides the cgroups; this
/// mounts them again.
const WITH_CONTROL_GROUPS: &str = r#"
mount --make-rslave / && mount --rbind /sys/fs/cgroup "$0" && mount -t sysfs sysfs /sys && mount --rbind "$0" /sys/fs/cgroup && exec "$@"
"#;
/// Starts LXD without a usable qemu binary, so that it reports no VM support, whatever the machine has.
const WITHOUT_QEMU: &str = r#"mount --bind /dev/null "$(command -v qemu-system-x86_64)" && exec lxd "$@""#;

/// How to start LXD.
#[derive(Clone, Debug)]
pub struct LxdOptions {
    /// Whether it reports VM support, as MAAS requires. Default: yes.
    pub virtual_machines: bool,
    /// Whether it shares the machine's network, so that it can listen on one of our addresses. Default: no; its bridges
    /// and firewall rules are then in a network namespace that is removed with it. If yes, networks that were created
    /// in it and not deleted stay on the machine after a kill, because it is unknown who owns a bridge.
    pub host_network: bool,
    /// Whether it starts containers, which needs this machine's cgroups. Default: no.
    pub containers: bool,
}

impl Default for LxdOptions {
    fn default() -> Self {
        Self { virtual_machines: true, host_network: false, containers: false }
    }
}

/// A running LXD. Stopped on drop.
#[derive(Debug)]
pub struct LxdDaemon {
    process: Option<Process>,
    options: LxdOptions,
    sandbox: Arc<Sandbox>,
}

impl LxdDaemon {
    /// Starts one and waits until it answers. It has no storage pool, no network and no project yet.
    pub async fn start(options: LxdOptions) -> Result<Self> {
        for (program, package) in [("lxd", "lxd"), ("ip", "iproute2"), ("qemu-system-x86_64", "qemu-system-x86")] {
            if !in_path(program) {
                return Err(Error::Missing(format!(
                    "{program} is not in PATH: run `testbed tools`, or install the Debian package {package}"
                )));
            }
        }
        let sandbox = Sandbox::create()?;
        let mut daemon = Self { process: None, options, sandbox };
        create_dir(&daemon.dir())?;
        let shims = daemon.sandbox.dir().join("shims");
        create_dir(&shims)?;
        if daemon.options.virtual_machines {
            let modprobe = shims.join("modprobe");
            write_file(&modprobe, MODPROBE)?;
            fs::set_permissions(&modprobe, fs::Permissions::from_mode(0o755))
                .doing(|| "make a shim executable".into())?;
        }
        if let Some(namespace) = daemon.network_namespace() {
            let mut add = daemon.sandbox.command("ip");
            add.args(["netns", "add", &namespace]);
            run(add)?;
            daemon.run_in_network(["ip", "link", "set", "lo", "up"])?;
        }
        daemon.restart().await?;
        Ok(daemon)
    }

    /// `LXD_DIR`. An agent needs this folder mounted, not the socket: LXD recreates the socket at each start.
    pub fn dir(&self) -> PathBuf {
        self.sandbox.dir().join("lxd")
    }

    /// The unix socket of its API.
    pub fn socket(&self) -> PathBuf {
        self.dir().join("unix.socket")
    }

    /// Its folder, and the way to start processes that end with it.
    pub fn sandbox(&self) -> &Arc<Sandbox> {
        &self.sandbox
    }

    /// The name of its network namespace, if it has one.
    pub fn network_namespace(&self) -> Option<String> {
        (!self.options.host_network).then(|| format!("capmaas-{}", self.sandbox.id()))
    }

    /// Runs a command in LXD's network, for instance to create a bridge, and returns its output.
    pub fn run_in_network<A: AsRef<OsStr>>(&self, command: impl IntoIterator<Item = A>) -> Result<String> {
        let mut words = command.into_iter();
        let program = words.next().ok_or_else(|| Error::invalid("an empty command", "cannot be run"))?;
        let mut command = self.in_network(program);
        command.args(words);
        run(command)
    }

    fn in_network(&self, program: impl AsRef<OsStr>) -> Command {
        let command = match self.network_namespace() {
            None => self.sandbox.command(program),
            Some(namespace) => {
                let mut command = self.sandbox.command("ip");
                command.args(["netns", "exec", &namespace]).arg(program);
                command
            }
        };
        self.prepare(command)
    }

    /// The environment of LXD and of its client.
    pub(crate) fn prepare(&self, mut command: Command) -> Command {
        let mut path = self.sandbox.dir().join("shims").into_os_string();
        path.push(":");
        path.push(std::env::var_os("PATH").unwrap_or_default());
        command.env("PATH", path).env("LXD_DIR", self.dir());
        for variable in ["http_proxy", "https_proxy", "HTTP_PROXY", "HTTPS_PROXY"] {
            command.env(variable, NOWHERE);
        }
        command
    }

    /// The `metadata` of `GET /1.0`.
    pub async fn server(&self) -> Result<Value> {
        let what = "the answer of LXD to GET /1.0";
        let answer = get(&self.socket(), "/1.0").await.doing(|| format!("ask LXD at {}", self.socket().display()))?;
        let mut answer: Value = serde_json::from_str(&answer).map_err(|e| Error::invalid(what, e))?;
        Ok(answer["metadata"].take())
    }

    /// Starts it again after [`LxdDaemon::kill`], or restarts it.
    pub async fn restart(&mut self) -> Result<()> {
        self.kill();
        let mut command = if self.options.containers {
            let groups = self.sandbox.dir().join("cgroup");
            create_dir(&groups)?;
            // Enter its own mount namespace before the network namespace, whose /sys it must not see.
            let mut command = self.sandbox.command("unshare");
            command.args(["--mount", "sh", "-c", WITH_CONTROL_GROUPS]).arg(groups).arg("lxd");
            if let Some(namespace) = self.network_namespace() {
                let inner = command;
                command = self.sandbox.command("nsenter");
                command.arg(format!("--net=/run/netns/{namespace}")).arg(inner.get_program()).args(inner.get_args());
            }
            self.prepare(command)
        } else if self.options.virtual_machines {
            self.in_network("lxd")
        } else {
            let mut command = self.in_network("unshare");
            command.args(["--mount", "sh", "-c", WITHOUT_QEMU, "lxd"]);
            command
        };
        command.args(["--group", "root", "--logfile"]).arg(self.sandbox.logs().join("lxd-daemon.log"));
        let process = self.sandbox.spawn("lxd", command)?;
        let socket = self.socket();
        process.wait_until(READY_WITHIN, || async { get(&socket, "/1.0").await.is_ok() }).await?;
        self.process = Some(process);
        Ok(())
    }

    /// kill -9, as in a crash. Its folder stays.
    pub fn kill(&mut self) {
        self.process.take();
    }

    /// Shuts it down in order, then removes everything.
    pub async fn stop(self) {
        let mut command = self.in_network("lxd");
        command.args(["shutdown", "--timeout", &SHUTDOWN_SECONDS.to_string()]);
        let _ = crate::blocking(move || {
            if self.process.is_some()
                && let Err(error) = run(command)
            {
                tracing::warn!(%error, "LXD did not shut down and is killed");
            }
            drop(self);
            Ok(())
        })
        .await;
    }
}

impl Drop for LxdDaemon {
    fn drop(&mut self) {
        self.sandbox.close();
    }
}

fn in_path(program: &str) -> bool {
    std::env::var_os("PATH").is_some_and(|path| std::env::split_paths(&path).any(|dir| dir.join(program).is_file()))
}

/// The body of a GET over a unix socket. HTTP/1.0, so that the body ends with the connection.
async fn get(socket: &Path, path: &str) -> std::io::Result<String> {
    let exchange = async {
        let mut stream = UnixStream::connect(socket).await?;
        stream.write_all(format!("GET {path} HTTP/1.0\r\nHost: lxd\r\n\r\n").as_bytes()).await?;
        let mut answer = String::new();
        stream.read_to_string(&mut answer).await?;
        Ok::<_, std::io::Error>(answer)
    };
    let answer = tokio::time::timeout(ANSWER_WITHIN, exchange).await.map_err(|_| std::io::ErrorKind::TimedOut)??;
    match answer.split_once("\r\n\r\n") {
        Some((head, body)) if head.contains(" 200 ") => Ok(body.to_owned()),
        _ => Err(std::io::Error::other(format!("LXD answered {:?}", answer.lines().next().unwrap_or_default()))),
    }
}
