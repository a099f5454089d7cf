//! Clusters whose machines become LXD hosts: observing and performing for `capmaas_core::hosts`.
//!
//! Called by the pass over the MaasCluster, which writes the condition LXDReady.

mod agent;
mod effects;
mod key_pair;
mod memory;
mod observe;
pub mod report;
mod sweep;

pub(crate) use effects::perform;
pub(crate) use memory::Memory;
pub(crate) use observe::{HostContext, observe, strangers};
pub use sweep::sweep;
pub(crate) use sweep::sweep_pairs;

/// Annotation on the agent's DaemonSet with the version that we applied. A DaemonSet without it was applied by a
/// person.
pub const APPLIED_ANNOTATION: &str = "infrastructure.cluster.x-k8s.io/applied-agent";

/// Label of the Secrets with key pairs.
const PAIR_LABEL: &str = "infrastructure.cluster.x-k8s.io/host-keys";
/// Annotation of the Secrets with key pairs: the MaasCluster that a pair is for, as `namespace/name`.
const PAIR_OF: &str = "infrastructure.cluster.x-k8s.io/maas-cluster";
