//! A node with a real LXD in a simulated MAAS, and the three programs as a user starts them.
#![allow(dead_code)] // each test file uses a part

use std::{fs, os::unix::fs::PermissionsExt, path::PathBuf, process::Stdio};

use capmaas_testbed::LxdNode;
use lxd_client::Client;
use maas_sim::{Config, Simulator, config::Durations, faults::FaultRule, serve};
use serde_json::{Value, json};

pub(crate) const KEY: &str = "consumer:token:CANARYsecret";
/// A user other than root, as in the documentation.
const NOBODY: &str = "65534";

pub(crate) struct Scene {
    pub(crate) node: LxdNode,
    pub(crate) sim: Simulator,
    pub(crate) endpoint: String,
    server: tokio::task::JoinHandle<std::io::Result<()>>,
    folder: tempfile::TempDir,
}

/// The result of a program.
#[derive(Debug)]
pub(crate) struct Run {
    pub(crate) code: i32,
    pub(crate) text: String,
}

impl Run {
    /// The checklist, of a run with --json.
    pub(crate) fn json(&self) -> Value {
        serde_json::from_str(&self.text).unwrap_or_else(|error| panic!("{error}: {}", self.text))
    }

    /// The outcome of the last check of this subject.
    pub(crate) fn outcome(&self, subject: &str) -> String {
        let json = self.json();
        let check = json["checks"].as_array().unwrap().iter().rfind(|check| check["subject"] == subject);
        check.map_or_else(
            || panic!("no check {subject:?} in {json:#}"),
            |check| check["outcome"].as_str().unwrap().into(),
        )
    }

    pub(crate) fn found(&self, subject: &str) -> String {
        let json = self.json();
        let check = json["checks"].as_array().unwrap().iter().rfind(|check| check["subject"] == subject);
        check
            .map_or_else(|| panic!("no check {subject:?} in {json:#}"), |check| check["found"].as_str().unwrap().into())
    }

    pub(crate) fn succeeds(self) -> Self {
        assert_eq!(self.code, 0, "{}", self.text);
        self
    }

    /// It failed, at this check, with a fix.
    pub(crate) fn fails_at(self, subject: &str, words: &str) -> Self {
        assert_eq!(self.code, 1, "{}", self.text);
        assert_eq!(self.outcome(subject), "failed", "{}", self.text);
        assert!(self.found(subject).contains(words), "{words:?} is not in {}", self.text);
        let json = self.json();
        let checks = json["checks"].as_array().unwrap();
        assert!(
            checks.iter().all(|check| (check["outcome"] == "failed") == check["mend"].is_string()),
            "{}",
            self.text
        );
        self
    }
}

impl Scene {
    pub(crate) async fn start() -> Self {
        Self::with(Durations::quick(), "3.4").await
    }

    pub(crate) async fn with(durations: Durations, version: &str) -> Self {
        let _ = rustls::crypto::ring::default_provider().install_default();
        let node = LxdNode::start().await.unwrap();
        let config = Config { version: version.parse().unwrap(), durations, ..Config::new(KEY.parse().unwrap()) };
        let sim = Simulator::new(config);
        let (listener, at) = serve::listen("127.0.0.1:0".parse().unwrap()).await.unwrap();
        let server = tokio::spawn(serve::serve(sim.clone(), listener));
        let folder = tempfile::tempdir().unwrap();
        fs::set_permissions(folder.path(), fs::Permissions::from_mode(0o755)).unwrap();
        let endpoint = format!("http://{at}/MAAS");
        let (mac, ip) = (node.mac().unwrap(), node.ip().to_string());
        let scene = Self { node, sim, endpoint, server, folder };
        let network = format!("{}.0/24", ip.rsplit_once('.').unwrap().0);
        scene.arrange(&json!([
            {"zone": {"name": "az1"}},
            {"pool": {"name": "blue"}},
            {"user": {"name": "alice", "admin": false, "key": "ck:tk:CANARYalice"}},
            {"subnet": {"cidr": network}},
            {"machine": {
                "hostname": "n1", "system_id": "abc123", "status": "Deployed", "owner": "admin", "zone": "az1",
                "interfaces": [{"name": "eth0", "mac": mac, "links": [{"mode": "static", "subnet": network, "ip_address": ip}]}],
            }},
        ]));
        scene
    }

    pub(crate) fn arrange(&self, statements: &Value) {
        let statements: Vec<_> = serde_json::from_value(statements.clone()).unwrap();
        self.sim.control().arrange(&statements).unwrap();
    }

    pub(crate) fn fault(&self, rule: Value) {
        let rule: FaultRule = serde_json::from_value(rule).unwrap();
        self.sim.control().add_fault(rule);
    }

    pub(crate) fn local(&self) -> Client {
        Client::unix(self.node.daemon().socket()).unwrap()
    }

    pub(crate) fn socket(&self) -> PathBuf {
        self.node.daemon().socket()
    }

    pub(crate) fn kept(&self) -> PathBuf {
        self.folder.path().join("kept")
    }

    /// An empty VM in the project, as created by hand.
    pub(crate) fn make_vm(&self, name: &str) {
        self.node
            .daemon()
            .run_in_network(["lxc", "init", "--empty", "--vm", name, "--project", "maas", "-s", "default"])
            .unwrap();
    }

    /// `sudo ./lxd-test --storage-backend=dir --storage-size=50 --network-bridge=…`
    pub(crate) async fn lxd_test(&self, more: &[&str]) -> Run {
        let mut command = tokio::process::Command::new(env!("CARGO_BIN_EXE_lxd-test"));
        command.env("SUDO_UID", NOBODY).env("SUDO_GID", NOBODY);
        command.args(["--storage-backend=dir", "--storage-size=50"]);
        command.arg(format!("--network-bridge={}", self.node.bridge())).arg(format!("--node-ip={}", self.node.ip()));
        command.arg(format!("--lxd-socket={}", self.node.daemon().socket().display()));
        self.finish(command, more).await
    }

    /// One of the other two as an unprivileged user, with the documented arguments.
    pub(crate) fn as_user(&self, program: &str, more: &[&str]) -> tokio::process::Command {
        // That user may not have access to the build directory.
        let own = self.folder.path().join(std::path::Path::new(program).file_name().unwrap());
        if !own.exists() {
            fs::copy(program, &own).unwrap();
        }
        let mut command = tokio::process::Command::new("setpriv");
        command.args([&format!("--reuid={NOBODY}"), &format!("--regid={NOBODY}"), "--clear-groups"]).arg(own);
        command.arg(format!("--node-ip={}", self.node.ip())).arg(format!("--maas-endpoint={}", self.endpoint));
        command.args(more).arg(format!("--key-dir={}", self.kept().display()));
        command.stdout(Stdio::piped()).stderr(Stdio::piped()).kill_on_drop(true);
        command
    }

    async fn finish(&self, mut command: tokio::process::Command, more: &[&str]) -> Run {
        command.args(more).arg(format!("--key-dir={}", self.kept().display()));
        end(command).await
    }

    pub(crate) async fn vmhost_test(&self, more: &[&str]) -> Run {
        let words = [&["--zone=az1", "--resource-pool=blue"], more].concat();
        let mut command = self.as_user(env!("CARGO_BIN_EXE_vmhost-test"), &words);
        command.env("MAAS_API_KEY", KEY);
        end(command).await
    }

    pub(crate) fn maas_test_command(&self, more: &[&str]) -> tokio::process::Command {
        let words = [&["--test-vm-host", "--zone=az1", "--resource-pool=blue"], more].concat();
        let mut command = self.as_user(env!("CARGO_BIN_EXE_maas-test"), &words);
        command.env("MAAS_API_KEY", KEY);
        command
    }

    pub(crate) async fn maas_test(&self, more: &[&str]) -> Run {
        end(self.maas_test_command(more)).await
    }

    /// Names of VM hosts, and of machines other than the node's own.
    pub(crate) fn in_maas(&self) -> (Vec<String>, Vec<String>) {
        self.sim.control().with_model(|model| {
            let hosts = model.db.vm_hosts.values().map(|host| host.name.clone()).collect();
            let machines = model.db.machines.values().map(|machine| machine.hostname.clone());
            (hosts, machines.filter(|name| name != "n1").collect())
        })
    }

    pub(crate) async fn vms(&self) -> Vec<String> {
        let instances = self.local().instances("maas").await.unwrap();
        instances.into_iter().map(|instance| instance.name).collect()
    }

    /// Requests to MAAS that are not reads.
    pub(crate) fn writes(&self) -> usize {
        self.sim.control().ledger(None).iter().filter(|entry| entry.method != "GET").count()
    }
}

pub(crate) async fn end(mut command: tokio::process::Command) -> Run {
    let output = command.output().await.unwrap();
    let text = String::from_utf8(output.stdout).unwrap();
    let errors = String::from_utf8(output.stderr).unwrap();
    for secret in ["CANARY", "PRIVATE KEY"] {
        assert!(!format!("{text}{errors}").contains(secret), "a secret was printed");
    }
    Run { code: output.status.code().unwrap_or(-1), text: if text.is_empty() { errors } else { text } }
}

impl Drop for Scene {
    fn drop(&mut self) {
        self.server.abort();
    }
}
