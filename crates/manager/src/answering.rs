//! Logs once when an API server becomes unavailable and once when it is back, with the name of its cluster.
//!
//! kube logs every failed request as an error, without naming the API server: five machines whose API server was
//! unavailable caused a hundred such lines a minute. Its log is off ([`crate::log_level`]), and only changes are logged
//! here. The state belongs to the client, so it is dropped with the client when the cluster is deleted or recreated.

use std::sync::{Arc, Mutex, PoisonError};
use std::task::{Context, Poll};

use futures::future::{BoxFuture, FutureExt as _};
use http::{Request, Response, StatusCode};
use kube::Config;
use kube::client::Body;
use tower::{BoxError, Layer, Service};

/// The last known state of an API server.
#[derive(Debug, Clone, Copy, Default, PartialEq, Eq)]
enum Sight {
    /// No request was sent yet.
    #[default]
    Unasked,
    /// It has never answered: its cluster is coming up.
    NotYet,
    Answers,
    /// It has answered before, and no longer does.
    Gone,
}

/// A change worth logging.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
enum News {
    NotYet,
    Up,
    Gone,
    Back,
}

impl Sight {
    fn after(self, answered: bool) -> (Self, Option<News>) {
        match (self, answered) {
            (Self::Unasked, true) => (Self::Answers, None),
            (Self::Unasked, false) => (Self::NotYet, Some(News::NotYet)),
            (Self::NotYet, true) => (Self::Answers, Some(News::Up)),
            (Self::Answers, false) => (Self::Gone, Some(News::Gone)),
            (Self::Gone, true) => (Self::Answers, Some(News::Back)),
            (same, _) => (same, None),
        }
    }
}

/// A layer for a client with this configuration. It tracks the client's API server under the name of the cluster.
pub fn following(config: &Config, cluster: impl Into<String>) -> Following {
    let url = &config.cluster_url;
    let port = url.port_u16().map(|port| format!(":{port}")).unwrap_or_default();
    // Other parts of the URL may contain a password.
    let server = format!("{}{port}", url.host().unwrap_or_default());
    Following(Arc::new(Follow { cluster: cluster.into(), server, sight: Mutex::default() }))
}

struct Follow {
    cluster: String,
    server: String,
    sight: Mutex<Sight>,
}

impl Follow {
    /// Records the outcome of a request, and returns a change to log.
    fn saw(&self, answered: bool) -> Option<News> {
        let mut sight = self.sight.lock().unwrap_or_else(PoisonError::into_inner);
        let (after, news) = sight.after(answered);
        *sight = after;
        news
    }

    fn log(&self, news: News, why: &str) {
        let (cluster, server) = (&self.cluster, &self.server);
        match news {
            News::NotYet => tracing::info!(cluster, server, "the cluster's API server does not answer yet: {why}"),
            News::Up => tracing::info!(cluster, server, "the cluster's API server answers"),
            News::Gone => tracing::warn!(cluster, server, "the cluster's API server does not answer any more: {why}"),
            News::Back => tracing::info!(cluster, server, "the cluster's API server answers again"),
        }
    }
}

/// See [`following`].
#[derive(Clone)]
pub struct Following(Arc<Follow>);

impl<S> Layer<S> for Following {
    type Service = Followed<S>;

    fn layer(&self, inner: S) -> Followed<S> {
        Followed { inner, follow: self.0.clone() }
    }
}

/// Requests to a tracked API server.
pub struct Followed<S> {
    inner: S,
    follow: Arc<Follow>,
}

impl<S, B> Service<Request<Body>> for Followed<S>
where
    S: Service<Request<Body>, Response = Response<B>>,
    S::Error: Into<BoxError>,
    S::Future: Send + 'static,
    B: 'static,
{
    type Response = S::Response;
    type Error = BoxError;
    type Future = BoxFuture<'static, Result<S::Response, BoxError>>;

    fn poll_ready(&mut self, context: &mut Context<'_>) -> Poll<Result<(), BoxError>> {
        self.inner.poll_ready(context).map_err(Into::into)
    }

    fn call(&mut self, request: Request<Body>) -> Self::Future {
        let (follow, sent) = (self.follow.clone(), self.inner.call(request));
        async move {
            let result = sent.await.map_err(Into::into);
            let trouble = match &result {
                Ok(response) => no_backend(response.status()).then(|| response.status().to_string()),
                Err(error) => Some(in_full(error)),
            };
            if let Some(news) = follow.saw(trouble.is_none()) {
                follow.log(news, trouble.as_deref().unwrap_or_default());
            }
            result
        }
        .boxed()
    }
}

/// What a load balancer answers while it has no backend, or an API server that is just starting or stopping.
fn no_backend(status: StatusCode) -> bool {
    matches!(status, StatusCode::BAD_GATEWAY | StatusCode::SERVICE_UNAVAILABLE | StatusCode::GATEWAY_TIMEOUT)
}

/// An error with its causes: "client error (Connect)" alone explains little.
fn in_full(error: &BoxError) -> String {
    let mut text = error.to_string();
    let mut cause = error.source();
    while let Some(next) = cause {
        text = format!("{text}: {next}");
        cause = next.source();
    }
    text
}

#[cfg(test)]
mod tests {
    use tower::ServiceExt as _;
    use tracing::subscriber::DefaultGuard;

    use super::*;

    /// A log that a test reads.
    #[derive(Clone, Default)]
    struct Log(Arc<Mutex<Vec<u8>>>);

    impl Log {
        /// The log of this thread, as long as the guard lives.
        fn read_here() -> (Self, DefaultGuard) {
            let log = Self::default();
            let writer = log.clone();
            let lines = tracing_subscriber::fmt().with_ansi(false).with_writer(move || writer.clone()).finish();
            (log, tracing::subscriber::set_default(lines))
        }

        fn text(&self) -> String {
            String::from_utf8(self.0.lock().unwrap().clone()).unwrap()
        }
    }

    impl std::io::Write for Log {
        fn write(&mut self, bytes: &[u8]) -> std::io::Result<usize> {
            self.0.lock().unwrap().extend(bytes);
            Ok(bytes.len())
        }

        fn flush(&mut self) -> std::io::Result<()> {
            Ok(())
        }
    }

    /// What is logged about an API server that answers with these statuses, or not at all.
    async fn news(answers: &[Option<u16>]) -> Vec<News> {
        let (log, _guard) = Log::read_here();
        let layer = following(&Config::new("https://10.0.0.5:6443/".parse().unwrap()), "ns/c1");
        for answer in answers.iter().copied() {
            let server = tower::service_fn(move |_: Request<Body>| async move {
                let status = answer.ok_or_else(|| BoxError::from("connection refused"))?;
                Response::builder().status(status).body(()).map_err(BoxError::from)
            });
            let request = Request::builder().body(Body::empty()).unwrap();
            let passed = layer.layer(server).oneshot(request).await.ok().map(|response| response.status().as_u16());
            assert_eq!(passed, answer, "answers pass as they are");
        }
        log.text().lines().map(told).collect()
    }

    fn told(line: &str) -> News {
        let words = [
            ("does not answer yet", News::NotYet),
            ("does not answer any more", News::Gone),
            ("answers again", News::Back),
            ("answers", News::Up),
        ];
        words.into_iter().find(|(words, _)| line.contains(words)).unwrap().1
    }

    #[tokio::test]
    async fn an_api_server_that_goes_is_told_once_and_once_when_it_is_back() {
        let away = [None; 100];
        let answers = [[Some(200), Some(404)].as_slice(), &away, &[Some(200), Some(500), Some(403)], &away].concat();
        assert_eq!(news(&answers).await, [News::Gone, News::Back, News::Gone]);
    }

    #[tokio::test]
    async fn an_api_server_that_comes_up_is_no_alarm_and_one_that_answers_no_news() {
        assert_eq!(news(&[None, Some(503), None, Some(401), Some(200)]).await, [News::NotYet, News::Up]);
        assert_eq!(news(&[Some(200), Some(409), Some(500)]).await, []);
    }

    #[tokio::test]
    async fn the_line_names_the_cluster_and_its_server_but_no_password() {
        let (log, _guard) = Log::read_here();
        let config = Config::new("https://me:CANARYpassword@10.0.0.5:6443/".parse().unwrap());
        let layer = following(&config, "ns/c1");
        for answers in [true, false, false, true] {
            let server = tower::service_fn(move |_: Request<Body>| async move {
                if answers { Ok(Response::new(())) } else { Err(BoxError::from("connection refused")) }
            });
            let _ = layer.layer(server).oneshot(Request::builder().body(Body::empty()).unwrap()).await;
        }
        let text = log.text();
        let lines: Vec<&str> = text.lines().collect();
        assert_eq!(lines.len(), 2, "one when it goes, one when it is back: {text}");
        assert!(lines[0].contains("does not answer any more: connection refused"), "{text}");
        assert!(lines[1].contains("answers again"), "{text}");
        for line in lines {
            assert!(line.contains("ns/c1") && line.contains("10.0.0.5:6443") && !line.contains("CANARY"), "{line}");
        }
    }

    #[test]
    fn causes_are_told_with_the_error() {
        let refused = std::io::Error::other(std::io::Error::from(std::io::ErrorKind::ConnectionRefused));
        assert!(in_full(&BoxError::from(refused)).contains("refused"));
    }
}
