//! Addresses of VMs on real components: fixed ones, one per machine of a template, one that is already taken; an
//! endpoint provided by the user.
#![allow(clippy::unwrap_used, clippy::expect_used, clippy::panic)]

use std::collections::BTreeSet;
use std::net::IpAddr;

use anyhow::ensure;
use capmaas_e2e::cluster::ClusterPlan;
use capmaas_e2e::eventually;
use capmaas_e2e::lxd_hosts::vm;
use capmaas_e2e::scene::Scene;
use capmaas_testbed::CapiVersion;
use serde_json::{Value, json};

fn vm_with(field: &str, value: Value) -> Value {
    let mut spec = vm();
    spec[field] = value;
    spec
}

/// An address of the machines' network outside every range.
fn free_address(scene: &Scene, last: u8) -> IpAddr {
    let network = scene.maas.control().with_model(|model| {
        let mut cidrs = model.db.subnets.values().map(|subnet| subnet.cidr.to_string());
        cidrs.find(|cidr| cidr.starts_with("127.")).unwrap_or_default()
    });
    let network = network.split('.').nth(1).unwrap().to_owned();
    format!("127.{network}.77.{last}").parse().unwrap()
}

#[tokio::test]
async fn a_literal_address_is_kept_by_the_first_and_refused_to_the_second_with_a_sentence() {
    let scene = Scene::start(CapiVersion::V1_14).await.unwrap();
    scene.maas.add_hosts(1).unwrap();
    let address = free_address(&scene, 10);
    let plan = |name: &str| ClusterPlan {
        machine: vm_with("staticIP", json!(address)),
        ..ClusterPlan::new(CapiVersion::V1_14, name)
    };
    let (first, second) = (plan("c1"), ClusterPlan { namespace: "other".into(), ..plan("c2") });
    let expected = scene.create(&first).await.unwrap();
    scene.wait_running(&first, &expected).await.unwrap();
    let vms = scene.maas.vms();
    assert_eq!(vms.iter().flat_map(|vm| vm.addresses.clone()).collect::<Vec<_>>(), [address]);
    assert_eq!(scene.maas.records().into_values().flatten().collect::<Vec<_>>(), [address]);

    let namespace = json!({"apiVersion": "v1", "kind": "Namespace", "metadata": {"name": "other"}});
    scene.testbed.apply_objects(vec![namespace]).await.unwrap();
    scene.create(&second).await.unwrap();
    let machines = scene.objects(&second, "MaasMachine").unwrap();
    let said = eventually("the second says who holds the address", || async {
        let all = machines.list().await?;
        let text = all.first().map(|machine| machine["status"]["conditions"].to_string()).unwrap_or_default();
        ensure!(text.contains(&address.to_string()), "{text}");
        Ok(())
    });
    scene.explain(said.await).await.unwrap();
    let holders = scene.maas.vms().into_iter().filter(|vm| vm.addresses.contains(&address)).count();
    assert_eq!(holders, 1);
    scene.objects(&second, "Cluster").unwrap().delete("c2").await.unwrap();
    scene.wait_gone(&second).await.unwrap();
    scene.delete(&first).await.unwrap();
    scene.stop().await;
}

#[tokio::test]
async fn three_from_one_template_each_keep_an_address_of_their_own() {
    let scene = Scene::start(CapiVersion::V1_14).await.unwrap();
    scene.maas.add_hosts(1).unwrap();
    let links = json!({"enabled": true, "vmConfig": {"interfaceLinkModes": {"eth0": "static"}}});
    let mut machine = vm_with("lxd", links);
    machine.as_object_mut().unwrap().remove("dynamicLXD");
    let plan = ClusterPlan { control_planes: 3, machine, ..ClusterPlan::new(scene.core, "c1") };
    let expected = scene.create(&plan).await.unwrap();
    scene.wait_running(&plan, &expected).await.unwrap();
    let addresses: BTreeSet<IpAddr> = scene.maas.vms().into_iter().flat_map(|vm| vm.addresses).collect();
    assert_eq!(addresses.len(), 3, "{addresses:?}");
    let fixed = scene.maas.control().with_model(|model| {
        use maas_sim::model::db::AllocType;
        let sticky = model.db.addresses.values().filter(|row| row.alloc == AllocType::Sticky);
        sticky.filter_map(|row| row.ip).collect::<BTreeSet<_>>()
    });
    assert!(addresses.is_subset(&fixed), "{addresses:?} are not all among the fixed ones {fixed:?}");
    scene.delete(&plan).await.unwrap();
    scene.stop().await;
}

#[tokio::test]
async fn an_endpoint_of_the_user_holds_for_vms_too() {
    let scene = Scene::start(CapiVersion::V1_14).await.unwrap();
    scene.maas.add_hosts(1).unwrap();
    scene.maas.arrange(json!([{"domain": {"name": "somewhere.example"}}])).unwrap();
    let expected = scene.expect_cluster().await.unwrap();
    let host = "lb.somewhere.example";
    let plan = ClusterPlan {
        infrastructure: json!({"controlPlaneEndpoint": {"host": host, "port": expected.port}}),
        machine: vm(),
        ..ClusterPlan::new(scene.core, "c1")
    };
    scene.testbed.apply_objects(plan.objects(&expected)).await.unwrap();
    let address = scene.first_address().await.unwrap();
    scene.maas.arrange(json!([{"dns": {"fqdn": host, "ip_addresses": [address]}}])).unwrap();
    scene.wait_running(&plan, &expected).await.unwrap();
    scene.objects(&plan, "Cluster").unwrap().delete("c1").await.unwrap();
    scene.wait_gone(&plan).await.unwrap();
    // MAAS itself deletes a name with the last machine that it resolves to; the record of a user is never touched by us.
    let dns = scene.maas.mutations().into_iter().filter(|entry| entry.kind.starts_with("dnsresource")).count();
    assert_eq!(dns, 0);
    assert!(scene.maas.instances().is_empty(), "{:?}", scene.maas.instances());
    scene.stop().await;
}
