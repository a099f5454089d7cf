//! What recordings are replayed against: a simulator in this process, or one that runs elsewhere on this machine.

use std::collections::BTreeMap;

use axum::Router;
use axum::body::Body;
use bytes::Bytes;
use http::Request;
use http_body_util::BodyExt;
use serde_json::Value;
use tower::ServiceExt;

/// The host of the recorded MAAS. Signatures of requests contain it, so a simulator elsewhere gets the same value.
const HOST: &str = "127.0.0.1:5240";

/// Why a simulator gave no answer at all.
#[derive(Debug, thiserror::Error)]
pub enum TargetError {
    /// The request cannot be expressed in HTTP.
    #[error("cannot make a request of {what}: {source}")]
    Request {
        /// Method and path.
        what: String,
        source: http::Error,
    },
    /// The simulator did not answer.
    #[error("no answer from the simulator to {what}: {source}")]
    Unreachable {
        /// Method and path.
        what: String,
        source: reqwest::Error,
    },
    /// The answer was interrupted.
    #[error("the simulator's answer to {what} broke off: {source}")]
    Broken {
        /// Method and path.
        what: String,
        source: axum::Error,
    },
    /// The control API refused.
    #[error("the simulator refused {what}: {answer}")]
    Refused {
        /// The requested action.
        what: String,
        /// Its answer.
        answer: String,
    },
}

/// A complete answer.
#[derive(Clone, Debug)]
pub struct Answer {
    /// HTTP status.
    pub status: u16,
    /// Headers, names in lower case.
    pub headers: BTreeMap<String, String>,
    /// Body.
    pub body: Bytes,
}

impl Answer {
    /// The body as text.
    pub fn text(&self) -> String {
        String::from_utf8_lossy(&self.body).into_owned()
    }

    /// The body as JSON, if it is.
    pub fn json(&self) -> Option<Value> {
        serde_json::from_slice(&self.body).ok()
    }
}

/// A simulator to replay against.
pub enum Target {
    /// In this process, without sockets.
    InProcess(Router),
    /// At an address such as `http://127.0.0.1:5240`.
    Endpoint {
        /// Base URL without `/MAAS`.
        base: String,
        client: reqwest::Client,
    },
}

impl Target {
    /// Sends a request and reads the answer to its end.
    pub async fn send(
        &self,
        method: &str,
        path: &str,
        headers: &[(String, String)],
        body: Vec<u8>,
    ) -> Result<Answer, TargetError> {
        let what = || format!("{method} {path}");
        let host = if headers.iter().any(|(name, _)| name == "host") { None } else { Some(HOST) };
        match self {
            Self::InProcess(router) => {
                let mut request = Request::builder().method(method).uri(path);
                if let Some(host) = host {
                    request = request.header("host", host);
                }
                for (name, value) in headers {
                    request = request.header(name, value);
                }
                let length = body.len();
                if length > 0 {
                    request = request.header("content-length", length);
                }
                let request =
                    request.body(Body::from(body)).map_err(|source| TargetError::Request { what: what(), source })?;
                let answer = match router.clone().oneshot(request).await {
                    Ok(answer) => answer,
                    Err(never) => match never {},
                };
                let (parts, body) = answer.into_parts();
                let body = body.collect().await.map_err(|source| TargetError::Broken { what: what(), source })?;
                Ok(Answer { status: parts.status.as_u16(), headers: texts(&parts.headers), body: body.to_bytes() })
            }
            Self::Endpoint { base, client } => {
                let unreachable = |source| TargetError::Unreachable { what: what(), source };
                let method = reqwest::Method::from_bytes(method.as_bytes())
                    .map_err(|source| TargetError::Request { what: what(), source: source.into() })?;
                let mut request = client.request(method, format!("{base}{path}"));
                if let Some(host) = host {
                    request = request.header("host", host);
                }
                for (name, value) in headers {
                    request = request.header(name, value);
                }
                let answer = request.body(body).send().await.map_err(unreachable)?;
                let (status, headers) = (answer.status().as_u16(), texts(answer.headers()));
                Ok(Answer { status, headers, body: answer.bytes().await.map_err(unreachable)? })
            }
        }
    }

    /// Calls the control API.
    pub async fn control(&self, call: &str, body: &Value) -> Result<Value, TargetError> {
        let headers = [("content-type".to_owned(), "application/json".to_owned())];
        let answer = self.send("POST", &format!("/_sim/{call}"), &headers, body.to_string().into_bytes()).await?;
        if answer.status == 200 || answer.status == 204 {
            return Ok(answer.json().unwrap_or(Value::Null));
        }
        Err(TargetError::Refused { what: format!("{call} {body}"), answer: answer.text() })
    }
}

fn texts(headers: &http::HeaderMap) -> BTreeMap<String, String> {
    headers
        .iter()
        .map(|(name, value)| (name.as_str().to_owned(), String::from_utf8_lossy(value.as_bytes()).into_owned()))
        .collect()
}
