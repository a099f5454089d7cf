//! Every supported Cluster API core reads the status of our kinds: a hand-written status takes a Cluster and a Machine
//! to `Provisioned`, through the real core manager under its own ServiceAccount.
#![allow(clippy::unwrap_used, clippy::expect_used, clippy::panic)]

use capmaas_e2e::{Objects, install_crds};
use capmaas_testbed::{CapiVersion, KubernetesVersion, Testbed};
use serde_json::{Value, json};

const INFRASTRUCTURE: &str = "infrastructure.cluster.x-k8s.io";
const CORE: &str = "cluster.x-k8s.io";

/// How one generation of cores writes and reads objects.
struct Dialect {
    core: CapiVersion,
    /// The API version of Cluster and Machine that a user writes.
    version: &'static str,
    /// `status.failureDomains` as this core reads it on the MaasCluster.
    failure_domains: Value,
    /// Where the Cluster reports that its infrastructure is ready.
    infrastructure_ready: &'static str,
}

impl Dialect {
    fn old(core: CapiVersion) -> Self {
        Self {
            core,
            version: "v1beta1",
            failure_domains: json!({ "az1": { "controlPlane": true }, "az2": { "controlPlane": true } }),
            infrastructure_ready: "/status/infrastructureReady",
        }
    }

    fn new(core: CapiVersion) -> Self {
        Self {
            core,
            version: "v1beta2",
            failure_domains: json!([{ "name": "az1", "controlPlane": true }, { "name": "az2", "controlPlane": true }]),
            infrastructure_ready: "/status/initialization/infrastructureProvisioned",
        }
    }

    fn infrastructure_ref(&self, kind: &str, name: &str) -> Value {
        match self.version {
            "v1beta1" => json!({ "apiVersion": format!("{INFRASTRUCTURE}/v1beta1"), "kind": kind, "name": name }),
            _ => json!({ "apiGroup": INFRASTRUCTURE, "kind": kind, "name": name }),
        }
    }
}

async fn hand_written_status_leads_to_provisioned(kubernetes: KubernetesVersion, dialect: Dialect) {
    let testbed = Testbed::builder().kubernetes(kubernetes).cluster_api(Some(dialect.core)).start().await.unwrap();
    install_crds(&testbed).await.unwrap();

    let clusters = Objects::of(&testbed, CORE, dialect.version, "Cluster").unwrap();
    let machines = Objects::of(&testbed, CORE, dialect.version, "Machine").unwrap();
    let maas_clusters = Objects::of(&testbed, INFRASTRUCTURE, "v1beta1", "MaasCluster").unwrap();
    let maas_machines = Objects::of(&testbed, INFRASTRUCTURE, "v1beta1", "MaasMachine").unwrap();
    let secrets = Objects::of(&testbed, "", "v1", "Secret").unwrap();

    // A user creates a Cluster and a MaasCluster; core adopts the MaasCluster.
    maas_clusters.apply("c1", json!({ "spec": { "dnsDomain": "maas" } })).await.unwrap();
    let network = dialect.infrastructure_ref("MaasCluster", "c1");
    clusters.apply("c1", json!({ "spec": { "infrastructureRef": network } })).await.unwrap();
    maas_clusters.wait("c1", "/metadata/ownerReferences/0/kind", json!("Cluster")).await.unwrap();

    // The provider's part, by hand.
    let endpoint = json!({ "host": "c1.maas", "port": 6443 });
    maas_clusters
        .apply("c1", json!({ "spec": { "dnsDomain": "maas", "controlPlaneEndpoint": endpoint } }))
        .await
        .unwrap();
    let status = json!({
        "ready": true,
        "initialization": { "provisioned": true },
        "failureDomains": dialect.failure_domains,
        "conditions": [ready()],
    });
    maas_clusters.apply_status("c1", status).await.unwrap();
    clusters.wait("c1", dialect.infrastructure_ready, json!(true)).await.unwrap();
    clusters.wait("c1", "/status/phase", json!("Provisioned")).await.unwrap();
    clusters.wait("c1", "/spec/controlPlaneEndpoint", endpoint).await.unwrap();
    clusters.wait("c1", "/status/failureDomains", dialect.failure_domains.clone()).await.unwrap();

    // A Machine with its own bootstrap data needs no control plane provider.
    secrets
        .apply("m1-bootstrap", json!({ "type": "cluster.x-k8s.io/secret", "stringData": { "value": "#cloud-config" } }))
        .await
        .unwrap();
    let machine_spec = json!({ "image": "ubuntu/jammy", "minCPU": 2, "minMemory": 4096 });
    maas_machines.apply("m1", json!({ "spec": machine_spec })).await.unwrap();
    let spec = json!({
        "clusterName": "c1",
        "bootstrap": { "dataSecretName": "m1-bootstrap" },
        "infrastructureRef": dialect.infrastructure_ref("MaasMachine", "m1"),
    });
    machines.apply("m1", json!({ "spec": spec })).await.unwrap();
    maas_machines.wait("m1", "/metadata/ownerReferences/0/kind", json!("Machine")).await.unwrap();
    maas_machines.wait("m1", "/metadata/labels/cluster.x-k8s.io~1cluster-name", json!("c1")).await.unwrap();

    let mut with_provider_id = machine_spec;
    with_provider_id["providerID"] = json!("maas://az1/abc123");
    maas_machines.apply("m1", json!({ "spec": with_provider_id })).await.unwrap();
    let status = json!({
        "ready": true,
        "initialization": { "provisioned": true },
        "failureDomain": "az1",
        "machineState": "Deployed",
        "addresses": [{ "type": "ExternalIP", "address": "192.0.2.10" }],
        "conditions": [ready()],
    });
    maas_machines.apply_status("m1", status).await.unwrap();
    machines.wait("m1", "/status/phase", json!("Provisioned")).await.unwrap();
    machines.wait("m1", "/spec/providerID", json!("maas://az1/abc123")).await.unwrap();
    machines.wait("m1", "/status/addresses/0/address", json!("192.0.2.10")).await.unwrap();

    testbed.stop().await;
}

fn ready() -> Value {
    json!({ "type": "Ready", "status": "True", "reason": "Ready", "lastTransitionTime": "2026-11-15T00:00:00Z" })
}

#[tokio::test]
async fn cluster_api_v1_14_0_takes_a_hand_written_status_to_provisioned() {
    // It requires Kubernetes 1.33 or later, so the matrix of old versions excludes it by name.
    let newest = KubernetesVersion::V1_36;
    hand_written_status_leads_to_provisioned(newest, Dialect::new(CapiVersion::V1_14)).await;
}

#[tokio::test]
async fn cluster_api_v1_10_10_takes_a_hand_written_status_to_provisioned() {
    let kubernetes = KubernetesVersion::from_env().unwrap();
    hand_written_status_leads_to_provisioned(kubernetes, Dialect::old(CapiVersion::V1_10)).await;
}

#[tokio::test]
async fn cluster_api_v1_5_0_takes_a_hand_written_status_to_provisioned() {
    let kubernetes = KubernetesVersion::from_env().unwrap();
    hand_written_status_leads_to_provisioned(kubernetes, Dialect::old(CapiVersion::V1_5)).await;
}
