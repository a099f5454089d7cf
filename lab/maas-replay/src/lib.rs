//! Compares a simulator with recorded exchanges of a real MAAS. See README.md.

pub mod arrangement;
mod command;
pub mod compare;
mod directory;
pub mod exceptions;
mod fields;
pub mod identity;
pub mod recording;
mod request;
mod run;
mod sentence;
pub mod target;
pub mod words;

pub use command::{ReplayArgs, Report, own_simulator, recorded_version, replay};
pub use run::{Outcome, ReplayError};
