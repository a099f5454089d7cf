//! One scene: a management cluster with Cluster API and our manager from its manifests, and a MAAS whose machines boot.

use std::net::IpAddr;
use std::sync::Arc;
use std::time::Duration;

use anyhow::{Context as _, bail, ensure};
use capmaas_testbed::{CapiOptions, CapiVersion, Clusterctl, KubernetesVersion, NodePlayer, Testbed};
use k8s_openapi::api::core::v1::Node;
use kube::api::{Api, ListParams};
use serde_json::{Value, json};
use tokio::io::{AsyncReadExt as _, AsyncWriteExt as _};

use crate::cluster::ClusterPlan;
use crate::maas::{API_KEY, Expected, Maas};
use crate::maas_version;
use crate::manager::{DIAGNOSTICS, HEALTH, MANAGER_NAMESPACE, manager_address, manager_pod, reader_token, scrape};
use crate::release::{NEW_CONTRACT, make_releases, release_of};
use crate::{INFRASTRUCTURE, Objects, eventually_within, install, manager_player, program};

/// A cluster takes at least half a minute, because Cluster API polls for a new API server only so often.
const CLUSTER_PATIENCE: Duration = Duration::from_secs(300);
const ANSWER_PATIENCE: Duration = Duration::from_secs(20);
/// Feature gates for ClusterClass, Runtime SDK and taints.
const FEATURES: &[&str] = &["ClusterTopology", "RuntimeSDK", "MachineTaintPropagation"];

/// Everything that a scenario needs. Stopped on drop.
pub struct Scene {
    pub core: CapiVersion,
    // In drop order.
    player: Option<NodePlayer>,
    pub testbed: Testbed,
    pub maas: Arc<Maas>,
}

impl Scene {
    /// Starts everything; the manager has its credentials where document 001 specifies them and is Ready.
    pub async fn start(core: CapiVersion) -> anyhow::Result<Self> {
        let mut scene = Self::without_manager(core).await?;
        scene.start_manager().await?;
        Ok(scene)
    }

    /// Installs what the provider needs and starts our manager.
    pub async fn start_manager(&mut self) -> anyhow::Result<()> {
        install(&self.testbed).await?;
        self.start_installed_manager().await
    }

    /// Starts our manager where everything except its credentials is installed.
    pub async fn start_installed_manager(&mut self) -> anyhow::Result<()> {
        maas_version::check(&self.maas.endpoint).await?;
        self.give_credentials(&self.maas.endpoint, API_KEY).await?;
        self.player = Some(manager_player(&self.testbed).await?);
        Ok(())
    }

    /// Starts everything except our manager, whose CRDs are not installed either.
    pub async fn without_manager(core: CapiVersion) -> anyhow::Result<Self> {
        Self::without_manager_before(core, Arc::new(Maas::start()?)).await
    }

    /// Starts everything for an existing MAAS.
    pub async fn before(core: CapiVersion, maas: Arc<Maas>) -> anyhow::Result<Self> {
        let mut scene = Self::without_manager_before(core, maas).await?;
        scene.start_manager().await?;
        Ok(scene)
    }

    async fn without_manager_before(core: CapiVersion, maas: Arc<Maas>) -> anyhow::Result<Self> {
        let builder = Testbed::builder().cluster_api(Some(core)).name_server(maas.name_server);
        let testbed = builder.start().await?;
        Ok(Self { core, player: None, testbed, maas })
    }

    /// Starts a management cluster whose providers clusterctl installs from our release, for an existing MAAS.
    pub async fn start_by_clusterctl(maas: Arc<Maas>) -> anyhow::Result<(Self, Clusterctl)> {
        Self::start_release(maas, NEW_CONTRACT).await
    }

    /// As [`Self::start_by_clusterctl`], with the release of one contract. The other release is in the repository as
    /// well.
    pub async fn start_release(maas: Arc<Maas>, contract: &str) -> anyhow::Result<(Self, Clusterctl)> {
        let core = CapiVersion::V1_14;
        let builder = Testbed::builder().controller_manager(true).name_server(maas.name_server);
        let testbed = builder.start().await?;
        let releases = make_releases(&testbed).await?;
        let clusterctl = Clusterctl::prepare(&testbed, &releases[0]).await?;
        clusterctl.add_release(&releases[1])?;
        let provider = format!("maas:{}", release_of(contract)?);
        clusterctl.run(["init", "--infrastructure", &provider]).await?;
        let mut scene = Self { core, player: None, testbed, maas };
        // The Deployments of Cluster API's own managers do not run; the managers are started as processes instead.
        let options = CapiOptions { features: FEATURES, ..CapiOptions::new(core) };
        scene.testbed.start_cluster_api(&options).await?;
        scene.start_installed_manager().await?;
        Ok((scene, clusterctl))
    }

    /// Creates the manager's credentials Secret where document 001 specifies it.
    pub async fn give_credentials(&self, endpoint: &str, key: &str) -> anyhow::Result<()> {
        let metadata = |name: &str| json!({"name": name, "namespace": MANAGER_NAMESPACE});
        let objects = vec![
            json!({"apiVersion": "v1", "kind": "Secret", "metadata": metadata("maas-credentials"),
                   "stringData": {"apiKey": key}}),
            json!({"apiVersion": "v1", "kind": "ConfigMap", "metadata": metadata("capmaas-config"),
                   "data": {"maasEndpoint": endpoint}}),
        ];
        Ok(self.testbed.apply_objects(objects).await?)
    }

    /// Creates a cluster, and the workload cluster that its machines will join.
    pub async fn create(&self, plan: &ClusterPlan) -> anyhow::Result<Expected> {
        let expected = self.expect_cluster().await?;
        self.testbed.apply_objects(plan.objects(&expected)).await?;
        Ok(expected)
    }

    /// Only the workload cluster: a plan may need its port.
    pub async fn expect_cluster(&self) -> anyhow::Result<Expected> {
        self.maas.expect_cluster(KubernetesVersion::V1_36).await
    }

    /// The address of the first running machine.
    pub async fn first_address(&self) -> anyhow::Result<IpAddr> {
        let first = eventually_within(CLUSTER_PATIENCE, "a machine that runs", || async {
            let deployed = self.maas.taken().into_iter().find(|machine| machine.status == "Deployed" && machine.on);
            deployed.and_then(|machine| machine.addresses.first().copied()).context("none does")
        });
        self.explain(first.await).await
    }

    /// Cluster API objects or our own in the namespace of a plan.
    pub fn objects(&self, plan: &ClusterPlan, kind: &str) -> anyhow::Result<Objects> {
        let (group, version) = match kind {
            kind if kind.starts_with("Maas") => (INFRASTRUCTURE, "v1beta1"),
            "KubeadmControlPlane" => ("controlplane.cluster.x-k8s.io", plan.api_version()),
            "Secret" | "ConfigMap" => ("", "v1"),
            _ => ("cluster.x-k8s.io", plan.api_version()),
        };
        Objects::within(&self.testbed, &plan.namespace, group, version, kind)
    }

    /// Waits until exactly the machines of the plan are Running, their Nodes have their provider IDs, and the control
    /// plane is Ready.
    pub async fn wait_running(&self, plan: &ClusterPlan, expected: &Expected) -> anyhow::Result<()> {
        let (machines, maas_machines) = (self.objects(plan, "Machine")?, self.objects(plan, "MaasMachine")?);
        let wanted = usize::try_from(plan.control_planes + plan.workers)?;
        let what = format!("{wanted} Machines of {} Running", plan.name);
        let outcome = eventually_within(CLUSTER_PATIENCE, &what, || async {
            let all = machines.list().await?;
            let running = all.iter().filter(|machine| machine["status"]["phase"] == "Running").count();
            ensure!(all.len() == wanted && running == wanted, "{running} of {} Machines are Running", all.len());
            let versions: Vec<&Value> = all.iter().map(|machine| &machine["spec"]["version"]).collect();
            ensure!(versions.iter().all(|version| **version == json!(plan.version)), "the versions are {versions:?}");
            let mut ids: Vec<String> = Vec::new();
            for object in maas_machines.list().await? {
                ids.push(object["spec"]["providerID"].as_str().context("a MaasMachine has no provider ID")?.to_owned());
            }
            let nodes: Api<Node> = Api::all(self.maas.workload(expected.port).await?);
            let nodes = nodes.list(&ListParams::default()).await?;
            for node in &nodes.items {
                let zone = node.metadata.labels.as_ref().and_then(|labels| labels.get("topology.kubernetes.io/zone"));
                let id = node.spec.as_ref().and_then(|spec| spec.provider_id.as_deref()).unwrap_or_default();
                let zoned = zone.is_some_and(|zone| id.split("://").nth(1).is_some_and(|rest| rest.starts_with(zone)));
                ensure!(
                    zoned,
                    "{:?} is labelled with the zone {zone:?} and has the provider ID {id:?}",
                    node.metadata.name
                );
            }
            let mut on_nodes: Vec<String> = nodes.items.into_iter().filter_map(|node| node.spec?.provider_id).collect();
            ids.sort();
            on_nodes.sort();
            ensure!(ids.len() == wanted && ids == on_nodes, "MaasMachines have {ids:?}, Nodes {on_nodes:?}");
            Ok(())
        });
        self.explain(outcome.await).await?;
        let control_planes = self.objects(plan, "KubeadmControlPlane")?;
        let name = format!("{}-cp", plan.name);
        let ready = control_planes.wait(&name, "/status/readyReplicas", json!(plan.control_planes));
        self.explain(ready.await).await
    }

    /// Deletes the Cluster and waits until nothing of it is left, in Kubernetes and in MAAS.
    pub async fn delete(&self, plan: &ClusterPlan) -> anyhow::Result<()> {
        self.objects(plan, "Cluster")?.delete(&plan.name).await?;
        self.wait_nothing_left(plan).await
    }

    /// Waits until nothing is left of a cluster that is being deleted, and MAAS is as it was before any cluster.
    pub async fn wait_nothing_left(&self, plan: &ClusterPlan) -> anyhow::Result<()> {
        self.wait_gone(plan).await?;
        let left = self.maas.leftovers();
        self.explain(if left.is_empty() { Ok(()) } else { Err(anyhow::anyhow!("left in MAAS: {left:?}")) }).await
    }

    /// Waits until no object of a cluster that is being deleted is left.
    pub async fn wait_gone(&self, plan: &ClusterPlan) -> anyhow::Result<()> {
        let what = format!("nothing left of {}", plan.name);
        let outcome = eventually_within(CLUSTER_PATIENCE, &what, || async {
            for kind in ["Cluster", "Machine", "MaasCluster", "MaasMachine"] {
                let left = self.objects(plan, kind)?.list().await?;
                let names: Vec<&Value> = left.iter().map(|object| &object["metadata"]["name"]).collect();
                ensure!(left.is_empty(), "there are still {kind} {names:?}");
            }
            Ok(())
        });
        self.explain(outcome.await).await
    }

    /// The addresses of the control-plane machines of a cluster, sorted.
    pub async fn control_plane_addresses(&self, plan: &ClusterPlan) -> anyhow::Result<Vec<IpAddr>> {
        let mut found = Vec::new();
        let machines = self.maas.machines();
        for object in self.objects(plan, "MaasMachine")?.list().await? {
            if object["metadata"]["labels"].get("cluster.x-k8s.io/control-plane").is_none() {
                continue;
            }
            let id = object["spec"]["providerID"].as_str().unwrap_or_default();
            let machine = machines.iter().find(|machine| id.ends_with(&format!("/{}", machine.system_id)));
            found.extend(&machine.with_context(|| format!("no machine is {id:?}"))?.addresses);
        }
        found.sort();
        Ok(found)
    }

    /// Secrets that appear where they must not (S21): in the manager's log, in events, in our objects, or in its HTTP
    /// responses.
    pub async fn secrets_seen(&self) -> anyhow::Result<Vec<String>> {
        let kinds = "events,maasclusters,maasmachines,leases";
        let places = [
            ("the manager's log", self.manager_log().await?),
            ("events and objects", self.testbed.kubectl(["get", "-A", kinds, "-o", "yaml"]).await?),
            ("the metrics", self.metrics().await?),
            ("/readyz", self.ask_manager("GET", "/readyz", "").await?),
            ("/healthz", self.ask_manager("GET", "/healthz", "").await?),
        ];
        // The first is part of every key that a test makes up, the others of every kubeadm cloud-config.
        let secrets = ["CANARY", "#cloud-config", "PRIVATE KEY", "bootstrapToken"];
        let seen = |(place, text): &(&str, String)| -> Vec<String> {
            secrets
                .iter()
                .filter(|secret| text.contains(**secret))
                .map(|secret| format!("{secret} in {place}"))
                .collect()
        };
        Ok(places.iter().flat_map(seen).collect())
    }

    /// Kills the manager's process as `kill -9` does. Its node restarts it a moment later.
    pub async fn kill_manager(&self) -> anyhow::Result<()> {
        let pod = manager_pod(&self.testbed).await?;
        let player = self.player.as_ref().context("there is no manager in this scene")?;
        for id in player.process_ids(MANAGER_NAMESPACE, &pod) {
            // It may exit by itself at the same moment.
            let _ = std::process::Command::new("kill").args(["-9", &id.to_string()]).status()?;
        }
        Ok(())
    }

    /// The manager's metrics, read with an account that may read them.
    pub async fn metrics(&self) -> anyhow::Result<String> {
        let player = self.player.as_ref().context("there is no manager in this scene")?;
        let address = manager_address(&self.testbed, player, DIAGNOSTICS).await?;
        let token = reader_token(&self.testbed).await?;
        let (status, text) = scrape(&address, Some(&token)).await?;
        ensure!(status == 200, "the metrics are refused with {status}: {text}");
        Ok(text)
    }

    /// Sends an HTTP request to the manager's health probe port.
    pub async fn ask_manager(&self, method: &str, path: &str, body: &str) -> anyhow::Result<String> {
        let player = self.player.as_ref().context("there is no manager in this scene")?;
        let address = manager_address(&self.testbed, player, HEALTH).await?;
        let mut stream = tokio::net::TcpStream::connect(&address).await.with_context(|| format!("reach {address}"))?;
        let length = body.len();
        let request = format!(
            "{method} {path} HTTP/1.1\r\nHost: {address}\r\nConnection: close\r\nContent-Length: {length}\r\n\r\n{body}"
        );
        stream.write_all(request.as_bytes()).await?;
        let mut answer = Vec::new();
        tokio::time::timeout(ANSWER_PATIENCE, stream.read_to_end(&mut answer)).await??;
        Ok(String::from_utf8_lossy(&answer).into_owned())
    }

    /// The output of the kubectl plugin, with the user's own key. Its exit code only counts if it printed no list:
    /// `doctor` fails when it finds something.
    pub async fn plugin(&self, arguments: &[&str]) -> anyhow::Result<String> {
        let output = tokio::process::Command::new(program("kubectl-maas")?)
            .args(arguments)
            .env("KUBECONFIG", self.testbed.kubeconfig_path())
            .env("MAAS_ENDPOINT", &self.maas.endpoint)
            .env("MAAS_API_KEY", API_KEY)
            .output()
            .await
            .context("start kubectl-maas")?;
        let printed = String::from_utf8_lossy(&output.stdout).into_owned();
        if !printed.is_empty() {
            return Ok(printed);
        }
        // An empty list is reported on standard error, as kubectl does.
        let said = String::from_utf8_lossy(&output.stderr).into_owned();
        ensure!(output.status.success(), "kubectl maas failed: {said}");
        Ok(said)
    }

    /// The manager's complete log.
    pub async fn manager_log(&self) -> anyhow::Result<String> {
        let pod = manager_pod(&self.testbed).await?;
        let player = self.player.as_ref().context("there is no manager in this scene")?;
        Ok(player.logs(MANAGER_NAMESPACE, &pod))
    }

    /// Adds to an error what is needed first to debug it.
    pub async fn explain<T>(&self, outcome: anyhow::Result<T>) -> anyhow::Result<T> {
        let Err(error) = outcome else { return outcome };
        let kinds = "clusters,machines,maasclusters,maasmachines,kubeadmcontrolplanes,machinedeployments";
        let table = self.testbed.kubectl(["get", "-A", kinds]).await.unwrap_or_else(|error| error.to_string());
        let ours = self.testbed.kubectl(["get", "-A", "maasclusters,maasmachines", "-o", "yaml"]).await;
        let ours = ours.unwrap_or_else(|error| error.to_string());
        let log = self.manager_log().await.unwrap_or_else(|error| error.to_string());
        let log: Vec<&str> = log.lines().rev().take(40).collect();
        let log: Vec<&str> = log.into_iter().rev().collect();
        bail!(
            "{error:#}\n\n{table}\n{ours}\nMAAS: {:#?}\nrecords: {:?}\nnot joined: {:?}\nthe manager's log ends with:\n{}",
            self.maas.taken(),
            self.maas.records(),
            self.maas.trouble(),
            log.join("\n")
        )
    }

    /// Stops everything in order.
    pub async fn stop(mut self) {
        if let Some(player) = self.player.take() {
            player.stop().await;
        }
        self.testbed.stop().await;
    }
}
