//! The intent to register this node, in a file next to its key pair (S2): when a registration was last sent. A lost answer leaves it
//! behind, and it outlives the process and the key pair: a registration with a key that was replaced may still land.

use std::{
    fs::{self, File, TryLockError},
    io::{self, Write},
    path::{Path, PathBuf},
};

use anyhow::{Context, bail};
use capmaas_core::{Lookup, registration};
use jiff::Timestamp;
use serde::{Deserialize, Serialize};

const FILE: &str = "registration";

#[derive(Serialize, Deserialize)]
struct Intent {
    sent: Timestamp,
}

fn path(state_dir: &Path) -> PathBuf {
    state_dir.join(FILE)
}

/// When a registration was last sent.
pub fn read(state_dir: &Path) -> Lookup<Timestamp> {
    let path = path(state_dir);
    let text = match fs::read(&path) {
        Ok(text) => text,
        Err(error) if error.kind() == io::ErrorKind::NotFound => return Lookup::Absent,
        Err(error) => return Lookup::Unknown(format!("{}: {error}", path.display())),
    };
    match serde_json::from_slice::<Intent>(&text) {
        Ok(intent) => Lookup::Found(intent.sent),
        Err(_) => Lookup::Unknown(format!(
            "{} is not as it was written; remove it once MAAS shows no new VM host for two minutes",
            path.display()
        )),
    }
}

/// Stores the intent, unless another process of this node has just done so.
pub fn store(state_dir: &Path, now: Timestamp) -> anyhow::Result<()> {
    let path = path(state_dir);
    let folder = File::open(state_dir).with_context(|| state_dir.display().to_string())?;
    // Held to the end, by the kernel: of two agents of a rolling update, one registers.
    match folder.try_lock() {
        Ok(()) => {}
        Err(TryLockError::WouldBlock) => bail!("another process of this node is about to register it"),
        Err(TryLockError::Error(error)) => return Err(error).with_context(|| state_dir.display().to_string()),
    }
    match read(state_dir) {
        Lookup::Found(sent) if registration::may_land(sent, now) => {
            bail!("another process of this node registered it a moment ago");
        }
        Lookup::Unknown(why) => bail!(why),
        Lookup::Found(_) | Lookup::Absent => {}
    }
    let write = || -> io::Result<()> {
        let mut file = tempfile::Builder::new().prefix(".registration-").tempfile_in(state_dir)?;
        serde_json::to_writer(&mut file, &Intent { sent: now })?;
        file.flush()?;
        file.as_file().sync_all()?;
        file.persist(&path).map_err(|error| error.error)?;
        folder.sync_all()
    };
    write().with_context(|| path.display().to_string())
}

/// Nothing is in flight any more.
pub fn forget(state_dir: &Path) -> io::Result<()> {
    match fs::remove_file(path(state_dir)) {
        Err(error) if error.kind() != io::ErrorKind::NotFound => Err(error),
        _ => Ok(()),
    }
}

#[cfg(test)]
mod tests {
    use std::os::unix::fs::MetadataExt;

    use jiff::SignedDuration;

    use super::*;

    fn now() -> Timestamp {
        "2026-11-15T12:00:00Z".parse().unwrap()
    }

    #[test]
    fn s02_an_intent_is_stored_for_its_owner_alone_found_again_and_forgotten() {
        let folder = tempfile::tempdir().unwrap();
        assert_eq!(read(folder.path()), Lookup::Absent);
        store(folder.path(), now()).unwrap();
        assert_eq!(read(folder.path()), Lookup::Found(now()));
        assert_eq!(fs::metadata(folder.path().join(FILE)).unwrap().mode() & 0o777, 0o600);
        assert_eq!(fs::read_dir(folder.path()).unwrap().count(), 1, "nothing is left beside it");
        forget(folder.path()).unwrap();
        forget(folder.path()).unwrap();
        assert_eq!(read(folder.path()), Lookup::Absent);
    }

    #[test]
    fn s02_of_two_agents_only_one_stores_its_intent_until_it_is_over() {
        let folder = tempfile::tempdir().unwrap();
        store(folder.path(), now()).unwrap();
        let soon = now() + SignedDuration::from_secs(149);
        assert!(store(folder.path(), soon).unwrap_err().to_string().contains("a moment ago"));
        let later = now() + SignedDuration::from_secs(151);
        store(folder.path(), later).unwrap();
        assert_eq!(read(folder.path()), Lookup::Found(later));
        let held = File::open(folder.path()).unwrap();
        held.lock().unwrap();
        let at_the_same_time = store(folder.path(), later).unwrap_err();
        assert!(at_the_same_time.to_string().contains("another process"), "{at_the_same_time}");
    }

    #[test]
    fn s01_an_intent_that_cannot_be_read_is_not_known_and_its_file_is_named() {
        let folder = tempfile::tempdir().unwrap();
        fs::write(folder.path().join(FILE), "{").unwrap();
        let Lookup::Unknown(why) = read(folder.path()) else { panic!() };
        assert!(why.contains(&folder.path().join(FILE).display().to_string()), "{why}");
        assert!(store(folder.path(), now()).is_err(), "and it is not replaced");
    }
}
