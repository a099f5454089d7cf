//! Coalesces concurrent reads of the same thing into one. All machines of a cluster read the same Cluster, and all
//! machines that are being deleted read the same list of VM hosts.

use std::collections::HashMap;
use std::hash::Hash;
use std::sync::{Arc, Mutex, MutexGuard, PoisonError};

/// How many keys are kept before those without a current reader are dropped.
const KEPT: usize = 256;

/// Coalesced reads of one kind. Every answer belongs to a read that started after its request, so it reflects every
/// earlier write, as if every caller had read on its own.
#[derive(Debug)]
pub(crate) struct CoalescedReads<K, T, E> {
    reads: Arc<Mutex<Reads<K, T, E>>>,
}

type Reads<K, T, E> = HashMap<K, Arc<Read<T, E>>>;

impl<K, T, E> Clone for CoalescedReads<K, T, E> {
    fn clone(&self) -> Self {
        Self { reads: self.reads.clone() }
    }
}

impl<K, T, E> Default for CoalescedReads<K, T, E> {
    fn default() -> Self {
        Self { reads: Arc::default() }
    }
}

#[derive(Debug)]
struct Read<T, E> {
    /// Held by the current reader.
    reading: tokio::sync::Mutex<()>,
    state: Mutex<State<T, E>>,
}

#[derive(Debug)]
struct State<T, E> {
    /// How many reads have started.
    begun: u64,
    /// The last answer, for all callers that waited for it, and the read that it belongs to.
    answer: Option<(u64, Result<T, Arc<E>>)>,
}

impl<T, E> Read<T, E> {
    fn state(&self) -> MutexGuard<'_, State<T, E>> {
        self.state.lock().unwrap_or_else(PoisonError::into_inner)
    }
}

impl<K: Clone + Eq + Hash, T: Clone, E> CoalescedReads<K, T, E> {
    /// Reads, or waits for another caller's read that starts after this call.
    pub(crate) async fn read(&self, key: &K, read: impl Future<Output = Result<T, E>>) -> Result<T, Arc<E>> {
        let shared = self.of(key);
        let before = shared.state().begun;
        let reading = shared.reading.lock().await;
        if let Some((number, answer)) = &shared.state().answer
            && *number > before
        {
            return answer.clone();
        }
        let number = {
            let mut state = shared.state();
            state.begun += 1;
            state.begun
        };
        let answer = read.await.map_err(Arc::new);
        shared.state().answer = Some((number, answer.clone()));
        drop(reading);
        answer
    }

    fn of(&self, key: &K) -> Arc<Read<T, E>> {
        let mut reads = self.reads.lock().unwrap_or_else(PoisonError::into_inner);
        if reads.len() > KEPT {
            reads.retain(|_, read| Arc::strong_count(read) > 1);
        }
        let new = || {
            Arc::new(Read {
                reading: tokio::sync::Mutex::default(),
                state: Mutex::new(State { begun: 0, answer: None }),
            })
        };
        reads.entry(key.clone()).or_insert_with(new).clone()
    }
}

#[cfg(test)]
mod tests {
    use std::sync::atomic::{AtomicU64, Ordering};
    use std::time::Duration;

    use futures::future::join_all;

    use super::*;

    type Numbers = CoalescedReads<&'static str, u64, &'static str>;

    const KEY: &str = "team/c1";

    /// Takes a second; returns what was stored when it started.
    async fn slow(stored: &AtomicU64, reads: &AtomicU64) -> Result<u64, &'static str> {
        let value = stored.load(Ordering::SeqCst);
        reads.fetch_add(1, Ordering::SeqCst);
        tokio::time::sleep(Duration::from_secs(1)).await;
        Ok(value)
    }

    #[tokio::test(start_paused = true)]
    async fn many_who_ask_at_once_cost_two_reads_and_each_sees_what_was_written_before_it_asked() {
        let (together, stored, reads) = (Numbers::default(), AtomicU64::new(1), AtomicU64::new(0));
        let early = together.read(&KEY, slow(&stored, &reads));
        let late = async {
            tokio::time::sleep(Duration::from_millis(500)).await;
            stored.store(2, Ordering::SeqCst);
            join_all((0..50).map(|_| together.read(&KEY, slow(&stored, &reads)))).await
        };
        let (early, late) = tokio::join!(early, late);
        assert_eq!(early.unwrap(), 1);
        assert!(late.into_iter().all(|answer| answer.unwrap() == 2));
        assert_eq!(reads.load(Ordering::SeqCst), 2);
    }

    #[tokio::test(start_paused = true)]
    async fn an_answer_is_not_kept_for_those_who_ask_later() {
        let (together, stored, reads) = (Numbers::default(), AtomicU64::new(1), AtomicU64::new(0));
        assert_eq!(together.read(&KEY, slow(&stored, &reads)).await.unwrap(), 1);
        stored.store(2, Ordering::SeqCst);
        assert_eq!(together.read(&KEY, slow(&stored, &reads)).await.unwrap(), 2);
    }

    #[tokio::test(start_paused = true)]
    async fn a_failure_is_everybodys_and_a_read_that_was_broken_off_nobodys() {
        let (together, reads) = (Numbers::default(), AtomicU64::new(0));
        let failing = || async {
            reads.fetch_add(1, Ordering::SeqCst);
            tokio::time::sleep(Duration::from_secs(30)).await;
            Err("it did not answer")
        };
        let answers = join_all((0..10).map(|_| together.read(&KEY, failing()))).await;
        assert!(answers.iter().all(|answer| answer.as_ref().is_err_and(|error| **error == "it did not answer")));
        assert!(reads.load(Ordering::SeqCst) <= 2, "{reads:?}");
        let stored = AtomicU64::new(7);
        let broken = tokio::time::timeout(Duration::from_millis(10), together.read(&KEY, slow(&stored, &reads))).await;
        assert!(broken.is_err());
        assert_eq!(together.read(&KEY, slow(&stored, &reads)).await.unwrap(), 7);
    }
}
