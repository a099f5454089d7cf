//! Maintenance of an LXD host whose VMs really boot: members of a stacked etcd leave it, one at a time.
#![allow(clippy::unwrap_used, clippy::expect_used, clippy::panic)]

use std::time::Instant;

use capmaas_e2e::cluster::ClusterPlan;
use capmaas_e2e::maintenance::{TAG, hosts_of, wait_left};
use capmaas_e2e::real_nodes::{Flavor, RealScene};
use capmaas_e2e::recorder::Recorder;
use serde_json::json;

#[tokio::test]
async fn s30_stacked_etcd_on_vms_leaves_a_host_in_maintenance_one_member_at_a_time() {
    let real = RealScene::start().await.unwrap();
    // One host in each zone, and one more in the zone of the host that is to be emptied.
    real.scene.maas.add_hosts(1).unwrap();
    real.scene.maas.add_host("host-az1-2", "az1", "default").unwrap();
    let account = "--as=system:serviceaccount:capmaas-system:capmaas-manager";
    let may_evacuate =
        real.scene.testbed.kubectl(["auth", "can-i", "delete", "machines.cluster.x-k8s.io", "-A", account]);
    assert_eq!(may_evacuate.await.unwrap().trim(), "yes", "the release lets the manager evacuate hosts");

    let flavor = Flavor { name: "lxd", ..Flavor::default() };
    let mut objects = real.generate_of(&flavor, "c1", 3, 1).await.unwrap();
    let workers = objects.iter_mut().find(|object| object["kind"] == "MachineDeployment").unwrap();
    // Else the worker would stay on the host until somebody rolls it out.
    workers["spec"]["rollout"]["strategy"] = json!({"type": "RollingUpdate", "rollingUpdate": {"maxUnavailable": 1}});
    real.bring_up("c1", objects, 4).await.unwrap();
    real.wait_members("c1", 3).await.unwrap();
    real.run_a_workload("c1").await.unwrap();

    let plan = ClusterPlan { control_planes: 3, workers: 1, ..ClusterPlan::new(real.scene.core, "c1") };
    // A control plane is in each zone. The host that is emptied is in the one that has another host.
    let host = hosts_of(&real.scene, &plan).await.unwrap().pop_first().unwrap();
    assert!(host.starts_with("host-az1-"), "{:?}", real.scene.maas.vms());
    let (recorder, start) = (Recorder::start(&real.scene, &[&plan]).unwrap(), Instant::now());
    let fewest = real.fewest_control_planes("c1", async {
        real.scene.maas.arrange(json!([{"machine": {"hostname": host, "tags": [TAG]}}])).unwrap();
        wait_left(&real.scene, &plan, &host).await.unwrap();
        real.wait_ready("c1", 4).await.unwrap();
        real.wait_members("c1", 3).await.unwrap();
    });
    assert_eq!(fewest.await, Some(2), "Ready control planes at the least");
    assert_eq!(recorder.end().await.unwrap().get("c1"), Some(&1), "what the control plane missed at the same time");
    println!("{host} is empty after {} s", start.elapsed().as_secs());
    let vms = real.scene.maas.vms();
    assert_eq!((vms.len(), vms.iter().filter(|vm| vm.host == host).count()), (4, 0), "{vms:?}");
    real.run_a_workload("c1").await.unwrap();
    real.delete("c1").await.unwrap();
    real.stop().await;
}
