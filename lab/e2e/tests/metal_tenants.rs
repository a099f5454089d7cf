//! Two managers, each for one namespace, each with its own MAAS user.
#![allow(clippy::unwrap_used, clippy::expect_used, clippy::panic)]

use std::collections::BTreeSet;

use capmaas_e2e::cluster::ClusterPlan;
use capmaas_e2e::maas::USER;
use capmaas_e2e::tenants::{SECOND_USER, TEAMS, two_managers};
use capmaas_testbed::CapiVersion;

#[tokio::test]
async fn two_managers_for_two_namespaces_leave_each_others_clusters_alone() {
    let scene = two_managers(CapiVersion::V1_14).await.unwrap();
    let plan = |namespace: &str, name: &str| ClusterPlan {
        namespace: namespace.into(),
        ..ClusterPlan::new(CapiVersion::V1_14, name)
    };
    let (a, b) = (plan(TEAMS[0], "a1"), plan(TEAMS[1], "b1"));
    let (expected_a, expected_b) = (scene.create(&a).await.unwrap(), scene.create(&b).await.unwrap());
    scene.wait_running(&a, &expected_a).await.unwrap();
    scene.wait_running(&b, &expected_b).await.unwrap();
    let owners: BTreeSet<Option<String>> = scene.maas.taken().into_iter().map(|machine| machine.owner).collect();
    assert_eq!(owners, BTreeSet::from([Some(USER.to_owned()), Some(SECOND_USER.to_owned())]));

    scene.objects(&a, "Cluster").unwrap().delete("a1").await.unwrap();
    scene.wait_gone(&a).await.unwrap();
    assert_eq!(scene.maas.taken().len(), 1, "{:?}", scene.maas.taken());
    scene.delete(&b).await.unwrap();
    scene.stop().await;
}
