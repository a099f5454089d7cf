//! The node agent: it makes a Kubernetes node's LXD fit for MAAS and, if it is given MAAS's credentials, registers the node as
//! a VM host.
//!
//! Every pass is three words: `observe` looks, [`decide`] decides without doing anything, `apply` does at most one write.
//! A node that is right causes no write at all.

pub mod agent;
pub mod alive;
mod apply;
pub mod cluster;
pub mod decide;
mod earlier;
pub mod effect;
pub mod health;
pub mod keys;
pub mod listener;
mod maas;
pub mod manifest;
pub mod names;
mod observe;
pub mod observed;
pub mod plan;
mod register;
mod report;
pub mod requirements;
pub mod settings;
mod unregister;
