//! A node on a real LXD that registers itself in a simulated MAAS, which connects to that LXD as MAAS would.
#![allow(clippy::unwrap_used, clippy::expect_used, clippy::panic)]

mod support;

use lxd_client::Fingerprint;
use lxd_initializer::{effect::EffectKind, names, observed::Lookup, plan::State, settings::GivenCredentials};
use serde_json::json;
use support::{
    Writes, settle, settle_ready, settle_with,
    sim::{CANARY, key, scene, scene_on, until_right},
};

const FRESH: [EffectKind; 6] = [
    EffectKind::CreatePool,
    EffectKind::CreateProject,
    EffectKind::Listen,
    EffectKind::MakeKey,
    EffectKind::Trust,
    EffectKind::Register,
];

#[tokio::test]
async fn a_fresh_node_becomes_a_vm_host_and_a_second_run_writes_nothing_anywhere() {
    for version in ["3.1", "3.4", "3.8"] {
        let scene = scene_on(version).await;
        assert_eq!(until_right(&mut scene.agent()).await, FRESH, "{version}");
        let host = scene.maas.only_host();
        let real = scene.lxd.client().server().await.unwrap().environment.server_version;
        assert_eq!(host.version, real, "{version}: MAAS has really reached it");
        assert_eq!((host.host.as_deref(), host.project.as_str()), (Some("abc123"), "maas"));
        assert_eq!(Fingerprint::of_pem(&host.certificate).unwrap(), scene.own_fingerprint());
        let shown = scene.maas.client().vm_hosts().read(host.id).await.unwrap();
        assert_eq!((shown.zone.unwrap().name.as_str(), shown.pool.unwrap().name.as_str()), ("az1", "blue"));
        assert_eq!(scene.cluster.annotation(names::VM_HOST), Some(host.id.to_string()));

        let (writes, sent) = (Writes::default(), scene.maas.writes().len());
        let reports = scene.cluster.patches.lock().unwrap().len();
        let mut second = scene.agent().with_lxd_hook(writes.hook());
        for _ in 0..3 {
            let pass = second.pass().await;
            assert_eq!((pass.plan.state, pass.plan.effect), (State::Ready, None), "{version}");
        }
        assert_eq!(writes.count(), 0, "{version}: to LXD");
        assert_eq!(scene.maas.writes().len(), sent, "{version}: to MAAS");
        assert_eq!(scene.cluster.patches.lock().unwrap().len(), reports, "{version}: to the Node");
    }
}

#[tokio::test]
async fn without_kubernetes_a_node_becomes_a_vm_host_all_the_same_and_is_labelled_later() {
    let scene = scene().await;
    let node = scene.cluster.node.lock().unwrap().clone();
    *scene.cluster.node.lock().unwrap() = Lookup::Unknown("connection refused".into());
    let mut agent = scene.agent();
    let mut done = Vec::new();
    for _ in 0..50 {
        let (pass, more) = settle(&mut agent).await;
        done.extend(more);
        if pass.plan.message.contains("its Node could not be read and labelled: connection refused") {
            break;
        }
        tokio::time::sleep(std::time::Duration::from_millis(200)).await;
    }
    assert_eq!(done, FRESH, "nothing is reported where nobody listens");
    assert_eq!(scene.maas.only_host().host.as_deref(), Some("abc123"));
    *scene.cluster.node.lock().unwrap() = node;
    settle_ready(&mut agent).await;
    assert_eq!(scene.cluster.label(names::LABEL_INITIALIZED).as_deref(), Some("true"));
}

#[tokio::test]
async fn an_agent_that_dies_after_any_write_makes_no_second_host_key_or_certificate() {
    let scene = scene().await;
    let mut state = State::Working;
    for _ in 0..20 {
        state = scene.agent().pass().await.plan.state;
        tokio::time::sleep(std::time::Duration::from_millis(50)).await;
    }
    assert_eq!(state, State::Ready);
    scene.maas.only_host();
    assert_eq!(scene.lxd.client().certificates().await.unwrap().len(), 1);
}

#[tokio::test]
async fn a_registration_whose_answer_is_lost_is_found_and_not_made_again() {
    let scene = scene().await;
    scene.maas.fault(json!({"match": {"kind": "vm-hosts.create"}, "when": "after", "do": "reset", "times": 0}));
    until_right(&mut scene.agent()).await;
    assert_eq!(scene.maas.writes(), ["vm-hosts.create"]);
    scene.maas.only_host();
}

#[tokio::test]
async fn a_lost_key_is_replaced_on_the_vm_host_that_is_there() {
    let scene = scene().await;
    until_right(&mut scene.agent()).await;
    let (lost, before) = (scene.own_fingerprint(), scene.maas.only_host().id);
    scene.lose_key();
    let done = until_right(&mut scene.agent()).await;
    assert_eq!(done, [EffectKind::MakeKey, EffectKind::Trust, EffectKind::Renew, EffectKind::Distrust]);
    let host = scene.maas.only_host();
    assert_eq!(host.id, before);
    assert_eq!(Fingerprint::of_pem(&host.certificate).unwrap(), scene.own_fingerprint());
    assert_ne!(scene.own_fingerprint(), lost);
    settle_ready(&mut scene.agent()).await;
}

#[tokio::test]
async fn maas_composes_vms_with_the_restricted_certificate_and_a_lost_host_is_not_registered_over_them() {
    let scene = scene().await;
    until_right(&mut scene.agent()).await;
    let id = scene.maas.only_host().id;
    let vm = maas_client::Compose {
        hostname: Some("vm1".into()),
        cores: Some(1),
        memory_mib: Some(1024),
        skip_commissioning: true,
        ..maas_client::Compose::default()
    };
    scene.maas.client().vm_hosts().compose(id, &vm).await.unwrap();
    assert!(scene.lxd.client().instance("maas", "vm1").await.unwrap().is_some(), "it is in the real LXD");
    settle_ready(&mut scene.agent()).await;
    assert_eq!(scene.cluster.annotation(names::INSTANCES).as_deref(), Some("[\"vm1\"]"));

    // S12: registering would restart and commission it.
    scene.maas.arrange(json!([{"absent": {"vm_host": id}}]));
    let sent = scene.maas.writes();
    settle_with(&mut scene.agent(), State::Blocked, "holds instances that MAAS does not know (vm1)").await;
    assert_eq!(scene.maas.writes(), sent);
    assert!(scene.lxd.client().instance("maas", "vm1").await.unwrap().is_some());
}

#[tokio::test]
async fn s12_what_maas_was_seen_to_know_a_while_ago_is_no_ground_for_a_write() {
    let scene = scene().await;
    let given = GivenCredentials { api_key: Some(key().into()), endpoint: Some(scene.maas.endpoint.clone()) };
    let mut agent = scene.agent_with(&["--maas-seconds=86400"], given);
    until_right(&mut agent).await;
    let sent = scene.maas.writes();
    // A VM appears that MAAS does not know, and the key is lost: with cached facts the registration would be renewed.
    scene.lxd.make_vm("maas", "vm1").await;
    scene.lose_key();
    settle_with(&mut agent, State::Blocked, "holds instances that MAAS does not know (vm1)").await;
    assert_eq!(scene.maas.writes(), sent);
}

#[tokio::test]
async fn a_vm_host_that_somebody_else_registered_for_this_machine_is_accepted() {
    let scene = scene().await;
    // Somebody prepared LXD by hand and registered it with their own key pair.
    let done = until_prepared(&scene).await;
    assert!(!done.contains(&EffectKind::Register));
    let pair = rcgen::generate_simple_self_signed(["maas".to_owned()]).unwrap();
    let certificate =
        lxd_client::NewCertificate { name: "by-maas".into(), certificate_pem: pair.cert.pem(), projects: None };
    scene.lxd.client().trust_certificate(&certificate).await.unwrap();
    let auth = maas_client::VmHostAuth::Certificate {
        certificate: pair.cert.pem(),
        key: pair.signing_key.serialize_pem().into(),
    };
    let host = maas_client::NewVmHost::new("kind-turtle", scene.lxd.address(), "maas", auth);
    let id = scene.maas.client().vm_hosts().create(&host).await.unwrap().id;
    let sent = scene.maas.writes();
    until_right(&mut scene.agent()).await;
    assert_eq!(scene.maas.writes(), sent, "it is accepted as it is");
    assert_eq!(scene.maas.only_host().name, "kind-turtle");
    assert_eq!(scene.cluster.annotation(names::VM_HOST), Some(id.to_string()));
}

/// Runs an agent up to the registration.
async fn until_prepared(scene: &support::sim::Scene) -> Vec<EffectKind> {
    let mut done = Vec::new();
    for _ in 0..20 {
        let pass = scene.agent().pass().await;
        done.extend(pass.plan.effect.map(|effect| effect.kind()));
        if done.last() == Some(&EffectKind::Trust) {
            return done;
        }
    }
    panic!("LXD is never prepared: {done:?}");
}

#[tokio::test]
async fn credentials_are_found_in_the_cluster_when_they_arrive_there() {
    let scene = scene().await;
    let mut agent = scene.agent_with(&[], GivenCredentials::default());
    settle_with(&mut agent, State::Waiting, "waiting for Secret capmaas-system/maas-credentials").await;
    *scene.cluster.api_key.lock().unwrap() = Lookup::Found(key());
    settle_with(&mut agent, State::Blocked, "MAAS_ENDPOINT (or ConfigMap capmaas-system/capmaas-config").await;
    *scene.cluster.endpoint.lock().unwrap() = Lookup::Found(scene.maas.endpoint.clone());
    until_right(&mut agent).await;
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
