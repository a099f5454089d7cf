//! Machines, mostly VMs: the real observe, decide and perform on in-memory objects and a simulated MAAS with fake LXD
//! hosts.
#![allow(clippy::unwrap_used, clippy::expect_used, clippy::panic)]

mod bridge;
mod copies;
#[path = "../common/crash.rs"]
mod crash;
mod dead_host;
mod evacuation;
mod identity;
mod leaving;
mod life;
#[path = "../common/lxd_host.rs"]
mod lxd_host;
mod many;
mod metal;
mod neighbours;
mod odd_inputs;
mod on_delete;
mod orphans;
mod people;
mod protected;
mod refusals;
mod rights;
mod rollout;
mod slow;
mod stage;
mod trouble;
mod true_now;
mod waiting;
