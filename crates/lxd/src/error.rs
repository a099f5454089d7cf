//! Errors, classified by what a caller can do about them.

use std::{error::Error as StdError, fmt};

use crate::fingerprint::Fingerprint;

/// A failed request.
///
/// LXD's message is kept (truncated, without control characters); request bodies and operation metadata, which may
/// contain secrets, are not.
#[derive(Debug)]
pub struct Error {
    request: Option<String>,
    kind: ErrorKind,
    source: Option<Box<dyn StdError + Send + Sync>>,
}

/// The kinds of failure that callers distinguish.
#[derive(Debug, Clone, PartialEq, Eq, thiserror::Error)]
#[non_exhaustive]
pub enum ErrorKind {
    /// No connection was established, so nothing was sent: the socket is missing or nothing listens there.
    #[error("LXD is not running there, or not reachable")]
    NotConnected,
    /// The server presented a certificate other than the pinned one; nothing was sent.
    #[error("the server's certificate is {found}, not the pinned {expected}")]
    WrongServer {
        /// The pinned fingerprint.
        expected: Fingerprint,
        /// What the server presented.
        found: Fingerprint,
    },
    /// The request may have been executed, but no answer arrived (connection lost, or deadline exceeded).
    #[error("the answer was lost: {0}")]
    AnswerLost(String),
    /// LXD is starting or shutting down.
    #[error("LXD is starting or stopping: {0}")]
    Busy(String),
    /// This client is not trusted, or not permitted to do this (403).
    #[error("LXD does not allow it: {0}")]
    Denied(String),
    /// The object of the request does not exist (404).
    #[error("LXD does not know it: {0}")]
    NotFound(String),
    /// A conflict (409), often with an existing object of that name.
    #[error("there is a conflict: {0}")]
    Conflict(String),
    /// The object has changed since it was read (412).
    #[error("it was changed meanwhile: {0}")]
    Changed(String),
    /// LXD refuses the request as it is (400).
    #[error("LXD refuses the request: {0}")]
    Invalid(String),
    /// This LXD does not support that (501).
    #[error("this LXD cannot do that: {0}")]
    Unsupported(String),
    /// LXD failed or rejected the request: it also answers most validation errors with 500.
    #[error("LXD answered {code}: {message}")]
    Failed {
        /// The HTTP status.
        code: u16,
        /// LXD's message.
        message: String,
    },
    /// The background operation failed.
    #[error("the operation failed: {0}")]
    OperationFailed(String),
    /// The background operation was cancelled.
    #[error("the operation was cancelled: {0}")]
    OperationCancelled(String),
    /// The background operation was still running at the deadline.
    #[error("operation {0} still runs at the deadline")]
    OperationStillRunning(String),
    /// LXD no longer knows the operation (it drops them after 5 s and on restart), so its outcome is unknown.
    #[error("LXD no longer knows operation {0}, so its outcome is unknown")]
    OperationLost(String),
    /// The answer is not a valid LXD answer.
    #[error("the answer is not one of LXD: {0}")]
    NotUnderstood(String),
    /// The caller's input cannot be sent.
    #[error("{0}")]
    BadInput(String),
}

/// What a caller can do about an [`Error`].
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub enum Advice {
    /// Nothing was executed: wait and try again.
    TryLater,
    /// It may have been executed: read the object again before anything else.
    ReadAgain,
    /// The same request will fail again: something has to change first.
    ChangeSomething,
}

impl Error {
    pub(crate) fn with_source(mut self, source: impl Into<Box<dyn StdError + Send + Sync>>) -> Self {
        self.source = Some(source.into());
        self
    }

    pub(crate) fn in_request(mut self, method: &http::Method, path: &str) -> Self {
        // The query only ever contains names and numbers, but the path alone identifies the request.
        let path = path.split('?').next().unwrap_or_default();
        self.request.get_or_insert_with(|| format!("{method} {path}"));
        self
    }

    /// The kind of failure.
    pub fn kind(&self) -> &ErrorKind {
        &self.kind
    }

    /// What a caller can do.
    pub fn advice(&self) -> Advice {
        match self.kind {
            ErrorKind::NotConnected => Advice::TryLater,
            ErrorKind::AnswerLost(_)
            | ErrorKind::Busy(_)
            | ErrorKind::Conflict(_)
            | ErrorKind::Changed(_)
            | ErrorKind::OperationStillRunning(_)
            | ErrorKind::OperationLost(_)
            | ErrorKind::OperationCancelled(_)
            | ErrorKind::NotUnderstood(_)
            // A failed create may mean "exists already", which only a read can tell (see the crate's documentation).
            | ErrorKind::Failed { .. }
            | ErrorKind::OperationFailed(_)
            | ErrorKind::Invalid(_) => Advice::ReadAgain,
            ErrorKind::WrongServer { .. }
            | ErrorKind::Denied(_)
            | ErrorKind::NotFound(_)
            | ErrorKind::Unsupported(_)
            | ErrorKind::BadInput(_) => Advice::ChangeSomething,
        }
    }
}

impl From<ErrorKind> for Error {
    fn from(kind: ErrorKind) -> Self {
        Self { request: None, kind, source: None }
    }
}

impl fmt::Display for Error {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        if let Some(request) = &self.request {
            write!(f, "{request}: ")?;
        }
        write!(f, "{}", self.kind)
    }
}

impl StdError for Error {
    fn source(&self) -> Option<&(dyn StdError + 'static)> {
        self.source.as_deref().map(|source| source as &(dyn StdError + 'static))
    }
}

/// Makes foreign text safe for a log line: one line, truncated.
pub(crate) fn tidy(text: &str) -> String {
    const LONGEST: usize = 600;
    let mut tidy: String = text.trim().chars().map(|c| if c.is_control() { ' ' } else { c }).take(LONGEST).collect();
    if text.trim().chars().count() > LONGEST {
        tidy.push('…');
    }
    if tidy.is_empty() { "(no text)".into() } else { tidy }
}

/// The kind for an error answer of LXD.
pub(crate) fn from_answer(code: u16, text: &str) -> ErrorKind {
    let message = tidy(text);
    match code {
        400 => ErrorKind::Invalid(message),
        401 | 403 => ErrorKind::Denied(message),
        404 => ErrorKind::NotFound(message),
        409 => ErrorKind::Conflict(message),
        412 => ErrorKind::Changed(message),
        501 => ErrorKind::Unsupported(message),
        503 => ErrorKind::Busy(message),
        // Observed for some 40 ms while the daemon shuts down; the only 500 that concerns the daemon and not the
        // request.
        500 if text.contains("database is closed") => ErrorKind::Busy(message),
        code => ErrorKind::Failed { code, message },
    }
}
