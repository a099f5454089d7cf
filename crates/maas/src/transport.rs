//! How messages are exchanged: over the network, or with a service in the same process.

use std::convert::Infallible;
use std::pin::pin;
use std::sync::atomic::{AtomicUsize, Ordering};
use std::time::Duration;

use bytes::{Bytes, BytesMut};
use http::{Request, Response};
use http_body_util::{BodyExt, Full};
use tower::util::BoxCloneSyncService;
use tower::{Service, ServiceExt};

/// Any cause of a failed exchange.
pub type BoxError = Box<dyn std::error::Error + Send + Sync>;

/// One complete request in, one complete response out. Bodies in both directions are complete, which keeps everything
/// above independent of sockets and of their clock.
pub type Transport = BoxCloneSyncService<Request<Bytes>, Response<Bytes>, BoxError>;

/// Why the network transport could not be set up.
#[derive(Debug, thiserror::Error)]
#[non_exhaustive]
pub enum TransportError {
    /// reqwest would panic without one.
    #[error(
        "no cryptography provider is installed; call rustls::crypto::ring::default_provider().install_default() at the \
         start of the program"
    )]
    NoCryptoProvider,
    /// The additional certificate authority cannot be read.
    #[error("the extra certificate authority is no PEM bundle of certificates")]
    CertificateAuthority(#[source] BoxError),
    /// Any other error of reqwest.
    #[error(
        "the HTTP client cannot be built; if no certificate of the system can be found, install them (ca-certificates) \
         or give the certificate authority of MAAS"
    )]
    Http(#[source] reqwest::Error),
}

/// Settings of the network transport.
#[derive(Debug, Clone, Default)]
pub(crate) struct NetworkSettings {
    pub(crate) certificate_authorities: Vec<Vec<u8>>,
    pub(crate) connections: usize,
    pub(crate) max_answer: usize,
    pub(crate) plain_http: bool,
}

/// The connect timeout. Shorter than any deadline, to distinguish a server that is switched off, to which nothing was
/// sent, from one that does not answer.
const CONNECT: Duration = Duration::from_secs(15);

/// nginx closes idle connections after a minute or so. A request that crosses with that close is lost in a way that
/// leaves its effect unknown, so we close idle connections well before.
const IDLE: Duration = Duration::from_secs(20);

/// A transport with its own connection pool. Certificates are verified by the platform and by the additional
/// authorities; proxy environment variables are honoured; redirects are not followed and nothing is retried.
pub(crate) fn over_network(settings: &NetworkSettings) -> Result<Transport, TransportError> {
    if rustls::crypto::CryptoProvider::get_default().is_none() {
        return Err(TransportError::NoCryptoProvider);
    }
    let mut authorities = Vec::new();
    for pem in &settings.certificate_authorities {
        let bundle = reqwest::Certificate::from_pem_bundle(pem)
            .map_err(|error| TransportError::CertificateAuthority(error.into()))?;
        if bundle.is_empty() {
            return Err(TransportError::CertificateAuthority("it holds no certificate".into()));
        }
        authorities.extend(bundle);
    }
    let builder = || {
        reqwest::Client::builder()
            .user_agent(concat!("maas-client/", env!("CARGO_PKG_VERSION")))
            .redirect(reqwest::redirect::Policy::none())
            .retry(reqwest::retry::never())
            .connect_timeout(CONNECT)
            .pool_idle_timeout(IDLE)
            .pool_max_idle_per_host(settings.connections)
    };
    let client = match builder().tls_certs_merge(authorities).build() {
        // Without any root certificate the platform's verifier fails, even where it is not used: an image without a
        // certificate bundle must be able to use plain http.
        Err(_) if settings.plain_http => builder().tls_certs_only([]).build(),
        built => built,
    }
    .map_err(TransportError::Http)?;
    Ok(over_reqwest(client, settings.max_answer))
}

/// A transport over a reqwest client that the caller has configured. It must neither follow redirects nor retry: this
/// crate decides what is safe to retry.
pub fn over_reqwest(client: reqwest::Client, max_answer: usize) -> Transport {
    BoxCloneSyncService::new(tower::service_fn(move |request: Request<Bytes>| {
        let client = client.clone();
        async move {
            let request = reqwest::Request::try_from(request).map_err(reqwest::Error::without_url)?;
            let response: Response<reqwest::Body> =
                client.execute(request).await.map_err(reqwest::Error::without_url)?.into();
            let (parts, body) = response.into_parts();
            let body = read(body, max_answer).await?;
            Ok::<_, BoxError>(Response::from_parts(parts, body))
        }
    }))
}

/// A transport to a service in this process, for example an `axum::Router`: no sockets, no Host header, and time is the
/// runtime's.
pub fn in_process<S, B>(service: S, max_answer: usize) -> Transport
where
    S: Service<Request<Full<Bytes>>, Response = Response<B>> + Clone + Send + Sync + 'static,
    S::Error: Into<BoxError>,
    S::Future: Send,
    B: http_body::Body<Data = Bytes> + Send,
    B::Error: Into<BoxError>,
{
    BoxCloneSyncService::new(tower::service_fn(move |request: Request<Bytes>| {
        let service = service.clone();
        async move {
            let response = service.oneshot(request.map(Full::new)).await.map_err(Into::into)?;
            let (parts, body) = response.into_parts();
            let body = read(body, max_answer).await?;
            Ok::<_, BoxError>(Response::from_parts(parts, body))
        }
    }))
}

/// An answer that exceeds its limit.
#[derive(Debug, thiserror::Error)]
enum TooLong {
    #[error("the answer is longer than {0} bytes")]
    Itself(usize),
    #[error("the answer is long, and so are others that are being read: together more than {LONG_ANSWERS} bytes")]
    WithOthers,
}

/// As the longest answer: none is too long.
pub(crate) const UNLIMITED: usize = usize::MAX;
/// Answers up to this size are always read.
const SHORT: usize = 1 << 20;
/// The shared limit of all longer answers, from when they are read until they are decoded: an eighth of the manager's
/// memory.
const LONG_ANSWERS: usize = 32 << 20;
/// The memory that they use now.
static TAKEN: AtomicUsize = AtomicUsize::new(0);

/// One answer's share of the limit.
struct Share(usize);

impl Share {
    fn take(&mut self, more: usize) -> Result<(), TooLong> {
        let room = |taken: usize| taken.checked_add(more).filter(|taken| *taken <= LONG_ANSWERS);
        TAKEN.fetch_update(Ordering::Relaxed, Ordering::Relaxed, room).map_err(|_| TooLong::WithOthers)?;
        self.0 += more;
        Ok(())
    }
}

impl Drop for Share {
    fn drop(&mut self) {
        TAKEN.fetch_sub(self.0, Ordering::Relaxed);
    }
}

/// An answer that keeps its share until it is dropped.
struct Held {
    whole: BytesMut,
    _share: Share,
}

impl AsRef<[u8]> for Held {
    fn as_ref(&self) -> &[u8] {
        &self.whole
    }
}

/// Reads a body to its end, or until it is too long. An endless one ends here, or at the deadline of its request.
async fn read<B>(body: B, max_answer: usize) -> Result<Bytes, BoxError>
where
    B: http_body::Body<Data = Bytes>,
    B::Error: Into<BoxError>,
{
    let mut body = pin!(body);
    let (mut whole, mut share) = (BytesMut::new(), Share(0));
    while let Some(frame) = body.frame().await {
        let Ok(data) = frame.map_err(Into::into)?.into_data() else { continue };
        if whole.len() + data.len() > max_answer {
            return Err(TooLong::Itself(max_answer).into());
        }
        if whole.len() + data.len() > SHORT && max_answer < UNLIMITED {
            share.take(data.len())?;
        }
        whole.extend_from_slice(&data);
    }
    Ok(Bytes::from_owner(Held { whole, _share: share }))
}

/// A transport that answers with a function: the smallest stand-in for a server.
pub fn answering<F>(answer: F) -> Transport
where
    F: Fn(Request<Bytes>) -> Response<Bytes> + Clone + Send + Sync + 'static,
{
    BoxCloneSyncService::new(
        tower::service_fn(move |request: Request<Bytes>| {
            let response = answer(request);
            async move { Ok::<_, Infallible>(response) }
        })
        .map_err(|never| match never {}),
    )
}

/// What a failed exchange implies about the request's effect.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub(crate) enum Failure {
    /// The connection was never established, so nothing was sent.
    NotSent,
    /// The answer exceeds the limit.
    TooLong,
    /// Lost in either direction.
    Lost,
}

pub(crate) fn failure(error: &BoxError) -> Failure {
    if error.is::<TooLong>() {
        return Failure::TooLong;
    }
    match error.downcast_ref::<reqwest::Error>() {
        Some(error) if error.is_connect() || error.is_builder() => Failure::NotSent,
        _ => Failure::Lost,
    }
}

#[cfg(test)]
mod tests {
    use std::collections::VecDeque;
    use std::pin::Pin;
    use std::task::{Context, Poll};

    use http_body::Frame;

    use super::*;

    /// This many chunks of 1 MiB, then either the end or nothing more.
    struct Pieces {
        left: VecDeque<Bytes>,
        ends: bool,
    }

    impl Pieces {
        fn new(mebibytes: usize, ends: bool) -> Self {
            let piece = Bytes::from(vec![b' '; 1 << 20]);
            Self { left: (0..mebibytes).map(|_| piece.clone()).collect(), ends }
        }
    }

    impl http_body::Body for Pieces {
        type Data = Bytes;
        type Error = Infallible;

        fn poll_frame(mut self: Pin<&mut Self>, _: &mut Context<'_>) -> Poll<Option<Result<Frame<Bytes>, Infallible>>> {
            match self.left.pop_front() {
                Some(piece) => Poll::Ready(Some(Ok(Frame::data(piece)))),
                None if self.ends => Poll::Ready(None),
                None => Poll::Pending,
            }
        }
    }

    #[tokio::test(start_paused = true)]
    async fn s29_all_long_answers_together_are_bounded_and_short_ones_are_always_read() {
        let too_long = read(Pieces::new(11, true), 10 << 20).await.unwrap_err();
        assert_eq!(
            (failure(&too_long), too_long.to_string()),
            (Failure::TooLong, "the answer is longer than 10485760 bytes".to_owned())
        );
        let slow = tokio::spawn(read(Pieces::new(24, false), 24 << 20));
        tokio::task::yield_now().await;
        let beside = read(Pieces::new(12, true), 24 << 20).await.unwrap_err();
        assert_eq!(failure(&beside), Failure::TooLong, "{beside}");
        assert_eq!(read(Pieces::new(1, true), 24 << 20).await.unwrap().len(), 1 << 20);
        slow.abort();
        slow.await.unwrap_err();
        let whole = read(Pieces::new(24, true), 24 << 20).await.unwrap();
        assert_eq!(whole.len(), 24 << 20, "their room is free again");
        let beside = read(Pieces::new(12, true), 24 << 20).await.unwrap_err();
        assert_eq!(failure(&beside), Failure::TooLong, "an answer that is not decoded yet: {beside}");
        drop(whole);
        read(Pieces::new(12, true), 24 << 20).await.unwrap();
    }
}
