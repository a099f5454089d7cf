//! The capmaas kinds: `MaasCluster`, `MaasMachine` and their templates, with their conditions, reasons and provider IDs,
//! and small views of the Cluster API kinds that they belong to.
//!
//! What is stored is read without ever failing (see [`tolerant`]); what is written is checked by the API server with the
//! schemas of [`crd`] and the rules of [`rules`].

#![warn(missing_docs)]

pub mod capi;
pub mod cluster;
mod columns;
pub mod condition;
pub mod conditions;
pub mod crd;
pub mod failure_domains;
pub mod lxd_error;
pub mod machine;
pub mod machine_status;
pub mod names;
pub mod provider_id;
pub mod reasons;
pub mod reference;
pub mod rules;
pub mod size;
pub mod static_ip;
pub mod template;
mod text_enum;
pub mod tolerant;

pub use cluster::{MaasCluster, MaasClusterSpec, MaasClusterStatus};
pub use condition::{Condition, ConditionStatus, Conditions, Severity};
pub use lxd_error::{LxdError, LxdErrorKind};
pub use machine::{MaasMachine, MaasMachineSpec, ProvisioningMode};
pub use machine_status::MaasMachineStatus;
pub use provider_id::ProviderId;
pub use template::{MaasClusterTemplate, MaasMachineTemplate};

/// The API group of the kinds.
pub const GROUP: &str = "infrastructure.cluster.x-k8s.io";
/// The one version that is served and stored.
pub const VERSION: &str = "v1beta1";
