//! Ctrl-C: what was created is still removed. A write in flight is not interrupted, since its effect would be unknown.

use std::{
    sync::{
        Arc,
        atomic::{AtomicBool, Ordering},
    },
    time::Duration,
};

use tokio::signal::unix::{SignalKind, signal};

/// Whether the program should end.
#[derive(Debug, Clone, Default)]
pub(crate) struct Stop(Arc<AtomicBool>);

impl Stop {
    /// Listens for SIGINT and SIGTERM from now on. A second one ends the program immediately.
    pub(crate) fn listen() -> anyhow::Result<Self> {
        let stop = Self::default();
        let (mut interrupt, mut terminate) = (signal(SignalKind::interrupt())?, signal(SignalKind::terminate())?);
        let told = stop.clone();
        tokio::spawn(async move {
            for time in 0..2 {
                tokio::select! {
                    _ = interrupt.recv() => {}
                    _ = terminate.recv() => {}
                }
                told.0.store(true, Ordering::SeqCst);
                if time == 0 {
                    eprintln!("stopping: removing what was created; interrupt again to stop immediately");
                }
            }
            std::process::exit(130);
        });
        Ok(stop)
    }

    pub(crate) fn is_wanted(&self) -> bool {
        self.0.load(Ordering::SeqCst)
    }

    /// Sleeps, but returns early once the program should end.
    pub(crate) async fn sleep(&self, duration: Duration) {
        const STEP: Duration = Duration::from_millis(100);
        let until = tokio::time::Instant::now() + duration;
        while !self.is_wanted() && tokio::time::Instant::now() < until {
            tokio::time::sleep(STEP.min(until - tokio::time::Instant::now())).await;
        }
    }
}
