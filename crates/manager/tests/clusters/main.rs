//! The real gather, decide and apply about clusters, against a simulated MAAS and a Kubernetes in memory.
#![allow(clippy::unwrap_used, clippy::expect_used, clippy::panic)]

#[path = "../common/crash.rs"]
mod crash;
mod crashes;
mod hosts;
mod life;
mod proofs;
mod reads;
mod stage;
mod trouble;
