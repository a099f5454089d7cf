//! Time of day and randomness, which a simulation replaces.

use std::time::{Duration, SystemTime, UNIX_EPOCH};

/// What a client takes from its environment besides the network. Durations come from tokio's clock instead, which a
/// test can pause.
pub trait Environment: Send + Sync + 'static {
    /// Seconds since 1970, for the timestamp of a signature.
    fn unix_seconds(&self) -> u64;

    /// A unique random number, for nonces and the jitter of back-off.
    fn random(&self) -> u128;
}

/// The system clock and random number generator.
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
