//! Many seeds on all cores, with a progress line every few seconds.

use std::panic::{AssertUnwindSafe, catch_unwind};
use std::sync::atomic::{AtomicU64, AtomicUsize, Ordering};
use std::sync::{Condvar, Mutex};
use std::time::{Duration, Instant};

use crate::chaos;
use crate::guests::EVERY;
use crate::torments::Torment;
use crate::world::{Cast, World};

/// The interval of progress lines.
const PACE: Duration = Duration::from_secs(5);
/// After this many failures no further seed starts: a few show what is wrong.
const ENOUGH: usize = 10;

/// Which seeds are tried.
fn seeds(cast: Cast) -> Vec<u64> {
    let number = |name: &str| std::env::var(name).ok().map(|text| text.parse::<u64>().expect("a number"));
    if let Some(seed) = number("CAPMAAS_SEED") {
        return vec![seed];
    }
    let count = match cast {
        Cast::Metal => number("CAPMAAS_SEEDS").unwrap_or(200),
        Cast::Vms => number("CAPMAAS_VM_SEEDS").or_else(|| number("CAPMAAS_SEEDS")).unwrap_or(60),
    };
    let first = number("CAPMAAS_FIRST_SEED").unwrap_or(0);
    (first..first + count).collect()
}

/// Each seed has its own runtime with a clock that jumps to the next timer.
pub(crate) fn live(seed: u64, cast: Cast) -> World {
    let runtime = tokio::runtime::Builder::new_current_thread().enable_all().start_paused(true).build().unwrap();
    runtime.block_on(chaos::life(seed, cast))
}

/// The results so far.
#[derive(Default)]
struct Tally {
    next: AtomicUsize,
    done: AtomicU64,
    crashes: AtomicU64,
    taken: AtomicU64,
    evacuated: AtomicU64,
    failed: Mutex<Vec<u64>>,
}

/// As many at a time as there are cores: each is single-threaded, and they share nothing. A failure is reported
/// immediately, with its seed; the others continue.
pub(crate) fn live_all(cast: Cast) {
    let seeds = &seeds(cast);
    let tally = Tally::default();
    let (began, over, told) = (Instant::now(), Mutex::new(false), Condvar::new());
    let cores = std::thread::available_parallelism().map_or(1, usize::from);
    std::thread::scope(|scope| {
        let workers: Vec<_> = (0..cores).map(|_| scope.spawn(|| work(&tally, seeds, cast))).collect();
        scope.spawn(|| {
            let mut ended = over.lock().unwrap();
            while !*ended {
                let waited = told.wait_timeout(ended, PACE).unwrap();
                ended = waited.0;
                if waited.1.timed_out() {
                    println!("{}", progress(&tally, seeds.len(), cast, began));
                }
            }
        });
        for worker in workers {
            worker.join().unwrap_or_else(|cause| std::panic::resume_unwind(cause));
        }
        *over.lock().unwrap() = true;
        told.notify_all();
    });
    println!("{}", progress(&tally, seeds.len(), cast, began));
    let evacuated = tally.evacuated.load(Ordering::SeqCst);
    let failed = tally.failed.into_inner().unwrap();
    assert!(
        failed.is_empty(),
        "{cast:?}: {} of {} seeds failed: {failed:?}; replay one with: make simulate SEED={}",
        failed.len(),
        tally.done.into_inner(),
        failed[0],
    );
    let must = cast == Cast::Vms && Torment::Evacuation.is_on() && seeds.len() as u64 >= EVERY;
    assert!(!must || evacuated > 0, "not a single Machine was deleted for the sake of a host");
}

fn work(tally: &Tally, seeds: &[u64], cast: Cast) {
    while let Some(seed) = seeds.get(tally.next.fetch_add(1, Ordering::SeqCst)) {
        if let Ok(world) = catch_unwind(AssertUnwindSafe(|| live(*seed, cast))) {
            tally.crashes.fetch_add(u64::from(world.crashes), Ordering::SeqCst);
            tally.evacuated.fetch_add(u64::from(world.evacuated), Ordering::SeqCst);
            tally.taken.fetch_add(world.maas.control().effective("allocate") as u64, Ordering::SeqCst);
        } else {
            let mut failed = tally.failed.lock().unwrap();
            failed.push(*seed);
            println!("{cast:?}: seed {seed} failed; replay it with: make simulate SEED={seed}");
            if failed.len() >= ENOUGH {
                tally.next.store(seeds.len(), Ordering::SeqCst);
            }
        }
        tally.done.fetch_add(1, Ordering::SeqCst);
    }
}

fn progress(tally: &Tally, all: usize, cast: Cast, began: Instant) -> String {
    let done = tally.done.load(Ordering::SeqCst);
    let (crashes, taken) = (tally.crashes.load(Ordering::SeqCst), tally.taken.load(Ordering::SeqCst));
    let evacuated = tally.evacuated.load(Ordering::SeqCst);
    let failed = tally.failed.lock().unwrap().len();
    let seconds = began.elapsed().as_secs_f64();
    #[expect(clippy::cast_precision_loss, reason = "a pace for people")]
    let pace = done as f64 / seconds.max(0.001);
    format!(
        "{cast:?}: {done} of {all} seeds, {failed} failed, {pace:.1} seeds/s, {seconds:.0} s; {crashes} crashes, {taken} allocations, \
         {evacuated} evacuated"
    )
}
