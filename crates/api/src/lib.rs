//! The capmaas kinds: `MaasCluster`, `MaasMachine` and their templates, with their conditions, reasons and provider IDs,
//! and small views of the Cluster API kinds that they belong to.

pub mod cluster;
pub mod condition;
pub mod failure_domains;
pub mod machine;
pub mod machine_status;
pub mod static_ip;
pub mod template;
mod text_enum;
pub mod tolerant;

pub use cluster::{MaasCluster, MaasClusterSpec, MaasClusterStatus};
pub use condition::{Condition, ConditionStatus, Conditions, Severity};
pub use machine::{MaasMachine, MaasMachineSpec, ProvisioningMode};
pub use machine_status::MaasMachineStatus;
pub use template::{MaasClusterTemplate, MaasMachineTemplate};

/// The API group of the kinds.
pub const GROUP: &str = "infrastructure.cluster.x-k8s.io";
/// The one version that is served and stored.
pub const VERSION: &str = "v1beta1";
