//! Which credentials count, what happens when they change, and what is said when there are none.
#![allow(clippy::unwrap_used, clippy::expect_used, clippy::panic)]

use std::collections::BTreeSet;
use std::sync::Arc;

use base64::prelude::{BASE64_STANDARD, Engine as _};
use capmaas_api::{MaasCluster, MaasMachine, reasons};
use capmaas_core::Lookup;
use capmaas_core::credentials::{IDENTITY_ANNOTATION, Standing};
use capmaas_manager::clock::{Clock, Driver};
use capmaas_manager::credential_rotation::Rotation;
use capmaas_manager::feed::Waker;
use capmaas_manager::identity::{
    AllowedEndpoints, Connect, CredentialCopies, Credentials, EnvironmentCredentials, Identities, Identity,
    MemoryCredentialCopies, Settings,
};
use capmaas_manager::kubernetes::{Key, MemoryKubernetes};
use futures::{FutureExt as _, StreamExt as _};
use jiff::Timestamp;
use kube::runtime::reflector;
use kube::runtime::watcher::Event;
use maas_client::transport::in_process;
use maas_client::{Client, RetryPolicy};
use maas_sim::faults::ServerState;
use maas_sim::{Config, Simulator};
use secrecy::ExposeSecret as _;
use serde_json::{Value, json};

const ADMIN: &str = "consumer:token:CANARYadmin";
const ALICE: &str = "ck:tk:CANARYalice";
const ALICE_NEW: &str = "ck2:tk2:CANARYalice2";
const BOB: &str = "cb:tb:CANARYbob";
const MANAGER: &str = "capmaas-system";

/// Two MAAS servers, a Kubernetes in memory, a clock that stands still.
struct Stage {
    port: MemoryKubernetes,
    keeper: Arc<MemoryCredentialCopies>,
    one: Simulator,
    driver: Driver,
    identities: Identities,
}

fn simulator() -> Simulator {
    let simulator = Simulator::new(Config::driven(ADMIN.parse().unwrap()));
    let users = json!([
        {"user": {"name": "alice", "admin": false, "keys": [ALICE, ALICE_NEW]}},
        {"user": {"name": "bob", "admin": false, "key": BOB}},
    ]);
    simulator.control().arrange(&serde_json::from_value::<Vec<_>>(users).unwrap()).unwrap();
    simulator
}

/// `http://one…` and `http://two…` lead to the two servers.
fn connect(one: &Simulator, two: &Simulator) -> Connect {
    let (one, two) = (one.clone(), two.clone());
    Arc::new(move |credentials: &Credentials| {
        let server = if credentials.endpoint.contains("two") { &two } else { &one };
        Client::builder(&credentials.endpoint, credentials.key.expose_secret())
            .transport(in_process(server.router(), 1 << 20))
            .retry(RetryPolicy::never())
            .build()
    })
}

impl Stage {
    fn new(environment: EnvironmentCredentials) -> Self {
        let (clock, driver) = Clock::driven(Timestamp::from_second(1_794_772_800).unwrap());
        let (one, two) = (simulator(), simulator());
        let port = MemoryKubernetes::new(clock.clone());
        let keeper = Arc::new(MemoryCredentialCopies::default());
        let settings = Settings {
            namespace: MANAGER.to_owned(),
            identity_namespaces: BTreeSet::from(["shared".to_owned(), MANAGER.to_owned()]),
            environment,
            ..Settings::default()
        };
        let kubernetes = Arc::new(port.clone());
        let identities = Identities::new(kubernetes, keeper.clone(), clock, settings, connect(&one, &two));
        Self { port, keeper, one, driver, identities }
    }

    fn bare() -> Self {
        Self::new(EnvironmentCredentials::default())
    }

    fn secret(&self, namespace: &str, name: &str, values: &[(&str, &str)]) {
        let data: serde_json::Map<String, Value> =
            values.iter().map(|(name, value)| ((*name).to_owned(), json!(BASE64_STANDARD.encode(value)))).collect();
        self.put("Secret", namespace, name, json!(data));
    }

    fn config(&self, endpoint: &str) {
        self.put("ConfigMap", MANAGER, "capmaas-config", json!({ "maasEndpoint": endpoint }));
    }

    fn put(&self, kind: &str, namespace: &str, name: &str, data: Value) {
        let key = Key::new(namespace, name);
        self.port.delete(kind, &key);
        let metadata = json!({"name": name, "namespace": namespace});
        self.port.create(json!({"apiVersion": "v1", "kind": kind, "metadata": metadata, "data": data})).unwrap();
        // As the watch in the manager's namespace does.
        self.identities.changed();
    }

    /// Document 001's Secret and ConfigMap.
    fn documented(&self, endpoint: &str, key: &str) {
        self.secret(MANAGER, "maas-credentials", &[("apiKey", key)]);
        self.config(endpoint);
    }

    async fn found(&self, cluster: &MaasCluster) -> Identity {
        match self.identities.resolve(cluster).await {
            Lookup::Found(identity) => identity,
            other => panic!("{other:?}"),
        }
    }

    async fn name(&self, cluster: &MaasCluster) -> String {
        self.found(cluster).await.name.to_string()
    }

    async fn problem(&self, cluster: &MaasCluster) -> (&'static str, String) {
        let problem = self.identities.check(cluster).await.unwrap_err();
        assert!(!problem.message.contains("CANARY"), "{}", problem.message);
        (problem.reason, problem.message)
    }
}

fn cluster(identity_ref: Value) -> MaasCluster {
    let mut spec = json!({"dnsDomain": "maas"});
    if !identity_ref.is_null() {
        spec["identityRef"] = identity_ref;
    }
    serde_json::from_value(json!({
        "apiVersion": "infrastructure.cluster.x-k8s.io/v1beta1", "kind": "MaasCluster",
        "metadata": {"name": "c1", "namespace": "team", "labels": {"cluster.x-k8s.io/cluster-name": "cluster-1"}},
        "spec": spec,
    }))
    .unwrap()
}

fn plain() -> MaasCluster {
    cluster(Value::Null)
}

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
    // The cluster's own comes before all of them.
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
    // Nothing else is used in its place.
    stage.documented("http://one/MAAS", ALICE);
    let _ = stage.problem(&cluster(json!({"name": "nowhere"}))).await;
    let _ = stage.problem(&cluster(json!("not an object"))).await;
}

#[tokio::test(start_paused = true)]
async fn s05_a_new_key_is_the_same_identity_and_another_user_is_not() {
    let stage = Stage::bare();
    stage.documented("http://one/MAAS", ALICE);
    let first = stage.found(&plain()).await;
    assert_eq!(first.standing, Standing::First);
    let mut recorded = plain();
    recorded.metadata.annotations = Some([(IDENTITY_ANNOTATION.to_owned(), first.name.to_string())].into());
    assert_eq!(stage.found(&recorded).await.standing, Standing::Same);

    stage.documented("http://one/MAAS", ALICE_NEW);
    let rotated = stage.found(&recorded).await;
    assert_eq!(rotated.standing, Standing::Same);
    assert!(rotated.fingerprint != first.fingerprint, "the new key is used");

    stage.documented("http://one/MAAS", BOB);
    assert!(!stage.found(&recorded).await.standing.may_believe_absence());
    stage.documented("http://two/MAAS", ALICE);
    assert!(!stage.found(&recorded).await.standing.may_believe_absence());
}

#[tokio::test(start_paused = true)]
async fn a_rotated_identity_ref_is_noticed_without_a_watch() {
    let stage = Stage::bare();
    let mine = cluster(json!({"name": "mine"}));
    let endpoint = ("maasEndpoint", "http://one/MAAS");
    stage.secret("team", "mine", &[endpoint, ("apiKey", ALICE)]);
    assert_eq!(stage.name(&mine).await, "http://one/MAAS#alice");
    let object = stage.port.object("Secret", &Key::new("team", "mine")).unwrap();
    assert!(object.is_object());
    let patch = json!({"data": {"apiKey": BASE64_STANDARD.encode(BOB)}});
    stage.port.edit("Secret", &Key::new("team", "mine"), &patch).unwrap();
    stage.driver.advance(31_000);
    assert_eq!(stage.name(&mine).await, "http://one/MAAS#bob");
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

    // Even if the MaasCluster went first.
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

#[tokio::test(start_paused = true)]
async fn s28_a_reference_reaches_no_secret_that_the_manager_keeps_for_a_cluster() {
    let stage = Stage::bare();
    let values = [("maasEndpoint", "http://one/MAAS"), ("apiKey", BOB)];
    // The operator has put the manager's namespace on the list, for a Secret that all may use.
    stage.secret(MANAGER, "for-all", &values);
    assert_eq!(stage.name(&cluster(json!({"name": "for-all", "namespace": MANAGER}))).await, "http://one/MAAS#bob");
    for kept in ["capmaas-kept-identity-0123456789abcdef0123", "capmaas-host-keys-0123456789abcdef0123"] {
        stage.secret(MANAGER, kept, &values);
        let (reason, message) = stage.problem(&cluster(json!({"name": kept, "namespace": MANAGER}))).await;
        assert_eq!(reason, reasons::CREDENTIALS_INVALID);
        assert!(message.contains("which the manager keeps for itself"), "{message}");
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

    // A machine of another namespace that says it belongs to a cluster of that name, and was made with that identity.
    let orphan = stage.identities.resolve_orphan(&Key::new("other", "cluster-1"), noted).await;
    assert!(matches!(orphan, Lookup::Absent), "{orphan:?}");
    // A cluster of the same name elsewhere, with a reference to the same name, that is being deleted.
    let mut theirs = cluster(json!({"name": "mine"}));
    theirs.metadata.namespace = Some("other".into());
    theirs.metadata.annotations = Some([(IDENTITY_ANNOTATION.to_owned(), name.to_owned())].into());
    theirs.metadata.deletion_timestamp = serde_json::from_value(json!("2026-11-15T20:00:00Z")).unwrap();
    assert!(matches!(stage.identities.resolve(&theirs).await, Lookup::Absent));
    // With credentials of the manager's own, those are used, and the note only says that they are others.
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

#[tokio::test(start_paused = true)]
async fn reads_that_come_together_are_one_request_and_what_a_list_hides_is_asked_for_by_itself() {
    let stage = Stage::bare();
    let machines: Vec<Value> = (0..7)
        .map(|n| json!({"machine": {"system_id": format!("aaaaa{n}"), "hostname": format!("m{n}"), "status": "Ready"}}))
        .collect();
    let made = stage.one.control().arrange(&serde_json::from_value::<Vec<_>>(json!(machines)).unwrap()).unwrap();
    assert_eq!(made.len(), 7);
    stage.documented("http://one/MAAS", ADMIN);
    let identity = stage.found(&plain()).await;
    stage.one.control().clear_ledger();

    let ids: Vec<String> = (0..7).map(|n| format!("aaaaa{n}")).chain(["zzzzzz".to_owned()]).collect();
    let read = futures::future::join_all(ids.iter().map(|id| identity.machines.read(id))).await;
    for (id, machine) in ids.iter().zip(&read).take(7) {
        assert_eq!(machine.as_ref().unwrap().system_id, *id);
    }
    assert!(read[7].as_ref().unwrap_err().is_not_found());
    assert_eq!(stage.one.control().ledger(None).len(), 2, "one list, and one question about the id that is not in it");
}

#[tokio::test(start_paused = true)]
async fn s01_one_absurd_id_fails_no_read_but_its_own_and_is_not_absent() {
    let stage = Stage::bare();
    let machine = json!([{"machine": {"system_id": "aaaaa1", "hostname": "m1", "status": "Ready"}}]);
    stage.one.control().arrange(&serde_json::from_value::<Vec<_>>(machine).unwrap()).unwrap();
    stage.documented("http://one/MAAS", ADMIN);
    let identity = stage.found(&plain()).await;
    stage.one.control().clear_ledger();
    let long = "a".repeat(10_000);
    let ids = ["aaaaa1", "a,b", "abc 123", "\u{fc}mlaut", "../events", &long, "zzzzzz"];
    let read = futures::future::join_all(ids.iter().map(|id| identity.machines.read(id))).await;
    assert_eq!(read[0].as_ref().unwrap().system_id, "aaaaa1");
    for (id, read) in ids.iter().zip(&read).take(6).skip(1) {
        let error = read.as_ref().unwrap_err();
        assert!(!error.is_not_found() && error.to_string().contains("cannot be a MAAS system ID"), "{id}: {error}");
    }
    assert!(read[6].as_ref().unwrap_err().is_not_found(), "this one MAAS could have, and has not");

    // MAAS objects to the list all the same: each is asked for by itself.
    let fault =
        json!({"match": {"kind": "machines.read"}, "do": "status", "status": 400, "body": "no such id", "times": 0});
    stage.one.control().add_fault(serde_json::from_value(fault).unwrap());
    let read = futures::future::join_all(["aaaaa1", "zzzzzz"].iter().map(|id| identity.machines.read(id))).await;
    assert_eq!(read[0].as_ref().unwrap().system_id, "aaaaa1");
    assert!(read[1].as_ref().unwrap_err().is_not_found());
}

#[tokio::test(start_paused = true)]
async fn s05_a_quiet_cluster_and_its_machines_are_woken_when_their_credentials_change_and_nobody_else() {
    let stage = Stage::bare();
    stage.documented("http://one/MAAS", ALICE);
    stage.secret("team", "mine", &[("maasEndpoint", "http://two/MAAS"), ("apiKey", BOB)]);
    let (clusters, mut cluster_writer) = reflector::store();
    let (machines, mut machine_writer) = reflector::store();
    let mut mine = cluster(json!({"name": "mine"}));
    mine.metadata.name = Some("own".into());
    mine.metadata.labels = Some([("cluster.x-k8s.io/cluster-name".to_owned(), "own".to_owned())].into());
    for cluster in [plain(), mine] {
        cluster_writer.apply_watcher_event(&Event::Apply(cluster));
    }
    for (name, of) in [("m1", "cluster-1"), ("m2", "own")] {
        let machine: MaasMachine = serde_json::from_value(json!({
            "apiVersion": "infrastructure.cluster.x-k8s.io/v1beta1", "kind": "MaasMachine",
            "metadata": {"name": name, "namespace": "team", "labels": {"cluster.x-k8s.io/cluster-name": of}},
            "spec": {"image": "jammy", "minCPU": 1, "minMemory": 1},
        }))
        .unwrap();
        machine_writer.apply_watcher_event(&Event::Apply(machine));
    }
    let (cluster_waker, machine_waker) = (Waker::default(), Waker::default());
    let (mut of_clusters, mut of_machines) = (cluster_waker.subscribe().boxed(), machine_waker.subscribe().boxed());
    let identities = stage.identities.clone();
    let task = tokio::spawn(Rotation { identities, clusters, machines, cluster_waker, machine_waker }.run());
    let mut after = async |seconds: u64| {
        for _ in 0..seconds {
            stage.driver.advance(1000);
            tokio::time::sleep(std::time::Duration::from_secs(1)).await;
        }
        let mut woken = Vec::new();
        while let Some(Some(cluster)) = of_clusters.next().now_or_never() {
            woken.push(cluster.name);
        }
        while let Some(Some(machine)) = of_machines.next().now_or_never() {
            woken.push(machine.name);
        }
        woken.sort();
        woken
    };
    assert_eq!(after(60).await, ["c1", "own"], "each once in the beginning");
    assert_eq!(after(600).await, Vec::<String>::new(), "nothing changed");
    stage.port.hide_secrets(true);
    assert_eq!(after(120).await, Vec::<String>::new(), "an API server that does not answer has changed nothing");
    stage.port.hide_secrets(false);
    assert_eq!(after(120).await, Vec::<String>::new(), "nor does its return");
    // Nothing tells about a Secret of another namespace.
    let key = Key::new("team", "mine");
    stage.port.delete("Secret", &key);
    let values = json!({"maasEndpoint": "http://two/MAAS", "apiKey": ALICE});
    let secret = json!({"apiVersion": "v1", "kind": "Secret", "metadata": {"name": "mine", "namespace": "team"}, "stringData": values});
    stage.port.create(secret).unwrap();
    assert_eq!(after(50).await, ["m2", "own"], "within a minute");
    // The manager's own are watched.
    stage.documented("http://one/MAAS", BOB);
    assert_eq!(after(1).await, ["c1", "m1"], "at once");
    task.abort();
}
