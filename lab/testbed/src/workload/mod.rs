//! Simulates a workload cluster: what happens to machines that boot with kubeadm's user data.
//!
//! One real API server serves all control-plane machines of a cluster, reached on the address of each. It starts with
//! `kubeadm init`, and its certificate is signed by the authority that the cluster's owner passed to Cluster API
//! beforehand (Secret `<cluster>-ca`), because the key in the user data would have to be read by a program that has it
//! already. etcd is declared external, so nothing looks for its Pods. Nodes join without a provider ID.

mod endpoint;
mod objects;
mod user_data;

use std::{
    collections::BTreeMap,
    net::{IpAddr, SocketAddr},
    sync::Arc,
};

use k8s_openapi::api::apps::v1::DaemonSet;
use k8s_openapi::api::core::v1::{ConfigMap, Node, Pod, Secret};
use kube::{
    Api, Client,
    api::{DeleteParams, Patch, PatchParams, PostParams},
};
use serde::{Serialize, de::DeserializeOwned};
use serde_json::{Value, json};

pub use self::user_data::Role;
use self::{endpoint::Endpoint, user_data::Kubeadm};
use crate::{
    KubernetesVersion, NodePlayer, NodePlayerOptions, Testbed,
    error::{Doing, Error, Result},
    pki::CertificateAuthority,
    ports::free_ports,
};

/// A machine that booted with user data.
#[derive(Clone, Debug)]
pub struct BootedMachine {
    /// Its name, which becomes the Node's name.
    pub hostname: String,
    pub addresses: Vec<IpAddr>,
    /// The cloud-config, as text.
    pub user_data: String,
    /// The version of the kubelet in its image, for instance `v1.36.4`.
    pub kubelet: String,
}

/// One workload cluster.
#[derive(Debug)]
pub struct WorkloadPlayer {
    authority: Arc<CertificateAuthority>,
    port: u16,
    /// The host name of its API server, where the port alone does not distinguish clusters.
    host: Option<String>,
    kubernetes: KubernetesVersion,
    nodes: BTreeMap<String, Joined>,
    api_server: Option<Testbed>,
    /// How its nodes run Pods; taken when the API server starts.
    pods: Option<NodePlayerOptions>,
    /// Its nodes, if they run Pods.
    player: Option<NodePlayer>,
}

#[derive(Debug)]
struct Joined {
    role: Role,
    /// On control planes; open while the machine runs.
    _endpoints: Vec<Endpoint>,
}

impl WorkloadPlayer {
    /// A cluster without running machines, on a port that no other uses.
    pub fn new(kubernetes: KubernetesVersion) -> Result<Self> {
        let authority = Arc::new(CertificateAuthority::generate("kubernetes")?);
        Ok(Self::with(kubernetes, authority, None, free_ports::<1>()?[0]))
    }

    /// The cluster that the first control-plane machine creates, from its user data: with the name and port in it, and
    /// an authority that its owner passed to Cluster API. `None` for any other machine, or if the user data cannot be
    /// read.
    pub fn begun_by(
        kubernetes: KubernetesVersion,
        authority: Arc<CertificateAuthority>,
        user_data: &str,
    ) -> Option<Self> {
        let kubeadm = Kubeadm::read(user_data).ok().filter(|kubeadm| kubeadm.role == Role::Init)?;
        let (host, port) = kubeadm.endpoint;
        Some(Self::with(kubernetes, authority, Some(host), port))
    }

    fn with(
        kubernetes: KubernetesVersion,
        authority: Arc<CertificateAuthority>,
        host: Option<String>,
        port: u16,
    ) -> Self {
        Self { authority, port, host, kubernetes, nodes: BTreeMap::new(), api_server: None, pods: None, player: None }
    }

    /// Makes its nodes run Pods, which also needs Kubernetes' own controllers. Otherwise only Nodes are simulated.
    #[must_use]
    pub fn running_pods(mut self, options: NodePlayerOptions) -> Self {
        self.pods = Some(options);
        self
    }

    /// The authority that signs the API server's certificate; belongs in the Secret `<cluster>-ca`.
    pub fn certificate_authority(&self) -> &CertificateAuthority {
        &self.authority
    }

    /// The port of its API server, which distinguishes clusters.
    pub fn port(&self) -> u16 {
        self.port
    }

    /// The client configuration with all permissions, once the API server runs.
    pub fn config(&self) -> Option<kube::Config> {
        self.api_server.as_ref().map(|testbed| testbed.config().clone())
    }

    /// All text that was ever written to its API server (see [`Testbed::ever_written`]), once it runs.
    pub fn ever_written(&self) -> Result<Option<String>> {
        self.api_server.as_ref().map(Testbed::ever_written).transpose()
    }

    /// The running machines that have joined.
    pub fn joined(&self) -> BTreeMap<String, Role> {
        self.nodes.iter().map(|(name, joined)| (name.clone(), joined.role)).collect()
    }

    /// Whether user data belongs to this cluster.
    pub fn is_for(&self, user_data: &str) -> bool {
        Kubeadm::read(user_data).is_ok_and(|kubeadm| {
            let (host, port) = kubeadm.endpoint;
            port == self.port && self.host.as_ref().is_none_or(|own| *own == host)
        })
    }

    /// Boots a machine. An error means that it has not joined yet; like kubeadm, the caller may retry.
    pub async fn boot(&mut self, machine: &BootedMachine) -> Result<Role> {
        if let Some(joined) = self.nodes.get(&machine.hostname) {
            return Ok(joined.role);
        }
        let kubeadm = Kubeadm::read(&machine.user_data)?;
        if kubeadm.role == Role::Init {
            self.init(&kubeadm).await?;
        }
        let api_server = self.api_server.as_ref().ok_or_else(|| not_yet(machine, "the API server does not run yet"))?;
        let client = api_server.client()?;
        if let Some(token) = &kubeadm.token {
            check_token(&client, machine, token).await?;
        }
        let control_plane = kubeadm.role != Role::Worker;
        let mut endpoints = Vec::new();
        if control_plane {
            for address in &machine.addresses {
                endpoints.push(Endpoint::open(SocketAddr::new(*address, self.port), api_server.api_server()).await?);
            }
        }
        join(&client, machine, control_plane).await?;
        if let Some(configuration) = &kubeadm.cluster_configuration {
            let maps: Api<ConfigMap> = Api::namespaced(client.clone(), "kube-system");
            create(&maps, &objects::kubeadm_config(configuration)).await?;
            // Where Pods run, the DaemonSet would create some, and there is no such program.
            if self.player.is_none() {
                let daemons: Api<DaemonSet> = Api::namespaced(client.clone(), "kube-system");
                create(&daemons, &objects::kube_proxy(&machine.kubelet)).await?;
            }
        }
        if let Some(player) = &self.player {
            player.adopt_node(&machine.hostname);
        }
        self.nodes.insert(machine.hostname.clone(), Joined { role: kubeadm.role, _endpoints: endpoints });
        Ok(kubeadm.role)
    }

    async fn init(&mut self, kubeadm: &Kubeadm) -> Result<()> {
        if kubeadm.ca.as_deref() != Some(self.authority.certificate_pem().trim()) {
            return Err(Error::invalid("the user data of the first machine", "does not hold the cluster's authority"));
        }
        if self.api_server.is_none() {
            let started = Testbed::builder()
                .kubernetes(self.kubernetes)
                .certificate_authority(self.authority.clone())
                .certificate_name(kubeadm.endpoint.0.clone())
                .controller_manager(self.pods.is_some())
                .start()
                .await?;
            if let Some(options) = self.pods.take() {
                self.player = Some(NodePlayer::start(&started, options)?);
            }
            self.api_server = Some(started);
        }
        Ok(())
    }

    /// Powers a machine off: its API server becomes unreachable and its Node stops reporting. If the Node is deleted,
    /// its static Pods are deleted too.
    pub async fn switch_off(&mut self, hostname: &str) -> Result<()> {
        if self.nodes.remove(hostname).is_none() {
            return Ok(());
        }
        if let Some(player) = &self.player {
            player.switch_off_node(hostname);
        }
        let Some(api_server) = &self.api_server else { return Ok(()) };
        let client = api_server.client()?;
        let nodes: Api<Node> = Api::all(client.clone());
        let silent = Patch::Merge(objects::silent_node_status());
        match nodes.patch_status(hostname, &PatchParams::default(), &silent).await {
            Err(kube::Error::Api(refused)) if refused.is_not_found() => {}
            answer => return answer.map(drop).doing(|| format!("let the Node {hostname} fall silent")),
        }
        let pods: Api<Pod> = Api::namespaced(client, "kube-system");
        for component in objects::COMPONENTS {
            let name = objects::static_pod_name(component, hostname);
            let at_once = DeleteParams { grace_period_seconds: Some(0), ..DeleteParams::default() };
            match pods.delete(&name, &at_once).await {
                Err(kube::Error::Api(refused)) if refused.is_not_found() => {}
                answer => answer.map(drop).doing(|| format!("delete the Pod {name}"))?,
            }
        }
        Ok(())
    }

    /// Stops the API server.
    pub async fn stop(mut self) {
        self.nodes.clear();
        if let Some(player) = self.player.take() {
            player.stop().await;
        }
        if let Some(testbed) = self.api_server.take() {
            testbed.stop().await;
        }
    }
}

fn not_yet(machine: &BootedMachine, why: &str) -> Error {
    Error::invalid(format!("the machine {}", machine.hostname), why)
}

/// kubeadm would be rejected with a token that the cluster does not know.
async fn check_token(client: &Client, machine: &BootedMachine, token: &str) -> Result<()> {
    let id = token.split('.').next().unwrap_or_default();
    let secrets: Api<Secret> = Api::namespaced(client.clone(), "kube-system");
    match secrets.get_opt(&format!("bootstrap-token-{id}")).await.doing(|| "read a bootstrap token".into())? {
        Some(_) => Ok(()),
        None => Err(not_yet(machine, "its bootstrap token is unknown to the cluster")),
    }
}

async fn join(client: &Client, machine: &BootedMachine, control_plane: bool) -> Result<()> {
    let nodes: Api<Node> = Api::all(client.clone());
    let name = machine.hostname.as_str();
    let node = objects::node(machine, control_plane);
    create(&nodes, &node).await?;
    let params = PatchParams::default();
    let doing = || format!("make the Node {name} ready");
    // Admission taints every new Node as not ready; the controller that would remove the taint does not run here.
    // Before the Node has addresses nothing matches it to a machine, so nothing else changes its taints.
    let taints = json!({"spec": {"taints": node["spec"]["taints"]}});
    nodes.patch(name, &params, &Patch::Merge(taints)).await.doing(doing)?;
    nodes.patch_status(name, &params, &Patch::Merge(objects::node_status(machine))).await.doing(doing)?;
    let pods: Api<Pod> = Api::namespaced(client.clone(), "kube-system");
    for component in objects::COMPONENTS.into_iter().take(if control_plane { objects::COMPONENTS.len() } else { 1 }) {
        create(&pods, &objects::static_pod(component, name)).await?;
        let pod = objects::static_pod_name(component, name);
        let running = Patch::Merge(objects::running());
        pods.patch_status(&pod, &params, &running).await.doing(|| format!("let {pod} run"))?;
    }
    Ok(())
}

/// Creates an object; an existing one is kept, for instance after a partial attempt.
async fn create<K>(api: &Api<K>, object: &Value) -> Result<()>
where
    K: kube::Resource + Clone + std::fmt::Debug + Serialize + DeserializeOwned,
{
    let name = &object["metadata"]["name"];
    let typed: K = serde_json::from_value(object.clone()).map_err(|error| Error::invalid(format!("{name}"), error))?;
    match api.create(&PostParams::default(), &typed).await {
        Err(kube::Error::Api(refused)) if refused.is_already_exists() => Ok(()),
        answer => answer.map(drop).doing(|| format!("create {} {name}", object["kind"])),
    }
}
