//! What `lxd-test` keeps on the node: the key pair for the other two programs, the address of LXD, and a journal of
//! what it created.
//!
//! All of it is in one directory per user, `/var/lib/capmaas-diag/<uid>` by default. The directory belongs to root, so
//! that no user can place a symlink where root writes; the key belongs to the user who ran sudo, mode 0600.

use std::{
    fs,
    io::{self, Write},
    os::unix::fs::{DirBuilderExt, PermissionsExt, lchown},
    path::{Path, PathBuf},
};

use anyhow::Context;
use lxd_client::{Fingerprint, Identity};
use lxd_initializer::{keys, observed::Lookup};
use serde::{Deserialize, Serialize, de::DeserializeOwned};

const ROOT: &str = "/var/lib/capmaas-diag";
const HOST: &str = "lxd-host.json";
const MADE: &str = "made.json";
/// Belongs to the user, who registers the node; nothing that root reads or writes is in it.
const INTENT: &str = "intent";
/// The name is `lxd-initializer`'s, whose code generates and reads the pair.
pub(crate) const KEY: &str = "client.pem";

/// The directory of one user.
#[derive(Debug, Clone)]
pub(crate) struct Kept {
    dir: PathBuf,
}

/// How to reach and recognize LXD: no secret.
#[derive(Debug, Clone, PartialEq, Eq, Serialize, Deserialize)]
pub(crate) struct LxdHost {
    /// The name of this machine.
    pub(crate) node: String,
    /// Where LXD listens.
    pub(crate) address: std::net::SocketAddr,
    /// The fingerprint of LXD's own certificate, read over its socket.
    pub(crate) fingerprint: Fingerprint,
    /// The project for MAAS.
    pub(crate) project: String,
}

/// What `lxd-test` created in LXD, written before it was created.
#[derive(Debug, Clone, Default, PartialEq, Eq, Serialize, Deserialize)]
pub(crate) struct Made {
    #[serde(default)]
    pub(crate) storage_pool: Option<String>,
    #[serde(default)]
    pub(crate) project: Option<String>,
    #[serde(default)]
    pub(crate) listener: Option<String>,
    #[serde(default)]
    pub(crate) certificate: Option<Fingerprint>,
}

/// The user for whom a program runs: the one who ran sudo, otherwise the current one.
pub(crate) fn user() -> u32 {
    let own = rustix::process::geteuid().as_raw();
    let sudo = std::env::var("SUDO_UID").ok().and_then(|uid| uid.parse().ok());
    // Trusted only for root: everybody can set a variable.
    if own == 0 { sudo.unwrap_or(own) } else { own }
}

impl Kept {
    /// The given directory, otherwise that of the user.
    pub(crate) fn new(given: Option<&Path>) -> Self {
        Self { dir: given.map_or_else(|| Path::new(ROOT).join(user().to_string()), Path::to_path_buf) }
    }

    pub(crate) fn dir(&self) -> &Path {
        &self.dir
    }

    pub(crate) fn key_file(&self) -> PathBuf {
        self.dir.join(KEY)
    }

    /// Where the intent to register this node is stored.
    pub(crate) fn intent_dir(&self) -> PathBuf {
        self.dir.join(INTENT)
    }

    pub(crate) fn identity(&self) -> Lookup<Identity> {
        keys::load(&self.dir)
    }

    /// Generates the key pair if there is none, and gives it to the user.
    pub(crate) fn make_key(&self, node: &str) -> anyhow::Result<()> {
        self.make_dir()?;
        keys::make(&self.dir, node).with_context(|| format!("cannot create a key pair in {}", self.dir.display()))?;
        let intents = self.intent_dir();
        match fs::DirBuilder::new().mode(0o700).create(&intents) {
            Err(error) if error.kind() != io::ErrorKind::AlreadyExists => {
                return Err(error).with_context(|| format!("cannot create {}", intents.display()));
            }
            _ => {}
        }
        let (uid, gid) = (user(), std::env::var("SUDO_GID").ok().and_then(|gid| gid.parse().ok()));
        if rustix::process::geteuid().is_root() && uid != 0 {
            for path in [self.key_file(), intents] {
                lchown(&path, Some(uid), gid)
                    .with_context(|| format!("cannot change the owner of {} to user {uid}", path.display()))?;
            }
        }
        Ok(())
    }

    fn make_dir(&self) -> anyhow::Result<()> {
        let made = fs::DirBuilder::new().recursive(true).mode(0o755).create(&self.dir);
        made.with_context(|| format!("cannot create {}", self.dir.display()))?;
        // A tight umask must not keep the user from their own key.
        let ours = [Path::new(ROOT), &self.dir].into_iter().filter(|dir| self.dir.starts_with(dir));
        for dir in ours {
            fs::set_permissions(dir, fs::Permissions::from_mode(0o755))
                .with_context(|| format!("cannot make {} accessible to its user", dir.display()))?;
        }
        Ok(())
    }

    pub(crate) fn host(&self) -> anyhow::Result<Option<LxdHost>> {
        self.read(HOST)
    }

    pub(crate) fn keep_host(&self, host: &LxdHost) -> anyhow::Result<()> {
        self.write(HOST, host, 0o644)
    }

    pub(crate) fn made(&self) -> anyhow::Result<Made> {
        self.read(MADE).map(Option::unwrap_or_default)
    }

    pub(crate) fn keep_made(&self, made: &Made) -> anyhow::Result<()> {
        self.write(MADE, made, 0o600)
    }

    pub(crate) fn remove(&self) -> anyhow::Result<()> {
        let intents = self.intent_dir();
        match fs::remove_dir_all(&intents) {
            Err(error) if error.kind() != io::ErrorKind::NotFound => {
                return Err(error).with_context(|| intents.display().to_string());
            }
            _ => {}
        }
        for name in [KEY, HOST, MADE] {
            let path = self.dir.join(name);
            match fs::remove_file(&path) {
                Err(error) if error.kind() != io::ErrorKind::NotFound => {
                    return Err(error).with_context(|| path.display().to_string());
                }
                _ => {}
            }
        }
        match fs::remove_dir(&self.dir) {
            Err(error) if !matches!(error.kind(), io::ErrorKind::NotFound | io::ErrorKind::DirectoryNotEmpty) => {
                Err(error).with_context(|| self.dir.display().to_string())
            }
            _ => Ok(()),
        }
    }

    fn read<T: DeserializeOwned>(&self, name: &str) -> anyhow::Result<Option<T>> {
        let path = self.dir.join(name);
        let text = match fs::read(&path) {
            Ok(text) => text,
            Err(error) if error.kind() == io::ErrorKind::NotFound => return Ok(None),
            Err(error) => return Err(error).with_context(|| path.display().to_string()),
        };
        let value =
            serde_json::from_slice(&text).with_context(|| format!("{} is not as lxd-test wrote it", path.display()));
        value.map(Some)
    }

    /// Writes atomically.
    fn write(&self, name: &str, value: &impl Serialize, mode: u32) -> anyhow::Result<()> {
        self.make_dir()?;
        let path = self.dir.join(name);
        let write = || -> io::Result<()> {
            let mut file = tempfile::NamedTempFile::new_in(&self.dir)?;
            serde_json::to_writer_pretty(&mut file, value)?;
            file.flush()?;
            file.as_file().set_permissions(fs::Permissions::from_mode(mode))?;
            file.as_file().sync_all()?;
            file.persist(&path).map_err(|error| error.error)?;
            fs::File::open(&self.dir)?.sync_all()
        };
        write().with_context(|| format!("{} cannot be written", path.display()))
    }
}

#[cfg(test)]
mod tests {
    use std::os::unix::fs::MetadataExt;

    use super::*;

    #[test]
    fn the_key_is_for_its_owner_alone_in_a_directory_that_all_can_enter() {
        let folder = tempfile::tempdir().unwrap();
        let kept = Kept::new(Some(&folder.path().join("u")));
        kept.make_key("n1").unwrap();
        let first = kept.identity().found().unwrap().fingerprint().unwrap();
        kept.make_key("n1").unwrap();
        assert_eq!(kept.identity().found().unwrap().fingerprint().unwrap(), first, "the first one stays");
        assert_eq!(fs::metadata(kept.key_file()).unwrap().mode() & 0o777, 0o600);
        assert_eq!(fs::metadata(kept.dir()).unwrap().mode() & 0o777, 0o755);
        assert_eq!(fs::metadata(kept.intent_dir()).unwrap().mode() & 0o777, 0o700);
        kept.remove().unwrap();
        assert!(!kept.dir().exists());
    }

    #[test]
    fn what_was_made_is_remembered_and_forgotten_as_a_whole() {
        let folder = tempfile::tempdir().unwrap();
        let kept = Kept::new(Some(&folder.path().join("u")));
        assert_eq!(kept.made().unwrap(), Made::default());
        let made = Made { project: Some("maas".into()), ..Made::default() };
        kept.keep_made(&made).unwrap();
        assert_eq!(kept.made().unwrap(), made);
        kept.remove().unwrap();
        assert!(!kept.dir().exists());
        kept.remove().unwrap();
    }

    #[test]
    fn a_file_that_cannot_be_read_is_no_empty_one() {
        let folder = tempfile::tempdir().unwrap();
        let kept = Kept::new(Some(folder.path()));
        fs::write(folder.path().join(MADE), "{").unwrap();
        assert!(kept.made().is_err());
    }
}
