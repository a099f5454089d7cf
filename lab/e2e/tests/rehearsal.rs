//! A rehearsal of a user's data centre: its MAAS is exported, a plan is made from the file, a MAAS is started from the
//! file, and the cluster that our manager creates there has the machines that the plan named.
#![allow(clippy::unwrap_used, clippy::expect_used, clippy::panic)]

use std::sync::Arc;

use capmaas_e2e::cluster::ClusterPlan;
use capmaas_e2e::lxd_hosts::vm;
use capmaas_e2e::maas::{API_KEY, Maas, ZONES};
use capmaas_e2e::program;
use capmaas_e2e::scene::Scene;
use capmaas_testbed::CapiVersion;
use serde_json::{Value, json};

async fn plugin(arguments: &[&str], maas: &Maas) -> String {
    let output = tokio::process::Command::new(program("kubectl-maas").unwrap())
        .args(arguments)
        .env("KUBECONFIG", "/dev/null")
        .env("MAAS_ENDPOINT", &maas.endpoint)
        .env("MAAS_API_KEY", API_KEY)
        .output()
        .await
        .unwrap();
    assert!(output.status.success(), "{}", String::from_utf8_lossy(&output.stderr));
    String::from_utf8(output.stdout).unwrap()
}

#[tokio::test]
async fn a_cluster_on_an_exported_inventory_gets_what_the_plan_named() {
    let original = Maas::start().unwrap();
    original.add_hosts(1).unwrap();
    original
        .arrange(json!([
            {"machine": {"hostname": "m02", "tags": ["storage"], "cpu_count": 16}},
            {"machine": {"hostname": "m03", "tags": ["storage"]}},
            {"machine": {"hostname": "m05", "tags": ["storage"], "status": "Broken"}},
            {"machine": {"hostname": "m08", "tags": ["storage"], "memory": 65536}},
        ]))
        .unwrap();
    let exported = plugin(&["export"], &original).await;
    assert!(!exported.contains("127.") && !exported.contains("CANARY"), "{exported}");
    let folder = tempfile::tempdir().unwrap();
    let (site, manifests) = (folder.path().join("site.yaml"), folder.path().join("cluster.yaml"));
    std::fs::write(&site, &exported).unwrap();

    let maas = Arc::new(Maas::rehearsal(&exported).unwrap());
    let scene = Scene::before(CapiVersion::V1_14, maas).await.unwrap();
    let expected = scene.expect_cluster().await.unwrap();
    let wanted = ClusterPlan {
        control_planes: 3,
        workers: 2,
        infrastructure: json!({"failureDomains": ZONES}),
        machine: vm(),
        worker: Some(json!({"minCPU": 4, "minMemory": 8192, "tags": ["storage"]})),
        // That of m02, m05 and m08, not of m03.
        failure_domain: Some(ZONES[1].into()),
        ..ClusterPlan::new(scene.core, "c1")
    };
    let text: Vec<String> = wanted.objects(&expected).iter().map(Value::to_string).collect();
    std::fs::write(&manifests, text.join("\n---\n")).unwrap();
    let arguments = ["plan", "--json", "--inventory", site.to_str().unwrap(), "-f", manifests.to_str().unwrap()];
    let planned: Value = serde_json::from_str(&plugin(&arguments, &original).await).unwrap();
    let live: Value =
        serde_json::from_str(&plugin(&["plan", "--json", "-f", manifests.to_str().unwrap()], &original).await).unwrap();
    assert_eq!(planned["steps"], live["steps"], "the file and the MAAS that it came from");

    let plan = ClusterPlan::like(&std::fs::read_to_string(&manifests).unwrap(), scene.core).unwrap();
    assert_eq!((plan.control_planes, plan.workers, &plan.infrastructure), (3, 2, &wanted.infrastructure));
    assert_eq!(plan.failure_domain, wanted.failure_domain);
    scene.testbed.apply_objects(plan.objects(&expected)).await.unwrap();
    scene.wait_running(&plan, &expected).await.unwrap();
    let steps = planned["steps"].as_array().unwrap();
    // As many times as the plan names them.
    let sorted = |mut names: Vec<String>| {
        names.sort();
        names
    };
    let named = |pointer: &str| {
        sorted(steps.iter().filter_map(|step| Some(step.pointer(pointer)?.as_str()?.to_owned())).collect())
    };
    let vms = scene.maas.vms();
    assert_eq!(named("/vm/host"), sorted(vms.iter().map(|vm| vm.host.clone()).collect()));
    let is_vm = |id: &String| vms.iter().any(|vm| vm.system_id == *id);
    let workers = scene.maas.taken().into_iter().filter(|machine| !is_vm(&machine.system_id));
    let (ids, zones): (Vec<_>, Vec<_>) = workers.map(|machine| (machine.system_id, machine.zone)).unzip();
    assert_eq!(named("/metal/systemID"), sorted(ids));
    assert_eq!(zones, [ZONES[1]; 2]);
    scene.objects(&plan, "Cluster").unwrap().delete(&plan.name).await.unwrap();
    scene.wait_gone(&plan).await.unwrap();
    scene.stop().await;
}
