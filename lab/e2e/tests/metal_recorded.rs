//! Every recorded stage of the Go provider is taken over (S24): releases v0.9 and v4.6, including its stuck deletions.
//! In MAAS only stamps are added to running machines.
#![allow(clippy::unwrap_used, clippy::expect_used, clippy::panic)]

use std::collections::{BTreeMap, BTreeSet};

use anyhow::ensure;
use capmaas_e2e::cluster::ClusterPlan;
use capmaas_e2e::go_provider::{CONTROL_PLANE, put_cluster, put_machine, recorded};
use capmaas_e2e::maas::{DOMAIN, USER, ZONES};
use capmaas_e2e::scene::Scene;
use capmaas_e2e::{eventually, install_crds};
use capmaas_testbed::CapiVersion;
use serde_json::{Value, json};

/// What distinguishes the stages of a recorded machine: everything that a manager could act on.
fn stage(revision: &Value) -> String {
    let is = |pointer: &str| revision.pointer(pointer).is_some();
    let value = |pointer: &str| revision.pointer(pointer).cloned().unwrap_or_default();
    json!([
        revision["metadata"]["name"],
        value("/metadata/finalizers"),
        is("/metadata/deletionTimestamp"),
        is("/spec/systemID"),
        is("/spec/providerID"),
        value("/status/machineState"),
        value("/status/machinePowered"),
    ])
    .to_string()
}

/// One revision for each stage of the metal machines.
fn stages() -> Vec<Value> {
    let mut seen = BTreeSet::new();
    let mut all = recorded("go-provider-v0.9/maasmachines.yaml").unwrap();
    // The second worker went through the same stages as the first, and so did the second host.
    let wanted = ["c1-cp-s7qmw", "c1-md-g9hvt-knskd", "c3-host", "c5-x"];
    all.retain(|revision| wanted.iter().any(|name| revision["metadata"]["name"] == *name));
    all.retain(|revision| seen.insert(stage(revision)));
    all
}

struct Placed {
    name: String,
    deleting: bool,
    control_plane: bool,
    /// The machine that it was recorded with.
    id: Option<String>,
}

/// Machines for all of them, and as many for those that have none yet.
fn make_machines(scene: &Scene, count: usize) {
    let machine = |index: usize| {
        let zone = ZONES[index % ZONES.len()];
        json!({"machine": {"hostname": format!("go{index:02}"), "zone": zone, "cpu_count": 8, "memory": 16384}})
    };
    scene.maas.arrange((0..count).map(machine).collect()).unwrap();
    scene.maas.arrange(json!([{"image": {"name": "ubuntu/jammy"}}, {"image": {"name": "custom/jammy"}}])).unwrap();
}

#[tokio::test]
async fn s24_every_recorded_stage_of_release_0_9_is_carried_on_with_nothing_but_stamps_on_what_runs() {
    let mut scene = Scene::without_manager(CapiVersion::V1_14).await.unwrap();
    install_crds(&scene.testbed).await.unwrap();
    let stages = stages();
    assert!(stages.len() > 25, "only {} stages were recorded", stages.len());
    make_machines(&scene, stages.len() * 2);
    let plan = ClusterPlan::new(scene.core, "c1");
    let fqdn = format!("c1-67ca6e.{DOMAIN}");
    let spec = json!({"dnsDomain": DOMAIN, "controlPlaneEndpoint": {"host": fqdn, "port": 6443}});
    let status = json!({"ready": true, "initialization": {"provisioned": true}, "network": {"dnsName": fqdn}});
    put_cluster(&scene, &plan, spec, status).await.unwrap();

    let free: Vec<_> = scene.maas.machines().into_iter().filter(|machine| machine.hostname.starts_with("go")).collect();
    let mut placed = Vec::new();
    for (index, (revision, machine)) in stages.iter().zip(&free).enumerate() {
        let metadata = &revision["metadata"];
        let name = format!("{}-{index:02}", metadata["name"].as_str().unwrap());
        put_machine(&scene, &plan, &name, revision, machine).await.unwrap();
        placed.push(Placed {
            name,
            deleting: metadata["deletionTimestamp"].is_string(),
            control_plane: metadata["labels"].get(CONTROL_PLANE).is_some(),
            id: revision["spec"]["providerID"].is_string().then(|| machine.system_id.clone()),
        });
    }
    // The record contains every running control-plane machine, as the Go provider maintains it. One that it was
    // deleting had already been released.
    let going = placed.iter().rfind(|machine| machine.deleting && machine.control_plane).unwrap();
    scene.maas.arrange(json!([{"machine": {"system_id": going.id, "status": "Ready"}}])).unwrap();
    let of_control_planes: BTreeSet<&String> =
        placed.iter().filter(|machine| machine.control_plane).filter_map(|machine| machine.id.as_ref()).collect();
    let deployed = scene.maas.taken().into_iter().filter(|machine| machine.status == "Deployed");
    let addresses: Vec<_> = deployed
        .filter(|machine| of_control_planes.contains(&machine.system_id))
        .flat_map(|machine| machine.addresses)
        .collect();
    scene.maas.arrange(json!([{"dns": {"fqdn": fqdn, "ip_addresses": addresses}}])).unwrap();

    scene.start_manager().await.unwrap();
    let maas_machines = scene.objects(&plan, "MaasMachine").unwrap();
    // What the Go provider was deleting is deleted completely, whichever of its finalizers it had.
    for machine in placed.iter().filter(|machine| machine.deleting) {
        let gone = eventually("a deletion under way ends", || async {
            ensure!(maas_machines.get(&machine.name).await.is_err(), "{} is still there", machine.name);
            Ok(())
        });
        scene.explain(gone.await).await.unwrap();
    }
    // MAAS completes the deployments in progress.
    let ids: Vec<&String> = placed.iter().filter(|machine| !machine.deleting).filter_map(|m| m.id.as_ref()).collect();
    let end = |id: &&String| json!({"machine": {"system_id": id, "status": "Deployed", "owner": USER}});
    scene.maas.arrange(ids.iter().map(end).collect()).unwrap();
    let living: Vec<&Placed> = placed.iter().filter(|machine| !machine.deleting).collect();
    for machine in &living {
        let ready = maas_machines.wait(&machine.name, "/status/initialization/provisioned", json!(true));
        scene.explain(ready.await).await.unwrap();
        let found = maas_machines.get(&machine.name).await.unwrap();
        if let Some(id) = &machine.id {
            let provider_id = found["spec"]["providerID"].as_str().unwrap();
            assert!(provider_id.starts_with("maas:///") && provider_id.ends_with(id), "{provider_id}");
        }
    }

    // MAAS received nothing about the running machines but one stamp each.
    let mut asked: BTreeMap<String, Vec<String>> = BTreeMap::new();
    for entry in scene.maas.mutations() {
        let Some(id) = entry.machine.filter(|id| ids.contains(&id)) else { continue };
        asked.entry(id).or_default().push(entry.kind);
    }
    let stamp = vec!["machine.set_workload_annotations".to_owned()];
    assert!(asked.values().all(|kinds| *kinds == stamp), "{asked:#?}");
    // Those that had no machine got one each.
    let without = living.iter().filter(|machine| machine.id.is_none()).count();
    assert_eq!((scene.maas.effective("allocate"), scene.maas.effective("deploy")), (without, without));
    assert_eq!(scene.maas.taken().len(), living.len());

    scene.objects(&plan, "Cluster").unwrap().delete("c1").await.unwrap();
    scene.wait_gone(&plan).await.unwrap();
    assert!(scene.maas.taken().is_empty(), "{:?}", scene.maas.taken());
    scene.stop().await;
}

#[tokio::test]
async fn s24_the_shapes_of_release_4_6_are_taken_over_and_the_endpoint_of_the_user_stays_his() {
    let mut scene = Scene::without_manager(CapiVersion::V1_14).await.unwrap();
    install_crds(&scene.testbed).await.unwrap();
    make_machines(&scene, 2);
    scene.maas.arrange(json!([{"pool": {"name": "pool-a"}}, {"tag": {"name": "ssd"}}])).unwrap();
    let plan = ClusterPlan::new(scene.core, "old-cluster");
    let objects = recorded("go-provider-schemas/v4.6.yaml").unwrap();
    let cluster = objects.iter().find(|object| object["kind"] == "MaasCluster").unwrap();
    put_cluster(&scene, &plan, cluster["spec"].clone(), cluster["status"].clone()).await.unwrap();
    let annotations = json!({"metadata": {"annotations": cluster["metadata"]["annotations"]}});
    let maas_clusters = scene.objects(&plan, "MaasCluster").unwrap();
    maas_clusters.merge("old-cluster", annotations).await.unwrap();
    let free = scene.maas.machines();
    let running = objects.iter().find(|object| object["metadata"]["name"] == "old-machine").unwrap();
    put_machine(&scene, &plan, "old-machine", running, &free[0]).await.unwrap();

    scene.start_manager().await.unwrap();
    let maas_machines = scene.objects(&plan, "MaasMachine").unwrap();
    let taken_over = maas_machines.wait("old-machine", "/status/initialization/provisioned", json!(true));
    scene.explain(taken_over.await).await.unwrap();
    let ready = maas_clusters.wait("old-cluster", "/status/initialization/provisioned", json!(true));
    scene.explain(ready.await).await.unwrap();
    // This core reads a list where the old one read a map.
    let domains = maas_clusters.get("old-cluster").await.unwrap()["status"]["failureDomains"].clone();
    assert!(domains.is_array(), "{domains}");
    let cluster = scene.objects(&plan, "Cluster").unwrap().get("old-cluster").await.unwrap();
    assert_eq!(cluster["spec"]["controlPlaneEndpoint"], json!({"host": "api.example.com", "port": 8443}));
    let kinds: Vec<String> = scene.maas.mutations().into_iter().map(|entry| entry.kind).collect();
    assert_eq!(kinds, ["machine.set_workload_annotations"]);
    assert!(scene.maas.records().is_empty(), "{:?}", scene.maas.records());

    scene.delete(&plan).await.unwrap();
    scene.stop().await;
}

/// The Go provider waits forever if a MaasCluster is deleted before its control-plane machine: each waits for the
/// other.
#[tokio::test]
async fn s24_a_cluster_and_a_control_plane_that_waited_for_each_other_under_the_go_provider_both_go() {
    let mut scene = Scene::without_manager(CapiVersion::V1_14).await.unwrap();
    install_crds(&scene.testbed).await.unwrap();
    make_machines(&scene, 1);
    let plan = ClusterPlan::new(scene.core, "c3");
    let clusters = recorded("go-provider-v0.9/maasclusters.yaml").unwrap();
    let last = clusters.iter().rfind(|object| object["metadata"]["name"] == "c3").unwrap();
    let mut spec = last["spec"].clone();
    spec["dnsDomain"] = json!(DOMAIN);
    let fqdn = spec["controlPlaneEndpoint"]["host"].as_str().unwrap().to_owned();
    put_cluster(&scene, &plan, spec, last["status"].clone()).await.unwrap();
    let machines = recorded("go-provider-v0.9/maasmachines.yaml").unwrap();
    let stuck = machines
        .iter()
        .find(|object| object["metadata"]["name"] == "c3-host" && object["metadata"]["deletionTimestamp"].is_string());
    let machine = scene.maas.machines().remove(0);
    put_machine(&scene, &plan, "c3-host", stuck.unwrap(), &machine).await.unwrap();
    let address = scene.maas.taken()[0].addresses[0];
    scene.maas.arrange(json!([{"dns": {"fqdn": fqdn, "ip_addresses": [address]}}])).unwrap();
    scene.objects(&plan, "MaasCluster").unwrap().delete("c3").await.unwrap();
    scene.objects(&plan, "Cluster").unwrap().delete("c3").await.unwrap();

    scene.start_manager().await.unwrap();
    scene.wait_gone(&plan).await.unwrap();
    assert!(scene.maas.taken().is_empty(), "{:?}", scene.maas.taken());
    // We did not create the record: it stays, without addresses (S18).
    assert_eq!(scene.maas.records().into_values().flatten().count(), 0);
    scene.stop().await;
}
