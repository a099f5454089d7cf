//! The node agent: it prepares a Kubernetes node's LXD for MAAS and, if it is given MAAS credentials, registers the
//! node as a VM host.
//!
//! Every pass has three phases: `observe` reads, [`decide`] decides without side effects, `apply` performs at most one
//! write. A node in the desired state causes no write at all.

pub mod agent;
pub mod alive;
mod apply;
pub mod cluster;
pub mod decide;
mod earlier;
pub mod effect;
pub mod health;
pub mod intent;
pub mod issued;
pub mod keys;
pub mod listener;
mod maas;
pub mod manifest;
pub mod names;
mod observe;
pub mod observed;
pub mod plan;
mod register;
pub mod registering;
mod report;
pub mod requirements;
pub mod settings;
mod unregister;
