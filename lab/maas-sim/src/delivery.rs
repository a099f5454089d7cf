//! How answers reach clients: complete, truncated, or not at all.

use std::sync::Arc;

use axum::body::Body;
use bytes::Bytes;
use futures::StreamExt as _;
use http::{Response, StatusCode};

use crate::{
    http::{
        render,
        reply::{Reply, ReplyBody, pretty},
    },
    model::Model,
    sim::{ConnectionReset, Shared},
};

/// How an answer reaches the client.
pub(crate) enum Delivery {
    Whole(Reply),
    Truncated(Reply, Option<usize>),
    Reset,
}

/// Lists up to this length are rendered at once, under one lock.
const RENDERED_AT_ONCE: usize = 256;

/// The answer that a fault specifies.
pub(crate) fn made_up(status: u16, body: &str, content_type: Option<&str>, retry_after: Option<u32>) -> Reply {
    let mut reply = match content_type {
        Some("text/html") => Reply::nginx(status, body),
        _ => Reply::text(status, body),
    };
    if let Some(after) = retry_after {
        reply.headers.push(("retry-after", after.to_string()));
    }
    reply
}

/// A complete answer.
pub(crate) fn plain(shared: &Shared, reply: Reply) -> Response<Body> {
    reply.into_response(shared.config.version).map(Body::from)
}

/// Builds the response of a delivery.
pub(crate) fn deliver(shared: &Arc<Shared>, delivery: Delivery) -> Response<Body> {
    match delivery {
        Delivery::Whole(mut reply) => {
            if let ReplyBody::Machines(ids) = &reply.body {
                let ids = ids.clone();
                if ids.len() > RENDERED_AT_ONCE {
                    let stream = stream_machines(Arc::clone(shared), ids);
                    return reply.into_response(shared.config.version).map(|_| Body::from_stream(stream));
                }
                reply.body = ReplyBody::Bytes(render_machines(shared, &ids));
            }
            plain(shared, reply)
        }
        Delivery::Truncated(mut reply, bytes) => {
            if let ReplyBody::Machines(ids) = &reply.body {
                let ids = ids.clone();
                reply.body = ReplyBody::Bytes(render_machines(shared, &ids));
            }
            let response = reply.into_response(shared.config.version);
            let (mut parts, body) = response.into_parts();
            parts.headers.insert(http::header::CONTENT_LENGTH, http::HeaderValue::from(body.len()));
            let cut = bytes.unwrap_or(body.len() / 2).min(body.len());
            let begin = Bytes::from(body).slice(..cut);
            let broken = futures::stream::iter([Ok(begin), Err(std::io::Error::other("truncated by a fault"))]);
            Response::from_parts(parts, Body::from_stream(broken))
        }
        Delivery::Reset => {
            let broken = futures::stream::iter([Err::<Bytes, _>(std::io::Error::other("reset by a fault"))]);
            let mut response = Response::new(Body::from_stream(broken));
            *response.status_mut() = StatusCode::BAD_GATEWAY;
            response.extensions_mut().insert(ConnectionReset);
            response
        }
    }
}

fn render_one(model: &Model, id: &str) -> Option<Vec<u8>> {
    let machine = model.db.machines.get(id)?;
    let text = pretty(&render::machine::machine(model, machine));
    let mut out = Vec::with_capacity(text.len() + text.len() / 8);
    for line in text.split_inclusive(|byte| *byte == b'\n') {
        out.extend_from_slice(b"    ");
        out.extend_from_slice(line);
    }
    Some(out)
}

fn render_machines(shared: &Shared, ids: &[String]) -> Vec<u8> {
    let state = shared.lock();
    let parts: Vec<Vec<u8>> = ids.iter().filter_map(|id| render_one(&state.model, id)).collect();
    if parts.is_empty() {
        return b"[]".to_vec();
    }
    let mut out = b"[\n".to_vec();
    out.extend(parts.join(&b",\n"[..]));
    out.extend_from_slice(b"\n]");
    out
}

/// Renders a long list a few machines at a time, so that it is never in memory as a whole.
fn stream_machines(
    shared: Arc<Shared>,
    ids: Vec<String>,
) -> impl futures::Stream<Item = Result<Bytes, std::io::Error>> + Send + 'static {
    let chunks: Vec<Vec<String>> = ids.chunks(16).map(<[String]>::to_vec).collect();
    let opening = futures::stream::iter([Ok(Bytes::from_static(b"[\n"))]);
    let mut first = true;
    let middle = futures::stream::iter(chunks).map(move |chunk| {
        let state = shared.lock();
        let mut out = Vec::new();
        for part in chunk.iter().filter_map(|id| render_one(&state.model, id)) {
            if !first {
                out.extend_from_slice(b",\n");
            }
            first = false;
            out.extend(part);
        }
        Ok(Bytes::from(out))
    });
    opening.chain(middle).chain(futures::stream::iter([Ok(Bytes::from_static(b"\n]"))]))
}
