//! Shared by the tests: stand-in servers, a fixed environment, and the recordings.

#![allow(dead_code, unreachable_pub, reason = "each test program uses a part of this")]

pub mod recordings;
pub mod server;

use std::collections::VecDeque;
use std::sync::{Arc, Mutex};

use bytes::Bytes;
use http::{Request, Response};
use maas_client::transport::{BoxError, Transport};
use maas_client::{Client, ClientBuilder, Environment};
use tower::util::BoxCloneSyncService;

pub const ENDPOINT: &str = "http://maas.test:5240/MAAS";
pub const KEY: &str = "canaryconsumer:canarytoken:canarysecret";

/// An answer with a content type.
pub fn answer(status: u16, content_type: &str, body: impl Into<Bytes>) -> Response<Bytes> {
    Response::builder().status(status).header("content-type", content_type).body(body.into()).unwrap()
}

pub fn json(body: &str) -> Response<Bytes> {
    answer(200, "application/json; charset=utf-8", body.to_owned())
}

pub fn text(status: u16, body: &str) -> Response<Bytes> {
    answer(status, "text/plain; charset=utf-8", body.to_owned())
}

pub fn page(status: u16, title: &str) -> Response<Bytes> {
    answer(status, "text/html", format!("<html><head><title>{title}</title></head></html>"))
}

pub fn with_header(mut response: Response<Bytes>, name: &'static str, value: &str) -> Response<Bytes> {
    response.headers_mut().insert(name, value.parse().unwrap());
    response
}

/// A request as it arrived.
#[derive(Debug, Clone)]
pub struct Seen {
    pub method: String,
    pub uri: String,
    pub authorization: String,
    pub content_type: Option<String>,
    pub body: String,
}

impl Seen {
    pub fn nonce(&self) -> String {
        let (_, rest) = self.authorization.split_once("oauth_nonce=\"").unwrap();
        rest.split_once('"').unwrap().0.to_owned()
    }
}

type Answers = VecDeque<Result<Response<Bytes>, String>>;

/// A server that answers from a list, in order, and then repeats the last answer.
#[derive(Clone)]
pub struct Script {
    answers: Arc<Mutex<Answers>>,
    seen: Arc<Mutex<Vec<Seen>>>,
}

impl Script {
    pub fn new(answers: impl IntoIterator<Item = Response<Bytes>>) -> Self {
        Self::with_failures(answers.into_iter().map(Ok))
    }

    /// An `Err` represents a failed exchange.
    pub fn with_failures(answers: impl IntoIterator<Item = Result<Response<Bytes>, &'static str>>) -> Self {
        let answers = answers.into_iter().map(|answer| answer.map_err(str::to_owned)).collect();
        Self { answers: Arc::new(Mutex::new(answers)), seen: Arc::default() }
    }

    pub fn transport(&self) -> Transport {
        let this = self.clone();
        BoxCloneSyncService::new(tower::service_fn(move |request: Request<Bytes>| {
            this.seen.lock().unwrap().push(seen(&request));
            let mut answers = this.answers.lock().unwrap();
            let answer = if answers.len() > 1 { answers.pop_front() } else { answers.front().cloned() };
            let answer = answer.expect("the script has an answer").map_err(BoxError::from);
            async move { answer }
        }))
    }

    pub fn seen(&self) -> Vec<Seen> {
        self.seen.lock().unwrap().clone()
    }

    pub fn client(&self) -> Client {
        builder(self.transport()).build().unwrap()
    }
}

pub fn seen(request: &Request<Bytes>) -> Seen {
    let header = |name| request.headers().get(name).map(|value| value.to_str().unwrap().to_owned());
    Seen {
        method: request.method().to_string(),
        uri: request.uri().to_string(),
        authorization: header("authorization").unwrap_or_default(),
        content_type: header("content-type"),
        body: String::from_utf8(request.body().to_vec()).unwrap(),
    }
}

pub fn builder(transport: Transport) -> ClientBuilder {
    Client::builder(ENDPOINT, KEY).transport(transport).environment(Counting::default())
}

/// A fixed time, and random numbers that count: 1, 2, 3, …
#[derive(Default)]
pub struct Counting(Mutex<u128>);

impl Environment for Counting {
    fn unix_seconds(&self) -> u64 {
        1_794_767_160
    }

    fn random(&self) -> u128 {
        let mut number = self.0.lock().unwrap();
        *number += 1;
        *number
    }
}
