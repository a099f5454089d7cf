//! A node with a real LXD, in managed mode: the manager provides a certificate and registers the host.
#![allow(clippy::unwrap_used, clippy::expect_used, clippy::panic)]

mod support;

use capmaas_testbed::LxdNode;
use lxd_client::{Client, ErrorKind, NewStoragePool};
use lxd_initializer::{effect::EffectKind, names, plan::State};
use support::{
    Writes, agent, losing_answers,
    managed::{pair, scene},
    occupying, settle_ready, settle_with,
};

#[tokio::test]
async fn a_fresh_node_becomes_a_host_and_a_second_run_writes_nothing() {
    let scene = scene().await;
    let done = settle_ready(&mut scene.agent()).await;
    let expected =
        [EffectKind::CreatePool, EffectKind::CreateProject, EffectKind::Listen, EffectKind::Trust, EffectKind::Report];
    assert_eq!(done, expected);

    let writes = Writes::default();
    let reports = scene.cluster.patches.lock().unwrap().len();
    let mut second = scene.agent().with_lxd_hook(writes.hook());
    for _ in 0..3 {
        let pass = second.pass().await;
        assert_eq!((pass.plan.state, &pass.plan.effect), (State::Ready, &None));
    }
    assert_eq!((writes.count(), scene.cluster.patches.lock().unwrap().len()), (0, reports));

    let server = scene.lxd.client().server().await.unwrap();
    let print = scene.identity.fingerprint().unwrap().to_string();
    for (key, value) in [
        (names::STATE, "Ready"),
        (names::MODE, "managed"),
        (names::ADDRESS, &scene.lxd.address()),
        (names::FINGERPRINT, &server.environment.certificate_fingerprint),
        (names::CERTIFICATE, &print),
        (names::INSTANCES, "[]"),
        (names::PROFILES, r#"["default"]"#),
        (names::BRIDGES, &format!("[{:?}]", scene.lxd.bridge)),
        (names::PROJECT, "maas"),
    ] {
        assert_eq!(scene.cluster.annotation(key).as_deref(), Some(value), "{key}");
    }
    assert_eq!(scene.cluster.label(names::LABEL_INITIALIZED).as_deref(), Some("true"));
    assert_eq!(std::fs::read_dir(scene.state.path()).unwrap().count(), 0, "s22: no key is made here");
}

#[tokio::test]
async fn the_trusted_certificate_cannot_leave_its_project() {
    let scene = scene().await;
    settle_ready(&mut scene.agent()).await;
    let pin = scene.lxd.client().server().await.unwrap().environment.certificate_fingerprint.parse().unwrap();
    let maas = Client::tls(&scene.lxd.address(), pin, Some(&scene.identity)).unwrap();
    assert!(maas.server_in_project("maas").await.unwrap().is_trusted());
    assert!(maas.instances("maas").await.unwrap().is_empty());
    let pool = NewStoragePool { name: "evil".into(), driver: "dir".into(), ..Default::default() };
    let password = serde_json::json!({"config": {"core.trust_password": "x"}});
    let refused = [
        maas.create_storage_pool(&pool).await.map(drop),
        maas.instances("default").await.map(drop),
        maas.project("default").await.map(drop),
        maas.mutate(http::Method::PATCH, "/1.0", Some(&password)).await.map(drop),
    ];
    for answer in refused {
        assert!(matches!(answer.as_ref().unwrap_err().kind(), ErrorKind::Denied(_)), "{answer:?}");
    }
    assert!(scene.lxd.client().storage_pool("evil").await.unwrap().is_none());
}

#[tokio::test]
async fn an_agent_that_dies_after_any_write_is_followed_by_one_that_goes_on() {
    let scene = scene().await;
    let writes = Writes::default();
    let mut state = State::Working;
    // A new agent for every pass: no state is kept from one write to the next.
    for _ in 0..12 {
        state = scene.agent().with_lxd_hook(writes.hook()).pass().await.plan.state;
    }
    assert_eq!(state, State::Ready);
    assert_eq!(writes.count(), 4, "pool, project, listener, trust, and none of them twice");
}

#[tokio::test]
async fn a_write_whose_answer_is_lost_is_not_made_again() {
    let scene = scene().await;
    let mut last = State::Working;
    for _ in 0..16 {
        // Every answer to a write is lost and the agent dies.
        last = scene.agent().with_lxd_hook(losing_answers()).pass().await.plan.state;
    }
    assert_eq!(last, State::Ready);
    assert_eq!(scene.lxd.client().storage_pools().await.unwrap().len(), 1);
    assert_eq!(scene.lxd.client().certificates().await.unwrap().len(), 1);
}

#[tokio::test]
async fn an_lxd_that_is_killed_after_any_write_is_found_again() {
    let mut scene = scene().await;
    let mut done = Vec::new();
    let settings = scene.settings(&[]);
    let mut agent = agent(&settings, &scene.cluster);
    for _ in 0..8 {
        let pass = agent.pass().await;
        done.extend(pass.plan.effect.map(|effect| effect.kind()));
        if pass.plan.state == State::Ready {
            break;
        }
        scene.lxd.kill();
        let away = agent.pass().await;
        assert_eq!(away.plan.state, State::Waiting, "{}", away.plan.message);
        assert!(away.plan.message.contains("LXD does not answer yet"), "{}", away.plan.message);
        scene.lxd.launch().await;
        // The report of the outage is not checked here.
        done.retain(|kind| *kind != EffectKind::Report);
    }
    settle_ready(&mut agent).await;
    assert_eq!(done[..4], [EffectKind::CreatePool, EffectKind::CreateProject, EffectKind::Listen, EffectKind::Trust]);
}

#[tokio::test]
async fn two_agents_of_one_node_end_in_one_of_everything() {
    let scene = scene().await;
    let (mut one, mut two) = (scene.agent(), scene.agent());
    for _ in 0..12 {
        tokio::join!(one.pass(), two.pass());
    }
    let lxd = scene.lxd.client();
    assert_eq!(lxd.storage_pools().await.unwrap().len(), 1);
    assert_eq!(lxd.projects().await.unwrap().len(), 2, "default and maas");
    assert_eq!(lxd.certificates().await.unwrap().len(), 1);
    assert_eq!(scene.agent().pass().await.plan.state, State::Ready);
}

#[tokio::test]
async fn a_pool_on_another_driver_is_left_alone_with_a_sentence() {
    let scene = scene().await;
    let pool = NewStoragePool { name: "default".into(), driver: "dir".into(), ..Default::default() };
    scene.lxd.client().create_storage_pool(&pool).await.unwrap();
    let writes = Writes::default();
    let settings = scene.settings(&["--storage-backend=btrfs"]);
    let mut agent = agent(&settings, &scene.cluster).with_lxd_hook(writes.hook());
    settle_with(&mut agent, State::Blocked, "is on dir, not on btrfs: it is left alone").await;
    assert_eq!(writes.count(), 0);
    let said = scene.cluster.annotation(names::MESSAGE).unwrap();
    assert!(said.contains("set STORAGE_BACKEND=dir to use it"), "{said}");
    assert_eq!(scene.cluster.label(names::LABEL_INITIALIZED), None);
}

#[tokio::test]
async fn a_missing_bridge_is_asked_for_and_never_made() {
    let scene = scene().await;
    let writes = Writes::default();
    let settings = scene.settings(&["--network-bridge=br-nope"]);
    let mut agent = agent(&settings, &scene.cluster).with_lxd_hook(writes.hook());
    settle_with(&mut agent, State::Blocked, "there is no bridge \"br-nope\"").await;
    assert_eq!(writes.count(), 1, "the pool alone, which comes before");
}

#[tokio::test]
async fn profiles_and_instances_that_come_later_are_reported_and_an_unknown_list_is_taken_back() {
    let mut scene = scene().await;
    let mut agent = scene.agent();
    settle_ready(&mut agent).await;
    let profile = serde_json::json!({ "name": "maas", "config": {}, "devices": {} });
    scene.lxd.client().mutate(http::Method::POST, "/1.0/profiles?project=maas", Some(&profile)).await.unwrap();
    scene.lxd.make_vm("maas", "vm1").await;
    assert_eq!(settle_ready(&mut agent).await, [EffectKind::Report]);
    assert_eq!(scene.cluster.annotation(names::PROFILES).as_deref(), Some(r#"["default","maas"]"#));
    assert_eq!(scene.cluster.annotation(names::INSTANCES).as_deref(), Some(r#"["vm1"]"#));
    scene.lxd.kill();
    agent.pass().await;
    for name in [names::PROFILES, names::INSTANCES, names::BRIDGES] {
        assert_eq!(scene.cluster.annotation(name), None, "{name} could be out of date");
    }
}

#[tokio::test]
async fn an_interface_that_is_no_bridge_is_refused() {
    let scene = scene().await;
    let settings = scene.settings(&["--network-bridge=lo"]);
    settle_with(&mut agent(&settings, &scene.cluster), State::Blocked, "not a bridge").await;
}

#[tokio::test]
async fn a_port_that_another_program_holds_is_not_fought_for() {
    let scene = scene().await;
    let occupant = std::net::TcpListener::bind((scene.lxd.ip, 8443)).unwrap();
    let mut agent = scene.agent();
    settle_with(&mut agent, State::Blocked, "another program listens on").await;
    let server = scene.lxd.client().server().await.unwrap();
    assert_eq!(server.setting("core.https_address"), None, "nothing was set");
    drop(occupant);
    settle_ready(&mut agent).await;
}

#[tokio::test]
async fn an_address_that_lxd_could_not_open_is_taken_back_also_after_a_crash() {
    let scene = scene().await;
    // Another process takes the port between the read and the write. LXD 5.0.2 then answers 500 but keeps the address.
    let (hook, occupant) = occupying((scene.lxd.ip, 8443).into());
    let mut unlucky = scene.agent().with_lxd_hook(hook);
    while unlucky.pass().await.result.is_none_or(|result| result.is_ok()) {}
    let stored = format!("{}:8443", scene.lxd.ip);
    assert_eq!(scene.lxd.client().server().await.unwrap().setting("core.https_address"), Some(stored.as_str()));

    settle_with(&mut unlucky, State::Blocked, "another program listens on").await;
    assert_eq!(scene.lxd.client().server().await.unwrap().setting("core.https_address"), None);
    occupant.lock().unwrap().take();
    assert_eq!(settle_ready(&mut scene.agent()).await, [EffectKind::Listen, EffectKind::Trust, EffectKind::Report]);

    let lxd = scene.lxd.client();
    let print = scene.identity.fingerprint().unwrap();
    lxd.mutate(http::Method::DELETE, &format!("/1.0/certificates/{print}"), None::<&()>).await.unwrap();
    let body = serde_json::json!({"config": {"core.https_address": "", names::LISTENER_NOTE: ""}});
    lxd.mutate(http::Method::PATCH, "/1.0", Some(&body)).await.unwrap();
    let (hook, occupant) = occupying((scene.lxd.ip, 8443).into());
    while scene.agent().with_lxd_hook(hook.clone()).pass().await.result.is_none_or(|result| result.is_ok()) {}
    occupant.lock().unwrap().take();
    // The first observation may have been too early, so a second one decides.
    let (mut next, mut done) = (scene.agent(), Vec::new());
    for _ in 0..8 {
        done.extend(
            next.pass().await.plan.effect.map(|effect| effect.kind()).filter(|kind| *kind != EffectKind::Report),
        );
    }
    assert_eq!(done, [EffectKind::Trust, EffectKind::StopListening, EffectKind::Listen]);
    assert_eq!(next.pass().await.plan.state, State::Ready);
}

#[tokio::test]
async fn a_node_that_moves_to_another_address_takes_its_own_listener_along() {
    let scene = scene().await;
    settle_ready(&mut scene.agent()).await;
    let moved = LxdNode::another_ip();
    let settings = scene.settings(&[&format!("--node-ip={moved}")]);
    assert_eq!(settle_ready(&mut agent(&settings, &scene.cluster)).await, [EffectKind::Listen, EffectKind::Report]);
    assert_eq!(scene.cluster.annotation(names::ADDRESS), Some(format!("https://{moved}:8443")));
}

#[tokio::test]
async fn a_listener_that_somebody_else_set_is_kept_if_it_covers_the_node_and_reported_if_not() {
    let scene = scene().await;
    let lxd = scene.lxd.client();
    scene.lxd.configure("core.https_address", "127.0.0.77:18443").await;
    settle_with(&mut scene.agent(), State::Blocked, "which does not cover the node's address").await;
    assert_eq!(lxd.server().await.unwrap().setting("core.https_address"), Some("127.0.0.77:18443"));
    scene.lxd.configure("core.https_address", &format!("{}:28443", scene.lxd.ip)).await;
    settle_ready(&mut scene.agent()).await;
    let address = format!("https://{}:28443", scene.lxd.ip);
    assert_eq!(scene.cluster.annotation(names::ADDRESS), Some(address));
}

#[tokio::test]
async fn go24_a_set_trust_password_stops_everything() {
    let scene = scene().await;
    scene.lxd.configure("core.trust_password", "CANARY").await;
    let writes = Writes::default();
    let mut agent = scene.agent().with_lxd_hook(writes.hook());
    settle_with(&mut agent, State::Blocked, "core.trust_password is set").await;
    assert_eq!(writes.count(), 0);
    assert!(!format!("{:?}", scene.cluster.patches.lock().unwrap()).contains("CANARY"));
}

#[tokio::test]
async fn a_node_that_is_told_to_leave_says_so_and_writes_nothing_else() {
    let scene = scene().await;
    settle_ready(&mut scene.agent()).await;
    scene.lxd.make_vm("maas", "vm1").await;
    scene.cluster.annotate(names::LEAVE, "true");
    // Drift that would otherwise be repaired.
    let print = scene.identity.fingerprint().unwrap();
    scene.lxd.client().mutate(http::Method::DELETE, &format!("/1.0/certificates/{print}"), None::<&()>).await.unwrap();
    let writes = Writes::default();
    let mut agent = scene.agent().with_lxd_hook(writes.hook());
    settle_with(&mut agent, State::Left, "asks the agent to leave").await;
    assert_eq!(writes.count(), 0);
    assert_eq!(scene.cluster.annotation(names::STATE).as_deref(), Some("Left"));
    assert_eq!(scene.cluster.annotation(names::INSTANCES).as_deref(), Some("[\"vm1\"]"));
    scene.cluster.annotate(names::LEAVE, "false");
    assert_eq!(settle_ready(&mut agent).await, [EffectKind::Trust, EffectKind::Report]);
}

#[tokio::test]
async fn s01_a_node_that_cannot_be_read_may_have_been_told_to_leave() {
    let scene = scene().await;
    *scene.cluster.node.lock().unwrap() = lxd_initializer::observed::Lookup::Unknown("connection refused".into());
    let writes = Writes::default();
    let mut agent = scene.agent().with_lxd_hook(writes.hook());
    settle_with(&mut agent, State::Waiting, "it is not known whether this agent was asked to leave").await;
    assert_eq!(writes.count(), 0);
}

#[tokio::test]
async fn drift_is_repaired_with_one_write() {
    let scene = scene().await;
    settle_ready(&mut scene.agent()).await;
    let print = scene.identity.fingerprint().unwrap();
    scene.lxd.client().mutate(http::Method::DELETE, &format!("/1.0/certificates/{print}"), None::<&()>).await.unwrap();
    assert_eq!(settle_ready(&mut scene.agent()).await, [EffectKind::Trust]);
}

#[tokio::test]
async fn a_node_without_lxd_says_so_and_starts_by_itself_once_lxd_is_there() {
    let scene = scene().await;
    let elsewhere = tempfile::tempdir().unwrap();
    let socket = elsewhere.path().join("unix.socket");
    let settings = scene.settings(&[&format!("--lxd-socket={}", socket.display())]);
    let mut agent = agent(&settings, &scene.cluster);
    settle_with(&mut agent, State::Waiting, "there is no LXD on this node").await;
    std::os::unix::fs::symlink(scene.lxd.socket(), socket).unwrap();
    settle_ready(&mut agent).await;
}

#[tokio::test]
async fn a_node_without_certificate_is_prepared_and_waits_in_words() {
    let scene = scene().await;
    *scene.cluster.certificate.lock().unwrap() = lxd_initializer::observed::Lookup::Absent;
    let mut agent = scene.agent();
    settle_with(&mut agent, State::Waiting, "waiting for Secret capmaas-system/maas-credentials").await;
    scene.cluster.give_certificate(scene.identity.certificate_pem());
    settle_ready(&mut agent).await;
}

#[tokio::test]
async fn a_btrfs_pool_is_made_for_real_with_the_size_asked_for() {
    let scene = scene().await;
    let settings = scene.settings(&["--storage-backend=btrfs", "--storage-size=1"]);
    settle_ready(&mut agent(&settings, &scene.cluster)).await;
    let pool = scene.lxd.client().storage_pool("default").await.unwrap().unwrap();
    assert_eq!((pool.driver.as_str(), pool.config.unwrap()["size"].as_str()), ("btrfs", "1GB"));
}

#[tokio::test]
async fn a_pool_that_lxd_cannot_make_is_told_with_its_words_and_leaves_no_record() {
    let scene = scene().await;
    let settings = scene.settings(&["--storage-backend=btrfs", "--storage-size=50MB"]);
    settle_with(&mut agent(&settings, &scene.cluster), State::Blocked, "creating the storage pool failed").await;
    let said = scene.cluster.annotation(names::MESSAGE).unwrap();
    assert!(said.contains("mkfs.btrfs"), "{said}");
    assert!(scene.lxd.client().storage_pool("default").await.unwrap().is_none());
    let settings = scene.settings(&["--storage-backend=btrfs", "--storage-size=1"]);
    settle_ready(&mut agent(&settings, &scene.cluster)).await;
}

#[tokio::test]
async fn zfs_on_a_kernel_without_it_is_a_sentence_and_no_write_and_lxd_would_have_refused_it() {
    let scene = scene().await;
    let lxd = scene.lxd.client();
    let server = lxd.server().await.unwrap();
    assert!(!server.supports_storage("zfs"), "this machine has zfs: run this test where it is missing");
    let writes = Writes::default();
    let settings = scene.settings(&["--storage-backend=zfs"]);
    let mut agent = agent(&settings, &scene.cluster).with_lxd_hook(writes.hook());
    settle_with(&mut agent, State::Blocked, "LXD cannot create a pool on zfs here, only on").await;
    assert_eq!(writes.count(), 0);
    // The LXD error that the message avoids.
    let pool = NewStoragePool { name: "default".into(), driver: "zfs".into(), ..Default::default() };
    let refused = lxd.create_storage_pool(&pool).await.unwrap_err();
    let without = ["zfs", "zpool"]; // no module, or not even the tools
    assert!(without.iter().any(|word| refused.to_string().contains(word)), "{refused}");
    assert!(lxd.storage_pool("default").await.unwrap().is_none());
}

#[tokio::test]
async fn s22_a_new_key_pair_shuts_the_door_to_the_old_one_once_maas_comes_with_it() {
    let scene = scene().await;
    settle_ready(&mut scene.agent()).await;
    // Certificates that others added to LXD's trust store are theirs.
    let others = [("maas-n1", pair("c10")), ("somebody", pair("c1"))];
    for (name, identity) in &others {
        let certificate_pem = identity.certificate_pem().to_owned();
        let new =
            lxd_client::NewCertificate { name: (*name).into(), certificate_pem, projects: Some(vec!["maas".into()]) };
        scene.lxd.client().trust_certificate(&new).await.unwrap();
    }
    let renewed = pair("c1");
    scene.cluster.give_certificate(renewed.certificate_pem());
    assert_eq!(settle_ready(&mut scene.agent()).await, [EffectKind::Trust, EffectKind::Report]);
    let old = scene.identity.fingerprint().unwrap();
    assert!(scene.lxd.client().certificate(old).await.unwrap().is_some(), "MAAS still comes with it");
    assert_eq!(scene.cluster.annotation(names::EARLIER), Some(format!("[\"{old}\"]")));

    scene.cluster.annotate(names::MAAS_CERTIFICATE, &renewed.fingerprint().unwrap().to_string());
    assert_eq!(settle_ready(&mut scene.agent()).await, [EffectKind::Distrust, EffectKind::Report]);
    assert!(scene.lxd.client().certificate(old).await.unwrap().is_none());
    assert_eq!(scene.cluster.annotation(names::EARLIER), None);
    assert_eq!(scene.lxd.client().certificates().await.unwrap().len(), 3, "the new one and what is not ours");
}
