//! A test binary: cargo's name for it, and how it is run.

use std::ffi::OsString;
use std::fmt::Write as _;
use std::path::PathBuf;
use std::process::{Command, Stdio};
use std::time::{Duration, Instant};

use anyhow::{Context as _, Result, anyhow, bail};
use serde_json::Value;

pub(crate) struct TestBinary {
    /// Package and target, for the output and for the order of the next run.
    pub(crate) name: String,
    program: PathBuf,
    /// Tests expect to be started in the folder of their package.
    folder: PathBuf,
}

/// How it ended.
pub(crate) struct Ended {
    pub(crate) output: String,
    pub(crate) good: bool,
    pub(crate) took: Duration,
}

pub(crate) fn cargo() -> OsString {
    std::env::var_os("CARGO").unwrap_or_else(|| "cargo".into())
}

/// Builds what the arguments ask for.
pub(crate) fn build(to_cargo: &[String]) -> Result<Vec<TestBinary>> {
    let output = Command::new(cargo())
        .args(["test", "--no-run", "--message-format", "json-render-diagnostics"])
        .args(to_cargo)
        .stderr(Stdio::inherit())
        .output()
        .context("start cargo")?;
    if !output.status.success() {
        bail!("they do not compile");
    }
    let messages = String::from_utf8(output.stdout).context("read cargo's messages")?;
    let messages = messages.lines().filter_map(|line| serde_json::from_str::<Value>(line).ok());
    Ok(messages.filter_map(|message| from_message(&message)).collect())
}

/// cargo reports everything that it built; only executables built as tests count.
fn from_message(message: &Value) -> Option<TestBinary> {
    if message["reason"] != "compiler-artifact" || message["profile"]["test"] != true {
        return None;
    }
    let program = PathBuf::from(message["executable"].as_str()?);
    let folder = PathBuf::from(message["manifest_path"].as_str()?).parent()?.to_path_buf();
    let package = folder.file_name()?.to_str()?;
    let target = message["target"]["name"].as_str()?;
    Some(TestBinary { name: format!("{package} {target}"), program, folder })
}

impl TestBinary {
    #[cfg(test)]
    pub(crate) fn named(name: &str) -> Self {
        Self { name: name.to_owned(), program: PathBuf::new(), folder: PathBuf::new() }
    }

    /// Runs it to its end, or until its timeout.
    pub(crate) fn run(&self, arguments: &[String], limit: Duration) -> Ended {
        let mut command = Command::new(&self.program);
        command.args(arguments).current_dir(&self.folder).env("CARGO_MANIFEST_DIR", &self.folder);
        finish(command, limit).unwrap_or_else(|error| Ended {
            output: format!("{error:#}\n"),
            good: false,
            took: Duration::ZERO,
        })
    }
}

/// How often to check whether a command has ended.
const LOOK: Duration = Duration::from_millis(50);

/// Runs a command to its end, or until its timeout, with both its outputs in the order in which they arrive. Processes
/// that it started end with it: tests leave that to a guard outside of them.
pub(crate) fn finish(mut command: Command, limit: Duration) -> Result<Ended> {
    let began = Instant::now();
    let (mut reader, writer) = std::io::pipe().context("make a pipe")?;
    command.stdin(Stdio::null()).stdout(writer.try_clone().context("share the pipe")?).stderr(writer);
    let mut child = command.spawn().with_context(|| format!("start {}", command.get_program().display()))?;
    // The command holds our own end of the pipe: while it is open, the reader would wait forever.
    drop(command);
    let printed = std::thread::spawn(move || {
        let mut output = Vec::new();
        std::io::Read::read_to_end(&mut reader, &mut output).map(|_| output)
    });
    let mut late = false;
    let status = loop {
        if let Some(status) = child.try_wait().context("wait for it")? {
            break status;
        }
        if began.elapsed() >= limit && !late {
            late = true;
            child.kill().context("end what takes too long")?;
        }
        std::thread::sleep(LOOK);
    };
    let output = printed.join().map_err(|_| anyhow!("the reader of its output panicked"))?;
    let mut output = String::from_utf8_lossy(&output.context("read what it prints")?).into_owned();
    if late {
        let _ = writeln!(output, "ended after {} s, which is all the time that it has", limit.as_secs());
    }
    Ok(Ended { output, good: status.success(), took: began.elapsed() })
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn only_what_was_built_as_a_test_and_can_be_run_counts() {
        let mut message = serde_json::json!({
            "reason": "compiler-artifact",
            "manifest_path": "/a/crates/core/Cargo.toml",
            "target": { "name": "capmaas_core" },
            "profile": { "test": true },
            "executable": "/a/target/debug/deps/capmaas_core-1",
        });
        assert_eq!(from_message(&message).map(|binary| binary.name), Some("core capmaas_core".to_owned()));
        message["profile"]["test"] = false.into();
        assert!(from_message(&message).is_none());
        message["profile"]["test"] = true.into();
        message["executable"] = Value::Null;
        assert!(from_message(&message).is_none());
    }

    #[test]
    fn both_outputs_and_the_outcome_are_kept() {
        let mut command = Command::new("sh");
        command.args(["-c", "echo one; echo two >&2; exit 3"]);
        let ended = finish(command, Duration::from_secs(60)).unwrap();
        assert_eq!((ended.output.as_str(), ended.good), ("one\ntwo\n", false));
    }

    #[test]
    fn what_hangs_is_ended_and_counts_as_failed() {
        let mut command = Command::new("sh");
        command.args(["-c", "echo begun; exec sleep 600"]);
        let ended = finish(command, Duration::from_millis(300)).unwrap();
        assert!(!ended.good && ended.took < Duration::from_secs(60));
        assert!(ended.output.starts_with("begun\nended after"), "{}", ended.output);
    }
}
