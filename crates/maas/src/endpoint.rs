//! The address of a MAAS server.

use std::fmt;
use std::str::FromStr;

use url::Url;

/// The address of a MAAS server in normalized form.
///
/// Users write it in several ways; all of these are the same endpoint:
///
/// ```
/// # use maas_client::Endpoint;
/// for text in [
///     "http://maas.example:5240",
///     "http://maas.example:5240/MAAS",
///     "http://maas.example:5240/MAAS/",
///     "http://maas.example:5240/MAAS/api/2.0",
///     "http://maas.example:5240/MAAS/api/2.0/",
/// ] {
///     assert_eq!(text.parse::<Endpoint>()?.to_string(), "http://maas.example:5240/MAAS");
/// }
/// # Ok::<(), maas_client::EndpointError>(())
/// ```
#[derive(Debug, Clone, PartialEq, Eq, Hash)]
pub struct Endpoint {
    /// scheme://host:port, without a trailing slash.
    origin: String,
    /// The path that MAAS is mounted at, without a trailing slash ("/MAAS").
    mount: String,
    plain_http: bool,
}

/// Why a text is not an endpoint. The text is not repeated, because users put passwords into URLs.
#[derive(Debug, Clone, PartialEq, Eq, thiserror::Error)]
#[non_exhaustive]
pub enum EndpointError {
    /// Not a URL at all, or without a scheme.
    #[error(
        "the MAAS endpoint is not a URL ({0}); write it with its scheme, for example http://maas.example:5240/MAAS"
    )]
    NotAUrl(String),
    /// Neither http nor https.
    #[error("the MAAS endpoint has the scheme {0:?}; only http and https are spoken")]
    Scheme(String),
    /// A user name or password in the URL.
    #[error("the MAAS endpoint holds a user name or password; MAAS takes an API key instead, remove them")]
    Credentials,
    /// A query or a fragment.
    #[error("the MAAS endpoint has a query or fragment (after ? or #); remove it")]
    Extra,
    /// An API version other than 2.0.
    #[error("the MAAS endpoint names API version {0}; only 2.0 exists, leave /api/{0} away")]
    ApiVersion(String),
}

impl Endpoint {
    /// Scheme, host and port: they identify the server.
    pub fn origin(&self) -> &str {
        &self.origin
    }

    /// Whether keys and secrets are sent unencrypted.
    pub fn is_plain_http(&self) -> bool {
        self.plain_http
    }

    /// The URI of a resource; `path` is relative to the API's root and already escaped.
    pub(crate) fn resource(&self, path: &str, query: &str) -> String {
        let mark = if query.is_empty() { "" } else { "?" };
        format!("{}{}/api/2.0/{path}{mark}{query}", self.origin, self.mount)
    }
}

impl FromStr for Endpoint {
    type Err = EndpointError;

    fn from_str(text: &str) -> Result<Self, EndpointError> {
        let text = text.trim();
        if text.is_empty() {
            return Err(EndpointError::NotAUrl("it is empty".to_owned()));
        }
        // "maas.example:5240/MAAS" parses as a URL of the scheme "maas.example".
        if !text.contains("://") {
            return Err(EndpointError::NotAUrl("it has no scheme".to_owned()));
        }
        let url = Url::parse(text).map_err(|error| EndpointError::NotAUrl(error.to_string()))?;
        if !matches!(url.scheme(), "http" | "https") {
            return Err(EndpointError::Scheme(url.scheme().to_owned()));
        }
        if !url.username().is_empty() || url.password().is_some() {
            return Err(EndpointError::Credentials);
        }
        if url.query().is_some() || url.fragment().is_some() {
            return Err(EndpointError::Extra);
        }
        let mut mount = url.path().trim_end_matches('/');
        while let Some((before, version)) = mount.rsplit_once("/api/") {
            if version != "2.0" {
                return Err(EndpointError::ApiVersion(version.to_owned()));
            }
            mount = before.trim_end_matches('/');
        }
        Ok(Self {
            origin: url.origin().ascii_serialization(),
            // Every MAAS is mounted there unless a proxy in front of it changes the path, in which case the endpoint
            // has to include it.
            mount: if mount.is_empty() { "/MAAS" } else { mount }.to_owned(),
            plain_http: url.scheme() == "http",
        })
    }
}

impl fmt::Display for Endpoint {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        write!(f, "{}{}", self.origin, self.mount)
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn every_way_of_writing_it_is_accepted() {
        for (text, expected) in [
            ("http://maas.example:5240/MAAS", "http://maas.example:5240/MAAS"),
            ("http://maas.example:5240/MAAS/", "http://maas.example:5240/MAAS"),
            ("http://maas.example:5240/MAAS//", "http://maas.example:5240/MAAS"),
            ("http://maas.example:5240/MAAS/api/2.0", "http://maas.example:5240/MAAS"),
            ("http://maas.example:5240/MAAS/api/2.0/", "http://maas.example:5240/MAAS"),
            ("http://maas.example:5240", "http://maas.example:5240/MAAS"),
            ("http://maas.example:5240/", "http://maas.example:5240/MAAS"),
            ("http://maas.example:5240/api/2.0/", "http://maas.example:5240/MAAS"),
            ("https://maas.example/MAAS", "https://maas.example/MAAS"),
            ("https://maas.example:443/MAAS", "https://maas.example/MAAS"),
            ("HTTPS://MAAS.example/MAAS", "https://maas.example/MAAS"),
            ("https://proxy.example/lab/maas/api/2.0/", "https://proxy.example/lab/maas"),
            ("http://[fd00::1]:5240/MAAS", "http://[fd00::1]:5240/MAAS"),
            ("http://maas.example/MAAS/api/2.0/api/2.0", "http://maas.example/MAAS"),
            (" http://10.0.0.1:5240/MAAS\n", "http://10.0.0.1:5240/MAAS"),
        ] {
            assert_eq!(text.parse::<Endpoint>().unwrap().to_string(), expected, "{text}");
        }
    }

    #[test]
    fn what_cannot_be_an_endpoint_is_refused_with_a_sentence() {
        for (text, words) in [
            ("", "empty"),
            ("maas.example:5240/MAAS", "no scheme"),
            ("ftp://maas.example/MAAS", "only http and https"),
            ("http://", "not a URL"),
            ("http://bob:canary@maas.example/MAAS", "API key instead"),
            ("http://maas.example/MAAS?x=canary", "query or fragment"),
            ("http://maas.example/MAAS#canary", "query or fragment"),
            ("http://maas.example/MAAS/api/1.0/", "only 2.0 exists"),
        ] {
            let error = text.parse::<Endpoint>().unwrap_err().to_string();
            assert!(error.contains(words), "{text}: {error}");
            assert!(!error.contains("canary"), "{error}");
        }
    }

    #[test]
    fn a_resource_lies_below_the_mount() {
        let endpoint: Endpoint = "http://m/MAAS".parse().unwrap();
        assert_eq!(endpoint.resource("zones/", ""), "http://m/MAAS/api/2.0/zones/");
        assert_eq!(endpoint.resource("users/", "op=whoami"), "http://m/MAAS/api/2.0/users/?op=whoami");
        assert!(endpoint.is_plain_http());
        assert_eq!(endpoint.origin(), "http://m");
    }
}
