//! Clusters whose machines become LXD hosts: what gathering and applying do for `capmaas_core::hosts`.
//!
//! The pass over the MaasCluster calls these; it has the condition LXDReady to write.

mod agent;
mod gather;
mod leaving;
mod memory;
mod orphans;
mod pair;
mod perform;
pub mod report;

use capmaas_api::MaasCluster;
use kube::ResourceExt as _;

pub(crate) use gather::{Ground, gather};
pub(crate) use leaving::{look, tell};
pub(crate) use memory::Memory;
pub(crate) use orphans::others_known;
pub(crate) use perform::perform;

/// Annotation on the agent's DaemonSet: what we applied. One without it is a person's.
pub const APPLIED_ANNOTATION: &str = "infrastructure.cluster.x-k8s.io/applied-agent";

/// Name of the Secret with the key pair of a cluster's hosts, beside the MaasCluster.
fn secret_name(object: &MaasCluster) -> String {
    format!("{}-lxd-hosts", object.name_any())
}
