//! One watch per kind, shared by all listeners.
//!
//! kube's shared streams do not pass on deletions, and one listener that is not polled blocks all others; its watcher
//! hides bookmarks, so that an idle watch and a dead one look alike for five minutes. So list and watch are implemented
//! here: small, reporting every sign of life to [`Liveness`], and serving any number of listeners.

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

/// Objects per page of a list: a small page costs little memory, and Kubernetes 1.29 refuses streaming lists.
const PAGE: u32 = 50;
/// How long the API server keeps one watch open. It must be below 295 s, kube's own limit.
const WATCH_SECONDS: u32 = 240;
/// A watch that is silent for this long after it should have ended hangs on a dead connection.
const OVERDUE: Duration = Duration::from_secs(WATCH_SECONDS as u64 + 20);
/// Timeout for one page of a list.
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

/// A change reported by a watch.
#[derive(Debug)]
pub enum Change<'a, K> {
    /// A new object, or a new version of one.
    Applied(&'a K),
    Deleted(&'a K),
    /// Exactly these objects exist.
    Replaced(&'a [K]),
}

/// Receives every change before the store shows it, so that its own state is never behind the store.
pub type OnChange<K> = Box<dyn FnMut(Change<'_, K>) + Send>;

type Listeners<K> = Arc<Mutex<Vec<mpsc::UnboundedSender<Arc<K>>>>>;

/// A watched kind: its store and its listeners. Clones share the watch, which ends with the last of them.
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
    /// Starts a watch. `name` is its name in [`Liveness`].
    pub fn start(
        name: &'static str,
        api: Api<K>,
        kind: K::DynamicType,
        selection: Selection,
        liveness: &Liveness,
    ) -> Self {
        Self::start_with(name, api, kind, selection, liveness, Box::new(|_| {}))
    }

    /// The same, with a callback that receives every change first.
    pub fn start_with(
        name: &'static str,
        api: Api<K>,
        kind: K::DynamicType,
        selection: Selection,
        liveness: &Liveness,
        on_change: OnChange<K>,
    ) -> Self {
        let writer = Writer::<K>::new(kind.clone());
        let store = writer.as_reader();
        let listeners = Listeners::<K>::default();
        let (done, synced) = watch::channel(false);
        let root =
            Root { api, kind, selection, writer, on_change, store: store.clone(), listeners: listeners.clone(), done };
        let task = tokio::spawn(root.run(name, liveness.watch(name)));
        Self { store, listeners, synced, task: Arc::new(AbortOnDropHandle::new(task)) }
    }

    /// The watch's cache. Use [`synced`](Self::synced), never the store's own `wait_until_ready`: of several tasks that
    /// await that, only one wakes up.
    pub fn store(&self) -> Store<K> {
        self.store.clone()
    }

    /// Waits until the initial list is complete.
    pub async fn synced(&self) {
        // An error means that the watch has ended, which happens only at shutdown.
        let _ = self.synced.clone().wait_for(|synced| *synced).await;
    }

    /// Every existing object and every change from now on, including deletions (with the last known state).
    pub fn subscribe(&self) -> impl Stream<Item = Arc<K>> + Send + 'static + use<K> {
        let (sender, receiver) = mpsc::unbounded();
        // Under the lock: nothing is stored between the replay and the first change that is delivered.
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
    on_change: OnChange<K>,
    store: Store<K>,
    listeners: Listeners<K>,
    done: watch::Sender<bool>,
}

/// Why a watch has to be restarted.
enum End {
    /// The version is too old for the API server, or the answer was malformed: list again.
    ListAgain(String),
    /// Continue from the last version.
    GoOn(String),
    /// The API server's data is older than what was observed: list again.
    Restored { seen: String, now: String },
}

/// Versions only grow; a lower one means that the data was restored from a backup.
fn restored(seen: &str, now: &str) -> Result<(), End> {
    match (seen.parse::<u64>(), now.parse::<u64>()) {
        (Ok(before), Ok(after)) if after < before => Err(End::Restored { seen: seen.to_owned(), now: now.to_owned() }),
        _ => Ok(()),
    }
}

fn advance(version: &mut String, now: Option<String>) -> Result<(), End> {
    if let Some(now) = now {
        restored(version, &now)?;
        *version = now;
    }
    Ok(())
}

impl<K> Root<K>
where
    K: Resource + Clone + Debug + DeserializeOwned + Send + Sync + 'static,
    K::DynamicType: Hash + Eq + Clone + Debug + Send + Sync,
{
    async fn run(mut self, name: &'static str, progress: Progress) {
        let mut pause = FIRST_PAUSE;
        let mut version: Option<String> = None;
        let mut listed = false;
        loop {
            let ended = match version.take() {
                None => match self.list().await {
                    Ok(from) => {
                        pause = FIRST_PAUSE;
                        progress.made();
                        (version, listed) = (Some(from), true);
                        continue;
                    }
                    Err(why) => why,
                },
                Some(mut from) => match self.go_on(&mut from, std::mem::take(&mut listed), &progress).await {
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
                    Err(End::Restored { seen, now }) => {
                        tracing::warn!(
                            watch = name,
                            seen,
                            now,
                            "the API server's data is older than what was already seen (restored from a backup?): listing everything again"
                        );
                        pause = FIRST_PAUSE;
                        continue;
                    }
                },
            };
            tracing::debug!(watch = name, "watch interrupted: {ended}");
            progress.failed(ended);
            tokio::time::sleep(pause).await;
            pause = (pause * 2).min(LONGEST_PAUSE);
        }
    }

    /// Lists everything and returns the version to watch from.
    async fn list(&mut self) -> Result<String, String> {
        let mut params = self.selection.list();
        let mut objects = Vec::new();
        loop {
            let page = tokio::time::timeout(LIST_DEADLINE, self.api.list(&params)).await;
            let page = page.map_err(|_| "no answer to a list".to_owned())?.map_err(|error| error.to_string())?;
            // In pages: one large list would need three times the memory.
            objects.extend(page.items.into_iter().map(pruned));
            if let Some(token) = page.metadata.continue_.filter(|token| !token.is_empty()) {
                params.continue_token = Some(token);
                continue;
            }
            self.replace(objects);
            return page.metadata.resource_version.ok_or_else(|| "a list without a version".to_owned());
        }
    }

    /// Follows changes from a version on. A restore of etcd breaks connections, and a watch from a future version is
    /// silent without an error until that version is reached. So before a watch is reopened, the API server is asked
    /// for its current version.
    async fn go_on(&mut self, version: &mut String, listed: bool, progress: &Progress) -> Result<(), End> {
        if !listed {
            let params = ListParams { limit: Some(1), ..self.selection.list() };
            let asked = tokio::time::timeout(LIST_DEADLINE, self.api.list(&params)).await;
            let list = asked.map_err(|_| End::GoOn("no answer to a list".to_owned()))?;
            let list = list.map_err(|error| End::GoOn(error.to_string()))?;
            restored(version, list.metadata.resource_version.as_deref().unwrap_or_default())?;
        }
        self.follow(version, progress).await
    }

    /// Follows changes until the API server ends the watch, as it does periodically.
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
            let next = next.map_err(|_| End::GoOn("the watch stopped sending events".to_owned()))?;
            let Some(event) = next.map_err(go_on)? else { return Ok(()) };
            progress.made();
            match event {
                WatchEvent::Added(object) | WatchEvent::Modified(object) => {
                    advance(version, object.resource_version())?;
                    self.deliver(Event::Apply(pruned(object)));
                }
                WatchEvent::Deleted(object) => {
                    advance(version, object.resource_version())?;
                    self.deliver(Event::Delete(pruned(object)));
                }
                WatchEvent::Bookmark(mark) => advance(version, Some(mark.metadata.resource_version))?,
                WatchEvent::Error(status) => {
                    return Err(End::ListAgain(status.message.clone()));
                }
            }
        }
    }

    fn deliver(&mut self, event: Event<K>) {
        let mut listeners = lock(&self.listeners);
        match &event {
            Event::Apply(object) => (self.on_change)(Change::Applied(object)),
            Event::Delete(object) => (self.on_change)(Change::Deleted(object)),
            Event::Init | Event::InitApply(_) | Event::InitDone => {}
        }
        self.writer.apply_watcher_event(&event);
        if let Event::Apply(object) | Event::Delete(object) = event {
            send(&mut listeners, &Arc::new(object));
        }
    }

    /// Replaces the store's content with a full list, and reports everything in it and everything that is gone since
    /// the last one.
    fn replace(&mut self, objects: Vec<K>) {
        let mut listeners = lock(&self.listeners);
        let before = self.store.state();
        (self.on_change)(Change::Replaced(&objects));
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

/// Managed fields are not needed here, and make up half of an object.
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

#[cfg(test)]
mod tests {
    use std::sync::atomic::{AtomicU64, Ordering};

    use k8s_openapi::api::core::v1::ConfigMap;
    use kube::Client;
    use kube::client::Body;
    use serde_json::{Value, json};
    use tower::BoxError;

    use super::*;

    /// An API server whose data has this version and one object named after it. Its watches show `shown` and end after
    /// a minute.
    fn api_server(version: &Arc<AtomicU64>, shown: fn(u64) -> Vec<Value>) -> Api<ConfigMap> {
        let version = version.clone();
        let service = tower::service_fn(move |request: http::Request<Body>| {
            let now = version.load(Ordering::SeqCst);
            let watched = request.uri().query().is_some_and(|query| query.contains("watch=true"));
            async move {
                if watched {
                    let lines = shown(now).iter().map(Value::to_string).collect::<Vec<_>>().join("\n");
                    tokio::time::sleep(Duration::from_secs(60)).await;
                    return Ok::<_, BoxError>(http::Response::new(Body::from(lines.into_bytes())));
                }
                let item = json!({"metadata": {"name": format!("at-{now}"), "resourceVersion": now.to_string()}});
                let list = json!({
                    "apiVersion": "v1", "kind": "ConfigMapList", "metadata": {"resourceVersion": now.to_string()}, "items": [item],
                });
                Ok(http::Response::new(Body::from(list.to_string().into_bytes())))
            }
        });
        Api::namespaced(Client::new(service, "default"), "default")
    }

    async fn sees(watch: &Watch<ConfigMap>) -> Vec<String> {
        tokio::time::sleep(Duration::from_secs(150)).await;
        watch.store().state().iter().map(|object| object.name_any()).collect()
    }

    #[tokio::test(start_paused = true)]
    async fn an_etcd_that_was_restored_without_a_newer_revision_is_noticed_and_listed_again() {
        let version = Arc::new(AtomicU64::new(1000));
        let watch = Watch::start(
            "ConfigMap",
            api_server(&version, |_| Vec::new()),
            (),
            Selection::default(),
            &Liveness::default(),
        );
        watch.synced().await;
        assert_eq!(sees(&watch).await, ["at-1000"]);
        version.store(800, Ordering::SeqCst);
        assert_eq!(sees(&watch).await, ["at-800"], "a watch from 1000 on would show nothing of it for ever");
        version.store(1200, Ordering::SeqCst);
        assert_eq!(sees(&watch).await, ["at-800"], "what goes forward is left to the watch");
    }

    #[tokio::test(start_paused = true)]
    async fn a_bookmark_from_another_past_has_everything_listed_again() {
        fn bookmark(now: u64) -> Vec<Value> {
            let metadata = json!({"resourceVersion": (now - 1).to_string(), "annotations": {}});
            let object = json!({"apiVersion": "v1", "kind": "ConfigMap", "metadata": metadata});
            if now == 900 { vec![json!({"type": "BOOKMARK", "object": object})] } else { Vec::new() }
        }
        let version = Arc::new(AtomicU64::new(900));
        let watch =
            Watch::start("ConfigMap", api_server(&version, bookmark), (), Selection::default(), &Liveness::default());
        watch.synced().await;
        let mut told = watch.subscribe().boxed();
        told.next().await.unwrap();
        let again = tokio::time::timeout(Duration::from_secs(90), told.next()).await;
        assert_eq!(again.unwrap().unwrap().name_any(), "at-900", "told once more, because it was listed again");
    }
}
