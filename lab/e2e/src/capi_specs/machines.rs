//! The machines that specs run before: played ones, where a spec looks at no more than the Node, or such that boot.

use std::fmt;
use std::sync::Arc;
use std::time::Duration;

use anyhow::Context as _;
use capmaas_testbed::nodes::NodeHost;
use capmaas_testbed::{CertificateAuthority, Testbed};
use kube::api::{Api, ApiResource, DynamicObject, ListParams, Patch, PatchParams};
use kube::core::GroupVersionKind;
use serde_json::json;
use tokio::net::TcpListener;
use tokio::task::JoinSet;

use super::suite;
use crate::maas::Maas;
use crate::real_nodes::{start_host, start_maas};
use crate::runtime_extension::{RuntimeExtension, pass_on};
use crate::scene::Scene;

const CERTIFICATES_EXPIRY: &str = "machine.cluster.x-k8s.io/certificates-expiry";
const LOOK_EVERY: Duration = Duration::from_secs(1);

/// What the machines of a MAAS are.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub(super) enum Machines {
    /// A real API server answers as the control plane of each cluster, and Nodes appear when machines boot.
    Played,
    /// Everything on them is real.
    Real,
}

impl fmt::Display for Machines {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        f.write_str(match self {
            Self::Played => "played",
            Self::Real => "real",
        })
    }
}

impl Machines {
    /// Which specs run before them, for ginkgo.
    pub(super) fn labels(self) -> &'static str {
        match self {
            Self::Played => "!real",
            Self::Real => "real",
        }
    }

    /// Starts a MAAS with them. Played ones trust `authority`.
    pub(super) async fn start(self, authority: &Arc<CertificateAuthority>) -> anyhow::Result<Hardware> {
        if self == Self::Real {
            let host = start_host().await?;
            return Ok(Hardware { maas: Arc::new(start_maas(&host)?), host: Some(host) });
        }
        let maas = Arc::new(Maas::start()?);
        maas.accept_clusters(authority.clone())?;
        Ok(Hardware { maas, host: None })
    }
}

/// A MAAS and its machines.
pub(super) struct Hardware {
    pub(super) maas: Arc<Maas>,
    host: Option<NodeHost>,
}

/// What runs beside a management cluster as long as the specs do.
pub(super) struct Helpers {
    _extension: Option<RuntimeExtension>,
    _tasks: JoinSet<()>,
}

impl Hardware {
    /// Starts what the specs expect besides the providers.
    pub(super) async fn help(&self, scene: &Scene) -> anyhow::Result<Helpers> {
        let mut tasks = JoinSet::new();
        if let Some(host) = &self.host {
            tasks.spawn(reach_management(host, &scene.testbed).await?);
            return Ok(Helpers { _extension: None, _tasks: tasks });
        }
        tasks.spawn(know_certificates(scene.testbed.client()?));
        Ok(Helpers { _extension: Some(RuntimeExtension::start(scene, &suite()).await?), _tasks: tasks })
    }
}

/// Makes the API server of the management cluster, which listens on loopback, known to machines under an address that they reach.
async fn reach_management(host: &NodeHost, testbed: &Testbed) -> anyhow::Result<impl Future<Output = ()> + use<>> {
    let listener = TcpListener::bind((host.address(), 0)).await.context("listen where machines are")?;
    let kubeconfig = json!({
        "apiVersion": "v1", "kind": "Config",
        "clusters": [{"name": "", "cluster": {"server": format!("https://{}", listener.local_addr()?)}}],
    });
    let info = json!({
        "apiVersion": "v1", "kind": "ConfigMap",
        "metadata": {"name": "cluster-info", "namespace": "kube-public"},
        "data": {"kubeconfig": kubeconfig.to_string()},
    });
    testbed.apply_objects(vec![info]).await?;
    Ok(pass_on(listener, testbed.api_server()))
}

/// KubeadmControlPlane asks each API server for its certificate through the kubelet, and writes down when it ends. Nobody can reach
/// anything through a played kubelet, so it is written down before it asks.
async fn know_certificates(client: kube::Client) {
    let kind = GroupVersionKind::gvk("bootstrap.cluster.x-k8s.io", "v1beta2", "KubeadmConfig");
    let resource = ApiResource::from_gvk(&kind);
    let all: Api<DynamicObject> = Api::all_with(client.clone(), &resource);
    let patch = Patch::Merge(json!({"metadata": {"annotations": {CERTIFICATES_EXPIRY: "2036-01-01T00:00:00Z"}}}));
    loop {
        // What fails now is tried again in a moment.
        let found = all.list(&ListParams::default().labels("cluster.x-k8s.io/control-plane")).await;
        for config in found.into_iter().flatten() {
            let (metadata, known) = (&config.metadata, config.metadata.annotations.as_ref());
            if known.is_some_and(|known| known.contains_key(CERTIFICATES_EXPIRY)) {
                continue;
            }
            if let (Some(namespace), Some(name)) = (&metadata.namespace, &metadata.name) {
                let own: Api<DynamicObject> = Api::namespaced_with(client.clone(), namespace, &resource);
                let _ = own.patch(name, &PatchParams::default(), &patch).await;
            }
        }
        tokio::time::sleep(LOOK_EVERY).await;
    }
}
