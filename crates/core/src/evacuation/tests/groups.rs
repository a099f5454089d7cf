use capmaas_api::capi;
use serde_json::{Value, json};

use super::*;

/// A Machine that its control plane and its Node report as healthy.
fn machine(name: &str) -> Value {
    let condition =
        |type_: &&str| json!({ "type": type_, "status": "True", "lastTransitionTime": "2026-11-15T12:00:00Z" });
    let types = [
        "NodeHealthy",
        "APIServerPodHealthy",
        "ControllerManagerPodHealthy",
        "SchedulerPodHealthy",
        "EtcdPodHealthy",
        "EtcdMemberHealthy",
    ];
    json!({
        "metadata": { "name": name },
        "status": { "nodeRef": { "name": name }, "conditions": types.iter().map(condition).collect::<Vec<_>>() },
    })
}

fn read(machines: &[Value]) -> Vec<capi::Machine> {
    machines.iter().map(|machine| serde_json::from_value(machine.clone()).unwrap()).collect()
}

fn three() -> Vec<Value> {
    (0..3).map(|number| machine(&format!("m{number}"))).collect()
}

/// As Cluster API 1.11 and later store it.
fn kcp() -> Value {
    json!({
        "apiVersion": "controlplane.cluster.x-k8s.io/v1beta2", "kind": "KubeadmControlPlane",
        "metadata": { "name": "cp", "generation": 4 }, "spec": { "replicas": 3, "kubeadmConfigSpec": {} },
        "status": { "observedGeneration": 4, "replicas": 3, "upToDateReplicas": 3 },
    })
}

fn deployment(strategy: Value) -> Value {
    json!({
        "apiVersion": "cluster.x-k8s.io/v1beta2", "kind": "MachineDeployment",
        "metadata": { "name": "md", "generation": 1 }, "spec": { "replicas": 3, "rollout": { "strategy": strategy } },
        "status": { "observedGeneration": 1, "replicas": 3, "upToDateReplicas": 3 },
    })
}

fn loses(object: &Value, machines: &[Value]) -> Result<(), Waiting> {
    Group::control_plane(object, &read(machines), Vec::new()).may_lose("m0")
}

#[test]
fn a_control_plane_is_read_in_both_versions() {
    assert_eq!(loses(&kcp(), &three()), Ok(()));
    let mut old = kcp();
    old["status"] = json!({ "observedGeneration": 4, "replicas": 3, "updatedReplicas": 3 });
    assert_eq!(loses(&old, &three()), Ok(()));
}

#[test]
fn s30_what_a_control_plane_does_not_say_counts_against_it() {
    let changes: [(&str, Value, Unsettled); 6] = [
        ("/metadata/generation", json!(5), Unsettled::Unobserved),
        ("/status", json!({ "observedGeneration": 4, "replicas": 3 }), Unsettled::RollingOut),
        ("/status/upToDateReplicas", json!(2), Unsettled::RollingOut),
        ("/status", json!(null), Unsettled::Unobserved),
        ("/metadata", json!({ "name": "cp", "generation": 4, "deletionTimestamp": "now" }), Unsettled::Deleting),
        (
            "/metadata",
            json!({ "name": "cp", "generation": 4, "annotations": { "cluster.x-k8s.io/paused": "" } }),
            Unsettled::Paused("KubeadmControlPlane cp".into()),
        ),
    ];
    for (path, value, unsettled) in changes {
        let mut object = kcp();
        *object.pointer_mut(path).unwrap() = value;
        let expected = Waiting::Unsettled("KubeadmControlPlane cp".into(), unsettled);
        assert_eq!(loses(&object, &three()), Err(expected), "{path}");
    }
    let mut remediating = kcp();
    remediating["metadata"]["annotations"] = json!({ "controlplane.cluster.x-k8s.io/remediation-in-progress": "{}" });
    assert!(matches!(loses(&remediating, &three()), Err(Waiting::Unsettled(_, Unsettled::Remediating))));
}

#[test]
fn s30_a_machine_is_well_only_if_everything_about_it_is_said_to_be() {
    for index in 0..6 {
        let mut machines = three();
        machines[1]["status"]["conditions"].as_array_mut().unwrap().remove(index);
        assert!(matches!(loses(&kcp(), &machines), Err(Waiting::Unhealthy(name, _)) if name == "m1"), "{index}");
        let mut machines = three();
        machines[2]["status"]["conditions"][index]["status"] = json!("Unknown");
        assert!(matches!(loses(&kcp(), &machines), Err(Waiting::Unhealthy(name, _)) if name == "m2"), "{index}");
    }
    let mut machines = three();
    machines[0]["status"]["nodeRef"] = json!(null);
    assert!(matches!(loses(&kcp(), &machines), Err(Waiting::Unhealthy(name, _)) if name == "m0"));
    // A MachineHealthCheck has the last word.
    let mut machines = three();
    let failed = json!({ "type": "HealthCheckSucceeded", "status": "False", "message": "no Node" });
    machines[2]["status"]["conditions"].as_array_mut().unwrap().push(failed);
    assert!(matches!(loses(&kcp(), &machines), Err(Waiting::Unhealthy(_, why)) if why.contains("no Node")));
}

#[test]
fn an_etcd_outside_is_not_asked_for() {
    let mut object = kcp();
    object["spec"]["kubeadmConfigSpec"] =
        json!({ "clusterConfiguration": { "etcd": { "external": { "endpoints": ["e"] } } } });
    let mut machines = three();
    for machine in &mut machines {
        machine["status"]["conditions"].as_array_mut().unwrap().truncate(4);
    }
    assert_eq!(loses(&object, &machines), Ok(()));
}

#[test]
fn a_machine_deployment_says_how_many_it_may_miss() {
    let update = |unavailable: Value, surge: Value| json!({ "type": "RollingUpdate", "rollingUpdate": { "maxUnavailable": unavailable, "maxSurge": surge } });
    let allowed = |object: &Value| Group::deployment(object, &Value::Null, &read(&three())).allowance;
    assert_eq!(allowed(&deployment(update(json!(2), json!(1)))), Allowance::Unavailable(2));
    assert_eq!(
        allowed(&deployment(update(json!(null), json!(null)))),
        Allowance::Unavailable(0),
        "Cluster API's default"
    );
    assert_eq!(allowed(&deployment(update(json!("50%"), json!(1)))), Allowance::Unavailable(1), "rounded down");
    assert_eq!(
        allowed(&deployment(update(json!(0), json!("0%")))),
        Allowance::Unavailable(1),
        "as Cluster API resolves it"
    );
    assert_eq!(allowed(&deployment(json!({ "type": "OnDelete" }))), Allowance::Unavailable(1));
    for odd in [update(json!("many"), json!(1)), json!({ "type": "Recreate" }), json!({}), json!(null)] {
        assert!(matches!(allowed(&deployment(odd)), Allowance::Unknown(_)));
    }
    let mut old = deployment(json!(null));
    old["spec"] = json!({ "replicas": 3, "strategy": update(json!(1), json!(1)) });
    assert_eq!(allowed(&old), Allowance::Unavailable(1));
}

#[test]
fn s30_a_roll_out_of_a_machine_deployment_is_left_alone() {
    let object = deployment(json!({ "type": "OnDelete" }));
    assert_eq!(Group::deployment(&object, &Value::Null, &read(&three())).may_lose("m0"), Ok(()));
    let update = json!({ "type": "RollingUpdate", "rollingUpdate": { "maxUnavailable": 1 } });
    let mut rolling = deployment(update);
    rolling["status"]["upToDateReplicas"] = json!(1);
    let mut surging = three();
    surging.push(machine("m3"));
    for group in [
        Group::deployment(&rolling, &Value::Null, &read(&three())),
        Group::deployment(&object, &Value::Null, &read(&surging)),
    ] {
        assert!(matches!(group.may_lose("m0"), Err(Waiting::Unsettled(_, Unsettled::RollingOut))));
    }
}

#[test]
fn s30_a_machine_deployment_that_replaces_on_deletion_is_not_rolling_out() {
    let mut object = deployment(json!({ "type": "OnDelete" }));
    object["status"]["upToDateReplicas"] = json!(1);
    assert_eq!(Group::deployment(&object, &Value::Null, &read(&three())).may_lose("m0"), Ok(()));
}

#[test]
fn s30_a_machine_whose_machine_set_is_paused_would_not_be_replaced_and_stays() {
    let set = json!({
        "kind": "MachineSet", "metadata": { "name": "md-1", "annotations": { "cluster.x-k8s.io/paused": "" } },
    });
    let group = Group::deployment(&deployment(json!({ "type": "OnDelete" })), &set, &read(&three()));
    let waiting = group.may_lose("m0").unwrap_err();
    assert_eq!(waiting.to_string(), "stays because MachineSet md-1 is paused");
    assert!(!waiting.passes());
}

/// Machines in these failure domains, with what `UpToDate` says about them.
fn placed(all: &[(&str, Option<&str>)]) -> Vec<capi::Machine> {
    let one = |(number, (domain, up_to_date)): (usize, &(&str, Option<&str>))| {
        let conditions = up_to_date.map(|status| json!({ "type": "UpToDate", "status": status }));
        let status = json!({ "v1beta2": { "conditions": conditions.into_iter().collect::<Vec<_>>() } });
        json!({ "metadata": { "name": format!("m{number}") }, "spec": { "failureDomain": domain }, "status": status })
    };
    read(&all.iter().enumerate().map(one).collect::<Vec<_>>())
}

#[test]
fn s30_a_control_plane_creates_the_next_machine_where_it_has_the_fewest() {
    let domains = || ["az3", "az1", "az2"].map(String::from).to_vec();
    let next = |object: &Value, all: &[(&str, Option<&str>)], leaving| {
        let group = Group::control_plane(object, &placed(all), domains());
        group.next_domains(leaving, 2).into_iter().map(|zones| zones.join(",")).collect::<Vec<_>>()
    };
    let spread = [("az1", None), ("az2", None), ("az3", None)];
    assert_eq!(next(&kcp(), &spread, Some("m1")), ["az2", "az1"], "in its own, while they are spread");
    let crowded = [("az1", None), ("az1", None), ("az2", None)];
    assert_eq!(next(&kcp(), &crowded, Some("m0")), ["az3", "az1"], "not in its own");
    assert_eq!(next(&kcp(), &crowded[..2], None), ["az2", "az3"]);
    let mut rolling = kcp();
    rolling["status"]["upToDateReplicas"] = json!(1);
    let outdated = [("az1", Some("False")), ("az2", Some("True")), ("az3", Some("False"))];
    assert_eq!(next(&rolling, &outdated, None), ["az1", "az3"], "outdated ones count less");
    assert_eq!(next(&rolling, &spread, None), ["az3,az1,az2"; 2], "in any, while it is not known which are outdated");
    let nowhere = Group::control_plane(&kcp(), &placed(&spread), Vec::new());
    assert_eq!(nowhere.next_domains(Some("m0"), 1), [Vec::<String>::new()]);
}

#[test]
fn the_template_of_the_next_machine_is_read_in_both_versions() {
    let of = |template: Value| {
        let mut object = kcp();
        object["spec"]["machineTemplate"] = template;
        Group::control_plane(&object, &[], Vec::new()).template
    };
    let reference = |kind: &str| json!({ "infrastructureRef": { "kind": kind, "name": "t2" } });
    assert_eq!(of(reference("MaasMachineTemplate")), Some("t2".into()));
    assert_eq!(of(json!({ "spec": reference("MaasMachineTemplate") })), Some("t2".into()));
    assert_eq!(of(json!({ "spec": reference("MetalTemplate") })), None);
    assert_eq!(of(Value::Null), None);
    let mut object = deployment(json!({ "type": "OnDelete" }));
    object["spec"]["template"] = json!({ "spec": reference("MaasMachineTemplate") });
    assert_eq!(Group::deployment(&object, &Value::Null, &[]).template, Some("t2".into()));
}

#[test]
fn s30_a_machine_deployment_creates_machines_where_its_template_says() {
    let mut object = deployment(json!({ "type": "OnDelete" }));
    let next =
        |object: &Value| Group::deployment(object, &Value::Null, &placed(&[("az1", None)])).next_domains(Some("m0"), 1);
    assert_eq!(next(&object), [Vec::<String>::new()]);
    object["spec"]["template"] = json!({ "spec": { "failureDomain": "az2" } });
    assert_eq!(next(&object), [["az2"]]);
}
