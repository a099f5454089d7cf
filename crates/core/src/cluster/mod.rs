//! Decisions about a `MaasCluster`: the endpoint of its API server, its record in MAAS's DNS, its failure domains, and its
//! deletion.
//!
//! [`decide`] is the only entry point, apart from what the status says meanwhile ([`while_reading`], [`while_doing`]);
//! [`endpoint`], [`addresses`], and parts of [`dns`] and [`proof`] are public as well because the observe phase has to know what
//! to read.

pub mod addresses;
pub mod dns;
pub mod endpoint;
mod failure_domains;
pub mod journal;
mod let_go;
mod lxd;
pub mod network;
pub mod observed;
mod pending;
pub mod plan;
pub mod proof;
pub mod provenance;
mod status;
mod steps;

pub use journal::Journal;
pub use observed::Observed;
pub use pending::{while_doing, while_reading};
pub use plan::Plan;
pub use steps::decide;

#[cfg(test)]
pub(crate) mod tests;
