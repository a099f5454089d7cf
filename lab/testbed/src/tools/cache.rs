//! The cache of built programs, and the lock that lets one run build while others wait.

use std::{
    env,
    fs::{File, TryLockError},
    path::{Path, PathBuf},
    thread::sleep,
    time::Duration,
};

use super::progress::Progress;
use crate::error::{Doing, Error, Result};

/// `$CAPMAAS_CACHE`, else `$XDG_CACHE_HOME/capmaas`, else `$HOME/.cache/capmaas`.
pub fn cache_root() -> Result<PathBuf> {
    let set = |name| env::var_os(name).filter(|value| !value.is_empty()).map(PathBuf::from);
    set("CAPMAAS_CACHE")
        .or_else(|| set("XDG_CACHE_HOME").map(|dir| dir.join("capmaas")))
        .or_else(|| set("HOME").map(|dir| dir.join(".cache/capmaas")))
        .ok_or_else(|| Error::Missing("set CAPMAAS_CACHE (or HOME) to say where built test tools are kept".into()))
}

/// Waits for an exclusive lock on `path` and prints every few seconds what it waits for. Unlocked when the file is
/// dropped.
pub(crate) fn lock(path: &Path, what: &str) -> Result<File> {
    let doing = || format!("lock {}", path.display());
    let file = File::options().create(true).append(true).open(path).doing(doing)?;
    let mut progress: Option<Progress> = None;
    loop {
        match file.try_lock() {
            Ok(()) => return Ok(file),
            Err(TryLockError::WouldBlock) => {
                progress
                    .get_or_insert_with(|| Progress::start(format!("waiting for another run that prepares {what}")))
                    .tick();
                sleep(Duration::from_millis(250));
            }
            Err(TryLockError::Error(source)) => return Err(Error::Io { doing: doing(), source }),
        }
    }
}
