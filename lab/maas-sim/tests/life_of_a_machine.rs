//! Machines through the HTTP API: who may do what, when, and with what result.
#![allow(clippy::unwrap_used, clippy::expect_used, clippy::panic)]

mod common;

use std::time::Duration;

use common::{ADMIN, ALICE, BOB, arrange, get, lab, lab_of, post, send, system_id, with_vm_host};

#[tokio::test]
async fn a_life_cycle_writes_seventeen_events() {
    let sim = lab();
    let id = system_id(&sim, "bm03");
    let allocated =
        post(&sim, ALICE, "machines/?op=allocate", &[("system_id", &id), ("agent_name", "a/b"), ("comment", "c")])
            .await;
    assert_eq!((allocated.status, &allocated.json()["owner"]), (200, &"alice".into()));
    let deploying = post(&sim, ALICE, &format!("machines/{id}/?op=deploy"), &[("distro_series", "jammy")]).await;
    assert_eq!(deploying.json()["status_name"], "Deploying");
    assert_eq!(deploying.json()["power_state"], "off");
    sim.control().settle();
    let deployed = get(&sim, ALICE, &format!("machines/{id}/")).await.json();
    assert_eq!((&deployed["status_name"], &deployed["power_state"]), (&"Deployed".into(), &"on".into()));
    assert_eq!(deployed["ip_addresses"].as_array().unwrap().len(), 1);
    let found = get(&sim, ALICE, "machines/?agent_name=a%2Fb").await.json();
    assert_eq!(found[0]["system_id"], id.as_str());
    let releasing = post(&sim, ALICE, &format!("machines/{id}/?op=release"), &[]).await.json();
    assert_eq!((&releasing["status_name"], &releasing["owner"]), (&"Releasing".into(), &"alice".into()));
    assert_eq!(get(&sim, ALICE, "machines/?agent_name=a%2Fb").await.json(), serde_json::json!([]));
    sim.control().settle();
    let ready = get(&sim, BOB, &format!("machines/{id}/")).await.json();
    assert_eq!((&ready["status_name"], &ready["owner"]), (&"Ready".into(), &serde_json::Value::Null));
    let events = get(&sim, ADMIN, &format!("events/?op=query&level=DEBUG&id={id}")).await.json();
    assert_eq!(events["count"], 17);
}

/// Of 1,118 events of a real MAAS, the 939 that it listed belonged to machines that still existed.
#[tokio::test]
async fn events_of_a_deleted_machine_are_listed_no_more() {
    let sim = lab();
    let id = system_id(&sim, "bm01");
    post(&sim, ADMIN, "machines/?op=allocate", &[("system_id", &id)]).await;
    post(&sim, ADMIN, "machines/?op=release", &[("machines", &id)]).await;
    let listed = async |query: &str| get(&sim, ADMIN, &format!("events/?op=query&level=DEBUG{query}")).await.json();
    assert_ne!(listed("").await["count"], 0);
    assert_eq!(send(&sim, ADMIN, "DELETE", &format!("machines/{id}/"), &[]).await.status, 204);
    assert_eq!(listed("").await["count"], 0);
    assert_eq!(listed(&format!("&id={id}")).await["count"], 0);
}

#[tokio::test]
async fn an_allocate_takes_the_cheapest_and_of_equals_the_oldest() {
    let sim = lab();
    let answer = post(&sim, ALICE, "machines/?op=allocate", &[]).await;
    assert_eq!(answer.json()["hostname"], "bm01");
    let answer = post(&sim, ALICE, "machines/?op=allocate", &[("cpu_count", "9")]).await;
    assert_eq!(answer.json()["hostname"], "bm03");
    let answer = post(&sim, ALICE, "machines/?op=allocate", &[("cpu_count", "9")]).await;
    assert_eq!(answer.status, 409);
    assert_eq!(
        answer.text,
        "No available machine matches constraints: [('cpu_count', ['9'])] (resolved to \"cpu_count=9.0\")"
    );
    assert_eq!(sim.control().effective("allocate"), 2);
}

#[tokio::test]
async fn a_dry_run_composes_a_real_vm_when_nothing_matches() {
    let sim = lab();
    with_vm_host(&sim);
    let made = post(&sim, BOB, "machines/?op=allocate", &[("dry_run", "true"), ("name", "nosuch")]).await.json();
    assert_eq!((&made["status_name"], &made["pod"]["name"]), (&"Ready".into(), &"host-a".into()));
    let refused =
        post(&sim, BOB, "machines/?op=allocate", &[("dry_run", "true"), ("name", "nosuch"), ("not_pod_type", "lxd")])
            .await;
    assert_eq!(refused.status, 409);
    let id = made["system_id"].as_str().unwrap();
    post(&sim, BOB, "machines/?op=allocate", &[("system_id", id)]).await;
    let released = post(&sim, BOB, &format!("machines/{id}/?op=release"), &[]).await;
    assert_eq!(released.json()["status_name"], "Releasing");
    sim.control().settle();
    assert_eq!(get(&sim, ADMIN, &format!("machines/{id}/")).await.status, 404);
}

#[tokio::test]
async fn a_release_right_after_a_deploy_leaves_the_machine_ready_and_on() {
    let sim = lab();
    let id = system_id(&sim, "bm01");
    post(&sim, ALICE, &format!("machines/{id}/?op=deploy"), &[]).await;
    let released = post(&sim, ALICE, &format!("machines/{id}/?op=release"), &[]).await.json();
    assert_eq!(released["status_name"], "Ready");
    sim.advance(Duration::from_secs(5));
    let power = get(&sim, ADMIN, &format!("machines/{id}/?op=query_power_state")).await.json();
    assert_eq!(power["state"], "on");
}

#[tokio::test]
async fn others_machines_are_hidden_from_users_and_open_to_administrators() {
    let sim = lab();
    let id = system_id(&sim, "bm02");
    arrange(&sim, r#"[{"machine": {"hostname": "bm02", "status": "Deployed", "owner": "alice"}}]"#);
    assert_eq!(get(&sim, BOB, &format!("machines/{id}/")).await.status, 403);
    assert_eq!(get(&sim, BOB, "machines/?hostname=bm02").await.json(), serde_json::json!([]));
    assert_eq!(post(&sim, BOB, &format!("machines/{id}/?op=release"), &[]).await.status, 403);
    assert_eq!(send(&sim, ALICE, "DELETE", &format!("machines/{id}/"), &[]).await.status, 403);
    assert_eq!(get(&sim, ADMIN, &format!("machines/{id}/")).await.status, 200);
    let annotated = post(&sim, ADMIN, &format!("machines/{id}/?op=set_workload_annotations"), &[("k", "v")]).await;
    assert_eq!(
        (annotated.status, annotated.text.as_str()),
        (409, "Cannot set workload annotation: it hasn't been acquired.")
    );
    let bad = post(&sim, ALICE, &format!("machines/{id}/?op=set_workload_annotations"), &[("a/b", "v")]).await;
    assert_eq!((bad.status, bad.text.as_str()), (500, "Invalid character in key name"));
}

#[tokio::test]
async fn a_bridge_made_while_allocated_goes_on_release_and_one_made_while_ready_stays() {
    let sim = lab();
    let id = system_id(&sim, "bm01");
    let nic = get(&sim, ADMIN, &format!("nodes/{id}/interfaces/")).await.json()[0]["id"].to_string();
    post(&sim, ALICE, "machines/?op=allocate", &[("system_id", &id)]).await;
    let path = format!("nodes/{id}/interfaces/?op=create_bridge");
    assert_eq!(post(&sim, ALICE, &path, &[("name", "br0"), ("parent", &nic)]).await.status, 403);
    let bridge = post(&sim, ADMIN, &path, &[("name", "br0"), ("parent", &nic)]).await.json();
    assert_eq!(bridge["links"][0]["mode"], "auto");
    post(&sim, ALICE, &format!("machines/{id}/?op=release"), &[]).await;
    let nics = get(&sim, ADMIN, &format!("nodes/{id}/interfaces/")).await.json();
    assert_eq!((nics.as_array().unwrap().len(), &nics[0]["links"][0]["mode"]), (1, &"auto".into()));
    let bridge = post(&sim, ADMIN, &path, &[("name", "br0"), ("parent", &nic)]).await.json();
    assert_eq!(bridge["links"][0]["mode"], "link_up");
    let refused = post(&sim, ADMIN, &format!("machines/{id}/?op=deploy"), &[]).await;
    assert_eq!(refused.text, "{\"network\": [\"Node has no address family in common with the server\"]}");
}

#[tokio::test]
async fn a_name_set_to_a_machine_follows_the_machine_to_its_next_owner() {
    let sim = lab();
    let id = system_id(&sim, "bm04");
    arrange(&sim, r#"[{"machine": {"hostname": "bm04", "status": "Deployed", "owner": "alice"}}]"#);
    let ip = get(&sim, ADMIN, &format!("machines/{id}/")).await.json()["ip_addresses"][0].as_str().unwrap().to_owned();
    let made = post(&sim, ADMIN, "dnsresources/", &[("fqdn", "cp.k8s.example"), ("ip_addresses", &ip)]).await.json();
    let dns = format!("dnsresources/{}/", made["id"]);
    post(&sim, ALICE, &format!("machines/{id}/?op=release"), &[]).await;
    sim.control().settle();
    assert_eq!(get(&sim, ADMIN, &dns).await.json()["ip_addresses"][0]["ip"], serde_json::Value::Null);
    post(&sim, BOB, &format!("machines/{id}/?op=deploy"), &[]).await;
    sim.control().settle();
    assert!(get(&sim, ADMIN, &dns).await.json()["ip_addresses"][0]["ip"].is_string());
}

#[tokio::test]
async fn registering_a_host_again_power_cycles_its_running_vms() {
    let sim = lab();
    with_vm_host(&sim);
    let host = sim.control().with_model(|model| *model.db.vm_hosts.keys().next().unwrap());
    let form = [("hostname", "vm1"), ("cores", "1"), ("memory", "1024"), ("skip_commissioning", "true")];
    let vm = post(&sim, ADMIN, &format!("vm-hosts/{host}/?op=compose"), &form).await.json();
    let id = vm["system_id"].as_str().unwrap().to_owned();
    post(&sim, ADMIN, &format!("machines/{id}/?op=deploy"), &[]).await;
    sim.control().settle();
    assert_eq!(send(&sim, ADMIN, "DELETE", &format!("vm-hosts/{host}/"), &[]).await.status, 204);
    assert_eq!(get(&sim, ADMIN, &format!("machines/{id}/")).await.status, 404);
    let form = [("type", "lxd"), ("power_address", "192.0.2.9:8443"), ("project", "maas"), ("password", "x")];
    let again = post(&sim, ADMIN, "vm-hosts/", &form).await.json();
    assert_eq!(again["total"]["cores"], 0);
    let adopted = get(&sim, ADMIN, "machines/?hostname=vm1").await.json();
    assert_eq!((&adopted[0]["status_name"], &adopted[0]["owner"]), (&"Commissioning".into(), &"admin".into()));
    assert_ne!(adopted[0]["system_id"], id.as_str());
}

#[tokio::test]
async fn versions_differ_where_the_releases_do() {
    for (text, parent, error) in [("3.0", false, false), ("3.4", true, false), ("3.8", true, true)] {
        let sim = lab_of(text.parse().unwrap());
        let machine = get(&sim, ADMIN, "machines/?hostname=bm01").await.json()[0].clone();
        assert_eq!(machine.get("parent").is_some(), parent, "{text}");
        assert_eq!(machine.get("error_description").is_some(), error, "{text}");
        let filtered = get(&sim, ADMIN, "machines/?owner=alice").await;
        assert_eq!(filtered.status, if parent { 200 } else { 400 }, "{text}");
        let id = machine["system_id"].as_str().unwrap();
        let by_path = post(&sim, ADMIN, "machines/op-allocate", &[("system_id", id)]).await;
        assert_eq!(by_path.status, if parent { 200 } else { 404 }, "{text}");
        let missing = get(&sim, ADMIN, "machines/zzzzzz/").await;
        assert_eq!(missing.text == "Not Found", !parent, "{text}");
    }
}
