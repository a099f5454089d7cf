//! What is retried, when, and with what.

#![allow(clippy::unwrap_used, clippy::expect_used, clippy::panic)]

mod common;

use std::collections::BTreeSet;
use std::sync::{Arc, Mutex};
use std::time::Duration;

use common::{Script, builder, json, page, text, with_header};
use maas_client::{Allocate, Compose, Deploy, Effect, ErrorKind, Observation, Release, RetryPolicy};
use tokio::time::Instant;

const MACHINE: &str = r#"{"system_id": "abc123"}"#;

#[tokio::test(start_paused = true)]
async fn a_read_is_tried_three_times_each_with_a_nonce_of_its_own() {
    let script = Script::new([page(502, "Bad Gateway"), page(502, "Bad Gateway"), json(MACHINE)]);
    script.client().machines().read("abc123").await.unwrap();
    let seen = script.seen();
    assert_eq!(seen.len(), 3);
    let nonces: BTreeSet<String> = seen.iter().map(common::Seen::nonce).collect();
    assert_eq!(nonces.len(), 3, "MAAS refuses a nonce that it has seen");
}

#[tokio::test(start_paused = true)]
async fn a_read_gives_up_with_the_last_word_of_maas() {
    let script = Script::new([page(502, "Bad Gateway")]);
    let error = script.client().machines().read("abc123").await.unwrap_err();
    assert_eq!((error.kind(), error.status(), script.seen().len()), (ErrorKind::ServerTrouble, Some(502), 3));
}

#[tokio::test(start_paused = true)]
async fn a_connection_that_breaks_under_a_read_is_made_again() {
    let script = Script::with_failures([Err("connection reset by peer"), Ok(json(MACHINE))]);
    script.client().machines().read("abc123").await.unwrap();
    assert_eq!(script.seen().len(), 2);
}

#[tokio::test(start_paused = true)]
async fn nothing_that_changes_anything_is_ever_sent_twice() {
    for failure in [
        Ok(page(502, "Bad Gateway")),
        Ok(with_header(page(409, "Conflict"), "retry-after", "1")),
        Ok(with_header(text(503, "no rack"), "retry-after", "1")),
        Ok(page(429, "Too Many Requests")),
        Err("connection reset by peer"),
    ] {
        let script = Script::with_failures([failure]);
        let client = script.client();
        assert!(client.machines().allocate(&Allocate::metal()).await.is_err());
        assert!(client.machines().deploy("abc123", &Deploy::default()).await.is_err());
        assert!(client.machines().release("abc123", &Release::default()).await.is_err());
        assert!(client.machines().delete("abc123").await.is_err());
        assert!(client.machines().power_on("abc123").await.is_err());
        assert!(client.vm_hosts().compose(1, &Compose::default()).await.is_err());
        assert!(client.vm_hosts().refresh(1).await.is_err());
        assert!(client.tags().create("x", "").await.is_err());
        assert!(client.dns_resources().set_addresses(1, &[]).await.is_err());
        assert_eq!(script.seen().len(), 9);
    }
}

#[tokio::test(start_paused = true)]
async fn what_will_not_pass_is_not_tried_again() {
    for response in [text(404, "No Machine matches the given query."), text(403, ""), text(500, "riddle"), json("3")] {
        let script = Script::new([response]);
        assert!(script.client().machines().read("abc123").await.is_err());
        assert_eq!(script.seen().len(), 1);
    }
}

#[tokio::test(start_paused = true)]
async fn a_wait_that_maas_asks_for_is_kept() {
    let trouble = || with_header(text(503, "Unable to connect to any rack controller"), "retry-after", "10");
    let script = Script::new([trouble(), json(r#"{"state": "off"}"#)]);
    let start = Instant::now();
    script.client().machines().query_power_state("abc123").await.unwrap();
    let waited = start.elapsed();
    assert!(waited >= Duration::from_secs(10) && waited < Duration::from_secs(11), "{waited:?}");
}

#[tokio::test(start_paused = true)]
async fn a_wait_that_is_too_long_to_sit_through_is_handed_to_the_caller() {
    let script = Script::new([with_header(page(503, "Maintenance"), "retry-after", "3600")]);
    let start = Instant::now();
    let error = script.client().zones().list().await.unwrap_err();
    assert_eq!((error.retry_after(), script.seen().len()), (Some(Duration::from_secs(3600)), 1));
    assert_eq!(start.elapsed(), Duration::ZERO);
}

#[tokio::test(start_paused = true)]
async fn repeats_end_with_the_deadline_of_the_whole_call() {
    let script = Script::new([page(502, "Bad Gateway")]);
    let policy = RetryPolicy::default();
    let client = builder(script.transport()).retry(policy).read_deadline(Duration::from_millis(1)).build().unwrap();
    let start = Instant::now();
    let error = client.zones().list().await.unwrap_err();
    assert_eq!(error.kind(), ErrorKind::ServerTrouble);
    assert!(start.elapsed() <= Duration::from_millis(1));
}

#[tokio::test(start_paused = true)]
async fn every_try_is_observed() {
    let seen: Arc<Mutex<Vec<Observation>>> = Arc::default();
    let script = Script::with_failures([Err("reset"), Ok(page(502, "Bad Gateway")), Ok(json(MACHINE))]);
    let store = Arc::clone(&seen);
    let observer = move |observation: &Observation| store.lock().unwrap().push(*observation);
    let client = builder(script.transport()).observer(observer).build().unwrap();
    client.machines().read("abc123").await.unwrap();
    let seen = seen.lock().unwrap();
    let tries: Vec<_> = seen.iter().map(|seen| (seen.attempt, seen.status, seen.error)).collect();
    assert_eq!(
        tries,
        [(1, None, Some(ErrorKind::Unreachable)), (2, Some(502), Some(ErrorKind::ServerTrouble)), (3, Some(200), None)]
    );
    assert!(seen.iter().all(|seen| {
        (seen.operation, seen.method, seen.template) == ("machines.read", "GET", "machines/{system_id}/")
    }));
}

#[tokio::test(start_paused = true)]
async fn a_write_whose_answer_is_lost_has_an_unknown_effect() {
    let script = Script::with_failures([Err("connection reset by peer")]);
    let error = script.client().machines().allocate(&Allocate::metal()).await.unwrap_err();
    assert_eq!((error.kind(), error.effect()), (ErrorKind::Unreachable, Effect::Unknown));
    assert!(error.to_string().contains("connection reset by peer"), "{error}");
}
