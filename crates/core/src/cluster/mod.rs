//! What happens about a `MaasCluster`: where its API server is reached, its record in MAAS's DNS, its failure domains, and how
//! it is let go.
//!
//! [`decide`] is the only door; [`endpoint`], [`addresses`] and a part of [`proof`] are open as well because gathering has to know what to
//! look for.

pub mod addresses;
mod dns;
pub mod endpoint;
mod failure_domains;
pub mod journal;
mod let_go;
mod lxd;
pub mod network;
pub mod observed;
pub mod plan;
pub mod proof;
pub mod provenance;
mod status;
mod steps;

pub use journal::Journal;
pub use observed::Observed;
pub use plan::Plan;
pub use steps::decide;

#[cfg(test)]
pub(crate) mod tests;
