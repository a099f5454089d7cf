//! Answers of a real MAAS 3.4.10 that are known by their status and a few words only: no recording of them is here. The
//! numbers are theirs.
#![allow(clippy::unwrap_used, clippy::expect_used, clippy::panic)]

mod common;

use std::time::Duration;

use common::{ADMIN, ALICE, Answer, BOB, arrange, get, lab, post, send, system_id, with_vm_host};
use maas_sim::Simulator;
use serde_json::{Value, json};

/// A refusal: a message in plain text, or messages by field.
fn said(answer: &Answer) -> (u16, Value) {
    let form = answer.content_type.contains("json");
    (answer.status, if form { answer.json() } else { json!(answer.text) })
}

async fn read(sim: &Simulator, id: &str) -> Value {
    get(sim, ADMIN, &format!("machines/{id}/")).await.json()
}

async fn allocate(sim: &Simulator, key: &str, id: &str) {
    assert_eq!(post(sim, key, "machines/?op=allocate", &[("system_id", id)]).await.status, 200);
}

async fn bridge(sim: &Simulator, id: &str) -> String {
    let nics = format!("nodes/{id}/interfaces/");
    let parent = get(sim, ADMIN, &nics).await.json()[0]["id"].to_string();
    let made = post(sim, ADMIN, &format!("{nics}?op=create_bridge"), &[("name", "br0"), ("parent", &parent)]).await;
    assert_eq!(made.status, 200, "{}", made.text);
    format!("{nics}{}/", made.json()["id"])
}

/// 916, 935, 946, 954, 963, 1413.
#[tokio::test]
async fn a_taken_machine_is_not_tried_out_and_only_its_owner_annotates_it() {
    let sim = lab();
    let id = system_id(&sim, "bm01");
    let annotate = format!("machines/{id}/?op=set_workload_annotations");
    let unacquired = (409, json!("Cannot set workload annotation: it hasn't been acquired."));
    assert_eq!(said(&post(&sim, ALICE, &annotate, &[("a", "b")]).await), unacquired, "935");
    allocate(&sim, ALICE, &id).await;
    let again = post(&sim, BOB, "machines/?op=allocate", &[("system_id", &id), ("dry_run", "true")]).await;
    assert_eq!(said(&again), (409, json!(format!("No machine with system ID {id} available."))), "916");
    assert_eq!(said(&post(&sim, ADMIN, &annotate, &[("a", "b")]).await), unacquired, "1413");
    let long = post(&sim, ALICE, &annotate, &[(&"k".repeat(256), "v")]).await;
    let words = "Ensure this value has at most 255 characters (it has 256).";
    assert_eq!(said(&long), (400, json!({"key": [words]})), "946");
    for filter in ["workload_annotations", "owner_data", "annotations"] {
        let listed = get(&sim, ADMIN, &format!("machines/?{filter}=a")).await;
        assert_eq!(said(&listed), (400, json!({filter: ["No such constraint."]})), "954");
    }
    assert_eq!(post(&sim, ALICE, &annotate, &[("a", "b")]).await.status, 200);
    post(&sim, ALICE, &format!("machines/{id}/?op=deploy"), &[]).await;
    sim.control().settle();
    post(&sim, ALICE, &format!("machines/{id}/?op=release"), &[]).await;
    let releasing = read(&sim, &id).await;
    assert_eq!((&releasing["status_name"], &releasing["owner"]), (&json!("Releasing"), &json!("alice")), "963");
    assert_eq!(releasing["workload_annotations"], json!({"a": "b"}), "963");
}

/// 974, 976, 1012, 1024, 1029.
#[tokio::test]
async fn a_bridge_of_an_allocation_goes_and_one_of_a_ready_machine_stays_and_deploys() {
    let sim = lab();
    let (taken, ready) = (system_id(&sim, "bm01"), system_id(&sim, "bm02"));
    for (number, form) in [(974, &[("name", "br1")][..]), (976, &[("name", "br1"), ("parent", "eth0")][..])] {
        let refused = post(&sim, ADMIN, &format!("nodes/{ready}/interfaces/?op=create_bridge"), form).await;
        assert_eq!(refused.status, 400, "{number}");
        assert_eq!(refused.json()["mac_address"], json!(["This field cannot be blank."]), "{number}");
        assert!(refused.json()["parent"][0].is_string(), "{number}");
    }
    allocate(&sim, ADMIN, &taken).await;
    bridge(&sim, &taken).await;
    post(&sim, ADMIN, &format!("machines/{taken}/?op=release"), &[]).await;
    sim.control().settle();
    let nics = get(&sim, ADMIN, &format!("nodes/{taken}/interfaces/")).await.json();
    assert_eq!((nics.as_array().unwrap().len(), &nics[0]["links"][0]["mode"]), (1, &json!("auto")), "1012");
    let made = bridge(&sim, &ready).await;
    let form = [("mode", "AUTO"), ("subnet", "10.0.0.0/24")];
    assert_eq!(post(&sim, ADMIN, &format!("{made}?op=link_subnet"), &form).await.status, 200);
    let deploy = post(&sim, ADMIN, &format!("machines/{ready}/?op=deploy"), &[]).await;
    assert_eq!(deploy.status, 200, "1024: {}", deploy.text);
    sim.control().settle();
    post(&sim, ADMIN, &format!("machines/{ready}/?op=release"), &[]).await;
    sim.control().settle();
    let nics = get(&sim, ADMIN, &format!("nodes/{ready}/interfaces/")).await.json();
    assert!(nics.as_array().unwrap().iter().any(|nic| nic["name"] == "br0"), "1029: {nics}");
}

/// 1123, 1140.
#[tokio::test]
async fn a_release_leaves_a_machine_on_that_was_just_deployed_and_erases_disks() {
    let sim = lab();
    let id = system_id(&sim, "bm01");
    post(&sim, ALICE, &format!("machines/{id}/?op=deploy"), &[]).await;
    let released = post(&sim, ALICE, &format!("machines/{id}/?op=release"), &[]).await.json();
    assert_eq!(released["status_name"], "Ready");
    sim.advance(Duration::from_secs(20));
    let power = get(&sim, ALICE, &format!("machines/{id}/?op=query_power_state")).await;
    assert_eq!(said(&power), (200, json!({"state": "on"})), "1123");
    for how in ["erase", "quick_erase", "secure_erase"] {
        let id = system_id(&sim, "bm02");
        post(&sim, ALICE, &format!("machines/{id}/?op=deploy"), &[]).await;
        sim.control().settle();
        let form = [("erase", "true"), (how, "true")];
        let erasing = post(&sim, ALICE, &format!("machines/{id}/?op=release"), &form).await.json();
        assert_eq!((&erasing["status_name"], &erasing["owner"]), (&json!("Disk erasing"), &json!("alice")), "1140");
        sim.control().settle();
        assert_eq!(read(&sim, &id).await["status_name"], "Ready");
    }
}

/// 1175, 1178, 1485.
#[tokio::test]
async fn a_bmc_that_fails_is_told_by_its_state_and_one_that_hangs_by_a_failed_release() {
    let sim = lab();
    let id = system_id(&sim, "bm01");
    arrange(&sim, r#"[{"machine": {"hostname": "bm01", "bmc": "error"}}]"#);
    let power = get(&sim, ADMIN, &format!("machines/{id}/?op=query_power_state")).await;
    assert_eq!(said(&power), (200, json!({"state": "error"})), "1175");
    let machine = read(&sim, &id).await;
    let message = machine["status_message"].as_str().unwrap();
    assert!(message.starts_with("Failed to query node's BMC - "), "1178: {message}");
    let id = system_id(&sim, "bm02");
    post(&sim, ADMIN, &format!("machines/{id}/?op=deploy"), &[]).await;
    sim.control().settle();
    arrange(&sim, r#"[{"machine": {"hostname": "bm02", "bmc": "hangs"}}]"#);
    assert_eq!(post(&sim, ADMIN, &format!("machines/{id}/?op=release"), &[]).await.status, 200);
    sim.advance(Duration::from_secs(303));
    assert_eq!(read(&sim, &id).await["status_name"], "Releasing failed", "1485");
}

/// 1271, 1277, 1283, 1412.
#[tokio::test]
async fn a_deployment_takes_custom_images_no_rack_controller_and_keeps_its_owner() {
    let sim = lab();
    arrange(&sim, r#"[{"image": {"name": "custom/u-2204-k8s"}}]"#);
    let id = system_id(&sim, "bm01");
    let deploy = format!("machines/{id}/?op=deploy");
    let form = [("distro_series", "u-2204-k8s"), ("ephemeral_deploy", "true")];
    let words = "Ephemeral deployments only supported on Ubuntu Bionic 18.04+";
    assert_eq!(said(&post(&sim, ADMIN, &deploy, &form).await), (400, json!(words)), "1277");
    let rack = post(&sim, ADMIN, &deploy, &[("install_rackd", "true")]).await;
    assert_eq!(rack.status, 400, "1283: {}", rack.text);
    assert_eq!(read(&sim, &id).await["status_name"], "Ready");
    allocate(&sim, ALICE, &id).await;
    let deployed = post(&sim, ADMIN, &deploy, &[("distro_series", "custom/u-2204-k8s")]).await;
    assert_eq!((deployed.status, &deployed.json()["owner"]), (200, &json!("alice")), "1412");
    sim.control().settle();
    let machine = read(&sim, &id).await;
    assert_eq!((&machine["osystem"], &machine["distro_series"]), (&json!("custom"), &json!("u-2204-k8s")), "1271");
}

/// 1316, 1330.
#[tokio::test]
async fn a_name_with_an_alias_is_taken_and_a_deleted_one_leaves_its_address_reserved() {
    let sim = lab();
    let form = [("fqdn", "cn.k8s.example"), ("rrtype", "CNAME"), ("rrdata", "api.k8s.example")];
    assert_eq!(post(&sim, ADMIN, "dnsresourcerecords/", &form).await.status, 200);
    let form = [("fqdn", "cn.k8s.example"), ("ip_addresses", "10.0.0.66")];
    let taken = json!({"__all__": ["Labels must be unique within their zone."]});
    assert_eq!(said(&post(&sim, ADMIN, "dnsresources/", &form).await), (400, taken), "1316");
    let form = [("fqdn", "api.k8s.example"), ("ip_addresses", "10.0.0.67")];
    let id = post(&sim, ADMIN, "dnsresources/", &form).await.json()["id"].clone();
    assert_eq!(send(&sim, ADMIN, "DELETE", &format!("dnsresources/{id}/"), &[]).await.status, 204);
    let left = get(&sim, ADMIN, "ipaddresses/?ip=10.0.0.67&all=true").await.json();
    assert_eq!(left[0]["alloc_type_name"], "User reserved", "1330");
}

/// 1359, 1363, 1367, 1381, 1382, 1385, 1397.
#[tokio::test]
async fn events_are_read_from_a_cursor_that_an_empty_page_does_not_repeat() {
    let sim = lab();
    let id = system_id(&sim, "bm01");
    sim.control().backup("before");
    post(&sim, ADMIN, "machines/?op=allocate", &[("system_id", &id)]).await;
    post(&sim, ADMIN, &format!("machines/{id}/?op=release"), &[]).await;
    let query = async |rest: &str| get(&sim, ADMIN, &format!("events/?op=query&level=DEBUG{rest}")).await;
    let newest = query("&limit=1").await.json()["events"][0]["id"].as_i64().unwrap();
    let empty = query(&format!("&after={newest}")).await.json();
    assert_eq!((&empty["count"], &empty["events"]), (&json!(0), &json!([])), "1359");
    assert_eq!(empty["next_uri"], "/MAAS/api/2.0/events/?op=query&level=DEBUG", "1359");
    let ids = |page: &Value| -> Vec<i64> {
        page["events"].as_array().unwrap().iter().map(|event| event["id"].as_i64().unwrap()).collect()
    };
    let all = ids(&query("&limit=1000").await.json());
    let oldest: Vec<i64> = all.iter().rev().take(2).rev().copied().collect();
    assert_eq!(ids(&query("&after=0&limit=2").await.json()), oldest, "1363");
    assert_eq!(query("&after=1&before=9").await.status, 400, "1367");
    let mac = read(&sim, &id).await["interface_set"][0]["mac_address"].as_str().unwrap().to_owned();
    let of_machine = query(&format!("&mac_address={mac}")).await;
    assert_eq!(of_machine.status, 200, "1381");
    assert!(of_machine.json()["events"].as_array().unwrap().iter().all(|event| event["node"] == json!(id)), "1381");
    assert_ne!(of_machine.json()["count"], 0, "1381");
    let unknown = query("&nosuch=1&limit=1").await;
    assert_eq!((unknown.status, ids(&unknown.json())), (200, vec![newest]), "1382");
    let audit = get(&sim, ADMIN, "events/?op=query&level=AUDIT").await;
    assert_eq!((audit.status, &audit.json()["count"]), (200, &json!(0)), "1385");
    sim.control().restore("before").unwrap();
    post(&sim, ADMIN, "machines/?op=allocate", &[("system_id", &id)]).await;
    assert_eq!(query(&format!("&after={newest}")).await.json()["count"], 0, "1396");
    assert!(ids(&query("&limit=1").await.json())[0] < newest, "1397");
}

/// 1438.
#[tokio::test]
async fn an_allocation_composes_only_on_a_host_in_the_zone() {
    let sim = lab();
    with_vm_host(&sim);
    for _ in 0..4 {
        post(&sim, ADMIN, "machines/?op=allocate", &[]).await;
    }
    let elsewhere = post(&sim, ADMIN, "machines/?op=allocate", &[("zone", "az1")]).await;
    assert_eq!(elsewhere.status, 409, "{}", elsewhere.text);
    let here = post(&sim, ADMIN, "machines/?op=allocate", &[("zone", "default")]).await;
    assert_eq!((here.status, &here.json()["pod"]["name"]), (200, &json!("host-a")), "{}", here.text);
}

/// 1501.
#[tokio::test]
async fn a_machine_record_made_before_its_host_is_registered_is_adopted_as_it_is() {
    let sim = lab();
    with_vm_host(&sim);
    let host = sim.control().with_model(|model| *model.db.vm_hosts.keys().next().unwrap());
    let form = [("hostname", "vm1"), ("skip_commissioning", "true")];
    let vm = post(&sim, ADMIN, &format!("vm-hosts/{host}/?op=compose"), &form).await.json();
    let id = vm["system_id"].as_str().unwrap().to_owned();
    post(&sim, ADMIN, &format!("machines/{id}/?op=deploy"), &[]).await;
    sim.control().settle();
    let mac = read(&sim, &id).await["interface_set"][0]["mac_address"].as_str().unwrap().to_owned();
    assert_eq!(send(&sim, ADMIN, "DELETE", &format!("vm-hosts/{host}/"), &[]).await.status, 204);
    let form = [
        ("deployed", "true"),
        ("architecture", "amd64/generic"),
        ("power_type", "lxd"),
        ("mac_addresses", mac.as_str()),
        ("hostname", "vm1"),
        ("power_parameters_power_address", "192.0.2.9:8443"),
        ("power_parameters_instance_name", "vm1"),
        ("power_parameters_project", "maas"),
    ];
    let made = post(&sim, ADMIN, "machines/", &form).await;
    assert_eq!(made.status, 200, "{}", made.text);
    let id = made.json()["system_id"].as_str().unwrap().to_owned();
    let form = [("type", "lxd"), ("power_address", "192.0.2.9:8443"), ("project", "maas"), ("password", "x")];
    assert_eq!(post(&sim, ADMIN, "vm-hosts/", &form).await.status, 200);
    sim.advance(Duration::from_secs(5));
    let adopted = read(&sim, &id).await;
    assert_eq!((&adopted["status_name"], &adopted["owner"]), (&json!("Deployed"), &json!("admin")), "1501");
}
