//! A few calls of LXD's API.

use std::{sync::Arc, time::Duration};

use rustls::{
    DigitallySignedStruct, SignatureScheme,
    client::danger::{HandshakeSignatureValid, ServerCertVerified, ServerCertVerifier},
    crypto::{CryptoProvider, verify_tls12_signature, verify_tls13_signature},
    pki_types::{CertificateDer, PrivateKeyDer, ServerName, UnixTime, pem::PemObject as _},
};
use serde_json::{Value, json};

use crate::model::world::Instance;

/// Accepts every server certificate, as MAAS does.
#[derive(Debug)]
struct AnyServer(Arc<CryptoProvider>);

impl ServerCertVerifier for AnyServer {
    fn verify_server_cert(
        &self,
        _end_entity: &CertificateDer<'_>,
        _intermediates: &[CertificateDer<'_>],
        _server_name: &ServerName<'_>,
        _ocsp: &[u8],
        _now: UnixTime,
    ) -> Result<ServerCertVerified, rustls::Error> {
        Ok(ServerCertVerified::assertion())
    }

    fn verify_tls12_signature(
        &self,
        message: &[u8],
        cert: &CertificateDer<'_>,
        dss: &DigitallySignedStruct,
    ) -> Result<HandshakeSignatureValid, rustls::Error> {
        verify_tls12_signature(message, cert, dss, &self.0.signature_verification_algorithms)
    }

    fn verify_tls13_signature(
        &self,
        message: &[u8],
        cert: &CertificateDer<'_>,
        dss: &DigitallySignedStruct,
    ) -> Result<HandshakeSignatureValid, rustls::Error> {
        verify_tls13_signature(message, cert, dss, &self.0.signature_verification_algorithms)
    }

    fn supported_verify_schemes(&self) -> Vec<SignatureScheme> {
        self.0.signature_verification_algorithms.supported_schemes()
    }
}

/// A connection to one daemon with one certificate.
pub(super) struct Caller {
    client: reqwest::Client,
    base: String,
}

/// How long LXD waits for an operation.
const OPERATION_SECONDS: u32 = 60;
/// How often a running VM may refuse to be deleted.
const MOST_REFUSALS: u32 = 20;
const BETWEEN_REFUSALS: Duration = Duration::from_millis(500);

impl Caller {
    pub(super) fn new(key: &str, certificate: &str, private_key: &str) -> Result<Self, String> {
        let chain: Result<Vec<CertificateDer<'static>>, _> =
            CertificateDer::pem_slice_iter(certificate.as_bytes()).collect();
        let chain = chain.map_err(|_| "Invalid PEM material".to_owned())?;
        let private_key =
            PrivateKeyDer::from_pem_slice(private_key.as_bytes()).map_err(|_| "Invalid PEM material".to_owned())?;
        let provider = Arc::new(rustls::crypto::ring::default_provider());
        let tls = rustls::ClientConfig::builder_with_provider(Arc::clone(&provider))
            .with_safe_default_protocol_versions()
            .map_err(|error| error.to_string())?
            .dangerous()
            .with_custom_certificate_verifier(Arc::new(AnyServer(provider)))
            .with_client_auth_cert(chain, private_key)
            .map_err(|error| error.to_string())?;
        let client = reqwest::Client::builder()
            .tls_backend_preconfigured(tls)
            .no_proxy()
            .connect_timeout(Duration::from_secs(5))
            .timeout(Duration::from_secs(u64::from(OPERATION_SECONDS) + 10))
            .build()
            .map_err(|error| error.to_string())?;
        Ok(Self { client, base: format!("https://{key}") })
    }

    /// Calls and returns `metadata`. Waits for operations.
    pub(super) async fn call(
        &self,
        method: reqwest::Method,
        path: &str,
        body: Option<&Value>,
    ) -> Result<Value, String> {
        let mut request = self.client.request(method, format!("{}{path}", self.base));
        if let Some(body) = body {
            request = request.header("content-type", "application/json").body(body.to_string());
        }
        let response = request.send().await.map_err(|error| describe(&error))?;
        let bytes = response.bytes().await.map_err(|error| describe(&error))?;
        let mut envelope: Value = serde_json::from_slice(&bytes).map_err(|error| error.to_string())?;
        match envelope["type"].as_str() {
            Some("error") => Err(envelope["error"].as_str().unwrap_or("unknown error").to_owned()),
            Some("async") => {
                let operation = envelope["operation"].as_str().unwrap_or_default().to_owned();
                Box::pin(self.wait(&operation)).await
            }
            _ => Ok(envelope["metadata"].take()),
        }
    }

    async fn wait(&self, operation: &str) -> Result<Value, String> {
        let (path, query) = operation.split_once('?').unwrap_or((operation, ""));
        let path = format!("{path}/wait?timeout={OPERATION_SECONDS}&{query}");
        let done = self.call(reqwest::Method::GET, path.trim_end_matches('&'), None).await?;
        match done["status_code"].as_i64() {
            Some(200) => Ok(done),
            _ => Err(done["err"]
                .as_str()
                .filter(|text| !text.is_empty())
                .unwrap_or("the operation did not end")
                .to_owned()),
        }
    }

    pub(super) async fn get(&self, path: &str) -> Result<Value, String> {
        self.call(reqwest::Method::GET, path, None).await
    }

    pub(super) async fn post(&self, path: &str, body: &Value) -> Result<Value, String> {
        self.call(reqwest::Method::POST, path, Some(body)).await
    }

    /// An empty VM, as MAAS composes it.
    pub(super) async fn create_vm(
        &self,
        project: &str,
        name: &str,
        instance: &Instance,
        bridge: Option<&str>,
    ) -> Result<(), String> {
        let mut devices = serde_json::Map::new();
        for (index, (size, pool)) in instance.disks.iter().enumerate().take(1) {
            devices.insert("root".to_owned(), json!({
                "type": "disk", "path": "/", "pool": pool, "size": size.to_string(), "boot.priority": index.to_string(),
            }));
        }
        for (index, mac) in instance.macs.iter().enumerate() {
            let Some(bridge) = bridge else { continue };
            let nic = format!("eth{index}");
            devices.insert(nic.clone(), json!({
                "type": "nic", "name": nic, "nictype": "bridged", "parent": bridge, "hwaddr": mac, "boot.priority": "1",
            }));
        }
        // MAAS assigns a VM the profile `maas` where the project has one, and no other.
        let own = self.get(&format!("/1.0/profiles/maas?project={project}")).await;
        let profiles: &[&str] = if own.is_ok() { &["maas"] } else { &[] };
        let body = json!({
            "name": name,
            "type": "virtual-machine",
            "architecture": "x86_64",
            "config": {
                "limits.cpu": instance.cores.to_string(),
                "limits.memory": (instance.memory * 1024 * 1024).to_string(),
                "limits.memory.hugepages": "false",
                "security.secureboot": "false",
            },
            "profiles": profiles,
            "source": {"type": "none"},
            "devices": devices,
        });
        self.post(&format!("/1.0/instances?project={project}"), &body).await.map(|_| ())
    }

    pub(super) async fn set_power(&self, project: &str, name: &str, on: bool) -> Result<(), String> {
        let body = json!({"action": if on { "start" } else { "stop" }, "force": true, "timeout": 30});
        let path = format!("/1.0/instances/{name}/state?project={project}");
        match self.call(reqwest::Method::PUT, &path, Some(&body)).await {
            Ok(_) => Ok(()),
            Err(error) if error.contains("already") => Ok(()),
            Err(error) => Err(error),
        }
    }

    /// A VM that is being started can be neither stopped nor deleted until it has started, so this retries for a while.
    pub(super) async fn delete_vm(&self, project: &str, name: &str) -> Result<(), String> {
        let path = format!("/1.0/instances/{name}?project={project}");
        let mut refusals = 0;
        loop {
            // A stopped VM refuses to be stopped; the delete shows whether that mattered.
            let _ = self.set_power(project, name, false).await;
            match self.call(reqwest::Method::DELETE, &path, None).await {
                Err(error) if error.contains("running") && refusals < MOST_REFUSALS => refusals += 1,
                outcome => return outcome.map(|_| ()),
            }
            tokio::time::sleep(BETWEEN_REFUSALS).await;
        }
    }
}

/// An error with its causes: the outermost alone only says that a request failed.
fn describe(error: &reqwest::Error) -> String {
    let mut text = error.to_string();
    let mut source = std::error::Error::source(error);
    while let Some(cause) = source {
        text = format!("{text}: {cause}");
        source = cause.source();
    }
    text
}
