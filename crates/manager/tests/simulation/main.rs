//! The real gather, decide and apply against a simulated MAAS, under chance that one number decides: the manager dies between
//! any two calls, its watch falls behind, requests and answers are lost or late, MAAS dies in the middle, machines fail, LXD hosts
//! die and come back, people delete, pause and steal.
//!
//! `CAPMAAS_SEEDS` says how many seeds are tried (200 of metal, 60 of VMs), `CAPMAAS_SEED` replays one.
#![allow(clippy::unwrap_used, clippy::expect_used, clippy::panic)]

mod behind;
mod chance;
mod chaos;
#[path = "../common/crash.rs"]
mod crash;
mod happenings;
mod law;
#[path = "../common/lxd_host.rs"]
mod lxd_host;
mod objects;
mod vms;
mod world;

use std::sync::atomic::{AtomicU64, AtomicUsize, Ordering};

use world::{Cast, World};

fn seeds(most: u64) -> Vec<u64> {
    let number = |name: &str| std::env::var(name).ok().map(|text| text.parse::<u64>().expect("a number"));
    match (number("CAPMAAS_SEED"), number("CAPMAAS_SEEDS")) {
        (Some(seed), _) => vec![seed],
        (None, count) => (0..count.unwrap_or(most)).collect(),
    }
}

/// Each seed has a runtime of its own with a clock that jumps to whatever is awaited.
fn live(seed: u64, cast: Cast) -> World {
    let runtime = tokio::runtime::Builder::new_current_thread().enable_all().start_paused(true).build().unwrap();
    runtime.block_on(chaos::life(seed, cast))
}

/// A few at a time: each is single-threaded, and they share nothing.
fn live_all(seeds: &[u64], cast: Cast) {
    let (crashes, taken) = (AtomicU64::new(0), AtomicU64::new(0));
    let next = AtomicUsize::new(0);
    std::thread::scope(|scope| {
        let worker = || {
            while let Some(seed) = seeds.get(next.fetch_add(1, Ordering::SeqCst)) {
                let world = live(*seed, cast);
                crashes.fetch_add(u64::from(world.crashes), Ordering::SeqCst);
                taken.fetch_add(world.maas.control().effective("allocate") as u64, Ordering::SeqCst);
            }
        };
        let workers: Vec<_> =
            (0..std::thread::available_parallelism().map_or(1, usize::from)).map(|_| scope.spawn(worker)).collect();
        for worker in workers {
            worker.join().unwrap_or_else(|cause| std::panic::resume_unwind(cause));
        }
    });
    let (crashes, taken) = (crashes.into_inner(), taken.into_inner());
    println!("{cast:?}: {} seeds, {crashes} crashes, {taken} allocations", seeds.len());
}

#[test]
fn whatever_crashes_no_machine_is_leaked_wiped_or_given_twice_and_all_converge() {
    live_all(&seeds(200), Cast::Metal);
}

#[test]
fn whatever_crashes_no_vm_is_left_behind_no_host_has_too_many_and_all_converge() {
    live_all(&seeds(60), Cast::Vms);
}

/// By what was done and said, request by request: also a chance that comes from anywhere but the seed would show.
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
