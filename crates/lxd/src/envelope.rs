//! The envelope around every answer: `sync`, `async` or `error`.

use http::{Response, StatusCode, header};
use serde::Deserialize;
use serde_json::Value;

use crate::{
    error::{self, Error, ErrorKind},
    operation::Operation,
    tolerant,
};

/// An answer of LXD, distinguished by its `type`, never by the endpoint or the status alone.
#[derive(Debug)]
pub(crate) enum Answer {
    Sync(Value),
    Async { path: String, operation: Operation },
}

#[derive(Deserialize)]
struct Envelope {
    #[serde(default, rename = "type", deserialize_with = "tolerant::text")]
    kind: String,
    #[serde(default, deserialize_with = "tolerant::text")]
    operation: String,
    #[serde(default, deserialize_with = "tolerant::or_default")]
    error_code: u16,
    #[serde(default, deserialize_with = "tolerant::text")]
    error: String,
    #[serde(default)]
    metadata: Value,
}

pub(crate) fn open(answer: &Response<impl AsRef<[u8]>>) -> Result<Answer, Error> {
    let status = answer.status();
    let body = answer.body().as_ref();
    let envelope: Envelope = match serde_json::from_slice(body) {
        Ok(envelope) => envelope,
        // A daemon that is shutting down sometimes answers with an empty body; a proxy or another service on the port
        // answers in its own format. A 404 from something else is no proof that an object is absent.
        Err(_) if status == StatusCode::SERVICE_UNAVAILABLE => {
            return Err(ErrorKind::Busy(error::tidy(&String::from_utf8_lossy(body))).into());
        }
        Err(cause) => {
            return Err(Error::from(ErrorKind::NotUnderstood(format!("HTTP {status} without an LXD envelope")))
                .with_source(cause));
        }
    };
    match envelope.kind.as_str() {
        "sync" if status.is_success() => Ok(Answer::Sync(envelope.metadata)),
        "async" if status.is_success() => {
            let operation = Operation::deserialize(&envelope.metadata).unwrap_or_default();
            let location = || answer.headers().get(header::LOCATION)?.to_str().ok().map(str::to_owned);
            let path = if envelope.operation.is_empty() { location() } else { Some(envelope.operation) };
            let Some(path) = path.filter(|path| path.starts_with("/1.0/operations/")) else {
                return Err(ErrorKind::NotUnderstood("an asynchronous answer without its operation".into()).into());
            };
            Ok(Answer::Async { path, operation })
        }
        "error" => {
            let code = if envelope.error_code == 0 { status.as_u16() } else { envelope.error_code };
            Err(error::from_answer(code, &envelope.error).into())
        }
        other => Err(ErrorKind::NotUnderstood(format!("HTTP {status} of type {:?}", error::tidy(other))).into()),
    }
}
