//! The decisions of capmaas.
//!
//! A reconcile has three verbs: *observe* reads, *decide* thinks, *perform* does. This crate is the second one. Its functions
//! are pure and total: no I/O, no async, no panic, and the time is an argument. So every decision can be put into a table or
//! asked a million random questions in a second.

pub mod backoff;
pub mod cluster;
pub mod conditions;
pub mod credentials;
pub mod evacuation;
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
pub mod text;

pub use lookup::Lookup;
pub use origin::{Origin, WrittenFor};
