//! `cargo test` with the test binaries in parallel.
//!
//! cargo runs them one after the other, and ours spend most of their time waiting: for an API server, for LXD, for a
//! machine that boots. (A runner that starts a process per test would start an API server per test as well: tests of
//! one binary share theirs.)
//!
//! Arguments are those of `cargo test`; what follows `--` goes to every binary. `CAPMAAS_TESTS_AT_ONCE` sets how many
//! run at a time, `CAPMAAS_TEST_MINUTES` how long one of them may take. The last line is the total.

mod binary;
mod order;
mod queue;
mod report;

use std::process::Command;
use std::str::FromStr;
use std::sync::{Mutex, PoisonError};
use std::time::Duration;

use anyhow::{Context as _, Result, bail};

use queue::Queue;
use report::Summary;

/// The timeout of one binary, in minutes. The longest boots whole clusters, and takes a quarter of an hour on an idle
/// machine.
const LIMIT: u64 = 60;

pub(crate) fn run(all: &[String]) -> Result<bool> {
    let split = all.iter().position(|argument| argument == "--");
    let (to_cargo, to_tests) = match split {
        Some(at) => (&all[..at], &all[at + 1..]),
        None => (all, &[][..]),
    };
    let mut binaries = binary::build(to_cargo)?;
    order::longest_first(&mut binaries);
    // Each runs as many tests at once as there are CPUs, and most of them spend their time waiting.
    let processors = std::thread::available_parallelism().map_or(1, usize::from);
    let at_once = number("CAPMAAS_TESTS_AT_ONCE", processors + 1)?;
    let limit = Duration::from_secs(60 * number("CAPMAAS_TEST_MINUTES", LIMIT)?);
    let workers = at_once.min(binaries.len());
    let (queue, summary) = (Mutex::new(Queue::new(binaries)), Mutex::new(Summary::default()));
    let queue = || queue.lock().unwrap_or_else(PoisonError::into_inner);
    std::thread::scope(|scope| {
        for _ in 0..workers {
            scope.spawn(|| {
                // Not in the condition of a loop: that would hold the lock while the binary runs.
                loop {
                    let next = queue().next();
                    let Some(binary) = next else { break };
                    println!("    Starting {}", binary.name);
                    let ended = binary.run(to_tests, limit);
                    queue().ended(&binary);
                    if let Ok(mut summary) = summary.lock() {
                        summary.add(&binary, &ended);
                    }
                }
            });
        }
    });
    let mut summary = summary.into_inner().unwrap_or_else(PoisonError::into_inner);
    order::remember(&summary.durations);
    if runs_documentation(to_cargo) {
        summary.add_documentation(&documentation(to_cargo, to_tests, limit)?);
    }
    summary.print();
    Ok(summary.is_good())
}

/// A number above 0 from the environment.
fn number<T: FromStr + PartialOrd + Default>(variable: &str, otherwise: T) -> Result<T> {
    match std::env::var(variable) {
        Err(_) => Ok(otherwise),
        Ok(text) => match text.parse() {
            Ok(number) if number > T::default() => Ok(number),
            _ => bail!("{variable} is {text:?}; it must be a number above 0"),
        },
    }
}

/// Examples in documentation are tests too, unless particular binaries were requested.
fn runs_documentation(to_cargo: &[String]) -> bool {
    !to_cargo.iter().any(|argument| ["--test", "--lib", "--bin", "--bins", "--tests"].contains(&argument.as_str()))
}

fn documentation(to_cargo: &[String], to_tests: &[String], limit: Duration) -> Result<binary::Ended> {
    let mut command = Command::new(binary::cargo());
    command.arg("test").arg("--doc").args(to_cargo).arg("--").args(to_tests);
    binary::finish(command, limit).context("run the examples in the documentation")
}
