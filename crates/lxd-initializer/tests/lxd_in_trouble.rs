//! An LXD that is killed, loses its disk, is in a cluster, or is one of several.
#![allow(clippy::unwrap_used, clippy::expect_used, clippy::panic)]

mod support;

use std::path::Path;

use axum::{Json, Router};
use lxd_initializer::{names, plan::State};
use support::{Writes, agent, managed::scene, settle, settle_ready, settle_with};

#[tokio::test]
async fn a_pool_whose_disk_is_missing_is_left_alone_and_heals_when_the_disk_returns() {
    let mut scene = scene().await;
    let settings = scene.settings(&["--storage-backend=btrfs", "--storage-size=1"]);
    settle_ready(&mut agent(&settings, &scene.cluster)).await;
    let (disk, aside) = (scene.lxd.dir().join("disks/default.img"), scene.lxd.dir().join("disks/aside.img"));
    scene.lxd.kill();
    scene.lxd.unmount_pools();
    std::fs::rename(&disk, &aside).unwrap();
    scene.lxd.launch().await;
    let writes = Writes::default();
    let mut watching = agent(&settings, &scene.cluster).with_lxd_hook(writes.hook());
    settle_with(&mut watching, State::Blocked, "is known to LXD but Unavailable").await;
    assert_eq!(writes.count(), 0);
    std::fs::rename(&aside, &disk).unwrap();
    scene.lxd.kill();
    scene.lxd.launch().await;
    settle_ready(&mut watching).await;
    assert_eq!(writes.count(), 0, "nobody had to do anything");
}

#[tokio::test]
async fn an_lxd_that_dies_while_it_makes_the_pool_leaves_nothing_that_is_not_told() {
    let mut scene = scene().await;
    let settings = scene.settings(&["--storage-backend=btrfs", "--storage-size=1"]);
    let mut cut_off = agent(&settings, &scene.cluster);
    let lxd = &mut scene.lxd;
    let (pass, ()) = tokio::join!(cut_off.pass(), async {
        tokio::time::sleep(std::time::Duration::from_millis(60)).await;
        lxd.kill();
    });
    assert_ne!(pass.plan.state, State::Ready);
    scene.lxd.launch().await;
    // Interrupted before, in the middle or after: recreated, reported, or accepted.
    let (pass, _) = settle(&mut agent(&settings, &scene.cluster)).await;
    let told = pass.plan.state == State::Blocked && pass.plan.message.contains("Unavailable");
    assert!(pass.plan.state == State::Ready || told, "{}", pass.plan.message);
}

#[tokio::test]
async fn a_member_of_an_lxd_cluster_is_left_to_its_administrators() {
    let scene = scene().await;
    let lxd = scene.lxd.client();
    scene.lxd.configure("core.https_address", &format!("{}:8443", scene.lxd.ip)).await;
    let body = serde_json::json!({"server_name": "n1", "enabled": true});
    lxd.mutate(http::Method::PUT, "/1.0/cluster", Some(&body)).await.unwrap();
    let writes = Writes::default();
    let mut agent = scene.agent().with_lxd_hook(writes.hook());
    settle_with(&mut agent, State::Blocked, "member of a cluster").await;
    assert_eq!(writes.count(), 0);
}

/// Answers as Incus does, on its own socket: Incus cannot be installed next to LXD.
fn played_incus(socket: &Path) {
    let metadata = serde_json::json!({
        "api_status": "stable", "api_version": "1.0", "auth": "trusted", "config": {}, "api_extensions": [
            "projects", "virtual-machines", "custom_block_volumes", "resources", "resources_v2", "api_os",
            "resources_system", "resources_usb_pci",
        ],
        "environment": {"server": "incus", "server_version": "7.3", "driver": "lxc | qemu", "server_clustered": false},
    });
    let router = Router::new().fallback(move |method: http::Method, uri: http::Uri| {
        let metadata = metadata.clone();
        async move {
            assert_eq!(method, http::Method::GET, "{uri}");
            match uri.path() {
                "/1.0" => (http::StatusCode::OK, Json(serde_json::json!({"type": "sync", "metadata": metadata}))),
                _ => (
                    http::StatusCode::NOT_FOUND,
                    Json(serde_json::json!({"type": "error", "error_code": 404, "error": "not found"})),
                ),
            }
        }
    });
    let listener = tokio::net::UnixListener::bind(socket).unwrap();
    tokio::spawn(async move { axum::serve(listener, router).await });
}

#[tokio::test]
async fn an_incus_is_refused_in_one_sentence_and_not_written_to() {
    let scene = scene().await;
    let folder = tempfile::tempdir().unwrap();
    let socket = folder.path().join("unix.socket");
    played_incus(&socket);
    let writes = Writes::default();
    let settings = scene.settings(&[&format!("--lxd-socket={}", socket.display())]);
    let mut agent = agent(&settings, &scene.cluster).with_lxd_hook(writes.hook());
    settle_with(&mut agent, State::Blocked, "this is \"incus\", not LXD").await;
    assert_eq!(writes.count(), 0);
}

#[tokio::test]
async fn several_nodes_side_by_side_do_not_disturb_each_other() {
    let (one, two, three) = tokio::join!(scene(), scene(), scene());
    let mut agents = [one.agent(), two.agent(), three.agent()];
    let [a, b, c] = &mut agents;
    tokio::join!(settle_ready(a), settle_ready(b), settle_ready(c));
    for scene in [&one, &two, &three] {
        assert_eq!(scene.cluster.annotation(names::ADDRESS), Some(scene.lxd.address()));
    }
}
