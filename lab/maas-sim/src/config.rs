//! Settings of a simulator: the MAAS version, how long things take, who may log in.

use std::{collections::BTreeSet, fmt, str::FromStr};

use jiff::{SignedDuration, Timestamp};
use serde::Deserialize;

pub use crate::version::Version;

/// How long the hardware and MAAS take. In seconds, so that an inventory file can contain them.
#[derive(Clone, Debug, Deserialize)]
#[serde(default, deny_unknown_fields)]
pub struct Durations {
    /// From the answer to a request until its background work starts.
    pub post_commit: f64,
    /// Powering a machine on or off through its BMC.
    pub power: f64,
    /// Commissioning, from power-on.
    pub commission: f64,
    /// Testing, after commissioning or on request.
    pub test: f64,
    /// Deploying, from power-on to the user data being fetched.
    pub deploy: f64,
    /// Erasing disks.
    pub erase: f64,
    /// Entering or exiting rescue mode.
    pub rescue: f64,
    /// From the registration of a VM host until its totals are known.
    pub vm_host_totals: f64,
    /// Until an action on a BMC that does not answer times out.
    pub bmc_hang: f64,
    /// Until an action on a BMC that answers with errors fails.
    pub bmc_error: f64,
    /// From a machine's status report until MAAS processes it.
    pub status_reports: f64,
    /// Until MAAS next queries a machine's BMC for its power state, which it does periodically.
    pub power_poll: f64,
    /// MAAS's `node_timeout`: Commissioning, Deploying and Testing fail after it.
    pub node_timeout: f64,
}

impl Default for Durations {
    fn default() -> Self {
        Self {
            post_commit: 0.2,
            power: 1.0,
            commission: 30.0,
            test: 20.0,
            deploy: 40.0,
            erase: 15.0,
            rescue: 5.0,
            vm_host_totals: 2.0,
            bmc_hang: 302.0,
            bmc_error: 36.0,
            status_reports: 30.0,
            power_poll: 300.0,
            node_timeout: 1800.0,
        }
    }
}

impl Durations {
    /// As fast as possible for a demonstration, with everything still in the right order.
    pub fn quick() -> Self {
        Self {
            post_commit: 0.05,
            power: 0.1,
            commission: 0.5,
            test: 0.2,
            deploy: 0.5,
            erase: 0.3,
            rescue: 0.2,
            vm_host_totals: 0.3,
            status_reports: 0.5,
            power_poll: 1.0,
            ..Self::default()
        }
    }
}

/// Seconds as a duration; invalid values count as zero.
pub(crate) fn seconds(value: f64) -> SignedDuration {
    SignedDuration::try_from_secs_f64(value.max(0.0)).unwrap_or(SignedDuration::ZERO)
}

/// Who moves the clock.
#[derive(Clone, Copy, Debug, Default, PartialEq, Eq, clap::ValueEnum)]
pub enum TimeMode {
    /// The computer's clock.
    #[default]
    Real,
    /// Only `advance` and `settle`: for tests.
    Driven,
}

/// How long requests take.
#[derive(Clone, Copy, Debug, Default, PartialEq, Eq, clap::ValueEnum)]
pub enum LatencyMode {
    /// No longer than they need.
    #[default]
    None,
    /// As measured on a real MAAS (one region process on two cores).
    Real,
}

/// An API key, as MAAS prints it. Its Debug form hides the secret.
#[derive(Clone, PartialEq, Eq)]
pub struct ApiKey {
    /// Key of the consumer.
    pub consumer: String,
    /// Key of the token.
    pub token: String,
    /// Secret of the token.
    pub secret: String,
}

impl fmt::Debug for ApiKey {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        write!(f, "ApiKey({}:{}:…)", self.consumer, self.token)
    }
}

/// An API key that does not have three parts.
#[derive(Debug, thiserror::Error)]
#[error("an API key has three parts, CONSUMER:TOKEN:SECRET, none of them empty")]
pub struct BadApiKey;

impl FromStr for ApiKey {
    type Err = BadApiKey;

    fn from_str(text: &str) -> Result<Self, Self::Err> {
        let parts: Vec<&str> = text.trim().split(':').collect();
        match parts.as_slice() {
            [consumer, token, secret] if !consumer.is_empty() && !token.is_empty() && !secret.is_empty() => {
                Ok(Self { consumer: (*consumer).to_owned(), token: (*token).to_owned(), secret: (*secret).to_owned() })
            }
            _ => Err(BadApiKey),
        }
    }
}

impl<'de> Deserialize<'de> for ApiKey {
    fn deserialize<D: serde::Deserializer<'de>>(deserializer: D) -> Result<Self, D::Error> {
        String::deserialize(deserializer)?.parse().map_err(serde::de::Error::custom)
    }
}

/// The configuration of a simulator.
#[derive(Clone, Debug)]
pub struct Config {
    /// The simulated MAAS version.
    pub version: Version,
    /// Key of the first administrator, `admin`.
    pub api_key: ApiKey,
    /// Determines ids, names and fault decisions.
    pub seed: u64,
    /// What drives the clock.
    pub time: TimeMode,
    /// Start time of a driven clock; the current time if absent.
    pub start: Option<Timestamp>,
    /// How long things take.
    pub durations: Durations,
    /// How long requests take.
    pub latency: LatencyMode,
    /// Addresses ("ip:port") of real LXD daemons that may be connected to, in addition to those on loopback.
    pub real_lxd: BTreeSet<String>,
    /// Simulate an LXD daemon for every unknown address that is registered. For clients that only need a VM host.
    pub invent_lxd: bool,
    /// Serve `/_sim/` on the same port.
    pub control: bool,
    /// Machines boot: see [`crate::Simulator::with_hardware`], which turns it on.
    pub boots: bool,
}

impl Config {
    /// The defaults, for one administrator's key.
    pub fn new(api_key: ApiKey) -> Self {
        Self {
            version: Version::default(),
            api_key,
            seed: 1,
            time: TimeMode::Real,
            start: None,
            durations: Durations::default(),
            latency: LatencyMode::None,
            real_lxd: BTreeSet::new(),
            invent_lxd: false,
            control: true,
            boots: false,
        }
    }

    /// For tests: a driven clock that starts at a fixed moment.
    pub fn driven(api_key: ApiKey) -> Self {
        Self { time: TimeMode::Driven, start: Timestamp::from_second(1_794_772_800).ok(), ..Self::new(api_key) }
    }
}
