//! lvm on a kernel without device mapper: LXD offers it, tries for half a minute and fails.
#![allow(clippy::unwrap_used, clippy::expect_used, clippy::panic)]

mod support;

use lxd_client::NewStoragePool;
use lxd_initializer::{names, plan::State};
use support::{agent, managed::scene, settle_ready, settle_with};

#[tokio::test]
async fn the_failure_is_told_in_the_words_of_lxd_and_nothing_is_left_or_destroyed() {
    let scene = scene().await;
    let lxd = scene.lxd.client();
    let server = lxd.server().await.unwrap();
    assert!(server.supports_storage("lvm"), "LXD does not offer lvm: install the package lvm2 (`testbed tools` does)");
    let theirs = NewStoragePool { name: "theirs".into(), driver: "dir".into(), ..Default::default() };
    lxd.create_storage_pool(&theirs).await.unwrap();

    let settings = scene.settings(&["--storage-backend=lvm", "--storage-size=1"]);
    settle_with(&mut agent(&settings, &scene.cluster), State::Blocked, "creating the storage pool failed: ").await;
    let said = scene.cluster.annotation(names::MESSAGE).unwrap();
    assert!(said.contains("device-mapper"), "{said}");
    assert_eq!(scene.cluster.label(names::LABEL_INITIALIZED), None);
    assert!(lxd.storage_pool("default").await.unwrap().is_none(), "no half-made pool is on record");
    assert_eq!(lxd.storage_pool("theirs").await.unwrap().unwrap().status, "Created");

    // Another driver is enough.
    let settings = scene.settings(&["--storage-backend=dir"]);
    settle_ready(&mut agent(&settings, &scene.cluster)).await;
}
