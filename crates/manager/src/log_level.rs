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
    use std::io;

    use tracing_subscriber::layer::SubscriberExt as _;

    use super::*;

    #[derive(Clone, Default)]
    struct Log(Arc<Mutex<Vec<u8>>>);

    impl io::Write for Log {
        fn write(&mut self, bytes: &[u8]) -> io::Result<usize> {
            self.0.lock().unwrap().extend(bytes);
            Ok(bytes.len())
        }

        fn flush(&mut self) -> io::Result<()> {
            Ok(())
        }
    }

    /// What is logged behind this filter while kube's client asks an API server that is away.
    async fn logged(filter: impl tracing_subscriber::Layer<Registry> + Send + Sync) -> String {
        let log = Log::default();
        let writer = log.clone();
        let lines = tracing_subscriber::fmt::layer().with_ansi(false).with_writer(move || writer.clone());
        let _guard = tracing::subscriber::set_default(tracing_subscriber::registry().with(filter).with(lines));
        let client = kube::Client::try_from(kube::Config::new("http://127.0.0.1:1/".parse().unwrap())).unwrap();
        client.apiserver_version().await.unwrap_err();
        tracing::error!(target: "capmaas_manager", "ours");
        String::from_utf8(log.0.lock().unwrap().clone()).unwrap()
    }

    #[tokio::test]
    async fn kube_logs_nothing_of_an_api_server_that_is_away() {
        let unfiltered = logged(EnvFilter::new("warn")).await;
        assert!(unfiltered.contains("kube_client"), "kube's client would log it: {unfiltered}");
        for level in LEVELS {
            let (_, filter) = LogLevel::new(level).unwrap();
            let text = logged(filter).await;
            assert!(text.contains("ours") && !text.contains("kube_client"), "{level}: {text}");
        }
    }

    #[test]
    fn s21_only_our_own_crates_are_turned_up() {
        let text = filter("trace").unwrap().to_string();
        assert!(text.contains("capmaas_manager=trace") && text.contains("warn"), "{text}");
        assert!(text.contains("kube_client=off"), "it quotes answers at the level of warnings: {text}");
        assert!(!text.contains("hyper") && !text.split(',').any(|part| part == "trace"), "{text}");
    }
}
