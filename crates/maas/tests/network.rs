//! The transport over real sockets, all on this machine.

#![allow(clippy::unwrap_used, clippy::expect_used, clippy::panic)]

mod common;

use std::process::Command;
use std::sync::Arc;

use common::KEY;
use common::server::{Server, http, http_json, install_cryptography};
use maas_client::transport::TransportError;
use maas_client::{Allocate, BuildError, Client, Effect, ErrorKind, RetryPolicy};
use rustls::pki_types::{PrivateKeyDer, PrivatePkcs8KeyDer};
use tokio::net::TcpListener;
use tokio_rustls::TlsAcceptor;

fn client(endpoint: &str) -> Client {
    install_cryptography();
    Client::builder(endpoint, KEY).retry(RetryPolicy::never()).build().unwrap()
}

#[tokio::test]
async fn go27_one_client_and_its_clones_keep_one_connection() {
    let server = Server::saying(http_json(r#"[{"name": "default"}]"#)).await;
    let client = client(&server.endpoint());
    assert_eq!(client.zones().list().await.unwrap()[0].name, "default");
    client.clone().zones().list().await.unwrap();
    client.tags().create("x", "").await.unwrap_err();
    assert_eq!(*server.connections.lock().unwrap(), 1);
    let requests = server.requests.lock().unwrap();
    assert!(requests[0].starts_with("GET /MAAS/api/2.0/zones/ HTTP/1.1\r\n"), "{}", requests[0]);
    assert!(requests[0].contains(&format!("host: {}", server.address)), "{}", requests[0]);
    assert!(requests[0].contains("user-agent: maas-client/"), "{}", requests[0]);
    assert!(requests[2].ends_with("\r\n\r\nname=x&comment="), "{}", requests[2]);
}

#[tokio::test]
async fn two_identities_share_no_connection() {
    let server = Server::saying(http_json("[]")).await;
    for _ in 0..2 {
        client(&server.endpoint()).zones().list().await.unwrap();
    }
    assert_eq!(*server.connections.lock().unwrap(), 2);
}

#[tokio::test]
async fn a_server_that_is_not_there_had_no_effect() {
    let listener = TcpListener::bind("127.0.0.1:0").await.unwrap();
    let endpoint = format!("http://{}/MAAS", listener.local_addr().unwrap());
    drop(listener);
    let error = client(&endpoint).machines().allocate(&Allocate::metal()).await.unwrap_err();
    assert_eq!((error.kind(), error.effect(), error.status()), (ErrorKind::Unreachable, Effect::None, None));
    assert!(error.to_string().contains("Connection refused"), "{error}");
}

#[tokio::test]
async fn an_answer_that_never_comes_or_breaks_off_leaves_the_effect_unknown() {
    let cut = "HTTP/1.1 200 OK\r\ncontent-type: application/json\r\ncontent-length: 100\r\n\r\n{\"system_id\":";
    for answer in ["", cut] {
        let server = Server::saying(answer).await;
        let error = client(&server.endpoint()).machines().allocate(&Allocate::metal()).await.unwrap_err();
        assert_eq!((error.kind(), error.effect()), (ErrorKind::Unreachable, Effect::Unknown), "{error}");
        assert_eq!(server.requests.lock().unwrap().len(), 1, "and it is not sent again");
    }
}

#[tokio::test]
async fn an_endless_answer_is_cut_short() {
    install_cryptography();
    let server = Server::saying(http_json(&format!("[{}]", " ".repeat(100_000)))).await;
    let client = Client::builder(&server.endpoint(), KEY).max_answer(10_000).build().unwrap();
    let error = client.zones().list().await.unwrap_err();
    assert_eq!(error.kind(), ErrorKind::NotUnderstood, "{error}");
    assert!(error.to_string().contains("longer than 10000 bytes"), "{error}");
}

#[tokio::test]
async fn a_redirect_is_not_followed() {
    let other = Server::saying(http_json("[]")).await;
    let answer = http(&format!("301 Moved\r\nlocation: {}/api/2.0/zones/", other.endpoint()), "");
    let server = Server::saying(answer).await;
    let error = client(&server.endpoint()).zones().list().await.unwrap_err();
    assert_eq!(error.kind(), ErrorKind::WrongEndpoint);
    assert!(other.requests.lock().unwrap().is_empty());
}

#[tokio::test]
async fn go23_a_certificate_is_verified_and_an_extra_authority_is_accepted() {
    install_cryptography();
    let rcgen::CertifiedKey { cert, signing_key } =
        rcgen::generate_simple_self_signed(["localhost".to_owned()]).unwrap();
    let key = PrivateKeyDer::Pkcs8(PrivatePkcs8KeyDer::from(signing_key.serialize_der()));
    let config = rustls::ServerConfig::builder().with_no_client_auth();
    let config = config.with_single_cert(vec![cert.der().clone()], key).unwrap();
    let server = Server::saying_encrypted(http_json("[]"), TlsAcceptor::from(Arc::new(config))).await;
    let endpoint = format!("https://localhost:{}/MAAS", server.address.port());

    let error = client(&endpoint).tags().create("x", "").await.unwrap_err();
    assert_eq!((error.kind(), error.effect()), (ErrorKind::Unreachable, Effect::None), "{error}");
    assert!(server.requests.lock().unwrap().is_empty(), "the key was not shown to a stranger");

    let trusting = Client::builder(&endpoint, KEY).certificate_authority(cert.pem()).build().unwrap();
    trusting.zones().list().await.unwrap();
}

#[test]
fn an_authority_that_is_no_certificate_is_refused_when_the_client_is_built() {
    install_cryptography();
    for pem in ["", "hello", "-----BEGIN CERTIFICATE-----\ngarbage\n-----END CERTIFICATE-----\n"] {
        let error = Client::builder("https://maas.test/MAAS", KEY).certificate_authority(pem).build().unwrap_err();
        assert!(
            matches!(error, BuildError::Transport(TransportError::CertificateAuthority(_) | TransportError::Http(_))),
            "{pem:?}: {error:?}"
        );
    }
}

/// Runs one test of this program again with another environment: that of a running process cannot be changed safely.
async fn again(test: &'static str, environment: Vec<(&'static str, String)>) {
    let run = move || Command::new(std::env::current_exe().unwrap()).args(["--exact", test]).envs(environment).output();
    let output = tokio::task::spawn_blocking(run).await.unwrap().unwrap();
    assert!(output.status.success(), "{}", String::from_utf8_lossy(&output.stdout));
    assert!(String::from_utf8_lossy(&output.stdout).contains("1 passed"), "no test of the name {test}");
}

#[tokio::test]
async fn an_image_without_certificates_can_still_speak_plain_http() {
    if std::env::var_os("MAAS_CLIENT_BARE").is_some() {
        let server = Server::saying(http_json("[]")).await;
        client(&server.endpoint()).zones().list().await.unwrap();
        let error = Client::builder("https://maas.test/MAAS", KEY).build().unwrap_err();
        assert!(error.to_string().contains("install them (ca-certificates)"), "{error}");
        return;
    }
    let nothing = || "/dev/null".to_owned();
    let environment =
        vec![("MAAS_CLIENT_BARE", String::new()), ("SSL_CERT_FILE", nothing()), ("SSL_CERT_DIR", nothing())];
    again("an_image_without_certificates_can_still_speak_plain_http", environment).await;
}

#[tokio::test]
async fn the_proxy_of_the_environment_is_used() {
    if std::env::var_os("MAAS_CLIENT_PROXIED").is_some() {
        client("http://maas.invalid:5240/MAAS").zones().list().await.unwrap();
        return;
    }
    let proxy = Server::saying(http_json("[]")).await;
    let address = || format!("http://{}", proxy.address);
    let environment = vec![
        ("MAAS_CLIENT_PROXIED", String::new()),
        ("http_proxy", address()),
        ("HTTP_PROXY", address()),
        ("no_proxy", String::new()),
        ("NO_PROXY", String::new()),
    ];
    again("the_proxy_of_the_environment_is_used", environment).await;
    let requests = proxy.requests.lock().unwrap();
    assert!(requests[0].starts_with("GET http://maas.invalid:5240/MAAS/api/2.0/zones/ HTTP/1.1"), "{requests:?}");
}
