//! A VM host backed by a real LXD daemon: the simulator connects as MAAS does, reports what it finds, and composes there.
#![allow(clippy::unwrap_used, clippy::expect_used, clippy::panic)]

mod common;

use std::net::TcpListener;

use capmaas_testbed::{LxdDaemon, LxdOptions};
use common::{ADMIN, arrange, get, lab, post, send};
use serde_json::Value;

/// A daemon on loopback with a storage pool and a trusted pair, without restrictions.
struct Daemon {
    lxd: LxdDaemon,
    address: String,
    certificate: String,
    key: String,
}

impl Daemon {
    async fn start() -> Self {
        let lxd = LxdDaemon::start(LxdOptions { host_network: true, ..LxdOptions::default() }).await.unwrap();
        let free = TcpListener::bind("127.0.0.1:0").unwrap().local_addr().unwrap();
        let address = free.to_string();
        let pair = rcgen::generate_simple_self_signed(["maas-sim-test".to_owned()]).unwrap();
        let folder = lxd.sandbox().dir().to_path_buf();
        let file = folder.join("client.crt");
        std::fs::write(&file, pair.cert.pem()).unwrap();
        let https = format!("core.https_address={address}");
        let file = file.to_string_lossy().into_owned();
        for command in [
            vec!["lxc", "config", "set", &https],
            vec!["lxc", "storage", "create", "default", "dir"],
            vec!["lxc", "config", "trust", "add", &file],
        ] {
            lxd.run_in_network(command).unwrap();
        }
        Self { lxd, address, certificate: pair.cert.pem(), key: pair.signing_key.serialize_pem() }
    }

    fn rows(&self, project: &str) -> Vec<Value> {
        let text = self.lxd.run_in_network(["lxc", "list", "--project", project, "--format", "json"]).unwrap();
        serde_json::from_str(&text).unwrap()
    }

    fn vms(&self, project: &str) -> Vec<String> {
        self.rows(project).iter().map(|row| row["name"].as_str().unwrap().to_owned()).collect()
    }

    fn profiles(&self, project: &str, vm: &str) -> Value {
        self.rows(project).iter().find(|row| row["name"] == vm).unwrap()["profiles"].clone()
    }
}

#[tokio::test(flavor = "multi_thread")]
async fn a_registered_host_shows_the_real_daemon_and_composes_real_vms() {
    let daemon = Daemon::start().await;
    let sim = lab();
    arrange(&sim, r#"[{"machine": {"hostname": "host1", "status": "Deployed", "owner": "admin"}}]"#);
    let form = [
        ("type", "lxd"),
        ("power_address", daemon.address.as_str()),
        ("project", "maas"),
        ("certificate", daemon.certificate.as_str()),
        ("key", daemon.key.as_str()),
        ("name", "real"),
    ];
    let host = post(&sim, ADMIN, "vm-hosts/", &form).await.json();
    assert!(!host["version"].as_str().unwrap().is_empty(), "{host}");
    assert_eq!(host["storage_pools"][0]["name"], "default");
    sim.advance(std::time::Duration::from_secs(5));
    let id = host["id"].as_i64().unwrap();
    let host = get(&sim, ADMIN, &format!("vm-hosts/{id}/")).await.json();
    assert!(host["total"]["cores"].as_i64().unwrap() > 0, "{host}");

    let form =
        [("hostname", "vm1"), ("cores", "1"), ("memory", "1024"), ("storage", "1"), ("skip_commissioning", "true")];
    let composed = post(&sim, ADMIN, &format!("vm-hosts/{id}/?op=compose"), &form).await;
    assert_eq!(composed.status, 200, "{}", composed.text);
    assert_eq!(daemon.vms("maas"), ["vm1"]);
    let machine = composed.json()["system_id"].as_str().unwrap().to_owned();
    assert_eq!(daemon.profiles("maas", "vm1"), serde_json::json!([]), "not even the default one");
    daemon.lxd.run_in_network(["lxc", "profile", "create", "maas", "--project", "maas"]).unwrap();
    let form = [&[("hostname", "vm3")], &form[1..]].concat();
    let with_profile = post(&sim, ADMIN, &format!("vm-hosts/{id}/?op=compose"), &form).await.json();
    assert_eq!(daemon.profiles("maas", "vm3"), serde_json::json!(["maas"]), "MAAS's own, where the project has it");
    let vm3 = format!("machines/{}/", with_profile["system_id"].as_str().unwrap());
    assert_eq!(send(&sim, ADMIN, "DELETE", &vm3, &[]).await.status, 204);
    let power = get(&sim, ADMIN, &format!("machines/{machine}/?op=query_power_state")).await.json();
    assert_eq!(power["state"], "off");
    // Also where LXD cannot start it: without nested virtualization, a VM is a machine that does not boot.
    let taken = post(&sim, ADMIN, "machines/?op=allocate", &[("system_id", machine.as_str())]).await;
    assert_eq!(taken.status, 200, "{}", taken.text);
    let turned_on = post(&sim, ADMIN, &format!("machines/{machine}/?op=power_on"), &[]).await;
    assert_eq!(turned_on.status, 200, "{}", turned_on.text);
    sim.advance(std::time::Duration::from_secs(60));
    let power = || async { get(&sim, ADMIN, &format!("machines/{machine}/?op=query_power_state")).await.json() };
    let mut asked = 0;
    while power().await["state"] != "on" {
        asked += 1;
        assert!(asked < 100, "it is not on");
        tokio::time::sleep(std::time::Duration::from_millis(200)).await;
    }

    // A VM that is created in LXD is adopted by a refresh; one that is deleted there is removed.
    daemon.lxd.run_in_network(["lxc", "init", "--empty", "--vm", "vm2", "--project", "maas", "-s", "default"]).unwrap();
    assert_eq!(post(&sim, ADMIN, &format!("vm-hosts/{id}/?op=refresh"), &[]).await.status, 200);
    assert_eq!(get(&sim, ADMIN, "machines/?hostname=vm2").await.json().as_array().unwrap().len(), 1);
    daemon.lxd.run_in_network(["lxc", "delete", "--force", "vm2", "--project", "maas"]).unwrap();
    post(&sim, ADMIN, &format!("vm-hosts/{id}/?op=refresh"), &[]).await;
    assert_eq!(get(&sim, ADMIN, "machines/?hostname=vm2").await.json(), serde_json::json!([]));

    assert_eq!(send(&sim, ADMIN, "DELETE", &format!("machines/{machine}/"), &[]).await.status, 204);
    assert!(daemon.vms("maas").is_empty());
    daemon.lxd.stop().await;
}

#[tokio::test(flavor = "multi_thread")]
async fn an_untrusted_pair_and_a_daemon_that_is_away_are_registered_empty_and_told_by_refresh() {
    let daemon = Daemon::start().await;
    let sim = lab();
    let form = [("type", "lxd"), ("power_address", daemon.address.as_str()), ("name", "untrusted")];
    let host = post(&sim, ADMIN, "vm-hosts/", &form).await.json();
    assert_eq!((&host["version"], &host["capabilities"]), (&"".into(), &serde_json::json!([])));
    let id = host["id"].as_i64().unwrap();
    let told = post(&sim, ADMIN, &format!("vm-hosts/{id}/?op=refresh"), &[]).await;
    let words = format!("Failed talking to pod: VM Host {id}: Certificate is not trusted and no password was given");
    assert_eq!((told.status, told.text), (503, words));
    daemon.lxd.stop().await;
    let told = post(&sim, ADMIN, &format!("vm-hosts/{id}/?op=refresh"), &[]).await;
    assert!(told.text.contains("Failed to connect to the LXD REST API"), "{}", told.text);
}
