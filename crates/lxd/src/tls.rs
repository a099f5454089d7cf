//! TLS as LXD requires it: 1.3, a client certificate, and a server certificate that is trusted by its fingerprint
//! alone.

use std::{fmt, sync::Arc};

use rustls::{
    CertificateError, ClientConfig, DigitallySignedStruct, OtherError, SignatureScheme,
    client::danger::{HandshakeSignatureValid, ServerCertVerified, ServerCertVerifier},
    crypto::{CryptoProvider, ring, verify_tls13_signature},
};
use rustls_pki_types::{CertificateDer, PrivateKeyDer, ServerName, UnixTime, pem::PemObject};
use secrecy::{ExposeSecret, SecretString};

use crate::{
    error::{Error, ErrorKind},
    fingerprint::Fingerprint,
};

/// A client certificate and its private key, both PEM. The key appears in no `Debug` text.
#[derive(Clone)]
pub struct Identity {
    certificate_pem: String,
    key_pem: SecretString,
}

impl Identity {
    /// A pair, which is validated when a client is built from it.
    pub fn new(certificate_pem: impl Into<String>, key_pem: SecretString) -> Self {
        Self { certificate_pem: certificate_pem.into(), key_pem }
    }

    /// The certificate.
    pub fn certificate_pem(&self) -> &str {
        &self.certificate_pem
    }

    /// The private key, for passing it on.
    pub fn key_pem(&self) -> &SecretString {
        &self.key_pem
    }

    /// The fingerprint by which LXD identifies the certificate.
    pub fn fingerprint(&self) -> Result<Fingerprint, Error> {
        Fingerprint::of_pem(&self.certificate_pem)
    }
}

impl fmt::Debug for Identity {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        let name = self.fingerprint().map_or_else(|_| "unreadable certificate".into(), |print| print.to_string());
        f.debug_tuple("Identity").field(&name).finish()
    }
}

/// The server is not the pinned one.
#[derive(Debug, Clone, Copy, thiserror::Error)]
#[error("the server's certificate is {found}, not the pinned {expected}")]
pub(crate) struct WrongServer {
    pub(crate) expected: Fingerprint,
    pub(crate) found: Fingerprint,
}

/// A configuration that presents `identity` and accepts only the server with the pinned fingerprint.
pub(crate) fn pinned(server: Fingerprint, identity: Option<&Identity>) -> Result<ClientConfig, Error> {
    let provider = Arc::new(ring::default_provider());
    let verifier = Arc::new(PinnedServer { expected: server, provider: Arc::clone(&provider) });
    let builder = builder(provider)?.dangerous().with_custom_certificate_verifier(verifier);
    let Some(identity) = identity else { return Ok(builder.with_no_client_auth()) };
    let chain = CertificateDer::pem_slice_iter(identity.certificate_pem.as_bytes())
        .collect::<Result<Vec<_>, _>>()
        .map_err(|_| ErrorKind::BadInput("the client certificate is no PEM".into()))?;
    // The cause is dropped on purpose: it may quote the key.
    let key = PrivateKeyDer::from_pem_slice(identity.key_pem.expose_secret().as_bytes())
        .map_err(|_| ErrorKind::BadInput("the client key is no PEM private key".into()))?;
    builder
        .with_client_auth_cert(chain, key)
        .map_err(|_| ErrorKind::BadInput("the client key does not fit the client certificate".into()).into())
}

/// For clients that never use TLS.
pub(crate) fn unused() -> Result<ClientConfig, Error> {
    Ok(builder(Arc::new(ring::default_provider()))?
        .with_root_certificates(rustls::RootCertStore::empty())
        .with_no_client_auth())
}

type Builder = rustls::ConfigBuilder<ClientConfig, rustls::WantsVerifier>;

fn builder(provider: Arc<CryptoProvider>) -> Result<Builder, Error> {
    // LXD refuses TLS 1.2.
    ClientConfig::builder_with_provider(provider).with_protocol_versions(&[&rustls::version::TLS13]).map_err(|error| {
        Error::from(ErrorKind::BadInput("the cryptography provider has no TLS 1.3".into())).with_source(error)
    })
}

/// LXD's certificate is self-signed, names its host name at best and never expires in practice: the fingerprint read
/// over the unix socket is sufficient. The handshake's signature is still verified, so the server must have the key.
#[derive(Debug)]
struct PinnedServer {
    expected: Fingerprint,
    provider: Arc<CryptoProvider>,
}

impl ServerCertVerifier for PinnedServer {
    fn verify_server_cert(
        &self,
        end_entity: &CertificateDer<'_>,
        _intermediates: &[CertificateDer<'_>],
        _server_name: &ServerName<'_>,
        _ocsp: &[u8],
        _now: UnixTime,
    ) -> Result<ServerCertVerified, rustls::Error> {
        let found = Fingerprint::of_der(end_entity);
        if found == self.expected {
            return Ok(ServerCertVerified::assertion());
        }
        let wrong = WrongServer { expected: self.expected, found };
        Err(rustls::Error::InvalidCertificate(CertificateError::Other(OtherError(Arc::new(wrong)))))
    }

    fn verify_tls12_signature(
        &self,
        _message: &[u8],
        _cert: &CertificateDer<'_>,
        _dss: &DigitallySignedStruct,
    ) -> Result<HandshakeSignatureValid, rustls::Error> {
        Err(rustls::Error::General("LXD speaks TLS 1.3 only".into()))
    }

    fn verify_tls13_signature(
        &self,
        message: &[u8],
        cert: &CertificateDer<'_>,
        dss: &DigitallySignedStruct,
    ) -> Result<HandshakeSignatureValid, rustls::Error> {
        verify_tls13_signature(message, cert, dss, &self.provider.signature_verification_algorithms)
    }

    fn supported_verify_schemes(&self) -> Vec<SignatureScheme> {
        self.provider.signature_verification_algorithms.supported_schemes()
    }
}
