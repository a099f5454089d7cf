//! Third-party clients work with the simulator: python-libmaas and Canonical's gomaasclient.
//!
//! Both are in the tool cache, where `make tools` installs them.
#![allow(clippy::unwrap_used, clippy::expect_used, clippy::panic)]

use std::net::SocketAddr;
use std::path::PathBuf;
use std::process::{Command, Output};

use capmaas_testbed::tools::{ToolSet, python_with_libmaas};
use maas_sim::config::{ApiKey, Config, Durations};
use maas_sim::model::statement::Statement;
use serde_json::json;

const KEY: &str = "consumer:token:secret";

/// A simulator on loopback, in real time, as fast as possible; three machines, two zones, two pools.
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
    let python = tokio::task::spawn_blocking(python_with_libmaas).await.unwrap().unwrap();
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
    let tools = tokio::task::spawn_blocking(|| ToolSet::GoMaasClient.ensure()).await.unwrap().unwrap();
    let program = tools.program("gomaasclient");
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
