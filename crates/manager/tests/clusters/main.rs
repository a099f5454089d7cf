//! The real observe, decide and perform for clusters, against a simulated MAAS and an in-memory Kubernetes.
#![allow(clippy::unwrap_used, clippy::expect_used, clippy::panic)]

#[path = "../common/crash.rs"]
mod crash;
mod crashes;
mod host_proofs;
mod host_trouble;
mod hosts;
mod life;
mod proofs;
mod reads;
mod record_proofs;
mod stage;
mod trouble;
mod true_now;
