//! The programs that the testbed starts: which they are, where they are cached, and how they are built.
//!
//! Every set is a pinned Go module of `hack/tools` (embedded here, so that the command works anywhere), built through
//! the Go module proxy into `<cache>/tools/<name>-<version>/`. A program appears under its name only when it is
//! complete, so an existing file is a working one.

mod build;
mod cache;
mod cloud_init;
mod packages;
mod progress;
mod python;
mod supply;
mod unpacked;

use std::path::{Path, PathBuf};

pub use cache::cache_root;
pub(crate) use cache::lock;
pub use cloud_init::CloudInit;
pub(crate) use packages::NODE_PACKAGES;
pub use packages::{BROWSER_PACKAGES, LXD_PACKAGES, TEST_PACKAGES, ensure_packages};
pub(crate) use progress::Progress;
pub use python::python_with_libmaas;
pub use supply::Supply;
pub use unpacked::unpacked;

use crate::{
    error::Result,
    versions::{CapiVersion, KubernetesVersion},
};

/// The etcd of the API servers. 3.4 has no watch progress, without which streaming lists fail.
const ETCD_VERSION: &str = "v3.5.21";
/// The etcd and CoreDNS that kubeadm of every node version starts.
const NODE_ETCD_VERSION: &str = "v3.6.8";
const CORE_DNS_VERSION: &str = "v1.14.2";

const HELM_VERSION: &str = "v3.22.0";
const COSIGN_VERSION: &str = "v2.6.5";
const GOMAASCLIENT_VERSION: &str = "v0.12.0";

/// Programs of one version, built from one Go module.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub enum ToolSet {
    /// `etcd`
    Etcd,
    /// `kube-apiserver`, `kube-controller-manager`; `kubectl` and `kubeadm` where there are nodes of that version.
    Kubernetes(KubernetesVersion),
    /// `core`, `bootstrap`, `control-plane`; `clusterctl` in the newest only. With their rendered components.
    ClusterApi(CapiVersion),
    /// `kubelet`, `kube-proxy`, `kube-scheduler`, `pause`: what real nodes need besides [`ToolSet::Kubernetes`] of their version.
    Node(KubernetesVersion),
    /// `etcd` of real control planes.
    NodeEtcd,
    /// `coredns` of real clusters.
    CoreDns,
    /// `helm`
    Helm,
    /// `cosign`
    Cosign,
    /// `gomaasclient`: a program of ours that uses Canonical's MAAS client.
    GoMaasClient,
}

struct Recipe {
    name: &'static str,
    version: &'static str,
    /// Raised when the way of building changes, to rebuild cached programs.
    revision: u32,
    go_mod: &'static str,
    go_sum: &'static str,
    /// The program's source, if it is our own.
    main_go: Option<&'static str>,
    /// File name and Go package of each program.
    programs: &'static [(&'static str, &'static str)],
}

macro_rules! module {
    ($folder:literal) => {
        (
            include_str!(concat!("../../../../hack/tools/", $folder, "/go.mod")),
            include_str!(concat!("../../../../hack/tools/", $folder, "/go.sum")),
        )
    };
}

const API_SERVER: (&str, &str) = ("kube-apiserver", "k8s.io/kubernetes/cmd/kube-apiserver");
const CONTROLLER_MANAGER: (&str, &str) = ("kube-controller-manager", "k8s.io/kubernetes/cmd/kube-controller-manager");
const KUBECTL: (&str, &str) = ("kubectl", "k8s.io/kubernetes/cmd/kubectl");
const KUBEADM: (&str, &str) = ("kubeadm", "k8s.io/kubernetes/cmd/kubeadm");
const KUBELET: (&str, &str) = ("kubelet", "k8s.io/kubernetes/cmd/kubelet");
const PROXY: (&str, &str) = ("kube-proxy", "k8s.io/kubernetes/cmd/kube-proxy");
const SCHEDULER: (&str, &str) = ("kube-scheduler", "k8s.io/kubernetes/cmd/kube-scheduler");
const BOOTSTRAP: (&str, &str) = ("bootstrap", "sigs.k8s.io/cluster-api/bootstrap/kubeadm");
const CONTROL_PLANE: (&str, &str) = ("control-plane", "sigs.k8s.io/cluster-api/controlplane/kubeadm");
const CLUSTERCTL: (&str, &str) = ("clusterctl", "sigs.k8s.io/cluster-api/cmd/clusterctl");
/// Before 1.14 the core manager is the module's root package.
const OLD_CORE: (&str, &str) = ("core", "sigs.k8s.io/cluster-api");
const CORE: (&str, &str) = ("core", "sigs.k8s.io/cluster-api/core");

/// `go.mod` and `go.sum` of a Kubernetes version.
fn kubernetes(version: KubernetesVersion) -> (&'static str, &'static str) {
    match version {
        KubernetesVersion::V1_29 => module!("kubernetes-1.29"),
        KubernetesVersion::V1_36_3 => module!("kubernetes-1.36.3"),
        KubernetesVersion::V1_36 => module!("kubernetes-1.36"),
    }
}

impl ToolSet {
    /// Every set that the gate needs, the most widely needed first.
    pub fn all() -> Vec<Self> {
        let mut sets = vec![Self::Etcd];
        sets.extend(KubernetesVersion::ALL.into_iter().rev().map(Self::Kubernetes));
        sets.extend(CapiVersion::ALL.into_iter().rev().map(Self::ClusterApi));
        sets.extend([Self::Helm, Self::Cosign, Self::GoMaasClient]);
        sets
    }

    /// The approximate build time in minutes on two idle cores.
    fn minutes(self) -> u32 {
        match self {
            Self::Etcd | Self::NodeEtcd | Self::GoMaasClient => 1,
            Self::Kubernetes(KubernetesVersion::V1_36 | KubernetesVersion::V1_36_3) => 8,
            Self::Kubernetes(KubernetesVersion::V1_29) => 6,
            Self::ClusterApi(CapiVersion::V1_14) | Self::Node(_) | Self::CoreDns | Self::Cosign => 4,
            Self::ClusterApi(CapiVersion::V1_10 | CapiVersion::V1_5) | Self::Helm => 3,
        }
    }

    fn recipe(self) -> Recipe {
        let (name, version, (go_mod, go_sum), programs): (_, _, _, &'static [_]) = match self {
            Self::Etcd => ("etcd", ETCD_VERSION, module!("etcd"), &[("etcd", "go.etcd.io/etcd/server/v3")]),
            Self::Kubernetes(version @ KubernetesVersion::V1_29) => {
                ("kubernetes", version.as_str(), kubernetes(version), &[API_SERVER, CONTROLLER_MANAGER])
            }
            Self::Kubernetes(version) => (
                "kubernetes",
                version.as_str(),
                kubernetes(version),
                &[API_SERVER, CONTROLLER_MANAGER, KUBECTL, KUBEADM],
            ),
            Self::ClusterApi(version @ CapiVersion::V1_14) => (
                "cluster-api",
                version.as_str(),
                module!("cluster-api-1.14"),
                &[CORE, BOOTSTRAP, CONTROL_PLANE, CLUSTERCTL],
            ),
            Self::ClusterApi(version @ CapiVersion::V1_10) => {
                ("cluster-api", version.as_str(), module!("cluster-api-1.10"), &[OLD_CORE, BOOTSTRAP, CONTROL_PLANE])
            }
            Self::ClusterApi(version @ CapiVersion::V1_5) => {
                ("cluster-api", version.as_str(), module!("cluster-api-1.5"), &[OLD_CORE, BOOTSTRAP, CONTROL_PLANE])
            }
            Self::Node(version) => {
                ("kubernetes-node", version.as_str(), kubernetes(version), &[KUBELET, PROXY, SCHEDULER])
            }
            Self::NodeEtcd => {
                ("etcd", NODE_ETCD_VERSION, module!("etcd-3.6"), &[("etcd", "go.etcd.io/etcd/server/v3")])
            }
            Self::CoreDns => {
                ("coredns", CORE_DNS_VERSION, module!("coredns"), &[("coredns", "github.com/coredns/coredns")])
            }
            Self::Helm => ("helm", HELM_VERSION, module!("helm"), &[("helm", "helm.sh/helm/v3/cmd/helm")]),
            Self::Cosign => {
                ("cosign", COSIGN_VERSION, module!("cosign"), &[("cosign", "github.com/sigstore/cosign/v2/cmd/cosign")])
            }
            Self::GoMaasClient => {
                ("gomaasclient", GOMAASCLIENT_VERSION, module!("gomaasclient"), &[("gomaasclient", ".")])
            }
        };
        let ours = include_str!("../../../../hack/tools/gomaasclient/main.go");
        let main_go = (self == Self::GoMaasClient).then_some(ours);
        // Since revision 2, gomaasclient is built here and no longer by its test.
        let revision = if self == Self::GoMaasClient { 2 } else { 1 };
        Recipe { name, version, revision, go_mod, go_sum, main_go, programs }
    }

    /// The exact version of its programs.
    pub fn version(self) -> &'static str {
        self.recipe().version
    }

    /// Ensures that the set exists, building what is missing, which takes minutes. Blocks.
    ///
    /// One run builds; others wait for it and report that.
    pub fn ensure(self) -> Result<Tools> {
        build::ensure(self)
    }

    /// Whether it exists already.
    fn is_there(self) -> Result<bool> {
        build::is_there(self)
    }

    /// As [`ToolSet::ensure`], off the runtime's threads.
    pub(crate) async fn ensure_async(self) -> Result<Tools> {
        crate::blocking(move || self.ensure()).await
    }
}

impl std::fmt::Display for ToolSet {
    fn fmt(&self, f: &mut std::fmt::Formatter<'_>) -> std::fmt::Result {
        let recipe = self.recipe();
        write!(f, "{} {}", recipe.name, recipe.version)
    }
}

/// A set that exists.
#[derive(Clone, Debug)]
pub struct Tools {
    dir: PathBuf,
}

impl Tools {
    /// The folder of the set.
    pub fn dir(&self) -> &Path {
        &self.dir
    }

    /// The path of one of its programs.
    pub fn program(&self, name: &str) -> PathBuf {
        self.dir.join(name)
    }

    /// The output of `kubectl kustomize` for a Cluster API provider's manifests: `core`, `bootstrap` or
    /// `control-plane`.
    pub fn components_yaml(&self, provider: &str) -> PathBuf {
        self.dir.join("components").join(format!("{provider}.yaml"))
    }

    /// The same objects as one JSON list, which parses much faster.
    pub fn components_json(&self, provider: &str) -> PathBuf {
        self.dir.join("components").join(format!("{provider}.json"))
    }

    /// The module's `metadata.yaml`, from which clusterctl learns the contract of each release.
    pub fn metadata_yaml(&self) -> PathBuf {
        self.dir.join("components").join("metadata.yaml")
    }
}
