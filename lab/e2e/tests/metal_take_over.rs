//! Objects of the Go provider are taken over as they are (S24): running machines keep running, deletions in progress
//! are completed.
#![allow(clippy::unwrap_used, clippy::expect_used, clippy::panic)]

use capmaas_e2e::cluster::ClusterPlan;
use capmaas_e2e::go_provider::{MACHINE_FINALIZER, put_cluster, put_machine_above};
use capmaas_e2e::install_crds;
use capmaas_e2e::maas::{DOMAIN, USER};
use capmaas_e2e::scene::Scene;
use capmaas_testbed::CapiVersion;
use serde_json::{Value, json};

/// A MaasMachine as the Go provider v0.9 leaves it when its machine is deployed, and the Machine that owns it.
async fn deployed_by_go(scene: &Scene, plan: &ClusterPlan, name: &str, index: usize, control_plane: bool) -> String {
    let machine = scene.maas.machines().remove(index);
    scene
        .maas
        .arrange(json!([{"machine": {"system_id": machine.system_id, "status": "Deployed", "owner": USER}}]))
        .unwrap();
    let machine = scene.maas.machines().remove(index);
    let mut labels = json!({"cluster.x-k8s.io/cluster-name": "c1"});
    if control_plane {
        labels["cluster.x-k8s.io/control-plane"] = json!("");
    }
    let maas_machines = scene.objects(plan, "MaasMachine").unwrap();
    let object = json!({
        "metadata": {"labels": labels, "finalizers": [MACHINE_FINALIZER]},
        "spec": {
            "image": "custom/k8s-v1.35.8", "minCPU": 2, "minMemory": 2048, "deployInMemory": false,
            "failureDomain": machine.zone, "systemID": machine.system_id,
            "providerID": format!("maas:///{}/{}", machine.zone, machine.system_id),
        },
    });
    maas_machines.apply(name, object).await.unwrap();
    let time = "2026-11-15T21:15:10Z";
    let condition = |type_: &str| {
        json!({"type": type_, "status": "True", "reason": type_, "message": "",
                                         "lastTransitionTime": time, "observedGeneration": 1})
    };
    let status = json!({
        "ready": true, "initialization": {"provisioned": true}, "hostname": machine.hostname,
        "machineState": "Deployed", "machinePowered": true, "dnsAttached": control_plane,
        "addresses": [{"type": "ExternalIP", "address": machine.addresses[0]}],
        "conditions": [condition("Ready"), condition("MachineDeployed")],
    });
    maas_machines.apply_status(name, status).await.unwrap();
    put_machine_above(scene, plan, name, &labels).await.unwrap();
    machine.system_id
}

/// A MaasCluster as the Go provider leaves it, and the Cluster API objects that own it.
async fn cluster_of_go(scene: &Scene, plan: &ClusterPlan, fqdn: &str) {
    let spec = json!({"dnsDomain": DOMAIN, "controlPlaneEndpoint": {"host": fqdn, "port": 6443}});
    let status = json!({"ready": true, "initialization": {"provisioned": true}, "network": {"dnsName": fqdn}});
    put_cluster(scene, plan, spec, status).await.unwrap();
}

#[tokio::test]
async fn s24_what_the_go_provider_left_is_taken_over_with_nothing_but_stamps_and_deleted_in_full() {
    let mut scene = Scene::without_manager(CapiVersion::V1_14).await.unwrap();
    install_crds(&scene.testbed).await.unwrap();
    let plan = ClusterPlan::new(scene.core, "c1");
    let fqdn = format!("c1-a1b2c3.{DOMAIN}");

    cluster_of_go(&scene, &plan, &fqdn).await;
    let clusters = scene.objects(&plan, "Cluster").unwrap();
    let mut ids = Vec::new();
    for (index, (name, control_plane)) in
        [("c1-cp", true), ("c1-w", false), ("c1-going", false)].into_iter().enumerate()
    {
        ids.push(deployed_by_go(&scene, &plan, name, index, control_plane).await);
    }
    let address = scene.maas.taken().into_iter().find(|machine| machine.system_id == ids[0]).unwrap().addresses[0];
    scene.maas.arrange(json!([{"dns": {"fqdn": fqdn, "ip_addresses": [address]}}])).unwrap();
    let maas_machines = scene.objects(&plan, "MaasMachine").unwrap();
    let machines = scene.objects(&plan, "Machine").unwrap();
    for name in ["c1-cp", "c1-w", "c1-going"] {
        maas_machines.wait(name, "/metadata/ownerReferences/0/kind", json!("Machine")).await.unwrap();
    }
    // A deletion that the Go provider had started but not completed.
    machines.delete("c1-going").await.unwrap();

    scene.start_manager().await.unwrap();
    for name in ["c1-cp", "c1-w"] {
        let ready = maas_machines.wait_for_condition(name, "Ready", "True");
        scene.explain(ready.await).await.unwrap();
    }
    let gone = capmaas_e2e::eventually("the deletion under way ends", || async {
        anyhow::ensure!(maas_machines.get("c1-going").await.is_err(), "c1-going is still there");
        Ok(())
    });
    scene.explain(gone.await).await.unwrap();
    let others: Vec<Value> = scene
        .maas
        .mutations()
        .iter()
        .filter(|entry| entry.kind != "machine.set_workload_annotations" && entry.machine.as_deref() != Some(&ids[2]))
        .map(|entry| json!([entry.kind, entry.path, entry.effects]))
        .collect();
    assert_eq!(others, Vec::<Value>::new());
    let endpoint = clusters.get("c1").await.unwrap()["spec"]["controlPlaneEndpoint"].clone();
    assert_eq!(endpoint, json!({"host": fqdn, "port": 6443}));

    clusters.delete("c1").await.unwrap();
    scene.wait_gone(&plan).await.unwrap();
    // A record that we did not create stays, empty (S18).
    let records = scene.maas.records();
    assert!(records.values().all(Vec::is_empty), "{records:?}");
    assert!(scene.maas.taken().is_empty(), "{:?}", scene.maas.taken());
    scene.stop().await;
}

#[tokio::test]
async fn s24_machines_that_the_go_provider_had_asked_for_or_was_deploying_are_carried_on() {
    let mut scene = Scene::without_manager(CapiVersion::V1_14).await.unwrap();
    install_crds(&scene.testbed).await.unwrap();
    let plan = ClusterPlan::new(scene.core, "c1");
    cluster_of_go(&scene, &plan, &format!("c1-a1b2c3.{DOMAIN}")).await;
    let labels = json!({"cluster.x-k8s.io/cluster-name": "c1"});
    let maas_machines = scene.objects(&plan, "MaasMachine").unwrap();
    let mut spec = json!({"image": "custom/k8s-v1.35.8", "minCPU": 2, "minMemory": 2048, "deployInMemory": false});
    let metadata = json!({"labels": labels, "finalizers": [MACHINE_FINALIZER]});
    // One that has only its finalizer, and one whose machine is being deployed.
    maas_machines.apply("c1-asked", json!({"metadata": metadata, "spec": spec})).await.unwrap();
    let machine = scene.maas.machines().remove(0);
    scene
        .maas
        .arrange(
            json!([{"machine": {"system_id": machine.system_id, "status": "Deploying", "owner": USER, "power": "on"}}]),
        )
        .unwrap();
    spec["systemID"] = json!(machine.system_id);
    spec["failureDomain"] = json!(machine.zone);
    let id = format!("maas:///{}/{}", machine.zone, machine.system_id);
    spec["providerID"] = json!(id);
    maas_machines.apply("c1-deploying", json!({"metadata": metadata, "spec": spec})).await.unwrap();
    let status = json!({"ready": false, "machineState": "Deploying", "machinePowered": true});
    maas_machines.apply_status("c1-deploying", status).await.unwrap();
    for name in ["c1-asked", "c1-deploying"] {
        put_machine_above(&scene, &plan, name, &labels).await.unwrap();
    }

    scene.start_manager().await.unwrap();
    let asked = maas_machines.wait("c1-asked", "/status/machineState", json!("Deployed"));
    scene.explain(asked.await).await.unwrap();
    // MAAS completes the deployment that was in progress when the Go provider was removed.
    scene
        .maas
        .arrange(json!([{"machine": {"system_id": machine.system_id, "status": "Deployed", "owner": USER}}]))
        .unwrap();
    let deployed = maas_machines.wait("c1-deploying", "/status/initialization/provisioned", json!(true));
    scene.explain(deployed.await).await.unwrap();
    assert_eq!(maas_machines.get("c1-deploying").await.unwrap()["spec"]["providerID"], json!(id));
    assert_eq!((scene.maas.effective("allocate"), scene.maas.effective("deploy")), (1, 1));
    assert_eq!(scene.maas.taken().len(), 2, "{:?}", scene.maas.taken());

    scene.objects(&plan, "Cluster").unwrap().delete("c1").await.unwrap();
    scene.wait_gone(&plan).await.unwrap();
    assert!(scene.maas.taken().is_empty(), "{:?}", scene.maas.taken());
    scene.stop().await;
}
