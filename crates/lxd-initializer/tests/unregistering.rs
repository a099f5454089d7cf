//! Removing a node from MAAS: a separate, explicit action that can lose nothing.
#![allow(clippy::unwrap_used, clippy::expect_used, clippy::panic)]

mod support;

use lxd_initializer::{names, observed::Lookup, plan::State, settings::GivenCredentials};
use serde_json::json;
use support::{
    settle_ready, settle_with,
    sim::{Scene, key, scene, until_right},
};

/// A node that is a VM host and was asked to leave.
async fn leaving() -> Scene {
    let scene = scene().await;
    until_right(&mut scene.agent()).await;
    scene.cluster.annotate(names::LEAVE, "true");
    settle_with(&mut scene.agent(), State::Left, "asks the agent to leave").await;
    scene
}

async fn refused(scene: &Scene, words: &str) {
    let error = format!("{:#}", scene.agent().unregister().await.unwrap_err());
    assert!(error.contains(words), "{error:?} lacks {words:?}");
    scene.maas.only_host();
}

#[tokio::test]
async fn s11_an_empty_host_is_unregistered_once_and_its_lxd_stays_as_it_is() {
    let scene = leaving().await;
    let said = scene.agent().unregister().await.unwrap();
    assert!(said.contains("is no longer in MAAS"), "{said}");
    assert!(scene.maas.hosts().is_empty());
    let deletes: Vec<_> = scene.maas.sim.control().ledger(Some("vm-host.delete"));
    assert!(deletes.len() == 1 && deletes[0].query.is_empty(), "neither force nor decompose: {deletes:?}");
    let lxd = scene.lxd.client();
    assert_eq!(lxd.storage_pool("default").await.unwrap().unwrap().status, "Created");
    assert!(lxd.project("maas").await.unwrap().is_some());

    // The agent, which was asked to leave, does not register it again; repeating the request is harmless.
    settle_with(&mut scene.agent(), State::Left, "asks the agent to leave").await;
    assert!(scene.maas.hosts().is_empty());
    assert!(scene.agent().unregister().await.unwrap().contains("there is nothing to unregister"));
    lxd_initializer::intent::store(scene.state.path(), jiff::Timestamp::now()).unwrap();
    let error = scene.agent().unregister().await.unwrap_err().to_string();
    assert!(error.contains("run this again in three minutes"), "s02: {error}");
}

#[tokio::test]
async fn s11_a_host_with_a_vm_is_never_unregistered_whoever_made_the_vm() {
    let scene = leaving().await;
    scene.lxd.make_vm("maas", "by-hand").await;
    let sent = scene.maas.writes();
    refused(&scene, "still has VMs (by-hand)").await;
    assert_eq!(scene.maas.writes(), sent);
    scene.lxd.client().mutate(http::Method::DELETE, "/1.0/instances/by-hand?project=maas", None::<&()>).await.unwrap();

    let id = scene.maas.only_host().id;
    let vm = maas_client::Compose {
        hostname: Some("by-maas".into()),
        cores: Some(1),
        memory_mib: Some(1024),
        skip_commissioning: true,
        ..maas_client::Compose::default()
    };
    scene.maas.client().vm_hosts().compose(id, &vm).await.unwrap();
    refused(&scene, "still has VMs (by-maas)").await;
    assert!(scene.lxd.client().instance("maas", "by-maas").await.unwrap().is_some());
}

#[tokio::test]
async fn s11_nothing_is_unregistered_while_the_agent_is_at_work_or_maas_does_not_reach_the_host() {
    let scene = scene().await;
    until_right(&mut scene.agent()).await;
    refused(&scene, "the agent of this node is running").await;
    scene.cluster.annotate(names::LEAVE, "true");
    // While the agent is alive, only its own report counts.
    let living = lxd_initializer::alive::hold(scene.state.path()).unwrap();
    refused(&scene, "runs and has not reported yet that it stopped (its annotation lxdhost.cluster.com/state is Ready")
        .await;
    drop(living);
    settle_with(&mut scene.agent(), State::Left, "asks the agent to leave").await;
    scene.maas.arrange(json!([{"rack": {"connected": false}}]));
    refused(&scene, "MAAS cannot reach the VM host, so nothing was unregistered").await;
    let managed = scene.agent_with(&[], GivenCredentials::default()).unregister().await.unwrap_err();
    assert!(managed.to_string().contains("the manager unregisters its hosts itself"), "{managed}");
    scene.maas.arrange(json!([{"rack": {"connected": true}}]));
    scene.agent().unregister().await.unwrap();
    assert!(scene.maas.hosts().is_empty());

    // Reverted: no longer asked to leave, it becomes a host again.
    scene.cluster.annotate(names::LEAVE, "false");
    until_right(&mut scene.agent()).await;
    settle_ready(&mut scene.agent()).await;
    scene.maas.only_host();
}

#[tokio::test]
async fn s11_a_host_whose_agent_is_dead_is_unregistered_without_its_word_and_only_while_it_is_empty() {
    let scene = scene().await;
    until_right(&mut scene.agent()).await;
    refused(&scene, "the agent of this node is running").await;
    scene.cluster.annotate(names::LEAVE, "true");
    scene.lxd.make_vm("maas", "by-hand").await;
    refused(&scene, "still has VMs (by-hand)").await;
    scene.lxd.client().mutate(http::Method::DELETE, "/1.0/instances/by-hand?project=maas", None::<&()>).await.unwrap();
    // In a directory other than the agent's, nothing shows whether it is alive.
    let elsewhere = tempfile::tempdir().unwrap();
    let flag = format!("--state-dir={}", elsewhere.path().display());
    let given = GivenCredentials { api_key: Some(key().into()), endpoint: Some(scene.maas.endpoint.clone()) };
    let error = scene.agent_with(&[&flag], given).unregister().await.unwrap_err().to_string();
    assert!(error.contains("whether it runs cannot be determined") && error.contains("STATE_DIR"), "{error}");
    scene.maas.only_host();

    assert_eq!(scene.cluster.annotation(names::STATE).as_deref(), Some("Ready"), "it never said that it left");
    let said = scene.agent().unregister().await.unwrap();
    assert!(said.contains("is no longer in MAAS"), "{said}");
    assert!(scene.maas.hosts().is_empty());
}

#[tokio::test]
async fn a_host_that_was_unregistered_without_a_node_stays_so_until_the_node_says_otherwise() {
    let scene = scene().await;
    until_right(&mut scene.agent()).await;
    let node = scene.cluster.node.lock().unwrap().clone();
    *scene.cluster.node.lock().unwrap() = Lookup::Unknown("the API server is gone".into());
    let living = lxd_initializer::alive::hold(scene.state.path()).unwrap();
    refused(&scene, "(the Node cannot be read: the API server is gone): wait a minute, or stop it").await;
    drop(living);
    let said = scene.agent().unregister().await.unwrap();
    assert!(said.contains("do not start one here again"), "{said}");
    settle_with(&mut scene.agent(), State::Left, "its host was unregistered").await;
    assert!(scene.maas.hosts().is_empty());

    *scene.cluster.node.lock().unwrap() = node;
    until_right(&mut scene.agent()).await;
    scene.maas.only_host();
    *scene.cluster.node.lock().unwrap() = Lookup::Unknown("the API server is gone".into());
    settle_with(&mut scene.agent(), State::Waiting, "but its Node could not be read and labelled").await;
}
