//! Access to `/metrics`: over HTTPS, with a token that Kubernetes authenticates and authorizes to GET /metrics. Cluster
//! API's managers do the same, with flags of the same names.

use std::net::SocketAddr;
use std::path::{Path, PathBuf};
use std::sync::Arc;
use std::time::Duration;

use anyhow::Context as _;
use axum::Router;
use axum::extract::{Request, State};
use axum::http::{StatusCode, header};
use axum::middleware::{Next, from_fn_with_state};
use axum::response::{IntoResponse as _, Response};
use k8s_openapi::api::authentication::v1::{TokenReview, TokenReviewSpec, UserInfo};
use k8s_openapi::api::authorization::v1::{NonResourceAttributes, SubjectAccessReview, SubjectAccessReviewSpec};
use kube::api::{Api, PostParams};
use kube::{Client, Config};
use rustls::ServerConfig;
use rustls_pki_types::pem::PemObject as _;
use rustls_pki_types::{CertificateDer, PrivateKeyDer, PrivatePkcs8KeyDer};
use tokio::net::{TcpListener, TcpStream};
use tokio::sync::{Semaphore, mpsc};
use tokio_rustls::TlsAcceptor;
use tokio_rustls::server::TlsStream;

use crate::args::Args;

/// A client that does not finish its handshake in this time is dropped.
const HANDSHAKE: Duration = Duration::from_secs(10);
/// Unauthenticated clients can make us send their tokens to the API server: at most this many at a time.
const REVIEWS_AT_ONCE: usize = 4;

/// How access to the metrics is protected.
pub enum Protection {
    /// Nothing (`--insecure-diagnostics`).
    None,
    /// TLS, and a review by Kubernetes for each request.
    Full {
        /// Authenticates and authorizes clients.
        client: Client,
        /// The certificate to serve with.
        certificate: Certificate,
    },
}

impl Protection {
    /// As configured by the flags.
    pub fn new(args: &Args, config: &Config) -> anyhow::Result<Self> {
        if args.insecure_diagnostics {
            return Ok(Self::None);
        }
        let client = Client::try_from(config.clone()).context("cannot create a client for the API server")?;
        let certificate = match &args.diagnostics_cert_dir {
            Some(folder) => Certificate::from_folder(folder.clone())?,
            None => Certificate::self_signed(&args.pod_namespace)?,
        };
        Ok(Self::Full { client, certificate })
    }
}

/// The serving certificate with its key.
pub struct Certificate {
    folder: Option<PathBuf>,
    config: Arc<ServerConfig>,
}

impl Certificate {
    /// Generated for this process only: it protects against eavesdropping, but proves no identity.
    fn self_signed(namespace: &str) -> anyhow::Result<Self> {
        let names = vec![format!("capmaas-controller-manager-metrics.{namespace}.svc"), "localhost".to_owned()];
        let made = rcgen::generate_simple_self_signed(names).context("cannot create a certificate")?;
        let key = PrivatePkcs8KeyDer::from(made.signing_key.serialize_der());
        Ok(Self { folder: None, config: server_config(vec![made.cert.der().clone()], key.into())? })
    }

    fn from_folder(folder: PathBuf) -> anyhow::Result<Self> {
        let config = read(&folder)?;
        Ok(Self { folder: Some(folder), config })
    }

    /// The current certificate: files are replaced before a certificate expires. If a new one cannot be read, the
    /// previous one stays.
    fn current(&mut self) -> Arc<ServerConfig> {
        if let Some(folder) = &self.folder {
            match read(folder) {
                Ok(config) => self.config = config,
                Err(error) => tracing::warn!("keeping the current certificate of /metrics: {error:#}"),
            }
        }
        self.config.clone()
    }
}

fn read(folder: &Path) -> anyhow::Result<Arc<ServerConfig>> {
    let (certificate, key) = (folder.join("tls.crt"), folder.join("tls.key"));
    let hint = |path: &Path| format!("{} contains no usable PEM (--diagnostics-cert-dir)", path.display());
    let chain = CertificateDer::pem_file_iter(&certificate)
        .and_then(Iterator::collect::<Result<Vec<_>, _>>)
        .with_context(|| hint(&certificate))?;
    let key = PrivateKeyDer::from_pem_file(&key).with_context(|| hint(&key))?;
    server_config(chain, key)
}

fn server_config(
    chain: Vec<CertificateDer<'static>>,
    key: PrivateKeyDer<'static>,
) -> anyhow::Result<Arc<ServerConfig>> {
    let config = ServerConfig::builder().with_no_client_auth().with_single_cert(chain, key);
    config.map(Arc::new).context("the certificate and the key of /metrics do not match")
}

/// Serves the routes until the process ends.
pub async fn serve(address: SocketAddr, routes: Router, protection: Protection) -> anyhow::Result<()> {
    let listener = TcpListener::bind(address)
        .await
        .with_context(|| format!("cannot listen on {address} (--diagnostics-address)"))?;
    let served = match protection {
        Protection::None => axum::serve(listener, routes).await,
        Protection::Full { client, certificate } => {
            let reviewer = Reviewer { client, slots: Arc::new(Semaphore::new(REVIEWS_AT_ONCE)) };
            let routes = routes.layer(from_fn_with_state(reviewer, review));
            axum::serve(TlsListener::start(listener, certificate)?, routes).await
        }
    };
    served.context("the metrics server stopped")
}

/// Accepts connections and returns those with a completed handshake. Each handshake has its own task, so that a slow
/// one blocks no other.
struct TlsListener {
    address: SocketAddr,
    ready: mpsc::Receiver<(TlsStream<TcpStream>, SocketAddr)>,
}

impl TlsListener {
    fn start(listener: TcpListener, mut certificate: Certificate) -> std::io::Result<Self> {
        let (address, (sender, ready)) = (listener.local_addr()?, mpsc::channel(16));
        tokio::spawn(async move {
            while !sender.is_closed() {
                let Ok((stream, peer)) = listener.accept().await else {
                    // Most likely out of file descriptors: other connections must end first.
                    tokio::time::sleep(Duration::from_secs(1)).await;
                    continue;
                };
                let (sender, acceptor) = (sender.clone(), TlsAcceptor::from(certificate.current()));
                tokio::spawn(async move {
                    if let Ok(Ok(stream)) = tokio::time::timeout(HANDSHAKE, acceptor.accept(stream)).await {
                        let _ = sender.send((stream, peer)).await;
                    }
                });
            }
        });
        Ok(Self { address, ready })
    }
}

impl axum::serve::Listener for TlsListener {
    type Io = TlsStream<TcpStream>;
    type Addr = SocketAddr;

    async fn accept(&mut self) -> (Self::Io, Self::Addr) {
        match self.ready.recv().await {
            Some(connection) => connection,
            // The accepting task never ends before its receiver does.
            None => std::future::pending().await,
        }
    }

    fn local_addr(&self) -> std::io::Result<SocketAddr> {
        Ok(self.address)
    }
}

/// Sends reviews of clients to the API server.
#[derive(Clone)]
struct Reviewer {
    client: Client,
    slots: Arc<Semaphore>,
}

impl Reviewer {
    /// The user of this token; `None` if it is not valid.
    async fn user(&self, token: &str) -> kube::Result<Option<UserInfo>> {
        let spec = TokenReviewSpec { token: Some(token.to_owned()), ..TokenReviewSpec::default() };
        let review = TokenReview { spec, ..TokenReview::default() };
        let answered = Api::<TokenReview>::all(self.client.clone()).create(&PostParams::default(), &review).await?;
        let status = answered.status.unwrap_or_default();
        Ok(status.user.filter(|_| status.authenticated == Some(true)))
    }

    async fn may(&self, user: UserInfo, verb: &str, path: &str) -> kube::Result<bool> {
        let attributes = NonResourceAttributes { path: Some(path.to_owned()), verb: Some(verb.to_owned()) };
        let spec = SubjectAccessReviewSpec {
            user: user.username,
            groups: user.groups,
            uid: user.uid,
            extra: user.extra,
            non_resource_attributes: Some(attributes),
            ..SubjectAccessReviewSpec::default()
        };
        let review = SubjectAccessReview { spec, ..SubjectAccessReview::default() };
        let api = Api::<SubjectAccessReview>::all(self.client.clone());
        let answered = api.create(&PostParams::default(), &review).await?;
        Ok(answered.status.is_some_and(|status| status.allowed && status.denied != Some(true)))
    }
}

async fn review(State(reviewer): State<Reviewer>, request: Request, next: Next) -> Response {
    let Some(token) = bearer(&request).map(str::to_owned) else {
        let challenge = [(header::WWW_AUTHENTICATE, "Bearer")];
        return (StatusCode::UNAUTHORIZED, challenge, "a bearer token is missing").into_response();
    };
    let (verb, path) = (request.method().as_str().to_lowercase(), request.uri().path().to_owned());
    let verdict = async {
        let _slot = reviewer.slots.acquire().await;
        let Some(user) = reviewer.user(&token).await? else { return Ok(StatusCode::UNAUTHORIZED) };
        Ok(if reviewer.may(user, &verb, &path).await? { StatusCode::OK } else { StatusCode::FORBIDDEN })
    };
    match verdict.await {
        Ok(StatusCode::OK) => next.run(request).await,
        Ok(StatusCode::FORBIDDEN) => (
            StatusCode::FORBIDDEN,
            format!("this account may not {verb} {path}: bind the ClusterRole capmaas-metrics-reader to it"),
        )
            .into_response(),
        Ok(refused) => (refused, "Kubernetes does not accept this token").into_response(),
        Err(error) => {
            let error: kube::Error = error;
            tracing::warn!("cannot check a request for the metrics: {error}");
            (StatusCode::INTERNAL_SERVER_ERROR, "the API server did not answer the review of this token")
                .into_response()
        }
    }
}

fn bearer(request: &Request) -> Option<&str> {
    let value = request.headers().get(header::AUTHORIZATION)?.to_str().ok()?;
    let (scheme, token) = value.split_once(' ')?;
    (scheme.eq_ignore_ascii_case("bearer") && !token.trim().is_empty()).then(|| token.trim())
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn only_a_bearer_token_counts() {
        let request =
            |value: &str| Request::builder().header("authorization", value).body(axum::body::Body::empty()).unwrap();
        assert_eq!(bearer(&request("Bearer abc")), Some("abc"));
        assert_eq!(bearer(&request("bearer abc")), Some("abc"));
        for other in ["Basic abc", "Bearer", "Bearer  ", "abc"] {
            assert_eq!(bearer(&request(other)), None, "{other}");
        }
    }

    #[test]
    fn a_folder_without_a_certificate_is_named_and_one_that_was_read_stays_when_its_files_break() {
        let _ = rustls::crypto::ring::default_provider().install_default();
        let folder = tempfile::tempdir().unwrap();
        let refused = format!("{:#}", Certificate::from_folder(folder.path().to_owned()).err().unwrap());
        assert!(refused.contains("tls.crt contains no usable PEM (--diagnostics-cert-dir)"), "{refused}");

        let made = rcgen::generate_simple_self_signed(vec!["localhost".to_owned()]).unwrap();
        std::fs::write(folder.path().join("tls.crt"), made.cert.pem()).unwrap();
        std::fs::write(folder.path().join("tls.key"), made.signing_key.serialize_pem()).unwrap();
        let mut certificate = Certificate::from_folder(folder.path().to_owned()).unwrap();
        std::fs::write(folder.path().join("tls.crt"), "half").unwrap();
        let before = certificate.config.clone();
        assert!(Arc::ptr_eq(&certificate.current(), &before));
    }
}
