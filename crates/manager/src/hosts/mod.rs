//! Clusters whose machines become LXD hosts: what gathering and applying do for `capmaas_core::hosts`.
//!
//! The pass over the MaasCluster calls these; it has the condition LXDReady to write.

mod agent;
mod gather;
mod key_pair;
mod leaving;
mod memory;
mod orphans;
mod perform;
pub mod report;
mod sweep;

pub(crate) use gather::{Ground, gather};
pub(crate) use leaving::{look, tell};
pub(crate) use memory::Memory;
pub(crate) use orphans::others_known;
pub(crate) use perform::perform;
pub use sweep::sweep;
pub(crate) use sweep::sweep_pairs;

/// Annotation on the agent's DaemonSet: what we applied. One without it is a person's.
pub const APPLIED_ANNOTATION: &str = "infrastructure.cluster.x-k8s.io/applied-agent";

/// How the names of the Secrets with the key pairs of clusters' hosts begin, in the manager's namespace.
pub(crate) const PAIR: &str = "capmaas-host-keys-";
/// Label of these Secrets.
const PAIR_LABEL: &str = "infrastructure.cluster.x-k8s.io/host-keys";
/// Annotation of these Secrets: the MaasCluster that one is for, as `namespace/name`.
const PAIR_OF: &str = "infrastructure.cluster.x-k8s.io/maas-cluster";
