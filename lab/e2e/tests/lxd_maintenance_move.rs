//! `clusterctl move` while a host is being evacuated, on real components: nothing changes in MAAS, and the new manager
//! continues where the old one stopped.
#![allow(clippy::unwrap_used, clippy::expect_used, clippy::panic)]

use std::collections::BTreeMap;
use std::sync::Arc;

use capmaas_e2e::maas::Maas;
use capmaas_e2e::maintenance::{
    HOOK, TAG, annotate, guest, host_cluster, hosts_of, object_of, on_host, wait_going, wait_left, wait_looks,
    wait_said,
};
use capmaas_e2e::recorder::Recorder;
use capmaas_e2e::scene::Scene;

#[tokio::test]
async fn s15_s30_a_move_while_a_host_is_emptied_changes_nothing_and_the_new_manager_goes_on() {
    let maas = Arc::new(Maas::start().unwrap());
    let (from, clusterctl) = Scene::start_by_clusterctl(maas.clone()).await.unwrap();
    let (hosts, below) = host_cluster(&from, 1, 2).await.unwrap();
    let plan = guest(&from, "g1", 3).await.unwrap();
    let expected = from.create(&plan).await.unwrap();
    from.wait_running(&plan, &expected).await.unwrap();
    let (to, _) = Scene::start_by_clusterctl(maas.clone()).await.unwrap();

    // A Machine is being deleted, and a hook blocks its deletion.
    let host = hosts_of(&from, &plan).await.unwrap().pop_first().unwrap();
    let object = object_of(&from, &hosts, &host).await.unwrap();
    let going = on_host(&from, &plan, &host).await.unwrap().pop().unwrap();
    annotate(&from, &plan, "Machine", &going, (HOOK, Some(""))).await.unwrap();
    from.plugin(&["maintenance", "start", &host, "-n", "hosts"]).await.unwrap();
    wait_going(&from, &plan, &going).await.unwrap();
    assert!(maas.host_tags(&host).unwrap().contains(&TAG.to_owned()));

    // First the hosts, then the clusters on them: for a while each manager has a part.
    let before = maas.mutations().len();
    let kubeconfig = to.testbed.kubeconfig_path().display().to_string();
    clusterctl.run(["move", "-n", "hosts", "--to-kubeconfig", &kubeconfig]).await.unwrap();
    to.wait_running(&hosts, &below).await.unwrap();
    wait_said(&to, &hosts, ("MaasMachine", &object), ("EvacuationWaiting", "1 VM left")).await.unwrap();
    clusterctl.run(["move", "-n", "g1", "--to-kubeconfig", &kubeconfig]).await.unwrap();
    // A Machine that was being deleted is an ordinary Machine after a move, so it is deleted again.
    wait_going(&to, &plan, &going).await.unwrap();
    wait_looks(&to, 3).await.unwrap();
    assert_eq!(maas.mutations().len(), before, "{:#?}", &maas.mutations()[before..]);
    assert!(from.objects(&plan, "MaasMachine").unwrap().list().await.unwrap().is_empty());

    let recorder = Recorder::start(&to, &[&plan]).unwrap();
    annotate(&to, &plan, "Machine", &going, (HOOK, None)).await.unwrap();
    wait_left(&to, &plan, &host).await.unwrap();
    wait_said(&to, &hosts, ("MaasMachine", &object), ("Evacuated", "and is empty")).await.unwrap();
    to.wait_running(&plan, &expected).await.unwrap();
    assert_eq!(recorder.end().await.unwrap(), BTreeMap::from([("g1".to_owned(), 1)]));

    // The new manager knows that the tag is one of ours.
    to.plugin(&["maintenance", "stop", &host, "-n", "hosts"]).await.unwrap();
    wait_said(&to, &hosts, ("MaasMachine", &object), ("NotEvacuating", "")).await.unwrap();
    assert!(!maas.host_tags(&host).unwrap().contains(&TAG.to_owned()));
    to.objects(&plan, "Cluster").unwrap().delete("g1").await.unwrap();
    to.wait_gone(&plan).await.unwrap();
    to.delete(&hosts).await.unwrap();
    from.stop().await;
    to.stop().await;
}
