//! One line per tool with its elapsed time, on standard error.

use std::{
    io::{IsTerminal as _, Write as _, stderr},
    time::{Duration, Instant},
};

/// Often enough to show progress in a CI log, rarely enough not to fill it.
const LINE_EVERY: Duration = Duration::from_secs(20);

pub(crate) struct Progress {
    what: String,
    started: Instant,
    last_line: Instant,
    terminal: bool,
}

impl Progress {
    pub(crate) fn start(what: String) -> Self {
        let now = Instant::now();
        let terminal = stderr().is_terminal();
        if !terminal {
            eprintln!("{what} ...");
        }
        Self { what, started: now, last_line: now, terminal }
    }

    /// Shows the elapsed time: in place on a terminal, otherwise as a line now and then.
    pub(crate) fn tick(&mut self) {
        let seconds = self.started.elapsed().as_secs();
        if self.terminal {
            eprint!("\r{} ... {seconds} s", self.what);
            let _ = stderr().flush();
        } else if self.last_line.elapsed() >= LINE_EVERY {
            self.last_line = Instant::now();
            eprintln!("{} ... {seconds} s", self.what);
        }
    }

    pub(crate) fn done(self) {
        let start = if self.terminal { "\r" } else { "" };
        eprintln!("{start}{}: done in {} s", self.what, self.started.elapsed().as_secs());
    }
}
