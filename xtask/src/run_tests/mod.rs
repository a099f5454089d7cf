//! `cargo test` with the test binaries side by side.
//!
//! cargo runs them one after the other, and most of ours wait most of the time: for an API server, for LXD, for a machine that
//! boots. (A runner that starts a process per test would start an API server per test as well: tests of one binary share theirs.)
//!
//! Arguments are those of `cargo test`; what follows `--` goes to every binary. `CAPMAAS_TESTS_AT_ONCE` says how many run at
//! a time. The last line is the sum over all of them.

mod binary;
mod order;
mod report;

use std::process::Command;
use std::sync::Mutex;
use std::sync::atomic::{AtomicUsize, Ordering};

use anyhow::{Context as _, Result, bail};

use report::Summary;

/// Each binary runs up to two tests at once on our two cores, and each of those may start an API server.
const AT_ONCE: usize = 3;

pub(crate) fn run(all: &[String]) -> Result<bool> {
    let split = all.iter().position(|argument| argument == "--");
    let (to_cargo, to_tests) = match split {
        Some(at) => (&all[..at], &all[at + 1..]),
        None => (all, &[][..]),
    };
    let mut binaries = binary::build(to_cargo)?;
    order::longest_first(&mut binaries);
    let at_once = at_once()?;
    let (next, summary) = (AtomicUsize::new(0), Mutex::new(Summary::default()));
    std::thread::scope(|scope| {
        for _ in 0..at_once.min(binaries.len()) {
            scope.spawn(|| {
                while let Some(binary) = binaries.get(next.fetch_add(1, Ordering::Relaxed)) {
                    let ended = binary.run(to_tests);
                    if let Ok(mut summary) = summary.lock() {
                        summary.add(binary, &ended);
                    }
                }
            });
        }
    });
    let mut summary = summary.into_inner().unwrap_or_else(std::sync::PoisonError::into_inner);
    order::remember(&summary.durations);
    if runs_documentation(to_cargo) {
        summary.add_documentation(&documentation(to_cargo, to_tests)?);
    }
    summary.print();
    Ok(summary.is_good())
}

fn at_once() -> Result<usize> {
    match std::env::var("CAPMAAS_TESTS_AT_ONCE") {
        Err(_) => Ok(AT_ONCE),
        Ok(text) => match text.parse() {
            Ok(number) if number > 0 => Ok(number),
            _ => bail!("CAPMAAS_TESTS_AT_ONCE is {text:?}; it must be a number above 0"),
        },
    }
}

/// Examples in documentation are tests too, unless particular binaries were asked for.
fn runs_documentation(to_cargo: &[String]) -> bool {
    !to_cargo.iter().any(|argument| ["--test", "--lib", "--bin", "--bins", "--tests"].contains(&argument.as_str()))
}

fn documentation(to_cargo: &[String], to_tests: &[String]) -> Result<binary::Ended> {
    let mut command = Command::new(binary::cargo());
    command.arg("test").arg("--doc").args(to_cargo).arg("--").args(to_tests);
    binary::finish(command).context("run the examples in the documentation")
}
