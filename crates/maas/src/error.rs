//! Errors, classified by what the caller can do about them.

use std::collections::BTreeMap;
use std::error::Error as StdError;
use std::fmt;
use std::time::Duration;

use crate::transport::BoxError;

/// The result of a call.
pub type Result<T, E = Error> = std::result::Result<T, E>;

/// A failed call.
///
/// Messages of MAAS are kept (at most 1 KiB, without any secret of the request), except those of a 401, in which MAAS
/// prints the secret of the key.
#[derive(Debug)]
pub struct Error {
    details: Box<Details>,
}

#[derive(Debug)]
struct Details {
    kind: ErrorKind,
    operation: &'static str,
    effect: Effect,
    status: Option<u16>,
    message: String,
    fields: BTreeMap<String, Vec<String>>,
    retry_after: Option<Duration>,
    timed_out: bool,
    source: Option<BoxError>,
}

/// The kind of failure, in terms of what the caller can do.
#[derive(Debug, Clone, Copy, PartialEq, Eq, Hash, PartialOrd, Ord)]
#[non_exhaustive]
pub enum ErrorKind {
    /// MAAS reports that the object of the request does not exist. The only kind that means absent.
    NotFound,
    /// No machine matches the allocation, or the named one is taken: MAAS answers the same in both cases.
    NoMatch,
    /// The object is in a state that does not allow this: read it again before acting.
    WrongState,
    /// MAAS transactions collided and nothing was stored: the same request may be sent again.
    Conflict,
    /// The requested IP address is in use: choose another.
    AddressInUse,
    /// Something of that name exists: look it up.
    AlreadyExists,
    /// Something else must be removed first; the message names it.
    InUse,
    /// The request refers to something that does not exist in MAAS (other than its own object).
    UnknownReference,
    /// The request itself is invalid; sending it again changes nothing. [`Error::fields`] has the details.
    Invalid,
    /// This version of MAAS does not support that.
    Unsupported,
    /// The image is not yet where it is needed (still downloading, or no rack is connected): try again later.
    ImageUnavailable,
    /// The VM host lacks capacity: choose another host or a smaller machine.
    NoCapacity,
    /// MAAS cannot work with the VM host: refresh it, or check its LXD.
    HostTrouble,
    /// Too many requests: wait for [`Error::retry_after`].
    Throttled,
    /// The key is not accepted (401), or the user may not do this (403).
    Denied,
    /// MAAS could not be reached, or did not answer in time.
    Unreachable,
    /// MAAS is not working properly (restarting, without its database or its rack): try again later.
    ServerTrouble,
    /// MAAS has removed this part of its API.
    Gone,
    /// Something that is not the MAAS API answers there: check the endpoint.
    WrongEndpoint,
    /// An answer that this client cannot read; nothing may be concluded from it.
    NotUnderstood,
}

/// Whether a failed request may still have had its effect.
#[derive(Debug, Clone, Copy, PartialEq, Eq, Hash)]
pub enum Effect {
    /// It was not sent, or was refused: nothing has changed.
    None,
    /// It may have happened, may still happen, or may have happened in part. Check before sending it again.
    Unknown,
}

impl ErrorKind {
    /// A fixed identifier, suitable as a metric label.
    pub fn as_str(self) -> &'static str {
        match self {
            Self::NotFound => "not_found",
            Self::NoMatch => "no_match",
            Self::WrongState => "wrong_state",
            Self::Conflict => "conflict",
            Self::AddressInUse => "address_in_use",
            Self::AlreadyExists => "already_exists",
            Self::InUse => "in_use",
            Self::UnknownReference => "unknown_reference",
            Self::Invalid => "invalid",
            Self::Unsupported => "unsupported",
            Self::ImageUnavailable => "image_unavailable",
            Self::NoCapacity => "no_capacity",
            Self::HostTrouble => "host_trouble",
            Self::Throttled => "throttled",
            Self::Denied => "denied",
            Self::Unreachable => "unreachable",
            Self::ServerTrouble => "server_trouble",
            Self::Gone => "gone",
            Self::WrongEndpoint => "wrong_endpoint",
            Self::NotUnderstood => "not_understood",
        }
    }

    /// What is wrong, for users.
    fn summary(self) -> &'static str {
        match self {
            Self::NotFound => "it does not exist in MAAS",
            Self::NoMatch => "no machine fits, or the machine is taken",
            Self::WrongState => "its state does not allow this",
            Self::Conflict => "it collided with another request in MAAS",
            Self::AddressInUse => "the IP address is in use",
            Self::AlreadyExists => "it exists already",
            Self::InUse => "something that depends on it must be removed first",
            Self::UnknownReference => "it refers to something that MAAS does not have",
            Self::Invalid => "MAAS cannot accept the request",
            Self::Unsupported => "this version of MAAS cannot do that",
            Self::ImageUnavailable => "the image is not available yet",
            Self::NoCapacity => "the VM host has no room for it",
            Self::HostTrouble => "MAAS cannot work with the VM host",
            Self::Throttled => "MAAS was asked too often",
            Self::Denied => "MAAS denied it",
            Self::Unreachable => "MAAS cannot be reached",
            Self::ServerTrouble => "MAAS is in trouble",
            Self::Gone => "MAAS no longer offers this",
            Self::WrongEndpoint => "the MAAS API does not answer at this endpoint",
            Self::NotUnderstood => "the answer cannot be understood",
        }
    }

    /// What to do, for users.
    fn advice(self) -> &'static str {
        match self {
            Self::NotFound => "look whether it was deleted",
            Self::NoMatch => "relax the constraints, add machines, or read the named machine",
            Self::WrongState => "read it again before acting",
            Self::Conflict => "send the same request again",
            Self::AddressInUse => "choose another address",
            Self::AlreadyExists => "look it up, or choose another name",
            Self::InUse => "remove what the message names first",
            Self::UnknownReference | Self::Invalid => "correct the request",
            Self::Unsupported => "leave the option away, or upgrade MAAS",
            Self::ImageUnavailable => "wait until MAAS has downloaded it and a rack controller is connected",
            Self::NoCapacity => "choose another host or a smaller machine",
            Self::HostTrouble => "refresh the VM host, and look at its LXD and at its trust of MAAS's certificate",
            Self::Throttled | Self::ServerTrouble => "try again later",
            Self::Denied => "check the rights of the key's user, and whether the machine is locked",
            Self::Unreachable => "check the endpoint, the network and its proxies, and that MAAS runs",
            Self::Gone => "use a MAAS that has it",
            Self::WrongEndpoint => "correct the endpoint, for example http://maas.example:5240/MAAS",
            Self::NotUnderstood => "look for a proxy in between, and report the answer if it came from MAAS",
        }
    }
}

impl fmt::Display for ErrorKind {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        f.write_str(self.as_str())
    }
}

impl Error {
    pub(crate) fn new(kind: ErrorKind, operation: &'static str, effect: Effect, message: impl Into<String>) -> Self {
        Self {
            details: Box::new(Details {
                kind,
                operation,
                effect,
                status: None,
                message: message.into(),
                fields: BTreeMap::new(),
                retry_after: None,
                timed_out: false,
                source: None,
            }),
        }
    }

    /// A request that is refused before it is sent.
    pub(crate) fn refused(operation: &'static str, message: impl Into<String>) -> Self {
        Self::new(ErrorKind::Invalid, operation, Effect::None, message)
    }

    /// Something that this version of MAAS does not support.
    pub(crate) fn unsupported(operation: &'static str, message: impl Into<String>) -> Self {
        Self::new(ErrorKind::Unsupported, operation, Effect::None, message)
    }

    pub(crate) fn with_status(mut self, status: u16) -> Self {
        self.details.status = Some(status);
        self
    }

    pub(crate) fn with_fields(mut self, fields: BTreeMap<String, Vec<String>>) -> Self {
        self.details.fields = fields;
        self
    }

    pub(crate) fn with_retry_after(mut self, retry_after: Option<Duration>) -> Self {
        self.details.retry_after = retry_after;
        self
    }

    pub(crate) fn with_source(mut self, source: impl Into<BoxError>) -> Self {
        self.details.source = Some(source.into());
        self
    }

    pub(crate) fn after_deadline(mut self) -> Self {
        self.details.timed_out = true;
        self
    }

    /// The kind of failure.
    pub fn kind(&self) -> ErrorKind {
        self.details.kind
    }

    /// The call that failed, for example `machines.deploy`.
    pub fn operation(&self) -> &'static str {
        self.details.operation
    }

    /// Whether the request may still have had its effect.
    pub fn effect(&self) -> Effect {
        self.details.effect
    }

    /// The HTTP status, if MAAS answered.
    pub fn status(&self) -> Option<u16> {
        self.details.status
    }

    /// MAAS's message, or what happened.
    pub fn message(&self) -> &str {
        &self.details.message
    }

    /// MAAS's messages about each field of the request. The key `__all__` represents the request as a whole.
    pub fn fields(&self) -> &BTreeMap<String, Vec<String>> {
        &self.details.fields
    }

    /// How long MAAS asks to wait.
    pub fn retry_after(&self) -> Option<Duration> {
        self.details.retry_after
    }

    /// Whether the deadline passed.
    pub fn timed_out(&self) -> bool {
        self.details.timed_out
    }

    /// Whether MAAS reported that the object itself does not exist.
    pub fn is_not_found(&self) -> bool {
        self.kind() == ErrorKind::NotFound
    }

    /// Whether the API key itself is not accepted (and not just one request).
    pub fn is_unauthenticated(&self) -> bool {
        self.kind() == ErrorKind::Denied && self.status() != Some(403)
    }

    /// The same error without the server's messages, for users who may not read them.
    #[must_use]
    pub fn without_words(mut self) -> Self {
        self.details.message.clear();
        self.details.fields.clear();
        self.details.source = None;
        self
    }

    /// What to do, for users.
    pub fn advice(&self) -> &'static str {
        if self.is_unauthenticated() { "check the API key" } else { self.kind().advice() }
    }

    /// Whether waiting, and nothing else, can make the same request succeed.
    pub fn is_transient(&self) -> bool {
        matches!(
            self.kind(),
            ErrorKind::Conflict
                | ErrorKind::Throttled
                | ErrorKind::Unreachable
                | ErrorKind::ServerTrouble
                | ErrorKind::ImageUnavailable
        )
    }
}

impl fmt::Display for Error {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        let details = &*self.details;
        write!(f, "{}: {}", details.operation, details.kind.summary())?;
        if let Some(status) = details.status {
            write!(f, " (HTTP {status})")?;
        }
        if !details.message.is_empty() {
            write!(f, ": {}", details.message.trim_end_matches('.'))?;
        }
        write!(f, "; {}", self.advice())
    }
}

impl StdError for Error {
    fn source(&self) -> Option<&(dyn StdError + 'static)> {
        self.details.source.as_deref().map(|source| source as &(dyn StdError + 'static))
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn an_error_says_what_where_and_what_to_do() {
        let error = Error::new(
            ErrorKind::WrongState,
            "machines.deploy",
            Effect::None,
            "Can't deploy a machine that is in the 'New' state",
        )
        .with_status(409);
        assert_eq!(
            error.to_string(),
            "machines.deploy: its state does not allow this (HTTP 409): Can't deploy a machine that is in the 'New' \
             state; read it again before acting"
        );
    }

    #[test]
    fn an_error_is_small_enough_to_be_returned_everywhere() {
        assert_eq!(size_of::<Error>(), size_of::<usize>());
    }
}
