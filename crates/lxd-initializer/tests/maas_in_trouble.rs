//! A MAAS that is unavailable, too old, too new, refuses the key, does not reach LXD, or mistakes the node for another
//! machine.
#![allow(clippy::unwrap_used, clippy::expect_used, clippy::panic)]

mod support;

use std::{sync::Arc, time::Duration};

use lxd_initializer::{
    agent::Agent, effect::EffectKind, names, observed::Lookup, plan::State, settings::GivenCredentials,
};
use maas_sim::faults::ServerState;
use serde_json::json;
use support::{
    lxd::RealLxd,
    settle_with,
    sim::{Maas, Scene, scene, scene_on, until_right},
};

async fn nothing_done(scene: &Scene) {
    assert!(scene.maas.hosts().is_empty());
    assert_eq!(scene.cluster.label(names::LABEL_INITIALIZED), None);
    assert!(scene.lxd.client().instances("maas").await.unwrap().is_empty());
}

#[tokio::test]
async fn a_maas_that_is_away_is_awaited_and_found_again() {
    let scene = scene().await;
    let mut agent = scene.agent();
    for state in [ServerState::Down, ServerState::DatabaseDown] {
        scene.maas.sim.control().set_server(state);
        settle_with(&mut agent, State::Waiting, "MAAS does not answer").await;
    }
    nothing_done(&scene).await;
    scene.maas.sim.control().set_server(ServerState::Up);
    until_right(&mut agent).await;
    scene.maas.only_host();
}

#[tokio::test]
async fn maas_3_0_which_takes_no_key_pair_is_told_in_one_sentence() {
    let scene = scene_on("3.0").await;
    settle_with(&mut scene.agent(), State::Blocked, "MAAS 3.0.0 accepts no key pair").await;
    assert!(scene.maas.writes().is_empty());
    nothing_done(&scene).await;
}

#[tokio::test]
async fn a_maas_without_vm_hosts_is_told_in_one_sentence() {
    let scene = scene().await;
    scene
        .maas
        .fault(json!({"match": {"path": "/vm-hosts/"}, "do": "status", "status": 410, "body": "Gone", "times": 0}));
    settle_with(&mut scene.agent(), State::Blocked, "this MAAS has no VM hosts any more (410 Gone)").await;
    assert!(scene.maas.writes().is_empty());
    nothing_done(&scene).await;
}

#[tokio::test]
async fn a_key_without_the_rights_of_an_administrator_is_told_and_changes_nothing() {
    let scene = scene().await;
    scene.maas.arrange(json!([{"user": {"name": "alice", "admin": false, "key": "ck:tk:CANARYalice"}}]));
    let given =
        GivenCredentials { api_key: Some("ck:tk:CANARYalice".into()), endpoint: Some(scene.maas.endpoint.clone()) };
    settle_with(&mut scene.agent_with(&[], given), State::Blocked, "it needs the key of an administrator").await;
    nothing_done(&scene).await;
    until_right(&mut scene.agent()).await;
    scene.maas.only_host();
}

#[tokio::test]
async fn a_wrong_key_is_told_without_being_shown() {
    let scene = scene().await;
    for (key, words) in [("consumer:token:CANARYwrong", "refuses the API key"), ("CANARYnonsense", "three parts")] {
        let given = GivenCredentials { api_key: Some(key.into()), endpoint: Some(scene.maas.endpoint.clone()) };
        let mut agent = scene.agent_with(&[], given);
        settle_with(&mut agent, State::Blocked, words).await;
        let told = format!("{:?} {:?}", agent.pass().await, scene.cluster.patches.lock().unwrap());
        assert!(!told.contains("CANARY"), "{told}");
    }
    nothing_done(&scene).await;
}

#[tokio::test]
async fn a_node_that_maas_did_not_deploy_cannot_be_a_host() {
    let lxd = RealLxd::start().await;
    let maas = Maas::empty("3.4").await;
    let scene = Scene { lxd, maas, state: tempfile::tempdir().unwrap(), cluster: Arc::default() };
    settle_with(&mut scene.agent(), State::Blocked, "MAAS knows no machine").await;
    assert!(scene.maas.writes().is_empty());
    nothing_done(&scene).await;
}

#[tokio::test]
async fn a_host_that_maas_matched_to_another_machine_is_reported_and_left_alone() {
    let lxd = RealLxd::start().await;
    let maas = Maas::empty("3.4").await;
    // The NIC that LXD shows belongs to another machine in MAAS, as with the identical MAC addresses of some Pod
    // networks.
    maas.arrange(json!([
        {"machine": {"hostname": "n1", "system_id": "abc123", "status": "Deployed", "owner": "admin", "zone": "az1"}},
        {"machine": {
            "hostname": "n2", "system_id": "def456", "status": "Deployed", "owner": "admin",
            "interfaces": [{"name": "eth0", "mac": lxd.mac()}],
        }},
    ]));
    let scene = Scene { lxd, maas, state: tempfile::tempdir().unwrap(), cluster: Arc::default() };
    if let Lookup::Found(node) = &mut *scene.cluster.node.lock().unwrap() {
        node.system_id = Some("abc123".into());
    }
    let words = "to machine def456, but this node is machine abc123";
    settle_with(&mut scene.agent(), State::Blocked, words).await;
    settle_with(&mut scene.agent(), State::Blocked, words).await;
    assert_eq!(scene.maas.writes(), ["vm-hosts.create"]);
    scene.maas.only_host();
    assert_eq!(scene.cluster.label(names::LABEL_INITIALIZED), None);
}

/// Runs passes until the next one would register the host.
async fn before_the_registration(scene: &Scene, agent: &mut Agent) {
    for _ in 0..20 {
        let pass = agent.pass().await;
        if pass.plan.effect.is_some_and(|effect| effect.kind() == EffectKind::Trust) {
            return;
        }
    }
    panic!("{} hosts, and never a trusted certificate", scene.maas.hosts().len());
}

#[tokio::test]
async fn a_200_of_a_maas_that_lxd_does_not_trust_is_no_success() {
    let scene = scene().await;
    let mut agent = scene.agent();
    before_the_registration(&scene, &mut agent).await;
    // The certificate is removed between the agent's read and MAAS's attempt.
    scene.maas.fault(json!({"match": {"kind": "vm-hosts.create"}, "do": "slow", "seconds": 2}));
    let distrust = async {
        while scene.maas.sim.control().faults().iter().all(|rule| rule.struck == 0) {
            tokio::time::sleep(Duration::from_millis(10)).await;
        }
        let path = format!("/1.0/certificates/{}", scene.own_fingerprint());
        scene.lxd.client().mutate(http::Method::DELETE, &path, None::<&()>).await.unwrap();
    };
    let (pass, ()) = tokio::join!(agent.pass(), distrust);
    assert_eq!(pass.result, Some(Ok(())), "MAAS answers 200 all the same");
    assert!(!scene.maas.only_host().discovered());
    assert_eq!(scene.cluster.label(names::LABEL_INITIALIZED), None);

    let done = until_right(&mut scene.agent()).await;
    assert_eq!(done, [EffectKind::Trust, EffectKind::Refresh]);
    assert!(scene.maas.only_host().discovered());
}

#[tokio::test]
async fn a_maas_that_cannot_reach_lxd_says_why_and_gets_no_second_host() {
    let scene = scene().await;
    scene.maas.arrange(json!([{"rack": {"connected": false}}]));
    settle_with(&mut scene.agent(), State::Waiting, "MAAS is adding VM host n1").await;
    assert!(!scene.maas.only_host().discovered());
    assert_eq!(scene.cluster.label(names::LABEL_INITIALIZED), None);
    // The state half a minute later, which a new process sees immediately.
    settle_with(&mut scene.agent(), State::Blocked, "No rack controllers connected").await;
    scene.maas.arrange(json!([{"rack": {"connected": true}}]));
    until_right(&mut scene.agent()).await;
    assert!(scene.maas.only_host().discovered());
}
