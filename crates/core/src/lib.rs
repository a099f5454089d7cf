//! The decision logic of capmaas.
//!
//! A reconcile has three phases: *observe* reads, *decide* computes a plan, *perform* executes it. This crate is the second
//! phase. Its functions are pure and total: no I/O, no async, no panic, and the time is an argument. So every decision can be
//! covered by table tests and property tests.

pub mod backoff;
pub mod cluster;
pub mod conditions;
pub mod credentials;
pub mod evacuation;
pub mod failure_domain;
pub mod feed;
pub mod forecast;
pub mod hosts;
pub mod intent;
pub mod lease;
pub mod links;
pub mod lookup;
pub mod maas;
pub mod machine;
pub mod origin;
pub mod pause;
pub mod placement;
pub mod plan;
pub mod quarantine;
pub mod registration;
pub mod text;

pub use lookup::Lookup;
pub use origin::{Origin, WrittenFor};
