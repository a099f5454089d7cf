//! A recorder: continuously observes how many machines clusters are missing, and whether a host was removed while it
//! still had VMs.

use std::collections::{BTreeMap, BTreeSet};
use std::sync::{Arc, Mutex, PoisonError};
use std::time::{Duration, Instant};

use anyhow::ensure;
use serde_json::Value;
use tokio::sync::watch;
use tokio::task::JoinHandle;

use crate::Objects;
use crate::cluster::ClusterPlan;
use crate::maas::Maas;
use crate::scene::Scene;

const LOOK_EVERY: Duration = Duration::from_millis(300);
const ANSWER: Duration = Duration::from_secs(5);
const CONTROL_PLANE: &str = "cluster.x-k8s.io/control-plane";

/// UIDs of all Machines of the observed clusters that have ever been seen.
type Uids = Arc<Mutex<BTreeSet<String>>>;

/// Observes until it is ended.
pub struct Recorder {
    stop: watch::Sender<()>,
    uids: Uids,
    looking: JoinHandle<Record>,
}

#[derive(Default)]
struct Record {
    looks: usize,
    /// The number of failed observations and the last error.
    failures: (usize, String),
    /// Observations that differ from the previous one.
    samples: Vec<Sample>,
}

struct Sample {
    at: Duration,
    seen: Seen,
}

#[derive(Debug, PartialEq)]
struct Seen {
    /// How many machines are missing or about to be: keyed by cluster for control planes, by `<cluster> workers` for
    /// workers.
    missing: BTreeMap<String, usize>,
    /// Instances whose host is no longer a host.
    homeless: Vec<String>,
}

/// An observed cluster.
struct Watched {
    machines: Objects,
    name: String,
    wanted: [usize; 2],
    uids: Uids,
}

impl Watched {
    fn new(scene: &Scene, plan: &ClusterPlan, uids: &Uids) -> anyhow::Result<Self> {
        let wanted = [usize::try_from(plan.control_planes)?, usize::try_from(plan.workers)?];
        let (machines, name) = (scene.objects(plan, "Machine")?, plan.name.clone());
        Ok(Self { machines, name, wanted, uids: Arc::clone(uids) })
    }

    async fn missing(&self) -> anyhow::Result<[(String, usize); 2]> {
        let mut all = self.machines.list().await?;
        all.retain(|it| it["spec"]["clusterName"] == self.name.as_str());
        let uids = all.iter().filter_map(|it| it["metadata"]["uid"].as_str().map(str::to_owned));
        self.uids.lock().unwrap_or_else(PoisonError::into_inner).extend(uids);
        let there = |it: &&Value| it["metadata"]["deletionTimestamp"].is_null() && !it["status"]["nodeRef"].is_null();
        let leads = |it: &&Value| it["metadata"]["labels"].get(CONTROL_PLANE).is_some();
        let (leading, working): (Vec<&Value>, Vec<&Value>) = all.iter().filter(there).partition(leads);
        Ok([
            (self.name.clone(), self.wanted[0].saturating_sub(leading.len())),
            (format!("{} workers", self.name), self.wanted[1].saturating_sub(working.len())),
        ])
    }
}

impl Recorder {
    /// Starts to observe clusters that have all their machines.
    pub fn start(scene: &Scene, plans: &[&ClusterPlan]) -> anyhow::Result<Self> {
        let uids = Uids::default();
        let watched: Vec<Watched> =
            plans.iter().map(|plan| Watched::new(scene, plan, &uids)).collect::<anyhow::Result<_>>()?;
        let (stop, mut stopped) = watch::channel(());
        let maas = Arc::clone(&scene.maas);
        let looking = tokio::spawn(async move {
            let (mut record, start) = (Record::default(), Instant::now());
            loop {
                match look(&watched, &maas).await {
                    Ok(seen) => record.note(start.elapsed(), seen),
                    Err(error) => record.failures = (record.failures.0 + 1, format!("{error:#}")),
                }
                tokio::select! {
                    _ = stopped.changed() => return record,
                    () = tokio::time::sleep(LOOK_EVERY) => {}
                }
            }
        });
        Ok(Self { stop, uids, looking })
    }

    /// How many Machines the clusters have had so far, together.
    pub fn machines_seen(&self) -> usize {
        self.uids.lock().unwrap_or_else(PoisonError::into_inner).len()
    }

    /// Ends it. Returns the highest number of machines that each group missed at the same time, without groups that
    /// never missed any. Fails if a host was released or unregistered with an instance on it.
    pub async fn end(self) -> anyhow::Result<BTreeMap<String, usize>> {
        drop(self.stop);
        let record = self.looking.await?;
        // Printed when a test fails.
        let (looks, (failures, why)) = (record.looks, &record.failures);
        println!("looked {looks} times, not answered {failures} times {why}");
        for Sample { at, seen } in &record.samples {
            println!("after {} s: {seen:?}", at.as_secs());
        }
        ensure!(looks > 10, "it was looked {looks} times; {failures} times there was no answer: {why}");
        let homeless = record.samples.iter().find(|sample| !sample.seen.homeless.is_empty());
        ensure!(homeless.is_none(), "a host went from under its VMs: {:?}", homeless.map(|sample| &sample.seen));
        let mut most: BTreeMap<String, usize> = BTreeMap::new();
        for (group, missing) in record.samples.iter().flat_map(|sample| &sample.seen.missing) {
            if *missing > 0 {
                let worst = most.entry(group.clone()).or_default();
                *worst = (*missing).max(*worst);
            }
        }
        Ok(most)
    }
}

impl Record {
    fn note(&mut self, at: Duration, seen: Seen) {
        self.looks += 1;
        if self.samples.last().is_none_or(|last| last.seen != seen) {
            self.samples.push(Sample { at, seen });
        }
    }
}

async fn look(watched: &[Watched], maas: &Maas) -> anyhow::Result<Seen> {
    let mut missing = BTreeMap::new();
    for cluster in watched {
        // A request that hangs must not hide what happens meanwhile.
        missing.extend(tokio::time::timeout(ANSWER, cluster.missing()).await??);
    }
    Ok(Seen { missing, homeless: maas.homeless() })
}
