//! Clusters whose machines become LXD hosts: what observing and performing do for `capmaas_core::hosts`.
//!
//! The pass over the MaasCluster calls these; it has the condition LXDReady to write.

mod agent;
mod effects;
mod key_pair;
mod memory;
mod observe;
pub mod report;
mod sweep;

pub(crate) use effects::perform;
pub(crate) use memory::Memory;
pub(crate) use observe::{Ground, observe, strangers};
pub use sweep::sweep;
pub(crate) use sweep::sweep_pairs;

/// Annotation on the agent's DaemonSet: what we applied. One without it is a person's.
pub const APPLIED_ANNOTATION: &str = "infrastructure.cluster.x-k8s.io/applied-agent";

/// Label of these Secrets.
const PAIR_LABEL: &str = "infrastructure.cluster.x-k8s.io/host-keys";
/// Annotation of these Secrets: the MaasCluster that one is for, as `namespace/name`.
const PAIR_OF: &str = "infrastructure.cluster.x-k8s.io/maas-cluster";
