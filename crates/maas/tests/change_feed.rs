//! The event log as a change feed, against a log that can be restored from a backup.

#![allow(clippy::unwrap_used, clippy::expect_used, clippy::panic)]

mod common;

use std::sync::{Arc, Mutex};

use bytes::Bytes;
use common::{builder, json, page};
use http::{Request, Response};
use maas_client::transport::answering;
use maas_client::{ChangeFeed, Client, RetryPolicy};
use serde_json::{Value, json as value};

/// An event log that answers as MAAS does.
#[derive(Clone, Default)]
struct Log {
    events: Arc<Mutex<Vec<Value>>>,
    broken: Arc<Mutex<bool>>,
    asked: Arc<Mutex<Vec<String>>>,
}

impl Log {
    fn write(&self, count: usize, node: &str, created: &str) {
        let mut events = self.events.lock().unwrap();
        for _ in 0..count {
            let id = events.last().map_or(1, |event| event["id"].as_i64().unwrap() + 1);
            events.push(value!({
                "id": id, "node": node, "hostname": node, "level": "DEBUG", "type": "Node changed status",
                "description": "From 'Deploying' to 'Deployed'", "created": created, "username": "unknown"
            }));
        }
    }

    fn restore_to(&self, count: usize) {
        self.events.lock().unwrap().truncate(count);
    }

    fn answer(&self, request: &Request<Bytes>) -> Response<Bytes> {
        if *self.broken.lock().unwrap() {
            return page(502, "Bad Gateway");
        }
        let query = request.uri().query().unwrap().to_owned();
        let of = |name: &str| {
            form_urlencoded::parse(query.as_bytes()).find(|(key, _)| key == name).map(|(_, value)| value.into_owned())
        };
        assert_eq!((of("op").as_deref(), of("level").as_deref()), (Some("query"), Some("DEBUG")));
        let limit: usize = of("limit").unwrap().parse().unwrap();
        let events = self.events.lock().unwrap();
        // With `after` the page contains the oldest events, without it the newest; either way newest first.
        let mut page: Vec<Value> = match of("after") {
            Some(after) => {
                let after: i64 = after.parse().unwrap();
                events.iter().filter(|event| event["id"].as_i64().unwrap() > after).take(limit).cloned().collect()
            }
            None => events.iter().rev().take(limit).rev().cloned().collect(),
        };
        page.reverse();
        self.asked.lock().unwrap().push(query);
        // MAAS's own link is wrong on an empty page.
        json(&value!({"count": page.len(), "events": page, "next_uri": "/MAAS/api/2.0/events/?op=query"}).to_string())
    }

    fn client(&self) -> Client {
        let this = self.clone();
        builder(answering(move |request| this.answer(&request))).retry(RetryPolicy::never()).build().unwrap()
    }
}

async fn poll(feed: &mut ChangeFeed, client: &Client) -> (Vec<i64>, bool, bool) {
    let changes = feed.poll(client).await.unwrap();
    (changes.events.iter().map(|event| event.id).collect(), changes.resync, changes.more)
}

#[tokio::test]
async fn a_new_feed_asks_for_a_resync_and_then_tells_what_is_new() {
    let log = Log::default();
    log.write(5, "a", "t1");
    let (client, mut feed) = (log.client(), ChangeFeed::new());
    assert_eq!(poll(&mut feed, &client).await, (vec![], true, false));
    assert_eq!(feed.cursor(), Some(5));
    assert_eq!(poll(&mut feed, &client).await, (vec![], false, false));
    log.write(2, "b", "t2");
    assert_eq!(poll(&mut feed, &client).await, (vec![6, 7], false, false));
    assert_eq!(poll(&mut feed, &client).await, (vec![], false, false));
    assert_eq!(log.asked.lock().unwrap().len(), 4, "one question each time");
}

#[tokio::test]
async fn an_empty_log_is_followed_from_its_first_event() {
    let log = Log::default();
    let (client, mut feed) = (log.client(), ChangeFeed::new());
    assert_eq!(poll(&mut feed, &client).await, (vec![], true, false));
    assert_eq!(poll(&mut feed, &client).await, (vec![], false, false));
    log.write(2, "a", "t1");
    assert_eq!(poll(&mut feed, &client).await, (vec![1, 2], false, false));
}

#[tokio::test]
async fn more_than_a_page_is_told_page_by_page_without_a_gap() {
    let log = Log::default();
    log.write(1, "a", "t1");
    let (client, mut feed) = (log.client(), ChangeFeed::new());
    poll(&mut feed, &client).await;
    log.write(2500, "a", "t2");
    let mut all = Vec::new();
    loop {
        let (ids, resync, more) = poll(&mut feed, &client).await;
        assert!(!resync);
        all.extend(ids);
        if !more {
            break;
        }
    }
    assert_eq!(all, (2..=2501).collect::<Vec<i64>>());
}

#[tokio::test]
async fn s06_a_restored_backup_is_noticed_while_its_log_is_shorter() {
    let log = Log::default();
    log.write(10, "a", "t1");
    let (client, mut feed) = (log.client(), ChangeFeed::new());
    poll(&mut feed, &client).await;
    log.restore_to(4);
    log.write(2, "b", "t2");
    assert_eq!(poll(&mut feed, &client).await, (vec![], true, false));
    assert_eq!(feed.cursor(), Some(6));
    log.write(1, "b", "t3");
    assert_eq!(poll(&mut feed, &client).await, (vec![7], false, false));
}

#[tokio::test]
async fn s06_a_restored_backup_is_noticed_even_after_its_log_has_grown_past_the_cursor() {
    let log = Log::default();
    log.write(10, "a", "t1");
    let (client, mut feed) = (log.client(), ChangeFeed::new());
    poll(&mut feed, &client).await;
    log.restore_to(4);
    log.write(20, "b", "t2");
    assert_eq!(poll(&mut feed, &client).await, (vec![], true, false), "event 10 is another one now");
    assert_eq!(feed.cursor(), Some(24));
}

#[tokio::test]
async fn a_question_that_failed_is_asked_again_and_nothing_is_lost() {
    let log = Log::default();
    log.write(3, "a", "t1");
    let (client, mut feed) = (log.client(), ChangeFeed::new());
    poll(&mut feed, &client).await;
    log.write(1, "a", "t2");
    *log.broken.lock().unwrap() = true;
    assert!(feed.poll(&client).await.is_err());
    *log.broken.lock().unwrap() = false;
    assert_eq!(poll(&mut feed, &client).await, (vec![4], false, false));
}
