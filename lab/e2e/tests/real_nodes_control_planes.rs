//! Control planes of machines that really boot: kubeadm joins them, and the members of etcd are real.
#![allow(clippy::unwrap_used, clippy::expect_used, clippy::panic)]

use std::collections::BTreeSet;
use std::time::{Duration, Instant};

use capmaas_e2e::real_nodes::RealScene;
use serde_json::json;

#[tokio::test]
async fn control_planes_go_from_one_to_three_and_back_with_real_etcd_members() {
    let real = RealScene::start().await.unwrap();
    real.create("c1", 1, 0).await.unwrap();
    real.wait_members("c1", 1).await.unwrap();
    for (replicas, machines) in [(3, 3), (1, 1)] {
        let start = Instant::now();
        real.patch("kubeadmcontrolplane/c1-control-plane", json!({"spec": {"replicas": replicas}})).await.unwrap();
        real.wait_ready("c1", machines).await.unwrap();
        real.wait_members("c1", machines).await.unwrap();
        println!("{replicas} control planes after {} s", start.elapsed().as_secs());
    }
    real.delete("c1").await.unwrap();
    real.stop().await;
}

#[tokio::test]
async fn three_control_planes_answer_while_one_has_no_power_and_take_it_back() {
    let real = RealScene::start().await.unwrap();
    real.create("c1", 3, 0).await.unwrap();
    real.wait_members("c1", 3).await.unwrap();
    let nodes = real.names("c1", true).await.unwrap();
    let before = real.scene.maas.mutations().len();

    let down = real.control_plane("c1").await.unwrap();
    let cut = Instant::now();
    let silence = real.longest_silence("c1", async {
        real.cut_power(&down).await.unwrap();
        // As reported by its own etcd: the others consider it a member, and its Node Ready, for a while without power.
        real.wait_members("c1", 3).await.unwrap();
        real.wait_ready("c1", 3).await.unwrap();
    });
    let silence = silence.await;
    println!("{down} is back after {} s, silence of {silence:?} at most", cut.elapsed().as_secs());
    // Until its address is removed from DNS, one of three attempts may reach it.
    assert!(silence < Duration::from_secs(30), "no answer for {silence:?}");
    assert_eq!(real.names("c1", true).await.unwrap(), nodes);
    let after = real.scene.maas.mutations().split_off(before);
    let changes: BTreeSet<&str> = after.iter().map(|entry| entry.kind.as_str()).collect();
    assert!(changes.contains("machine.power_on"), "{changes:?}");
    let taken_away = ["machine.release", "machine.power_off", "machine.deploy", "machine.delete", "machines.allocate"];
    assert!(taken_away.iter().all(|kind| !changes.contains(kind)), "{changes:?}");
    real.delete("c1").await.unwrap();
    real.stop().await;
}
