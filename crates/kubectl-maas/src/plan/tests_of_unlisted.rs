//! What is answered where MAAS, or the inventory, does not list machines that Kubernetes has.
#![allow(clippy::unwrap_used)]

use serde_json::json;

use super::tests::{changed, manifests, running};
use super::*;
use crate::inventory::{Inventory, view};

fn now() -> Timestamp {
    "2026-11-15T09:00:00Z".parse().unwrap()
}

/// Two LXD hosts and no machines, as a user who is no administrator sees them: their VMs are somebody else's.
fn hosts_only(cores: i64) -> forecast::Inventory {
    let hosts = format!(
        "
machines: [{{hostname: spare, cpu_count: 8, memory: 16384}}]
lxd:
- {{address: '192.0.2.1:8443', cores: {cores}, memory: 65536, storage_pools: [{{name: default, total: 900000000000}}]}}
- {{address: '192.0.2.2:8443', cores: {cores}, memory: 65536, storage_pools: [{{name: default, total: 900000000000}}]}}
vm_hosts:
- {{name: h1, power_address: '192.0.2.1:8443', zone: az1}}
- {{name: h2, power_address: '192.0.2.2:8443', zone: az2}}
"
    );
    view(&Inventory::parse(&hosts).unwrap())
}

/// The cluster that runs, with its control plane as VMs: one on h1, two on h2.
fn vms() -> Objects {
    changed(&running(), |object| match object["kind"].as_str().unwrap() {
        "MaasMachine" => {
            let host = if object["metadata"]["name"] == "cp-1" { "h1" } else { "h2" };
            object["status"]["lxdHost"] = json!(host);
        }
        "MaasMachineTemplate" if object["metadata"]["name"] == "cp" => {
            object["spec"]["template"]["spec"]["provisioningMode"] = json!("lxd");
        }
        "MaasCluster" => object["spec"]["failureDomains"] = json!([]),
        "MachineDeployment" => object["spec"]["replicas"] = json!(0),
        _ => {}
    })
}

/// Another cluster, c2, that is to get two VMs.
fn another() -> Objects {
    let text =
        manifests("v1beta2").replace("c1", "c2").replace("md-0", "md-2").replace("\"replicas\":3", "\"replicas\":0");
    Objects::parse(&text, "default").unwrap()
}

fn ask(inventory: &forecast::Inventory, objects: &Objects, question: &Question) -> Answer {
    answer(inventory, desired(objects), question, now()).unwrap()
}

#[test]
fn a_host_takes_the_vms_with_it_that_the_key_does_not_show() {
    let lose = |objects: &Objects, host: &str| {
        let question = Question { without: vec![host.to_owned()], ..Question::default() };
        to_json(&ask(&hosts_only(64), objects, &question))
    };
    let one = lose(&vms(), "h1");
    assert_eq!((&one["impacts"][0]["lostControlPlanes"], &one["fits"]), (&json!(["cp-1"]), &json!(null)), "{one:#}");
    assert!(one["notes"].to_string().contains("does not show cp-1, cp-2, cp-3; use an administrator's key"), "{one:#}");
    let two = lose(&vms(), "h2");
    assert_eq!((&two["impacts"][0]["fate"], &two["fits"]), (&json!("loses quorum"), &json!(false)), "{two:#}");
    // Where not even an object names the host, anything may be lost.
    let anywhere = changed(&vms(), |object| {
        if object["kind"] == "MaasMachine" {
            object["status"]["lxdHost"] = json!(null);
        }
    });
    let unknown = lose(&anywhere, "h1");
    assert_eq!((&unknown["impacts"][0]["lostControlPlanes"], &unknown["fits"]), (&json!([]), &json!(null)));
}

#[test]
fn a_roll_out_of_machines_that_are_not_listed_neither_fits_nor_does_not() {
    let in_place = changed(&vms(), |object| {
        if object["kind"] == "KubeadmControlPlane" {
            object["spec"]["rollout"] = json!({"strategy": {"rollingUpdate": {"maxSurge": 0}}});
        }
    });
    let upgrade = Question { upgrade: true, ..Question::default() };
    for cores in [64, 4] {
        let rolled = ask(&hosts_only(cores), &in_place, &upgrade);
        assert_eq!((rolled.forecast.fits(), rolled.fits()), (cores == 64, None), "{}", render(&rolled, false));
        assert_eq!(
            render(&rolled, false).contains("Missing, unless machines that are not listed leave it:"),
            cores == 4
        );
    }
    // Nothing goes before the first new one has come, so what is missing is missing.
    let stuck = ask(&hosts_only(2), &vms(), &upgrade);
    assert_eq!(stuck.fits(), Some(false), "{}", render(&stuck, false));
    // Nobody asks about that cluster.
    let question = Question { clusters: vec!["c2".into()], ..Question::default() };
    let asked = ask(&hosts_only(64), &vms().overlaid(&another()), &question);
    assert_eq!(asked.fits(), Some(true), "{}", render(&asked, false));
}

#[test]
fn an_lxd_host_that_is_rolled_has_vms_although_maas_lists_none() {
    let inventory = "
machines:
- {hostname: a, zone: az1, cpu_count: 8, memory: 16384, status: Deployed, owner: x}
- {hostname: b, zone: az2, cpu_count: 8, memory: 16384, status: Deployed, owner: x}
- {hostname: c, zone: az1, cpu_count: 8, memory: 16384, status: Deployed, owner: x}
- {hostname: spare, zone: az1, cpu_count: 8, memory: 16384}
lxd: [{address: '192.0.2.1:8443', cores: 8, memory: 65536, host: a}]
vm_hosts: [{name: h1, power_address: '192.0.2.1:8443', zone: az1}]
";
    let inventory = view(&Inventory::parse(inventory).unwrap());
    let worker = json!({"kind": "Machine", "metadata": {"name": "w", "labels": {"cluster.x-k8s.io/deployment-name": "md-0"}},
        "spec": {"clusterName": "c1", "infrastructureRef": {"kind": "MaasMachine", "name": "w"}}});
    let object = json!({"apiVersion": "infrastructure.cluster.x-k8s.io/v1beta1", "kind": "MaasMachine", "metadata": {"name": "w"},
        "spec": {"image": "jammy", "providerID": "maas-lxd://az1/hidden"}, "status": {"lxdHost": "h1"}});
    let worker = Objects::parse(&format!("{worker}\n---\n{object}"), "default").unwrap();
    let objects = changed(&running().overlaid(&worker), |object| match object["kind"].as_str().unwrap() {
        "MachineDeployment" => object["spec"]["replicas"] = json!(1),
        "MaasCluster" => object["spec"]["failureDomains"] = json!([]),
        "KubeadmControlPlane" => object["spec"]["version"] = json!("v1.37.0"),
        _ => {}
    });
    let rolled = ask(&inventory, &objects, &Question::default());
    assert!(rolled.forecast.fits() && rolled.fits().is_none(), "{}", render(&rolled, false));
    assert!(render(&rolled, false).contains("its VM is replaced on another host first"), "{}", render(&rolled, false));
}

#[test]
fn a_cluster_that_nobody_asks_about_still_gets_the_machines_it_lacks() {
    let question = Question { clusters: vec!["c1".into()], ..Question::default() };
    let asked = ask(&super::tests::inventory(), &running().overlaid(&another()), &question);
    let vms = |group: &str| asked.forecast.steps.iter().filter(|step| step.group == group).count();
    assert_eq!((vms("md-0"), vms("md-2")), (2, 2), "{}", render(&asked, false));
}

#[test]
fn a_machine_of_a_file_that_belongs_to_no_group_is_not_planned() {
    let alone = "kind: Machine\nmetadata: {name: alone}\nspec: {clusterName: c1, infrastructureRef: {kind: MaasMachine, name: m}}\n";
    let alone = Objects::parse(alone, "default").unwrap();
    let told = |file: &Objects| desired(&running().overlaid(file)).unplanned;
    let unplanned = told(&alone);
    assert_eq!(unplanned.len(), 1, "{unplanned:?}");
    assert!(unplanned[0].why.contains("the Machine alone is not planned"), "{unplanned:?}");
    assert_eq!(unplanned[0].cluster, "default/c1");
    let members = changed(&running(), |_| {});
    assert!(told(&members).is_empty(), "they belong to the control plane");
}

#[test]
fn what_cluster_api_skips_or_pauses_is_not_replaced() {
    let inventory = super::tests::inventory();
    let fate = |of: &dyn Fn(&mut serde_json::Value)| {
        let question = Question { without: vec!["a".into()], ..Question::default() };
        let told = to_json(&ask(&inventory, &changed(&running(), of), &question));
        told["impacts"][0]["why"].as_str().unwrap().to_owned()
    };
    let covered = fate(&|_| {});
    assert!(!covered.contains("MachineHealthCheck replaces cp-1"), "{covered}");
    let annotate = |kind: &str, name: &str, annotation: &str| {
        fate(&|object| {
            if object["kind"] == kind && object["metadata"]["name"] == name {
                object["metadata"]["annotations"] = json!({annotation: ""});
            }
        })
    };
    for why in [
        annotate("Machine", "cp-1", "cluster.x-k8s.io/skip-remediation"),
        annotate("Machine", "cp-1", "cluster.x-k8s.io/paused"),
        annotate("MachineHealthCheck", "mhc", "cluster.x-k8s.io/paused"),
        fate(&|object| {
            if object["kind"] == "Cluster" {
                object["spec"]["paused"] = json!(true);
            }
        }),
    ] {
        assert_eq!(why, "no MachineHealthCheck replaces cp-1");
    }
}
