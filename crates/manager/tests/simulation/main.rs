//! The real observe, decide and perform against a simulated MAAS, under randomness that one seed determines: the
//! manager dies between any two calls, its watch falls behind, requests and answers are lost or late, MAAS dies in the
//! middle, machines fail, LXD hosts die, come back and are evacuated, people delete, pause, copy, edit and steal,
//! clocks jump, and another tenant's MAAS hangs.
//!
//! `CAPMAAS_SEEDS` sets how many seeds are tried (200 of metal, 60 of VMs; `CAPMAAS_VM_SEEDS` if these differ),
//! `CAPMAAS_FIRST_SEED` the first of them, `CAPMAAS_SEED` replays one, and `CAPMAAS_TORMENTS` selects the faults
//! (`torments.rs`).
#![allow(clippy::unwrap_used, clippy::expect_used, clippy::panic)]

mod behind;
mod chance;
mod chaos;
#[path = "../common/crash.rs"]
mod crash;
mod dns_writes;
mod guests;
mod law;
mod ledger;
#[path = "../common/lxd_host.rs"]
mod lxd_host;
mod maintenance;
mod manager;
mod objects;
mod people;
mod run;
mod sight;
mod story;
mod tenants;
mod torments;
mod vms;
mod watch;
mod world;

use run::{live, live_all};
use world::Cast;

#[test]
fn whatever_crashes_no_machine_is_leaked_wiped_or_given_twice_and_all_converge() {
    live_all(Cast::Metal);
}

#[test]
fn whatever_crashes_no_vm_is_left_behind_no_host_has_too_many_and_all_converge() {
    live_all(Cast::Vms);
}

/// Compares every request and message, so randomness from anywhere but the seed would show.
#[test]
fn a_failing_seed_replays_exactly() {
    for (seed, cast) in (0..8).map(|seed| (seed, if seed % 3 == 2 { Cast::Vms } else { Cast::Metal })) {
        let (one, two) = (live(seed, cast).fingerprint(), live(seed, cast).fingerprint());
        for (number, (one, two)) in one.iter().zip(&two).enumerate() {
            assert_eq!(one, two, "seed {seed} differs at line {number}");
        }
        assert_eq!(one.len(), two.len(), "seed {seed}");
    }
}
