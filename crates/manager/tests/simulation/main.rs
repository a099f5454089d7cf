//! The real gather, decide and apply against a simulated MAAS, under chance that one number decides: the manager dies between
//! any two calls, requests and answers are lost or late, MAAS dies in the middle, machines fail, people delete and pause.
//!
//! `CAPMAAS_SEEDS` says how many seeds are tried (200), `CAPMAAS_SEED` replays one.
#![allow(clippy::unwrap_used, clippy::expect_used, clippy::panic)]

mod chance;
mod chaos;
mod crash;
mod happenings;
mod law;
mod objects;
mod world;

use std::sync::atomic::{AtomicU64, AtomicUsize, Ordering};

use world::World;

fn seeds() -> Vec<u64> {
    let number = |name: &str| std::env::var(name).ok().map(|text| text.parse::<u64>().expect("a number"));
    match (number("CAPMAAS_SEED"), number("CAPMAAS_SEEDS")) {
        (Some(seed), _) => vec![seed],
        (None, count) => (0..count.unwrap_or(200)).collect(),
    }
}

/// Each seed has a runtime of its own with a clock that jumps to whatever is awaited.
fn live(seed: u64) -> World {
    let runtime = tokio::runtime::Builder::new_current_thread().enable_all().start_paused(true).build().unwrap();
    runtime.block_on(chaos::life(seed))
}

#[test]
fn whatever_crashes_no_machine_is_leaked_wiped_or_given_twice_and_all_converge() {
    let seeds = seeds();
    let (crashes, allocations) = (AtomicU64::new(0), AtomicU64::new(0));
    let next = AtomicUsize::new(0);
    // A few at a time: each is single-threaded, and they share nothing.
    std::thread::scope(|scope| {
        let worker = || {
            while let Some(seed) = seeds.get(next.fetch_add(1, Ordering::SeqCst)) {
                let world = live(*seed);
                crashes.fetch_add(u64::from(world.crashes), Ordering::SeqCst);
                allocations.fetch_add(world.maas.control().effective("allocate") as u64, Ordering::SeqCst);
            }
        };
        let workers: Vec<_> =
            (0..std::thread::available_parallelism().map_or(1, usize::from)).map(|_| scope.spawn(worker)).collect();
        for worker in workers {
            worker.join().unwrap_or_else(|cause| std::panic::resume_unwind(cause));
        }
    });
    let (crashes, allocations) = (crashes.into_inner(), allocations.into_inner());
    println!("{} seeds, {crashes} crashes, {allocations} allocations", seeds.len());
}

/// By what was done and said, request by request: also a chance that comes from anywhere but the seed would show.
#[test]
fn a_failing_seed_replays_exactly() {
    for seed in 0..8 {
        let (one, two) = (live(seed).fingerprint(), live(seed).fingerprint());
        for (number, (one, two)) in one.iter().zip(&two).enumerate() {
            assert_eq!(one, two, "seed {seed} differs at line {number}");
        }
        assert_eq!(one.len(), two.len(), "seed {seed}");
    }
}
