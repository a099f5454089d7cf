//! Clusters whose machines become LXD hosts: the bridge before a machine is deployed, the agent on its nodes, its registration
//! in MAAS, and how a host leaves.

pub mod bridge;
mod decide;
pub mod leaving;
pub mod observed;
pub mod plan;
mod registration;
#[cfg(test)]
mod tests;
mod wish;

pub use decide::{decide, note};
pub use observed::Observed;
pub use wish::{Wish, wish};
