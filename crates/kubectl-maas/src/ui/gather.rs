//! Reads what the page shows, periodically and with little load.

use std::collections::BTreeMap;
use std::sync::Arc;
use std::time::{Duration, Instant};

use capmaas_api::lxd_error::LxdErrorKind;
use capmaas_api::reasons;
use jiff::Timestamp;
use maas_client::{EventQuery, MAX_EVENTS, MachineFilter};
use serde_json::{Value, json};

use super::board::Board;
use super::{Sources, objects, timeline};
use crate::explain::{is_good, what_to_do};
use crate::plan::system_id;
use crate::{condition, text};

/// The minimum polling interval of Kubernetes.
const KUBERNETES_EVERY: Duration = Duration::from_secs(2);
/// The minimum polling interval of MAAS.
const MAAS_EVERY: Duration = Duration::from_secs(10);
/// A read that took a second is repeated after ten: a MAAS with a thousand machines takes half a minute to list them.
const REST: u32 = 10;

/// Keeps a board up to date as long as the program runs.
pub(super) fn start(board: &Board, sources: &Arc<Sources>) {
    let about = json!({
        "namespace": (!sources.all_namespaces).then(|| sources.cluster.namespace()),
        "server": sources.cluster.server(),
        "maas": sources.maas.as_ref().map(|maas| maas.endpoint().to_string()),
    });
    board.replace(&["about"], BTreeMap::from([("about".to_owned(), about)]));
    let (of_kubernetes, of_maas) = (Arc::clone(sources), Arc::clone(sources));
    tokio::spawn(keep(board.clone(), "kubernetes", &["cluster", "machine", "event"], KUBERNETES_EVERY, move || {
        read_kubernetes(Arc::clone(&of_kubernetes))
    }));
    tokio::spawn(keep(board.clone(), "maas", &["host", "metal"], MAAS_EVERY, move || read_maas(Arc::clone(&of_maas))));
}

/// Reads objects of some kinds from one source for ever. The last result stays while the source cannot be read, and the
/// page shows its age.
async fn keep<F>(board: Board, source: &str, kinds: &[&str], every: Duration, mut read: impl FnMut() -> F)
where
    F: Future<Output = anyhow::Result<BTreeMap<String, Value>>>,
{
    let mut last = None;
    loop {
        let begun = Instant::now();
        let told = match read().await {
            Ok(all) => {
                board.replace(kinds, all);
                last = Some(Timestamp::now());
                json!({"error": null})
            }
            Err(error) => json!({"error": format!("{error:#}"), "since": last.map(|time| time.to_string())}),
        };
        board.replace(&[source], BTreeMap::from([(source.to_owned(), told)]));
        tokio::time::sleep(every.max(begun.elapsed() * REST)).await;
    }
}

async fn read_kubernetes(sources: Arc<Sources>) -> anyhow::Result<BTreeMap<String, Value>> {
    let (cluster, all) = (&sources.cluster, sources.all_namespaces);
    let clusters = cluster.any_version("cluster.x-k8s.io", "Cluster", all, None).await?;
    let ours = cluster.ours("MaasCluster", all).await?;
    let machines = cluster.ours("MaasMachine", all).await?;
    let events = cluster.all_events(all).await?;
    Ok(objects::of_kubernetes(&clusters, &ours, &machines, &events))
}

async fn read_maas(sources: Arc<Sources>) -> anyhow::Result<BTreeMap<String, Value>> {
    let Some(client) = &sources.maas else {
        anyhow::bail!("set MAAS_ENDPOINT and MAAS_API_KEY to see hosts, metal and the timelines of machines");
    };
    let told = |error: maas_client::Error| anyhow::anyhow!("{error}; {}", error.advice());
    let hosts = client.vm_hosts().list().await.map_err(told)?;
    let machines = client.machines().list(&MachineFilter::default()).await.map_err(told)?;
    Ok(objects::of_maas(&hosts, &machines, Timestamp::now()))
}

/// One machine in full.
pub(super) async fn details(sources: &Sources, namespace: &str, name: &str) -> anyhow::Result<Value> {
    let cluster = sources.cluster.within(namespace);
    let object = cluster.machine(name).await?;
    let (events, events_error) = match cluster.events(name).await {
        Ok(events) => (events, None),
        Err(error) => (Vec::new(), Some(format!("{error:#}"))),
    };
    let owner =
        object["metadata"]["ownerReferences"].as_array().into_iter().flatten().find(|it| it["kind"] == "Machine");
    let machine = match owner.map(|owner| text(owner, "/name")) {
        Some(owner) => cluster.one_of_any_version("cluster.x-k8s.io", "Machine", owner).await.unwrap_or_default(),
        None => None,
    };
    let mut life = Vec::new();
    if let (Some(client), Some(id)) = (&sources.maas, system_id(&object)) {
        let query = EventQuery { limit: Some(MAX_EVENTS), system_ids: vec![id], ..EventQuery::default() };
        life = client.events().query(&query).await.map(|page| page.events).unwrap_or_default();
    }
    let conditions = object["status"]["conditions"].as_array().into_iter().flatten().map(|condition| {
        let mut shown = condition.clone();
        shown["good"] = json!(is_good(condition));
        shown["action"] = json!(what_to_do(condition));
        shown
    });
    let placement = placement(&events);
    Ok(json!({
        "machine": objects::machine(&object),
        "spec": {"image": object["spec"]["image"], "minCPU": object["spec"]["minCPU"], "minMemory": object["spec"]["minMemory"]},
        "providerID": text(&object, "/spec/providerID"),
        "addresses": object["status"]["addresses"],
        "conditions": conditions.collect::<Vec<_>>(),
        "events": events.iter().map(objects::event).collect::<Vec<_>>(),
        "eventsError": events_error,
        "placementExpired": events_error.is_none() && placement.is_none() && waits_for_placement(&object),
        "placement": placement,
        "timeline": timeline::timeline(&object, machine.as_ref(), &life, Timestamp::now()),
    }))
}

/// Whether no host could be chosen. Kubernetes deletes events after an hour, and the manager does not repeat the verdicts.
fn waits_for_placement(object: &Value) -> bool {
    condition(object, "LXDHostSelected").is_some_and(|it| it["status"] != "True" && is_refusal(text(it, "/reason")))
}

fn is_refusal(reason: &str) -> bool {
    LxdErrorKind::ALL.iter().any(|kind| kind.reason() == reason)
}

/// What the last placement reported about every host: the manager publishes it in an event, with a line for each.
fn placement(events: &[Value]) -> Option<Vec<Value>> {
    let is_placement = |reason: &str| reason == reasons::HOST_SELECTED || is_refusal(reason);
    let verdict = |line: &str| {
        let (host, why) = line.split_once(": ")?;
        Some(json!({"host": host, "why": why, "chosen": why.starts_with("chosen: ")}))
    };
    // A long note is cut anywhere.
    let told = |event: &Value| {
        let verdicts: Vec<Value> = text(event, "/note").lines().filter_map(verdict).collect();
        (!verdicts.is_empty()).then_some(verdicts)
    };
    events.iter().rev().filter(|event| is_placement(text(event, "/reason"))).find_map(told)
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn the_last_placement_is_told_host_by_host_also_where_none_had_room() {
        let event = |reason: &str, note: &str| json!({"reason": reason, "note": note});
        let refused = event("InsufficientResources", "h1: has 0 cores left\nh2: is in zone az2");
        let chosen = event("HostSelected", "h2: chosen: 0 siblings in its zone\nh1: has 0 cores left");
        let other = event("VMCreated", "the VM m1 (abc) is in MAAS");
        let told = placement(&[refused.clone(), other.clone()]).unwrap();
        assert_eq!(told[0], json!({"host": "h1", "why": "has 0 cores left", "chosen": false}));
        let told = placement(&[refused, chosen, other.clone()]).unwrap();
        assert_eq!((&told[0]["host"], &told[0]["chosen"]), (&json!("h2"), &json!(true)));
        let cut = event("HostSelected", "h2: chosen: 0 siblings in its zone\nh1: has 0 cores left\nhost-with-a-lo");
        let told = placement(&[cut, other.clone()]).unwrap();
        assert_eq!(told.len(), 2, "only the host whose name was cut off is left out: {told:?}");
        assert_eq!(placement(&[other]), None);
    }

    #[test]
    fn a_machine_without_a_host_is_told_apart_from_one_that_was_not_placed_yet() {
        let waits = |status: &str, reason: &str| {
            let condition = json!({"type": "LXDHostSelected", "status": status, "reason": reason});
            waits_for_placement(&json!({"status": {"conditions": [condition]}}))
        };
        assert!(waits("False", "InsufficientResources"));
        assert!(!waits("True", "HostSelected"));
        assert!(!waits("False", "WaitingForBootstrapData"));
        assert!(!waits_for_placement(&json!({})));
    }
}
