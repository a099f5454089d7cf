//! The change feed against a simulated MAAS: what it wakes, what it costs, and what it survives.
#![allow(clippy::unwrap_used, clippy::expect_used, clippy::panic)]

use std::collections::BTreeSet;
use std::sync::Arc;
use std::time::Duration;

use capmaas_api::MaasMachine;
use capmaas_core::credentials::IDENTITY_ANNOTATION;
use capmaas_manager::clock::{Clock, Driver};
use capmaas_manager::feed::{Feeds, Pace, Waker};
use capmaas_manager::identity::{Credentials, EnvironmentCredentials, Identities, MemoryCredentialCopies, Settings};
use capmaas_manager::kubernetes::MemoryKubernetes;
use capmaas_manager::machine_index::MachineIndex;
use capmaas_manager::metrics::Metrics;
use futures::{FutureExt as _, StreamExt as _};
use jiff::Timestamp;
use kube::runtime::reflector::{self, ObjectRef};
use kube::runtime::watcher::Event;
use maas_client::transport::in_process;
use maas_client::{Client, RetryPolicy};
use maas_sim::faults::ServerState;
use maas_sim::{Config, Simulator};
use secrecy::ExposeSecret as _;
use serde_json::{Value, json};

const KEY: &str = "consumer:token:CANARYadmin";
/// The index of the machine that is in another MAAS.
const ELSEWHERE: usize = 33;

struct Stage {
    maas: Simulator,
    metrics: Metrics,
    woken: futures::stream::BoxStream<'static, ObjectRef<MaasMachine>>,
    task: tokio::task::JoinHandle<()>,
    reports: reflector::store::Writer<MaasMachine>,
}

fn machine(n: usize) -> MaasMachine {
    // Half of them as recorded by the Go provider, half as recorded by us.
    let id = format!("sys{n:03}");
    let spec = if n.is_multiple_of(2) {
        json!({"image": "jammy", "providerID": format!("maas:///az1/{id}")})
    } else {
        json!({"image": "jammy", "systemID": id})
    };
    let annotations =
        if n == ELSEWHERE { json!({IDENTITY_ANNOTATION: "http://elsewhere/MAAS#bob"}) } else { json!({}) };
    serde_json::from_value(json!({
        "apiVersion": "infrastructure.cluster.x-k8s.io/v1beta1", "kind": "MaasMachine",
        "metadata": {"name": format!("m{n:03}"), "namespace": "team", "annotations": annotations}, "spec": spec,
    }))
    .unwrap()
}

fn in_state(n: usize, reported: &str) -> MaasMachine {
    let mut machine = machine(n);
    machine.status.get_or_insert_default().machine_state = Some(reported.to_owned());
    machine
}

fn arrange(maas: &Simulator, statements: Value) {
    maas.control().arrange(&serde_json::from_value::<Vec<_>>(statements).unwrap()).unwrap();
}

impl Stage {
    /// A MAAS and Kubernetes with this many machines, with a feed at the default interval.
    async fn with(machines: usize) -> Self {
        Self::with_state(machines, "Deployed").await
    }

    /// The same with machines that MAAS reports in this state.
    async fn with_state(machines: usize, reported: &str) -> Self {
        let mut stage = Self::begin(machines, reported, |_, _| {}).await;
        // A starting manager reconciles everything by itself: the feed need not wake it.
        assert_eq!(stage.after(Duration::from_secs(120)).await, Vec::<String>::new());
        stage.maas.control().clear_ledger();
        stage
    }

    /// The setup, with a step that runs after the first read of the log and before the feed's first poll.
    async fn begin(machines: usize, reported: &str, meanwhile: impl FnOnce(&Simulator, &Driver)) -> Self {
        let maas = Simulator::new(Config::driven(KEY.parse().unwrap()));
        let known: Vec<Value> =
            (0..machines).map(|n| json!({"machine": {"system_id": format!("sys{n:03}"), "status": "Ready"}})).collect();
        arrange(&maas, json!(known));
        let (clock, driver) = Clock::driven(Timestamp::from_second(1_794_772_800).unwrap());
        let metrics = Metrics::new();
        let settings =
            Settings { environment: EnvironmentCredentials::new("http://maas/MAAS", KEY), ..Settings::default() };
        let server = maas.clone();
        let observer = metrics.clone();
        let connect = Arc::new(move |credentials: &Credentials| {
            Client::builder(&credentials.endpoint, credentials.key.expose_secret())
                .transport(in_process(server.router(), 64 << 20))
                .retry(RetryPolicy::never())
                .observer(observer.clone())
                .build()
        });
        let port = Arc::new(MemoryKubernetes::new(clock.clone()));
        let identities =
            Identities::new(port, Arc::new(MemoryCredentialCopies::default()), clock.clone(), settings, connect);
        identities.of_manager().await.unwrap();
        meanwhile(&maas, &driver);
        let (store, mut writer) = reflector::store();
        let machine_index = MachineIndex::of(&(0..machines).map(machine).collect::<Vec<_>>());
        for n in 0..machines {
            writer.apply_watcher_event(&Event::Apply(in_state(n, reported)));
        }
        let waker = Waker::default();
        let woken = waker.subscribe().boxed();
        let (machines_there, pace) = (store, Pace::default());
        let feeds =
            Feeds { identities, machines: machines_there, machine_index, waker, pace, metrics: metrics.clone(), clock };
        Self { maas, metrics, woken, task: tokio::spawn(feeds.run()), reports: writer }
    }

    /// From now on MAAS reports this machine in another state.
    fn report(&mut self, n: usize, reported: &str) {
        self.reports.apply_watcher_event(&Event::Apply(in_state(n, reported)));
    }

    /// Lets time pass and returns the objects woken in the meantime.
    async fn after(&mut self, time: Duration) -> Vec<String> {
        tokio::time::sleep(time).await;
        let mut woken = Vec::new();
        while let Some(Some(machine)) = self.woken.next().now_or_never() {
            woken.push(machine.name);
        }
        woken
    }

    fn requests(&self) -> usize {
        self.maas.control().ledger(None).len()
    }
}

impl Drop for Stage {
    fn drop(&mut self) {
        self.task.abort();
    }
}

fn status_change(id: &str) -> Value {
    json!([{"event": {"machine": id, "type": "Node changed status", "level": "DEBUG", "description": "x"}}])
}

#[tokio::test(start_paused = true)]
async fn what_happens_between_the_first_look_and_the_first_question_is_not_missed() {
    let mut stage = Stage::begin(20, "Deployed", |maas, _| arrange(maas, status_change("sys007"))).await;
    assert_eq!(stage.after(Duration::from_secs(5)).await, ["m007"]);
}

#[tokio::test(start_paused = true)]
async fn a_feed_that_begins_long_after_the_first_look_has_everything_looked_at() {
    let late = |_: &Simulator, clock: &Driver| clock.advance(300_000);
    let mut stage = Stage::begin(20, "Deployed", late).await;
    assert_eq!(stage.after(Duration::from_secs(5)).await.len(), 20);
}

#[tokio::test(start_paused = true)]
async fn an_idle_hour_costs_the_same_whatever_the_number_of_machines() {
    let mut costs = BTreeSet::new();
    for machines in [0, 10, 400] {
        let mut stage = Stage::with(machines).await;
        let woken = stage.after(Duration::from_secs(3600)).await;
        // The slow resync wakes every machine once per half hour, fifty at a time. Reading is up to the woken machine.
        assert!((machines..=machines * 2).contains(&woken.len()), "{machines}: {}", woken.len());
        costs.insert(stage.requests());
    }
    assert_eq!(costs.len(), 1, "{costs:?}");
    let cost = *costs.first().unwrap();
    assert!((890..=910).contains(&cost), "one request every four seconds, not {cost}");
}

#[tokio::test(start_paused = true)]
async fn just_the_machines_that_the_log_names_are_woken_and_soon() {
    let mut stage = Stage::with(100).await;
    arrange(
        &stage.maas,
        json!([
            {"event": {"machine": "sys007", "type": "Node changed status", "level": "DEBUG", "description": "From 'Deploying' to 'Deployed'"}},
            {"event": {"machine": "sys042", "type": "Node changed status", "level": "DEBUG", "description": "From 'Ready' to 'Allocated'"}},
        ]),
    );
    assert_eq!(stage.after(Duration::from_secs(5)).await, ["m007", "m042"]);
    assert!(stage.after(Duration::from_secs(60)).await.is_empty());
}

#[tokio::test(start_paused = true)]
async fn the_younger_a_transition_is_the_more_often_the_log_is_asked() {
    for reported in ["Deploying", "Releasing"] {
        let mut stage = Stage::with(2).await;
        let asked = async |stage: &mut Stage, seconds| {
            stage.maas.control().clear_ledger();
            stage.after(Duration::from_secs(seconds)).await;
            stage.requests()
        };
        stage.report(0, reported);
        let first = [asked(&mut stage, 6).await, asked(&mut stage, 54).await];
        assert!((5..=6).contains(&first[0]), "{reported}: once a second at first, not {first:?}");
        assert!((14..=18).contains(&first[1]), "{reported}: then more rarely, not {first:?}");
        let later = asked(&mut stage, 60).await;
        assert!((14..=15).contains(&later), "{reported}: {later} in the second minute");
        stage.report(1, reported);
        let again = asked(&mut stage, 6).await;
        assert!((5..=6).contains(&again), "{reported}: {again} when another machine begins");
    }
}

#[tokio::test(start_paused = true)]
async fn the_end_of_a_short_transition_is_noticed_within_a_second_or_so_and_of_a_long_one_within_four() {
    for (takes, noticed) in [(1, 1), (5, 1), (60, 4)] {
        let mut stage = Stage::with(1).await;
        stage.report(0, "Deploying");
        stage.after(Duration::from_secs(takes)).await;
        arrange(
            &stage.maas,
            json!([{"event": {"machine": "sys000", "type": "Deployed", "level": "INFO", "description": ""}}]),
        );
        let woken = stage.after(Duration::from_millis(noticed * 1000 + 100)).await;
        assert_eq!(woken, ["m000"], "after {takes} seconds");
    }
}

#[tokio::test(start_paused = true)]
async fn a_state_that_does_not_end_by_itself_is_no_reason_to_ask_more_often() {
    for reported in ["Deployed", "Broken"] {
        let mut stage = Stage::with_state(1, reported).await;
        stage.after(Duration::from_secs(60)).await;
        assert!((14..=15).contains(&stage.requests()), "{reported}: {} requests in a minute", stage.requests());
    }
}

#[tokio::test(start_paused = true)]
async fn a_burst_of_events_is_read_to_its_end_at_once() {
    let mut stage = Stage::with(20).await;
    let burst: Vec<Value> = (0..2500)
        .map(|n| json!({"event": {"machine": format!("sys{:03}", n % 20), "type": "Node changed status", "level": "DEBUG", "description": "x"}}))
        .collect();
    arrange(&stage.maas, json!(burst));
    let woken: BTreeSet<String> = stage.after(Duration::from_secs(5)).await.into_iter().collect();
    assert_eq!(woken.len(), 20);
    assert!(stage.requests() <= 5, "{}", stage.requests());
}

#[tokio::test(start_paused = true)]
async fn s06_s29_a_restored_maas_makes_all_of_its_own_machines_be_looked_at_again() {
    let mut stage = Stage::with(60).await;
    stage.maas.control().backup("before");
    let event = |id: &str| json!([{"event": {"machine": id, "type": "Node changed status", "level": "DEBUG", "description": "x"}}]);
    arrange(&stage.maas, event("sys001"));
    arrange(&stage.maas, event("sys002"));
    assert_eq!(stage.after(Duration::from_secs(5)).await, ["m001", "m002"]);
    stage.maas.control().restore("before").unwrap();
    // The same event IDs are assigned again, to other events.
    arrange(&stage.maas, event("sys050"));
    let woken: BTreeSet<String> = stage.after(Duration::from_secs(20)).await.into_iter().collect();
    assert_eq!(woken.len(), 59);
    assert!(!woken.contains("m033"), "another MAAS has nothing to do with it");
    assert!(stage.metrics.text().contains("capmaas_feed_resets_total 1"), "{}", stage.metrics.text());
}

#[tokio::test(start_paused = true)]
async fn a_maas_that_was_away_is_asked_more_rarely_and_nothing_of_the_meantime_is_lost() {
    let mut stage = Stage::with(10).await;
    stage.maas.control().set_server(ServerState::Down);
    let _ = stage.after(Duration::from_secs(600)).await;
    assert!(stage.requests() <= 20, "{}", stage.requests());
    arrange(
        &stage.maas,
        json!([{"event": {"machine": "sys003", "type": "Node changed status", "level": "DEBUG", "description": "x"}}]),
    );
    stage.maas.control().set_server(ServerState::Up);
    assert_eq!(stage.after(Duration::from_secs(65)).await, ["m003"]);
}
