//! What can go wrong, said so that the reader knows what to do next.

use std::{fmt::Display, io, path::Path};

/// The result of everything here.
pub type Result<T, E = Error> = std::result::Result<T, E>;

/// Why the testbed could not do what was asked.
#[derive(Debug, thiserror::Error)]
pub enum Error {
    /// Something that the machine lacks: a program, a package, a right, a reachable Go proxy. Says how to get it.
    #[error("{0}")]
    Missing(String),
    /// A call to the operating system failed.
    #[error("cannot {doing}: {source}")]
    Io {
        /// What was being done, as it reads after "cannot".
        doing: String,
        /// Why it failed.
        source: io::Error,
    },
    /// A program failed, died early or did not become ready. Quotes the end of its log.
    #[error("{name} {what}. The end of its log:\n{tail}")]
    Program {
        /// Which one.
        name: String,
        /// What happened to it.
        what: String,
        /// The last lines that it wrote.
        tail: String,
    },
    /// The API server refused a request, or could not be asked.
    #[error("cannot {doing}: {source}")]
    Kubernetes {
        /// What was being done, as it reads after "cannot".
        doing: String,
        /// Why it failed.
        source: Box<kube::Error>,
    },
    /// A document is not what it has to be.
    #[error("{what}: {why}")]
    Invalid {
        /// Which document.
        what: String,
        /// What is wrong with it.
        why: String,
    },
    /// Something did not happen in time.
    #[error("gave up after {seconds} s waiting until {what}")]
    Timeout {
        /// What was awaited.
        what: String,
        /// For how long.
        seconds: u64,
    },
}

impl Error {
    pub(crate) fn invalid(what: impl Into<String>, why: impl Display) -> Self {
        Self::Invalid { what: what.into(), why: why.to_string() }
    }
}

/// Puts what was being done in front of an error.
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
