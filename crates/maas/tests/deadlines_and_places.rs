//! Every request ends, and not too many are under way.

#![allow(clippy::unwrap_used, clippy::expect_used, clippy::panic)]

mod common;

use std::sync::Arc;
use std::sync::atomic::{AtomicUsize, Ordering};
use std::time::Duration;

use bytes::Bytes;
use common::{builder, json};
use http::Request;
use maas_client::transport::{BoxError, Transport};
use maas_client::{Allocate, Effect, ErrorKind, Limiter};
use tokio::time::Instant;
use tower::util::BoxCloneSyncService;

/// A server that takes its time, and knows how many are waiting for it.
#[derive(Clone, Default)]
struct Slow {
    under_way: Arc<AtomicUsize>,
    most: Arc<AtomicUsize>,
}

impl Slow {
    fn transport(&self, time: Duration) -> Transport {
        let this = self.clone();
        BoxCloneSyncService::new(tower::service_fn(move |_: Request<Bytes>| {
            let this = this.clone();
            async move {
                let now = this.under_way.fetch_add(1, Ordering::SeqCst) + 1;
                this.most.fetch_max(now, Ordering::SeqCst);
                tokio::time::sleep(time).await;
                this.under_way.fetch_sub(1, Ordering::SeqCst);
                Ok::<_, BoxError>(json("[]"))
            }
        }))
    }
}

const HOUR: Duration = Duration::from_secs(3600);

#[tokio::test(start_paused = true)]
async fn go27_a_read_ends_after_a_minute_and_a_write_after_two() {
    let client = builder(Slow::default().transport(HOUR)).build().unwrap();
    let start = Instant::now();
    let error = client.zones().list().await.unwrap_err();
    assert_eq!((error.kind(), error.effect(), error.timed_out()), (ErrorKind::Unreachable, Effect::None, true));
    assert_eq!(start.elapsed(), Duration::from_secs(60), "the deadline is for all tries together");
    let start = Instant::now();
    let error = client.machines().allocate(&Allocate::metal()).await.unwrap_err();
    assert_eq!((error.kind(), error.effect(), error.timed_out()), (ErrorKind::Unreachable, Effect::Unknown, true));
    assert_eq!(start.elapsed(), Duration::from_secs(120));
    assert!(error.to_string().contains("no answer within 120 s"), "{error}");
}

#[tokio::test(start_paused = true)]
async fn deadlines_can_be_set() {
    let client = builder(Slow::default().transport(HOUR))
        .read_deadline(Duration::from_secs(5))
        .write_deadline(Duration::from_secs(7))
        .build()
        .unwrap();
    let start = Instant::now();
    assert!(client.zones().list().await.is_err());
    assert_eq!(start.elapsed(), Duration::from_secs(5));
    assert!(client.zones().delete("x").await.is_err());
    assert_eq!(start.elapsed(), Duration::from_secs(12));
}

#[tokio::test(start_paused = true)]
async fn a_deadline_that_never_comes_is_a_day() {
    let client = builder(Slow::default().transport(30 * 24 * HOUR)).read_deadline(Duration::MAX).build().unwrap();
    let start = Instant::now();
    assert!(client.zones().list().await.unwrap_err().timed_out());
    assert_eq!(start.elapsed(), 24 * HOUR);
}

#[tokio::test(start_paused = true)]
async fn at_most_four_requests_are_under_way() {
    let slow = Slow::default();
    let client = builder(slow.transport(Duration::from_secs(1))).build().unwrap();
    let start = Instant::now();
    let tasks: Vec<_> = (0..12)
        .map(|_| {
            let client = client.clone();
            tokio::spawn(async move { client.zones().list().await })
        })
        .collect();
    for task in tasks {
        task.await.unwrap().unwrap();
    }
    assert_eq!((slow.most.load(Ordering::SeqCst), start.elapsed()), (4, Duration::from_secs(3)));
}

#[tokio::test(start_paused = true)]
async fn clients_that_share_a_limiter_share_its_places() {
    let (slow, limiter) = (Slow::default(), Limiter::new(1));
    let client = || builder(slow.transport(Duration::from_secs(1))).limiter(limiter.clone()).build().unwrap();
    let (first, second) = (client(), client());
    let (zones, pools) = (first.zones(), second.pools());
    let (one, other) = tokio::join!(zones.list(), pools.list());
    assert!(one.is_ok() && other.is_ok());
    assert_eq!(slow.most.load(Ordering::SeqCst), 1);
}

#[tokio::test(start_paused = true)]
async fn waiting_for_a_place_is_not_counted_against_the_answer() {
    let limiter = Limiter::new(1);
    let client = |time| builder(Slow::default().transport(time)).limiter(limiter.clone()).build().unwrap();
    let (first, second) = (client(Duration::from_secs(100)), client(Duration::from_secs(100)));
    let (first, second) = (first.zones(), second.zones());
    let (one, other) = tokio::join!(first.delete("x"), second.delete("x"));
    assert!(one.is_ok() && other.is_ok(), "100 s of waiting and 100 s of answering, with 120 s for each");
}

#[tokio::test(start_paused = true)]
async fn a_write_that_never_got_a_place_was_not_sent() {
    let limiter = Limiter::new(1);
    let slow = Slow::default();
    let client = |deadline: u64| {
        let builder = builder(slow.transport(HOUR)).limiter(limiter.clone());
        builder.write_deadline(Duration::from_secs(deadline)).build().unwrap()
    };
    let (patient, hasty) = (client(1000), client(10));
    let (patient, hasty) = (patient.zones(), hasty.machines());
    let wanted = Allocate::metal();
    let (_, error) = tokio::join!(patient.delete("x"), hasty.allocate(&wanted));
    let error = error.unwrap_err();
    assert_eq!((error.kind(), error.effect()), (ErrorKind::Unreachable, Effect::None), "{error}");
}
