//! Clusters from creation to deletion.

use capmaas_core::cluster::observed::Contract;
use capmaas_core::plan::Requeue;
use capmaas_manager::kubernetes::Key;
use serde_json::json;

use crate::stage::{Stage, key};

fn host(stage: &Stage) -> String {
    stage.object()["spec"]["controlPlaneEndpoint"]["host"].as_str().unwrap_or_default().to_owned()
}

#[tokio::test]
async fn a_new_cluster_gets_one_name_and_one_record_and_is_ready_for_machines() {
    let stage = Stage::new();
    stage.cluster(json!({ "clusterNetwork": { "apiServerPort": 7443 } }), json!({}), json!({}));
    stage.rest().await;
    let object = stage.object();
    assert_eq!(object["metadata"]["finalizers"], json!(["maascluster.infrastructure.cluster.x-k8s.io"]));
    assert_eq!(object["spec"]["controlPlaneEndpoint"]["port"], 7443);
    assert!(host(&stage).starts_with("c1-") && host(&stage).ends_with(".k8s.example"));
    assert_eq!(stage.records(), [(host(&stage), vec![])]);
    assert_eq!(object["status"]["ready"], true);
    assert_eq!(object["status"]["initialization"]["provisioned"], true);
    assert_eq!(object["status"]["network"]["dnsName"], json!(host(&stage)));
    assert_eq!(stage.condition("CredentialsValid")["status"], "True");
    assert_eq!(stage.condition("LoadBalancerReady")["status"], "True");
    assert_eq!(stage.reason("Ready"), "APIServerNotReady");
    assert_eq!(stage.writes().len(), 1, "{:?}", stage.writes());
    let ttl = stage.maas.control().with_model(|model| model.db.dns.values().next().unwrap().address_ttl);
    assert_eq!(ttl, Some(10));
}

#[tokio::test]
async fn go30_an_idle_cluster_writes_nothing_and_asks_maas_once_in_half_an_hour() {
    let stage = Stage::new();
    stage.plain_cluster();
    stage.control_plane("cp1");
    stage.port.workload_answers(&key(), true);
    stage.rest().await;
    assert_eq!(stage.reason("Ready"), "Ready");
    stage.forget_requests();
    stage.port.take_changes();
    stage.advance(1800);
    assert!(matches!(stage.pass().await, Requeue::After(wait) if wait.as_secs() == 1800));
    assert!(stage.writes().is_empty() && stage.port.take_changes().is_empty());
    assert_eq!(stage.requests(), 1);
}

#[tokio::test]
async fn s18_control_planes_come_into_the_record_and_leave_it_before_they_are_released() {
    let stage = Stage::new();
    stage.plain_cluster();
    stage.rest().await;
    let (one, two) = (stage.control_plane("cp1"), stage.control_plane("cp2"));
    stage.rest().await;
    let mut published = stage.records()[0].1.clone();
    published.sort();
    let mut expected = vec![one.clone(), two];
    expected.sort();
    assert_eq!(published, expected);
    stage.port.delete("MaasMachine", &Key::new("default", "cp2"));
    stage.rest().await;
    assert_eq!(stage.records()[0].1, [one]);
}

#[tokio::test]
async fn s18_a_machine_whose_status_was_lost_can_leave_the_record_too() {
    let stage = Stage::new();
    stage.plain_cluster();
    let _ = (stage.control_plane("cp1"), stage.control_plane("cp2"));
    stage.rest().await;
    let two = Key::new("default", "cp2");
    stage.port.set_status("MaasMachine", &two, json!({})).unwrap();
    stage.port.delete("MaasMachine", &two);
    stage.rest().await;
    assert_eq!(stage.records()[0].1.len(), 1);
}

#[tokio::test]
async fn go14_a_cluster_is_deleted_with_its_machines_and_leaves_nothing_in_maas() {
    let stage = Stage::new();
    stage.plain_cluster();
    stage.control_plane("cp1");
    // An address that MAAS does not know: the record makes MAAS reserve it.
    stage.maas_machine("cp2", "abc123", &["10.9.9.9"]);
    stage.rest().await;
    assert_eq!(stage.records()[0].1.len(), 2);
    let reserved = || {
        stage.maas.control().with_model(|model| {
            let reserved = maas_sim::model::db::AllocType::UserReserved;
            model.db.addresses.values().filter(|row| row.alloc == reserved).count()
        })
    };
    assert_eq!(reserved(), 1);

    stage.port.delete("MaasCluster", &key());
    stage.rest().await;
    assert_eq!(stage.reason("Deleting"), "MachinesRemain");
    for name in ["cp1", "cp2"] {
        stage.port.delete("MaasMachine", &Key::new("default", name));
    }
    stage.rest().await;
    assert_eq!(
        stage.records()[0].1.len(),
        2,
        "s11: only MAAS knows whether they are VM hosts, whose agents need the name"
    );
    stage.leaves("cp1");
    stage.leaves("cp2");
    stage.rest().await;
    assert!(stage.records()[0].1.is_empty(), "machines can leave while the cluster is being deleted");
    stage.gone("cp1");
    stage.gone("cp2");
    stage.rest().await;
    assert!(stage.object().is_null(), "{:#}", stage.object());
    assert!(stage.records().is_empty());
    assert_eq!(reserved(), 0);
}

#[tokio::test]
async fn go15_an_endpoint_of_the_user_never_reaches_maas() {
    let by_cluster = json!({ "controlPlaneEndpoint": { "host": "vip.example", "port": 8443 } });
    let by_object = json!({ "controlPlaneEndpoint": { "host": "vip.example", "port": 8443 } });
    let annotated = json!({ "annotations": { "spectrocloud.com/custom-dns-provided": "" } });
    for (cluster, object, metadata) in [
        (by_cluster, json!({}), json!({})),
        (json!({}), by_object.clone(), json!({})),
        (json!({}), by_object, annotated),
    ] {
        let stage = Stage::new();
        stage.cluster(cluster, object, metadata);
        stage.control_plane("cp1");
        stage.rest().await;
        let endpoint = json!({ "host": "vip.example", "port": 8443 });
        assert_eq!(stage.object()["spec"]["controlPlaneEndpoint"], endpoint);
        assert_eq!(stage.reason("LoadBalancerReady"), "CustomEndpoint");
        assert_eq!(stage.object()["status"]["ready"], true);
        stage.port.delete("MaasCluster", &key());
        stage.gone("cp1");
        stage.rest().await;
        assert!(stage.object().is_null() && stage.writes().is_empty());
    }
}

#[tokio::test]
async fn preferred_subnets_come_from_the_config_map_of_the_namespace() {
    let stage = Stage::new();
    stage.plain_cluster();
    stage.create(json!({
        "apiVersion": "v1", "kind": "ConfigMap", "metadata": { "name": "maas-preferred-subnet", "namespace": "default" },
        "data": { "preferredSubnets": "192.168.7.0/24,10.8.0.0/16" },
    }));
    stage.maas_machine("cp1", "abc123", &["172.16.0.5", "10.8.0.5"]);
    stage.rest().await;
    assert_eq!(stage.records()[0].1, ["10.8.0.5"]);
}

#[tokio::test]
async fn s24_an_object_of_the_go_provider_is_taken_over_without_a_write_to_maas() {
    let stage = Stage::new();
    let address = stage.control_plane("cp1");
    let name = "c1-0abc12.k8s.example";
    stage.arrange(json!([{"dns": {"fqdn": name, "ttl": 10, "ip_addresses": [address]}}]));
    stage.cluster(
        json!({ "controlPlaneEndpoint": { "host": name, "port": 6443 } }),
        json!({ "controlPlaneEndpoint": { "host": name, "port": 6443 } }),
        json!({ "finalizers": ["maascluster.infrastructure.cluster.x-k8s.io"] }),
    );
    let status = json!({ "ready": true, "network": { "dnsName": name }, "failureDomains": [{ "name": "az1", "controlPlane": true }] });
    stage.port.set_status("MaasCluster", &key(), status).unwrap();
    stage.rest().await;
    assert!(stage.writes().is_empty(), "{:?}", stage.writes());
    assert_eq!(stage.object()["metadata"]["annotations"]["infrastructure.cluster.x-k8s.io/endpoint-source"], "adopted");
    assert_eq!(stage.object()["status"]["ready"], true);

    // We did not create the record: it is emptied and kept.
    stage.port.delete("MaasCluster", &key());
    stage.leaves("cp1");
    stage.rest().await;
    stage.gone("cp1");
    stage.rest().await;
    assert!(stage.object().is_null());
    assert_eq!(stage.records(), [(name.to_owned(), vec![])]);
    assert!(stage.port.events().iter().any(|event| event.reason == "DNSRecordLeft"));
}

#[tokio::test]
async fn failure_domains_are_found_and_have_the_shape_that_the_core_reads() {
    for (contract, expected) in [
        (Contract::List, json!([{ "name": "az1", "controlPlane": true }])),
        (Contract::Map, json!({ "az1": { "controlPlane": true } })),
    ] {
        let stage = Stage::with(contract);
        stage.cluster(json!({}), json!({ "discoverFailureDomains": true }), json!({}));
        stage.arrange(json!([
            {"machine": {"hostname": "bm1", "status": "Ready", "zone": "az1"}},
            {"machine": {"hostname": "bm2", "status": "Broken", "zone": "az2"}},
        ]));
        stage.rest().await;
        assert_eq!(stage.object()["status"]["failureDomains"], expected);
    }
    let stage = Stage::new();
    stage.cluster(json!({}), json!({ "failureDomains": ["az1", "az9"] }), json!({}));
    stage.control_plane("cp1");
    stage.port.workload_answers(&key(), true);
    stage.rest().await;
    assert_eq!(stage.object()["status"]["failureDomains"][1]["name"], "az9");
    assert_eq!(stage.reason("Ready"), "ZoneNotFound");
}
