//! Errors, worded so that the reader knows what to do next.

use std::{fmt::Display, io, path::Path};

pub type Result<T, E = Error> = std::result::Result<T, E>;

/// Why the testbed could not do what was requested.
#[derive(Debug, thiserror::Error)]
pub enum Error {
    /// Something that the machine lacks: a program, a package, a permission, a reachable Go proxy. The text says how to
    /// get it.
    #[error("{0}")]
    Missing(String),
    /// A system call failed.
    #[error("cannot {doing}: {source}")]
    Io {
        /// What was being done, as it reads after "cannot".
        doing: String,
        source: io::Error,
    },
    /// A program failed, exited early or did not become ready. Includes the end of its log.
    #[error("{name} {what}. The end of its log:\n{tail}")]
    Program {
        /// Its name.
        name: String,
        /// What happened to it.
        what: String,
        /// The last lines of its log.
        tail: String,
    },
    /// The API server refused a request or could not be reached.
    #[error("cannot {doing}: {source}")]
    Kubernetes {
        /// What was being done, as it reads after "cannot".
        doing: String,
        source: Box<kube::Error>,
    },
    /// A document is not valid.
    #[error("{what}: {why}")]
    Invalid {
        /// The document.
        what: String,
        why: String,
    },
    #[error("gave up after {seconds} s waiting until {what}")]
    Timeout {
        /// What was awaited.
        what: String,
        seconds: u64,
    },
}

impl Error {
    pub(crate) fn invalid(what: impl Into<String>, why: impl Display) -> Self {
        Self::Invalid { what: what.into(), why: why.to_string() }
    }
}

/// Adds what was being done to an error.
pub(crate) trait Doing<T> {
    /// `doing` reads after "cannot".
    fn doing(self, doing: impl FnOnce() -> String) -> Result<T>;
}

impl<T> Doing<T> for io::Result<T> {
    fn doing(self, doing: impl FnOnce() -> String) -> Result<T> {
        self.map_err(|source| Error::Io { doing: doing(), source })
    }
}

impl<T> Doing<T> for kube::Result<T> {
    fn doing(self, doing: impl FnOnce() -> String) -> Result<T> {
        self.map_err(|source| Error::Kubernetes { doing: doing(), source: Box::new(source) })
    }
}

pub(crate) fn write_file(path: &Path, content: impl AsRef<[u8]>) -> Result<()> {
    std::fs::write(path, content).doing(|| format!("write {}", path.display()))
}

pub(crate) fn read_file(path: &Path) -> Result<String> {
    std::fs::read_to_string(path).doing(|| format!("read {}", path.display()))
}

pub(crate) fn create_dir(path: &Path) -> Result<()> {
    std::fs::create_dir_all(path).doing(|| format!("create the folder {}", path.display()))
}
