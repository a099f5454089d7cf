//! Change feeds over MAAS's event log: one feed per identity wakes only the machines that the log names, and a slow,
//! evenly spread resync catches what the log misses (deletions are not logged).

use std::collections::{BTreeMap, BTreeSet, HashMap, HashSet};
use std::sync::{Arc, Mutex, PoisonError};
use std::time::Duration;

use capmaas_api::{MaasMachine, names};
use capmaas_core::credentials::{IDENTITY_ANNOTATION, Name};
use capmaas_core::feed::{Feed, News, OnTheWay, PAGE, Question, groups_due, interval, is_on_the_way, is_worth_a_look};
use capmaas_core::machine::{JOURNAL_ANNOTATION, Journal};
use futures::Stream;
use futures::channel::mpsc;
use jiff::SignedDuration;
use kube::runtime::reflector::{ObjectRef, Store};
use kube::{Resource, ResourceExt as _};
use maas_client::{Client, EventQuery};
use tokio::time::Instant;
use tokio_util::task::AbortOnDropHandle;

use crate::clock::{Clock, is_recent};
use crate::identity::{Identities, Identity, entry};
use crate::kubernetes::Key;
use crate::machine_index::MachineIndex;
use crate::metrics::Metrics;

/// Machines that are woken together are read together, so this is the batch size of reads.
const GROUP: usize = 50;
/// Pause between two groups when all machines must be read at once: about as long as MAAS needs for one group.
const GROUP_PAUSE: Duration = Duration::from_secs(2);
/// How often to check for new and dropped identities.
const SUPERVISE: Duration = Duration::from_secs(1);
/// A feed starts within this time after its identity is first used, unless something is wrong.
const FRESH: SignedDuration = SignedDuration::from_secs(30);
/// The longest polling interval for a MAAS that does not answer.
const LONGEST_PAUSE: Duration = Duration::from_secs(60);

/// How many times within the polling interval the feed checks whether a machine in transition makes a poll due early.
const PARTS: u32 = 4;

/// How often MAAS is polled.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub struct Pace {
    /// The polling interval of the event log; down to a quarter of it after a machine has begun a transition.
    pub interval: Duration,
    /// Every machine is reconciled once within this time, whatever the log shows.
    pub resync: Duration,
}

impl Default for Pace {
    fn default() -> Self {
        Self { interval: Duration::from_secs(4), resync: Duration::from_secs(1800) }
    }
}

/// Wakes objects, usually machines, for a pass. Clones share the listeners.
#[derive(Clone)]
pub struct Waker<K: Resource<DynamicType = ()> = MaasMachine> {
    listeners: Arc<Mutex<Vec<Listener<K>>>>,
}

type Listener<K> = mpsc::UnboundedSender<ObjectRef<K>>;

impl<K: Resource<DynamicType = ()>> Default for Waker<K> {
    fn default() -> Self {
        Self { listeners: Arc::default() }
    }
}

impl<K: Resource<DynamicType = ()> + 'static> Waker<K> {
    /// Every object that is woken from now on.
    pub fn subscribe(&self) -> impl Stream<Item = ObjectRef<K>> + Send + 'static + use<K> {
        let (sender, receiver) = mpsc::unbounded();
        self.lock().push(sender);
        receiver
    }

    pub fn wake(&self, object: &ObjectRef<K>) {
        self.lock().retain(|listener| listener.unbounded_send(object.clone()).is_ok());
    }

    fn lock(&self) -> std::sync::MutexGuard<'_, Vec<Listener<K>>> {
        self.listeners.lock().unwrap_or_else(PoisonError::into_inner)
    }
}

/// The feeds of all identities in use.
#[derive(Clone)]
pub struct Feeds {
    /// The identities whose MAAS is polled.
    pub identities: Identities,
    /// The MaasMachines.
    pub machines: Store<MaasMachine>,
    /// Maps MAAS's IDs to MaasMachines.
    pub machine_index: MachineIndex,
    pub waker: Waker,
    pub pace: Pace,
    pub metrics: Metrics,
    pub clock: Clock,
}

impl Feeds {
    /// Polls for every identity in use until it is dropped.
    pub async fn run(self) {
        tokio::join!(self.supervise(), self.resync());
    }

    /// One task per server and user, so that a slow MAAS does not delay the others.
    async fn supervise(&self) {
        let mut running: HashMap<Name, AbortOnDropHandle<()>> = HashMap::new();
        let mut followed: HashSet<Name> = HashSet::new();
        loop {
            let mut wanted: BTreeMap<String, Identity> = BTreeMap::new();
            // Most recently used first: of two keys of one user the newer one works.
            for identity in self.identities.in_use() {
                wanted.entry(identity.name.to_string()).or_insert(identity);
            }
            running.retain(|name, _| wanted.contains_key(&name.to_string()));
            for identity in wanted.into_values() {
                running.entry(identity.name.clone()).or_insert_with(|| {
                    let first = followed.insert(identity.name.clone());
                    tracing::info!(
                        endpoint = identity.endpoint(),
                        user = identity.user(),
                        "following MAAS's event log"
                    );
                    let feed = if first { self.beginning(&identity) } else { Feed::new() };
                    AbortOnDropHandle::new(tokio::spawn(self.clone().follow(identity, feed)))
                });
            }
            tokio::time::sleep(SUPERVISE).await;
        }
    }

    /// A new feed: at startup every machine is reconciled once, after the end of the log was read, so only later events
    /// are new. If the end was read long ago, it does not count, and all machines are reconciled once more.
    fn beginning(&self, identity: &Identity) -> Feed {
        let now = self.clock.now();
        match &identity.log_end {
            Some(end) if is_recent(end.at, FRESH, now) => Feed::after(end.events.to_vec(), end.at),
            _ => Feed::new(),
        }
    }

    async fn follow(self, identity: Identity, mut feed: Feed) {
        let mut pause = self.pace.interval;
        let (began, mut on_the_way) = (Instant::now(), OnTheWay::default());
        loop {
            // A rotated key is another client of the same identity: the log continues where it was.
            let current = self.current(&identity);
            match poll(&current.client, &mut feed, &self.clock).await {
                Ok(news) => {
                    pause = self.pace.interval;
                    self.spread(&identity, &news).await;
                    if !news.more {
                        self.rest(&identity.name, &mut on_the_way, began).await;
                    }
                }
                Err(error) => {
                    tracing::warn!(endpoint = identity.endpoint(), %error, "MAAS's event log cannot be read");
                    if error.is_unauthenticated() {
                        self.identities.doubt(&current);
                    }
                    pause = (pause * 2).min(LONGEST_PAUSE);
                    tokio::time::sleep(pause).await;
                }
            }
        }
    }

    /// Waits until the next poll is due: early while a transition is young, so that the end of a short one is noticed at
    /// once, and a long one does not cost a request every second.
    async fn rest(&self, name: &Name, on_the_way: &mut OnTheWay<Key>, began: Instant) {
        let longest = SignedDuration::try_from(self.pace.interval).unwrap_or(SignedDuration::MAX);
        for part in 1..=PARTS {
            tokio::time::sleep(self.pace.interval / PARTS).await;
            let now = SignedDuration::try_from(began.elapsed()).unwrap_or(SignedDuration::MAX);
            let due = interval(on_the_way.youngest(self.in_transition(name), now), longest);
            if self.pace.interval * part / PARTS >= due.unsigned_abs() {
                return;
            }
        }
    }

    /// The machines of this identity in states that end by themselves, with those.
    fn in_transition(&self, name: &Name) -> Vec<(Key, String)> {
        let mut machines = self.machines.state();
        machines.retain(|machine| may_be_of(machine, name));
        machines.iter().filter_map(|machine| Some((Key::of(machine.as_ref()), transition(machine)?))).collect()
    }

    fn current(&self, identity: &Identity) -> Identity {
        let in_use = self.identities.in_use();
        in_use.into_iter().find(|other| other.name == identity.name).unwrap_or_else(|| identity.clone())
    }

    async fn spread(&self, identity: &Identity, news: &News) {
        let name = &identity.name;
        if news.resync {
            self.metrics.feed_reset();
            let machines = self.all(|machine| may_be_of(machine, name));
            tracing::info!(
                endpoint = name.endpoint,
                user = name.user,
                machines = machines.len(),
                "reconciling all machines of this identity: event log was reset"
            );
            for group in machines.chunks(GROUP) {
                self.wake_all(group);
                tokio::time::sleep(GROUP_PAUSE).await;
            }
        }
        let mut woken = BTreeSet::new();
        for (id, kinds) in &news.machines {
            let named = self.machine_index.named(identity.endpoint(), id);
            woken
                .extend(named.into_iter().filter(|machine| is_worth_a_look(kinds, self.last_seen(machine).as_deref())));
        }
        self.metrics.woken(u64::try_from(woken.len()).unwrap_or(u64::MAX));
        for machine in &woken {
            self.waker.wake(&ObjectRef::new(&machine.name).within(&machine.namespace));
        }
    }

    /// The MAAS state of a machine, according to its object.
    fn last_seen(&self, machine: &Key) -> Option<String> {
        let machine = self.machines.get(&ObjectRef::new(&machine.name).within(&machine.namespace))?;
        machine.status.as_ref()?.machine_state.clone()
    }

    /// Wakes every machine once per period, fifty at a time, evenly spread.
    async fn resync(&self) {
        loop {
            let (began, machines) = (Instant::now(), self.all(|machine| !is_waiting(machine)));
            let groups: Vec<_> = machines.chunks(GROUP).collect();
            let period = SignedDuration::try_from(self.pace.resync).unwrap_or(SignedDuration::MAX);
            let mut done = 0;
            while done < groups.len() || began.elapsed() < self.pace.resync {
                tokio::time::sleep(self.pace.interval.min(self.pace.resync)).await;
                let elapsed = SignedDuration::try_from(began.elapsed()).unwrap_or(SignedDuration::MAX);
                let due = groups_due(groups.len(), period, elapsed);
                for group in groups.iter().take(due).skip(done) {
                    self.wake_all(group);
                }
                done = done.max(due);
            }
        }
    }

    fn wake_all(&self, machines: &[ObjectRef<MaasMachine>]) {
        for machine in machines {
            self.waker.wake(machine);
        }
    }

    /// All machines that match, sorted by cluster: those of one cluster use the same MAAS, so they can be read in one
    /// batch.
    fn all(&self, counts: impl Fn(&MaasMachine) -> bool) -> Vec<ObjectRef<MaasMachine>> {
        let mut machines = self.machines.state();
        machines.retain(|machine| counts(machine));
        machines.sort_by_key(|machine| {
            let cluster = machine.labels().get(names::CLUSTER_NAME_LABEL).cloned();
            (machine.namespace(), cluster, machine.name_any())
        });
        machines.iter().map(|machine| ObjectRef::from_obj(machine.as_ref())).collect()
    }
}

/// Whether MAAS may hold something for the machine under this identity. A machine without a journal has requested
/// nothing yet; a machine without a recorded identity counts for all of them.
fn may_be_of(machine: &MaasMachine, name: &Name) -> bool {
    let said = |annotation: &str| machine.annotations().get(annotation);
    if let Some(recorded) = said(IDENTITY_ANNOTATION) {
        return *recorded == name.to_string();
    }
    let spec = &machine.spec;
    said(JOURNAL_ANNOTATION).is_some() || spec.provider_id().is_some() || spec.system_id().is_some()
}

/// Whether the machine is still waiting for an allocation. It retries by itself, at a rate that ten thousand of them
/// share (S26).
fn is_waiting(machine: &MaasMachine) -> bool {
    let record = Journal::read(machine.metadata.annotations.as_ref()).ok().flatten();
    let leaves = machine.metadata.deletion_timestamp.is_some();
    !leaves && machine.spec.provider_id().is_none() && record.is_some_and(|record| record.allocation.is_none())
}

/// The state of a machine if it ends by itself.
fn transition(machine: &MaasMachine) -> Option<String> {
    machine.status.as_ref()?.machine_state.clone().filter(|state| is_on_the_way(state))
}

/// Polls the log once.
pub async fn poll(client: &Client, feed: &mut Feed, clock: &Clock) -> maas_client::Result<News> {
    let entries = match feed.question() {
        Question::Newest => client.events().newest().await?.into_iter().map(entry).collect(),
        Question::After(after) => {
            let limit = u16::try_from(PAGE).ok();
            let query = EventQuery { after: Some(after), limit, ..EventQuery::default() };
            client.events().query(&query).await?.events.into_iter().map(entry).collect()
        }
    };
    Ok(feed.take(entries, clock.now()))
}
