//! Where credentials come from, and what is reported about them.

use capmaas_api::reasons;
use capmaas_core::Lookup;
use capmaas_core::credentials::Standing;
use capmaas_manager::identity::{CredentialCopies, EnvironmentCredentials};
use capmaas_manager::kubernetes::Key;
use maas_sim::faults::ServerState;
use serde_json::json;

use crate::stage::{ADMIN, ALICE, BOB, MANAGER, Stage, cluster, plain};

#[tokio::test(start_paused = true)]
async fn without_any_credentials_it_says_what_it_waits_for_and_picks_them_up_when_they_appear() {
    let stage = Stage::bare();
    assert!(matches!(stage.identities.resolve(&plain()).await, Lookup::Absent));
    let (reason, message) = stage.problem(&plain()).await;
    assert_eq!(reason, reasons::CREDENTIALS_INVALID);
    assert!(
        message.contains("waiting for MAAS credentials") && message.contains("Secret maas-credentials"),
        "{message}"
    );

    stage.documented("http://one:5240/MAAS", ALICE);
    assert_eq!(stage.name(&plain()).await, "http://one:5240/MAAS#alice");
}

#[tokio::test(start_paused = true)]
async fn the_documented_secret_comes_before_the_go_providers_and_that_before_the_environment() {
    let stage = Stage::new(EnvironmentCredentials::new("http://one/MAAS", ADMIN));
    assert_eq!(stage.name(&plain()).await, "http://one/MAAS#admin");
    let go = [("MAAS_ENDPOINT", "http://one/MAAS\n"), ("MAAS_API_KEY", BOB)];
    stage.secret(MANAGER, "capmaas-manager-bootstrap-credentials", &go);
    assert_eq!(stage.name(&plain()).await, "http://one/MAAS#bob");
    stage.documented("http://two/MAAS", ALICE);
    assert_eq!(stage.name(&plain()).await, "http://two/MAAS#alice");
    // The cluster's own take precedence over all of them.
    stage.secret("team", "mine", &[("maasEndpoint", "http://one/MAAS"), ("apiKey", BOB)]);
    assert_eq!(stage.name(&cluster(json!({"name": "mine"}))).await, "http://one/MAAS#bob");
}

#[tokio::test(start_paused = true)]
async fn go17_a_secret_without_its_config_map_is_not_completed_from_elsewhere() {
    let stage = Stage::new(EnvironmentCredentials::new("http://one/MAAS", ADMIN));
    stage.secret(MANAGER, "maas-credentials", &[("apiKey", ALICE)]);
    let (_, message) = stage.problem(&plain()).await;
    assert!(message.contains("key maasEndpoint of ConfigMap capmaas-config is not"), "{message}");
    stage.config("http://two/MAAS");
    assert_eq!(stage.name(&plain()).await, "http://two/MAAS#alice");
}

#[tokio::test(start_paused = true)]
async fn an_identity_in_another_namespace_must_be_allowed() {
    let stage = Stage::bare();
    let values = [("maasEndpoint", "http://one/MAAS"), ("apiKey", BOB)];
    stage.secret("shared", "maas", &values);
    stage.secret("kube-system", "maas", &values);
    assert_eq!(stage.name(&cluster(json!({"name": "maas", "namespace": "shared"}))).await, "http://one/MAAS#bob");
    let (_, message) = stage.problem(&cluster(json!({"name": "maas", "namespace": "kube-system"}))).await;
    assert!(message.contains("namespace kube-system") && message.contains("--identity-namespaces"), "{message}");
    // There is no fallback.
    stage.documented("http://one/MAAS", ALICE);
    let _ = stage.problem(&cluster(json!({"name": "nowhere"}))).await;
    let _ = stage.problem(&cluster(json!("not an object"))).await;
}

#[tokio::test(start_paused = true)]
async fn s01_a_maas_that_is_away_is_unknown_and_a_refused_key_says_where_it_is() {
    let stage = Stage::bare();
    stage.documented("http://one/MAAS", ALICE);
    stage.one.control().set_server(ServerState::Down);
    assert!(matches!(stage.identities.resolve(&plain()).await, Lookup::Unknown(_)));
    assert_eq!(stage.problem(&plain()).await.0, reasons::MAAS_UNAVAILABLE);
    stage.one.control().set_server(ServerState::Up);
    stage.driver.advance(11_000);
    assert_eq!(stage.name(&plain()).await, "http://one/MAAS#alice");

    stage.documented("http://one/MAAS", "who:is:CANARYthis");
    let (reason, message) = stage.problem(&plain()).await;
    assert_eq!(reason, reasons::CREDENTIALS_INVALID);
    assert!(message.contains("Secret maas-credentials"), "{message}");
}

#[tokio::test(start_paused = true)]
async fn a_key_is_tried_once_however_many_ask_and_a_refused_one_not_all_the_time() {
    let stage = Stage::bare();
    stage.documented("http://one/MAAS", ALICE);
    let asked = || stage.one.control().ledger(Some("whoami")).len();
    let cluster = plain();
    futures::future::join_all((0..20).map(|_| stage.identities.resolve(&cluster))).await;
    assert_eq!(asked(), 1);
    stage.documented("http://one/MAAS", "who:is:CANARYthis");
    for _ in 0..5 {
        let _ = stage.problem(&cluster).await;
    }
    let all = stage.one.control().ledger(None).len();
    assert_eq!(all, 3, "one request for each key, and one for the end of the event log");
}

#[tokio::test(start_paused = true)]
async fn s13_a_cluster_that_is_deleted_with_its_namespace_keeps_its_credentials_to_the_end() {
    let stage = Stage::bare();
    let mut mine = cluster(json!({"name": "mine"}));
    stage.secret("team", "mine", &[("maasEndpoint", "http://two/MAAS"), ("apiKey", BOB)]);
    assert_eq!(stage.name(&mine).await, "http://two/MAAS#bob");

    stage.port.delete("Secret", &Key::new("team", "mine"));
    stage.driver.advance(60_000);
    assert!(matches!(stage.identities.resolve(&mine).await, Lookup::Absent), "a living cluster does not go on with it");
    mine.metadata.deletion_timestamp = serde_json::from_value(json!("2026-11-15T20:00:00Z")).unwrap();
    assert_eq!(stage.name(&mine).await, "http://two/MAAS#bob");

    // Even if the MaasCluster was deleted first.
    let orphan = stage.identities.resolve_orphan(&Key::new("team", "cluster-1"), Some("http://two/MAAS#bob")).await;
    let Lookup::Found(identity) = orphan else { panic!("{orphan:?}") };
    assert_eq!(identity.standing, Standing::Same);
    let kept = stage.keeper.all().await.unwrap();
    assert_eq!(kept.len(), 1);
}

#[tokio::test(start_paused = true)]
async fn s05_an_orphan_is_not_asked_for_in_another_maas_without_saying_so() {
    let stage = Stage::bare();
    stage.documented("http://one/MAAS", ALICE);
    let orphan = stage.identities.resolve_orphan(&Key::new("team", "gone"), Some("http://two/MAAS#bob")).await;
    let Lookup::Found(identity) = orphan else { panic!("{orphan:?}") };
    assert!(!identity.standing.may_believe_absence());
}
