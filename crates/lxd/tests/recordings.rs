//! The client processes every recorded answer of a real LXD 5.0.2 as if that daemon answered now.
#![allow(clippy::unwrap_used, clippy::expect_used, clippy::panic)]

use std::{collections::BTreeSet, sync::Arc};

use bytes::Bytes;
use http::{Method, Request, Response};
use lxd_client::{Advice, BoxError, Client, ErrorKind, Fingerprint, Transport};
use serde_json::Value;
use tower::util::BoxCloneSyncService;

struct Recording {
    name: String,
    request: Value,
    response: Value,
    wait: Option<Value>,
}

fn recordings() -> Vec<Recording> {
    include_str!("fixtures/lxd-5.0.2.jsonl")
        .lines()
        .map(|line| {
            let mut line: Value = serde_json::from_str(line).unwrap();
            Recording {
                name: line["name"].as_str().unwrap().to_owned(),
                request: line["request"].take(),
                response: line["response"].take(),
                wait: line.get("wait").map(|wait| wait["response"].clone()).filter(|wait| !wait.is_null()),
            }
        })
        .collect()
}

fn named(name: &str) -> Recording {
    recordings().into_iter().find(|recording| recording.name == name).unwrap_or_else(|| panic!("no recording {name}"))
}

fn answer(recorded: &Value) -> Response<Bytes> {
    let mut answer = Response::builder().status(u16::try_from(recorded["status"].as_u64().unwrap()).unwrap());
    for (name, value) in recorded["headers"].as_object().into_iter().flatten() {
        answer = answer.header(name, value.as_str().unwrap_or_default());
    }
    let body = match &recorded["body"] {
        Value::String(text) => text.clone(),
        body => body.to_string(),
    };
    answer.body(Bytes::from(body)).unwrap()
}

/// A client whose daemon returns this recorded answer, and for a wait for an operation the recorded outcome.
fn replay(recording: Recording) -> Client {
    let recording = Arc::new(recording);
    let transport: Transport = BoxCloneSyncService::new(tower::service_fn(move |request: Request<Bytes>| {
        let recording = Arc::clone(&recording);
        async move {
            let waits = request.uri().path().ends_with("/wait") && recording.wait.is_some();
            let recorded = if waits { recording.wait.as_ref().unwrap() } else { &recording.response };
            Ok::<_, BoxError>(answer(recorded))
        }
    }));
    Client::with_transport(transport)
}

#[tokio::test(start_paused = true)]
async fn every_recorded_answer_is_understood_for_what_it_is() {
    let mut kinds = BTreeSet::new();
    for recording in recordings() {
        let (name, status) = (recording.name.clone(), recording.response["status"].as_u64().unwrap());
        let path = recording.request["path"].as_str().unwrap().to_owned();
        let method: Method = recording.request["method"].as_str().unwrap().parse().unwrap();
        let outcome = recording.wait.as_ref().map(|wait| wait["body"]["metadata"]["status_code"].as_u64());
        let open = recording.wait.is_none() && recording.response["body"]["type"] == "async";
        let token = recording.response["body"]["metadata"]["class"] == "token";
        let body = recording.request["body"].clone();
        let lxd = replay(recording);
        let result = if method == Method::GET {
            lxd.get::<Value>(&path).await.map(drop)
        } else {
            lxd.mutate(method, &path, Some(&body)).await.map(drop)
        };
        match (&result, status) {
            // Answers whose operation's end was not recorded: the wait gets the same asynchronous answer again.
            (result, 202) if open && !token => assert!(result.is_err(), "{name}: {result:?}"),
            (Ok(()), 200..=202) => assert!(matches!(outcome, None | Some(Some(200))), "{name}: {outcome:?}"),
            (Err(error), 202) => {
                assert!(matches!(error.kind(), ErrorKind::OperationFailed(_)), "{name}: {error}");
                assert_eq!(outcome, Some(Some(400)), "{name}");
            }
            (Err(error), 400..) => {
                assert!(!error.to_string().is_empty());
                kinds.insert(format!("{:?}", error.kind()).split(['(', ' ']).next().unwrap().to_owned());
            }
            (result, status) => panic!("{name}: HTTP {status} became {result:?}"),
        }
    }
    let seen: Vec<&str> = kinds.iter().map(String::as_str).collect();
    assert_eq!(
        seen,
        ["Changed", "Conflict", "Denied", "Failed", "Invalid", "NotFound", "NotUnderstood", "Unsupported"]
    );
}

#[tokio::test]
async fn the_server_answer_says_what_an_initializer_needs() {
    let server = replay(named("002-get-1.0-trusted-unix")).server().await.unwrap();
    assert!(server.is_trusted() && server.environment.server == "lxd" && !server.environment.server_clustered);
    assert_eq!(server.environment.server_version, "5.0.2");
    assert!(server.has_extension("custom_block_volumes") && !server.has_extension("nonsense"));
    assert!(server.supports_storage("btrfs") && !server.supports_storage("zfs"));
    assert!(!server.supports_virtual_machines());
    assert!(replay(named("401-get-1.0-vm-operational")).server().await.unwrap().supports_virtual_machines());
    let print: Fingerprint = server.environment.certificate_fingerprint.parse().unwrap();
    assert_eq!(Fingerprint::of_pem(&server.environment.certificate).unwrap(), print);
}

#[tokio::test]
async fn a_stranger_sees_that_it_is_not_trusted_and_nothing_else() {
    let server = replay(named("021-get-1.0-untrusted-nocert")).server().await.unwrap();
    assert!(!server.is_trusted());
    assert!(server.config.is_none() && server.environment.server_version.is_empty());
    let refused = replay(named("024-untrusted-certificates-get-403")).certificates().await.unwrap_err();
    assert!(matches!(refused.kind(), ErrorKind::Denied(_)));
    assert_eq!(refused.advice(), Advice::ChangeSomething);
}

#[tokio::test]
async fn a_restricted_client_gets_no_configuration_rather_than_an_empty_one() {
    let server = replay(named("060-restricted-get-1.0")).server().await.unwrap();
    assert!(server.is_trusted() && server.config.is_none());
}

#[tokio::test]
async fn a_set_trust_password_is_visible_although_its_value_is_no_text() {
    let server = replay(named("034-get-1.0-trusted-tls")).server().await.unwrap();
    assert_eq!(server.setting("core.trust_password"), Some("true"));
}

#[tokio::test]
async fn a_pool_that_exists_is_not_yet_a_pool_that_works() {
    let pool = replay(named("101-pool-dir-get")).storage_pool("default").await.unwrap().unwrap();
    assert_eq!((pool.status.as_str(), pool.driver.as_str()), ("Created", "dir"));
    for name in ["650b-pool-during-create", "652b-pool-after-kill", "661-pool-backing-missing"] {
        assert_ne!(replay(named(name)).storage_pool("any").await.unwrap().unwrap().status, "Created", "{name}");
    }
    assert_eq!(replay(named("105-pool-404")).storage_pool("nope").await.unwrap(), None);
}

#[tokio::test]
async fn networks_and_their_bridges_are_read() {
    let bridge = replay(named("205-net-get-unmanaged-bridge")).network("br0lab").await.unwrap().unwrap();
    assert!(bridge.kind == "bridge" && !bridge.managed);
    let state = replay(named("207-net-unmanaged-state")).network_state("br0lab").await.unwrap().unwrap();
    assert_eq!(state.bridge.unwrap().upper_devices, Vec::<String>::new());
    assert_eq!(state.addresses[0].address, "10.198.0.1");
    assert_eq!(replay(named("210-net-404")).network("nope").await.unwrap(), None);
    assert!(!replay(named("224-net-list-full")).networks().await.unwrap().is_empty());
}

#[tokio::test]
async fn profiles_are_read_by_name() {
    // A list with recursion contains the same objects as single reads.
    let one = replay(named("326-project-default-profile-in-maas"));
    let profile: lxd_client::Profile = one.get("/1.0/profiles/default?project=maas").await.unwrap();
    assert_eq!((profile.name.as_str(), profile.used_by.len()), ("default", 0));
}

#[tokio::test]
async fn projects_certificates_and_instances_are_read() {
    let project = replay(named("321-project-get")).project("maas").await.unwrap().unwrap();
    assert_eq!(project.config.unwrap()["features.images"], "true");
    let print: Fingerprint = "45ef12864ab3c54110c457e477fdc5fbff680fe3e09078a6c7d5f602a362abad".parse().unwrap();
    let certificate = replay(named("046-cert-get")).certificate(print).await.unwrap().unwrap();
    assert_eq!(certificate.fingerprint, print.to_string());
    assert_eq!(replay(named("048-cert-get-404")).certificate(print).await.unwrap(), None);
    let vm = replay(named("403-vm-get")).instance("maas", "vm1").await.unwrap().unwrap();
    assert_eq!((vm.kind.as_str(), vm.status.as_str()), ("virtual-machine", "Stopped"));
    assert!(!replay(named("811-12-restricted")).instances("maas").await.unwrap().iter().any(|vm| vm.name.is_empty()));
}

#[tokio::test]
async fn an_operation_that_failed_is_a_failure_although_the_request_was_accepted() {
    let recording = named("424-vm2-start-bad-parent");
    let lxd = replay(recording);
    let start = serde_json::json!({"action": "start", "timeout": 30, "force": false});
    let path = "/1.0/instances/vm2/state?project=maas";
    let error = lxd.mutate(http::Method::PUT, path, Some(&start)).await.unwrap_err();
    assert!(error.to_string().contains("Parent device \"nope0\" doesn't exist"), "{error}");
}
