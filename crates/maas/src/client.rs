//! The client: identity, deadlines, concurrency slots, retries.

mod sending;

use std::collections::HashSet;
use std::fmt;
use std::sync::{Arc, Mutex, OnceLock, PoisonError};
use std::time::Duration;

use bytes::Bytes;
use http::{HeaderValue, Method, Request, Response, StatusCode, header};
use serde::de::DeserializeOwned;
use tokio::sync::OwnedSemaphorePermit;
use tokio::time::{Instant, timeout_at};
use tower::ServiceExt;

use crate::breaker::Breaker;
use crate::call::Call;
use crate::classify::error_of;
use crate::decode;
use crate::environment::{Environment, SystemEnvironment};
use crate::error::{Effect, Error, ErrorKind, Result};
use crate::limiter::{DEFAULT_CONCURRENCY, Limiter};
use crate::observer::{Observation, Observer, Unobserved};
use crate::redaction::Redaction;
use crate::retry::RetryPolicy;
use crate::transport::{Failure, NetworkSettings, Transport, TransportError, UNLIMITED, failure, over_network};
use crate::version::KnownVersion;
use crate::{ApiKey, ApiKeyError, Endpoint, EndpointError, oauth};

/// Measured reads take up to 28 s (a list of a thousand machines), more under load.
const READ_DEADLINE: Duration = Duration::from_secs(60);

/// An allocation may take 21 s when others allocate too, and MAAS itself tries for up to 90 s.
const WRITE_DEADLINE: Duration = Duration::from_secs(120);

/// A longer one only means that the caller wants none, and could not be added to a point in time.
const LONGEST_DEADLINE: Duration = Duration::from_secs(24 * 60 * 60);

/// A thousand machines are 16 MB.
const MAX_ANSWER: usize = 24 << 20;

/// A client of one MAAS server with one identity. Cheap to clone; clones share connections, limits and what is known
/// about the server.
#[derive(Clone)]
pub struct Client {
    inner: Arc<Inner>,
    /// A slot reserved for this client.
    place: Option<Arc<OwnedSemaphorePermit>>,
    /// Writes are not sent after this.
    send_by: Option<Instant>,
}

/// Decides whether a write may be sent, or returns why not.
type BeforeWrites = Arc<dyn Fn() -> Result<(), String> + Send + Sync>;

struct Inner {
    endpoint: Endpoint,
    key: ApiKey,
    transport: Transport,
    limiter: Limiter,
    retry: RetryPolicy,
    read_deadline: Duration,
    write_deadline: Duration,
    max_answer: usize,
    environment: Arc<dyn Environment>,
    observer: Arc<dyn Observer>,
    breaker: Option<Breaker>,
    before_writes: Option<BeforeWrites>,
    version: KnownVersion,
}

/// Why a client could not be built.
#[derive(Debug, thiserror::Error)]
#[non_exhaustive]
pub enum BuildError {
    /// The endpoint is invalid.
    #[error(transparent)]
    Endpoint(#[from] EndpointError),
    /// The API key is invalid.
    #[error(transparent)]
    ApiKey(#[from] ApiKeyError),
    /// The network transport cannot be set up.
    #[error(transparent)]
    Transport(#[from] TransportError),
}

/// Settings of a client. See [`Client::builder`].
#[must_use]
pub struct ClientBuilder {
    endpoint: Result<Endpoint, EndpointError>,
    key: Result<ApiKey, ApiKeyError>,
    transport: Option<Transport>,
    limiter: Option<Limiter>,
    concurrency: usize,
    certificate_authorities: Vec<Vec<u8>>,
    retry: RetryPolicy,
    read_deadline: Duration,
    write_deadline: Duration,
    max_answer: usize,
    environment: Arc<dyn Environment>,
    observer: Arc<dyn Observer>,
    breaker: Option<Breaker>,
    before_writes: Option<BeforeWrites>,
}

impl ClientBuilder {
    /// Trust these certificate authorities (PEM, one or more) in addition to those of the platform.
    pub fn certificate_authority(mut self, pem: impl Into<Vec<u8>>) -> Self {
        self.certificate_authorities.push(pem.into());
        self
    }

    /// Use this transport instead of the network. Such a client has slots of its own.
    pub fn transport(mut self, transport: Transport) -> Self {
        self.transport = Some(transport);
        self
    }

    /// The maximum number of requests in flight to the server (4). All clients of a server in this process share the
    /// number that the first of them set.
    pub fn concurrency(mut self, concurrency: usize) -> Self {
        self.concurrency = concurrency;
        self
    }

    /// Share slots only with the clients that were given the same limiter.
    pub fn limiter(mut self, limiter: Limiter) -> Self {
        self.limiter = Some(limiter);
        self
    }

    /// Fail at once while the server does not answer. Without a breaker, every request waits for its deadline.
    pub fn breaker(mut self, breaker: Breaker) -> Self {
        self.breaker = Some(breaker);
        self
    }

    /// Called right before every write is sent, after all waiting. If it returns `Err` with a reason, the write is not
    /// sent.
    pub fn before_writes(mut self, may_write: impl Fn() -> Result<(), String> + Send + Sync + 'static) -> Self {
        self.before_writes = Some(Arc::new(may_write));
        self
    }

    /// How long a read may take, including retries (60 s; a day at most). Waiting for a slot has the same limit,
    /// counted separately.
    pub fn read_deadline(mut self, deadline: Duration) -> Self {
        self.read_deadline = deadline.min(LONGEST_DEADLINE);
        self
    }

    /// How long a write may take from when it is sent (120 s; a day at most). After that its effect is unknown; MAAS
    /// continues to work on it. Before that, it waits at most 15 s for a slot; then it is not sent.
    pub fn write_deadline(mut self, deadline: Duration) -> Self {
        self.write_deadline = deadline.min(LONGEST_DEADLINE);
        self
    }

    /// How reads are retried.
    pub fn retry(mut self, retry: RetryPolicy) -> Self {
        self.retry = retry;
        self
    }

    /// The longest answer that is read, in bytes (24 MiB). All long answers that are being read in this process share
    /// 32 MiB, and what they become in memory 64 MiB.
    pub fn max_answer(mut self, bytes: usize) -> Self {
        self.max_answer = bytes;
        self
    }

    /// Reads and decodes answers of any length, for the program of a user who chose the server: a list of all machines
    /// of a large site is longer than what a shared manager can bear.
    pub fn unlimited_answers(self) -> Self {
        self.max_answer(UNLIMITED)
    }

    /// Take the time of day and random numbers from here.
    pub fn environment(mut self, environment: impl Environment) -> Self {
        self.environment = Arc::new(environment);
        self
    }

    /// Report every attempt to this observer.
    pub fn observer(mut self, observer: impl Observer) -> Self {
        self.observer = Arc::new(observer);
        self
    }

    /// Builds the client. Nothing is sent yet.
    pub fn build(self) -> Result<Client, BuildError> {
        let (endpoint, key) = (self.endpoint?, self.key?);
        let on_network = self.transport.is_none();
        let limiter = match self.limiter {
            Some(limiter) => limiter,
            None if on_network => Limiter::of_server(endpoint.origin(), self.concurrency),
            None => Limiter::new(self.concurrency),
        };
        let transport = match self.transport {
            Some(transport) => transport,
            None => over_network(&NetworkSettings {
                certificate_authorities: self.certificate_authorities,
                connections: self.concurrency,
                max_answer: self.max_answer,
                plain_http: endpoint.is_plain_http(),
            })?,
        };
        if on_network && endpoint.is_plain_http() {
            warn_once_about_plain_http(&endpoint);
        }
        Ok(Client {
            inner: Arc::new(Inner {
                endpoint,
                key,
                transport,
                limiter,
                retry: self.retry,
                read_deadline: self.read_deadline,
                write_deadline: self.write_deadline,
                max_answer: self.max_answer,
                environment: self.environment,
                observer: self.observer,
                breaker: self.breaker,
                before_writes: self.before_writes,
                version: KnownVersion::default(),
            }),
            place: None,
            send_by: None,
        })
    }
}

fn warn_once_about_plain_http(endpoint: &Endpoint) {
    static WARNED: OnceLock<Mutex<HashSet<String>>> = OnceLock::new();
    let mut warned = WARNED.get_or_init(Mutex::default).lock().unwrap_or_else(PoisonError::into_inner);
    if warned.insert(endpoint.origin().to_owned()) {
        tracing::warn!(
            %endpoint,
            "MAAS is spoken to over plain http: the API key and all user data can be read on the way; use https if \
             this MAAS offers it"
        );
    }
}

impl Client {
    /// Starts to build a client of the MAAS at `endpoint`, with the API key `consumer:token:secret`. Mistakes in either
    /// are reported by [`ClientBuilder::build`].
    pub fn builder(endpoint: &str, api_key: &str) -> ClientBuilder {
        ClientBuilder {
            endpoint: endpoint.parse(),
            key: api_key.parse(),
            transport: None,
            limiter: None,
            concurrency: DEFAULT_CONCURRENCY,
            certificate_authorities: Vec::new(),
            retry: RetryPolicy::default(),
            read_deadline: READ_DEADLINE,
            write_deadline: WRITE_DEADLINE,
            max_answer: MAX_ANSWER,
            environment: Arc::new(SystemEnvironment),
            observer: Arc::new(Unobserved),
            breaker: None,
            before_writes: None,
        }
    }

    /// The endpoint of this client's MAAS.
    pub fn endpoint(&self) -> &Endpoint {
        &self.inner.endpoint
    }

    /// How long a write may take. A write that was sent may still take effect some time after that.
    pub fn write_deadline(&self) -> Duration {
        self.inner.write_deadline
    }

    pub(crate) fn known_version(&self) -> &KnownVersion {
        &self.inner.version
    }

    /// Sends a call whose answer is JSON.
    pub(crate) async fn json<T: DeserializeOwned>(&self, call: Call) -> Result<T> {
        self.send(&call, decode::json).await
    }

    /// Sends a call whose answer is empty.
    pub(crate) async fn empty(&self, call: Call) -> Result<()> {
        self.send(&call, decode::nothing).await
    }

    async fn send<T>(&self, call: &Call, decode: impl Fn(&Call, &Response<Bytes>) -> Result<T>) -> Result<T> {
        let inner = &*self.inner;
        let mut redaction = Redaction::default();
        redaction.of_key(&inner.key);
        call.hide_in(&mut redaction);
        let read_only = call.method == Method::GET;
        let allowed = if read_only { inner.read_deadline } else { inner.write_deadline };
        let mut deadline = None;
        let mut attempt = 1;
        loop {
            let asked_at = Instant::now();
            let place = self.place(call, deadline, allowed).await?;
            let admitted = self.admit(call)?;
            if !read_only {
                self.check_before_write(call)?;
            }
            let sent_at = Instant::now();
            let until = *deadline.get_or_insert(sent_at + allowed);
            let outcome = self.exchange(call, until, allowed, &redaction).await;
            let (status, outcome) = match outcome {
                Ok(response) if is_wanted(&response) => {
                    let limited = inner.max_answer < UNLIMITED;
                    let room = if limited { decode::room(call, &response).await } else { Ok(None) };
                    (Some(response.status().as_u16()), room.and_then(|_held| decode(call, &response)))
                }
                Ok(response) => (Some(response.status().as_u16()), Err(error_of(call.asked(), &response, &redaction))),
                Err(error) => (None, Err(error)),
            };
            drop(place);
            if let Some(admitted) = admitted {
                admitted.ended(!matches!(&outcome, Err(error) if error.kind() == ErrorKind::Unreachable));
            }
            self.report(call, attempt, status, outcome.as_ref().err(), sent_at.elapsed(), sent_at - asked_at);
            let error = match outcome {
                Ok(value) => return Ok(value),
                Err(error) => error,
            };
            let wait = if read_only { inner.retry.wait(attempt, &error, inner.environment.random()) } else { None };
            match wait {
                Some(wait) if Instant::now().checked_add(wait).is_some_and(|then| then < until) => {
                    tokio::time::sleep(wait).await;
                }
                _ => return Err(error),
            }
            attempt += 1;
        }
    }

    /// One attempt, with its own nonce.
    async fn exchange(
        &self,
        call: &Call,
        until: Instant,
        allowed: Duration,
        redaction: &Redaction,
    ) -> Result<Response<Bytes>> {
        let inner = &*self.inner;
        let request = self.request(call)?;
        let effect = if call.method == Method::GET { Effect::None } else { Effect::Unknown };
        let error = match timeout_at(until, inner.transport.clone().oneshot(request)).await {
            Ok(Ok(response)) if response.body().len() > inner.max_answer => None,
            Ok(Ok(response)) => return Ok(response),
            Ok(Err(error)) => Some(error),
            Err(_) => {
                let message = format!("no answer within {} s", allowed.as_secs());
                return Err(Error::new(ErrorKind::Unreachable, call.operation, effect, message).after_deadline());
            }
        };
        let failure = error.as_ref().map_or(Failure::TooLong, failure);
        let text = error.as_deref().map(innermost).unwrap_or_default();
        let told = match failure {
            Failure::TooLong => {
                let long = || format!("the answer is longer than {} bytes", inner.max_answer);
                let message = if text.is_empty() { long() } else { text };
                Error::new(ErrorKind::NotUnderstood, call.operation, effect, message)
            }
            Failure::NotSent => Error::new(
                ErrorKind::Unreachable,
                call.operation,
                Effect::None,
                redaction.text(&format!("no connection to {}: {text}", inner.endpoint.origin()), 1024),
            ),
            Failure::Lost => Error::new(
                ErrorKind::Unreachable,
                call.operation,
                effect,
                redaction.text(&format!("the connection broke before the whole answer was there: {text}"), 1024),
            ),
        };
        Err(match error {
            Some(error) => told.with_source(error),
            None => told,
        })
    }

    fn request(&self, call: &Call) -> Result<Request<Bytes>> {
        let inner = &*self.inner;
        let nonce = format!("{:032x}", inner.environment.random());
        let authorization = oauth::authorization(&inner.key, &nonce, inner.environment.unix_seconds());
        let unfit = |error: http::Error| Error::refused(call.operation, format!("it is no HTTP request: {error}"));
        let mut authorization = HeaderValue::try_from(authorization).map_err(|error| unfit(error.into()))?;
        authorization.set_sensitive(true);
        let mut builder = Request::builder()
            .method(&call.method)
            .uri(inner.endpoint.resource(call.path(), &call.encoded_query()))
            .header(header::AUTHORIZATION, authorization);
        let body = if matches!(call.method, Method::POST | Method::PUT) {
            // Without a content type MAAS treats a body as empty.
            builder = builder.header(header::CONTENT_TYPE, "application/x-www-form-urlencoded");
            call.body()
        } else {
            Bytes::new()
        };
        builder.body(body).map_err(unfit)
    }

    fn report(
        &self,
        call: &Call,
        attempt: u32,
        status: Option<u16>,
        error: Option<&Error>,
        duration: Duration,
        queued: Duration,
    ) {
        let observation = Observation {
            operation: call.operation,
            method: match call.method {
                Method::GET => "GET",
                Method::POST => "POST",
                Method::PUT => "PUT",
                _ => "DELETE",
            },
            template: call.template,
            attempt,
            status,
            error: error.map(Error::kind),
            duration,
            queued,
        };
        tracing::debug!(
            operation = call.operation,
            path = call.path(),
            attempt,
            status,
            error = error.map(|error| error.kind().as_str()),
            ?duration,
            ?queued,
            "asked MAAS"
        );
        self.inner.observer.observe(&observation);
    }
}

/// MAAS succeeds with 200, with 201 after an upload, and with 204 for an empty answer.
fn is_wanted(response: &Response<Bytes>) -> bool {
    matches!(response.status(), StatusCode::OK | StatusCode::CREATED | StatusCode::NO_CONTENT)
}

/// The innermost cause is the most useful: "connection refused" rather than "error sending request".
fn innermost(error: &(dyn std::error::Error + Send + Sync + 'static)) -> String {
    let mut innermost: &dyn std::error::Error = error;
    while let Some(source) = innermost.source() {
        innermost = source;
    }
    innermost.to_string()
}

impl fmt::Debug for Client {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        f.debug_struct("Client").field("endpoint", &self.inner.endpoint.to_string()).finish_non_exhaustive()
    }
}

impl fmt::Debug for ClientBuilder {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        f.debug_struct("ClientBuilder").field("endpoint", &self.endpoint).finish_non_exhaustive()
    }
}
