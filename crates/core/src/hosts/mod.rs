//! Clusters whose machines become LXD hosts: the bridge before a machine is deployed, the agent on its Nodes, its registration in
//! MAAS, and the release of a host.

pub mod bridge;
mod decide;
mod desired;
pub mod leaving;
mod machine;
pub mod observed;
pub mod plan;
#[cfg(test)]
mod tests;

pub use decide::{decide, note};
pub use desired::{DesiredHosts, desired};
pub use observed::Observed;
