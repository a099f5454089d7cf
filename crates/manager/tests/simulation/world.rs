//! One simulated world: in-memory Kubernetes, an in-process simulated MAAS, driven clocks, and a manager that may die.

use std::collections::{BTreeMap, BTreeSet};
use std::pin::Pin;
use std::sync::Arc;
use std::sync::atomic::Ordering;
use std::time::Duration;

use capmaas_manager::clock::{Clock, Driver};
use capmaas_manager::identity::MemoryCredentialCopies;
use capmaas_manager::kubernetes::{Key, MemoryKubernetes};
use futures::StreamExt as _;
use futures::stream::FuturesUnordered;
use jiff::Timestamp;
use maas_sim::{Config, Simulator};
use serde_json::Value;

use crate::chance::Chance;
use crate::crash::Crash;
use crate::dns_writes::DnsWrites;
use crate::guests::Guests;
use crate::law::{self, Seen};
use crate::ledger::Ledgers;
use crate::manager::{ClusterFacts, Manager, Next, Subject};
use crate::objects::{HOME, is_copy, key};
use crate::watch::Watched;

pub(crate) const ADMIN: &str = "consumer:token:CANARYsecret";
/// The number of the second manager's only lifetime.
const SECOND: u64 = 1 << 20;
const START: i64 = 1_794_772_800;
/// The limit of passes per seed. More means an endless loop.
const MOST_PASSES: u32 = 20_000;
/// A watch that lags for longer is noticed: `/healthz` fails, and the manager is restarted.
const STALLED: i64 = 600_000;
/// Stands in for the change feed and the slow resync.
const WAKE_ALL: i64 = 90_000;

/// The kind of machines in a world.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub(crate) enum Cast {
    /// Bare metal only.
    Metal,
    /// VMs on LXD hosts, and some bare metal.
    Vms,
}

type Passing = Pin<Box<dyn Future<Output = (Subject, capmaas_manager::kubernetes::Result<Next>)>>>;

pub(crate) struct World {
    pub(crate) seed: u64,
    pub(crate) cast: Cast,
    pub(crate) chance: Chance,
    pub(crate) port: MemoryKubernetes,
    pub(crate) maas: Simulator,
    /// A MAAS without any machine of ours.
    pub(crate) elsewhere: Simulator,
    /// The MAAS of the second tenant.
    pub(crate) theirs: Simulator,
    pub(crate) crashes: u32,
    /// Machines that were deleted to evacuate their hosts.
    pub(crate) evacuated: u32,
    pub(crate) trace: Vec<String>,
    /// The manager's clock, which may be wrong, and that of everything else.
    manager_clock: Driver,
    true_clock: Driver,
    /// Milliseconds since the start, independent of both clocks.
    pub(crate) time: i64,
    pub(crate) around: ClusterFacts,
    pub(crate) manager: Manager,
    pub(crate) guests: Option<Guests>,
    lives: u64,
    pub(crate) after_last_pass: Seen,
    pub(crate) ledgers: Ledgers,
    /// MAAS itself did what an invariant forbids: it was restored from a backup, or a change of its DNS came late.
    pub(crate) lenient: bool,
    /// When each is reconciled next.
    pub(crate) due: BTreeMap<Subject, i64>,
    pub(crate) watched: Watched,
    wake_all: i64,
    passes: u32,
    /// Passes that wait for a MAAS that hangs, while others continue.
    under_way: FuturesUnordered<Passing>,
    busy: BTreeSet<Subject>,
    /// The second tenant's MAAS does not answer.
    pub(crate) hangs: bool,
    /// Since when the watch delivers nothing new.
    behind_since: Option<i64>,
    /// The share of passes in which the manager dies, in percent.
    pub(crate) mortality: u64,
    /// The share of passes before which the watch falls behind or catches up, in percent.
    pub(crate) sluggishness: u64,
}

impl World {
    pub(crate) fn new(seed: u64, cast: Cast) -> Self {
        let start = Timestamp::from_second(START).unwrap();
        let (clock, manager_clock) = Clock::driven(start);
        let (true_time, true_clock) = Clock::driven(start);
        let config = Config { seed, ..Config::driven(ADMIN.parse().unwrap()) };
        let maas = Simulator::new(config.clone());
        let elsewhere = Simulator::new(config.clone());
        let theirs = Simulator::new(crate::tenants::config(config));
        let ways = [("maas", &maas), ("empty", &elsewhere), ("theirs", &theirs)];
        let ways = ways.map(|(which, maas)| (endpoint(seed, cast, which), maas.clone()));
        let port = MemoryKubernetes::new(true_time);
        let around = ClusterFacts {
            clock,
            port: port.clone(),
            ways: BTreeMap::from(ways),
            crash: Crash::default(),
            dns_writes: DnsWrites::default(),
            keeper: Arc::new(MemoryCredentialCopies::default()),
            denied: Arc::default(),
        };
        Self {
            seed,
            cast,
            chance: Chance::new(seed),
            port,
            maas,
            elsewhere,
            theirs,
            crashes: 0,
            evacuated: 0,
            trace: Vec::new(),
            manager_clock,
            true_clock,
            time: 0,
            manager: Manager::new(&around, 0),
            guests: Guests::of(seed, cast, || Manager::new(&around, SECOND)),
            around,
            lives: 0,
            after_last_pass: Seen::default(),
            ledgers: Ledgers::default(),
            lenient: false,
            due: BTreeMap::new(),
            watched: Watched::default(),
            wake_all: 0,
            passes: 0,
            under_way: FuturesUnordered::new(),
            busy: BTreeSet::new(),
            hangs: false,
            behind_since: None,
            mortality: 0,
            sluggishness: 0,
        }
    }

    pub(crate) fn arrange(&self, statements: Value) {
        let statements: Vec<_> = serde_json::from_value(statements).unwrap();
        self.maas.control().arrange(&statements).unwrap();
    }

    /// Seconds since the beginning.
    pub(crate) fn now(&self) -> i64 {
        self.time / 1000
    }

    /// Sets the manager's clock forward or back.
    pub(crate) fn set_clock(&mut self, seconds: i64) {
        self.tell(format!("the manager's clock is set by {seconds} s"));
        self.manager_clock.jump(seconds * 1000);
        // Then the age of a refusal is unknown, and the request may be repeated once.
        self.ledgers.forget_refusals();
        self.ledgers.clock_set_at = Some(self.time);
    }

    /// Running passes continue in the meantime.
    async fn let_time_pass(&mut self, milliseconds: i64) {
        let passed = Duration::from_millis(u64::try_from(milliseconds).unwrap_or_default());
        let until = tokio::time::Instant::now() + passed;
        let mut over = Vec::new();
        loop {
            tokio::select! {
                biased;
                Some(done) = self.under_way.next(), if !self.under_way.is_empty() => over.push(done),
                () = tokio::time::sleep_until(until) => break,
            }
        }
        self.clocks_move(passed);
        for (subject, result) in over {
            self.is_over(&subject, &result);
        }
    }

    fn clocks_move(&mut self, passed: Duration) {
        let milliseconds = i64::try_from(passed.as_millis()).unwrap();
        self.time += milliseconds;
        self.manager_clock.advance(milliseconds);
        self.true_clock.advance(milliseconds);
        for maas in [&self.maas, &self.elsewhere, &self.theirs] {
            maas.advance(passed);
        }
    }

    /// The endpoint of MAAS. Each seed has its own: the client limits the requests to one server across all threads.
    pub(crate) fn endpoint(&self) -> String {
        endpoint(self.seed, self.cast, "maas")
    }

    /// The endpoint of a MAAS without any machine of ours.
    pub(crate) fn empty_endpoint(&self) -> String {
        endpoint(self.seed, self.cast, "empty")
    }

    /// The endpoint of the second tenant's MAAS.
    pub(crate) fn their_endpoint(&self) -> String {
        endpoint(self.seed, self.cast, "theirs")
    }

    /// A new process.
    pub(crate) fn restart(&mut self) {
        self.lives += 1;
        self.manager = Manager::new(&self.around, self.lives);
        self.under_way.clear();
        self.busy.clear();
        self.ledgers.forget_refusals();
        // A restart lists everything.
        self.let_watch_lag(false);
        let back = self.time + 3_000;
        self.due = self.subjects().into_iter().map(|subject| (subject, back)).collect();
        if self.guests.is_some() {
            self.schedule(Subject::hosts(), back);
        }
    }

    /// Whether the watch delivers nothing new from now on.
    fn let_watch_lag(&mut self, behind: bool) {
        if behind != self.behind_since.is_some() {
            self.tell(format!("the watch is behind: {behind}"));
        }
        self.behind_since = behind.then(|| self.behind_since.unwrap_or(self.time));
        self.port.let_index_lag(behind);
    }

    pub(crate) fn is_behind(&self) -> bool {
        self.behind_since.is_some()
    }

    /// Whether the manager lacks the permission to delete Machines from now on.
    pub(crate) fn deny_deletions(&self, denied: bool) {
        self.around.denied.store(denied, Ordering::SeqCst);
    }

    /// Every object that is reconciled.
    pub(crate) fn subjects(&self) -> Vec<Subject> {
        let clusters = self.keys("MaasCluster").into_iter().map(Subject::Cluster);
        clusters.chain(self.keys("MaasMachine").into_iter().map(Subject::Machine)).collect()
    }

    pub(crate) fn keys(&self, kind: &str) -> Vec<Key> {
        self.port.objects(kind).iter().map(key).collect()
    }

    /// The MaasMachines of the first tenant, without copies.
    pub(crate) fn originals(&self) -> Vec<Value> {
        let mut objects = self.port.objects("MaasMachine");
        objects.retain(|object| object["metadata"]["namespace"] == HOME.namespace && !is_copy(object));
        objects
    }

    /// Their names.
    pub(crate) fn machines(&self) -> Vec<Key> {
        self.originals().iter().map(key).collect()
    }

    /// Reconciles everything until this many seconds have passed.
    pub(crate) async fn run_for(&mut self, seconds: i64) {
        let end = self.time + seconds * 1000;
        loop {
            self.hear();
            let next = self.due.iter().map(|(subject, at)| (*at, subject.clone())).min();
            let at = next.as_ref().map_or(i64::MAX, |(at, _)| *at).min(self.wake_all);
            if at >= end {
                self.let_time_pass((end - self.time).max(0)).await;
                return;
            }
            self.let_time_pass((at - self.time).max(0)).await;
            if self.wake_all <= at {
                self.wake_all = at + WAKE_ALL;
                for key in self.keys("MaasMachine") {
                    let soon = at + i64::try_from(self.chance.below(2_000)).unwrap();
                    self.schedule(Subject::Machine(key), soon);
                }
                self.boot_nodes();
                continue;
            }
            if let Some((_, subject)) = next {
                self.pass(&subject).await;
            }
        }
    }

    pub(crate) async fn pass(&mut self, subject: &Subject) {
        self.due.remove(subject);
        if self.busy.contains(subject) {
            // Never two passes over one object.
            self.schedule(subject.clone(), self.time + 1_000);
            return;
        }
        self.passes += 1;
        if self.passes > MOST_PASSES {
            self.fail("runs in circles");
        }
        let (manager, of) = (self.looks_after(subject), subject.clone());
        let mut passing: Passing = Box::pin(async move {
            let result = manager.pass(&of).await;
            (of, result)
        });
        if self.hangs && crate::tenants::is_theirs(subject.key()) {
            self.busy.insert(subject.clone());
            self.under_way.push(passing);
            return;
        }
        if self.chance.percent(self.sluggishness) {
            let behind = self.chance.percent(70);
            self.let_watch_lag(behind);
        } else if self.behind_since.is_some_and(|since| self.time - since > STALLED) {
            self.let_watch_lag(false);
        }
        let crash = self.around.crash.clone();
        if self.chance.percent(self.mortality) {
            crash.light(u32::try_from(self.chance.below(22)).unwrap(), self.chance.percent(50));
        }
        self.ledgers.before_a_pass(&self.maas);
        self.with_guests(|guests, world| guests.before_a_pass(world));
        let machines = if matches!(subject, Subject::Hosts(_)) { self.port.objects("Machine") } else { Vec::new() };
        let began = tokio::time::Instant::now();
        let mut over = Vec::new();
        let result = loop {
            tokio::select! {
                biased;
                (_, result) = &mut passing => break Some(result),
                () = crash.happens() => break None,
                Some(done) = self.under_way.next(), if !self.under_way.is_empty() => over.push(done),
            }
        };
        crash.put_out();
        self.heed_requests(subject);
        self.with_guests(|guests, world| guests.heed_deletions(world, &machines));
        // Waiting for answers that never come takes time, too.
        self.clocks_move(began.elapsed());
        for (subject, result) in over {
            self.is_over(&subject, &result);
        }
        if let Some(result) = result {
            self.is_over(subject, &result);
        } else {
            self.tell(format!("died | {}", self.story(subject)));
            self.crashes += 1;
            self.restart();
        }
        self.after_last_pass = law::after_a_pass(self, &self.after_last_pass, matches!(subject, Subject::Cluster(_)));
    }

    /// The manager of the next pass: over the hosts it may be the second one.
    fn looks_after(&mut self, subject: &Subject) -> Manager {
        if let (Some(guests), Subject::Hosts(_)) = (&mut self.guests, subject)
            && guests.chance.percent(15)
        {
            return guests.second.clone();
        }
        self.manager.clone()
    }

    /// A pass has ended that the manager survived.
    fn is_over(&mut self, subject: &Subject, result: &capmaas_manager::kubernetes::Result<Next>) {
        let said = match result {
            Ok(Next::OnChange) => "rests".to_owned(),
            Ok(Next::After(wait)) => format!("again in {wait} ms"),
            Err(error) => format!("failed: {error}"),
        };
        self.busy.remove(subject);
        self.tell(format!("{said} | {}", self.story(subject)));
        match result {
            Ok(Next::OnChange) => {}
            Ok(Next::After(wait)) => {
                let jitter = i64::try_from(self.chance.below(100)).unwrap();
                self.schedule(subject.clone(), self.time + wait + wait * jitter / 500 + 20);
            }
            Err(_) => self.schedule(subject.clone(), self.time + 10_000),
        }
    }

    /// Adds a line to the trace.
    pub(crate) fn tell(&mut self, line: String) {
        let line = format!("{:>6}s {line}", self.now());
        if std::env::var_os("CAPMAAS_SEED").is_some() {
            println!("{line}");
        }
        self.trace.push(line);
    }

    pub(crate) fn schedule(&mut self, subject: Subject, at: i64) {
        let due = self.due.entry(subject).or_insert(at);
        *due = at.min(*due);
    }
}

fn endpoint(seed: u64, cast: Cast, which: &str) -> String {
    let who = if cast == Cast::Vms { "vms" } else { "metal" };
    format!("http://{which}-{who}-{seed}.example:5240/MAAS")
}
