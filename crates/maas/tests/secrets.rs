//! No secret in anything that a user or a log may see, whatever the server answers.

#![allow(clippy::unwrap_used, clippy::expect_used, clippy::panic)]

mod common;

use std::io::Write;
use std::sync::{Arc, Mutex};

use bytes::Bytes;
use common::{KEY, builder};
use http::{Request, Response};
use maas_client::transport::{BoxError, Transport};
use maas_client::{
    ApiKey, Client, Deploy, NewVmHost, RetryPolicy, SecretString, VmHostAuth, VmHostParameters, VmHostUpdate,
};
use tower::util::BoxCloneSyncService;
use tracing_subscriber::fmt::MakeWriter;

/// Part of every secret, so that any leaked part of one is found.
const CANARY: &str = "canary";

const PRIVATE_KEY: &str =
    "-----BEGIN PRIVATE KEY-----\ncanarycanarycanary1\ncanarycanarycanary2\n-----END PRIVATE KEY-----\n";

/// Echoes everything: header, path and body, as text, as form errors, as a page, as JSON of the wrong type.
fn echoing(status: u16, content_type: &'static str) -> Transport {
    BoxCloneSyncService::new(tower::service_fn(move |request: Request<Bytes>| async move {
        let heard = format!(
            "{} {} {}",
            request.uri(),
            request.headers()["authorization"].to_str().unwrap(),
            String::from_utf8_lossy(request.body())
        );
        let form: Vec<String> =
            form_urlencoded::parse(request.body()).map(|(key, value)| format!("{key} {value}")).collect();
        let all = format!("{heard} {}", form.join(" "));
        let body = match content_type {
            "application/json" => serde_json::json!({"__all__": [all], "id": all, "system_id": 3}).to_string(),
            "text/html" => format!("<title>{all}</title>{all}"),
            _ => all,
        };
        let response = Response::builder().status(status).header("content-type", content_type).header("x-echo", "1");
        Ok::<_, BoxError>(response.body(Bytes::from(body)).unwrap())
    }))
}

#[derive(Clone, Default)]
struct Log(Arc<Mutex<Vec<u8>>>);

impl Write for Log {
    fn write(&mut self, bytes: &[u8]) -> std::io::Result<usize> {
        self.0.lock().unwrap().extend_from_slice(bytes);
        Ok(bytes.len())
    }

    fn flush(&mut self) -> std::io::Result<()> {
        Ok(())
    }
}

impl<'a> MakeWriter<'a> for Log {
    type Writer = Self;

    fn make_writer(&'a self) -> Self {
        self.clone()
    }
}

/// Everything that can be printed about an error.
fn printed(error: &maas_client::Error) -> String {
    let mut texts = vec![format!("{error} {error:?} {error:#?} {}", error.message())];
    let mut source = std::error::Error::source(error);
    while let Some(cause) = source {
        texts.push(format!("{cause} {cause:?}"));
        source = cause.source();
    }
    texts.join(" ")
}

fn outcome<T: std::fmt::Debug>(result: maas_client::Result<T>) -> String {
    result.map_or_else(|error| printed(&error), |value| format!("{value:?}"))
}

async fn say_every_secret(client: &Client) -> String {
    let host = |auth| NewVmHost::new("host-a", "10.0.0.1:8443", "maas", auth);
    let password = host(VmHostAuth::Password("canary pass&word".into()));
    let deploy = Deploy { user_data: Some(b"#cloud-config canary".to_vec().into()), ..Deploy::default() };
    let mut said = format!("{client:?} {password:?} {deploy:?}");
    said += &outcome(client.machines().deploy("abc123", &deploy).await);
    said += &outcome(client.vm_hosts().create(&password).await);
    said += &outcome(client.vm_hosts().parameters(1).await);
    said += &outcome(client.whoami().await);
    said
}

#[tokio::test(flavor = "current_thread", start_paused = true)]
async fn s21_a_server_that_repeats_everything_gets_no_secret_out() {
    let log = Log::default();
    let subscriber = tracing_subscriber::fmt().with_max_level(tracing::Level::TRACE).with_writer(log.clone()).finish();
    // For all threads: otherwise a log callsite that another test reaches first would be disabled for good.
    tracing::subscriber::set_global_default(subscriber).unwrap();
    for status in [200, 204, 400, 401, 403, 404, 409, 410, 413, 429, 500, 502, 503, 504] {
        for content_type in ["text/plain", "text/html", "application/json", "application/octet-stream"] {
            let client = builder(echoing(status, content_type)).retry(RetryPolicy::never()).build().unwrap();
            let said = say_every_secret(&client).await;
            assert!(!said.contains(CANARY), "{status} {content_type}: {said}");
            // The user data as sent.
            assert!(!said.contains("I2Nsb3VkLWNvbmZpZyBjYW5hcnk"), "{status} {content_type}: {said}");
        }
    }
    let log = String::from_utf8(log.0.lock().unwrap().clone()).unwrap();
    assert!(log.contains("asked MAAS"), "the log is at work");
    assert!(!log.contains(CANARY), "{log}");
}

#[tokio::test(start_paused = true)]
async fn s21_a_private_key_is_hidden_line_by_line() {
    // First the version, then the host.
    let answers = BoxCloneSyncService::new(tower::service_fn(|request: Request<Bytes>| async move {
        let (status, kind, body) = if request.uri().path().ends_with("/version/") {
            (200, "application/json", r#"{"version": "3.4.10"}"#.to_owned())
        } else {
            (500, "text/plain", format!("Invalid PEM material: canarycanarycanary2 in {PRIVATE_KEY}"))
        };
        Ok::<_, BoxError>(Response::builder().status(status).header("content-type", kind).body(body.into()).unwrap())
    }));
    let auth = VmHostAuth::Certificate { certificate: "CERT".to_owned(), key: PRIVATE_KEY.into() };
    let host = NewVmHost::new("host-a", "10.0.0.1:8443", "maas", auth);
    let client = builder(answers).build().unwrap();
    let error = client.vm_hosts().create(&host).await.unwrap_err();
    let said = format!("{} {host:?}", printed(&error));
    assert!(said.contains("Invalid PEM material") && !said.contains(CANARY), "{said}");
    let update = VmHostUpdate { key: Some(PRIVATE_KEY.into()), ..VmHostUpdate::default() };
    let error = client.vm_hosts().update(1, &update).await.unwrap_err();
    let said = format!("{} {update:?}", printed(&error));
    assert!(said.contains("Invalid PEM material") && !said.contains(CANARY), "{said}");
}

#[test]
fn s21_what_maas_tells_about_a_vm_host_prints_without_its_key() {
    let parameters: VmHostParameters =
        serde_json::from_str(r#"{"power_address": "a", "key": "canary", "password": "canary", "certificate": "c"}"#)
            .unwrap();
    let said = format!("{parameters:?} {parameters:#?}");
    assert!(parameters.key.is_some() && !said.contains(CANARY), "{said}");
}

#[test]
fn s21_neither_keys_nor_builders_print_what_they_hold() {
    let key: ApiKey = KEY.parse().unwrap();
    let builder = Client::builder("http://maas.test/MAAS", KEY);
    let bad = Client::builder("http://maas.test/MAAS", "canary:canary").build().unwrap_err();
    let secret: SecretString = "canary".into();
    let said = format!("{key:?} {builder:?} {bad} {bad:?} {secret:?}");
    assert!(!said.contains(CANARY), "{said}");
}
