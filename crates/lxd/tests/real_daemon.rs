//! The client against a real LXD.
#![allow(clippy::unwrap_used, clippy::expect_used, clippy::panic)]

use capmaas_testbed::{LxdDaemon, LxdOptions};
use http::Method;
use lxd_client::{Advice, Client, ErrorKind, Fingerprint, Identity, NewCertificate, NewStoragePool};
use serde_json::json;

async fn daemon() -> (LxdDaemon, Client) {
    let daemon = LxdDaemon::start(LxdOptions { host_network: true, ..LxdOptions::default() }).await.unwrap();
    let client = Client::unix(daemon.socket()).unwrap();
    (daemon, client)
}

/// A loopback address that only this test process uses.
fn address(number: u8) -> String {
    let [high, low] = u16::try_from(std::process::id() % 65_000).unwrap().to_be_bytes();
    format!("127.{}.{}.{number}:8443", high.max(1), low.max(1))
}

fn pool() -> NewStoragePool {
    NewStoragePool { name: "default".into(), driver: "dir".into(), ..Default::default() }
}

#[tokio::test]
async fn a_server_says_what_it_is_and_a_virtual_machine_lives_through_operations() {
    let (_daemon, lxd) = daemon().await;
    let server = lxd.server().await.unwrap();
    assert!(server.is_trusted() && server.supports_virtual_machines() && server.supports_storage("dir"));
    lxd.create_storage_pool(&pool()).await.unwrap();
    assert_eq!(lxd.storage_pool("default").await.unwrap().unwrap().status, "Created");

    let vm = json!({
        "name": "vm1", "type": "virtual-machine", "source": {"type": "none"}, "profiles": [],
        "config": {"limits.cpu": "1"},
        "devices": {"root": {"type": "disk", "path": "/", "pool": "default", "size": "100000000"}},
    });
    let done = lxd.mutate(Method::POST, "/1.0/instances", Some(&vm)).await.unwrap();
    assert!(done.is_some(), "LXD makes instances in the background");
    assert_eq!(lxd.instance("default", "vm1").await.unwrap().unwrap().status, "Stopped");

    let again = lxd.mutate(Method::POST, "/1.0/instances", Some(&vm)).await.unwrap_err();
    assert!(matches!(again.kind(), ErrorKind::OperationFailed(_)), "accepted, and failed in the background: {again}");
    assert_eq!(again.advice(), Advice::ReadAgain);
    let stop = json!({"action": "stop", "timeout": 30, "force": true});
    let stopped = lxd.mutate(Method::PUT, "/1.0/instances/vm1/state", Some(&stop)).await.unwrap_err();
    assert!(stopped.to_string().contains("already stopped"), "{stopped}");

    lxd.mutate(Method::DELETE, "/1.0/instances/vm1", None::<&()>).await.unwrap();
    assert_eq!(lxd.instance("default", "vm1").await.unwrap(), None);
}

#[tokio::test]
async fn over_tls_the_pin_decides_who_is_spoken_to_and_the_certificate_who_speaks() {
    let (_daemon, lxd) = daemon().await;
    let at = address(1);
    let listen = json!({"config": {"core.https_address": at}});
    lxd.mutate(Method::PATCH, "/1.0", Some(&listen)).await.unwrap();
    let pin: Fingerprint = lxd.server().await.unwrap().environment.certificate_fingerprint.parse().unwrap();
    let pair = rcgen::generate_simple_self_signed(["client".to_owned()]).unwrap();
    let identity = Identity::new(pair.cert.pem(), pair.signing_key.serialize_pem().into());
    let url = format!("https://{at}");

    let other = Fingerprint::of_der(b"another certificate");
    let error = Client::tls(&url, other, Some(&identity)).unwrap().server().await.unwrap_err();
    assert_eq!(error.kind(), &ErrorKind::WrongServer { expected: other, found: pin });

    assert!(!Client::tls(&url, pin, None).unwrap().server().await.unwrap().is_trusted());
    let remote = Client::tls(&url, pin, Some(&identity)).unwrap();
    assert!(!remote.server().await.unwrap().is_trusted());
    let trust = NewCertificate { name: "client".into(), certificate_pem: pair.cert.pem(), projects: None };
    lxd.trust_certificate(&trust).await.unwrap();
    assert!(remote.server().await.unwrap().is_trusted());
    let trusted = lxd.certificate(identity.fingerprint().unwrap()).await.unwrap().unwrap();
    assert!(!trusted.restricted && trusted.name == "client");
    remote.create_storage_pool(&pool()).await.unwrap();

    let nobody = Client::tls(&format!("https://{}", address(2)), pin, None).unwrap().server().await.unwrap_err();
    assert_eq!(nobody.kind(), &ErrorKind::NotConnected);
}

#[tokio::test]
async fn a_daemon_that_dies_is_away_and_one_that_returns_is_found_by_the_same_client() {
    let (mut daemon, lxd) = daemon().await;
    lxd.create_storage_pool(&pool()).await.unwrap();
    daemon.kill();
    let error = lxd.server().await.unwrap_err();
    assert_eq!((error.kind(), error.advice()), (&ErrorKind::NotConnected, Advice::TryLater), "{error}");
    daemon.restart().await.unwrap();
    assert_eq!(lxd.storage_pool("default").await.unwrap().unwrap().status, "Created");
}

#[tokio::test]
async fn what_exists_already_is_told_by_reading_and_not_by_the_error() {
    let (_daemon, lxd) = daemon().await;
    lxd.create_storage_pool(&pool()).await.unwrap();
    let again = lxd.create_storage_pool(&pool()).await.unwrap_err();
    assert_eq!(again.advice(), Advice::ReadAgain, "{again}");
    let other = NewStoragePool { driver: "btrfs".into(), config: [("size".into(), "1GiB".into())].into(), ..pool() };
    assert_eq!(lxd.create_storage_pool(&other).await.unwrap_err().advice(), Advice::ReadAgain);
    assert_eq!(lxd.storage_pool("default").await.unwrap().unwrap().driver, "dir");
}
