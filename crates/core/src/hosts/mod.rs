//! Clusters whose machines become LXD hosts: the bridge before a machine is deployed, the agent on its nodes, its registration
//! in MAAS, and how a host leaves.

pub mod bridge;
mod wish;

pub use wish::{Wish, wish};
