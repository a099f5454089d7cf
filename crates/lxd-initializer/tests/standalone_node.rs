//! A node on a real LXD that registers itself in a played MAAS, which connects to that LXD as MAAS would.
#![allow(clippy::unwrap_used, clippy::expect_used, clippy::panic)]

mod support;

use std::sync::Arc;

use lxd_client::Fingerprint;
use lxd_initializer::{
    agent::Agent, effect::EffectKind, health::Status, keys, names, observed::Lookup, plan::State,
    settings::GivenCredentials,
};
use support::{
    Writes,
    cluster::MemoryCluster,
    lxd::RealLxd,
    maas::{CANARY, PlayedMaas},
    settings, settle, settle_ready, settle_with,
};

struct Scene {
    lxd: RealLxd,
    maas: PlayedMaas,
    state: tempfile::TempDir,
    cluster: Arc<MemoryCluster>,
}

async fn scene() -> Scene {
    let _ = rustls::crypto::ring::default_provider().install_default();
    let lxd = RealLxd::start().await;
    let maas = PlayedMaas::start(&lxd.ip.to_string()).await;
    let pin = lxd.client().server().await.unwrap().environment.certificate_fingerprint.parse().unwrap();
    maas.with(|model| model.lxds.insert(lxd.address(), pin));
    Scene { lxd, maas, state: tempfile::tempdir().unwrap(), cluster: Arc::default() }
}

impl Scene {
    fn agent(&self) -> Agent {
        // MAAS is asked anew at every pass, as after ten minutes in real life.
        let settings = settings(&self.lxd, self.state.path(), &["--zone=az1", "--maas-seconds=1"]);
        let given =
            GivenCredentials { api_key: Some(PlayedMaas::key().into()), endpoint: Some(self.maas.endpoint.clone()) };
        Agent::new(settings, given, self.cluster.clone(), Arc::new(Status::default()))
    }

    fn own_fingerprint(&self) -> Fingerprint {
        let Lookup::Found(identity) = keys::load(self.state.path()) else { panic!("no key pair") };
        identity.fingerprint().unwrap()
    }

    fn only_host(&self) -> support::maas::Host {
        self.maas.with(|model| {
            assert_eq!(model.hosts.len(), 1, "exactly one VM host");
            model.hosts.values().next().unwrap().clone()
        })
    }
}

const FRESH: [EffectKind; 7] = [
    EffectKind::CreatePool,
    EffectKind::CreateProject,
    EffectKind::Listen,
    EffectKind::MakeKey,
    EffectKind::Trust,
    EffectKind::Register,
    EffectKind::Report,
];

#[tokio::test]
async fn a_fresh_node_becomes_a_vm_host_and_a_second_run_writes_nothing_anywhere() {
    let scene = scene().await;
    assert_eq!(settle_ready(&mut scene.agent()).await, FRESH);
    let host = scene.only_host();
    assert!(!host.version.is_empty(), "MAAS has really reached it");
    assert_eq!((host.fields["zone"].as_str(), host.fields["project"].as_str()), ("az1", "maas"));
    assert_eq!(Fingerprint::of_pem(&host.fields["certificate"]).unwrap(), scene.own_fingerprint());

    let (writes, sent) = (Writes::default(), scene.maas.with(|model| model.writes.len()));
    let reports = scene.cluster.patches.lock().unwrap().len();
    let mut second = scene.agent().with_lxd_hook(writes.hook());
    for _ in 0..3 {
        assert_eq!(second.pass().await.plan.effect, None);
    }
    assert_eq!(writes.count(), 0);
    assert_eq!(scene.maas.with(|model| model.writes.len()), sent);
    assert_eq!(scene.cluster.patches.lock().unwrap().len(), reports);
    assert_eq!(scene.cluster.annotation(names::VM_HOST).as_deref(), Some("1"));
}

#[tokio::test]
async fn an_agent_that_dies_after_any_write_makes_no_second_host_key_or_certificate() {
    let scene = scene().await;
    let mut state = State::Working;
    for _ in 0..14 {
        state = scene.agent().pass().await.plan.state;
    }
    assert_eq!(state, State::Ready);
    scene.only_host();
    assert_eq!(scene.lxd.client().certificates().await.unwrap().len(), 1);
}

#[tokio::test]
async fn a_registration_whose_answer_is_lost_is_found_and_not_made_again() {
    let scene = scene().await;
    scene.maas.with(|model| model.lose_answers = true);
    let mut agent = scene.agent();
    let (pass, _) = settle(&mut agent).await;
    assert_eq!(pass.plan.state, State::Ready, "{}", pass.plan.message);
    assert_eq!(scene.maas.with(|model| model.writes.clone()), ["POST vm-hosts/"]);
    scene.only_host();
}

#[tokio::test]
async fn a_200_of_a_maas_that_did_not_reach_lxd_is_no_success() {
    let scene = scene().await;
    let pins = scene.maas.with(|model| std::mem::take(&mut model.lxds));
    let mut agent = scene.agent();
    settle_with(&mut agent, State::Waiting, "MAAS is taking in VM host n1").await;
    assert_eq!(scene.cluster.label(names::LABEL_INITIALIZED), None);
    // Half a minute later, as a new process sees it at once.
    let mut later = scene.agent();
    settle_with(&mut later, State::Blocked, "Pod is unreachable").await;
    scene.maas.with(|model| model.lxds = pins);
    settle_ready(&mut scene.agent()).await;
    scene.only_host();
}

#[tokio::test]
async fn a_lost_key_is_replaced_on_the_vm_host_that_is_there() {
    let scene = scene().await;
    settle_ready(&mut scene.agent()).await;
    let lost = scene.own_fingerprint();
    std::fs::remove_file(scene.state.path().join("client.pem")).unwrap();
    let done = settle_ready(&mut scene.agent()).await;
    assert_eq!(done, [EffectKind::MakeKey, EffectKind::Trust, EffectKind::Renew, EffectKind::Report]);
    let renewed = Fingerprint::of_pem(&scene.only_host().fields["certificate"]).unwrap();
    assert_eq!(renewed, scene.own_fingerprint());
    assert_ne!(renewed, lost);
}

#[tokio::test]
async fn s12_a_vm_host_lost_from_maas_is_not_registered_again_while_a_vm_is_in_the_project() {
    let scene = scene().await;
    settle_ready(&mut scene.agent()).await;
    scene.lxd.make_vm("maas", "vm1").await;
    scene.maas.with(|model| model.hosts.clear());
    let sent = scene.maas.with(|model| model.writes.len());
    settle_with(&mut scene.agent(), State::Blocked, "holds instances that MAAS does not know (vm1)").await;
    assert_eq!(scene.maas.with(|model| model.writes.len()), sent);
    assert!(scene.lxd.client().instance("maas", "vm1").await.unwrap().is_some());
}

#[tokio::test]
async fn s12_what_maas_was_seen_to_know_a_while_ago_is_no_ground_for_a_write() {
    let scene = scene().await;
    let settings = settings(&scene.lxd, scene.state.path(), &["--maas-seconds=86400"]);
    let given =
        GivenCredentials { api_key: Some(PlayedMaas::key().into()), endpoint: Some(scene.maas.endpoint.clone()) };
    let mut agent = Agent::new(settings, given, scene.cluster.clone(), Arc::default());
    settle_ready(&mut agent).await;
    // A VM appears that MAAS does not know, and the key is lost: with the facts of before it would be renewed.
    scene.lxd.make_vm("maas", "vm1").await;
    std::fs::remove_file(scene.state.path().join("client.pem")).unwrap();
    settle_with(&mut agent, State::Blocked, "holds instances that MAAS does not know (vm1)").await;
    assert_eq!(scene.maas.with(|model| model.writes.clone()), ["POST vm-hosts/"]);
}

#[tokio::test]
async fn a_host_that_maas_matched_to_another_machine_is_reported_and_left_alone() {
    let scene = scene().await;
    scene.maas.with(|model| model.matches = Some("other".into()));
    settle_with(&mut scene.agent(), State::Blocked, "to machine other, but this node is machine abc123").await;
    scene.only_host();
}

#[tokio::test]
async fn a_vm_host_that_somebody_else_registered_for_this_machine_is_accepted() {
    let scene = scene().await;
    let pair = rcgen::generate_simple_self_signed(["maas".to_owned()]).unwrap();
    let lxd = scene.lxd.client();
    let certificate =
        lxd_client::NewCertificate { name: "by-maas".into(), certificate_pem: pair.cert.pem(), projects: None };
    lxd.trust_certificate(&certificate).await.unwrap();
    let fields = [
        ("name", "kind-turtle".to_owned()),
        ("power_address", scene.lxd.address()),
        ("project", "maas".to_owned()),
        ("certificate", pair.cert.pem()),
        ("key", pair.signing_key.serialize_pem()),
    ];
    let host = support::maas::Host {
        fields: fields.into_iter().map(|(key, value)| (key.to_owned(), value)).collect(),
        machine: Some("abc123".into()),
        version: "5.0.2".into(),
    };
    scene.maas.with(|model| model.hosts.insert(9, host));
    settle_ready(&mut scene.agent()).await;
    assert!(scene.maas.with(|model| model.writes.is_empty()));
    assert_eq!(scene.cluster.annotation(names::VM_HOST).as_deref(), Some("9"));
}

#[tokio::test]
async fn every_trouble_of_maas_has_its_sentence_and_changes_nothing_there() {
    let scene = scene().await;
    for (answer, state, words) in [
        ((410, "Gone"), State::Blocked, "410 Gone"),
        ((403, "This method is reserved for admin users."), State::Blocked, "refuses the API key"),
        ((503, "Service Unavailable"), State::Waiting, "MAAS does not answer"),
    ] {
        scene.maas.with(|model| model.always = Some(answer));
        settle_with(&mut scene.agent(), state, words).await;
    }
    scene.maas.with(|model| {
        model.always = None;
        model.version = "3.0.1".into();
    });
    settle_with(&mut scene.agent(), State::Blocked, "MAAS 3.0.1 takes no key pair").await;
    scene.maas.with(|model| {
        model.version = "3.8.0".into();
        model.machines.clear();
    });
    settle_with(&mut scene.agent(), State::Blocked, "MAAS knows no machine").await;
    assert!(scene.maas.with(|model| model.writes.is_empty()));
    assert_eq!(scene.cluster.label(names::LABEL_INITIALIZED), None);
}

#[tokio::test]
async fn a_wrong_key_is_told_without_being_shown() {
    let scene = scene().await;
    let settings = settings(&scene.lxd, scene.state.path(), &[]);
    for (key, words) in [("consumer:token:CANARYwrong", "refuses the API key"), ("CANARYnonsense", "three parts")] {
        let given = GivenCredentials { api_key: Some(key.into()), endpoint: Some(scene.maas.endpoint.clone()) };
        let mut agent = Agent::new(settings.clone(), given, scene.cluster.clone(), Arc::default());
        let (pass, _) = settle(&mut agent).await;
        assert_eq!(pass.plan.state, State::Blocked, "{}", pass.plan.message);
        assert!(pass.plan.message.contains(words), "{}", pass.plan.message);
        let told = format!("{pass:?} {:?}", scene.cluster.patches.lock().unwrap());
        assert!(!told.contains("CANARY"), "{told}");
    }
}

#[tokio::test]
async fn credentials_are_found_in_the_cluster_when_they_arrive_there() {
    let scene = scene().await;
    let settings = settings(&scene.lxd, scene.state.path(), &[]);
    let mut agent = Agent::new(settings, GivenCredentials::default(), scene.cluster.clone(), Arc::default());
    settle_with(&mut agent, State::Waiting, "waiting for Secret capmaas-system/maas-credentials").await;
    *scene.cluster.api_key.lock().unwrap() = Lookup::Found(PlayedMaas::key());
    settle_with(&mut agent, State::Blocked, "MAAS_ENDPOINT (or ConfigMap capmaas-system/capmaas-config").await;
    *scene.cluster.endpoint.lock().unwrap() = Lookup::Found(scene.maas.endpoint.clone());
    settle_ready(&mut agent).await;
}

#[tokio::test]
async fn s21_no_secret_is_in_anything_that_is_reported() {
    let scene = scene().await;
    let mut agent = scene.agent();
    let mut passes = Vec::new();
    for _ in 0..10 {
        passes.push(agent.pass().await);
    }
    let told = format!("{passes:?} {:?}", scene.cluster.patches.lock().unwrap());
    let file = std::fs::read_to_string(scene.state.path().join("client.pem")).unwrap();
    let key = file.split("-----BEGIN PRIVATE KEY-----").nth(1).unwrap().lines().nth(1).unwrap();
    assert!(key.len() > 40);
    for secret in [CANARY, key, "PRIVATE KEY"] {
        assert!(!told.contains(secret));
    }
}
