//! What tenants must not get, and what nobody may see.

use std::sync::Arc;

use capmaas_api::reasons;
use capmaas_core::Lookup;
use capmaas_core::credentials::IDENTITY_ANNOTATION;
use capmaas_manager::clock::Clock;
use capmaas_manager::identity::{AllowedEndpoints, Connect, Credentials, EnvironmentCredentials, Identities, Settings};
use capmaas_manager::kubernetes::Key;
use jiff::Timestamp;
use maas_client::transport::in_process;
use maas_client::{Client, RetryPolicy};
use secrecy::ExposeSecret as _;
use serde_json::json;

use crate::stage::{ADMIN, ALICE, BOB, MANAGER, Stage, cluster, connect, plain};

#[tokio::test(start_paused = true)]
async fn s28_a_reference_reaches_no_secret_that_the_manager_keeps_for_a_cluster() {
    let stage = Stage::bare();
    let values = [("maasEndpoint", "http://one/MAAS"), ("apiKey", BOB)];
    // The operator has listed the manager's namespace, for a Secret that all clusters may use.
    stage.secret(MANAGER, "for-all", &values);
    assert_eq!(stage.name(&cluster(json!({"name": "for-all", "namespace": MANAGER}))).await, "http://one/MAAS#bob");
    for kept in ["capmaas-kept-identity-0123456789abcdef0123", "capmaas-host-keys-0123456789abcdef0123"] {
        stage.secret(MANAGER, kept, &values);
        let (reason, message) = stage.problem(&cluster(json!({"name": kept, "namespace": MANAGER}))).await;
        assert_eq!(reason, reasons::CREDENTIALS_INVALID);
        assert!(message.contains("which a manager keeps for itself"), "{message}");
        // Another manager's namespace, which the operator has listed.
        stage.secret("shared", kept, &values);
        let (reason, message) = stage.problem(&cluster(json!({"name": kept, "namespace": "shared"}))).await;
        assert_eq!(reason, reasons::CREDENTIALS_INVALID);
        assert!(message.contains("which a manager keeps for itself"), "{message}");
        // Nor from within the manager's own namespace.
        let mut beside = cluster(json!({"name": kept}));
        beside.metadata.namespace = Some(MANAGER.into());
        let _ = stage.problem(&beside).await;
    }
}

#[tokio::test(start_paused = true)]
async fn s28_a_forged_note_of_an_identity_brings_nobody_the_credentials_of_another_tenant() {
    let stage = Stage::bare();
    stage.secret("team", "mine", &[("maasEndpoint", "http://two/MAAS"), ("apiKey", BOB)]);
    assert_eq!(stage.name(&cluster(json!({"name": "mine"}))).await, "http://two/MAAS#bob");
    let name = "http://two/MAAS#bob";
    let noted = Some(name);

    // A machine of another namespace that claims to belong to a cluster of that name, and to have been created with
    // that identity.
    let orphan = stage.identities.resolve_orphan(&Key::new("other", "cluster-1"), noted).await;
    assert!(matches!(orphan, Lookup::Absent), "{orphan:?}");
    // A cluster of the same name elsewhere, with a reference to the same name, that is being deleted.
    let mut theirs = cluster(json!({"name": "mine"}));
    theirs.metadata.namespace = Some("other".into());
    theirs.metadata.annotations = Some([(IDENTITY_ANNOTATION.to_owned(), name.to_owned())].into());
    theirs.metadata.deletion_timestamp = serde_json::from_value(json!("2026-11-15T20:00:00Z")).unwrap();
    assert!(matches!(stage.identities.resolve(&theirs).await, Lookup::Absent));
    // If the manager has its own credentials, those are used, and the recorded identity only shows that they differ.
    stage.documented("http://one/MAAS", ALICE);
    let Lookup::Found(identity) = stage.identities.resolve_orphan(&Key::new("other", "cluster-1"), noted).await else {
        panic!("there are credentials")
    };
    assert_eq!(identity.name.to_string(), "http://one/MAAS#alice");
    assert!(!identity.standing.may_believe_absence());
}

#[tokio::test(start_paused = true)]
async fn s28_an_endpoint_that_is_not_on_the_list_is_not_asked() {
    let mut stage = Stage::bare();
    let (clock, _) = Clock::driven(Timestamp::from_second(1_794_772_800).unwrap());
    let settings = Settings {
        namespace: MANAGER.to_owned(),
        allowed_endpoints: AllowedEndpoints::new(vec!["one".parse().unwrap(), "10.1.0.0/16".parse().unwrap()]),
        ..Settings::default()
    };
    let kubernetes = Arc::new(stage.port.clone());
    let connect = connect(&stage.one, &stage.one);
    stage.identities = Identities::new(kubernetes, stage.keeper.clone(), clock, settings, connect);
    stage.secret("team", "good", &[("maasEndpoint", "http://one:5240/MAAS"), ("apiKey", BOB)]);
    assert_eq!(stage.name(&cluster(json!({"name": "good"}))).await, "http://one:5240/MAAS#bob");
    stage.one.control().clear_ledger();
    stage.secret("team", "probe", &[("maasEndpoint", "http://kubernetes.default.svc"), ("apiKey", BOB)]);
    let (reason, message) = stage.problem(&cluster(json!({"name": "probe"}))).await;
    assert_eq!(reason, reasons::CREDENTIALS_INVALID);
    assert!(message.contains("http://kubernetes.default.svc in Secret team/probe"), "{message}");
    assert!(message.contains("--allowed-maas-endpoints"), "{message}");
    assert!(stage.one.control().ledger(None).is_empty(), "nothing was sent");
}

#[tokio::test(start_paused = true)]
async fn s28_what_has_not_shown_to_be_a_maas_is_not_quoted() {
    let stage = Stage::bare();
    for (status, body) in
        [(500, "CANARY of something inside"), (404, "CANARY"), (403, "CANARY"), (200, "<title>CANARY</title>")]
    {
        let (clock, _) = Clock::driven(Timestamp::from_second(1_794_772_800).unwrap());
        let stranger = axum::Router::new().fallback(move || async move {
            (axum::http::StatusCode::from_u16(status).unwrap(), [("content-type", "text/html")], body)
        });
        let connect: Connect = Arc::new(move |credentials: &Credentials| {
            Client::builder(&credentials.endpoint, credentials.key.expose_secret())
                .transport(in_process(stranger.clone(), 1 << 20))
                .retry(RetryPolicy::never())
                .build()
        });
        let settings = Settings { namespace: MANAGER.to_owned(), ..Settings::default() };
        let kubernetes = Arc::new(stage.port.clone());
        let identities = Identities::new(kubernetes, stage.keeper.clone(), clock, settings, connect);
        stage.secret("team", "probe", &[("maasEndpoint", "http://kubernetes.default.svc"), ("apiKey", BOB)]);
        let problem = identities.check(&cluster(json!({"name": "probe"}))).await.unwrap_err();
        assert!(!problem.message.contains("CANARY"), "{problem}");
        assert!(problem.message.contains(&status.to_string()), "{problem}");
    }
}

#[tokio::test(start_paused = true)]
async fn s21_nothing_that_prints_shows_a_key() {
    let stage = Stage::new(EnvironmentCredentials::new("http://one/MAAS", ADMIN));
    stage.documented("http://one/MAAS", ALICE);
    let identity = stage.found(&plain()).await;
    let printed = format!(
        "{identity:?} {:?} {:?} {:?}",
        stage.identities,
        EnvironmentCredentials::new("http://one/MAAS", ADMIN),
        stage.keeper
    );
    assert!(!printed.contains("CANARY"), "{printed}");
}
