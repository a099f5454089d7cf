//! Gives an existing VM host another key and address: the one call that `maas-client` has no words for.

use std::time::{Duration, SystemTime, UNIX_EPOCH};

use anyhow::{Context, bail};
use maas_client::{ApiKey, Endpoint};
use secrecy::{ExposeSecret, SecretString};

/// What to change and where.
pub(crate) struct Renewal<'a> {
    pub(crate) endpoint: &'a str,
    pub(crate) api_key: &'a SecretString,
    pub(crate) ca: Option<Vec<u8>>,
    pub(crate) id: u64,
    pub(crate) address: &'a str,
    pub(crate) certificate: &'a str,
    pub(crate) key: &'a SecretString,
}

/// MAAS tries the new values at once but stores them even if they do not work, so the next pass looks.
pub(crate) async fn renew(renewal: Renewal<'_>) -> anyhow::Result<()> {
    let endpoint: Endpoint = renewal.endpoint.parse()?;
    let api_key: ApiKey = renewal.api_key.expose_secret().parse()?;
    let mut builder =
        reqwest::Client::builder().redirect(reqwest::redirect::Policy::none()).timeout(Duration::from_secs(120));
    if let Some(ca) = renewal.ca {
        builder = builder.tls_certs_merge(reqwest::Certificate::from_pem_bundle(&ca).context("MAAS_CA_FILE")?);
    }
    let fields = [
        ("power_address", renewal.address),
        ("certificate", renewal.certificate),
        ("key", renewal.key.expose_secret()),
    ];
    let body = form_urlencoded::Serializer::new(String::new()).extend_pairs(fields).finish();
    let now = SystemTime::now().duration_since(UNIX_EPOCH).unwrap_or_default().as_secs();
    let nonce = format!("{:032x}", rand::random::<u128>());
    let answer = builder
        .build()?
        .put(format!("{endpoint}/api/2.0/vm-hosts/{}/", renewal.id))
        .header(http::header::AUTHORIZATION, maas_client::authorization(&api_key, &nonce, now))
        .header(http::header::CONTENT_TYPE, "application/x-www-form-urlencoded")
        .body(body)
        .send()
        .await
        .context("MAAS does not answer")?;
    // The body is not quoted: MAAS repeats keys in some of its answers.
    if !answer.status().is_success() {
        bail!("MAAS answers HTTP {} to the change of VM host {}", answer.status(), renewal.id);
    }
    Ok(())
}
