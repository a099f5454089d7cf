//! The simulated workload cluster satisfies Cluster API's real kubeadm control plane: with the provider's part done by
//! hand, three control-plane machines and a worker become Ready. A failure here is the testbed's, not the manager's.
#![allow(clippy::unwrap_used, clippy::expect_used, clippy::panic)]

use std::time::Duration;

use anyhow::Context as _;
use capmaas_e2e::cluster::ClusterPlan;
use capmaas_e2e::maas::{DOMAIN, Maas, USER};
use capmaas_e2e::{INFRASTRUCTURE, Objects, eventually_within, install_crds};
use capmaas_testbed::{CapiVersion, KubernetesVersion, Testbed};
use k8s_openapi::api::core::v1::Node;
use kube::api::{Api, Patch, PatchParams};
use serde_json::{Value, json};

struct Hand {
    maas: Maas,
    port: u16,
    machines: Objects,
    maas_clusters: Objects,
    maas_machines: Objects,
    secrets: Objects,
}

impl Hand {
    /// What the manager would do next, all at once.
    async fn work(&self) -> anyhow::Result<()> {
        for object in self.maas_machines.list().await? {
            let name = object["metadata"]["name"].as_str().unwrap_or_default().to_owned();
            match object["spec"]["providerID"].as_str() {
                None => self.deploy(&name, &object).await?,
                Some(id) => self.name_node(&object, id).await?,
            }
        }
        Ok(())
    }

    async fn deploy(&self, name: &str, object: &Value) -> anyhow::Result<()> {
        let owners = object["metadata"]["ownerReferences"].as_array().cloned().unwrap_or_default();
        let Some(owner) = owners.iter().find(|owner| owner["kind"] == "Machine") else { return Ok(()) };
        let machine = self.machines.get(owner["name"].as_str().unwrap()).await?;
        let Some(secret) = machine["spec"]["bootstrap"]["dataSecretName"].as_str() else { return Ok(()) };
        let data = self.secrets.get(secret).await?["data"]["value"].as_str().unwrap().to_owned();
        let free =
            self.maas.machines().into_iter().find(|machine| machine.owner.is_none()).context("no machine left")?;
        self.maas.control().with_model(|model| {
            model.world.bodies.entry(free.system_id.clone()).or_default().user_data = Some(data);
        });
        self.maas.arrange(json!([
            {"machine": {"system_id": free.system_id, "status": "Deployed", "owner": USER,
                         "osystem": "custom", "distro_series": "k8s-v1.35.8"}},
        ]))?;
        let found = self.maas.machines().into_iter().find(|machine| machine.system_id == free.system_id).unwrap();
        let control_plane = object["metadata"]["labels"].get("cluster.x-k8s.io/control-plane").is_some();
        if control_plane {
            let fqdn = format!("c1.{DOMAIN}");
            let mut addresses = self.maas.records().remove(&fqdn).unwrap_or_default();
            addresses.extend(&found.addresses);
            self.maas.arrange(json!([{"dns": {"fqdn": fqdn, "ip_addresses": addresses}}]))?;
        }
        let id = format!("maas://{}/{}", found.zone, found.system_id);
        self.maas_machines.merge(name, json!({"spec": {"providerID": id}})).await?;
        let status = json!({
            "ready": true,
            "initialization": {"provisioned": true},
            "hostname": found.hostname,
            "addresses": [{"type": "InternalIP", "address": found.addresses[0]}],
            "conditions": [ready()],
        });
        self.maas_machines.apply_status(name, status).await
    }

    async fn name_node(&self, object: &Value, id: &str) -> anyhow::Result<()> {
        let Ok(client) = self.maas.workload(self.port).await else { return Ok(()) };
        let nodes: Api<Node> = Api::all(client);
        let Some(hostname) = object["status"]["hostname"].as_str() else { return Ok(()) };
        let Some(node) = nodes.get_opt(hostname).await? else { return Ok(()) };
        if node.spec.and_then(|spec| spec.provider_id).is_none() {
            let patch = json!({"spec": {"providerID": id}});
            nodes.patch(hostname, &PatchParams::default(), &Patch::Merge(patch)).await?;
        }
        Ok(())
    }
}

fn ready() -> Value {
    json!({"type": "Ready", "status": "True", "reason": "Ready", "lastTransitionTime": "2026-11-15T00:00:00Z"})
}

#[tokio::test]
async fn three_control_planes_and_a_worker_become_ready_with_the_providers_part_done_by_hand() {
    let maas = Maas::start().unwrap();
    let testbed =
        Testbed::builder().cluster_api(Some(CapiVersion::V1_14)).name_server(maas.name_server).start().await.unwrap();
    install_crds(&testbed).await.unwrap();
    let expected = maas.expect_cluster(KubernetesVersion::V1_36).await.unwrap();
    let plan = ClusterPlan { control_planes: 3, workers: 1, ..ClusterPlan::new(CapiVersion::V1_14, "c1") };
    testbed.apply_objects(plan.objects(&expected)).await.unwrap();

    let of = |group: &str, version: &str, kind: &str| Objects::of(&testbed, group, version, kind).unwrap();
    let hand = Hand {
        port: expected.port,
        machines: of("cluster.x-k8s.io", "v1beta2", "Machine"),
        maas_clusters: of(INFRASTRUCTURE, "v1beta1", "MaasCluster"),
        maas_machines: of(INFRASTRUCTURE, "v1beta1", "MaasMachine"),
        secrets: of("", "v1", "Secret"),
        maas,
    };
    hand.maas_clusters.wait("c1", "/metadata/ownerReferences/0/kind", json!("Cluster")).await.unwrap();
    let endpoint = json!({"host": format!("c1.{DOMAIN}"), "port": expected.port});
    hand.maas_clusters.merge("c1", json!({"spec": {"controlPlaneEndpoint": endpoint}})).await.unwrap();
    let status = json!({"ready": true, "initialization": {"provisioned": true}, "conditions": [ready()]});
    hand.maas_clusters.apply_status("c1", status).await.unwrap();

    eventually_within(Duration::from_secs(240), "four machines Running", || async {
        hand.work().await?;
        let machines = hand.machines.list().await?;
        let running = machines.iter().filter(|machine| machine["status"]["phase"] == "Running").count();
        anyhow::ensure!(
            running == 4,
            "{running} of {} Machines are Running; trouble: {:?}; control plane: {}",
            machines.len(),
            hand.maas.trouble(),
            testbed.kubectl(["get", "kubeadmcontrolplane", "-o", "yaml"]).await?
        );
        Ok(())
    })
    .await
    .unwrap();
    let control_planes = of("controlplane.cluster.x-k8s.io", "v1beta2", "KubeadmControlPlane");
    control_planes.wait("c1-cp", "/status/readyReplicas", json!(3)).await.unwrap();
    testbed.stop().await;
}
