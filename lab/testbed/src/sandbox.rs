//! The private folder of one testbed, and the guard that removes everything when its owner ends.
//!
//! A parent-death signal is tied to the thread that forked, which fails with test threads and runtimes. Instead, a
//! guard process ensures that everything dies with its parent, also after kill -9: a shell whose standard input is a
//! pipe from us. When the pipe closes, it kills every process that has the testbed's id in its environment, deletes its
//! network namespaces, unmounts what is mounted below the folder and removes the folder.

use std::{
    ffi::OsStr,
    fs,
    io::{BufRead, BufReader},
    path::{Path, PathBuf},
    process::{Child, ChildStdin, Command, Stdio},
    sync::{Arc, Mutex, PoisonError},
};

use crate::{
    error::{Doing, Error, Result, create_dir},
    process::Process,
};

/// Marks every process of a testbed; the guard searches for it.
pub(crate) const MARKER: &str = "CAPMAAS_TESTBED";
const GUARD: &str = include_str!("guard.sh");
/// Where to keep the logs of a testbed that is removed.
const KEEP_LOGS: &str = "CAPMAAS_TESTBED_KEEP_LOGS";

/// A folder that is removed with everything in it and everything started for it.
#[derive(Debug)]
pub struct Sandbox {
    id: String,
    dir: PathBuf,
    guard: Mutex<Option<Guard>>,
}

#[derive(Debug)]
struct Guard {
    child: Child,
    /// Never written to: closing it is the signal.
    alive: ChildStdin,
}

impl Sandbox {
    /// Creates the folder and starts the guard.
    pub fn create() -> Result<Arc<Self>> {
        if !rustix::process::geteuid().is_root() {
            return Err(Error::Missing(
                "the testbed mounts, makes network namespaces and runs LXD: run it as root".into(),
            ));
        }
        let id = format!("{:08x}", rand::random::<u32>());
        let dir = root().join(&id);
        create_dir(&dir.join("logs"))?;
        let guard = start_guard(&id, &dir)?;
        Ok(Arc::new(Self { id, dir, guard: Mutex::new(Some(guard)) }))
    }

    /// The unique id of this testbed: eight hexadecimal digits.
    pub fn id(&self) -> &str {
        &self.id
    }

    /// The folder. Nothing below it outlives the testbed.
    pub fn dir(&self) -> &Path {
        &self.dir
    }

    /// The folder that holds the log of each process.
    pub fn logs(&self) -> PathBuf {
        self.dir.join("logs")
    }

    /// A command whose process and all its descendants end with this testbed.
    pub fn command(&self, program: impl AsRef<OsStr>) -> Command {
        let mut command = Command::new(program);
        command.env(MARKER, &self.id);
        command
    }

    /// Starts a command made by [`Sandbox::command`] in the background, with its output in `logs/<name>.log`.
    pub fn spawn(&self, name: &str, command: Command) -> Result<Process> {
        Process::spawn(name, command, self.logs().join(format!("{name}.log")))
    }

    /// Kills every process, then removes mounts, namespaces and the folder. Blocks until that is done.
    pub fn close(&self) {
        let guard = self.guard.lock().unwrap_or_else(PoisonError::into_inner).take();
        let Some(Guard { mut child, alive }) = guard else { return };
        keep_logs(&self.id, &self.logs());
        drop(alive);
        match child.wait() {
            Ok(status) if status.success() => {}
            outcome => {
                tracing::warn!(folder = %self.dir.display(), ?outcome, "the testbed could not be cleared away");
            }
        }
    }
}

impl Drop for Sandbox {
    fn drop(&mut self) {
        self.close();
    }
}

/// The parent folder of all testbeds on this machine.
pub(crate) fn root() -> PathBuf {
    std::env::temp_dir().join("capmaas-testbed")
}

/// Removes what testbeds left behind whose guard was killed too, for instance by a power cut. Returns how many.
pub fn clean_leftovers() -> Result<usize> {
    let root = root();
    let entries = match fs::read_dir(&root) {
        Ok(entries) => entries,
        Err(e) if e.kind() == std::io::ErrorKind::NotFound => return Ok(0),
        Err(e) => return Err(e).doing(|| format!("read the folder {}", root.display())),
    };
    let mut cleaned = 0;
    for entry in entries.flatten() {
        let dir = entry.path();
        let lock = dir.join(".guard.lock");
        let Ok(file) = fs::File::open(&lock) else { continue };
        if file.try_lock().is_err() {
            continue;
        }
        drop(file);
        let id = entry.file_name().to_string_lossy().into_owned();
        let Guard { mut child, alive } = start_guard(&id, &dir)?;
        drop(alive);
        let status = child.wait().doing(|| format!("clear {} away", dir.display()))?;
        if !status.success() {
            return Err(Error::invalid(
                format!("the folder {}", dir.display()),
                "cannot be removed; see what holds it",
            ));
        }
        cleaned += 1;
    }
    Ok(cleaned)
}

fn start_guard(id: &str, dir: &Path) -> Result<Guard> {
    // Detached, so that no terminal's Ctrl-C reaches it. Without the marker, or it would kill itself.
    let mut child = Command::new("setsid")
        .args(["sh", "-c", GUARD, "capmaas-testbed-guard", id])
        .arg(dir)
        .env_remove(MARKER)
        .current_dir("/")
        .stdin(Stdio::piped())
        .stdout(Stdio::piped())
        .stderr(Stdio::null())
        .spawn()
        .doing(|| "start the guard (setsid and sh, Debian package util-linux)".into())?;
    let (Some(alive), Some(stdout)) = (child.stdin.take(), child.stdout.take()) else {
        return Err(Error::invalid("the guard process", "has no pipes"));
    };
    let mut line = String::new();
    BufReader::new(stdout).read_line(&mut line).doing(|| "hear from the guard".into())?;
    if line.trim() != "ready" {
        let _ = child.wait();
        return Err(Error::Missing(
            "the testbed's guard did not start: it needs flock (Debian package util-linux)".into(),
        ));
    }
    Ok(Guard { child, alive })
}

fn keep_logs(id: &str, logs: &Path) {
    let Some(target) = std::env::var_os(KEEP_LOGS) else { return };
    let target = Path::new(&target).join(id);
    let copied = fs::create_dir_all(&target).and_then(|()| {
        for entry in fs::read_dir(logs)? {
            let entry = entry?;
            fs::copy(entry.path(), target.join(entry.file_name()))?;
        }
        Ok(())
    });
    if let Err(error) = copied {
        tracing::warn!(target = %target.display(), %error, "the logs could not be kept");
    }
}
