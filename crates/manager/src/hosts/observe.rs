//! All reads about the hosts of one cluster.

use std::collections::BTreeMap;
use std::sync::Arc;

use capmaas_api::names::{CONTROL_PLANE_LABEL, DELETE_FOR_MOVE_ANNOTATION, PAUSED_ANNOTATION};
use capmaas_api::{MaasCluster, MaasMachine, ProviderId};
use capmaas_core::Lookup;
use capmaas_core::hosts::DesiredHosts;
use capmaas_core::hosts::leaving::ASKED_ANNOTATION;
use capmaas_core::hosts::observed::{Agent, Host, Node, Observed, Pair, Place, Report, VmHost};
use capmaas_core::intent::{self, Intent};
use capmaas_core::machine::Journal;
use futures::future::join_all;
use jiff::Timestamp;
use kube::ResourceExt as _;
use lxd_initializer::registering::{self, Claim, Wanted};
use maas_client::Client;

use super::key_pair::MadeFor;
use super::{Memory, agent, key_pair, report};
use crate::identity::Identity;
use crate::kubernetes::{Key, Kubernetes};
use crate::{lxd_hosts, stamp};

/// The inputs of observing and performing.
pub(crate) struct HostContext<'a> {
    pub(crate) kubernetes: &'a dyn Kubernetes,
    pub(crate) memory: &'a Memory,
    /// The manager's own namespace.
    pub(crate) home: &'a str,
    /// The MaasCluster.
    pub(crate) key: &'a Key,
    pub(crate) cluster: &'a Key,
    /// The MaasCluster as stored.
    pub(crate) object: &'a MaasCluster,
    pub(crate) identity: &'a Identity,
    pub(crate) image: Option<&'a String>,
    /// Receives what agents report.
    pub(crate) reports: &'a lxd_hosts::Reports,
    pub(crate) now: Timestamp,
}

pub(crate) async fn observe(
    context: &HostContext<'_>,
    desired: DesiredHosts,
    machines: &[Arc<MaasMachine>],
) -> Observed {
    let HostContext { kubernetes, memory, home, key, cluster, .. } = *context;
    let agent = match kubernetes.workload_object(cluster, &agent::daemon_set()).await {
        Ok(Some(found)) => {
            let facts = agent::facts(&found);
            // An agent that a person applied is theirs, including its other objects.
            let missing = if facts.applied.is_some() { missing(context).await } else { Vec::new() };
            Lookup::Found(Agent { missing, ..facts })
        }
        Ok(None) => Lookup::Absent,
        Err(error) => Lookup::Unknown(error.to_string()),
    };
    let handed_over = match kubernetes.workload_object(cluster, &agent::trust()).await {
        Ok(found) => found.as_ref().and_then(agent::trusted).map_or(Lookup::Absent, Lookup::Found),
        Err(error) => Lookup::Unknown(error.to_string()),
    };
    let nodes = match kubernetes.nodes(cluster).await {
        Ok(nodes) => Lookup::Found(nodes.iter().map(node).collect::<Vec<_>>()),
        Err(error) => Lookup::Unknown(error.to_string()),
    };
    let (mut hosts, awaited) = of_machines(machines);
    let pair = key_pair::read(kubernetes, home, key).await;
    observe_machines(context, machines, &mut hosts).await;
    pass_on(context, &nodes, &hosts);
    observe_vm_hosts(context, &nodes, &mut hosts, &pair).await;
    Observed {
        desired,
        image: context.image.cloned(),
        manifest: agent::version(),
        pair,
        agent,
        handed_over,
        nodes,
        hosts,
        awaited,
        refreshed: memory.refreshed(key),
        trouble: memory.trouble(key),
    }
}

/// Objects of the agent that do not exist. What cannot be read is not missing (S1), nor is a kind that is not served.
async fn missing(context: &HostContext<'_>) -> Vec<String> {
    let HostContext { kubernetes, cluster, .. } = *context;
    let parts = agent::parts().unwrap_or_default();
    let look = parts.iter().map(async |part| {
        let absent = matches!(kubernetes.workload_object(cluster, part).await, Ok(None));
        absent && matches!(kubernetes.workload_serves(cluster, &part.api_version, &part.kind).await, Ok(true))
    });
    let absent = join_all(look).await;
    let named = parts.iter().zip(absent).filter(|(_, absent)| *absent);
    named.map(|(part, _)| format!("{} {}", part.kind, part.name)).collect()
}

/// Reads the machines and compares their stamps: a provider ID is text that anybody may write (S7).
async fn observe_machines(context: &HostContext<'_>, objects: &[Arc<MaasMachine>], hosts: &mut [Host]) {
    let reads = hosts.iter().map(|host| context.identity.machines.read(&host.machine));
    let found = join_all(reads).await;
    for (host, found) in hosts.iter_mut().zip(found) {
        host.place = match found {
            Ok(machine) => {
                let object = objects.iter().find(|object| object.name_any() == host.name);
                host.stamped = object.is_some_and(|object| stamp::is_of(&machine, object));
                Lookup::Found(Place {
                    zone: machine.zone.map(|zone| zone.name).unwrap_or_default(),
                    pool: machine.pool.map(|pool| pool.name).unwrap_or_default(),
                })
            }
            Err(error) if error.is_not_found() => Lookup::Absent,
            Err(error) => Lookup::Unknown(error.to_string()),
        };
    }
}

/// Passes to VM placement what the agents report and MAAS does not show. A report that can no longer be read is
/// dropped. About a machine that is not provably this cluster's, its Nodes have nothing to say.
fn pass_on(context: &HostContext<'_>, nodes: &Lookup<Vec<Node>>, hosts: &[Host]) {
    for host in hosts.iter().filter(|host| host.stamped) {
        let report = match nodes {
            Lookup::Found(nodes) => on(nodes, host).and_then(|node| node.report.as_ref()),
            Lookup::Absent | Lookup::Unknown(_) => None,
        };
        let set = |list: &Option<Vec<String>>| list.as_ref().map(|list| list.iter().cloned().collect());
        let report = report
            .map(|report| lxd_hosts::Report { profiles: set(&report.profiles), instances: set(&report.instances) });
        context.reports.note(context.identity, &host.machine, report, context.now);
    }
}

/// The Node of a machine.
fn on<'a>(nodes: &'a [Node], host: &Host) -> Option<&'a Node> {
    nodes.iter().find(|node| node.provider_id.as_ref() == Some(&host.provider_id))
}

fn node(node: &crate::kubernetes::Node) -> Node {
    Node { name: node.name.clone(), provider_id: node.provider_id.clone(), report: report::of(&node.annotations) }
}

/// The bare metal machines that are not being deleted, and messages about control plane machines to wait for. VMs do
/// not become hosts.
fn of_machines(machines: &[Arc<MaasMachine>]) -> (Vec<Host>, Vec<String>) {
    let (mut hosts, mut awaited) = (Vec::new(), Vec::new());
    let is_copy = |machine: &MaasMachine| {
        let journal = Journal::read(machine.metadata.annotations.as_ref()).ok().flatten();
        journal.is_some_and(|journal| journal.is_anothers(&machine.metadata))
    };
    let staying = machines.iter().filter(|machine| machine.metadata.deletion_timestamp.is_none());
    for machine in staying.filter(|machine| !is_copy(machine)) {
        let (name, annotations) = (machine.name_any(), machine.annotations());
        let control_plane = machine.labels().contains_key(CONTROL_PLANE_LABEL);
        if matches!(intent::resolve(&machine.spec, true), Ok(Intent::Vm(_))) {
            continue;
        }
        let provider_id = machine.spec.provider_id();
        let system_id = provider_id.and_then(|id| id.parse::<ProviderId>().ok()?.system_id().map(str::to_owned));
        let held = [PAUSED_ANNOTATION, DELETE_FOR_MOVE_ANNOTATION].iter().any(|name| annotations.contains_key(*name));
        match (provider_id, system_id) {
            (Some(provider_id), Some(system_id)) if !held => hosts.push(Host {
                name,
                control_plane,
                provider_id: provider_id.to_owned(),
                machine: system_id,
                stamped: false,
                place: Lookup::Unknown("MAAS was not queried".into()),
                vm_host: Lookup::Unknown("MAAS was not queried".into()),
                asked: asked(annotations),
            }),
            _ if !control_plane => {}
            _ if held => awaited.push(format!("machine {name} is paused")),
            _ => awaited.push(format!("machine {name} is not deployed yet")),
        }
    }
    hosts.sort_by(|a, b| a.name.cmp(&b.name));
    awaited.sort();
    (hosts, awaited)
}

/// When the registration of a machine was last sent. A time that cannot be read may be any (S1).
pub(super) fn asked(annotations: &BTreeMap<String, String>) -> Lookup<Timestamp> {
    let Some(text) = annotations.get(ASKED_ANNOTATION) else { return Lookup::Absent };
    match text.parse() {
        Ok(sent) => Lookup::Found(sent),
        Err(_) => Lookup::Unknown(format!("the annotation {ASKED_ANNOTATION} is no time; remove it")),
    }
}

/// Only of our machines, and only of those whose Nodes have reported: before that, MAAS has nothing relevant.
async fn observe_vm_hosts(
    context: &HostContext<'_>,
    nodes: &Lookup<Vec<Node>>,
    hosts: &mut [Host],
    pair: &Lookup<Pair>,
) {
    let Lookup::Found(nodes) = nodes else { return };
    let mut reported: Vec<(&mut Host, &Node, &Report)> = Vec::new();
    for host in hosts.iter_mut().filter(|host| host.stamped) {
        if let Some((node, report)) = on(nodes, host).and_then(|node| Some((node, node.report.as_ref()?))) {
            reported.push((host, node, report));
        }
    }
    if reported.is_empty() {
        return;
    }
    let all = context.identity.client.vm_hosts().list().await.map_err(|error| error.to_string());
    for (host, node, report) in reported {
        host.vm_host = match &all {
            Ok(all) => vm_host(context, all, &host.machine, (node, report), pair)
                .await
                .unwrap_or_else(|error| Lookup::Unknown(error.to_string())),
            Err(why) => Lookup::Unknown(why.clone()),
        };
    }
}

/// The VM host of a machine.
async fn vm_host(
    context: &HostContext<'_>,
    all: &[maas_client::VmHost],
    machine: &str,
    (node, report): (&Node, &Report),
    pair: &Lookup<Pair>,
) -> Result<Lookup<VmHost>, maas_client::Error> {
    let is_ours = |claim: &Claim<'_>| match key_pair::made_for(claim.certificate, context.object) {
        MadeFor::ThisCluster => true,
        // A cluster of this name; that it is this one is proven by the stamp on the machine, or by our private key.
        MadeFor::Namesake => {
            let held = matches!(pair, Lookup::Found(pair) if Some(pair.fingerprint.as_str()) == claim.fingerprint);
            claim.on_machine || held
        }
        MadeFor::Another => false,
    };
    let instances = match &report.instances {
        Some(instances) => Lookup::Found(instances.clone()),
        None => Lookup::Unknown("the agent cannot list the instances of its project".into()),
    };
    let project = report.project.as_deref().unwrap_or_default();
    let wanted = Wanted { machine, node: &node.name, project, instances };
    registering::find(&context.identity.client, all, &wanted, &is_ours).await
}

/// Instances in the project that MAAS does not know as VMs of this host (S12).
pub(crate) async fn strangers(
    client: &Client,
    vm_host: i64,
    instances: Option<&[String]>,
) -> Result<Lookup<Vec<String>>, maas_client::Error> {
    let Some(instances) = instances else {
        return Ok(Lookup::Unknown("the agent cannot list the instances of its project".into()));
    };
    client.vm_hosts().strangers(vm_host, instances).await.map(Lookup::Found)
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn s01_a_time_of_a_registration_that_cannot_be_read_is_not_known() {
        let with = |text: &str| BTreeMap::from([(ASKED_ANNOTATION.to_owned(), text.to_owned())]);
        let time = "2026-11-15T12:00:00Z";
        assert_eq!(asked(&with(time)), Lookup::Found(time.parse().unwrap()));
        assert_eq!(asked(&BTreeMap::new()), Lookup::Absent);
        assert!(matches!(asked(&with("yesterday")), Lookup::Unknown(why) if why.contains(ASKED_ANNOTATION)));
    }

    #[test]
    fn vms_and_machines_that_are_going_do_not_become_hosts() {
        let machine = |name: &str, metadata: serde_json::Value, spec: serde_json::Value| {
            let mut object = serde_json::json!({
                "apiVersion": "infrastructure.cluster.x-k8s.io/v1beta1", "kind": "MaasMachine",
                "metadata": { "name": name, "labels": { "cluster.x-k8s.io/control-plane": "" } },
                "spec": { "image": "ubuntu/jammy", "minCPU": 1, "minMemory": 1024 },
            });
            for (field, value) in metadata.as_object().unwrap() {
                object["metadata"][field] = value.clone();
            }
            for (field, value) in spec.as_object().unwrap() {
                object["spec"][field] = value.clone();
            }
            Arc::new(serde_json::from_value(object).unwrap())
        };
        let id = serde_json::json!({ "providerID": "maas://az1/abc123" });
        let none = serde_json::json!({});
        let (hosts, awaited) = of_machines(&[
            machine("metal", none.clone(), id.clone()),
            machine("going", serde_json::json!({ "deletionTimestamp": "2026-11-15T12:00:00Z" }), id.clone()),
            machine("vm", none.clone(), serde_json::json!({ "dynamicLXD": true })),
            machine("new", none, serde_json::json!({})),
            machine("held", serde_json::json!({ "annotations": { PAUSED_ANNOTATION: "" } }), id),
        ]);
        assert_eq!(hosts.iter().map(|host| host.name.as_str()).collect::<Vec<_>>(), ["metal"]);
        assert_eq!(awaited, ["machine held is paused", "machine new is not deployed yet"]);
    }
}
