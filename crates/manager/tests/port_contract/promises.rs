//! The contract of both implementations.

use super::*;

pub(super) async fn what_does_not_exist_is_none_and_no_error(stage: Stage) {
    let (port, none) = (stage.port(), key("no-such"));
    assert!(port.maas_machine(&none).await.unwrap().is_none());
    assert!(port.maas_cluster(&none).await.unwrap().is_none());
    assert!(port.cluster(&none).await.unwrap().is_none());
    assert!(port.machine(&none, "no-uid").await.unwrap().is_none());
    assert!(port.secret(&none).await.unwrap().is_none());
    assert!(port.config_map(&none).await.unwrap().is_none());
    let guard = Guard { resource_version: "1".into() };
    let error = port.patch(Kind::MaasMachine, &none, &guard, json!({})).await.unwrap_err();
    assert_eq!(error.kind, ErrorKind::NotFound, "{error}");
    let error = port.apply_status(Kind::MaasMachine, &none, &guard, json!({})).await.unwrap_err();
    assert_eq!(error.kind, ErrorKind::NotFound, "{error}");
}

pub(super) async fn a_write_to_an_object_that_changed_is_a_conflict_and_changes_nothing(stage: Stage) {
    let key = key("conflict");
    stage.create(maas_machine("conflict")).await;
    let first = stage.machine(&key).await;
    let annotate = |text: &str| json!({ "metadata": { "annotations": { "a": text } } });
    let second: MaasMachine = kubernetes::patch(stage.port(), &key, &Guard::of(&first), annotate("one")).await.unwrap();
    assert_ne!(first.resource_version(), second.resource_version());
    let error = kubernetes::patch::<MaasMachine>(stage.port(), &key, &Guard::of(&first), annotate("two")).await;
    assert_eq!(error.unwrap_err().kind, ErrorKind::Conflict);
    assert_eq!(stage.machine(&key).await.annotations()["a"], "one");
}

pub(super) async fn the_generation_follows_the_spec_and_nothing_else(stage: Stage) {
    let key = key("generation");
    stage.create(maas_machine("generation")).await;
    let made = stage.machine(&key).await;
    let body = json!({ "metadata": { "labels": { "l": "v" } }, "status": { "ready": true } });
    let labelled: MaasMachine = kubernetes::patch(stage.port(), &key, &Guard::of(&made), body).await.unwrap();
    assert_eq!(labelled.metadata.generation, made.metadata.generation);
    assert_eq!(labelled.status, None, "the status is not touched by a patch");
    let guard = Guard::of(&labelled);
    stage.port().apply_status(Kind::MaasMachine, &key, &guard, json!({ "ready": false })).await.unwrap();
    let seen = stage.machine(&key).await;
    assert_eq!(seen.metadata.generation, made.metadata.generation);
    let body = json!({ "spec": { "failureDomain": "az1" } });
    let moved: MaasMachine = kubernetes::patch(stage.port(), &key, &Guard::of(&seen), body).await.unwrap();
    assert_eq!(moved.metadata.generation, made.metadata.generation.map(|generation| generation + 1));
    assert!(moved.status.is_some());
}

pub(super) async fn an_object_with_a_finalizer_stays_until_it_is_taken_away(stage: Stage) {
    let key = key("finalized");
    stage.create(maas_machine("finalized")).await;
    let made = stage.machine(&key).await;
    let ours = json!({ "metadata": { "finalizers": [names::MACHINE_FINALIZER] } });
    let _: MaasMachine = kubernetes::patch(stage.port(), &key, &Guard::of(&made), ours).await.unwrap();
    stage.delete("MaasMachine", &key).await;
    let deleting = stage.machine(&key).await;
    assert!(deleting.metadata.deletion_timestamp.is_some());
    let more = json!({ "metadata": { "finalizers": [names::MACHINE_FINALIZER, "example.com/more"] } });
    let error = kubernetes::patch::<MaasMachine>(stage.port(), &key, &Guard::of(&deleting), more).await.unwrap_err();
    assert_eq!(error.kind, ErrorKind::Refused, "{error}");
    let none = json!({ "metadata": { "finalizers": null } });
    let _: MaasMachine = kubernetes::patch(stage.port(), &key, &Guard::of(&deleting), none).await.unwrap();
    assert!(stage.port().maas_machine(&key).await.unwrap().is_none());
}

pub(super) async fn what_its_owner_leaves_behind_is_deleted(stage: Stage) {
    let owner =
        json!({ "apiVersion": "v1", "kind": "ConfigMap", "metadata": { "name": "owner", "namespace": "default" } });
    let owner = stage.create(owner).await;
    let mut dependent = maas_machine("owned");
    dependent["metadata"]["ownerReferences"] =
        json!([{ "apiVersion": "v1", "kind": "ConfigMap", "name": "owner", "uid": owner["metadata"]["uid"] }]);
    stage.create(dependent).await;
    stage.delete("ConfigMap", &key("owner")).await;
    for _ in 0..300 {
        if stage.port().maas_machine(&key("owned")).await.unwrap().is_none() {
            return;
        }
        tokio::time::sleep(Duration::from_millis(100)).await;
    }
    panic!("it is still there");
}

pub(super) async fn a_status_becomes_exactly_what_is_applied_but_for_conditions_of_others(stage: Stage) {
    let key = key("status");
    stage.create(maas_machine("status")).await;
    let condition = |type_: &str, status: &str| json!({ "type": type_, "status": status, "lastTransitionTime": "2026-11-15T21:10:50Z", "reason": "Because" });
    let of_another = json!({
        "ready": true, "failureMessage": "left by another", "hostname": "old",
        "conditions": [condition("Foreign", "True"), condition("Ready", "False")],
    });
    stage.set_status("MaasMachine", &key, of_another).await;
    let ours = json!({ "ready": false, "hostname": "new", "conditions": [condition("Ready", "True")] });
    let guard = Guard::of(&stage.machine(&key).await);
    stage.port().apply_status(Kind::MaasMachine, &key, &guard, ours).await.unwrap();
    let status = stage.machine(&key).await.status.unwrap();
    assert!(!status.ready);
    assert_eq!((status.hostname.as_deref(), status.failure_message), (Some("new"), None));
    let mut conditions: Vec<_> = status.conditions.iter().map(|c| (c.type_.as_str(), c.status.as_str())).collect();
    conditions.sort_unstable();
    assert_eq!(conditions, [("Foreign", "True"), ("Ready", "True")]);
}

pub(super) async fn a_machine_is_listed_live_and_deleted_only_as_it_was_read(stage: Stage) {
    let (owners, cluster) = (stage.owners(), key("owned"));
    let metadata = json!({
        "name": "owned-0", "namespace": "default", "labels": { names::CLUSTER_NAME_LABEL: "owned" },
    });
    let made = stage
        .create(json!({
            "apiVersion": "cluster.x-k8s.io/v1beta1", "kind": "Machine", "metadata": metadata,
            "spec": { "clusterName": "owned" },
        }))
        .await;
    let listed = owners.machines(&cluster).await.unwrap();
    assert_eq!(listed.iter().map(kube::ResourceExt::name_any).collect::<Vec<_>>(), ["owned-0"]);
    assert!(owners.machines(&key("another")).await.unwrap().is_empty());
    let uid = made["metadata"]["uid"].as_str().unwrap();
    let reference = |uid: &str| OwnerReference {
        api_version: "cluster.x-k8s.io/v1beta1".into(),
        kind: "Machine".into(),
        name: "owned-0".into(),
        uid: uid.into(),
        ..OwnerReference::default()
    };
    assert!(owners.owner("default", &reference(uid)).await.unwrap().is_some());
    assert!(owners.owner("default", &reference("another")).await.unwrap().is_none());
    let (machine, guard) = (key("owned-0"), Guard::of(&listed[0]));
    let other = Guard { resource_version: "987654321".into() };
    let refused = [(uid, &other), ("00000000-0000-0000-0000-00000000ffff", &guard)];
    for (uid, guard) in refused {
        let error = owners.delete_machine(&machine, uid, guard).await.unwrap_err();
        assert_eq!(error.kind, ErrorKind::Conflict, "{error}");
    }
    owners.delete_machine(&machine, uid, &guard).await.unwrap();
    assert!(owners.machines(&cluster).await.unwrap().is_empty());
}

pub(super) async fn a_status_is_not_written_to_an_object_that_changed(stage: Stage) {
    let key = key("again");
    stage.create(maas_machine("again")).await;
    let old = Guard::of(&stage.machine(&key).await);
    let body = json!({ "metadata": { "labels": { "l": "v" } } });
    let changed: MaasMachine = kubernetes::patch(stage.port(), &key, &old, body).await.unwrap();
    let error = stage.port().apply_status(Kind::MaasMachine, &key, &old, json!({ "ready": true })).await;
    assert_eq!(error.unwrap_err().kind, ErrorKind::Conflict);
    assert_eq!(stage.machine(&key).await, changed);
}

pub(super) async fn saying_the_same_again_is_no_write(stage: Stage) {
    let key = key("same");
    stage.create(maas_machine("same")).await;
    let guard = Guard::of(&stage.machine(&key).await);
    let status = json!({ "ready": true, "hostname": "h" });
    stage.port().apply_status(Kind::MaasMachine, &key, &guard, status.clone()).await.unwrap();
    let before = stage.machine(&key).await;
    stage.port().apply_status(Kind::MaasMachine, &key, &Guard::of(&before), status).await.unwrap();
    let _: MaasMachine =
        kubernetes::patch(stage.port(), &key, &Guard::of(&before), json!({ "spec": { "image": "ubuntu/jammy" } }))
            .await
            .unwrap();
    assert_eq!(stage.machine(&key).await.resource_version(), before.resource_version());
}

pub(super) async fn secrets_and_config_maps_are_read_by_name(stage: Stage) {
    let metadata = json!({ "name": "settings", "namespace": "default" });
    stage
        .create(json!({ "apiVersion": "v1", "kind": "Secret", "metadata": metadata, "data": { "value": "aGk=" } }))
        .await;
    stage.create(json!({ "apiVersion": "v1", "kind": "ConfigMap", "metadata": metadata, "data": { "a": "b" } })).await;
    let secret = stage.port().secret(&key("settings")).await.unwrap().unwrap();
    assert_eq!(secret.text("value"), Some("hi"));
    assert_eq!(secret.bytes("value").unwrap().expose_secret(), b"hi");
    assert!(secret.text("other").is_none());
    assert!(!format!("{secret:?}").contains("hi"), "s21: {secret:?}");
    assert_eq!(stage.port().config_map(&key("settings")).await.unwrap().unwrap()["a"], "b");
}

pub(super) async fn machines_are_listed_by_their_cluster(stage: Stage) {
    for name in ["list-a", "list-b"] {
        stage.create(maas_machine(name)).await;
    }
    let of_a = stage.port().maas_machines(Some(&key("list-a"))).await.unwrap();
    assert_eq!(of_a.iter().map(|machine| machine.name_any()).collect::<Vec<_>>(), ["list-a"]);
    assert!(stage.port().maas_machines(Some(&Key::new("elsewhere", "list-a"))).await.unwrap().is_empty());
    let all = stage.port().maas_machines(None).await.unwrap();
    assert!(["list-a", "list-b"].iter().all(|name| all.iter().any(|machine| machine.name_any() == *name)));
}

pub(super) async fn what_machines_stand_for_is_known_as_soon_as_they_are_listed(stage: Stage) {
    let mut holder = maas_machine("census-a");
    holder["spec"]["providerID"] = json!("maas://z/cen5us");
    stage.create(holder).await;
    let machine_index = stage.port().machine_index().await.unwrap();
    let uid = stage.machine(&key("census-a")).await.uid();
    assert_eq!(machine_index.others_holding(Asker { uid: None, maas: None }, "cen5us"), [key("census-a")]);
    assert_eq!(machine_index.others_holding(Asker { uid: uid.as_deref(), maas: None }, "cen5us"), []);
    assert_eq!(machine_index.holders("maas", "cen5us"), [(key("census-a"), key("census-a"))]);
    stage.delete("MaasMachine", &key("census-a")).await;
    assert!(stage.port().machine_index().await.unwrap().holders("maas", "cen5us").is_empty());
}

pub(super) async fn cluster_api_objects_are_read_in_the_version_that_is_served(stage: Stage) {
    let core = |kind: &str, spec: Value| {
        json!({
            "apiVersion": "cluster.x-k8s.io/v1beta1", "kind": kind,
            "metadata": { "name": "core", "namespace": "default" }, "spec": spec,
        })
    };
    stage.create(core("Cluster", json!({ "paused": true }))).await;
    stage.create(core("Machine", json!({ "bootstrap": { "dataSecretName": "s" } }))).await;
    stage.set_status("Cluster", &key("core"), json!({ "infrastructureReady": true })).await;
    let cluster = stage.port().cluster(&key("core")).await.unwrap().unwrap();
    assert!(cluster.is_paused() && cluster.infrastructure_ready());
    assert_eq!(stage.port().machine(&key("core"), "any").await.unwrap().unwrap().bootstrap_secret(), Some("s"));
}

pub(super) async fn an_event_is_published(stage: Stage) {
    stage.create(maas_machine("evented")).await;
    let event = ObjectEvent {
        kind: Kind::MaasMachine,
        key: key("evented"),
        uid: stage.machine(&key("evented")).await.uid().unwrap(),
        warning: true,
        reason: "MachineAllocated".into(),
        message: "abc123 was allocated".into(),
    };
    stage.port().publish(&event).await.unwrap();
    stage.port().publish(&event).await.unwrap();
    // The in-memory implementation only stores them.
    let Stage::Server(client, port) = stage else { return };
    let events: Api<Event> = Api::namespaced(client, &event.key.namespace);
    let ours = ListParams::default().fields("regarding.name=evented");
    let told = events.list(&ours).await.unwrap().items;
    assert_eq!((told.len(), told[0].series.as_ref().unwrap().count), (1, 2), "what happens again is counted");
    assert_eq!((told[0].type_.as_deref(), told[0].note.as_deref()), (Some("Warning"), Some("abc123 was allocated")));
    events.delete(&told[0].name_any(), &DeleteParams::default()).await.unwrap();
    port.publish(&event).await.unwrap();
    assert_eq!(events.list(&ours).await.unwrap().items.len(), 1, "told anew, because nobody has it any more");
}

pub(super) async fn a_provider_id_cannot_be_replaced(stage: Stage) {
    stage.create(maas_machine("identified")).await;
    let provider_id = |id: &str| json!({ "spec": { "providerID": id, "systemID": "abc123" } });
    let made = stage.machine(&key("identified")).await;
    let set: MaasMachine =
        kubernetes::patch(stage.port(), &key("identified"), &Guard::of(&made), provider_id("maas://z/abc123"))
            .await
            .unwrap();
    let error = kubernetes::patch::<MaasMachine>(
        stage.port(),
        &key("identified"),
        &Guard::of(&set),
        provider_id("maas://z/def456"),
    )
    .await;
    assert_eq!(error.unwrap_err().kind, ErrorKind::Refused);
}

pub(super) async fn a_workload_cluster_without_a_kubeconfig_is_unavailable(stage: Stage) {
    let cluster = key("no-workload");
    assert_eq!(stage.port().workload_version(&cluster).await.unwrap_err().kind, ErrorKind::Unavailable);
    assert_eq!(stage.port().node(&cluster, "n").await.unwrap_err().kind, ErrorKind::Unavailable);
}

pub(super) async fn nodes_are_listed_and_annotated_if_they_are_still_as_they_were_read(stage: Stage) {
    let cluster = stage.workload("noded").await;
    let port = stage.port();
    let find = || async {
        let nodes = port.nodes(&cluster).await.unwrap();
        nodes.into_iter().find(|node| node.name == "noded-node").expect("the Node is there")
    };
    let mut node = find().await;
    assert_eq!(node.provider_id.as_deref(), Some("maas://z/abc123"));
    // The real cluster's controllers still write to a Node that was just created.
    for attempt in 0.. {
        match port.annotate_node(&cluster, &node, "lxdhost.cluster.com/leave", "true").await {
            Err(error) if error.kind == ErrorKind::Conflict && attempt < 10 => node = find().await,
            result => {
                result.unwrap();
                break;
            }
        }
    }
    let told = find().await;
    assert_eq!(told.annotations.get("lxdhost.cluster.com/leave").map(String::as_str), Some("true"));
    let error = port.annotate_node(&cluster, &node, "lxdhost.cluster.com/leave", "false").await.unwrap_err();
    assert_eq!(error.kind, ErrorKind::Conflict, "{error}");
    let gone = Node { name: "no-such".into(), ..told };
    assert_eq!(port.annotate_node(&cluster, &gone, "a", "b").await.unwrap_err().kind, ErrorKind::NotFound);
    assert_eq!(port.nodes(&key("no-workload")).await.unwrap_err().kind, ErrorKind::Unavailable);
}

pub(super) async fn a_node_gets_its_labels_with_its_provider_id_if_it_is_still_as_it_was_read(stage: Stage) {
    let cluster = stage.workload("labelled").await;
    let port = stage.port();
    let find = || async { port.node(&cluster, "labelled-node").await.unwrap().expect("the Node is there") };
    let labels = |value: &str| BTreeMap::from([("example.com/rack".to_owned(), value.to_owned())]);
    let mut node = find().await;
    for attempt in 0.. {
        match port.name_node(&cluster, &node, "maas://z/abc123", &labels("r7")).await {
            Err(error) if error.kind == ErrorKind::Conflict && attempt < 10 => node = find().await,
            result => {
                result.unwrap();
                break;
            }
        }
    }
    let named = find().await;
    assert_eq!(named.labels.get("example.com/rack").map(String::as_str), Some("r7"));
    assert_eq!(named.provider_id.as_deref(), Some("maas://z/abc123"));
    let error = port.name_node(&cluster, &node, "maas://z/abc123", &labels("r8")).await.unwrap_err();
    assert_eq!(error.kind, ErrorKind::Conflict, "{error}");
    let error = port.name_node(&cluster, &named, "maas://z/def456", &labels("r8")).await.unwrap_err();
    assert_eq!(error.kind, ErrorKind::Refused, "{error}");
    assert_eq!(find().await.labels, named.labels, "neither came through in part");
}

pub(super) async fn what_is_applied_to_a_workload_cluster_is_read_back_and_other_fields_stay(stage: Stage) {
    let cluster = stage.workload("applied").await;
    let port = stage.port();
    let map = |data: Value| {
        let metadata = json!({ "name": "applied-map", "namespace": "default" });
        json!({ "apiVersion": "v1", "kind": "ConfigMap", "metadata": metadata, "data": data })
    };
    let which = WorkloadRef::of(&map(json!({}))).unwrap();
    assert_eq!(port.workload_object(&cluster, &which).await.unwrap(), None);
    match &stage {
        Stage::Server(..) => drop(stage.create(map(json!({ "theirs": "1", "shared": "old" }))).await),
        Stage::Memory(port) => {
            port.put_workload_object(&cluster, map(json!({ "theirs": "1", "shared": "old" })));
        }
    }
    port.workload_apply(&cluster, &map(json!({ "ours": "2", "shared": "new" }))).await.unwrap();
    let stored = port.workload_object(&cluster, &which).await.unwrap().unwrap();
    assert_eq!(stored["data"], json!({ "ours": "2", "shared": "new", "theirs": "1" }));
    let broken = json!({ "kind": "ConfigMap" });
    assert_eq!(port.workload_apply(&cluster, &broken).await.unwrap_err().kind, ErrorKind::Refused);
    assert!(port.workload_serves(&cluster, "v1", "ConfigMap").await.unwrap());
    assert!(port.workload_serves(&cluster, "apps/v1", "DaemonSet").await.unwrap());
}

pub(super) async fn every_maas_cluster_is_listed(stage: Stage) {
    let made = stage
        .create(json!({
            "apiVersion": "infrastructure.cluster.x-k8s.io/v1beta1", "kind": "MaasCluster",
            "metadata": { "name": "keeper", "namespace": "default" }, "spec": { "dnsDomain": "maas" },
        }))
        .await;
    let uid = made["metadata"]["uid"].as_str().unwrap().to_owned();
    let clusters = stage.port().maas_clusters().await.unwrap();
    assert!(clusters.iter().any(|cluster| cluster.uid().as_ref() == Some(&uid)), "it is among all MaasClusters");
}

pub(super) async fn a_secret_is_made_once_and_never_changes(stage: Stage) {
    let secret = NewSecret {
        key: key("capmaas-host-keys-1"),
        labels: [("example.com/label".to_owned(), String::new())].into(),
        annotations: [("example.com/of".to_owned(), "team/c1".to_owned())].into(),
        values: [("tls.key".to_owned(), "CANARY".to_owned().into())].into(),
    };
    assert!(!format!("{secret:?}").contains("CANARY"), "s21: {secret:?}");
    stage.port().create_secret(&secret).await.unwrap();
    let stored = stage.port().secret(&secret.key).await.unwrap().unwrap();
    assert_eq!(stored.text("tls.key"), Some("CANARY"));
    assert_eq!(stage.port().create_secret(&secret).await.unwrap_err().kind, ErrorKind::Conflict);
    let raw = match &stage {
        Stage::Server(client, _) => {
            let found = Stage::api(client, "Secret").get(&secret.key.name).await.unwrap();
            serde_json::to_value(found).unwrap()
        }
        Stage::Memory(port) => port.object("Secret", &secret.key).unwrap(),
    };
    assert_eq!(raw["immutable"], true);
    assert_eq!(raw["metadata"]["labels"]["example.com/label"], "");
    assert_eq!(raw["metadata"]["annotations"]["example.com/of"], "team/c1");
}
