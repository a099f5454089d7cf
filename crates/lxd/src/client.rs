//! The client: one request, one answer, one deadline.

use std::{path::Path, time::Duration};

use bytes::Bytes;
use http::{Method, Request, header};
use serde::{Serialize, de::DeserializeOwned};
use serde_json::Value;
use tokio::time::Instant;
use tower::ServiceExt;
use url::Url;

use crate::{
    envelope::{self, Answer},
    error::{self, Error, ErrorKind},
    fingerprint::Fingerprint,
    operation::{Operation, OperationStatus},
    tls::{self, Identity},
    transport::{self, Transport, TransportError},
};

/// Timeouts.
#[derive(Debug, Clone, Copy)]
pub struct Deadlines {
    /// For reads. A socket that systemd holds open hangs until the daemon is up.
    pub read: Duration,
    /// For a mutation including its background operation. Formatting a large pool takes a while.
    pub write: Duration,
}

impl Default for Deadlines {
    fn default() -> Self {
        Self { read: Duration::from_secs(30), write: Duration::from_secs(180) }
    }
}

/// A completed mutation, with its operation if LXD ran it in the background.
pub type Mutated = Result<Option<Operation>, Error>;

/// A client of one LXD daemon. Cloning is cheap.
#[derive(Clone)]
pub struct Client {
    transport: Transport,
    base: String,
    deadlines: Deadlines,
}

impl std::fmt::Debug for Client {
    fn fmt(&self, f: &mut std::fmt::Formatter<'_>) -> std::fmt::Result {
        f.debug_struct("Client").field("base", &self.base).field("deadlines", &self.deadlines).finish_non_exhaustive()
    }
}

impl Client {
    /// A client of the local daemon on a unix socket. Does not connect yet.
    pub fn unix(socket: impl AsRef<Path>) -> Result<Self, Error> {
        Ok(Self::with_transport(transport::unix(socket.as_ref())?))
    }

    /// A client of a daemon that listens on `address` (`https://host:port`), whose certificate must have the
    /// fingerprint `server`. Without an identity LXD only answers what untrusted clients may read.
    pub fn tls(address: &str, server: Fingerprint, identity: Option<&Identity>) -> Result<Self, Error> {
        let url = Url::parse(address).ok().filter(|url| url.scheme() == "https" && url.has_host());
        let Some(url) = url else {
            return Err(ErrorKind::BadInput(format!("{address:?} is no address like https://192.0.2.1:8443")).into());
        };
        let mut client = Self::with_transport(transport::over_tls(tls::pinned(server, identity)?)?);
        client.base = url.origin().ascii_serialization();
        Ok(client)
    }

    /// A client with a transport provided by the caller: a test double, a counter, a tunnel.
    pub fn with_transport(transport: Transport) -> Self {
        Self { transport, base: "http://lxd".into(), deadlines: Deadlines::default() }
    }

    /// The same client with its transport wrapped by the caller, for instance to count requests.
    #[must_use]
    pub fn map_transport(mut self, wrap: impl FnOnce(Transport) -> Transport) -> Self {
        self.transport = wrap(self.transport);
        self
    }

    /// The same client with other deadlines.
    #[must_use]
    pub fn with_deadlines(mut self, deadlines: Deadlines) -> Self {
        self.deadlines = deadlines;
        self
    }

    /// Reads any path of the API and returns the `metadata` of the answer.
    pub async fn get<T: DeserializeOwned>(&self, path: &str) -> Result<T, Error> {
        let until = Instant::now() + self.deadlines.read;
        let read = async {
            match self.send(&Method::GET, path, Vec::new(), until).await? {
                Answer::Sync(metadata) => T::deserialize(metadata).map_err(|cause| {
                    Error::from(ErrorKind::NotUnderstood("its content is of another shape".into())).with_source(cause)
                }),
                Answer::Async { .. } => Err(ErrorKind::NotUnderstood("a read became an operation".into()).into()),
            }
        };
        read.await.map_err(|error| error.in_request(&Method::GET, path))
    }

    /// Reads one object: `None` if and only if LXD answered 404 for it.
    pub async fn find<T: DeserializeOwned>(&self, path: &str) -> Result<Option<T>, Error> {
        match self.get(path).await {
            Ok(value) => Ok(Some(value)),
            Err(error) if matches!(error.kind(), ErrorKind::NotFound(_)) => Ok(None),
            Err(error) => Err(error),
        }
    }

    /// Executes a mutation, whether LXD does it at once or in the background, and waits for its actual outcome.
    ///
    /// Does not wait for an operation of class `token`, which stays open until the token is used.
    pub async fn mutate(&self, method: Method, path: &str, body: Option<&impl Serialize>) -> Mutated {
        let until = Instant::now() + self.deadlines.write;
        let body = body.map(serde_json::to_vec).transpose().map_err(|error| {
            Error::from(ErrorKind::BadInput("the body cannot be written".into())).with_source(error)
        })?;
        let answer = self.send(&method, path, body.unwrap_or_default(), until).await;
        match answer.map_err(|error| error.in_request(&method, path))? {
            Answer::Sync(_) => Ok(None),
            Answer::Async { operation, .. } if operation.class == "token" => Ok(Some(operation)),
            Answer::Async { path: operation, .. } => {
                self.finish(&operation, until).await.map(Some).map_err(|error| error.in_request(&method, path))
            }
        }
    }

    /// Waits for an operation. If the outcome cannot be determined, that is the error; nothing is guessed.
    async fn finish(&self, path: &str, until: Instant) -> Result<Operation, Error> {
        /// Short enough to notice a proxy or a dying daemon, long enough to be cheap.
        const ONE_WAIT: Duration = Duration::from_secs(20);
        const SLACK: Duration = Duration::from_secs(10);
        let path = path.split('?').next().unwrap_or(path);
        let id = error::tidy(path.rsplit('/').next().unwrap_or_default());
        loop {
            let left = until.saturating_duration_since(Instant::now());
            let seconds = left.min(ONE_WAIT).as_secs();
            let wait = format!("{path}/wait?timeout={seconds}");
            let answer = self.send(&Method::GET, &wait, Vec::new(), Instant::now() + left.min(ONE_WAIT) + SLACK).await;
            let operation: Operation = match answer {
                Ok(Answer::Sync(metadata)) => read_operation(metadata)?,
                Ok(Answer::Async { .. }) => {
                    return Err(ErrorKind::NotUnderstood("waiting for an operation became an operation".into()).into());
                }
                // Not found: it ended more than 5 s ago, or the daemon restarted and lost it. Unreachable: the daemon
                // is restarting.
                Err(error) => return Err(Error::from(ErrorKind::OperationLost(id)).with_source(error)),
            };
            match operation.status() {
                OperationStatus::Succeeded => return Ok(operation),
                OperationStatus::Failed => return Err(ErrorKind::OperationFailed(error::tidy(&operation.err)).into()),
                OperationStatus::Cancelled => {
                    return Err(ErrorKind::OperationCancelled(error::tidy(&operation.err)).into());
                }
                OperationStatus::Running if Instant::now() >= until || left.as_secs() == 0 => {
                    return Err(ErrorKind::OperationStillRunning(id).into());
                }
                OperationStatus::Running => {}
                OperationStatus::Unknown(code) => {
                    return Err(
                        ErrorKind::NotUnderstood(format!("operation {id} has the unknown status {code}")).into()
                    );
                }
            }
        }
    }

    async fn send(&self, method: &Method, path: &str, body: Vec<u8>, until: Instant) -> Result<Answer, Error> {
        let mut request = Request::builder().method(method).uri(format!("{}{path}", self.base));
        if !body.is_empty() {
            request = request.header(header::CONTENT_TYPE, "application/json");
        }
        let request = request.body(Bytes::from(body)).map_err(|error| {
            Error::from(ErrorKind::BadInput("this is no path of a request".into())).with_source(error)
        })?;
        match tokio::time::timeout_at(until, self.transport.clone().oneshot(request)).await {
            Ok(Ok(answer)) => envelope::open(&answer),
            Ok(Err(cause)) => {
                let kind = match cause.downcast_ref::<TransportError>() {
                    Some(TransportError::NotConnected(_)) => ErrorKind::NotConnected,
                    Some(&TransportError::WrongServer { expected, found }) => {
                        ErrorKind::WrongServer { expected, found }
                    }
                    Some(TransportError::Lost(text)) => ErrorKind::AnswerLost(error::tidy(text)),
                    None => ErrorKind::AnswerLost(error::tidy(&cause.to_string())),
                };
                Err(Error::from(kind).with_source(cause))
            }
            Err(_) => Err(ErrorKind::AnswerLost("the deadline passed".into()).into()),
        }
    }
}

fn read_operation(metadata: Value) -> Result<Operation, Error> {
    serde_json::from_value(metadata)
        .map_err(|error| Error::from(ErrorKind::NotUnderstood("this is no operation".into())).with_source(error))
}

/// Escapes a name as a path segment or query value.
pub(crate) fn segment(name: &str) -> String {
    let mut out = String::with_capacity(name.len());
    for byte in name.bytes() {
        match byte {
            b'a'..=b'z' | b'A'..=b'Z' | b'0'..=b'9' | b'-' | b'_' | b'~' => out.push(char::from(byte)),
            // One or two dots alone would be interpreted as a relative path.
            b'.' if !name.trim_matches('.').is_empty() => out.push('.'),
            _ => {
                let digits = [byte >> 4, byte & 15].map(|digit| char::from_digit(digit.into(), 16).unwrap_or('0'));
                out.push('%');
                out.extend(digits.map(|digit| digit.to_ascii_uppercase()));
            }
        }
    }
    out
}
