//! Wakes machines when their Nodes join.
//!
//! MAAS knows nothing about Nodes, so polling it does not help. The API server of the workload cluster knows: the names
//! of a cluster's Nodes are watched while a machine of the cluster waits for its Node, and no longer. An API server
//! that is unavailable is tried every few seconds, once per cluster, not once per machine.

use std::collections::{BTreeMap, BTreeSet};
use std::sync::Arc;
use std::time::Duration;

use capmaas_api::MaasMachine;
use capmaas_api::capi::Machine;
use capmaas_api::names::CLUSTER_NAME_LABEL;
use futures::StreamExt as _;
use kube::ResourceExt as _;
use kube::api::ApiResource;
use kube::runtime::reflector::{ObjectRef, Store};
use tokio::time::Instant;
use tokio_util::task::AbortOnDropHandle;

use crate::feed::Waker;
use crate::kubernetes::{Key, Nodes};
use crate::reconcile::spread;

/// How often to check which clusters have a waiting machine.
const SUPERVISE: Duration = Duration::from_secs(2);
/// The first retry delay for an unavailable API server; it grows from there, and is spread.
const FIRST_PAUSE: Duration = Duration::from_secs(2);
const LONGEST_PAUSE: Duration = Duration::from_secs(10);
/// When the Nodes of a cluster are first listed again, which wakes a machine whose Node could not be read when it was woken. The
/// interval doubles each time.
const LIST_AGAIN: Duration = Duration::from_secs(15);
const LIST_AT_LEAST_EVERY: Duration = Duration::from_secs(600);

/// Wakes machines whose Nodes join.
#[derive(Clone)]
pub struct Joining {
    pub nodes: Arc<dyn Nodes>,
    pub maas_machines: Store<MaasMachine>,
    /// Cluster API's Machines: one that has its Node no longer waits.
    pub machines: Store<Machine>,
    /// The version of Cluster API's kind.
    pub machine_kind: ApiResource,
    pub waker: Waker,
}

impl Joining {
    /// Watches the clusters in which a machine waits for its Node, until it is dropped.
    pub async fn run(self) {
        let mut running: BTreeMap<Key, AbortOnDropHandle<()>> = BTreeMap::new();
        loop {
            let wanted = self.clusters();
            running.retain(|cluster, _| wanted.contains(cluster));
            for cluster in wanted {
                running
                    .entry(cluster.clone())
                    .or_insert_with(|| AbortOnDropHandle::new(tokio::spawn(self.clone().follow(cluster))));
            }
            tokio::time::sleep(SUPERVISE).await;
        }
    }

    async fn follow(self, cluster: Key) {
        let (mut pause, mut again) = (FIRST_PAUSE, LIST_AGAIN);
        'listing: loop {
            if let Ok(mut names) = self.nodes.names(&cluster).await {
                let end = Instant::now() + spread(again);
                loop {
                    match tokio::time::timeout_at(end, names.next()).await {
                        Ok(Some(name)) => {
                            pause = FIRST_PAUSE;
                            self.joined(&cluster, &name);
                        }
                        Ok(None) => break,
                        Err(_) => {
                            again = (again * 2).min(LIST_AT_LEAST_EVERY);
                            continue 'listing;
                        }
                    }
                }
            }
            tokio::time::sleep(spread(pause)).await;
            pause = (pause * 2).min(LONGEST_PAUSE);
        }
    }

    fn joined(&self, cluster: &Key, node: &str) {
        for machine in self.maas_machines.state() {
            if is_name_of(&machine, node) && self.awaited_in(&machine).as_ref() == Some(cluster) {
                self.waker.wake(&ObjectRef::from_obj(machine.as_ref()));
            }
        }
    }

    fn clusters(&self) -> BTreeSet<Key> {
        self.maas_machines.state().iter().filter_map(|machine| self.awaited_in(machine)).collect()
    }

    /// The cluster that the Node of this machine has yet to join.
    fn awaited_in(&self, object: &MaasMachine) -> Option<Key> {
        if object.spec.provider_id().is_none() || object.metadata.deletion_timestamp.is_some() {
            return None;
        }
        let owner = object.owner_references().iter().find(|owner| owner.kind == "Machine")?;
        let key = Key::of(object);
        let reference = ObjectRef::new_with(&owner.name, self.machine_kind.clone()).within(&key.namespace);
        let machine = self.machines.get(&reference)?;
        let joined = machine.status.node_ref.as_ref().is_some_and(|node| !node.name.is_empty());
        let cluster = object.labels().get(CLUSTER_NAME_LABEL).cloned().or_else(|| machine.spec.cluster_name.clone());
        cluster.filter(|_| !joined).map(|cluster| key.beside(cluster))
    }
}

/// Whether a Node of this name may belong to the machine: it is the host name, alone or with a domain.
fn is_name_of(machine: &MaasMachine, node: &str) -> bool {
    let hostname = machine.status.as_ref().and_then(|status| status.hostname.as_ref());
    hostname.is_some_and(|hostname| {
        let hostname = hostname.to_lowercase();
        node.strip_prefix(&hostname).is_some_and(|rest| rest.is_empty() || rest.starts_with('.'))
    })
}

#[cfg(test)]
mod tests {
    use std::sync::Mutex;

    use async_trait::async_trait;
    use futures::channel::mpsc;
    use futures::stream::BoxStream;
    use kube::runtime::reflector::store::Writer;
    use kube::runtime::watcher::Event;
    use serde_json::{Value, json};

    use super::*;
    use crate::kubernetes::{Error, ErrorKind, Result};

    /// An API server that is unavailable at first.
    struct Away {
        tries: Mutex<u32>,
        until: u32,
        names: Vec<String>,
        later: Mutex<Option<mpsc::UnboundedReceiver<String>>>,
    }

    #[async_trait]
    impl Nodes for Away {
        async fn names(&self, cluster: &Key) -> Result<BoxStream<'static, String>> {
            let mut tries = self.tries.lock().unwrap();
            *tries += 1;
            if *tries <= self.until {
                return Err(Error::new(ErrorKind::Unavailable, format!("reach {cluster}"), "away"));
            }
            let later = self.later.lock().unwrap().take().unwrap();
            Ok(futures::stream::iter(self.names.clone()).chain(later).boxed())
        }
    }

    /// API servers that never answer, and when each was tried.
    #[derive(Default)]
    struct Outage(Mutex<BTreeMap<Key, Vec<Instant>>>);

    #[async_trait]
    impl Nodes for Outage {
        async fn names(&self, cluster: &Key) -> Result<BoxStream<'static, String>> {
            self.0.lock().unwrap().entry(cluster.clone()).or_default().push(Instant::now());
            Err(Error::new(ErrorKind::Unavailable, format!("reach {cluster}"), "away"))
        }
    }

    fn machine(name: &str, provider_id: Option<&str>) -> MaasMachine {
        let object = json!({
            "apiVersion": "infrastructure.cluster.x-k8s.io/v1beta1", "kind": "MaasMachine",
            "metadata": {
                "name": name, "namespace": "n", "uid": name, "labels": { (CLUSTER_NAME_LABEL): "c1" },
                "ownerReferences": [{ "apiVersion": "cluster.x-k8s.io/v1beta2", "kind": "Machine", "name": name, "uid": "u" }],
            },
            "spec": { "image": "jammy", "providerID": provider_id },
            "status": { "ready": true, "hostname": format!("host-{name}") },
        });
        serde_json::from_value(object).unwrap()
    }

    fn core_machine(name: &str, node: Option<&str>) -> Machine {
        let status = node.map_or(Value::Null, |node| json!({ "nodeRef": { "name": node } }));
        serde_json::from_value(json!({
            "apiVersion": "cluster.x-k8s.io/v1beta2", "kind": "Machine", "metadata": { "name": name, "namespace": "n" },
            "spec": { "clusterName": "c1" }, "status": status,
        }))
        .unwrap()
    }

    fn store<K>(kind: K::DynamicType, objects: Vec<K>) -> Store<K>
    where
        K: kube::Resource + Clone + 'static,
        K::DynamicType: std::hash::Hash + Eq + Clone,
    {
        let mut writer = Writer::new(kind);
        for event in
            std::iter::once(Event::Init).chain(objects.into_iter().map(Event::InitApply)).chain([Event::InitDone])
        {
            writer.apply_watcher_event(&event);
        }
        writer.as_reader()
    }

    fn joining(nodes: impl Nodes + 'static) -> Joining {
        let kind = Machine::api_resource("v1beta2");
        let ours = ["a", "b", "early", "joined"].map(|name| {
            let provider_id = format!("maas://az1/{name}");
            machine(name, (name != "early").then_some(provider_id.as_str()))
        });
        let theirs = vec![
            core_machine("a", None),
            core_machine("b", None),
            core_machine("early", None),
            core_machine("joined", Some("host-joined")),
        ];
        Joining {
            nodes: Arc::new(nodes),
            maas_machines: store((), ours.to_vec()),
            machines: store(kind.clone(), theirs),
            machine_kind: kind,
            waker: Waker::default(),
        }
    }

    #[tokio::test(start_paused = true)]
    async fn a_machine_is_woken_within_seconds_once_its_node_has_joined() {
        let (join, later) = mpsc::unbounded();
        let names = vec!["host-a".to_owned(), "host-joined".to_owned(), "host-early".to_owned(), "other".to_owned()];
        let away = Away { tries: Mutex::new(0), until: 10, names, later: Mutex::new(Some(later)) };
        let joining = joining(away);
        let mut woken = Box::pin(joining.waker.subscribe());
        let began = Instant::now();
        let running = AbortOnDropHandle::new(tokio::spawn(joining.run()));
        assert_eq!(woken.next().await.unwrap().name, "a", "the API server is back, and the Node is there");
        assert!(began.elapsed() < LONGEST_PAUSE * 11, "{:?}", began.elapsed());
        let before = Instant::now();
        join.unbounded_send("host-b.maas".to_owned()).unwrap();
        assert_eq!(woken.next().await.unwrap().name, "b", "by its whole name");
        assert_eq!(before.elapsed(), Duration::ZERO);
        drop(running);
    }

    /// An API server that names a Node at every list, and then nothing new.
    struct Listed;

    #[async_trait]
    impl Nodes for Listed {
        async fn names(&self, _: &Key) -> Result<BoxStream<'static, String>> {
            Ok(futures::stream::iter(["host-a".to_owned()]).chain(futures::stream::pending()).boxed())
        }
    }

    #[tokio::test(start_paused = true)]
    async fn a_machine_whose_node_could_not_be_read_is_woken_again_more_and_more_rarely() {
        let joining = joining(Listed);
        let mut woken = Box::pin(joining.waker.subscribe());
        let running = AbortOnDropHandle::new(tokio::spawn(joining.run()));
        let began = Instant::now();
        let mut at = Vec::new();
        for _ in 0..4 {
            assert_eq!(woken.next().await.unwrap().name, "a");
            at.push(began.elapsed().as_secs());
        }
        drop(running);
        // After 15, 30 and 60 s, and up to a quarter more.
        assert!(at[0] == 0 && (15..=19).contains(&at[1]) && (45..=57).contains(&at[2]), "{at:?}");
        assert!((105..=132).contains(&at[3]), "{at:?}");
    }

    #[tokio::test(start_paused = true)]
    async fn clusters_behind_one_outage_do_not_retry_in_lockstep() {
        let outage = Arc::new(Outage::default());
        let joining = Joining { nodes: outage.clone(), ..joining(Outage::default()) };
        let began = Instant::now();
        let follow = |number| tokio::spawn(joining.clone().follow(Key::new("n", format!("c{number}"))));
        let running: Vec<_> = (0..20).map(|number| AbortOnDropHandle::new(follow(number))).collect();
        tokio::time::sleep(LONGEST_PAUSE * 6).await;
        drop(running);
        let tries = outage.0.lock().unwrap();
        let fifth: BTreeSet<Duration> = tries.values().map(|tries| tries[4] - began).collect();
        assert!(tries.len() == 20 && fifth.len() > 10, "{fifth:?}");
        // 2, 4, 8 and 10 s, and up to a quarter more.
        assert!(fifth.iter().all(|tried| (24..=30).contains(&tried.as_secs())), "{fifth:?}");
    }

    #[test]
    fn only_clusters_with_a_machine_that_waits_are_watched() {
        let nothing = Away { tries: Mutex::new(0), until: 0, names: Vec::new(), later: Mutex::new(None) };
        let mut joining = joining(nothing);
        assert_eq!(joining.clusters(), BTreeSet::from([Key::new("n", "c1")]));
        let all = ["a", "b", "early", "joined"].map(|name| core_machine(name, Some("node"))).to_vec();
        joining.machines = store(joining.machine_kind.clone(), all);
        assert_eq!(joining.clusters(), BTreeSet::new());
    }
}
