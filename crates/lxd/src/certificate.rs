//! The trust store: which client certificates LXD accepts.

use base64::{Engine, engine::general_purpose::STANDARD};
use http::Method;
use serde::{Deserialize, Serialize};

use crate::{
    client::{Client, Mutated},
    error::Error,
    fingerprint::{Fingerprint, certificate_der},
    tolerant,
};

/// A certificate in the trust store.
#[derive(Debug, Clone, Default, PartialEq, Eq, Deserialize)]
pub struct TrustedCertificate {
    /// Its name.
    #[serde(default, deserialize_with = "tolerant::text")]
    pub name: String,
    /// `client`, `metrics` or `server`.
    #[serde(default, rename = "type", deserialize_with = "tolerant::text")]
    pub kind: String,
    /// Whether it is restricted to projects.
    #[serde(default, deserialize_with = "tolerant::or_default")]
    pub restricted: bool,
    /// The projects that it is restricted to.
    #[serde(default, deserialize_with = "tolerant::texts")]
    pub projects: Vec<String>,
    /// Its fingerprint.
    #[serde(default, deserialize_with = "tolerant::text")]
    pub fingerprint: String,
    /// The certificate, PEM.
    #[serde(default, deserialize_with = "tolerant::text")]
    pub certificate: String,
}

/// A client certificate to trust.
#[derive(Debug, Clone)]
pub struct NewCertificate {
    /// Its name.
    pub name: String,
    /// The certificate, PEM.
    pub certificate_pem: String,
    /// The projects that it is restricted to; `None` means no restriction.
    pub projects: Option<Vec<String>>,
}

#[derive(Serialize)]
struct Body<'a> {
    name: &'a str,
    #[serde(rename = "type")]
    kind: &'static str,
    certificate: String,
    restricted: bool,
    projects: &'a [String],
}

impl Client {
    /// One trusted certificate.
    pub async fn certificate(&self, fingerprint: Fingerprint) -> Result<Option<TrustedCertificate>, Error> {
        self.find(&format!("/1.0/certificates/{fingerprint}")).await
    }

    /// All trusted certificates that are visible to this client.
    pub async fn certificates(&self) -> Result<Vec<TrustedCertificate>, Error> {
        self.get::<Option<_>>("/1.0/certificates?recursion=1").await.map(Option::unwrap_or_default)
    }

    /// Adds a client certificate to the trust store.
    pub async fn trust_certificate(&self, new: &NewCertificate) -> Mutated {
        let body = Body {
            name: &new.name,
            kind: "client",
            certificate: STANDARD.encode(certificate_der(&new.certificate_pem)?),
            restricted: new.projects.is_some(),
            projects: new.projects.as_deref().unwrap_or_default(),
        };
        self.mutate(Method::POST, "/1.0/certificates", Some(&body)).await
    }

    /// Removes a client certificate from the trust store.
    pub async fn distrust_certificate(&self, fingerprint: Fingerprint) -> Mutated {
        self.mutate(Method::DELETE, &format!("/1.0/certificates/{fingerprint}"), None::<&()>).await
    }
}
