//! What the status says while MAAS takes its time, and what that costs Kubernetes.

use std::time::Duration;

use capmaas_core::plan::Requeue;
use capmaas_manager::kubernetes::Key;
use serde_json::json;
use tokio::time::{Instant, sleep};

use crate::hosts::{IMAGE, join};
use crate::stage::{Stage, key};

/// How long a sentence may stand that is not true any more, with the time between two looks.
const SOON: Duration = Duration::from_millis(2_200);
/// How many versions of a MaasCluster are written while MAAS is fast: from its creation until it is ready, with the first
/// control plane machine, and at its deletion.
const WRITES: [usize; 3] = [4, 1, 2];
const NOBODYS: &str = "no Cluster owns this object yet";

fn slow(stage: &Stage, seconds: f64) {
    let rule = json!({ "match": {}, "do": "slow", "seconds": seconds, "times": 0 });
    stage.maas.control().add_fault(serde_json::from_value(rule).unwrap());
}

fn message(stage: &Stage) -> String {
    stage.condition("Ready")["message"].as_str().unwrap_or_default().to_owned()
}

/// A MaasCluster about which a pass said that no Cluster owns it, and that a Cluster has owned since.
async fn owned_since() -> Stage {
    let stage = Stage::new();
    stage.plain_cluster();
    let owned = |owners| json!({ "metadata": { "ownerReferences": owners } });
    let owners = stage.object()["metadata"]["ownerReferences"].clone();
    stage.port.edit("MaasCluster", &key(), &owned(json!([]))).unwrap();
    stage.pass().await;
    assert_eq!(message(&stage), NOBODYS);
    stage.port.edit("MaasCluster", &key(), &owned(owners)).unwrap();
    stage
}

/// The messages of Ready, each with the time at which somebody who reads the status all the time has read it first.
struct Told {
    messages: Vec<(Duration, String)>,
    end: Duration,
}

impl Told {
    /// Runs passes until nothing is to be done immediately.
    async fn by_passes(stage: &Stage) -> Self {
        let (start, mut messages) = (Instant::now(), Vec::<(Duration, String)>::new());
        let reading = async {
            loop {
                let now = message(stage);
                if messages.last().is_none_or(|(_, last)| *last != now) {
                    messages.push((start.elapsed(), now));
                }
                sleep(Duration::from_millis(100)).await;
            }
        };
        let passes = async { while stage.pass().await == Requeue::NOW {} };
        tokio::select! {
            () = passes => {}
            () = reading => {}
        }
        Self { messages, end: start.elapsed() }
    }

    /// From when until when the first message with these words was there.
    fn period(&self, words: &str) -> (Duration, Duration) {
        let at = self.messages.iter().position(|(_, message)| message.contains(words));
        let at = at.unwrap_or_else(|| panic!("{words:?} is not among {:#?}", self.messages));
        (self.messages[at].0, self.messages.get(at + 1).map_or(self.end, |(next, _)| *next))
    }

    fn lasted(&self, words: &str) -> Duration {
        let (from, until) = self.period(words);
        until.checked_sub(from).unwrap()
    }
}

#[tokio::test(start_paused = true)]
async fn with_a_slow_maas_a_new_cluster_says_what_is_waited_for_while_it_is_waited_for() {
    let stage = owned_since().await;
    slow(&stage, 20.0);
    let told = Told::by_passes(&stage).await;
    assert!(told.lasted(NOBODYS) <= SOON, "{:#?}", told.messages);
    assert!(told.lasted("MAAS is being read, to choose a name") >= Duration::from_secs(17), "{:#?}", told.messages);
    assert!(
        told.lasted("waiting for MAAS to create the DNS record") >= Duration::from_secs(17),
        "{:#?}",
        told.messages
    );
    assert_eq!(stage.records().len(), 1);
    assert_eq!(message(&stage), "APIServerAvailable: waiting for the first control plane machine");
}

#[tokio::test(start_paused = true)]
async fn waits_of_several_passes_that_are_short_one_by_one_count_together() {
    let stage = owned_since().await;
    stage.identities.of_manager().await.unwrap();
    slow(&stage, 0.9);
    let told = Told::by_passes(&stage).await;
    assert!(told.end > SOON, "{:?}", told.end);
    assert!(told.lasted(NOBODYS) <= SOON, "{:#?}", told.messages);
}

#[tokio::test(start_paused = true)]
async fn with_a_slow_maas_a_cluster_does_not_wait_for_a_machine_that_is_there() {
    let stage = Stage::new();
    stage.plain_cluster();
    stage.rest().await;
    stage.control_plane("cp1");
    slow(&stage, 20.0);
    let told = Told::by_passes(&stage).await;
    assert!(told.lasted("waiting for the first control plane machine") <= SOON, "{:#?}", told.messages);
    assert!(told.lasted("resolves to a control plane machine") >= Duration::from_secs(37), "{:#?}", told.messages);
    assert_eq!(stage.records()[0].1.len(), 1);
}

#[tokio::test(start_paused = true)]
async fn with_a_slow_maas_a_cluster_that_is_deleted_says_what_is_waited_for() {
    let stage = Stage::new();
    stage.plain_cluster();
    stage.rest().await;
    let before = message(&stage);
    stage.port.delete("MaasCluster", &key());
    slow(&stage, 20.0);
    let told = Told::by_passes(&stage).await;
    assert!(told.lasted(&before) <= SOON, "{:#?}", told.messages);
    assert!(told.lasted("MAAS is being read") >= Duration::from_secs(17), "{:#?}", told.messages);
    assert!(
        told.lasted("waiting for MAAS to delete the DNS record") >= Duration::from_secs(17),
        "{:#?}",
        told.messages
    );
    assert!(stage.object().is_null() && stage.records().is_empty());
}

#[tokio::test(start_paused = true)]
async fn an_api_server_that_hangs_is_not_waited_for_as_a_machine() {
    let stage = Stage::new();
    stage.plain_cluster();
    stage.rest().await;
    stage.control_plane("cp1");
    stage.crash.let_probes_hang(Duration::from_secs(30));
    let told = Told::by_passes(&stage).await;
    assert!(told.lasted("waiting for the first control plane machine") <= SOON, "{:#?}", told.messages);
    assert!(told.lasted("checking whether the API server answers") >= Duration::from_secs(27), "{:#?}", told.messages);
    let silent = message(&stage);
    assert!(silent.contains("it does not answer"), "{silent}");
    // Afterwards the last answer stands, until there is another one.
    stage.advance(60);
    let told = Told::by_passes(&stage).await;
    assert_eq!(told.messages.len(), 1, "{:#?}", told.messages);
}

#[tokio::test(start_paused = true)]
async fn with_a_slow_maas_a_cluster_of_hosts_says_that_they_are_being_read() {
    let mut stage = Stage::new();
    stage.context.agent_image = Some(IMAGE.into());
    stage.cluster(json!({}), json!({ "lxdControlPlaneCluster": true }), json!({}));
    stage.rest().await;
    join(&stage, "cp1");
    stage.rest().await;
    stage.port.workload_answers(&key(), true);
    stage.advance(25);
    slow(&stage, 20.0);
    let told = Told::by_passes(&stage).await;
    assert!(told.lasted("it does not answer") <= SOON, "{:#?}", told.messages);
    assert!(told.lasted("reading the VM hosts from MAAS") >= Duration::from_secs(17), "{:#?}", told.messages);
}

#[tokio::test]
async fn a_cluster_costs_kubernetes_few_writes_while_maas_is_fast() {
    let stage = owned_since().await;
    stage.port.take_versions();
    let written = || stage.port.take_versions().iter().filter(|version| version.kind == "MaasCluster").count();
    stage.rest().await;
    let created = written();
    stage.control_plane("cp1");
    stage.rest().await;
    let published = written();
    stage.gone("cp1");
    stage.rest().await;
    assert!(stage.port.object("MaasMachine", &Key::new("default", "cp1")).is_none());
    stage.port.take_versions();
    stage.port.delete("MaasCluster", &key());
    stage.rest().await;
    assert!(stage.object().is_null());
    assert_eq!([created, published, written()], WRITES);
}
