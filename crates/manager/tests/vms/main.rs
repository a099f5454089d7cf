//! Machines, VMs above all: the real gather, decide and apply over objects in memory and a simulated MAAS with made-up LXD hosts.
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
mod orphans;
mod people;
mod rights;
mod slow;
mod stage;
mod trouble;
mod waiting;
