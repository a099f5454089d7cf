//! How the client handles answers that LXD 5.0.2 does not produce by itself: newer versions, restarts, other services
//! on the port.
#![allow(clippy::unwrap_used, clippy::expect_used, clippy::panic)]

use std::{
    sync::{
        Arc,
        atomic::{AtomicUsize, Ordering},
    },
    time::Duration,
};

use bytes::Bytes;
use http::{Method, Request, Response};
use lxd_client::{
    Advice, BoxError, Client, Deadlines, ErrorKind, Fingerprint, Identity, NewStoragePool, Transport, TransportError,
};
use proptest::prelude::*;
use serde_json::{Value, json};
use tower::util::BoxCloneSyncService;

fn daemon(
    answer: impl Fn(&Request<Bytes>) -> Result<Response<Bytes>, BoxError> + Clone + Send + Sync + 'static,
) -> Client {
    let transport: Transport = BoxCloneSyncService::new(tower::service_fn(move |request: Request<Bytes>| {
        let answer = answer.clone();
        async move { answer(&request) }
    }));
    Client::with_transport(transport)
}

#[allow(clippy::unnecessary_wraps)] // the shape of every answer here
fn says(status: u16, body: &Value) -> Result<Response<Bytes>, BoxError> {
    Ok(Response::builder().status(status).body(Bytes::from(body.to_string())).unwrap())
}

fn sync(metadata: &Value) -> Value {
    json!({"type": "sync", "status": "Success", "status_code": 200, "operation": "", "error_code": 0, "error": "", "metadata": metadata})
}

const OPERATION: &str = "/1.0/operations/3f2c";

fn operation(code: u16, err: &str) -> Value {
    json!({"id": "3f2c", "class": "task", "description": "Creating storage pool", "status_code": code, "err": err, "metadata": null})
}

fn accepted() -> Value {
    json!({"type": "async", "status_code": 100, "operation": format!("{OPERATION}?project=maas"), "metadata": operation(103, "")})
}

async fn create_pool(lxd: &Client) -> lxd_client::Mutated {
    lxd.create_storage_pool(&NewStoragePool { name: "p".into(), driver: "dir".into(), ..Default::default() }).await
}

/// LXD from 6.8 on creates pools in the background; this one ends after `rounds` waits with `end`.
fn background(rounds: usize, end: Value) -> Client {
    let asked = Arc::new(AtomicUsize::new(0));
    daemon(move |request| {
        if request.method() == Method::POST {
            return says(202, &accepted());
        }
        assert_eq!(request.uri().path(), format!("{OPERATION}/wait"));
        let ended = asked.fetch_add(1, Ordering::SeqCst) >= rounds;
        says(200, &sync(&if ended { end.clone() } else { operation(103, "") }))
    })
}

#[tokio::test]
async fn a_create_in_the_background_is_awaited_and_succeeds() {
    let done = create_pool(&background(3, operation(200, ""))).await.unwrap();
    assert_eq!(done.unwrap().id, "3f2c");
}

#[tokio::test]
async fn a_create_in_the_background_that_fails_is_a_failure_with_its_text() {
    let error = create_pool(&background(1, operation(400, "mkfs\nfailed"))).await.unwrap_err();
    assert_eq!(error.to_string(), "POST /1.0/storage-pools: the operation failed: mkfs failed");
    assert_eq!(error.advice(), Advice::ReadAgain);
}

#[tokio::test]
async fn a_cancelled_operation_is_told_from_a_failed_one() {
    let error = create_pool(&background(0, operation(401, ""))).await.unwrap_err();
    assert!(matches!(error.kind(), ErrorKind::OperationCancelled(_)));
}

#[tokio::test]
async fn an_operation_status_of_the_future_is_neither_success_nor_failure() {
    let error = create_pool(&background(0, operation(777, ""))).await.unwrap_err();
    assert!(matches!(error.kind(), ErrorKind::NotUnderstood(_)), "{error}");
    assert_eq!(error.advice(), Advice::ReadAgain);
}

#[tokio::test(start_paused = true)]
async fn an_operation_that_outlives_the_deadline_is_reported_as_still_running() {
    let answer = |request: &Request<Bytes>| match request.method() {
        &Method::POST => says(202, &accepted()),
        _ => says(200, &sync(&operation(103, ""))),
    };
    // The real daemon blocks a wait for its timeout; this one must too, or the paused clock would never advance.
    let transport: Transport = BoxCloneSyncService::new(tower::service_fn(move |request: Request<Bytes>| async move {
        if request.method() == Method::GET {
            tokio::time::sleep(Duration::from_secs(20)).await;
        }
        answer(&request)
    }));
    let error = create_pool(&Client::with_transport(transport)).await.unwrap_err();
    assert_eq!(error.kind(), &ErrorKind::OperationStillRunning("3f2c".into()));
    assert_eq!(error.advice(), Advice::ReadAgain);
}

#[tokio::test]
async fn an_operation_that_lxd_forgot_has_an_unknown_outcome() {
    let lxd = daemon(|request| match request.method() {
        &Method::POST => says(202, &accepted()),
        _ => says(404, &json!({"type": "error", "error_code": 404, "error": "Operation not found"})),
    });
    let error = create_pool(&lxd).await.unwrap_err();
    assert_eq!(error.kind(), &ErrorKind::OperationLost("3f2c".into()));
    assert_eq!(error.advice(), Advice::ReadAgain);
}

#[tokio::test]
async fn a_daemon_that_restarts_during_an_operation_leaves_its_outcome_unknown() {
    let lxd = daemon(|request| match request.method() {
        &Method::POST => says(202, &accepted()),
        _ => Err(TransportError::NotConnected("Connection refused".into()).into()),
    });
    assert!(matches!(create_pool(&lxd).await.unwrap_err().kind(), ErrorKind::OperationLost(_)));
}

#[tokio::test(start_paused = true)]
async fn a_silent_daemon_costs_the_deadline_and_no_more() {
    let transport: Transport = BoxCloneSyncService::new(tower::service_fn(|_: Request<Bytes>| {
        std::future::pending::<Result<Response<Bytes>, BoxError>>()
    }));
    let lxd = Client::with_transport(transport)
        .with_deadlines(Deadlines { read: Duration::from_secs(30), write: Duration::from_secs(60) });
    let start = tokio::time::Instant::now();
    let error = lxd.server().await.unwrap_err();
    assert!(matches!(error.kind(), ErrorKind::AnswerLost(_)));
    assert_eq!(start.elapsed().as_secs(), 30);
    assert_eq!(create_pool(&lxd).await.unwrap_err().advice(), Advice::ReadAgain);
    assert_eq!(start.elapsed().as_secs(), 90);
}

#[tokio::test]
async fn s01_a_404_that_is_not_lxds_own_is_no_proof_of_absence() {
    let stranger = daemon(|_| Ok(Response::builder().status(404).body(Bytes::from("<html>nginx</html>")).unwrap()));
    let error = stranger.storage_pool("p").await.unwrap_err();
    assert!(matches!(error.kind(), ErrorKind::NotUnderstood(_)), "{error}");
}

#[tokio::test]
async fn s01_a_list_of_another_shape_is_an_error_and_not_an_empty_list() {
    for odd in [json!({"vm": 1}), json!("none"), json!(0), json!([1, 2])] {
        let lxd = daemon(move |_| says(200, &sync(&odd)));
        assert!(lxd.instances("maas").await.is_err());
    }
    let empty = daemon(|_| says(200, &sync(&Value::Null)));
    assert!(empty.instances("maas").await.unwrap().is_empty(), "null is how Go writes an empty list");
}

#[tokio::test]
async fn a_starting_or_stopping_daemon_is_not_a_verdict_on_the_request() {
    for (code, text) in [
        (503, "LXD daemon setup in progress"),
        (503, "LXD is shutting down"),
        (500, "Failed to begin transaction: sql: database is closed"),
    ] {
        let lxd = daemon(move |_| says(code, &json!({"type": "error", "error_code": code, "error": text})));
        assert!(matches!(lxd.server().await.unwrap_err().kind(), ErrorKind::Busy(_)), "{text}");
    }
    let verdict = daemon(|_| says(500, &json!({"type": "error", "error_code": 500, "error": "Unknown driver"})));
    assert!(matches!(create_pool(&verdict).await.unwrap_err().kind(), ErrorKind::Failed { code: 500, .. }));
}

#[tokio::test]
async fn a_missing_socket_means_that_nothing_was_sent() {
    let folder = tempfile::tempdir().unwrap();
    let error = Client::unix(folder.path().join("unix.socket")).unwrap().server().await.unwrap_err();
    assert_eq!((error.kind(), error.advice()), (&ErrorKind::NotConnected, Advice::TryLater));
    let cause = std::error::Error::source(&error).unwrap().to_string();
    assert!(cause.contains("No such file"), "{cause}");
}

#[test]
fn an_address_that_is_no_https_address_is_refused_with_an_example() {
    let pin = Fingerprint::of_der(b"x");
    for wrong in ["", "192.0.2.1:8443", "http://192.0.2.1:8443", "https://"] {
        let error = Client::tls(wrong, pin, None).unwrap_err();
        assert!(error.to_string().contains("https://192.0.2.1:8443"), "{error}");
    }
}

#[test]
fn s21_a_private_key_shows_up_in_no_text() {
    let canary = "-----BEGIN PRIVATE KEY-----\nCANARYCANARY\n-----END PRIVATE KEY-----\n";
    let pair = rcgen::generate_simple_self_signed(["x".to_owned()]).unwrap();
    let identity = Identity::new(pair.cert.pem(), canary.to_owned().into());
    let error = Client::tls("https://127.0.0.1:1", Fingerprint::of_der(b"x"), Some(&identity)).unwrap_err();
    let mut texts = vec![format!("{identity:?}"), format!("{error} {error:?}")];
    let fitting = Identity::new(pair.cert.pem(), pair.signing_key.serialize_pem().into());
    texts.push(format!(
        "{fitting:?} {:?}",
        Client::tls("https://127.0.0.1:1", Fingerprint::of_der(b"x"), Some(&fitting)).unwrap()
    ));
    for text in texts {
        assert!(!text.contains("CANARY") && !text.contains("PRIVATE KEY"), "{text}");
    }
}

proptest! {
    #[test]
    fn no_answer_whatever_makes_the_client_panic(status in 200u16..600, body in prop::collection::vec(any::<u8>(), 0..200)) {
        let runtime = tokio::runtime::Builder::new_current_thread().enable_time().build().unwrap();
        runtime.block_on(async {
            let lxd = daemon(move |_| Ok(Response::builder().status(status).body(Bytes::from(body.clone())).unwrap()));
            let _ = lxd.server().await;
            let _ = create_pool(&lxd).await;
            let _ = lxd.instances("maas").await;
        });
    }

    #[test]
    fn names_stay_one_segment_of_the_path(name in "\\PC{1,20}") {
        let runtime = tokio::runtime::Builder::new_current_thread().enable_time().build().unwrap();
        runtime.block_on(async {
            let lxd = daemon(|request| {
                assert_eq!(request.uri().path().matches('/').count(), 3, "{}", request.uri());
                assert!(request.uri().query().is_none());
                says(404, &json!({"type": "error", "error_code": 404, "error": "Storage pool not found"}))
            });
            assert!(lxd.storage_pool(&name).await.unwrap().is_none());
        });
    }
}
