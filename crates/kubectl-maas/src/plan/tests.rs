#![allow(clippy::unwrap_used, clippy::panic)]

use std::fmt::Write as _;

use capmaas_core::forecast::{Action, Role};
use serde_json::json;

use super::*;
use crate::inventory::{Inventory, view};

/// A cluster with three control plane machines on bare metal and two VMs, in either API version.
pub(super) fn manifests(version: &str) -> String {
    let reference = |group: &str, kind: &str, name: &str| match version {
        "v1beta1" => json!({"apiVersion": format!("{group}.cluster.x-k8s.io/v1beta1"), "kind": kind, "name": name}),
        _ => json!({"apiGroup": format!("{group}.cluster.x-k8s.io"), "kind": kind, "name": name}),
    };
    let template = reference("infrastructure", "MaasMachineTemplate", "cp");
    let machine_template = match version {
        "v1beta1" => json!({"infrastructureRef": template}),
        _ => json!({"spec": {"infrastructureRef": template}}),
    };
    let workers = reference("infrastructure", "MaasMachineTemplate", "vm");
    let of = |spec: serde_json::Value| json!({"template": {"spec": spec}});
    let object = |kind: &str, name: &str, spec: serde_json::Value| json!({"kind": kind, "metadata": {"name": name}, "spec": spec});
    let all = [
        object(
            "Cluster",
            "c1",
            json!({
                "controlPlaneRef": reference("controlplane", "KubeadmControlPlane", "c1-cp"),
                "infrastructureRef": reference("infrastructure", "MaasCluster", "c1"),
            }),
        ),
        object("MaasCluster", "c1", json!({"dnsDomain": "maas", "failureDomains": ["az1", "az2"]})),
        object(
            "KubeadmControlPlane",
            "c1-cp",
            json!({"replicas": 3, "version": "v1.36.0", "machineTemplate": machine_template}),
        ),
        object("MaasMachineTemplate", "cp", of(json!({"image": "jammy", "minCPU": 4, "minMemory": 16384}))),
        object(
            "MaasMachineTemplate",
            "vm",
            of(json!({"image": "jammy", "minCPU": 2, "minMemory": 2048, "provisioningMode": "lxd"})),
        ),
        object(
            "MachineDeployment",
            "md-0",
            json!({
                "clusterName": "c1", "replicas": 2,
                "template": {"spec": {"clusterName": "c1", "version": "v1.36.0", "infrastructureRef": workers}},
            }),
        ),
    ];
    all.map(|object| object.to_string()).join("\n---\n")
}

const INVENTORY: &str = "
zones: [{name: az1}, {name: az2}]
machines:
- {hostname: a, zone: az1, cpu_count: 8, memory: 16384}
- {hostname: b, zone: az2, cpu_count: 8, memory: 16384}
- {hostname: c, zone: az1, cpu_count: 8, memory: 65536}
- {hostname: small, zone: az1, cpu_count: 2, memory: 2048}
- {hostname: h, zone: az1, status: Deployed, owner: admin, power: 'on'}
lxd:
- {address: '192.0.2.1:8443', cores: 4, memory: 8192, host: h, storage_pools: [{name: default, total: 200000000000}]}
vm_hosts:
- {name: h, power_address: '192.0.2.1:8443', zone: az1}
";

fn now() -> Timestamp {
    "2026-11-15T09:00:00Z".parse().unwrap()
}

pub(super) fn inventory() -> forecast::Inventory {
    view(&Inventory::parse(INVENTORY).unwrap())
}

fn asked(objects: &Objects, question: &Question) -> Answer {
    let inventory = view(&Inventory::parse(INVENTORY).unwrap());
    answer(&inventory, desired(objects), question, now()).unwrap()
}

#[test]
fn a_file_in_either_dialect_is_planned_machine_by_machine() {
    for version in ["v1beta1", "v1beta2"] {
        let objects = Objects::parse(&manifests(version), "default").unwrap();
        let answer = asked(&objects, &Question::default());
        assert_eq!(answer.fits(), Some(true), "{}", render(&answer, false));
        let shown = render(&answer, false);
        assert!(shown.contains("metal a (a) in az1, pool default"), "{shown}");
        assert!(shown.contains("VM on h in az1"), "{shown}");
        assert!(shown.contains("One more VM of md-0 in default/c1\n  h: has 0 cores left"), "{shown}");
        assert!(shown.ends_with("\nIt fits.\n"), "{shown}");
        let value = to_json(&answer);
        assert_eq!(value["steps"][0]["metal"]["choices"], json!(["a", "c"]), "all that fit in az1");
        assert!(render(&answer, true).contains("c1-cp-new-1 of c1-cp in default/c1\n  a, c\n"));
        assert_eq!(value["steps"][3]["vm"]["host"], "h");
        let free = json!({"zone": "az1", "pool": "default", "now": 2, "left": 0});
        assert_eq!(value["groups"][0]["metal"][0], free);
    }
}

#[test]
fn a_larger_group_tells_what_is_missing_and_does_not_fit() {
    let objects = Objects::parse(&manifests("v1beta2"), "default").unwrap();
    let question = Question { scale: vec!["md-0=4".into(), "c1/c1-cp=5".into()], ..Question::default() };
    let answer = asked(&objects, &question);
    assert_eq!(answer.fits(), Some(false));
    let shown = render(&answer, false);
    assert!(shown.contains("one more machine with 4 cores and 16 GB of memory in zone az2 for c1-cp"), "{shown}");
    assert!(
        shown.contains("room for two more VMs with 2 cores, 2 GB of memory and a disk of 60 GB for md-0"),
        "{shown}"
    );
    assert_eq!(to_json(&answer)["fits"], false);
}

/// The same cluster running: Machines, their MaasMachines, a MachineHealthCheck for the control plane.
pub(super) fn running() -> Objects {
    let mut text = manifests("v1beta2");
    for (name, id, zone) in [("cp-1", "a", "az1"), ("cp-2", "b", "az2"), ("cp-3", "c", "az1")] {
        let labels = json!({"cluster.x-k8s.io/control-plane": "", "role": "cp"});
        let spec = json!({"clusterName": "c1", "version": "v1.36.0", "infrastructureRef": {"kind": "MaasMachine", "name": name}});
        let machine = json!({"kind": "Machine", "metadata": {"name": name, "labels": labels}, "spec": spec});
        let object = json!({
            "apiVersion": "infrastructure.cluster.x-k8s.io/v1beta1", "kind": "MaasMachine",
            "metadata": {"name": name, "annotations": {"cluster.x-k8s.io/cloned-from-name": "cp"}},
            "spec": {"image": "jammy", "minCPU": 4, "minMemory": 16384, "providerID": format!("maas://{zone}/{id}")},
            "status": {"failureDomain": zone},
        });
        let _ = write!(text, "\n---\n{machine}\n---\n{object}");
    }
    let check = json!({"kind": "MachineHealthCheck", "metadata": {"name": "mhc"}, "spec": {
        "clusterName": "c1", "selector": {"matchLabels": {"role": "cp"}}, "maxUnhealthy": "40%"}});
    Objects::parse(&format!("{text}\n---\n{check}"), "default").unwrap()
}

#[test]
fn what_runs_already_is_not_planned_again() {
    let desired = desired(&running());
    let control_plane = &desired.groups[0];
    assert_eq!((control_plane.role, control_plane.members.len()), (Role::ControlPlane, 3));
    assert_eq!(control_plane.members[1].machine.as_deref(), Some("b"));
    assert!(control_plane.members.iter().all(|member| !member.outdated));
    assert_eq!((desired.checks[0].machines.len(), desired.checks[0].most_unhealthy), (3, Some(1)));
}

#[test]
fn a_range_of_a_health_check_outweighs_its_limit() {
    let bounds = |range: &str, v1beta2: bool| {
        let objects = changed(&running(), |object| match (object["kind"] == "MachineHealthCheck", v1beta2) {
            (true, true) => object["spec"]["remediation"]["triggerIf"]["unhealthyInRange"] = json!(range),
            (true, false) => object["spec"]["unhealthyRange"] = json!(range),
            (false, _) => {}
        });
        let check = desired(&objects).checks.remove(0);
        (check.least_unhealthy, check.most_unhealthy)
    };
    assert_eq!(bounds("[2-3]", true), (2, Some(3)));
    assert_eq!(bounds("[0-1]", false), (0, Some(1)));
    assert_eq!(bounds("[3", false), (0, Some(0)), "nothing is replaced then");
}

#[test]
fn a_new_template_or_version_rolls_a_group_out() {
    let answer = asked(&running(), &Question { upgrade: true, ..Question::default() });
    let deleted = answer.forecast.steps.iter().filter(|step| matches!(step.action, Action::Delete { .. })).count();
    assert_eq!(deleted, 3);
    let text = manifests("v1beta2").replace("v1.36.0", "v1.36.1").replace("\"name\":\"cp\"", "\"name\":\"cp-2\"");
    let file = Objects::parse(&text, "default").unwrap();
    let desired = desired(&running().overlaid(&file));
    assert!(desired.groups[0].members.iter().all(|member| member.outdated));
}

/// The same objects, each changed.
pub(super) fn changed(objects: &Objects, change: impl Fn(&mut serde_json::Value)) -> Objects {
    let mut all: Vec<serde_json::Value> = objects.each().cloned().collect();
    all.iter_mut().for_each(change);
    let text: Vec<String> = all.iter().map(ToString::to_string).collect();
    Objects::parse(&text.join("\n---\n"), "default").unwrap()
}

#[test]
fn a_control_plane_without_machines_is_noted_and_one_that_cannot_be_read_is_unknown() {
    let with = |kind: &str, topology: &str| {
        changed(&running(), |object| {
            if object["kind"] == "Cluster" {
                object["spec"]["controlPlaneRef"]["kind"] = json!(kind);
                object["spec"]["topology"] = json!({"class": "maas", "version": topology});
            }
        })
    };
    let told =
        |objects: &Objects| desired(objects).unplanned.into_iter().map(|it| it.why).collect::<Vec<_>>().join("\n");
    assert_eq!(told(&with("KubeadmControlPlane", "v1.36.0")), "", "the topology is what runs");
    assert!(told(&with("KubeadmControlPlane", "v1.37.0")).contains("has a topology"), "an upgrade is to come");
    assert!(told(&with("MyControlPlane", "v1.36.0")).contains("its control plane, a MyControlPlane, is not planned"));
    let hosted = changed(&with("HostedControlPlane", "v1.36.0"), |object| {
        if object["kind"] == "Machine" {
            object["metadata"]["labels"] = json!({});
        }
    });
    assert_eq!(told(&hosted), "");
    assert!(desired(&hosted).notes[0].contains("only its workers are planned"));
}

#[test]
fn an_upgrade_leaves_machines_that_change_only_when_deleted() {
    let objects = changed(&running(), |object| {
        if object["kind"] == "MachineDeployment" {
            object["spec"]["rollout"] = json!({"strategy": {"type": "OnDelete"}});
            object["spec"]["replicas"] = json!(1);
        }
        if object["metadata"]["name"] == "cp-3" && object["kind"] == "Machine" {
            object["metadata"]["labels"] = json!({"cluster.x-k8s.io/deployment-name": "md-0"});
        }
    });
    let answer = asked(&objects, &Question { upgrade: true, ..Question::default() });
    let deleted: Vec<&str> = answer
        .forecast
        .steps
        .iter()
        .filter(|step| matches!(step.action, Action::Delete { .. }))
        .map(|step| step.machine.as_str())
        .collect();
    assert_eq!(deleted, ["cp-1", "cp-2"], "cp-3 is a machine of md-0");
    assert!(answer.notes.iter().any(|note| note.contains("md-0") && note.contains("only when")), "{:?}", answer.notes);
    assert_eq!(answer.fits(), Some(true), "{}", render(&answer, false));
}

#[test]
fn the_vms_on_a_host_that_is_rolled_make_the_answer_unknown() {
    let inventory = INVENTORY
        .replace("{hostname: a,", "{hostname: a, status: Deployed, owner: x, power: 'on',")
        .replace("{hostname: b,", "{hostname: b, status: Deployed, owner: x,")
        .replace("host: h,", "host: a,")
        .replace(
            "{hostname: small, zone: az1, cpu_count: 2, memory: 2048}",
            "{hostname: spare, zone: az2, memory: 16384}",
        )
        .replace(
            "lxd:",
            "- {hostname: guest, vm_host: h, cpu_count: 1, memory: 1024, status: Deployed, owner: x}\nlxd:",
        );
    let inventory = view(&Inventory::parse(&inventory).unwrap());
    let objects = changed(&running(), |object| {
        if object["kind"] == "MachineDeployment" {
            object["spec"]["replicas"] = json!(0);
        }
    });
    let ask =
        |upgrade| answer(&inventory, desired(&objects), &Question { upgrade, ..Question::default() }, now()).unwrap();
    assert_eq!(to_json(&ask(false))["fits"], true);
    let spare = ask(true);
    let shown = render(&spare, false);
    assert_eq!(to_json(&spare)["fits"], json!(null), "{shown}");
    assert!(shown.contains("its VM is replaced on another host first"), "{shown}");
    assert!(shown.contains("where the VMs on cp-1 are replaced is not planned"), "{shown}");
}

#[test]
fn a_control_plane_machine_that_is_unhealthy_already_does_not_count_for_the_quorum() {
    let inventory = INVENTORY
        .replace("{hostname: a,", "{hostname: a, status: Deployed, owner: x,")
        .replace("{hostname: b,", "{hostname: b, status: Deployed, owner: x,");
    let inventory = view(&Inventory::parse(&inventory).unwrap());
    let question = Question { without: vec!["az2".into()], ..Question::default() };
    for (condition, status, fate) in [
        ("NodeHealthy", "True", "cannot replace"),
        ("NodeHealthy", "False", "loses quorum"),
        ("NodeHealthy", "Unknown", "loses quorum"),
        ("EtcdMemberHealthy", "False", "loses quorum"),
        ("HealthCheckSucceeded", "False", "loses quorum"),
    ] {
        let objects = changed(&running(), |object| {
            if object["metadata"]["name"] == "cp-1" && object["kind"] == "Machine" {
                object["status"] = json!({"conditions": [{"type": condition, "status": status}]});
            }
        });
        let told = to_json(&answer(&inventory, desired(&objects), &question, now()).unwrap());
        assert_eq!(told["impacts"][0]["fate"], fate, "{condition} {status}: {told:#}");
        let unhealthy = if status == "True" { json!([]) } else { json!(["cp-1"]) };
        assert_eq!(told["impacts"][0]["unhealthyControlPlanes"], unhealthy);
    }
}

#[test]
fn losing_a_zone_is_told_by_cluster() {
    let inventory = Inventory::parse(
        &INVENTORY
            .replace("{hostname: a,", "{hostname: a, status: Deployed, owner: x,")
            .replace("{hostname: b,", "{hostname: b, status: Deployed, owner: x,"),
    );
    let inventory = view(&inventory.unwrap());
    let lose = |what: &str| {
        let question = Question { without: vec![what.to_owned()], ..Question::default() };
        answer(&inventory, desired(&running()), &question, now())
    };
    let one = lose("az2").unwrap();
    assert_eq!(one.fits(), Some(false));
    // Cluster API requests the replacement in the lost zone, as long as that is a failure domain.
    let shown = render(&one, false);
    assert!(
        shown.contains("1 of 3") && shown.contains("one more machine with 4 cores and 16 GB of memory in zone az2"),
        "{shown}"
    );
    let two = lose("az1").unwrap();
    assert!(render(&two, false).contains("loses quorum"));
    assert_eq!(to_json(&two)["impacts"][0]["fate"], "loses quorum");
    let error = lose("rack-9").unwrap_err().to_string();
    assert!(error.contains("no zone, VM host or machine of that name"), "{error}");
}

#[test]
fn mistakes_get_a_sentence_that_says_what_to_do() {
    let objects = Objects::parse(&manifests("v1beta2"), "default").unwrap();
    let inventory = view(&Inventory::default());
    let ask = |question: Question| answer(&inventory, desired(&objects), &question, now()).unwrap_err().to_string();
    let scale = |scaling: &str| ask(Question { scale: vec![scaling.into()], ..Question::default() });
    assert!(scale("md-9=3").contains("there are default/c1/c1-cp, default/c1/md-0"));
    assert!(scale("md-0").contains("write GROUP=REPLICAS"));
    assert!(scale("md-0=many").contains("is not a number of machines"));
    assert!(ask(Question { clusters: vec!["c9".into()], ..Question::default() }).contains("there is no cluster c9"));
    let nothing = answer(&inventory, Desired::default(), &Question::default(), now()).unwrap_err().to_string();
    assert!(nothing.contains("there is no cluster to plan here"), "{nothing}");
    let template = "kind: Cluster\nmetadata: {name: \"${CLUSTER_NAME}\"}\n";
    assert!(Objects::parse(template, "default").unwrap_err().to_string().contains("clusterctl generate cluster"));
    let topology = "kind: Cluster\nmetadata: {name: c}\nspec: {topology: {class: maas}}\n";
    let unplanned = desired(&Objects::parse(topology, "default").unwrap()).unplanned;
    assert!(unplanned[0].why.contains("clusterctl alpha topology plan"), "{unplanned:?}");
    let lonely = manifests("v1beta2")
        .replace("\"name\":\"vm\"},\"spec\":{\"template\"", "\"name\":\"other\"},\"spec\":{\"template\"");
    let answer = asked(&Objects::parse(&lonely, "default").unwrap(), &Question::default());
    assert!(render(&answer, false).contains("the MaasMachineTemplate vm is neither in the file nor in Kubernetes"));
}
