//! Cluster API's part, simulated: its kinds without its managers. It creates Machines with their dependents, reports to
//! the cluster that its infrastructure is ready and to a Machine which Node it has, and deletes them again. So a
//! thousand machines are cheap, and nothing but the provider is measured.

use std::collections::BTreeMap;

use std::sync::{Arc, Mutex, MutexGuard, PoisonError};
use std::time::Duration;

use anyhow::{Context as _, ensure};
use capmaas_testbed::Testbed;
use futures::{StreamExt as _, TryStreamExt as _, stream};
use jiff::Timestamp;
use k8s_openapi::apimachinery::pkg::apis::meta::v1::MicroTime;
use kube::api::{ApiResource, DeleteParams, DynamicObject, Patch, PatchParams, PostParams, PropagationPolicy};
use kube::core::GroupVersionKind;
use kube::runtime::watcher::{self, Event, watcher};
use kube::{Api, ResourceExt as _};
use serde_json::{Value, json};
use tokio::sync::mpsc;
use tokio::task::JoinHandle;

use crate::floor::Writes;
use crate::maas::{API_KEY, DOMAIN, IMAGE};

/// It turns swap off itself, as the bootstrap data of our templates does.
const BOOTSTRAP: &str = "#cloud-config\nruncmd:\n- swapoff -a\n- systemctl mask swap.target\n";
const NAMESPACE: &str = "default";
const CLUSTER: &str = "bench";
const INFRASTRUCTURE: &str = "infrastructure.cluster.x-k8s.io";
const CORE: &str = "cluster.x-k8s.io";
/// The name prefix of control-plane machines.
pub const CONTROL_PLANE: &str = "cp-";
/// How many of our own writes run concurrently.
const PARALLEL: usize = 16;
const POLL: Duration = Duration::from_millis(50);

/// What machines are made of.
#[derive(Clone, Copy, Debug, PartialEq, Eq, clap::ValueEnum, serde::Serialize)]
#[serde(rename_all = "lowercase")]
pub enum Kind {
    /// Machines that stand in a rack.
    Metal,
    /// VMs on the LXD hosts of MAAS.
    Vm,
}

impl Kind {
    pub fn spec(self) -> Value {
        match self {
            Self::Metal => json!({"image": IMAGE, "minCPU": 4, "minMemory": 8192}),
            Self::Vm => json!({"image": IMAGE, "minCPU": 2, "minMemory": 2048, "lxd": {"enabled": true}}),
        }
    }
}

/// What was observed of one MaasMachine.
#[derive(Clone, Debug, Default)]
pub struct Life {
    /// When we created it.
    pub created: Option<Timestamp>,
    /// When the provider reported it provisioned.
    pub provisioned: Option<Timestamp>,
    /// When we deleted it.
    pub deleted: Option<Timestamp>,
    /// When it was gone.
    pub gone: Option<Timestamp>,
    /// The last part of its provider ID.
    pub system_id: Option<String>,
    /// Whether its condition Ready is True.
    pub ready: bool,
    /// How often that changed after it had been True once.
    pub flips: usize,
}

/// The simulated Cluster API. Stopped on drop.
pub struct ClusterApi {
    client: kube::Client,
    namespace: String,
    /// The identity reference of the MaasCluster, if it does not use the provider's own MAAS.
    identity: Option<Value>,
    lives: Arc<Mutex<BTreeMap<String, Life>>>,
    tasks: Vec<JoinHandle<()>>,
}

impl Drop for ClusterApi {
    fn drop(&mut self) {
        self.tasks.iter().for_each(JoinHandle::abort);
    }
}

impl ClusterApi {
    /// Starts the simulation.
    pub fn start(testbed: &Testbed) -> anyhow::Result<Self> {
        let (mut played, told) = Self::watching(testbed, NAMESPACE, None)?;
        played.introduce_nodes(told);
        Ok(played)
    }

    /// Starts the simulation of a cluster whose Nodes never join.
    pub fn start_without_nodes(testbed: &Testbed) -> anyhow::Result<Self> {
        Ok(Self::watching(testbed, NAMESPACE, None)?.0)
    }

    /// Starts the simulation for another tenant: in its own namespace, with its own credentials in a Secret there.
    pub async fn start_tenant(testbed: &Testbed, namespace: &str, endpoint: &str) -> anyhow::Result<Self> {
        let key = json!({"maasEndpoint": endpoint, "apiKey": API_KEY});
        let objects = vec![
            json!({"apiVersion": "v1", "kind": "Namespace", "metadata": {"name": namespace}}),
            json!({"apiVersion": "v1", "kind": "Secret", "metadata": {"name": "maas", "namespace": namespace}, "stringData": key}),
        ];
        testbed.apply_objects(objects).await?;
        let (mut played, told) = Self::watching(testbed, namespace, Some(json!({"name": "maas"})))?;
        played.introduce_nodes(told);
        Ok(played)
    }

    /// Also returns the name of each machine that becomes provisioned, with its provider ID.
    fn watching(
        testbed: &Testbed,
        namespace: &str,
        identity: Option<Value>,
    ) -> anyhow::Result<(Self, mpsc::UnboundedReceiver<(String, String)>)> {
        let client = testbed.client()?;
        let lives = Arc::<Mutex<BTreeMap<String, Life>>>::default();
        let (tell, told) = mpsc::unbounded_channel();
        let machines = api(&client, namespace, INFRASTRUCTURE, "v1beta1", "MaasMachine");
        let follow = tokio::spawn(follow(machines, lives.clone(), tell));
        Ok((Self { client, namespace: namespace.to_owned(), identity, lives, tasks: vec![follow] }, told))
    }

    fn introduce_nodes(&mut self, told: mpsc::UnboundedReceiver<(String, String)>) {
        self.tasks.push(tokio::spawn(introduce_nodes(self.api("Machine"), told)));
    }

    fn api(&self, kind: &str) -> Api<DynamicObject> {
        let api = |group: &str, version: &str| api(&self.client, &self.namespace, group, version, kind);
        match kind {
            "Secret" => api("", "v1"),
            "Event" => api("events.k8s.io", "v1"),
            kind if kind.starts_with("Maas") => api(INFRASTRUCTURE, "v1beta1"),
            _ => api(CORE, "v1beta2"),
        }
    }

    async fn create(&self, kind: &str, object: Value) -> anyhow::Result<DynamicObject> {
        let object: DynamicObject = serde_json::from_value(object)?;
        let name = object.name_any();
        let created = self.api(kind).create(&PostParams::default(), &object).await;
        created.with_context(|| format!("create the {kind} {name}"))
    }

    /// Creates the cluster and waits until the provider has done its part.
    pub async fn create_cluster(&self, patience: Duration) -> anyhow::Result<()> {
        let cluster = json!({
            "apiVersion": format!("{CORE}/v1beta2"), "kind": "Cluster", "metadata": metadata(CLUSTER, &[]),
            "spec": {
                "clusterNetwork": {"pods": {"cidrBlocks": ["192.168.0.0/16"]}},
                "infrastructureRef": {"apiGroup": INFRASTRUCTURE, "kind": "MaasCluster", "name": CLUSTER},
            },
        });
        let cluster = self.create("Cluster", cluster).await?;
        let owner = owner("Cluster", &cluster);
        let mut infrastructure = json!({
            "apiVersion": format!("{INFRASTRUCTURE}/v1beta1"), "kind": "MaasCluster",
            "metadata": metadata(CLUSTER, &[owner]), "spec": {"dnsDomain": DOMAIN},
        });
        if let Some(identity) = &self.identity {
            infrastructure["spec"]["identityRef"] = identity.clone();
        }
        self.create("MaasCluster", infrastructure).await?;
        self.wait(patience, "the MaasCluster is provisioned", || async {
            Ok(is_provisioned(&self.api("MaasCluster").get(CLUSTER).await?.data))
        })
        .await?;
        let status = json!({"status": {"initialization": {"infrastructureProvisioned": true}, "phase": "Provisioned"}});
        self.patch_status("Cluster", CLUSTER, status).await
    }

    /// Creates the cluster's kubeconfig, as its control plane would.
    pub async fn give_kubeconfig(&self, kubeconfig: &str) -> anyhow::Result<()> {
        let name = format!("{CLUSTER}-kubeconfig");
        let secret = json!({
            "apiVersion": "v1", "kind": "Secret", "metadata": metadata(&name, &[]), "type": "cluster.x-k8s.io/secret",
            "stringData": {"value": kubeconfig},
        });
        self.create("Secret", secret).await?;
        Ok(())
    }

    /// Reports the control plane as initialized, which nothing else here would.
    pub async fn initialize_control_plane(&self) -> anyhow::Result<()> {
        let status = json!({"status": {"initialization": {"controlPlaneInitialized": true}}});
        self.patch_status("Cluster", CLUSTER, status).await
    }

    async fn patch_status(&self, kind: &str, name: &str, status: Value) -> anyhow::Result<()> {
        let patched = self.api(kind).patch_status(name, &PatchParams::default(), &Patch::Merge(status)).await;
        patched.with_context(|| format!("write the status of the {kind} {name}"))?;
        Ok(())
    }

    /// Creates machines as fast as the API server accepts them.
    pub async fn create_machines(&self, names: &[String], spec: &Value) -> anyhow::Result<()> {
        stream::iter(names).map(Ok).try_for_each_concurrent(PARALLEL, |name| self.create_machine(name, spec)).await
    }

    async fn create_machine(&self, name: &str, spec: &Value) -> anyhow::Result<()> {
        let secret = json!({
            "apiVersion": "v1", "kind": "Secret", "metadata": metadata(name, &[]), "type": "cluster.x-k8s.io/secret",
            "stringData": {"value": BOOTSTRAP, "format": "cloud-config"},
        });
        self.create("Secret", secret).await?;
        let mut machine = json!({
            "apiVersion": format!("{CORE}/v1beta2"), "kind": "Machine", "metadata": metadata(name, &[]),
            "spec": {
                "clusterName": CLUSTER, "version": "v1.35.8", "bootstrap": {"dataSecretName": name},
                "infrastructureRef": {"apiGroup": INFRASTRUCTURE, "kind": "MaasMachine", "name": name},
            },
        });
        machine["metadata"]["finalizers"] = json!(["machine.cluster.x-k8s.io"]);
        let machine = self.create("Machine", machine).await?;
        let infrastructure = json!({
            "apiVersion": format!("{INFRASTRUCTURE}/v1beta1"), "kind": "MaasMachine",
            "metadata": metadata(name, &[owner("Machine", &machine)]), "spec": spec,
        });
        lock(&self.lives).entry(name.to_owned()).or_default();
        self.create("MaasMachine", infrastructure).await?;
        lock(&self.lives).entry(name.to_owned()).or_default().created = Some(Timestamp::now());
        Ok(())
    }

    /// Writes about a machine what a provider would, of about the same size, and finally that it is provisioned.
    pub async fn write_as_a_provider(&self, name: &str, writes: Writes) -> anyhow::Result<()> {
        let objects = self.api("MaasMachine");
        for number in 1..=writes.patches {
            let mut patch = json!({"metadata": {"annotations": {"bench/record": format!("{number:0>200}")}}});
            if number == writes.patches {
                patch["spec"] = json!({"providerID": format!("maas://az1/{name}"), "systemID": name});
            }
            let patched = objects.patch(name, &PatchParams::default(), &Patch::Merge(patch)).await;
            patched.with_context(|| format!("change the MaasMachine {name}"))?;
        }
        for number in 1..=writes.statuses {
            let status = json!({
                "apiVersion": format!("{INFRASTRUCTURE}/v1beta1"), "kind": "MaasMachine", "metadata": {"name": name},
                "status": status(name, number == writes.statuses),
            });
            let force = PatchParams::apply("bench").force();
            let applied = objects.patch_status(name, &force, &Patch::Apply(status)).await;
            applied.with_context(|| format!("write the status of the MaasMachine {name}"))?;
        }
        for number in 0..writes.events {
            let event = json!({
                "apiVersion": "events.k8s.io/v1", "kind": "Event",
                "metadata": {"name": format!("{name}.{number}")}, "eventTime": MicroTime(Timestamp::now()),
                "reportingController": "bench", "reportingInstance": "bench", "type": "Normal", "reason": "Floor", "action": "Floor",
                "note": "what a provider would tell about a machine",
                "regarding": {"apiVersion": format!("{INFRASTRUCTURE}/v1beta1"), "kind": "MaasMachine", "name": name,
                              "namespace": self.namespace},
            });
            self.create("Event", event).await?;
        }
        Ok(())
    }

    /// Deletes machines: Machine and MaasMachine, as Cluster API does.
    pub async fn delete_machines(&self, names: &[String]) -> anyhow::Result<()> {
        stream::iter(names)
            .map(Ok)
            .try_for_each_concurrent(PARALLEL, |name| async {
                self.delete("Machine", name).await?;
                lock(&self.lives).entry(name.clone()).or_default().deleted = Some(Timestamp::now());
                self.delete("MaasMachine", name).await
            })
            .await
    }

    async fn delete(&self, kind: &str, name: &str) -> anyhow::Result<()> {
        let background =
            DeleteParams { propagation_policy: Some(PropagationPolicy::Background), ..DeleteParams::default() };
        match self.api(kind).delete(name, &background).await {
            Err(kube::Error::Api(refused)) if refused.is_not_found() => Ok(()),
            answer => answer.map(drop).with_context(|| format!("delete the {kind} {name}")),
        }
    }

    /// Deletes the Machines whose MaasMachines are gone, and their bootstrap data.
    pub async fn forget_machines(&self, names: &[String]) -> anyhow::Result<()> {
        stream::iter(names)
            .map(Ok)
            .try_for_each_concurrent(PARALLEL, |name| async move {
                let none = json!({"metadata": {"finalizers": null}});
                let machines = self.api("Machine");
                match machines.patch(name, &PatchParams::default(), &Patch::Merge(none)).await {
                    Err(kube::Error::Api(refused)) if refused.is_not_found() => {}
                    answer => drop(answer.with_context(|| format!("let go of the Machine {name}"))?),
                }
                self.delete("Secret", name).await
            })
            .await
    }

    /// Deletes the cluster and waits until the provider has removed its finalizer.
    pub async fn delete_cluster(&self, patience: Duration) -> anyhow::Result<()> {
        self.delete("MaasCluster", CLUSTER).await?;
        self.wait(patience, "the MaasCluster is gone", || async {
            Ok(self.api("MaasCluster").get_opt(CLUSTER).await?.is_none())
        })
        .await?;
        self.delete("Cluster", CLUSTER).await
    }

    /// What was observed of the machines.
    pub fn lives(&self) -> BTreeMap<String, Life> {
        lock(&self.lives).clone()
    }

    /// The MaasMachines that the API server has, as the provider last left them.
    pub async fn machines(&self) -> anyhow::Result<Vec<DynamicObject>> {
        Ok(self.api("MaasMachine").list(&kube::api::ListParams::default()).await?.items)
    }

    /// Waits until these machines are as required. Gives up when there was no progress for this long, so that ten
    /// thousand may take their time.
    pub async fn wait_machines(
        &self,
        patience: Duration,
        what: &str,
        names: &[String],
        fits: impl Fn(&Life) -> bool,
    ) -> anyhow::Result<()> {
        let fit = |name: &&String| lock(&self.lives).get(*name).is_some_and(&fits);
        let mut before = 0;
        // Stops at the first that does not match: checking thousands twenty times a second would cost as much as the
        // provider does.
        while let Err(error) = self.wait(patience, what, || async { Ok(names.iter().all(|name| fit(&name))) }).await {
            let now = names.iter().filter(fit).count();
            ensure!(now > before, error.context(format!("{now} of {} machines: {what}", names.len())));
            before = now;
        }
        Ok(())
    }

    async fn wait<F: Future<Output = anyhow::Result<bool>>>(
        &self,
        patience: Duration,
        what: &str,
        mut look: impl FnMut() -> F,
    ) -> anyhow::Result<()> {
        let began = std::time::Instant::now();
        while !look().await? {
            ensure!(began.elapsed() < patience, "gave up after {} s waiting until {what}", patience.as_secs());
            tokio::time::sleep(POLL).await;
        }
        Ok(())
    }
}

fn api(client: &kube::Client, namespace: &str, group: &str, version: &str, kind: &str) -> Api<DynamicObject> {
    Api::namespaced_with(
        client.clone(),
        namespace,
        &ApiResource::from_gvk(&GroupVersionKind::gvk(group, version, kind)),
    )
}

fn lock(lives: &Mutex<BTreeMap<String, Life>>) -> MutexGuard<'_, BTreeMap<String, Life>> {
    lives.lock().unwrap_or_else(PoisonError::into_inner)
}

fn metadata(name: &str, owners: &[Value]) -> Value {
    let mut labels = json!({"cluster.x-k8s.io/cluster-name": CLUSTER});
    if name.starts_with(CONTROL_PLANE) {
        labels["cluster.x-k8s.io/control-plane"] = json!("");
    }
    json!({"name": name, "labels": labels, "ownerReferences": owners})
}

fn owner(kind: &str, object: &DynamicObject) -> Value {
    json!({"apiVersion": format!("{CORE}/v1beta2"), "kind": kind, "name": object.name_any(), "uid": object.uid(),
           "controller": true, "blockOwnerDeletion": true})
}

/// A status as large as that of a running machine.
fn status(name: &str, provisioned: bool) -> Value {
    let condition = |kind: &str| {
        json!({"type": kind, "status": if provisioned { "True" } else { "False" }, "severity": "Info", "reason": "Floor",
               "message": "what a provider would say about a machine", "lastTransitionTime": "2026-11-17T00:00:00Z"})
    };
    json!({
        "ready": provisioned, "initialization": {"provisioned": provisioned}, "machineState": "Deployed", "hostname": name,
        "machinePowered": true, "addresses": [{"type": "InternalIP", "address": "127.20.0.1"}],
        "conditions": [condition("Ready"), condition("MachineDeployed")],
    })
}

/// By the fields of either contract.
fn is_provisioned(object: &Value) -> bool {
    object["status"]["initialization"]["provisioned"] == true || object["status"]["ready"] == true
}

fn is_ready(object: &Value) -> bool {
    let conditions = object["status"]["conditions"].as_array();
    conditions.into_iter().flatten().any(|condition| condition["type"] == "Ready" && condition["status"] == "True")
}

/// Records what happens to the machines.
async fn follow(
    machines: Api<DynamicObject>,
    lives: Arc<Mutex<BTreeMap<String, Life>>>,
    tell: mpsc::UnboundedSender<(String, String)>,
) {
    let mut events = std::pin::pin!(watcher(machines, watcher::Config::default()));
    loop {
        let event = match events.try_next().await {
            Ok(Some(event)) => event,
            Ok(None) => return,
            // It retries by itself.
            Err(_) => {
                tokio::time::sleep(POLL).await;
                continue;
            }
        };
        let now = Timestamp::now();
        match event {
            Event::Apply(object) | Event::InitApply(object) => {
                let name = object.name_any();
                let provider_id = object.data["spec"]["providerID"].as_str().unwrap_or_default().to_owned();
                let ready = is_ready(&object.data);
                let mut lives = lock(&lives);
                let life = lives.entry(name.clone()).or_default();
                if let Some((_, id)) = provider_id.rsplit_once('/') {
                    life.system_id = Some(id.to_owned());
                }
                if life.provisioned.is_some() && life.ready != ready && life.deleted.is_none() {
                    life.flips += 1;
                }
                life.ready = ready;
                if life.provisioned.is_none() && is_provisioned(&object.data) && !provider_id.is_empty() {
                    life.provisioned = Some(now);
                    let _ = tell.send((name, provider_id));
                }
            }
            Event::Delete(object) => {
                lock(&lives).entry(object.name_any()).or_default().gone = Some(now);
            }
            Event::Init | Event::InitDone => {}
        }
    }
}

/// Reports to Machines that their Nodes have joined.
async fn introduce_nodes(machines: Api<DynamicObject>, mut told: mpsc::UnboundedReceiver<(String, String)>) {
    let machines = &machines;
    let queue = stream::poll_fn(move |context| told.poll_recv(context));
    queue
        .for_each_concurrent(PARALLEL, |(name, provider_id)| async move {
            let (none, spec) = (PatchParams::default(), json!({"spec": {"providerID": provider_id}}));
            let status = json!({"status": {
                "phase": "Running", "nodeRef": {"name": name}, "initialization": {"infrastructureProvisioned": true},
            }});
            // One of these fails if the machine is deleted at the same moment.
            let _ = machines.patch(&name, &none, &Patch::Merge(spec)).await;
            let _ = machines.patch_status(&name, &none, &Patch::Merge(status)).await;
        })
        .await;
}
