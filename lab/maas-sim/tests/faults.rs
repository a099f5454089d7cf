//! Faults: requests that fail before and after their effect, a server that is killed, a restored backup.
#![allow(clippy::unwrap_used, clippy::expect_used, clippy::panic)]

mod common;

use common::{ADMIN, ALICE, BOB, get, lab, post, system_id, with_vm_host};
use maas_sim::{
    Simulator,
    control::MachineFault,
    faults::{FaultRule, ServerState},
};

fn fault(sim: &Simulator, json: &str) {
    sim.control().add_fault(serde_json::from_str::<FaultRule>(json).unwrap());
}

#[tokio::test]
async fn before_means_no_effect_and_after_means_an_effect_without_its_answer() {
    let sim = lab();
    fault(&sim, r#"{"match": {"kind": "allocate"}, "do": "status", "status": 503, "retry_after": 10}"#);
    let refused = post(&sim, ALICE, "machines/?op=allocate", &[("agent_name", "x")]).await;
    assert_eq!((refused.status, refused.headers["retry-after"].to_str().unwrap()), (503, "10"));
    assert_eq!(sim.control().effective("allocate"), 0);
    fault(&sim, r#"{"match": {"kind": "allocate"}, "when": "after", "do": "reset"}"#);
    post(&sim, ALICE, "machines/?op=allocate", &[("agent_name", "x")]).await;
    assert_eq!(sim.control().effective("allocate"), 1);
    assert_eq!(get(&sim, ALICE, "machines/?agent_name=x").await.json().as_array().unwrap().len(), 1);
}

#[tokio::test]
async fn a_truncated_answer_has_its_effect() {
    let sim = lab();
    fault(&sim, r#"{"match": {"kind": "zones.create"}, "when": "after", "do": "truncate", "bytes": 10}"#);
    let cut = post(&sim, ADMIN, "zones/", &[("name", "az9")]).await;
    assert_eq!(cut.status, 200);
    assert!(serde_json::from_str::<serde_json::Value>(&cut.text).is_err());
    assert_eq!(get(&sim, ADMIN, "zones/az9/").await.status, 200);
}

#[tokio::test]
async fn an_effect_can_come_after_the_client_has_given_up() {
    let sim = lab();
    fault(&sim, r#"{"match": {"kind": "allocate"}, "do": "late", "seconds": 20}"#);
    let waiting = post(&sim, ALICE, "machines/?op=allocate", &[("agent_name", "late")]);
    assert!(tokio::time::timeout(std::time::Duration::from_millis(100), waiting).await.is_err());
    assert_eq!(get(&sim, ALICE, "machines/?agent_name=late").await.json(), serde_json::json!([]));
    sim.advance(std::time::Duration::from_secs(21));
    assert_eq!(get(&sim, ALICE, "machines/?agent_name=late").await.json().as_array().unwrap().len(), 1);
    assert_eq!(sim.control().effective("allocate"), 1);
}

#[tokio::test]
async fn a_region_killed_after_the_commit_of_a_deploy_leaves_a_machine_that_only_power_on_saves() {
    let sim = lab();
    let id = system_id(&sim, "bm01");
    fault(&sim, r#"{"match": {"kind": "deploy"}, "when": "after", "do": "kill", "down_seconds": 4}"#);
    let lost = post(&sim, ALICE, &format!("machines/{id}/?op=deploy"), &[]).await;
    assert_eq!((lost.status, lost.content_type.as_str()), (502, "text/html"));
    assert_eq!(get(&sim, ALICE, "version/").await.status, 502);
    sim.advance(std::time::Duration::from_secs(4000));
    let stuck = get(&sim, ALICE, &format!("machines/{id}/")).await.json();
    assert_eq!((&stuck["status_name"], &stuck["power_state"]), (&"Deploying".into(), &"off".into()));
    assert_eq!(post(&sim, ALICE, &format!("machines/{id}/?op=deploy"), &[]).await.status, 409);
    assert_eq!(post(&sim, ALICE, &format!("machines/{id}/?op=power_on"), &[]).await.status, 200);
    sim.control().settle();
    assert_eq!(get(&sim, ALICE, &format!("machines/{id}/")).await.json()["status_name"], "Deployed");
}

#[tokio::test]
async fn a_region_killed_inside_a_compose_leaves_a_vm_that_maas_does_not_know() {
    let sim = lab();
    with_vm_host(&sim);
    let host = sim.control().with_model(|model| *model.db.vm_hosts.keys().next().unwrap());
    fault(&sim, r#"{"match": {"kind": "compose"}, "do": "kill"}"#);
    let path = format!("vm-hosts/{host}/?op=compose");
    let form = [("hostname", "orphan"), ("skip_commissioning", "true")];
    assert_eq!(post(&sim, ADMIN, &path, &form).await.status, 502);
    sim.advance(std::time::Duration::from_secs(1));
    assert_eq!(get(&sim, ADMIN, "machines/?hostname=orphan").await.json(), serde_json::json!([]));
    let again = post(&sim, ADMIN, &path, &form).await;
    assert_eq!(again.status, 503);
    assert!(again.text.ends_with("This \"instances\" entry already exists"), "{}", again.text);
    post(&sim, ADMIN, &format!("vm-hosts/{host}/?op=refresh"), &[]).await;
    assert_eq!(get(&sim, ADMIN, "machines/?hostname=orphan").await.json()[0]["status_name"], "Commissioning");
}

#[tokio::test]
async fn a_restored_backup_uses_event_ids_again_and_leaves_the_hardware_as_it_is() {
    let sim = lab();
    let id = system_id(&sim, "bm01");
    sim.control().backup("b1");
    post(&sim, ALICE, &format!("machines/{id}/?op=deploy"), &[]).await;
    sim.control().settle();
    let newest = |sim: &Simulator| sim.control().with_model(|model| model.db.events.last().map_or(0, |event| event.id));
    let before = newest(&sim);
    sim.control().restore("b1").unwrap();
    assert!(newest(&sim) < before);
    let machine = get(&sim, BOB, &format!("machines/{id}/")).await.json();
    assert_eq!((&machine["status_name"], &machine["power_state"]), (&"Ready".into(), &"off".into()));
    let power = get(&sim, ADMIN, &format!("machines/{id}/?op=query_power_state")).await.json();
    assert_eq!(power["state"], "on");
}

#[tokio::test]
async fn a_vm_can_be_taken_the_moment_it_is_ready() {
    let sim = lab();
    with_vm_host(&sim);
    let host = sim.control().with_model(|model| *model.db.vm_hosts.keys().next().unwrap());
    sim.control().hurt(None, &MachineFault::Steal, Some("bob")).unwrap();
    let form = [("hostname", "vm1"), ("skip_commissioning", "true")];
    let vm = post(&sim, ADMIN, &format!("vm-hosts/{host}/?op=compose"), &form).await.json();
    let id = vm["system_id"].as_str().unwrap();
    let taken = post(&sim, ADMIN, "machines/?op=allocate", &[("system_id", id)]).await;
    assert_eq!((taken.status, taken.text), (409, format!("No machine with system ID {id} available.")));
    assert_eq!(get(&sim, ADMIN, &format!("machines/{id}/")).await.json()["owner"], "bob");
}

#[tokio::test]
async fn the_whole_server_can_be_away() {
    let sim = lab();
    sim.control().set_server(ServerState::Down);
    assert_eq!(get(&sim, ADMIN, "zones/").await.status, 502);
    sim.control().set_server(ServerState::DatabaseDown);
    let answer = get(&sim, ADMIN, "zones/").await;
    assert_eq!((answer.status, answer.content_type.as_str()), (500, "text/plain; charset=utf-8"));
    sim.control().set_server(ServerState::Up);
    assert_eq!(get(&sim, ADMIN, "zones/").await.status, 200);
}
