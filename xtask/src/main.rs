//! What a Makefile target needs a program for.

mod instructions;
mod picture;
mod release;
mod run_tests;

use std::path::{Path, PathBuf};
use std::process::ExitCode;

use clap::{Parser, Subcommand};

/// The programs behind the Makefile's targets.
#[derive(Parser)]
#[command(name = "xtask", version)]
struct Cli {
    #[command(subcommand)]
    command: Command,
}

#[derive(Subcommand)]
enum Command {
    /// Runs `cargo test` with the test binaries side by side. The arguments are those of `cargo test`.
    Test {
        #[arg(trailing_var_arg = true, allow_hyphen_values = true)]
        arguments: Vec<String>,
    },
    /// Counts the instructions of the pure functions that run most, and fails when one needs a tenth more than recorded.
    Instructions {
        /// The program that runs them: the crate capmaas-hot, built with the profile `counted`.
        #[arg(long, default_value = "target/counted/hot")]
        hot: PathBuf,
        /// Where the counts are recorded.
        #[arg(long, default_value = "xtask/instructions.json")]
        baseline: PathBuf,
        /// Record these counts instead of comparing with those that are there.
        #[arg(long)]
        record: bool,
    },
    /// Draws a recorded run, read from standard input, as a terminal would show it, and writes an SVG to standard output.
    Picture {
        #[arg(long)]
        title: String,
        /// Letters of a line at most.
        #[arg(long, default_value_t = 112)]
        columns: usize,
        /// Lines at most.
        #[arg(long, default_value_t = 40)]
        lines: usize,
    },
    #[command(flatten)]
    Release(release::Command),
}

fn main() -> ExitCode {
    let done = match Cli::parse().command {
        Command::Test { arguments } => run_tests::run(&arguments),
        Command::Instructions { hot, baseline, record } => instructions::check(&hot, &baseline, record).map(|table| {
            print!("{table}");
            true
        }),
        Command::Picture { title, columns, lines } => {
            std::io::read_to_string(std::io::stdin()).map_err(Into::into).map(|log| {
                print!("{}", picture::draw(&title, &log, columns, lines));
                true
            })
        }
        Command::Release(command) => release::run(&command).map(|()| true),
    };
    match done {
        Ok(true) => ExitCode::SUCCESS,
        Ok(false) => ExitCode::FAILURE,
        Err(error) => {
            eprintln!("xtask: {error:#}");
            ExitCode::FAILURE
        }
    }
}

/// The checkout that this was built from.
fn root() -> PathBuf {
    Path::new(env!("CARGO_MANIFEST_DIR")).join("..")
}
