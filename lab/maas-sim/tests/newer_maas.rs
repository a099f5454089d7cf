//! How MAAS 3.7 differs from 3.4, through the HTTP API. The messages are from recordings.
#![allow(clippy::unwrap_used, clippy::expect_used, clippy::panic)]

mod common;

use std::time::Duration;

use common::{ADMIN, ALICE, BOB, arrange, get, lab, lab_of, post, send, system_id};
use maas_sim::Simulator;
use maas_sim::control::MachineFault;
use serde_json::{Value, json};

fn newer() -> Simulator {
    lab_of("3.7".parse().unwrap())
}

async fn read(sim: &Simulator, id: &str) -> Value {
    get(sim, ADMIN, &format!("machines/{id}/")).await.json()
}

#[tokio::test]
async fn a_life_cycle_writes_thirteen_events_and_none_about_power() {
    let sim = newer();
    let id = system_id(&sim, "bm03");
    post(&sim, ALICE, "machines/?op=allocate", &[("system_id", &id)]).await;
    post(&sim, ALICE, &format!("machines/{id}/?op=deploy"), &[("distro_series", "jammy")]).await;
    sim.control().settle();
    post(&sim, ALICE, &format!("machines/{id}/?op=release"), &[]).await;
    sim.control().settle();
    let events = get(&sim, ADMIN, &format!("events/?op=query&level=DEBUG&id={id}")).await.json();
    assert_eq!(events["count"], 13, "{events}");
    assert!(!events.to_string().to_lowercase().contains("power"), "{events}");
}

#[tokio::test]
async fn without_a_rack_a_deployment_is_a_500_and_the_machine_stays_as_it_was() {
    let sim = newer();
    let id = system_id(&sim, "bm01");
    arrange(&sim, r#"[{"rack": {"connected": false}}]"#);
    let deploy = post(&sim, ADMIN, &format!("machines/{id}/?op=deploy"), &[]).await;
    assert_eq!((deploy.status, deploy.text), (500, format!("Error determining BMC task queue for machine {id}")));
    assert_eq!(read(&sim, &id).await["status_name"], "Ready");
    let query = get(&sim, ADMIN, &format!("machines/{id}/?op=query_power_state")).await;
    assert_eq!((query.status, query.headers["retry-after"].to_str().unwrap()), (503, "10"));
    // Whether there is a BMC at all makes no difference.
    for (name, mac, power) in [("bm9", "52:54:00:00:99:01", "webhook"), ("bm10", "52:54:00:00:99:02", "manual")] {
        let form =
            [("architecture", "amd64/generic"), ("mac_addresses", mac), ("hostname", name), ("power_type", power)];
        let create = post(&sim, ADMIN, "machines/", &form).await;
        let words = format!("No rack controllers can access the BMC of node {name}");
        assert_eq!((create.status, create.text), (503, words));
        assert_eq!(read(&sim, &system_id(&sim, name)).await["status_name"], "New", "the machine exists all the same");
    }
}

#[tokio::test]
async fn a_bmc_that_fails_is_told_by_a_500_and_by_activity_task_failed() {
    let sim = newer();
    let id = system_id(&sim, "bm01");
    arrange(&sim, r#"[{"machine": {"hostname": "bm01", "bmc": "error"}}]"#);
    let before = read(&sim, &id).await["power_state"].clone();
    assert_eq!(get(&sim, ADMIN, &format!("machines/{id}/?op=query_power_state")).await.status, 500);
    assert_eq!(read(&sim, &id).await["power_state"], before, "MAAS believes what it believed");
    post(&sim, ADMIN, &format!("machines/{id}/?op=deploy"), &[]).await;
    sim.control().settle();
    let failed = read(&sim, &id).await;
    assert_eq!(failed["status_name"], "Failed deployment");
    assert_eq!(failed["error_description"], "Activity task failed");
}

#[tokio::test]
async fn why_it_failed_stays_until_somebody_marks_the_machine_fixed() {
    let sim = newer();
    let id = system_id(&sim, "bm01");
    arrange(&sim, r#"[{"machine": {"hostname": "bm01", "next": {"deploy": "fail"}}}]"#);
    post(&sim, ADMIN, &format!("machines/{id}/?op=deploy"), &[]).await;
    sim.control().settle();
    let why = read(&sim, &id).await["error_description"].clone();
    assert!(why.as_str().unwrap().starts_with("Installation failed"), "{why}");
    post(&sim, ADMIN, &format!("machines/{id}/?op=release"), &[]).await;
    sim.control().settle();
    assert_eq!(read(&sim, &id).await["error_description"], why, "at Ready");
    post(&sim, ADMIN, &format!("machines/{id}/?op=deploy"), &[]).await;
    assert_eq!(read(&sim, &id).await["error_description"], why, "at Deploying");
    post(&sim, ADMIN, &format!("machines/{id}/?op=mark_broken"), &[("comment", "disk")]).await;
    assert_eq!(read(&sim, &id).await["error_description"], "disk");
    post(&sim, ADMIN, &format!("machines/{id}/?op=mark_fixed"), &[]).await;
    assert_eq!(read(&sim, &id).await["error_description"], "");
}

#[tokio::test]
async fn an_abort_right_after_a_deployment_succeeds_where_it_did_not() {
    for (sim, status) in [(lab(), 503), (newer(), 200)] {
        let id = system_id(&sim, "bm01");
        post(&sim, ADMIN, &format!("machines/{id}/?op=deploy"), &[]).await;
        let abort = post(&sim, ADMIN, &format!("machines/{id}/?op=abort"), &[]).await;
        assert_eq!(abort.status, status, "{}", abort.text);
        sim.advance(Duration::from_secs(10));
        let after = read(&sim, &id).await["status_name"].clone();
        assert_eq!(after, if status == 200 { "Allocated" } else { "Deploying" });
    }
}

#[tokio::test]
async fn a_deployment_without_a_series_is_noble_and_a_series_may_be_a_number() {
    for (sim, asked, series) in
        [(lab(), None, "jammy"), (newer(), None, "noble"), (newer(), Some("ubuntu/22.04"), "jammy")]
    {
        let id = system_id(&sim, "bm01");
        let form: Vec<_> = asked.map(|series| ("distro_series", series)).into_iter().collect();
        let deploying = post(&sim, ADMIN, &format!("machines/{id}/?op=deploy"), &form).await.json();
        assert_eq!(deploying["distro_series"], series);
    }
}

#[tokio::test]
async fn a_deployment_has_an_hour_where_it_had_half_of_one() {
    for (sim, minutes) in [(lab(), 30), (newer(), 60)] {
        let id = system_id(&sim, "bm01");
        arrange(&sim, r#"[{"machine": {"hostname": "bm01", "bmc": "ok"}}]"#);
        post(&sim, ADMIN, &format!("machines/{id}/?op=deploy"), &[("register_vmhost", "true")]).await;
        sim.advance(Duration::from_secs(minutes * 60 - 30));
        assert_eq!(read(&sim, &id).await["status_name"], "Deploying", "{minutes}");
        sim.advance(Duration::from_secs(60));
        assert_eq!(read(&sim, &id).await["status_name"], "Failed deployment", "{minutes}");
    }
}

#[tokio::test]
async fn an_allocated_machine_loses_its_file_systems_when_its_release_begins() {
    let sim = lab();
    let id = system_id(&sim, "bm01");
    let filesystem = |machine: &Value| machine["blockdevice_set"][0]["partitions"][0]["filesystem"].clone();
    assert!(filesystem(&read(&sim, &id).await).is_object(), "those of its layout");
    post(&sim, ADMIN, &format!("machines/{id}/?op=deploy"), &[]).await;
    sim.control().settle();
    assert!(filesystem(&read(&sim, &id).await).is_object());
    let releasing = post(&sim, ADMIN, &format!("machines/{id}/?op=release"), &[]).await.json();
    assert_eq!((&releasing["status_name"], filesystem(&releasing)), (&json!("Releasing"), Value::Null));
    sim.control().settle();
    assert!(filesystem(&read(&sim, &id).await).is_object());
}

#[tokio::test]
async fn a_link_that_loses_its_address_leaves_only_the_one_of_commissioning() {
    let sim = lab();
    let id = system_id(&sim, "bm01");
    let ready = read(&sim, &id).await;
    let seen = ready["boot_interface"]["discovered"][0]["ip_address"].clone();
    assert!(seen.is_string(), "a Ready machine shows where it was seen: {ready}");
    assert_eq!(ready["ip_addresses"], json!([seen]));
    post(&sim, ADMIN, &format!("machines/{id}/?op=deploy"), &[]).await;
    sim.control().settle();
    let deployed = read(&sim, &id).await;
    assert_ne!(deployed["ip_addresses"], json!([seen]));
    sim.control().hurt(Some("bm01"), &MachineFault::LoseAddress, None).unwrap();
    let lost = read(&sim, &id).await;
    assert_eq!(lost["ip_addresses"], json!([seen]));
    assert!(lost["boot_interface"]["links"][0].get("ip_address").is_none());
}

#[tokio::test]
async fn each_release_has_its_own_hash_of_the_api() {
    for (sim, hash) in
        [(lab(), "29b8898cd6164c9b0adae16fe79c9932fe40e145"), (newer(), "36763f1444f05f8c565d0292aabefcaa9ece4369")]
    {
        assert_eq!(get(&sim, ADMIN, "zones/").await.headers["x-maas-api-hash"], hash);
        assert_eq!(get(&sim, ADMIN, "describe/").await.json()["hash"], hash);
    }
}

#[tokio::test]
async fn a_device_is_made_listed_read_changed_and_deleted() {
    let sim = newer();
    let missing = post(&sim, ALICE, "devices/", &[("hostname", "printer")]).await;
    assert_eq!((missing.status, missing.json()), (400, json!({"mac_addresses": ["This field is required."]})));
    let form = [("hostname", "printer"), ("mac_addresses", "52:54:00:00:77:01"), ("domain", "k8s.example")];
    let made = post(&sim, ALICE, "devices/", &form).await;
    assert_eq!(made.status, 200, "{}", made.text);
    let device = made.json();
    assert_eq!((&device["fqdn"], &device["owner"]), (&json!("printer.k8s.example"), &json!("alice")));
    assert_eq!((&device["node_type_name"], &device["interface_set"][0]["name"]), (&json!("Device"), &json!("eth0")));
    let id = device["system_id"].as_str().unwrap();
    let again = post(&sim, ALICE, "devices/", &form).await.json();
    assert_eq!(again["hostname"], json!(["Node with this Hostname already exists."]));
    assert_eq!(again["mac_addresses"], json!(["MAC address 52:54:00:00:77:01 already in use on printer."]));
    assert_eq!(get(&sim, ALICE, "devices/?hostname=printer").await.json()[0]["system_id"], id);
    assert_eq!(get(&sim, BOB, "devices/").await.json(), json!([]), "others' devices are not shown");
    assert_eq!(get(&sim, BOB, &format!("devices/{id}/")).await.status, 403);
    let parent = system_id(&sim, "bm01");
    let changed = send(&sim, ALICE, "PUT", &format!("devices/{id}/"), &[("parent", &parent)]).await.json();
    assert_eq!(changed["parent"], parent.as_str());
    assert_eq!(send(&sim, ALICE, "DELETE", &format!("devices/{id}/"), &[]).await.status, 204);
    let gone = get(&sim, ALICE, &format!("devices/{id}/")).await;
    assert_eq!((gone.status, gone.text.as_str()), (404, "No Device matches the given query."));
}
