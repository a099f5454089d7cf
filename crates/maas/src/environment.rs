//! Time of day and chance, which a simulation replaces by its own.

use std::time::{Duration, SystemTime, UNIX_EPOCH};

/// What a client takes from the world besides the network. Durations do not come from here but from tokio's clock,
/// which a test can pause.
pub trait Environment: Send + Sync + 'static {
    /// Seconds since 1970, for the time stamp of a signature.
    fn unix_seconds(&self) -> u64;

    /// A number that was not seen before: nonces are made of it, and the jitter of back-off.
    fn random(&self) -> u128;
}

/// The clock and the random numbers of this computer.
#[derive(Debug, Clone, Copy, Default)]
pub struct SystemEnvironment;

impl Environment for SystemEnvironment {
    fn unix_seconds(&self) -> u64 {
        SystemTime::now().duration_since(UNIX_EPOCH).unwrap_or(Duration::ZERO).as_secs()
    }

    fn random(&self) -> u128 {
        rand::random()
    }
}
