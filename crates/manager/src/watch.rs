//! One watch for each kind, for everybody who needs it.
//!
//! kube's shared streams lose deletions and can wedge, and its watcher shows nothing of a watch that is merely quiet. So the
//! list and the watch are ours: small, with every sign of life reported to [`Liveness`], and told to any number of listeners.

use std::fmt::Debug;
use std::hash::Hash;
use std::sync::{Arc, Mutex, PoisonError};
use std::time::Duration;

use futures::channel::mpsc;
use futures::{Stream, StreamExt as _, TryStreamExt as _};
use kube::api::{ListParams, WatchEvent, WatchParams};
use kube::runtime::reflector::store::Writer;
use kube::runtime::reflector::{ObjectRef, Store};
use kube::runtime::watcher::Event;
use kube::{Api, Resource, ResourceExt as _};
use serde::de::DeserializeOwned;
use tokio::sync::watch;
use tokio_util::task::AbortOnDropHandle;

use crate::health::{Liveness, Progress};

/// Objects of one page of a list: a small page costs little memory, and streaming lists are refused by Kubernetes 1.29.
const PAGE: u32 = 50;
/// How long the API server keeps one watch open. It must be below 295 s, kube's own limit.
const WATCH_SECONDS: u32 = 240;
/// A watch that is silent for this long after it should have ended hangs on a connection that is dead.
const OVERDUE: Duration = Duration::from_secs(WATCH_SECONDS as u64 + 20);
/// The longest list page we wait for.
const LIST_DEADLINE: Duration = Duration::from_secs(60);
const FIRST_PAUSE: Duration = Duration::from_millis(500);
const LONGEST_PAUSE: Duration = Duration::from_secs(30);

/// What is watched.
#[derive(Clone, Debug, Default, PartialEq, Eq)]
pub struct Selection {
    /// Only objects with these labels.
    pub labels: Option<String>,
    /// Only objects with these fields.
    pub fields: Option<String>,
}

impl Selection {
    /// Only objects with these labels, if any are given.
    pub fn labels(labels: Option<String>) -> Self {
        Self { labels, fields: None }
    }

    /// Only the object of this name.
    pub fn name(name: &str) -> Self {
        Self { labels: None, fields: Some(format!("metadata.name={name}")) }
    }

    fn list(&self) -> ListParams {
        let params = ListParams::default().limit(PAGE);
        ListParams { label_selector: self.labels.clone(), field_selector: self.fields.clone(), ..params }
    }

    fn watch(&self) -> WatchParams {
        let params = WatchParams::default().timeout(WATCH_SECONDS);
        WatchParams { label_selector: self.labels.clone(), field_selector: self.fields.clone(), ..params }
    }
}

/// What a watch has learnt.
#[derive(Debug)]
pub enum Change<'a, K> {
    /// There is this object, or this version of it.
    Applied(&'a K),
    /// This object is gone.
    Deleted(&'a K),
    /// There are these objects and no others.
    Replaced(&'a [K]),
}

/// Is told of every change before the store shows it, so that whatever it keeps is never behind the store.
pub type Forerunner<K> = Box<dyn FnMut(Change<'_, K>) + Send>;

type Listeners<K> = Arc<Mutex<Vec<mpsc::UnboundedSender<Arc<K>>>>>;

/// A kind under watch: what it holds, and who is told. Cheap to clone. The watch ends with the last clone.
pub struct Watch<K>
where
    K: Resource + 'static,
    K::DynamicType: Hash + Eq,
{
    store: Store<K>,
    listeners: Listeners<K>,
    synced: watch::Receiver<bool>,
    task: Arc<AbortOnDropHandle<()>>,
}

impl<K> Clone for Watch<K>
where
    K: Resource + 'static,
    K::DynamicType: Hash + Eq + Clone,
{
    fn clone(&self) -> Self {
        let Self { store, listeners, synced, task } = self;
        Self { store: store.clone(), listeners: listeners.clone(), synced: synced.clone(), task: task.clone() }
    }
}

impl<K> Watch<K>
where
    K: Resource + Clone + Debug + DeserializeOwned + Send + Sync + 'static,
    K::DynamicType: Hash + Eq + Clone + Debug + Send + Sync,
{
    /// Begins to watch. `name` is the watch's name in the words of [`Liveness`].
    pub fn start(
        name: &'static str,
        api: Api<K>,
        kind: K::DynamicType,
        selection: Selection,
        liveness: &Liveness,
    ) -> Self {
        Self::start_with(name, api, kind, selection, liveness, Box::new(|_| {}))
    }

    /// The same, with somebody who is told first.
    pub fn start_with(
        name: &'static str,
        api: Api<K>,
        kind: K::DynamicType,
        selection: Selection,
        liveness: &Liveness,
        forerunner: Forerunner<K>,
    ) -> Self {
        let writer = Writer::<K>::new(kind.clone());
        let store = writer.as_reader();
        let listeners = Listeners::<K>::default();
        let (done, synced) = watch::channel(false);
        let root =
            Root { api, kind, selection, writer, forerunner, store: store.clone(), listeners: listeners.clone(), done };
        let task = tokio::spawn(root.run(name, liveness.watch(name)));
        Self { store, listeners, synced, task: Arc::new(AbortOnDropHandle::new(task)) }
    }

    /// What is there, as far as the watch has seen. Use [`synced`](Self::synced), never the store's own `wait_until_ready`: of
    /// several tasks that await that, one wakes.
    pub fn store(&self) -> Store<K> {
        self.store.clone()
    }

    /// Waits until the first list is complete.
    pub async fn synced(&self) {
        // An error means that the watch has ended, which happens only when everything does.
        let _ = self.synced.clone().wait_for(|synced| *synced).await;
    }

    /// Everything that is there now and every change from now on, deletions included (with the last state seen).
    pub fn subscribe(&self) -> impl Stream<Item = Arc<K>> + Send + 'static + use<K> {
        let (sender, receiver) = mpsc::unbounded();
        // Under the lock: nothing is stored between the replay and the first change that is told.
        let mut listeners = lock(&self.listeners);
        for object in self.store.state() {
            let _ = sender.unbounded_send(object);
        }
        listeners.push(sender);
        receiver
    }
}

struct Root<K>
where
    K: Resource + Clone + 'static,
    K::DynamicType: Hash + Eq + Clone,
{
    api: Api<K>,
    kind: K::DynamicType,
    selection: Selection,
    writer: Writer<K>,
    forerunner: Forerunner<K>,
    store: Store<K>,
    listeners: Listeners<K>,
    done: watch::Sender<bool>,
}

/// Why a watch must begin anew.
enum End {
    /// The API server does not remember that far back, or the answer made no sense: list again.
    ListAgain(String),
    /// Go on from where it was.
    GoOn(String),
}

impl<K> Root<K>
where
    K: Resource + Clone + Debug + DeserializeOwned + Send + Sync + 'static,
    K::DynamicType: Hash + Eq + Clone + Debug + Send + Sync,
{
    async fn run(mut self, name: &'static str, progress: Progress) {
        let mut pause = FIRST_PAUSE;
        let mut version: Option<String> = None;
        loop {
            let ended = match version.take() {
                None => match self.list().await {
                    Ok(from) => {
                        pause = FIRST_PAUSE;
                        progress.made();
                        version = Some(from);
                        continue;
                    }
                    Err(why) => why,
                },
                Some(mut from) => match self.follow(&mut from, &progress).await {
                    Ok(()) => {
                        pause = FIRST_PAUSE;
                        version = Some(from);
                        continue;
                    }
                    Err(End::GoOn(why)) => {
                        version = Some(from);
                        why
                    }
                    Err(End::ListAgain(why)) => why,
                },
            };
            tracing::debug!(watch = name, "watch interrupted: {ended}");
            progress.failed(ended);
            tokio::time::sleep(pause).await;
            pause = (pause * 2).min(LONGEST_PAUSE);
        }
    }

    /// Lists everything and answers the version to watch from.
    async fn list(&mut self) -> Result<String, String> {
        let mut params = self.selection.list();
        let mut objects = Vec::new();
        loop {
            let page = tokio::time::timeout(LIST_DEADLINE, self.api.list(&params)).await;
            let page = page.map_err(|_| "no answer to a list".to_owned())?.map_err(|error| error.to_string())?;
            // Page by page: all at once they would need three times the room.
            objects.extend(page.items.into_iter().map(pruned));
            if let Some(token) = page.metadata.continue_.filter(|token| !token.is_empty()) {
                params.continue_token = Some(token);
                continue;
            }
            self.replace(objects);
            return page.metadata.resource_version.ok_or_else(|| "a list without a version".to_owned());
        }
    }

    /// Follows changes until the API server ends the watch, as it does after a while.
    async fn follow(&mut self, version: &mut String, progress: &Progress) -> Result<(), End> {
        let go_on = |error: kube::Error| match error {
            kube::Error::Api(status) if status.code == 410 => End::ListAgain(status.message.clone()),
            error => End::GoOn(error.to_string()),
        };
        let params = self.selection.watch();
        let opened = tokio::time::timeout(LIST_DEADLINE, self.api.watch(&params, version)).await;
        let stream = opened.map_err(|_| End::GoOn("no answer to a watch".to_owned()))?.map_err(go_on)?;
        progress.made();
        let mut stream = stream.boxed();
        loop {
            let next = tokio::time::timeout(OVERDUE, stream.try_next()).await;
            let next = next.map_err(|_| End::GoOn("the watch fell silent".to_owned()))?;
            let Some(event) = next.map_err(go_on)? else { return Ok(()) };
            progress.made();
            match event {
                WatchEvent::Added(object) | WatchEvent::Modified(object) => {
                    *version = object.resource_version().unwrap_or_else(|| version.clone());
                    self.tell(Event::Apply(pruned(object)));
                }
                WatchEvent::Deleted(object) => {
                    *version = object.resource_version().unwrap_or_else(|| version.clone());
                    self.tell(Event::Delete(pruned(object)));
                }
                WatchEvent::Bookmark(mark) => version.clone_from(&mark.metadata.resource_version),
                WatchEvent::Error(status) => {
                    return Err(End::ListAgain(status.message.clone()));
                }
            }
        }
    }

    fn tell(&mut self, event: Event<K>) {
        let mut listeners = lock(&self.listeners);
        match &event {
            Event::Apply(object) => (self.forerunner)(Change::Applied(object)),
            Event::Delete(object) => (self.forerunner)(Change::Deleted(object)),
            Event::Init | Event::InitApply(_) | Event::InitDone => {}
        }
        self.writer.apply_watcher_event(&event);
        if let Event::Apply(object) | Event::Delete(object) = event {
            send(&mut listeners, &Arc::new(object));
        }
    }

    /// Puts a whole list in place, and tells of everything in it and of what is gone since the last one.
    fn replace(&mut self, objects: Vec<K>) {
        let mut listeners = lock(&self.listeners);
        let before = self.store.state();
        (self.forerunner)(Change::Replaced(&objects));
        self.writer.apply_watcher_event(&Event::Init);
        for object in objects {
            self.writer.apply_watcher_event(&Event::InitApply(object));
        }
        self.writer.apply_watcher_event(&Event::InitDone);
        for object in self.store.state() {
            send(&mut listeners, &object);
        }
        let gone =
            |object: &&Arc<K>| self.store.get(&ObjectRef::from_obj_with(object.as_ref(), self.kind.clone())).is_none();
        for object in before.iter().filter(gone) {
            send(&mut listeners, object);
        }
        self.done.send_replace(true);
    }
}

/// Who owns which field is nobody's business here, and half of an object.
fn pruned<K: Resource>(mut object: K) -> K {
    object.meta_mut().managed_fields = None;
    object
}

fn send<K>(listeners: &mut Vec<mpsc::UnboundedSender<Arc<K>>>, object: &Arc<K>) {
    listeners.retain(|listener| listener.unbounded_send(object.clone()).is_ok());
}

fn lock<K>(listeners: &Listeners<K>) -> std::sync::MutexGuard<'_, Vec<mpsc::UnboundedSender<Arc<K>>>> {
    listeners.lock().unwrap_or_else(PoisonError::into_inner)
}
