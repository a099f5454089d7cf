//! Decodes successful answers.

use bytes::Bytes;
use http::{Response, StatusCode, header};
use serde::de::DeserializeOwned;
use tokio::sync::{Semaphore, SemaphorePermit};

use crate::call::Call;
use crate::error::{Effect, Error, ErrorKind, Result};
use crate::weight::JsonWeight;

/// An answer that is not the expected JSON. serde's own message is omitted: it repeats values, and a value may be a
/// private key.
#[derive(Debug, thiserror::Error)]
#[error("{problem} at line {line}, column {column}")]
struct NotTheJson {
    problem: &'static str,
    line: usize,
    column: usize,
}

/// The memory, in KiB, that all answers that are being decoded may need: a fourth of the manager's.
const ROOM: usize = 64 << 10;
static DECODING: Semaphore = Semaphore::const_new(ROOM);
/// Answers that need no more than this, in KiB, are decoded at once.
const SMALL: usize = 1 << 10;

/// Waits until there is memory to decode an answer, or refuses one that would never fit: JSON may become a hundred times
/// as long (S29). Decoding does not wait for anybody, so neither do others for long.
pub(crate) async fn room(call: &Call, response: &Response<Bytes>) -> Result<Option<SemaphorePermit<'static>>> {
    let needed = JsonWeight::of(response.body()) >> 10;
    if needed <= SMALL {
        return Ok(None);
    }
    match u32::try_from(needed) {
        Ok(kibibytes) if needed <= ROOM => Ok(DECODING.acquire_many(kibibytes).await.ok()),
        _ => {
            let message = format!(
                "the answer holds so many values that decoding it needs {} MiB of memory, more than {} MiB",
                needed >> 10,
                ROOM >> 10
            );
            Err(not_understood(call, response, &message))
        }
    }
}

pub(crate) fn json<T: DeserializeOwned>(call: &Call, response: &Response<Bytes>) -> Result<T> {
    if content_type(response) != "application/json" {
        return Err(not_understood(call, response, &format!("{} instead of JSON", form_of(response))));
    }
    serde_json::from_slice(response.body()).map_err(|error| {
        let problem = match error.classify() {
            serde_json::error::Category::Data => "a value is missing or of another type than expected",
            serde_json::error::Category::Eof => "the JSON ends too early",
            serde_json::error::Category::Syntax | serde_json::error::Category::Io => "this is no JSON",
        };
        let cause = NotTheJson { problem, line: error.line(), column: error.column() };
        not_understood(call, response, &cause.to_string()).with_source(cause)
    })
}

/// MAAS reports success with an empty 204. A page with status 200 does not come from MAAS.
pub(crate) fn nothing(call: &Call, response: &Response<Bytes>) -> Result<()> {
    let empty = response.body().iter().all(u8::is_ascii_whitespace);
    if response.status() == StatusCode::NO_CONTENT || empty || content_type(response) == "application/json" {
        Ok(())
    } else {
        Err(not_understood(call, response, &format!("{} instead of nothing", form_of(response))))
    }
}

fn content_type(response: &Response<Bytes>) -> &str {
    let value = response.headers().get(header::CONTENT_TYPE).and_then(|value| value.to_str().ok()).unwrap_or("");
    value.split(';').next().unwrap_or("").trim()
}

fn form_of(response: &Response<Bytes>) -> &'static str {
    match content_type(response) {
        "text/html" => "a web page",
        "text/plain" => "text",
        "" => "something without a content type",
        _ => "something else",
    }
}

fn not_understood(call: &Call, response: &Response<Bytes>, message: &str) -> Error {
    // The status reports success, so a write has most probably had its effect.
    let effect = if call.asked().read_only { Effect::None } else { Effect::Unknown };
    Error::new(ErrorKind::NotUnderstood, call.operation, effect, message).with_status(response.status().as_u16())
}
