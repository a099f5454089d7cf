//! How complete HTTP messages reach LXD. A transport is a boxed tower service, so that a test can count, delay, lose or
//! fake answers with the same client that production uses.

use std::{error::Error as StdError, io, path::Path, sync::Arc, time::Duration};

use bytes::Bytes;
use http::{Request, Response};
use http_body_util::{BodyExt, Limited};
use tower::util::BoxCloneSyncService;

use crate::{error::Error, error::ErrorKind, fingerprint::Fingerprint, tls};

/// Any error of a transport.
pub type BoxError = Box<dyn StdError + Send + Sync>;

/// A service that sends one complete request to LXD and returns the complete answer.
pub type Transport = BoxCloneSyncService<Request<Bytes>, Response<Bytes>, BoxError>;

/// What a transport knows about a failure. Any other error of a transport counts as [`TransportError::Lost`].
#[derive(Debug, thiserror::Error)]
pub enum TransportError {
    /// No connection was established; nothing was sent.
    #[error("no connection: {0}")]
    NotConnected(String),
    /// The server's certificate is not the pinned one; nothing was sent.
    #[error("the server's certificate is not the pinned one")]
    WrongServer {
        /// The pinned fingerprint.
        expected: Fingerprint,
        /// What the server presented.
        found: Fingerprint,
    },
    /// Sent, or possibly sent, but without an answer.
    #[error("connection lost: {0}")]
    Lost(String),
}

/// A socket held by systemd accepts and then hangs until the daemon is up; the request's own deadline covers that.
const CONNECT: Duration = Duration::from_secs(5);
/// `GET /1.0/instances?recursion=1` with some thousand instances stays below; anything larger is not an answer of LXD.
const LARGEST_ANSWER: usize = 64 << 20;

/// A transport over the unix socket of a local daemon.
pub(crate) fn unix(socket: &Path) -> Result<Transport, Error> {
    // reqwest needs a TLS configuration even where none is used; passing one keeps this crate from needing a
    // process-wide cryptography provider.
    build(reqwest::Client::builder().unix_socket(socket.to_path_buf()), tls::unused()?)
}

/// A transport over TLS.
pub(crate) fn over_tls(config: rustls::ClientConfig) -> Result<Transport, Error> {
    build(reqwest::Client::builder(), config)
}

fn build(builder: reqwest::ClientBuilder, tls: rustls::ClientConfig) -> Result<Transport, Error> {
    builder
        .tls_backend_preconfigured(tls)
        .no_proxy()
        .redirect(reqwest::redirect::Policy::none())
        .connect_timeout(CONNECT)
        // A restarting daemon leaves dead connections behind, and a write on one of them would have an unknown outcome;
        // a new connection costs next to nothing here.
        .pool_max_idle_per_host(0)
        .build()
        .map(over_reqwest)
        .map_err(|error| Error::from(ErrorKind::BadInput("the HTTP client cannot be built".into())).with_source(error))
}

/// A transport over a reqwest client that the caller has configured.
pub fn over_reqwest(client: reqwest::Client) -> Transport {
    BoxCloneSyncService::new(tower::service_fn(move |request: Request<Bytes>| {
        let client = client.clone();
        async move {
            let answer = client.execute(reqwest::Request::try_from(request)?).await.map_err(judge)?;
            let (parts, body) = Response::<reqwest::Body>::from(answer).into_parts();
            let body = Limited::new(body, LARGEST_ANSWER)
                .collect()
                .await
                .map_err(|error| TransportError::Lost(error.to_string()))?;
            Ok::<_, BoxError>(Response::from_parts(parts, body.to_bytes()))
        }
    }))
}

fn judge(error: reqwest::Error) -> TransportError {
    if let Some(tls::WrongServer { expected, found }) = find_wrong_server(&error) {
        return TransportError::WrongServer { expected, found };
    }
    let text = innermost(&error);
    if error.is_connect() { TransportError::NotConnected(text) } else { TransportError::Lost(text) }
}

/// The innermost cause describes what happened ("Connection refused"); the layers above only report that something did.
fn innermost(error: &dyn StdError) -> String {
    let mut deepest = error;
    while let Some(next) = deepest.source() {
        deepest = next;
    }
    deepest.to_string()
}

fn find_wrong_server(error: &(dyn StdError + 'static)) -> Option<tls::WrongServer> {
    let mut next = Some(error);
    while let Some(error) = next {
        // An io::Error hides its inner error from source().
        let carried = error.downcast_ref::<io::Error>().and_then(io::Error::get_ref);
        let tls_error = carried
            .and_then(|inner| inner.downcast_ref::<rustls::Error>())
            .or_else(|| error.downcast_ref::<rustls::Error>());
        if let Some(rustls::Error::InvalidCertificate(rustls::CertificateError::Other(rustls::OtherError(cause)))) =
            tls_error
        {
            let cause: &Arc<dyn StdError + Send + Sync> = cause;
            return cause.downcast_ref::<tls::WrongServer>().copied();
        }
        next = carried.map(|inner| inner as &(dyn StdError + 'static)).or_else(|| error.source());
    }
    None
}
