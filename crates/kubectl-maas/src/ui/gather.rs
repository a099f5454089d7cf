//! Reads what the page shows, again and again, without ever taking much of anybody's time.

use std::collections::BTreeMap;
use std::sync::Arc;
use std::time::{Duration, Instant};

use jiff::Timestamp;
use maas_client::{EventQuery, MAX_EVENTS, MachineFilter};
use serde_json::{Value, json};

use super::board::Board;
use super::{Sources, objects, timeline};
use crate::plan::system_id;
use crate::{machines::waits_for, text};

/// How soon Kubernetes is asked again at the earliest.
const KUBERNETES_EVERY: Duration = Duration::from_secs(2);
/// How soon MAAS is asked again at the earliest.
const MAAS_EVERY: Duration = Duration::from_secs(10);
/// What took a second is asked for again after ten: a MAAS with a thousand machines lists them in half a minute.
const REST: u32 = 10;

/// Keeps a board up to date for as long as the program runs.
pub(super) fn start(board: &Board, sources: &Arc<Sources>) {
    let (of_kubernetes, read_from) = (board.clone(), Arc::clone(sources));
    tokio::spawn(async move {
        loop {
            let begun = Instant::now();
            let answer = read_kubernetes(&read_from).await;
            note(&of_kubernetes, "kubernetes", answer.as_ref().err());
            if let Ok(all) = answer {
                of_kubernetes.replace(&["cluster", "machine", "event"], all);
            }
            tokio::time::sleep(KUBERNETES_EVERY.max(begun.elapsed() * REST)).await;
        }
    });
    let (of_maas, read_from) = (board.clone(), Arc::clone(sources));
    tokio::spawn(async move {
        loop {
            let begun = Instant::now();
            let answer = read_maas(&read_from).await;
            note(&of_maas, "maas", answer.as_ref().err());
            if let Ok(all) = answer {
                of_maas.replace(&["host", "metal"], all);
            }
            tokio::time::sleep(MAAS_EVERY.max(begun.elapsed() * REST)).await;
        }
    });
}

/// Tells the page whether a source can be read. What was read before stays, and is said to be old.
fn note(board: &Board, source: &'static str, error: Option<&anyhow::Error>) {
    let told = json!({"error": error.map(|error| format!("{error:#}"))});
    board.replace(&[source], BTreeMap::from([(source.to_owned(), told)]));
}

async fn read_kubernetes(sources: &Sources) -> anyhow::Result<BTreeMap<String, Value>> {
    let (cluster, all) = (&sources.cluster, sources.all_namespaces);
    let clusters = cluster.any_version("cluster.x-k8s.io", "Cluster", all).await?;
    let ours = cluster.ours("MaasCluster", all).await?;
    let machines = cluster.ours("MaasMachine", all).await?;
    let events = cluster.all_events(all).await?;
    Ok(objects::of_kubernetes(&clusters, &ours, &machines, &events))
}

async fn read_maas(sources: &Sources) -> anyhow::Result<BTreeMap<String, Value>> {
    let Some(client) = &sources.maas else {
        anyhow::bail!("set MAAS_ENDPOINT and MAAS_API_KEY to see hosts, metal and the lives of machines");
    };
    let told = |error: maas_client::Error| anyhow::anyhow!("{error}; {}", error.advice());
    let hosts = client.vm_hosts().list().await.map_err(told)?;
    let machines = client.machines().list(&MachineFilter::default()).await.map_err(told)?;
    Ok(objects::of_maas(&hosts, &machines))
}

/// One machine in full.
pub(super) async fn details(sources: &Sources, namespace: &str, name: &str) -> anyhow::Result<Value> {
    let cluster = sources.cluster.within(namespace);
    let object = cluster.machine(name).await?;
    let events = cluster.events(name).await.unwrap_or_default();
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
    let is_placement = |event: &&Value| text(event, "/note").lines().any(|line| line.contains(": chosen: "));
    let placement = events.iter().rev().find(is_placement).map(|event| text(event, "/note"));
    Ok(json!({
        "machine": objects::machine(&object),
        "spec": {"image": object["spec"]["image"], "minCPU": object["spec"]["minCPU"], "minMemory": object["spec"]["minMemory"]},
        "providerID": text(&object, "/spec/providerID"),
        "addresses": object["status"]["addresses"],
        "conditions": object["status"]["conditions"],
        "waitsFor": waits_for(&object),
        "events": events.iter().map(objects::event).collect::<Vec<_>>(),
        "placement": placement,
        "timeline": timeline::timeline(&object, machine.as_ref(), &life, Timestamp::now()),
    }))
}
