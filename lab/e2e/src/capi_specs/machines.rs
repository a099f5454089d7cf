//! The machines that specs run against: simulated ones where a spec only checks the Node, or machines that boot.

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

#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub(super) enum Machines {
    /// A real API server serves as the control plane of each cluster, and Nodes appear when machines boot.
    Played,
    /// Machines really boot, with real kubelets.
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
    /// The ginkgo label filter of the specs that run against them.
    pub(super) fn labels(self) -> &'static str {
        match self {
            Self::Played => "!real",
            Self::Real => "real",
        }
    }

    /// Starts a MAAS with these machines. Simulated ones trust `authority`.
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

/// What runs next to a management cluster while the specs run.
pub(super) struct Helpers {
    _extension: Option<RuntimeExtension>,
    _tasks: JoinSet<()>,
}

impl Hardware {
    /// Starts what the specs expect in addition to the providers.
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

/// Makes the management cluster's API server, which listens on loopback, reachable from machines under an address of
/// their network.
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

/// KubeadmControlPlane reads each API server's certificate through the kubelet and records its expiry in an annotation.
/// A simulated kubelet cannot forward that connection, so this sets the annotation first.
async fn know_certificates(client: kube::Client) {
    let kind = GroupVersionKind::gvk("bootstrap.cluster.x-k8s.io", "v1beta2", "KubeadmConfig");
    let resource = ApiResource::from_gvk(&kind);
    let all: Api<DynamicObject> = Api::all_with(client.clone(), &resource);
    let patch = Patch::Merge(json!({"metadata": {"annotations": {CERTIFICATES_EXPIRY: "2036-01-01T00:00:00Z"}}}));
    loop {
        // A failure here is retried on the next pass.
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
