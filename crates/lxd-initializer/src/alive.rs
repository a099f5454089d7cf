//! Whether an agent runs on this node, shown by a lock next to its key pair: the kernel releases it with the process,
//! however that ends. Agents share it; `unregister` takes it exclusively.

use std::{
    fs::{self, File, OpenOptions, TryLockError},
    io,
    os::unix::fs::DirBuilderExt,
    path::Path,
};

const FILE: &str = "agent.lock";
/// Marks that a person had this node's host unregistered; only used by an agent that cannot read its Node.
const UNREGISTERED: &str = "unregistered";

fn open(state_dir: &Path) -> io::Result<File> {
    fs::DirBuilder::new().recursive(true).mode(0o700).create(state_dir)?;
    OpenOptions::new().create(true).truncate(false).write(true).open(state_dir.join(FILE))
}

fn locked(file: File, lock: Result<(), TryLockError>) -> io::Result<Option<File>> {
    match lock {
        Ok(()) => Ok(Some(file)),
        Err(TryLockError::WouldBlock) => Ok(None),
        Err(TryLockError::Error(error)) => Err(error),
    }
}

/// Shows that an agent runs, for as long as the file is kept open. `None` while the host is being unregistered.
pub fn hold(state_dir: &Path) -> io::Result<Option<File>> {
    let file = open(state_dir)?;
    let lock = file.try_lock_shared();
    locked(file, lock)
}

/// Keeps agents from starting for as long as the file is kept open. `None` if one runs.
pub(crate) fn alone(state_dir: &Path) -> io::Result<Option<File>> {
    let file = open(state_dir)?;
    let lock = file.try_lock();
    locked(file, lock)
}

/// Records that the host was unregistered on request.
pub(crate) fn mark_unregistered(state_dir: &Path) -> io::Result<()> {
    File::create(state_dir.join(UNREGISTERED))?.sync_all()
}

/// Whether that is recorded. If it cannot be read, it may be.
pub(crate) fn is_unregistered(state_dir: &Path) -> bool {
    state_dir.join(UNREGISTERED).try_exists().unwrap_or(true)
}

/// The host may be registered again.
pub(crate) fn unmark(state_dir: &Path) -> io::Result<()> {
    match fs::remove_file(state_dir.join(UNREGISTERED)) {
        Err(error) if error.kind() != io::ErrorKind::NotFound => Err(error),
        _ => Ok(()),
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn an_agent_is_seen_while_it_lives_and_none_begins_during_an_unregistration() {
        let folder = tempfile::tempdir().unwrap();
        let state = folder.path().join("state");
        let (one, two) = (hold(&state).unwrap(), hold(&state).unwrap());
        assert!(one.is_some() && two.is_some(), "two agents of a rolling update");
        assert!(alone(&state).unwrap().is_none());
        drop((one, two));
        let alone = alone(&state).unwrap();
        assert!(alone.is_some() && hold(&state).unwrap().is_none());
        drop(alone);
        assert!(hold(&state).unwrap().is_some());
    }
}
