//! The log level, which can be changed while the manager runs.
//!
//! The level applies to our own crates. Others stay at warnings: some print whole requests at their lowest levels, and
//! no secret may reach a log at any level (S21). kube's client is off: its warnings quote whole answers that it could
//! not parse, and its errors do not name the API server; [`crate::answering`] does.

use std::sync::{Arc, Mutex, PoisonError};

use tracing_subscriber::filter::EnvFilter;
use tracing_subscriber::registry::Registry;
use tracing_subscriber::reload;

const LEVELS: [&str; 5] = ["error", "warn", "info", "debug", "trace"];
const OURS: [&str; 5] = ["capmaas_manager", "capmaas_core", "capmaas_api", "maas_client", "lxd_client"];

/// The level, and the handle to change it.
#[derive(Clone)]
pub struct LogLevel {
    current: Arc<Mutex<String>>,
    handle: reload::Handle<EnvFilter, Registry>,
}

/// The filter that follows the level.
pub type Filter = reload::Layer<EnvFilter, Registry>;

impl LogLevel {
    pub fn new(level: &str) -> Result<(Self, Filter), String> {
        let (filter, handle) = reload::Layer::new(filter(level)?);
        Ok((Self { current: Arc::new(Mutex::new(level.to_owned())), handle }, filter))
    }

    pub fn current(&self) -> String {
        self.current.lock().unwrap_or_else(PoisonError::into_inner).clone()
    }

    /// Changes the level immediately.
    pub fn set(&self, level: &str) -> Result<(), String> {
        let filter = filter(level)?;
        // Gone only together with the process, or in a test that never installed it.
        if self.handle.reload(filter).is_err() {
            tracing::debug!("no subscriber follows the log level");
        }
        level.clone_into(&mut self.current.lock().unwrap_or_else(PoisonError::into_inner));
        tracing::info!(level, "the log level was changed");
        Ok(())
    }
}

fn filter(level: &str) -> Result<EnvFilter, String> {
    if !LEVELS.contains(&level) {
        return Err(format!("{level:?} is not a valid log level: write error, warn, info, debug or trace"));
    }
    // The level `error` applies to other crates as well.
    let others = if level == "error" { "error" } else { "warn" };
    let ours: Vec<String> = OURS.iter().map(|name| format!("{name}={level}")).collect();
    Ok(EnvFilter::new(format!("{others},kube_client=off,{}", ours.join(","))))
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn s21_only_our_own_crates_are_turned_up() {
        let text = filter("trace").unwrap().to_string();
        assert!(text.contains("capmaas_manager=trace") && text.contains("warn"), "{text}");
        assert!(text.contains("kube_client=off"), "it quotes answers at the level of warnings: {text}");
        assert!(!text.contains("hyper") && !text.split(',').any(|part| part == "trace"), "{text}");
    }
}
