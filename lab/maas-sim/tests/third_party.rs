//! Clients that others wrote connect to the simulator and work: python-libmaas and Canonical's gomaasclient.
//!
//! Both are installed once for each version into the cache of tools (`$CAPMAAS_CACHE`, else `~/.cache/capmaas`). A part
//! that is missing (python3, go, the network of the first run) is a failure that says so.
#![allow(clippy::unwrap_used, clippy::expect_used, clippy::panic)]

use std::env;
use std::fs::{self, File};
use std::net::SocketAddr;
use std::path::{Path, PathBuf};
use std::process::{Command, Output};

use maas_sim::config::{ApiKey, Config, Durations};
use maas_sim::model::statement::Statement;
use serde_json::json;
use sha2::{Digest, Sha256};

const KEY: &str = "consumer:token:secret";
const LIBMAAS: &str = "0.6.8";
const GOMAASCLIENT: &str = "v0.12.0";

/// A simulator on loopback, in real time, everything as fast as it may be; three machines, two zones, two pools.
async fn simulator() -> SocketAddr {
    let key: ApiKey = KEY.parse().unwrap();
    let config = Config { durations: Durations::quick(), invent_lxd: true, ..Config::new(key) };
    let simulator = maas_sim::Simulator::new(config);
    let machine =
        |name: &str, zone: &str| json!({"machine": {"hostname": name, "zone": zone, "cpu_count": 4, "memory": 8192}});
    let statements = json!([
        {"zone": {"name": "az1"}},
        {"pool": {"name": "pool-a"}},
        {"fabric": {"name": "lab", "vlan_id": 9}},
        {"vlan": {"id": 9, "dhcp_on": true}},
        {"subnet": {"cidr": "10.20.0.0/24", "vlan": 9, "gateway_ip": "10.20.0.1"}},
        {"image": {"name": "ubuntu/jammy"}},
        machine("bm1", "default"),
        machine("bm2", "az1"),
        machine("bm3", "az1"),
    ]);
    let statements: Vec<Statement> = serde_json::from_value(statements).unwrap();
    simulator.control().arrange(&statements).unwrap();
    let listener = tokio::net::TcpListener::bind("127.0.0.1:0").await.unwrap();
    let address = listener.local_addr().unwrap();
    tokio::spawn(async move { axum::serve(listener, simulator.router()).await });
    address
}

#[tokio::test(flavor = "multi_thread")]
async fn python_libmaas_lists_allocates_deploys_and_releases() {
    let address = simulator().await;
    let python = tokio::task::spawn_blocking(python_with_libmaas).await.unwrap();
    let script = manifest().join("tests/third_party/libmaas.py");
    let url = format!("http://{address}/MAAS/");
    let run = move || Command::new(python).arg(script).args([&url, KEY]).env("NO_PROXY", "*").output();
    let output = tokio::task::spawn_blocking(run).await.unwrap().expect("python from the cache of tools starts");
    assert!(output.status.success(), "python-libmaas is not content:\n{}", both(&output));
    assert!(both(&output).contains("python-libmaas: done"), "{}", both(&output));
}

#[tokio::test(flavor = "multi_thread")]
async fn gomaasclient_works_with_machines_vm_hosts_dns_subnets_and_tags() {
    let address = simulator().await;
    let program = tokio::task::spawn_blocking(gomaasclient).await.unwrap();
    let url = format!("http://{address}/MAAS");
    let run = move || Command::new(program).args([&url, KEY]).env("NO_PROXY", "*").output();
    let output = tokio::task::spawn_blocking(run).await.unwrap().expect("the program from the cache of tools starts");
    assert!(output.status.success(), "gomaasclient is not content:\n{}", both(&output));
    assert!(both(&output).contains("gomaasclient: done"), "{}", both(&output));
}

fn manifest() -> PathBuf {
    PathBuf::from(env!("CARGO_MANIFEST_DIR"))
}

fn both(output: &Output) -> String {
    format!("{}{}", String::from_utf8_lossy(&output.stdout), String::from_utf8_lossy(&output.stderr))
}

/// The folder of a tool in the cache, locked until the returned file is dropped: tests of several processes may ask at once.
fn tool(name: &str) -> (PathBuf, File) {
    let set = |name: &str| env::var_os(name).filter(|value| !value.is_empty()).map(PathBuf::from);
    let cache = set("CAPMAAS_CACHE")
        .or_else(|| set("XDG_CACHE_HOME").map(|cache| cache.join("capmaas")))
        .or_else(|| set("HOME").map(|home| home.join(".cache/capmaas")))
        .expect("set CAPMAAS_CACHE (or HOME) to say where test tools are kept");
    let folder = cache.join("tools").join(name);
    fs::create_dir_all(&folder).unwrap();
    let lock = File::create(folder.with_extension("lock")).unwrap();
    lock.lock().unwrap();
    (folder, lock)
}

/// The sum of some files: what was made from others is made again.
fn sum(files: &[PathBuf]) -> String {
    let mut sum = Sha256::new();
    for file in files {
        sum.update(fs::read(file).unwrap_or_else(|error| panic!("cannot read {}: {error}", file.display())));
    }
    sum.finalize().iter().take(8).fold(String::new(), |text, byte| format!("{text}{byte:02x}"))
}

fn must(command: &mut Command, advice: &str) {
    let output = command.output().unwrap_or_else(|error| panic!("cannot start {command:?}: {error}. {advice}"));
    assert!(output.status.success(), "{command:?} failed. {advice}\n{}", both(&output));
}

/// A Python that has python-libmaas and nothing else.
fn python_with_libmaas() -> PathBuf {
    let requirements = manifest().join("tests/third_party/requirements.txt");
    let (folder, _lock) = tool(&format!("python-libmaas-{LIBMAAS}"));
    let environment = folder.join(sum(std::slice::from_ref(&requirements)));
    let python = environment.join("bin/python");
    let complete = environment.join("complete");
    if !complete.exists() {
        let advice = "python-libmaas needs python3 (3.9 or newer) with venv and pip; install them, or point CAPMAAS_CACHE at a cache that has it";
        must(Command::new("python3").args(["-m", "venv", "--clear"]).arg(&environment), advice);
        let mut pip = Command::new(&python);
        pip.args(["-m", "pip", "install", "--quiet", "--require-hashes", "--requirement"]).arg(&requirements);
        must(&mut pip, advice);
        fs::write(&complete, "").unwrap();
    }
    python
}

/// The program of hack/tools/gomaasclient.
fn gomaasclient() -> PathBuf {
    let source = manifest().join("../../hack/tools/gomaasclient");
    let files: Vec<_> = ["main.go", "go.mod", "go.sum"].iter().map(|file| source.join(file)).collect();
    let (folder, _lock) = tool(&format!("gomaasclient-{GOMAASCLIENT}"));
    let program = folder.join(sum(&files)).join("gomaasclient");
    if !program.exists() {
        let advice =
            "gomaasclient needs Go 1.24 or newer; install it, or point CAPMAAS_CACHE at a cache that has the program";
        let unfinished = program.with_extension("unfinished");
        let mut build = Command::new("go");
        build.current_dir(&source).args(["build", "-trimpath", "-o"]).arg(&unfinished).arg(".");
        must(build.env("GOFLAGS", "-mod=readonly").env("CGO_ENABLED", "0"), advice);
        fs::rename(&unfinished, &program).unwrap();
    }
    check_version(&source, "go.mod", &format!("gomaasclient {GOMAASCLIENT}"));
    program
}

/// The version in the name of the cache is the one that the module asks for.
fn check_version(source: &Path, file: &str, line: &str) {
    assert!(fs::read_to_string(source.join(file)).unwrap().contains(line), "{file} does not ask for {line}");
}
