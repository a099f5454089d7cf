//! Every request ends, and the number of requests in flight is limited.

#![allow(clippy::unwrap_used, clippy::expect_used, clippy::panic)]

mod common;

use std::sync::Arc;
use std::sync::atomic::{AtomicBool, AtomicUsize, Ordering};
use std::time::Duration;

use bytes::Bytes;
use common::{builder, json};
use http::Request;
use maas_client::transport::{BoxError, Transport};
use maas_client::{Allocate, Breaker, Client, Effect, Erase, ErrorKind, Limiter, Release, RetryPolicy};
use tokio::time::Instant;
use tower::util::BoxCloneSyncService;

/// A slow server that counts the waiting requests.
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
    assert!(client.tags().delete("x").await.is_err());
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
    let client = |time| builder(Slow::default().transport(Duration::from_secs(time))).limiter(limiter.clone()).build();
    let (first, second) = (client(10).unwrap(), client(119).unwrap());
    let (first, second) = (first.tags(), second.tags());
    let (one, other) = tokio::join!(first.delete("x"), second.delete("x"));
    assert!(one.is_ok() && other.is_ok(), "10 s of waiting and 119 s of answering, with 120 s for the answer");
}

/// Four reads from a server that does not answer take all slots.
fn busy(client: &Client) -> Vec<tokio::task::JoinHandle<()>> {
    let read = |number: u32| {
        let client = client.clone();
        tokio::spawn(async move { drop(client.machines().read(&format!("abc12{number}")).await) })
    };
    (0..4).map(read).collect()
}

#[tokio::test(start_paused = true)]
async fn s02_a_write_that_gets_no_place_soon_is_not_sent_and_whoever_waits_for_it_is_told_in_time() {
    let client = builder(Slow::default().transport(HOUR)).build().unwrap();
    let intent = Instant::now();
    let _reads = busy(&client);
    tokio::task::yield_now().await;
    let error = client.machines().release("xyz789", &release()).await.unwrap_err();
    assert_eq!((error.kind(), error.effect()), (ErrorKind::Unreachable, Effect::None), "{error}");
    assert_eq!(intent.elapsed(), client.place_deadline());
    assert!(error.to_string().contains("not sent: 15 s of waiting"), "{error}");
}

#[tokio::test(start_paused = true)]
async fn s02_a_place_can_be_had_before_anything_is_written_down_about_a_write() {
    let slow = Slow::default();
    let client = builder(slow.transport(Duration::from_secs(20))).build().unwrap();
    let _reads = busy(&client);
    tokio::task::yield_now().await;
    assert!(client.reserve(Duration::from_secs(5)).await.is_err(), "none is free so soon");
    let mine = client.reserve(Duration::from_secs(30)).await.unwrap();
    let _more = busy(&client);
    tokio::task::yield_now().await;
    let sent = Instant::now();
    mine.machines().release("xyz789", &release()).await.unwrap_err();
    assert_eq!(sent.elapsed(), Duration::from_secs(20), "it did not queue");
    assert_eq!(slow.most.load(Ordering::SeqCst), 4, "and took nobody else's place");
}

#[tokio::test(start_paused = true)]
async fn s02_a_write_that_comes_late_to_its_turn_is_not_sent() {
    let script = common::Script::new([json("{}")]);
    let client = builder(script.transport()).build().unwrap().sending_within(Duration::from_secs(20));
    tokio::time::sleep(Duration::from_secs(21)).await;
    let error = client.machines().release("xyz789", &release()).await.unwrap_err();
    assert_eq!((error.effect(), script.seen().len()), (Effect::None, 0), "{error}");
    let reads = client.zones().list().await;
    assert_eq!(script.seen().len(), 1, "a read harms nobody: {reads:?}");
}

#[tokio::test(start_paused = true)]
async fn s23_the_sender_is_asked_whether_it_may_write_at_the_moment_of_sending() {
    let (slow, limiter, leads) = (Slow::default(), Limiter::new(1), Arc::new(AtomicBool::new(true)));
    let fence = leads.clone();
    let may_write = move || if fence.load(Ordering::SeqCst) { Ok(()) } else { Err("the lease is lost".to_owned()) };
    let client =
        builder(slow.transport(Duration::from_secs(10))).limiter(limiter).before_writes(may_write).build().unwrap();
    let reader = client.clone();
    let read = tokio::spawn(async move { reader.zones().list().await.map(drop) });
    tokio::task::yield_now().await;
    let lost = async {
        tokio::time::sleep(Duration::from_secs(5)).await;
        leads.store(false, Ordering::SeqCst);
    };
    let wanted = release();
    let machines = client.machines();
    let (error, ()) = tokio::join!(machines.release("xyz789", &wanted), lost);
    let error = error.unwrap_err();
    assert_eq!((error.effect(), error.kind()), (Effect::None, ErrorKind::Unreachable));
    assert!(error.to_string().contains("the lease is lost"), "{error}");
    read.await.unwrap().unwrap();
    client.zones().list().await.unwrap();
}

#[tokio::test(start_paused = true)]
async fn s29_a_server_that_hangs_is_waited_for_by_a_few_and_then_by_one_at_a_time() {
    let client = builder(Slow::default().transport(HOUR)).breaker(Breaker::new()).build().unwrap();
    let began = Instant::now();
    let all: Vec<_> = (0..200)
        .map(|number| {
            let client = client.clone();
            tokio::spawn(async move { client.machines().read(&format!("abc{number}")).await.map(drop) })
        })
        .collect();
    let mut sentences = std::collections::BTreeSet::new();
    for read in all {
        sentences.insert(read.await.unwrap().unwrap_err().to_string());
    }
    assert!(began.elapsed() <= Duration::from_secs(61), "{:?}", began.elapsed());
    let told = sentences.iter().filter(|sentence| sentence.contains("does not answer since")).count();
    assert_eq!(told, 1, "the same sentence for as long as it is silent: {sentences:?}");
    let again = Instant::now();
    client.zones().list().await.unwrap_err();
    assert_eq!(again.elapsed(), Duration::ZERO);
}

#[tokio::test(start_paused = true)]
async fn s29_a_server_that_is_back_is_asked_by_everybody_again() {
    let refused = (0..3).map(|_| Err("connection refused"));
    let script = common::Script::with_failures(refused.chain([Ok(json("[]"))]));
    let client = builder(script.transport()).breaker(Breaker::new()).retry(RetryPolicy::never()).build().unwrap();
    for _ in 0..5 {
        client.zones().list().await.unwrap_err();
    }
    assert_eq!(script.seen().len(), 3, "two were not sent");
    tokio::time::sleep(Duration::from_secs(5)).await;
    client.zones().list().await.unwrap();
    client.zones().list().await.unwrap();
}

fn release() -> Release {
    Release { erase: Erase::None, comment: None }
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
    let (patient, hasty) = (patient.tags(), hasty.machines());
    let wanted = Allocate::metal();
    let (_, error) = tokio::join!(patient.delete("x"), hasty.allocate(&wanted));
    let error = error.unwrap_err();
    assert_eq!((error.kind(), error.effect()), (ErrorKind::Unreachable, Effect::None), "{error}");
}
