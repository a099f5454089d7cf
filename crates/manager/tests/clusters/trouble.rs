//! Failures.

use capmaas_core::machine::{Allocation, JOURNAL_ANNOTATION, Journal};
use capmaas_core::plan::Requeue;
use capmaas_manager::kubernetes::Key;
use maas_sim::faults::ServerState;
use serde_json::json;

use crate::stage::{ADMIN, ALICE, CAROL, Stage, key};

#[tokio::test]
async fn a_record_whose_answer_was_lost_is_found_again_and_is_the_only_one() {
    let stage = Stage::new();
    stage.plain_cluster();
    *stage.lose_answer.lock().unwrap() = true;
    stage.rest().await;
    stage.advance(10);
    stage.rest().await;
    assert_eq!(stage.records().len(), 1);
    assert_eq!(stage.object()["status"]["ready"], true);
    stage.port.delete("MaasCluster", &key());
    stage.rest().await;
    assert!(stage.object().is_null() && stage.records().is_empty());
}

#[tokio::test]
async fn a_crash_between_the_record_and_its_note_leaves_no_second_record() {
    let stage = Stage::new();
    stage.plain_cluster();
    let port = stage.port.clone();
    // Somebody writes at that very moment, so that the ID cannot be journaled: as if we had crashed there.
    *stage.after_create.lock().unwrap() = Some(Box::new(move || {
        port.edit("MaasCluster", &key(), &json!({ "metadata": { "labels": { "x": "y" } } })).unwrap();
    }));
    stage.rest().await;
    assert_eq!(stage.records().len(), 1);
    assert!(stage.object()["metadata"]["annotations"]["infrastructure.cluster.x-k8s.io/dns-record"].is_string());
}

#[tokio::test]
async fn s02_a_cluster_that_is_deleted_while_its_record_is_asked_for_waits_for_it() {
    let stage = Stage::new();
    stage.plain_cluster();
    stage.rest().await;
    // The request was sent and never arrived, which the manager cannot know.
    let note = json!({ "metadata": { "annotations": { "infrastructure.cluster.x-k8s.io/dns-record": null } } });
    stage.port.edit("MaasCluster", &key(), &note).unwrap();
    let name = stage.records()[0].0.clone();
    stage.arrange(json!([{"absent": {"dns": name}}]));
    stage.port.delete("MaasCluster", &key());
    assert!(matches!(stage.rest().await, Requeue::After(wait) if wait.as_secs() > 100));
    stage.advance(160);
    stage.rest().await;
    assert!(stage.object().is_null());
}

#[tokio::test]
async fn s18_a_name_that_exists_is_refused_and_another_one_is_chosen() {
    let first = Stage::new();
    first.plain_cluster();
    first.rest().await;
    let taken = first.records()[0].0.clone();
    // The same object recreated, in a MAAS where the name is taken.
    let stage = Stage::new();
    stage.arrange(json!([{"dns": {"fqdn": taken, "ip_addresses": ["10.0.0.77"]}}]));
    stage.plain_cluster();
    stage.rest().await;
    let records = stage.records();
    assert_eq!(records.len(), 2);
    assert!(records.contains(&(taken.clone(), vec!["10.0.0.77".to_owned()])));
    stage.port.delete("MaasCluster", &key());
    stage.rest().await;
    assert_eq!(stage.records(), [(taken, vec!["10.0.0.77".to_owned()])]);
}

#[tokio::test]
async fn s01_maas_away_takes_nothing_back_and_holds_the_finalizer() {
    let stage = Stage::new();
    stage.plain_cluster();
    stage.control_plane("cp1");
    stage.rest().await;
    stage.maas.control().set_server(ServerState::Down);
    stage.control_plane("cp2");
    stage.rest().await;
    assert_eq!(stage.object()["status"]["ready"], true);
    assert_eq!(stage.condition("LoadBalancerReady")["status"], "True");
    stage.port.delete("MaasCluster", &key());
    stage.gone("cp1");
    stage.gone("cp2");
    stage.rest().await;
    assert_eq!(stage.reason("Deleting"), "MAASUnavailable");
    stage.maas.control().set_server(ServerState::Up);
    stage.advance(60);
    stage.rest().await;
    assert!(stage.object().is_null() && stage.records().is_empty());
}

#[tokio::test]
async fn credentials_are_awaited_in_words_and_picked_up_when_they_appear() {
    let stage = Stage::new();
    stage.port.delete("Secret", &Key::new("capmaas-system", "maas-credentials"));
    stage.port.delete("ConfigMap", &Key::new("capmaas-system", "capmaas-config"));
    stage.identities.changed();
    stage.plain_cluster();
    stage.rest().await;
    assert_eq!(stage.reason("CredentialsValid"), "CredentialsInvalid");
    assert_eq!(stage.reason("Ready"), "CredentialsInvalid");
    assert!(!stage.object().to_string().contains("CANARY"));
    stage.credentials(ADMIN);
    stage.rest().await;
    assert_eq!(stage.condition("CredentialsValid")["status"], "True");
    assert_eq!(stage.object()["status"]["ready"], true);
}

#[tokio::test]
async fn a_user_without_the_right_is_told_and_asks_less_and_less_often() {
    let stage = Stage::new();
    stage.credentials(ALICE);
    stage.plain_cluster();
    let first = stage.rest().await;
    assert_eq!(stage.reason("LoadBalancerReady"), "LoadBalancerFailed");
    stage.advance(6);
    let second = stage.rest().await;
    assert!(first < second, "{first:?} {second:?}");
    assert_eq!(stage.writes().len(), 2);
}

#[tokio::test]
async fn s26_an_effect_that_works_does_not_free_another_one_from_its_wait() {
    let stage = Stage::new();
    stage.plain_cluster();
    stage.rest().await;
    let admin = stage.identities.of_manager().await.unwrap().client;
    let id = stage.maas.control().with_model(|model| model.db.dns.values().next().unwrap().id);
    admin.dns_resources().set_addresses(id, &["10.0.0.77".parse().unwrap()]).await.unwrap();
    admin.dns_resources().set_addresses(id, &[]).await.unwrap();
    let owed =
        json!({ "metadata": { "annotations": { "infrastructure.cluster.x-k8s.io/dns-owed-addresses": "10.0.0.77" } } });
    stage.port.edit("MaasCluster", &key(), &owed).unwrap();
    let denied =
        json!({ "match": { "path": "/ipaddresses/", "method": "POST" }, "do": "status", "status": 403, "times": 0 });
    stage.maas.control().add_fault(serde_json::from_value(denied).unwrap());
    stage.forget_requests();
    stage.rest().await;
    let asked = || stage.writes().iter().filter(|write| write.contains("/ipaddresses/")).count();
    assert_eq!((asked(), stage.reason("LoadBalancerReady").as_str()), (1, "LoadBalancerFailed"));
    stage.control_plane("cp1");
    stage.rest().await;
    assert!(!stage.records()[0].1.is_empty());
    assert_eq!((asked(), stage.reason("LoadBalancerReady").as_str()), (1, "LoadBalancerFailed"));
    stage.advance(6);
    stage.rest().await;
    assert_eq!(asked(), 2);
}

#[tokio::test]
async fn a_domain_that_does_not_exist_is_named() {
    let stage = Stage::new();
    stage.arrange(json!([{"absent": {"domain": "k8s.example"}}]));
    stage.plain_cluster();
    stage.rest().await;
    assert_eq!(stage.reason("LoadBalancerReady"), "LoadBalancerFailed");
    let message = stage.condition("LoadBalancerReady")["message"].to_string();
    assert!(message.contains("does spec.dnsDomain exist"), "{message}");
    stage.arrange(json!([{"domain": {"name": "k8s.example"}}]));
    stage.advance(10);
    stage.rest().await;
    assert_eq!(stage.records().len(), 1);
}

#[tokio::test]
async fn s15_a_paused_cluster_is_left_alone_and_says_so() {
    let stage = Stage::new();
    stage.cluster(json!({ "paused": true }), json!({}), json!({}));
    stage.rest().await;
    assert!(stage.object()["metadata"]["finalizers"].is_null() && stage.requests() == 0);
    assert_eq!(stage.condition("Paused")["status"], "True");
    stage.port.edit("Cluster", &key(), &json!({ "spec": { "paused": false } })).unwrap();
    stage.rest().await;
    assert_eq!(stage.condition("Paused")["status"], "False");
    assert_eq!(stage.records().len(), 1);
}

#[tokio::test]
async fn s15_a_move_makes_no_change_in_maas() {
    let stage = Stage::new();
    stage.plain_cluster();
    stage.control_plane("cp1");
    stage.rest().await;
    stage.forget_requests();
    // clusterctl drops every status, and deletes what it has moved under an annotation.
    stage.port.set_status("MaasCluster", &key(), json!({})).unwrap();
    stage.port.set_status("MaasMachine", &Key::new("default", "cp1"), json!({})).unwrap();
    stage.rest().await;
    assert_eq!(stage.object()["status"]["ready"], true);
    let mark = json!({ "metadata": { "annotations": { "clusterctl.cluster.x-k8s.io/delete-for-move": "" } } });
    stage.port.edit("MaasCluster", &key(), &mark).unwrap();
    stage.port.delete("MaasCluster", &key());
    stage.rest().await;
    assert!(stage.writes().is_empty());
    assert!(!stage.object().is_null());
}

#[tokio::test]
async fn s05_another_user_changes_nothing_until_a_machine_of_ours_was_seen() {
    let stage = Stage::new();
    stage.plain_cluster();
    stage.control_plane("cp1");
    // As the Go provider leaves a machine: nothing shows yet that it is ours.
    let unproven = json!({ "metadata": { "annotations": { JOURNAL_ANNOTATION: null } } });
    stage.port.edit("MaasMachine", &Key::new("default", "cp1"), &unproven).unwrap();
    stage.rest().await;
    let annotation = "infrastructure.cluster.x-k8s.io/maas-identity";
    let noted = || stage.object()["metadata"]["annotations"][annotation].as_str().unwrap().to_owned();
    assert!(noted().ends_with("#admin"));
    stage.credentials(CAROL);
    stage.rest().await;
    assert!(noted().ends_with("#admin"));
    assert_eq!(stage.reason("CredentialsValid"), "IdentityChanged");

    let id = stage.maas.control().with_model(|model| model.machine_named("cp1").unwrap());
    let record = Journal { allocation: Some(Allocation::of(id)), ..Journal::new("u1") };
    stage.arrange(json!([{"machine": {"hostname": "cp1", "annotations": { "capmaas-key": record.key }}}]));
    let note = json!({ "metadata": { "annotations": { JOURNAL_ANNOTATION: record.text() } } });
    stage.port.edit("MaasMachine", &Key::new("default", "cp1"), &note).unwrap();
    stage.rest().await;
    assert!(noted().ends_with("#carol"));
    assert_eq!(stage.condition("CredentialsValid")["status"], "True");
}

#[tokio::test]
async fn a_record_that_somebody_deleted_is_made_anew() {
    let stage = Stage::new();
    stage.plain_cluster();
    let address = stage.control_plane("cp1");
    stage.rest().await;
    let name = stage.records()[0].0.clone();
    stage.arrange(json!([{"absent": {"dns": name}}]));
    // No event reports it; the resync notices.
    stage.advance(600);
    stage.rest().await;
    assert_eq!(stage.records(), [(name, vec![address])]);
    stage.port.delete("MaasCluster", &key());
    stage.gone("cp1");
    stage.rest().await;
    assert!(stage.object().is_null() && stage.records().is_empty());
}
