use serde_json::json;

use super::*;

fn clusters() -> [Cluster; 2] {
    let v1beta1 = json!({
        "apiVersion": "cluster.x-k8s.io/v1beta1", "kind": "Cluster", "metadata": {"name": "c"},
        "spec": {
            "paused": false, "controlPlaneEndpoint": {"host": "api.example", "port": 6443},
            "clusterNetwork": {"apiServerPort": 6443},
            "infrastructureRef": {"apiVersion": "infrastructure.cluster.x-k8s.io/v1beta1", "kind": "MaasCluster", "name": "c", "namespace": "n"},
        },
        "status": {"infrastructureReady": true, "conditions": [
            {"type": "ControlPlaneInitialized", "status": "True", "lastTransitionTime": "2026-11-15T21:10:50Z"},
        ]},
    });
    let v1beta2 = json!({
        "apiVersion": "cluster.x-k8s.io/v1beta2", "kind": "Cluster", "metadata": {"name": "c"},
        "spec": {
            "controlPlaneEndpoint": {"host": "api.example", "port": 6443},
            "clusterNetwork": {"apiServerPort": 6443},
            "infrastructureRef": {"apiGroup": "infrastructure.cluster.x-k8s.io", "kind": "MaasCluster", "name": "c"},
        },
        "status": {"initialization": {"infrastructureProvisioned": true, "controlPlaneInitialized": true}},
    });
    [v1beta1, v1beta2].map(|stored| serde_json::from_value(stored).unwrap())
}

#[test]
fn both_versions_of_a_cluster_say_the_same() {
    for cluster in clusters() {
        assert!(!cluster.is_paused());
        assert!(cluster.infrastructure_ready());
        assert!(cluster.control_plane_initialized());
        assert_eq!(cluster.endpoint(), Some(("api.example", 6443)));
        assert_eq!(cluster.api_server_port(), Some(6443));
        assert!(cluster.spec.infrastructure_ref.as_ref().unwrap().is_ours("MaasCluster"));
    }
}

#[test]
fn a_new_cluster_has_nothing_yet() {
    let cluster: Cluster = serde_json::from_value(json!({"metadata": {"name": "c"}})).unwrap();
    assert!(!cluster.infrastructure_ready() && !cluster.control_plane_initialized() && !cluster.is_paused());
    assert_eq!((cluster.endpoint(), cluster.api_server_port()), (None, None));
}

#[test]
fn a_cluster_is_paused_by_its_spec_or_by_the_annotation() {
    let by_spec: Cluster = serde_json::from_value(json!({"spec": {"paused": true}})).unwrap();
    let by_annotation: Cluster =
        serde_json::from_value(json!({"metadata": {"annotations": {"cluster.x-k8s.io/paused": ""}}})).unwrap();
    assert!(by_spec.is_paused() && by_annotation.is_paused());
}

#[test]
fn both_versions_of_a_machine_say_the_same() {
    for infrastructure in [
        json!({"apiVersion": "infrastructure.cluster.x-k8s.io/v1beta1", "kind": "MaasMachine", "name": "m"}),
        json!({"apiGroup": "infrastructure.cluster.x-k8s.io", "kind": "MaasMachine", "name": "m"}),
    ] {
        let machine: Machine = serde_json::from_value(json!({
            "metadata": {"labels": {"cluster.x-k8s.io/control-plane": ""}},
            "spec": {
                "bootstrap": {"dataSecretName": "s"}, "infrastructureRef": infrastructure,
                "failureDomain": "az1", "providerID": "maas:///az1/abc123", "version": "v1.34.0",
            },
            "status": {"nodeRef": {"name": "node"}},
        }))
        .unwrap();
        assert_eq!(machine.bootstrap_secret(), Some("s"));
        assert_eq!(machine.failure_domain(), Some("az1"));
        assert_eq!(machine.spec.provider_id.as_deref(), Some("maas:///az1/abc123"));
        assert_eq!(machine.status.node_ref.as_ref().unwrap().name, "node");
        assert!(machine.is_control_plane());
        assert!(machine.spec.infrastructure_ref.as_ref().unwrap().is_ours("MaasMachine"));
    }
}

#[test]
fn whether_a_machine_is_up_to_date_is_read_from_cores_of_both_versions() {
    let said = |status: serde_json::Value| {
        serde_json::from_value::<Machine>(json!({ "status": status })).unwrap().is_up_to_date()
    };
    let condition = |status: &str| json!([{"type": "UpToDate", "status": status}]);
    assert_eq!(said(json!({"conditions": condition("False")})), Some(false));
    assert_eq!(said(json!({"conditions": [], "v1beta2": {"conditions": condition("False")}})), Some(false), "1.10");
    assert_eq!(said(json!({"v1beta2": {"conditions": condition("True")}})), Some(true));
    assert_eq!(said(json!({"conditions": condition("Unknown")})), None);
    assert_eq!(said(json!({})), None);
}

#[test]
fn a_control_plane_is_spread_over_the_failure_domains_that_are_for_control_planes() {
    let domains = |stored: serde_json::Value| {
        let cluster: Cluster = serde_json::from_value(json!({ "status": stored })).unwrap();
        cluster.control_plane_failure_domains()
    };
    let az1 = Some(vec!["az1".to_owned()]);
    assert_eq!(domains(json!({"failureDomains": {"az1": {"controlPlane": true}, "az2": {}}})), az1);
    assert_eq!(domains(json!({"failureDomains": [{"name": "az1", "controlPlane": true}, {"name": "az2"}]})), az1);
    assert_eq!(domains(json!({})), Some(Vec::new()));
    assert_eq!(domains(json!({"failureDomains": "az1"})), None, "they cannot be read");
}

#[test]
fn an_api_server_is_away_once_it_was_there() {
    let probe = |status: &str| json!([{"type": "RemoteConnectionProbe", "status": status}]);
    let initialized = json!({"controlPlaneInitialized": true});
    let is_away = |status: serde_json::Value| {
        serde_json::from_value::<Cluster>(json!({"status": status})).unwrap().api_server_is_away()
    };
    assert!(is_away(json!({"initialization": initialized, "conditions": probe("False")})));
    assert!(!is_away(json!({"initialization": initialized, "conditions": probe("True")})));
    assert!(!is_away(json!({"conditions": probe("False")})), "it was never reached");
    let up = json!([{"type": "ControlPlaneInitialized", "status": "True"}]);
    assert!(is_away(json!({"conditions": up, "v1beta2": {"conditions": probe("False")}})), "Cluster API 1.10");
    assert!(!is_away(json!({"conditions": up})), "Cluster API 1.5");
}

#[test]
fn a_node_is_silent_if_nobody_knows_how_it_is() {
    let is_silent = |node: &str, type_: &str, status: &str| {
        let status = json!({"nodeRef": {"name": node}, "conditions": [{"type": type_, "status": status}]});
        serde_json::from_value::<Machine>(json!({"status": status})).unwrap().node_is_silent()
    };
    assert!(is_silent("n1", "NodeReady", "Unknown") && is_silent("n1", "NodeHealthy", "Unknown"));
    assert!(!is_silent("n1", "NodeReady", "False"), "it reports that it is not ready");
    assert!(!is_silent("", "NodeReady", "Unknown"), "it has not joined");
}

#[test]
fn an_object_of_another_shape_still_reads() {
    let machine: Machine =
        serde_json::from_value(json!({"spec": {"bootstrap": 7, "failureDomain": ["a"]}, "status": "new"})).unwrap();
    assert_eq!(machine.bootstrap_secret(), None);
    assert_eq!(machine.spec.unreadable, ["bootstrap", "failureDomain"]);
    assert_eq!(machine.status.unreadable, ["."]);
}

#[test]
fn the_owner_is_found_by_group_and_kind_whatever_its_version() {
    let metadata: ObjectMeta = serde_json::from_value(json!({"ownerReferences": [
        {"apiVersion": "example.com/v1", "kind": "Machine", "name": "foreign", "uid": "1"},
        {"apiVersion": "cluster.x-k8s.io/v1beta9", "kind": "Machine", "name": "m", "uid": "2"},
    ]}))
    .unwrap();
    assert_eq!(owner(&metadata, "Machine").unwrap().name, "m");
    assert!(owner(&metadata, "Cluster").is_none());
}

#[test]
fn the_newest_version_that_both_know_is_used() {
    assert_eq!(best_version(["v1beta1", "v1beta2"]), Some("v1beta2"));
    assert_eq!(best_version(["v1alpha4", "v1beta1"]), Some("v1beta1"));
    assert_eq!(best_version(["v1"]), None);
    assert_eq!(Cluster::api_resource("v1beta1").api_version, "cluster.x-k8s.io/v1beta1");
}
