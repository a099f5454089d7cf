//! How many requests may be in flight to one server.

use std::collections::HashMap;
use std::sync::{Arc, Mutex, OnceLock, PoisonError, Weak};

use tokio::sync::{OwnedSemaphorePermit, Semaphore};

/// Limits the requests in flight. One region worker of MAAS answers some five reads a second however many are sent at
/// once; more parallel requests only wait longer and come closer to their deadline.
#[derive(Debug, Clone)]
pub struct Limiter {
    places: Arc<Semaphore>,
}

/// As measured: more than four in parallel gain nothing per region worker.
pub const DEFAULT_CONCURRENCY: usize = 4;

type Servers = Mutex<HashMap<String, Weak<Semaphore>>>;

impl Limiter {
    /// A limit shared only by clients that are given this limiter.
    pub fn new(concurrency: usize) -> Self {
        Self { places: Arc::new(Semaphore::new(concurrency.clamp(1, Semaphore::MAX_PERMITS))) }
    }

    /// The limit of a server, shared by all its clients in this process. The first client alive sets the number.
    pub(crate) fn of_server(origin: &str, concurrency: usize) -> Self {
        static SERVERS: OnceLock<Servers> = OnceLock::new();
        let mut servers = SERVERS.get_or_init(Servers::default).lock().unwrap_or_else(PoisonError::into_inner);
        servers.retain(|_, places| places.strong_count() > 0);
        if let Some(places) = servers.get(origin).and_then(Weak::upgrade) {
            return Self { places };
        }
        let limiter = Self::new(concurrency);
        servers.insert(origin.to_owned(), Arc::downgrade(&limiter.places));
        limiter
    }

    /// Waits for a slot. None only if the semaphore were closed, which never happens.
    pub(crate) async fn place(&self) -> Option<OwnedSemaphorePermit> {
        Arc::clone(&self.places).acquire_owned().await.ok()
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn clients_of_one_server_share_its_places_and_others_do_not() {
        let first = Limiter::of_server("http://limiter-a.example", 2);
        let second = Limiter::of_server("http://limiter-a.example", 9);
        let other = Limiter::of_server("http://limiter-b.example", 9);
        assert!(Arc::ptr_eq(&first.places, &second.places));
        assert_eq!((second.places.available_permits(), other.places.available_permits()), (2, 9));
    }

    #[test]
    fn a_server_that_nobody_talks_to_any_more_is_forgotten() {
        drop(Limiter::of_server("http://limiter-c.example", 2));
        assert_eq!(Limiter::of_server("http://limiter-c.example", 3).places.available_permits(), 3);
    }

    #[test]
    fn a_bound_of_zero_would_stop_everything_and_means_one() {
        assert_eq!(Limiter::new(0).places.available_permits(), 1);
    }
}
