//! The program itself, as a user runs it: what it prints where, with which exit code, and that it only ever reads.
#![allow(clippy::unwrap_used, clippy::expect_used, clippy::panic)]

mod kubernetes;
mod planning;

use std::io::Write as _;
use std::process::{Command, Output, Stdio};

use maas_sim::config::Config;
use maas_sim::{Simulator, serve};
use serde_json::{Value, json};

const KEY: &str = "consumer:token:secret";

const CLUSTER: &str = r"
kind: Cluster
metadata: {name: c1}
spec:
  controlPlaneRef: {apiGroup: controlplane.cluster.x-k8s.io, kind: KubeadmControlPlane, name: c1-cp}
  infrastructureRef: {apiGroup: infrastructure.cluster.x-k8s.io, kind: MaasCluster, name: c1}
---
kind: MaasCluster
metadata: {name: c1}
spec: {dnsDomain: maas}
---
kind: KubeadmControlPlane
metadata: {name: c1-cp}
spec:
  replicas: 1
  version: v1.36.0
  machineTemplate: {spec: {infrastructureRef: {apiGroup: infrastructure.cluster.x-k8s.io, kind: MaasMachineTemplate, name: cp}}}
---
kind: MaasMachineTemplate
metadata: {name: cp}
spec: {template: {spec: {image: jammy, minCPU: 4, minMemory: 8192}}}
";

/// A MAAS with two machines, and a folder with the cluster and the exported inventory.
struct Site {
    simulator: Simulator,
    endpoint: String,
    folder: tempfile::TempDir,
    runtime: tokio::runtime::Runtime,
}

impl Site {
    fn start() -> Self {
        let runtime = tokio::runtime::Builder::new_multi_thread().worker_threads(1).enable_all().build().unwrap();
        let simulator = Simulator::new(Config::new(KEY.parse().unwrap()));
        let machines = json!([
            {"machine": {"hostname": "m1", "cpu_count": 8, "memory": 16384}},
            {"machine": {"hostname": "m2", "cpu_count": 2, "memory": 2048}},
        ]);
        simulator.control().arrange(&serde_json::from_value::<Vec<_>>(machines).unwrap()).unwrap();
        let (listener, address) = runtime.block_on(serve::listen("127.0.0.1:0".parse().unwrap())).unwrap();
        runtime.spawn(serve::serve(simulator.clone(), listener));
        let folder = tempfile::tempdir().unwrap();
        std::fs::write(folder.path().join("cluster.yaml"), CLUSTER).unwrap();
        let site = Self { simulator, endpoint: format!("http://{address}/MAAS"), folder, runtime };
        std::fs::write(site.file("site.yaml"), succeeded(&site.run(&["export"]))).unwrap();
        site
    }

    fn file(&self, name: &str) -> String {
        self.folder.path().join(name).display().to_string()
    }

    fn command(&self, arguments: &[&str]) -> Command {
        let mut command = Command::new(env!("CARGO_BIN_EXE_kubectl-maas"));
        command.args(arguments).env("KUBECONFIG", "/dev/null");
        command.env("MAAS_ENDPOINT", &self.endpoint).env("MAAS_API_KEY", KEY);
        command
    }

    fn run(&self, arguments: &[&str]) -> Output {
        self.command(arguments).output().unwrap()
    }
}

fn text(bytes: &[u8]) -> String {
    String::from_utf8(bytes.to_vec()).unwrap()
}

fn succeeded(output: &Output) -> String {
    assert!(output.status.success(), "{}{}", text(&output.stdout), text(&output.stderr));
    text(&output.stdout)
}

#[test]
fn a_plan_tells_by_its_exit_code_whether_it_fits() {
    let site = Site::start();
    let (cluster, inventory) = (site.file("cluster.yaml"), site.file("site.yaml"));
    let fits = succeeded(&site.run(&["plan", "-f", &cluster]));
    assert!(fits.contains("metal m1") && fits.ends_with("\nIt fits.\n"), "{fits}");
    assert_eq!(succeeded(&site.run(&["plan", "-f", &cluster, "--inventory", &inventory])), fits);
    let too_many = site.run(&["plan", "-f", &cluster, "--scale", "c1-cp=2"]);
    assert_eq!(too_many.status.code(), Some(1));
    assert!(text(&too_many.stdout).contains("It does not fit. Missing:\n  one more machine"), "{too_many:?}");
    for unanswerable in [
        &["plan", "-f", "nowhere.yaml"][..],
        &["plan", "-f", &cluster, "--inventory", "nowhere.yaml"],
        &["plan", "-f", &cluster, "--scale", "md-9=1"],
        &["plan"],
        &["plan", "--no-such-flag"],
        &["plan", "-f", &cluster, "--without", "default"],
    ] {
        let output = site.run(unanswerable);
        assert_eq!(output.status.code(), Some(2), "{unanswerable:?}: {}", text(&output.stderr));
        assert_eq!(text(&output.stdout), "", "{unanswerable:?}");
        assert!(!output.stderr.is_empty());
    }
}

#[test]
fn what_cannot_be_planned_is_unknown_and_never_fits() {
    let site = Site::start();
    let topology = "kind: Cluster\nmetadata: {name: c2}\nspec: {topology: {class: maas, version: v1.36.0}}\n";
    let without_control_plane = CLUSTER.replace("metadata: {name: c1-cp}", "metadata: {name: other}");
    let deployment = "kind: MachineDeployment\nmetadata: {name: md-0}\nspec: {clusterName: gone, replicas: 3}\n";
    for unknown in
        [topology, &without_control_plane, &format!("{CLUSTER}---\n{topology}"), &format!("{CLUSTER}---\n{deployment}")]
    {
        let file = site.file("unknown.yaml");
        std::fs::write(&file, unknown).unwrap();
        let output = site.run(&["plan", "-f", &file]);
        assert_eq!(output.status.code(), Some(2), "{output:?}");
        let shown = text(&output.stdout);
        assert!(
            shown.contains("Note: ") && shown.contains("It is unknown whether it fits") && !shown.contains("It fits"),
            "{shown}"
        );
        let output = site.run(&["plan", "-f", &file, "--json"]);
        let value: Value = serde_json::from_slice(&output.stdout).unwrap();
        assert_eq!((output.status.code(), &value["fits"]), (Some(2), &Value::Null), "{value}");
    }
    // What is missing is missing, whatever else is needed.
    let file = site.file("unknown.yaml");
    std::fs::write(&file, format!("{CLUSTER}---\n{topology}")).unwrap();
    let output = site.run(&["plan", "-f", &file, "--scale", "c1-cp=2", "--json"]);
    let value: Value = serde_json::from_slice(&output.stdout).unwrap();
    assert_eq!((output.status.code(), &value["fits"]), (Some(1), &json!(false)));
    // A cluster that nobody asked about does not matter.
    assert!(succeeded(&site.run(&["plan", "-f", &file, "c1"])).ends_with("\nIt fits.\n"));
}

#[test]
fn a_maintenance_tag_on_the_machine_in_maas_is_shown_like_one_on_the_vm_host() {
    let site = Site::start();
    let host = json!([
        {"tag": {"name": "maas-lxd-host-maintenance"}},
        {"machine": {"hostname": "h1", "status": "Deployed", "owner": "admin", "tags": ["maas-lxd-host-maintenance"]}},
        {"lxd": {"address": "192.0.2.100:8443", "cores": 8, "memory": 16384, "host": "h1"}},
        {"vm_host": {"name": "h1", "power_address": "192.0.2.100:8443"}},
        {"machine": {"hostname": "vm1", "cpu_count": 1, "memory": 1024, "status": "Deployed", "owner": "admin", "vm_host": "h1"}},
    ]);
    site.simulator.control().arrange(&serde_json::from_value::<Vec<_>>(host).unwrap()).unwrap();
    let shown: Value = serde_json::from_str(&succeeded(&site.run(&["hosts", "--json"]))).unwrap();
    let wanted = "in maintenance, so it takes no new VMs, 1 VM left (tag maas-lxd-host-maintenance on its machine)";
    assert_eq!((&shown[0]["state"], &shown[0]["vmsLeft"]), (&json!(wanted), &json!(1)), "{shown}");
    assert_eq!(shown[0]["closedBy"], "maas-lxd-host-maintenance");
}

#[test]
fn an_export_is_printed_in_the_form_that_is_asked_for_and_read_in_either() {
    let site = Site::start();
    let printed = succeeded(&site.run(&["export", "-o", "json"]));
    let value: Value = serde_json::from_str(&printed).unwrap();
    assert_eq!(value["machines"][0]["hostname"], "m1");
    std::fs::write(site.file("site.json"), printed).unwrap();
    let plan = |inventory: &str| {
        succeeded(&site.run(&["plan", "-f", &site.file("cluster.yaml"), "--inventory", &site.file(inventory)]))
    };
    assert_eq!(plan("site.json"), plan("site.yaml"));
}

#[test]
fn manifests_come_from_files_folders_and_standard_input() {
    let site = Site::start();
    let planned = |arguments: &[&str], input: &str| -> Value {
        let mut command = site.command(&[&["plan", "--json"], arguments].concat());
        command.stdin(Stdio::piped()).stdout(Stdio::piped()).stderr(Stdio::piped());
        let mut child = command.spawn().unwrap();
        child.stdin.take().unwrap().write_all(input.as_bytes()).unwrap();
        serde_json::from_str(&succeeded(&child.wait_with_output().unwrap())).unwrap()
    };
    let of_file = planned(&["-f", &site.file("cluster.yaml")], "");
    assert_eq!(of_file["steps"][0]["metal"]["hostname"], "m1");
    assert_eq!(planned(&["-f", "-"], CLUSTER), of_file);
    let parts = site.file("parts");
    std::fs::create_dir(&parts).unwrap();
    for (number, part) in CLUSTER.split("---").enumerate() {
        std::fs::write(format!("{parts}/{number}.yaml"), part).unwrap();
    }
    std::fs::write(format!("{parts}/notes.txt"), "not a manifest: {").unwrap();
    assert_eq!(planned(&["-f", &parts], ""), of_file);
    let halves = [format!("{parts}/0.yaml"), format!("{parts}/1.yaml"), format!("{parts}/2.yaml")];
    let arguments: Vec<&str> = halves.iter().flat_map(|it| ["-f", it.as_str()]).collect();
    let template = CLUSTER.rsplit("---").next().unwrap();
    assert_eq!(planned(&[&arguments[..], &["-f", "-"]].concat(), template), of_file);
}

#[test]
fn maas_is_only_ever_read() {
    let site = Site::start();
    let cluster = site.file("cluster.yaml");
    for arguments in [&["plan", "-f", &cluster][..], &["export"], &["export", "--addresses"], &["hosts"]] {
        succeeded(&site.run(arguments));
    }
    let asked = site.simulator.control().ledger(None);
    assert!(asked.len() > 20, "{}", asked.len());
    let others: Vec<_> = asked.iter().filter(|entry| entry.method != "GET").collect();
    assert!(others.is_empty(), "{others:?}");
}

#[test]
fn what_programs_read_is_free_of_colours_and_words() {
    let site = Site::start();
    let none = site.run(&["hosts"]);
    assert_eq!((succeeded(&none).as_str(), text(&none.stderr).starts_with("MAAS has no VM hosts")), ("", true));
    assert_eq!(succeeded(&site.run(&["hosts", "-o", "json"])), "[]\n");
    let yaml = succeeded(&site.run(&["plan", "-f", &site.file("cluster.yaml"), "-o", "yaml"]));
    assert!(yaml.contains("fits: true"), "{yaml}");
    let wide = succeeded(&site.run(&["plan", "-f", &site.file("cluster.yaml"), "-o", "wide"]));
    assert!(!wide.contains('\x1b'), "{wide}");
    // `script` provides a terminal.
    let program = env!("CARGO_BIN_EXE_kubectl-maas");
    let words = format!("{program} plan -f {} --inventory {}", site.file("cluster.yaml"), site.file("site.yaml"));
    let on_terminal = |colours: &str| {
        let mut command = Command::new("script");
        command.args(["-qec", &words, "/dev/null"]).env("KUBECONFIG", "/dev/null").env("NO_COLOR", colours);
        succeeded(&command.stdin(Stdio::null()).output().unwrap())
    };
    assert!(on_terminal("").contains("\x1b[32mIt fits.\x1b[0m"));
    assert!(!on_terminal("1").contains('\x1b'));
}

#[test]
fn the_page_is_served_to_this_machine_only() {
    let site = Site::start();
    let kubeconfig = site.file("kubeconfig");
    let config = json!({"apiVersion": "v1", "kind": "Config", "current-context": "c",
        "clusters": [{"name": "c", "cluster": {"server": "http://127.0.0.1:1"}}],
        "contexts": [{"name": "c", "context": {"cluster": "c", "user": "u"}}], "users": [{"name": "u", "user": {}}]});
    std::fs::write(&kubeconfig, config.to_string()).unwrap();
    for address in ["0.0.0.0", "::", "192.0.2.1"] {
        let output = site.run(&["ui", "--no-browser", "--kubeconfig", &kubeconfig, "--address", address]);
        assert_eq!(output.status.code(), Some(1));
        assert!(text(&output.stderr).contains("is served to this machine only"), "{output:?}");
    }
}

#[test]
fn completion_offers_commands_and_a_script_for_kubectl() {
    let site = Site::start();
    assert!(succeeded(&site.run(&["__complete", "pl"])).starts_with("plan\t"));
    assert_eq!(succeeded(&site.run(&["__complete", "plan", "-o", "y"])), "yaml\n:4\n");
    assert_eq!(succeeded(&site.run(&["__complete", "explain", ""])), ":4\n", "without a cluster there are no names");
    assert!(succeeded(&site.run(&["completion", "kubectl"])).contains("kubectl maas __complete"));
    for shell in ["bash", "zsh", "fish", "powershell"] {
        assert!(succeeded(&site.run(&["completion", shell])).contains("kubectl-maas"), "{shell}");
    }
}
