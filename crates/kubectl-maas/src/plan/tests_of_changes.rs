//! What a file changes about a cluster that runs.
#![allow(clippy::unwrap_used)]

use serde_json::json;

use super::tests::{changed, inventory, manifests, running};
use super::*;
use capmaas_core::forecast::Action;

/// The objects with this change to those of a kind, or to the one of a name.
fn with(objects: &Objects, kind: &str, change: impl Fn(&mut serde_json::Value)) -> Objects {
    changed(objects, |object| {
        if object["kind"] == kind {
            change(object);
        }
    })
}

/// A cluster that runs with a worker, with what the API server fills in.
fn live(version: &str) -> Objects {
    let text = manifests(version);
    let ours = Objects::parse(&text, "default").unwrap();
    let running = changed(&running(), |_| {}).overlaid(&ours);
    let machine = json!({
        "kind": "Machine",
        "metadata": {"name": "md-1", "labels": {"cluster.x-k8s.io/deployment-name": "md-0"}, "creationTimestamp": "2026-11-14T09:00:00Z"},
        "spec": {"clusterName": "c1", "version": "v1.36.0", "infrastructureRef": {"kind": "MaasMachine", "name": "md-1"}},
    });
    let all = running.overlaid(&Objects::parse(&machine.to_string(), "default").unwrap());
    changed(&all, |object| match object["kind"].as_str().unwrap_or_default() {
        "KubeadmControlPlane" => {
            object["apiVersion"] = json!(format!("controlplane.cluster.x-k8s.io/{version}"));
            object["spec"]["kubeadmConfigSpec"] = json!({
                "clusterConfiguration": {"apiServer": {"extraArgs": []}},
                "files": [{"path": "/a", "content": "x", "owner": "root"}], "format": "cloud-config",
            });
        }
        "MachineDeployment" => {
            let spec = &mut object["spec"]["template"]["spec"];
            spec["failureDomain"] = json!("az1");
            spec["nodeDrainTimeout"] = json!("10m0s");
            spec["bootstrap"] =
                json!({"configRef": {"kind": "KubeadmConfigTemplate", "name": "md-0", "namespace": "default"}});
        }
        "Machine" => object["metadata"]["creationTimestamp"] = json!("2026-11-14T09:00:00Z"),
        _ => {}
    })
}

/// Which groups' machines are replaced: all of the control plane, all of the workers.
fn replaced(live: &Objects, file: &Objects) -> (bool, bool) {
    let desired = desired(&live.clone().overlaid(file));
    let of = |index: usize| {
        let members = &desired.groups[index].members;
        let outdated = members.iter().filter(|member| member.outdated).count();
        assert!(!members.is_empty() && (outdated == 0 || outdated == members.len()), "{members:?}");
        outdated > 0
    };
    assert!(desired.unplanned.is_empty(), "{:?}", desired.unplanned);
    (of(0), of(1))
}

#[test]
fn every_field_of_a_template_that_is_not_changed_in_place_replaces_its_machines() {
    for version in ["v1beta1", "v1beta2"] {
        let live = live(version);
        let file = Objects::parse(&manifests(version), "default").unwrap();
        assert_eq!(replaced(&live, &file), (false, false), "a file says less than the API server has");
        let workers = |change: &dyn Fn(&mut serde_json::Value)| {
            replaced(&live, &with(&file, "MachineDeployment", |object| change(&mut object["spec"]["template"])))
        };
        let rolling: [(&str, serde_json::Value); 4] = [
            ("failureDomain", json!("az2")),
            ("bootstrap", json!({"configRef": {"kind": "KubeadmConfigTemplate", "name": "md-1"}})),
            ("bootstrap", json!({"dataSecretName": "own"})),
            ("version", json!("v1.36.1")),
        ];
        for (field, value) in rolling {
            assert_eq!(workers(&|it| it["spec"][field] = value.clone()), (false, true), "{version} {field}");
        }
        let in_place: [(&str, serde_json::Value); 9] = [
            ("failureDomain", json!("az1")),
            ("bootstrap", json!({"configRef": {"kind": "KubeadmConfigTemplate", "name": "md-0"}})),
            ("nodeDrainTimeout", json!("20m")),
            ("nodeVolumeDetachTimeout", json!("20m")),
            ("nodeDeletionTimeout", json!("20m")),
            ("deletion", json!({"nodeDrainTimeoutSeconds": 20})),
            ("minReadySeconds", json!(20)),
            ("readinessGates", json!([{"conditionType": "Own"}])),
            ("taints", json!([{"key": "a", "effect": "NoSchedule", "propagation": "Always"}])),
        ];
        for (field, value) in in_place {
            assert_eq!(workers(&|it| it["spec"][field] = value.clone()), (false, false), "{version} {field}");
        }
        let labels = json!({"labels": {"a": "b"}, "annotations": {"c": "d"}});
        assert_eq!(workers(&|it| it["metadata"] = labels.clone()), (false, false));
    }
}

#[test]
fn a_kubeadm_config_and_a_time_replace_the_machines_of_a_control_plane() {
    for version in ["v1beta1", "v1beta2"] {
        let live = live(version);
        let file = Objects::parse(&manifests(version), "default").unwrap();
        let control_plane = |change: &dyn Fn(&mut serde_json::Value)| {
            let of = |object: &mut serde_json::Value| {
                object["apiVersion"] = json!(format!("controlplane.cluster.x-k8s.io/{version}"));
                change(&mut object["spec"]);
            };
            replaced(&live, &with(&file, "KubeadmControlPlane", of))
        };
        let config = |says: serde_json::Value| control_plane(&|it| it["kubeadmConfigSpec"] = says.clone());
        assert_eq!(config(json!({"files": [{"path": "/a", "content": "x"}]})), (false, false));
        assert_eq!(config(json!({"files": [{"path": "/a", "content": "y"}]})), (true, false));
        assert_eq!(config(json!({"preKubeadmCommands": ["true"]})), (true, false));
        assert_eq!(control_plane(&|it| it["version"] = json!("1.36.0")), (false, false));
        assert_eq!(control_plane(&|it| it["rolloutAfter"] = json!("2026-11-15T09:00:00Z")), (true, false));
        assert_eq!(control_plane(&|it| it["rollout"] = json!({"after": "2026-11-15T09:00:00Z"})), (true, false));
        assert_eq!(control_plane(&|it| it["rolloutAfter"] = json!("2026-11-13T09:00:00Z")), (false, false));
        let workers = with(&file, "MachineDeployment", |it| it["spec"]["rolloutAfter"] = json!("2026-11-15T09:00:00Z"));
        assert_eq!(replaced(&live, &workers), (false, true));
    }
    // In another version fields have other names, and Kubernetes does not convert what it does not serve.
    let file = Objects::parse(&manifests("v1beta1"), "default").unwrap();
    let file = with(&file, "KubeadmControlPlane", |object| {
        object["apiVersion"] = json!("controlplane.cluster.x-k8s.io/v1beta1");
        object["spec"]["kubeadmConfigSpec"] = json!({"clusterConfiguration": {"apiServer": {"extraArgs": {"v": "2"}}}});
    });
    let unplanned = desired(&live("v1beta2").overlaid(&file)).unplanned;
    assert!(unplanned[0].why.contains("what else c1-cp changes about its machines is not planned"), "{unplanned:?}");
}

#[test]
fn machines_of_a_rollout_that_is_under_way_are_replaced() {
    let set = |name: &str, zone: &str| {
        let owner = json!([{"kind": "MachineDeployment", "name": "md-0", "controller": true}]);
        json!({"kind": "MachineSet", "metadata": {"name": name, "ownerReferences": owner},
               "spec": {"clusterName": "c1", "template": {"spec": {"clusterName": "c1", "failureDomain": zone}}}})
    };
    let sets = format!("{}\n---\n{}", set("old", "az2"), set("new", "az1"));
    let replaced = |set: &str| {
        let live = changed(&live("v1beta2"), |object| {
            if object["metadata"]["name"] == "md-1" {
                object["metadata"]["labels"]["cluster.x-k8s.io/set-name"] = json!(set);
            }
            if object["kind"] == "MachineDeployment" {
                object["spec"]["template"]["spec"] = json!({"clusterName": "c1", "failureDomain": "az1"});
            }
        });
        let documents: Vec<String> = live.each().map(ToString::to_string).chain([sets.clone()]).collect();
        desired(&Objects::parse(&documents.join("\n---\n"), "default").unwrap()).groups[1].members[0].outdated
    };
    assert!(replaced("old") && !replaced("new"));
    let conditions = json!({"conditions": [{"type": "UpToDate", "status": "False"}]});
    for (version, status) in [("v1beta2", conditions.clone()), ("v1beta1", json!({"v1beta2": conditions}))] {
        let told = changed(&live(version), |object| {
            if object["kind"] == "Machine" {
                object["status"] = status.clone();
            }
        });
        assert!(desired(&told).groups.iter().flat_map(|group| &group.members).all(|member| member.outdated));
    }
}

#[test]
fn a_strategy_that_would_replace_nothing_replaces_one_after_another_as_in_cluster_api() {
    let strategy = json!({"rollingUpdate": {"maxSurge": 0, "maxUnavailable": "10%"}});
    let live = changed(&live("v1beta1"), |object| match object["kind"].as_str() {
        Some("MachineDeployment") => object["spec"]["strategy"] = strategy.clone(),
        Some("Machine") => object["status"] = json!({"conditions": [{"type": "UpToDate", "status": "False"}]}),
        _ => {}
    });
    let workers = &desired(&live).groups[1];
    assert_eq!((workers.surge, workers.unavailable), (0, 1));
    let forecast =
        capmaas_core::forecast::forecast(&inventory(), std::slice::from_ref(workers), jiff::Timestamp::UNIX_EPOCH);
    assert!(forecast.steps.iter().any(|step| matches!(step.action, Action::Delete { .. })), "{:?}", forecast.steps);
}

#[test]
fn the_number_of_machines_that_a_file_leaves_out_stays() {
    let live = changed(&live("v1beta2"), |object| {
        if object["kind"] == "MachineDeployment" || object["kind"] == "KubeadmControlPlane" {
            object["spec"]["replicas"] = json!(7);
        }
    });
    let file = Objects::parse(&manifests("v1beta2"), "default").unwrap();
    let replicas = |file: &Objects| -> Vec<usize> {
        desired(&live.clone().overlaid(file)).groups.iter().map(|group| group.replicas).collect()
    };
    assert_eq!(replicas(&file), [3, 2]);
    for omitted in [json!(null), json!({})] {
        let file = changed(&file, |object| {
            if omitted.is_null() {
                object["spec"]["replicas"] = json!(null);
            } else if let Some(spec) = object["spec"].as_object_mut() {
                spec.remove("replicas");
            }
        });
        assert_eq!(replicas(&file), [7, 7]);
    }
}

#[test]
fn a_topology_is_planned_with_the_objects_that_clusterctl_writes_and_unknown_without() {
    let topology = |class: &str, version: &str| json!({"class": class, "version": version});
    let live = with(&live("v1beta2"), "Cluster", |it| it["spec"]["topology"] = topology("maas", "v1.36.0"));
    let file = Objects::parse(&manifests("v1beta2"), "default").unwrap();
    let only = |kind: &str, change: &dyn Fn(&mut serde_json::Value)| {
        let mut object = file.of(kind).next().unwrap().clone();
        change(&mut object);
        Objects::parse(&object.to_string(), "default").unwrap()
    };
    let told = |file: &Objects| desired(&live.clone().overlaid(file));
    let same = only("Cluster", &|it| it["spec"]["topology"] = topology("maas", "v1.36.0"));
    assert!(told(&same).unplanned.is_empty());
    // A user writes no references; Cluster API sets them.
    let written = only("Cluster", &|it| it["spec"] = json!({"topology": topology("maas", "v1.36.0")}));
    let unchanged = told(&written);
    assert!(unchanged.unplanned.is_empty(), "{:?}", unchanged.unplanned);
    assert_eq!(unchanged.groups[0].failure_domains, ["az1", "az2"]);
    let other = only("Cluster", &|it| {
        it["spec"]["topology"] = json!({"class": "maas", "workers": {"machineDeployments": [{"name": "a"}]}});
    });
    assert!(told(&other).unplanned[0].why.contains("clusterctl alpha topology plan"));
    let class = Objects::parse("kind: ClusterClass\nmetadata: {name: maas}\n", "default").unwrap();
    assert!(told(&class).unplanned[0].why.contains("clusterctl alpha topology plan"));
    // What clusterctl writes about an upgrade: the control plane is first.
    let written = told(&only("KubeadmControlPlane", &|it| it["spec"]["version"] = json!("v1.37.0")));
    assert!(written.unplanned.is_empty(), "{:?}", written.unplanned);
    assert!(written.groups.iter().flat_map(|group| &group.members).all(|member| member.outdated));
    assert!(written.notes[0].contains("upgrades md-0 in default/c1 after the control plane"), "{:?}", written.notes);
}

#[test]
fn a_group_is_scaled_in_the_clusters_that_are_named_by_any_of_its_names() {
    let named = |cluster: &str, group: &str, label: Option<&str>| {
        changed(&running(), |object| {
            let text = object.to_string().replace("\"c1\"", &format!("\"{cluster}\""));
            let mut anew: serde_json::Value = serde_json::from_str(&text).unwrap();
            if object["kind"] == "MachineDeployment" {
                anew["metadata"]["name"] = json!(group);
                anew["metadata"]["labels"] = json!({"topology.cluster.x-k8s.io/deployment-name": label});
            } else if object["kind"] == "Machine" || object["kind"] == "MaasMachine" {
                anew["metadata"]["name"] = json!(format!("{cluster}-{}", object["metadata"]["name"].as_str().unwrap()));
            }
            *object = anew;
        })
    };
    let both = |one: &Objects, other: &Objects| one.clone().overlaid(other);
    let scaled = |objects: &Objects, clusters: &[&str], scaling: &str| {
        let mut desired = desired(objects);
        let asked =
            |cluster: &str| clusters.is_empty() || clusters.iter().any(|it| cluster.ends_with(&format!("/{it}")));
        scale::scale(&mut desired, scaling, asked).map(|()| {
            let of = |group: &Group| (group.replicas == 50).then(|| scale::full_name(group));
            desired.groups.iter().filter_map(of).collect::<Vec<_>>()
        })
    };
    let objects = both(&named("prod", "prod-md-0", None), &named("staging", "staging-md-0-x7k2p", Some("md-0")));
    assert_eq!(scaled(&objects, &["prod"], "md-0=50").unwrap(), ["default/prod/prod-md-0"]);
    assert_eq!(scaled(&objects, &["staging"], "md-0=50").unwrap(), ["default/staging/staging-md-0-x7k2p"]);
    assert_eq!(scaled(&objects, &[], "staging/md-0=50").unwrap(), ["default/staging/staging-md-0-x7k2p"]);
    assert_eq!(scaled(&objects, &[], "default/prod/md-0=50").unwrap(), ["default/prod/prod-md-0"]);
    let wrong = |clusters: &[&str], scaling: &str| scaled(&objects, clusters, scaling).unwrap_err().to_string();
    assert!(wrong(&["prod"], "staging/md-0=50").contains("is not in a cluster that is named"));
    let both_fit = wrong(&[], "md-0=50");
    assert!(both_fit.contains("default/prod/prod-md-0 or default/staging/staging-md-0-x7k2p"), "{both_fit}");
    assert!(wrong(&["prod"], "md-9=50").contains("there is no group md-9"));
    // The question itself limits it.
    let inventory = crate::inventory::view(&crate::inventory::Inventory::default());
    let question =
        Question { clusters: vec!["prod".into()], scale: vec!["staging/md-0=50".into()], ..Question::default() };
    let now = "2026-11-15T09:00:00Z".parse().unwrap();
    assert!(answer(&inventory, desired(&objects), &question, now).is_err());
}

#[test]
fn health_checks_that_cannot_be_read_make_only_a_loss_unknown() {
    let mut objects = running();
    objects.checks_unread = Some("you lack the permission".into());
    let inventory = super::tests::inventory();
    let now = "2026-11-15T09:00:00Z".parse().unwrap();
    let asked = |question: &Question| answer(&inventory, desired(&objects), question, now).unwrap();
    assert!(asked(&Question::default()).unplanned.is_empty());
    let lost = asked(&Question { without: vec!["az2".into()], ..Question::default() });
    assert!(lost.unplanned[0].why.contains("you lack the permission"), "{:?}", lost.unplanned);
}
