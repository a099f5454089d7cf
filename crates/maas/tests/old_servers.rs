//! MAAS 3.0 to 3.8 differ, and what is too new for a server is not sent to it.

#![allow(clippy::unwrap_used, clippy::expect_used, clippy::panic)]

mod common;

use std::sync::{Arc, Mutex};
use std::time::Duration;

use bytes::Bytes;
use common::{answer, builder, json};
use http::Request;
use maas_client::transport::answering;
use maas_client::{Allocate, Client, Deploy, ErrorKind, MachineFilter, MachineStatus, NewVmHost, Version, VmHostAuth};

const MACHINES: &str = r#"[
    {"system_id": "a", "owner": "alice", "status": 6, "tag_names": [], "pod": {"id": 1, "name": "host-a"}},
    {"system_id": "b", "owner": "bob", "status": 6, "tag_names": ["old"], "pod": {"id": 2, "name": "host-a2"}},
    {"system_id": "c", "owner": null, "status": 4, "tag_names": ["old"]},
    {"system_id": "d", "owner": "alice", "status": 99, "tag_names": []}
]"#;

/// A server of some version, and the URIs that were requested.
fn server(version: &'static str) -> (Client, Arc<Mutex<Vec<String>>>) {
    let asked: Arc<Mutex<Vec<String>>> = Arc::default();
    let log = Arc::clone(&asked);
    let transport = answering(move |request: Request<Bytes>| {
        log.lock().unwrap().push(request.uri().path_and_query().unwrap().to_string());
        match request.uri().path().rsplit('/').nth(1).unwrap() {
            "version" => json(&format!(r#"{{"version": "{version}", "capabilities": []}}"#)),
            "machines" if request.method() == "GET" => json(MACHINES),
            "vm-hosts" => json(r#"{"id": 1}"#),
            _ => json(r#"{"system_id": "a"}"#),
        }
    });
    (builder(transport).build().unwrap(), asked)
}

async fn ids(client: &Client, filter: &MachineFilter) -> Vec<String> {
    client.machines().list(filter).await.unwrap().into_iter().map(|machine| machine.system_id).collect()
}

fn last(asked: &Mutex<Vec<String>>) -> String {
    asked.lock().unwrap().last().unwrap().clone()
}

#[tokio::test]
async fn filters_that_an_old_server_calls_an_error_are_applied_here() {
    let filter = MachineFilter {
        owner: Some("alice".to_owned()),
        statuses: vec![MachineStatus::Deployed, MachineStatus::Ready],
        not_tags: vec!["old".to_owned()],
        ..MachineFilter::default()
    };
    let (old, asked) = server("3.2.9");
    assert_eq!(ids(&old, &filter).await, ["a"]);
    assert_eq!(last(&asked), "/MAAS/api/2.0/machines/");
    let (new, asked) = server("3.3.0");
    assert_eq!(ids(&new, &filter).await, ["a"]);
    assert_eq!(last(&asked), "/MAAS/api/2.0/machines/?status=deployed&status=ready&owner=alice&not_tags=old");
}

#[tokio::test]
async fn the_name_of_a_vm_host_is_exact_on_servers_that_match_a_part_of_it() {
    let (client, asked) = server("3.4.10");
    let filter = MachineFilter { vm_host: Some("host-a".to_owned()), ..MachineFilter::default() };
    assert_eq!(ids(&client, &filter).await, ["a"]);
    assert_eq!(last(&asked), "/MAAS/api/2.0/machines/?pod=host-a");
}

#[tokio::test]
async fn a_state_without_a_word_is_filtered_here() {
    let (client, asked) = server("3.8.0");
    let filter = MachineFilter { statuses: vec![MachineStatus::Unknown(99)], ..MachineFilter::default() };
    assert_eq!(ids(&client, &filter).await, ["d"]);
    assert_eq!(last(&asked), "/MAAS/api/2.0/machines/");
}

#[tokio::test]
async fn an_option_that_a_server_would_ignore_is_refused() {
    let auth = VmHostAuth::Certificate { certificate: "c".to_owned(), key: "key".into() };
    let host = NewVmHost::new("host-a", "10.0.0.1:8443", "maas", auth);
    let sync = Deploy { enable_hw_sync: true, ..Deploy::default() };
    let dump = Deploy { enable_kernel_crash_dump: true, ..Deploy::default() };
    for (version, certificates, syncs, dumps) in [
        ("3.0.1", false, false, false),
        ("3.1.0", true, false, false),
        ("3.2.0", true, true, false),
        ("3.5.3", true, true, false),
        ("3.6.0", true, true, true),
        ("3.8.0", true, true, true),
    ] {
        let (client, _) = server(version);
        let outcomes = [
            client.vm_hosts().create(&host).await.map(|_| ()),
            client.machines().deploy("a", &sync).await.map(|_| ()),
            client.machines().deploy("a", &dump).await.map(|_| ()),
        ];
        for (outcome, expected) in outcomes.into_iter().zip([certificates, syncs, dumps]) {
            match outcome {
                Ok(()) => assert!(expected, "{version}"),
                Err(error) => assert!(!expected && error.kind() == ErrorKind::Unsupported, "{version}: {error}"),
            }
        }
    }
}

#[tokio::test]
async fn s10_a_dry_run_by_id_is_refused_where_it_could_make_a_vm() {
    let dry = Allocate { dry_run: true, ..Allocate::by_id("a") };
    let (old, _) = server("3.2.9");
    assert_eq!(old.machines().allocate(&dry).await.unwrap_err().kind(), ErrorKind::Invalid);
    let (new, _) = server("3.3.0");
    new.machines().allocate(&dry).await.unwrap();
    let metal = Allocate { dry_run: true, ..Allocate::metal() };
    old.machines().allocate(&metal).await.unwrap();
}

#[tokio::test(start_paused = true)]
async fn the_version_is_asked_for_once_and_again_after_a_while() {
    let (client, asked) = server("3.4.10");
    for _ in 0..3 {
        assert_eq!(client.capabilities().await.unwrap().version, Version::new(3, 4, 10));
    }
    assert_eq!(asked.lock().unwrap().len(), 1);
    tokio::time::advance(Duration::from_secs(601)).await;
    client.capabilities().await.unwrap();
    assert_eq!(asked.lock().unwrap().len(), 2);
}

#[tokio::test]
async fn what_is_not_a_version_is_not_understood() {
    let transport = answering(|_: Request<Bytes>| answer(200, "application/json", r#"{"version": "latest"}"#));
    let error = builder(transport).build().unwrap().capabilities().await.unwrap_err();
    assert_eq!(error.kind(), ErrorKind::NotUnderstood);
}
