//! `clusterctl move` between two management clusters, while the machines keep running.
#![allow(clippy::unwrap_used, clippy::expect_used, clippy::panic)]

use std::sync::Arc;

use capmaas_e2e::cluster::ClusterPlan;
use capmaas_e2e::maas::Maas;
use capmaas_e2e::scene::Scene;

#[tokio::test]
async fn s15_a_move_makes_no_change_in_maas_and_the_new_manager_goes_on() {
    let maas = Arc::new(Maas::start().unwrap());
    let (from, clusterctl) = Scene::start_by_clusterctl(maas.clone()).await.unwrap();
    let plan = ClusterPlan { workers: 1, ..ClusterPlan::new(from.core, "c1") };
    let expected = from.create(&plan).await.unwrap();
    from.wait_running(&plan, &expected).await.unwrap();
    let (to, _) = Scene::start_by_clusterctl(maas.clone()).await.unwrap();

    let before = maas.mutations().len();
    let kubeconfig = to.testbed.kubeconfig_path().display().to_string();
    clusterctl.run(["move", "--to-kubeconfig", &kubeconfig]).await.unwrap();
    to.wait_running(&plan, &expected).await.unwrap();
    // Both managers reconcile again; the first one has nothing left to reconcile.
    to.reconcile_again(&plan).await.unwrap();
    assert_eq!(maas.mutations().len(), before, "{:#?}", &maas.mutations()[before..]);
    assert!(from.objects(&plan, "MaasMachine").unwrap().list().await.unwrap().is_empty());

    to.delete(&plan).await.unwrap();
    from.stop().await;
    to.stop().await;
}
