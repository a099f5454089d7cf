//! Starts real components on one machine, as root, without containers or systemd: etcd, kube-apiserver,
//! kube-controller-manager, Cluster API's managers, LXD. Simulates the nodes that would run Pods.
//!
//! ```no_run
//! # async fn example() -> capmaas_testbed::Result<()> {
//! use capmaas_testbed::{CapiVersion, Testbed};
//!
//! let testbed = Testbed::builder().cluster_api(Some(CapiVersion::V1_14)).start().await?;
//! println!("{}", testbed.kubectl(["get", "crds"]).await?);
//! testbed.stop().await;
//! # Ok(())
//! # }
//! ```
//!
//! Each testbed has its own ports and its own folder, so many run side by side. Authorization is on (Node, RBAC).
//! However the process that started a testbed ends, the testbed's processes, mounts, network namespaces and files are
//! removed: see [`Sandbox`]. Nothing here is tied to the runtime that started it, so tests with separate runtimes can
//! share one.
//!
//! Environment: `CAPMAAS_CACHE` (built tools), `CAPMAAS_KUBERNETES` (version, where the caller does not require one),
//! `CAPMAAS_TESTBED_KEEP_LOGS` (a folder that receives the logs before they are removed).

mod apply;
mod cluster_api;
mod clusterctl;
mod control_plane;
mod error;
mod http_get;
mod kubeconfig;
mod lxd;
mod lxd_node;
pub mod nodes;
mod pki;
mod player;
mod ports;
mod process;
mod resolver;
mod rights;
mod sandbox;
mod testbed;
pub mod tools;
mod versions;
mod workload;

pub use apply::parse_yaml;
pub use cluster_api::{CapiOptions, CapiProvider};
pub use clusterctl::{Clusterctl, InfrastructureProvider};
pub use error::{Error, Result};
pub use lxd::{LxdDaemon, LxdOptions};
pub use lxd_node::LxdNode;
pub use pki::CertificateAuthority;
pub use player::{ContainerPlan, NodePlayer, NodePlayerOptions};
pub use process::Process;
pub use rustix::process::Signal;
pub use sandbox::{Sandbox, clean_leftovers};
pub use testbed::{SharedTestbed, Testbed, TestbedBuilder};
pub use versions::{CapiVersion, KUBERNETES_VARIABLE, KubernetesVersion};
pub use workload::{BootedMachine, Role, WorkloadPlayer};

/// Runs blocking work on a thread of its own.
pub(crate) async fn blocking<T: Send + 'static>(work: impl FnOnce() -> Result<T> + Send + 'static) -> Result<T> {
    match tokio::task::spawn_blocking(work).await {
        Ok(result) => result,
        Err(error) => Err(Error::invalid("a blocking task", error)),
    }
}
