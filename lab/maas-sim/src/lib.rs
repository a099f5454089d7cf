//! A MAAS server for tests that behaves like the real one.
//!
//! [`Simulator::new`] creates a fresh MAAS, [`Simulator::router`] serves it (in process, or on a socket with
//! [`serve`]), and [`Simulator::control`] does what no client of MAAS can: set its state (ARRANGE.md), advance the
//! clock, make requests and machines fail.

pub mod config;
pub mod control;
mod delivery;
pub mod dns_server;
pub mod faults;
pub mod hardware;
pub mod http;
mod latency;
pub mod ledger;
mod lxd_backend;
pub mod model;
pub mod serve;
mod sim;
pub mod version;

pub use config::Config;
pub use control::Control;
pub use sim::{ConnectionReset, Simulator};
