//! One background process: its log, its early exit, its termination.

use std::{
    ffi::OsStr,
    fs::{self, File},
    path::{Path, PathBuf},
    process::{Child, Command, ExitStatus, Stdio},
    sync::{Mutex, MutexGuard, PoisonError},
    time::{Duration, Instant},
};

use rustix::process::{Pid, Signal, kill_process};

use crate::error::{Doing, Error, Result};

const TAIL_LINES: usize = 25;
const POLL: Duration = Duration::from_millis(25);

/// A background process that is killed when this value is dropped.
#[derive(Debug)]
pub struct Process {
    name: String,
    log: PathBuf,
    child: Mutex<Child>,
}

impl Process {
    /// Starts it in its own process group, so that Ctrl-C in a terminal reaches us first.
    pub(crate) fn spawn(name: &str, mut command: Command, log: PathBuf) -> Result<Self> {
        use std::os::unix::process::CommandExt as _;
        let output =
            File::options().create(true).append(true).open(&log).doing(|| format!("open the log {}", log.display()))?;
        let errors = output.try_clone().doing(|| format!("open the log {}", log.display()))?;
        let child = command
            .stdin(Stdio::null())
            .stdout(output)
            .stderr(errors)
            .process_group(0)
            .spawn()
            .doing(|| format!("start {name} ({})", Path::new(command.get_program()).display()))?;
        Ok(Self { name: name.to_owned(), log, child: Mutex::new(child) })
    }

    fn child(&self) -> MutexGuard<'_, Child> {
        self.child.lock().unwrap_or_else(PoisonError::into_inner)
    }

    pub fn name(&self) -> &str {
        &self.name
    }

    /// Its output so far.
    pub fn log(&self) -> String {
        fs::read(&self.log).map(|bytes| String::from_utf8_lossy(&bytes).into_owned()).unwrap_or_default()
    }

    pub fn id(&self) -> u32 {
        self.child().id()
    }

    /// Its exit status, if it has exited.
    pub fn exited(&self) -> Option<ExitStatus> {
        self.child().try_wait().ok().flatten()
    }

    /// Sends a signal. A process that has already exited is not an error.
    pub fn signal(&self, signal: Signal) {
        let mut child = self.child();
        // Not reaped yet, so the id cannot belong to another process.
        if let (Ok(None), Some(pid)) = (child.try_wait(), i32::try_from(child.id()).ok().and_then(Pid::from_raw)) {
            let _ = kill_process(pid, signal);
        }
    }

    /// Sends SIGTERM, and SIGKILL if it has not exited after `grace`.
    pub async fn stop(&self, grace: Duration) {
        self.signal(Signal::TERM);
        let deadline = Instant::now() + grace;
        while self.exited().is_none() && Instant::now() < deadline {
            tokio::time::sleep(POLL).await;
        }
        self.kill();
    }

    /// Sends SIGKILL and waits for the exit.
    pub fn kill(&self) {
        let mut child = self.child();
        let _ = child.kill();
        let _ = child.wait();
    }

    /// An error about this process with the end of its log.
    pub(crate) fn error(&self, what: impl Into<String>) -> Error {
        Error::Program { name: self.name.clone(), what: what.into(), tail: tail(&self.log()) }
    }

    /// Fails with the end of its log if it no longer runs.
    pub fn check(&self) -> Result<()> {
        self.exited().map_or(Ok(()), |status| Err(self.error(format!("ended ({status})"))))
    }

    /// Whether it exited because another process had taken its port.
    pub(crate) fn lost_its_port(&self) -> bool {
        self.exited().is_some() && self.log().contains("address already in use")
    }

    /// Polls `ready` until it returns true. Fails at once if the process exits, and after `limit`.
    pub(crate) async fn wait_until<F: Future<Output = bool>>(
        &self,
        limit: Duration,
        mut ready: impl FnMut() -> F,
    ) -> Result<()> {
        let deadline = Instant::now() + limit;
        loop {
            if ready().await {
                return Ok(());
            }
            if let Some(status) = self.exited() {
                return Err(self.error(format!("ended early ({status})")));
            }
            if Instant::now() > deadline {
                return Err(self.error(format!("was not ready after {} s", limit.as_secs())));
            }
            tokio::time::sleep(POLL).await;
        }
    }
}

impl Drop for Process {
    fn drop(&mut self) {
        self.kill();
    }
}

/// Runs a short command to its end and returns its output.
pub(crate) fn run(mut command: Command) -> Result<String> {
    let name = Path::new(command.get_program()).file_name().unwrap_or_default().display().to_string();
    let output = command.output().doing(|| format!("start {name}"))?;
    if output.status.success() {
        return Ok(String::from_utf8_lossy(&output.stdout).into_owned());
    }
    let args: Vec<_> = command.get_args().map(OsStr::to_string_lossy).collect();
    Err(Error::Program {
        what: format!("{} failed ({})", args.join(" "), output.status),
        tail: tail(&String::from_utf8_lossy(&output.stderr)),
        name,
    })
}

/// The last lines of a log.
pub(crate) fn tail(log: &str) -> String {
    let lines: Vec<&str> = log.lines().collect();
    lines[lines.len().saturating_sub(TAIL_LINES)..].join("\n")
}
