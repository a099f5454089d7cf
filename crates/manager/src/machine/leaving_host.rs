//! Deletion of a machine that is a VM host: the reads and calls for `capmaas_core::hosts::leaving`.

use capmaas_core::Lookup;
use capmaas_core::hosts::leaving::{ASKED_ANNOTATION, AsHost, LeavingHost, ObservedAgent};
use capmaas_core::machine::Observed;
use capmaas_core::placement::LEAVING_TAG;
use kube::ResourceExt as _;
use lxd_initializer::names;
use maas_client::{MachineFilter, VmHost};

use super::Context;
use crate::hosts::{report, strangers};
use crate::identity::Identity;
use crate::kubernetes::Key;
use capmaas_core::maas;

/// Observes the machine as a host, if it is being deleted and could be one.
pub(super) async fn observe(context: &Context, key: &Key, observed: &Observed, identity: &Identity) -> AsHost {
    let deleting = observed.object.metadata.deletion_timestamp.is_some();
    let metal = match &observed.in_journal {
        Lookup::Found(metal) if deleting && !metal.is_vm() && !metal.state.is_leaving() => metal,
        _ => return AsHost::NotAsked,
    };
    let all = match context.lxd_hosts.now(identity).await {
        Ok(all) => all,
        Err(error) => return AsHost::Unknown(format!("the VM hosts of MAAS cannot be read: {error}")),
    };
    let Some(host) = all.iter().find(|host| is_on(host, metal, observed)) else { return AsHost::NoHost };
    let vms = vms(context, identity, host).await;
    let agent = agent(context, key, observed, identity, host.id).await;
    AsHost::Host(Box::new(LeavingHost {
        id: host.id,
        name: host.name.clone().unwrap_or_default(),
        marked: host.tags.iter().any(|tag| tag == LEAVING_TAG),
        vms,
        agent,
    }))
}

/// Whether a VM host runs on this machine: MAAS says so, or we registered it under the machine's name and MAAS has not
/// matched it.
fn is_on(host: &VmHost, metal: &maas::Machine, observed: &Observed) -> bool {
    if let Some(reference) = &host.host {
        return reference.system_id == metal.id;
    }
    let asked = observed.object.annotations().contains_key(ASKED_ANNOTATION);
    asked && host.name.as_ref().is_some_and(|name| *name == metal.hostname || *name == metal.fqdn)
}

/// All VMs on it that MAAS knows, whoever owns them.
async fn vms(context: &Context, identity: &Identity, host: &VmHost) -> Lookup<Vec<String>> {
    let filter = MachineFilter { vm_host: host.name.clone(), ..MachineFilter::default() };
    let found = match identity.client.machines().list(&filter).await {
        Ok(found) => found,
        Err(error) => return Lookup::Unknown(error.to_string()),
    };
    let on_it = found.iter().filter(|machine| machine.pod.as_ref().is_some_and(|pod| pod.id == host.id));
    let machine_index = match context.kubernetes.machine_index().await {
        Ok(machine_index) => machine_index,
        Err(error) => return Lookup::Unknown(error.to_string()),
    };
    let whose = |machine: &maas_client::Machine| {
        let name = machine.hostname.as_ref().unwrap_or(&machine.system_id);
        match (
            machine_index.holders(identity.endpoint(), &machine.system_id).first(),
            machine.owner.as_deref().filter(|owner| !owner.is_empty()),
        ) {
            (Some((_, cluster)), _) => format!("{name} of cluster {cluster}"),
            (None, Some(owner)) => format!("{name} of user {owner}"),
            (None, None) => format!("{name}, which nobody has allocated"),
        }
    };
    Lookup::Found(on_it.map(whose).collect())
}

async fn agent(context: &Context, key: &Key, observed: &Observed, identity: &Identity, vm_host: i64) -> ObservedAgent {
    let cluster = match &observed.cluster {
        Lookup::Found(cluster) => key.beside(cluster.name_any()),
        Lookup::Absent => return ObservedAgent::Silent("the Cluster is gone".into()),
        Lookup::Unknown(why) => return ObservedAgent::Silent(why.clone()),
    };
    let nodes = match context.kubernetes.nodes(&cluster).await {
        Ok(nodes) => nodes,
        Err(error) => return ObservedAgent::Silent(error.to_string()),
    };
    let provider_id = observed.object.spec.provider_id();
    let node = nodes.into_iter().find(|node| provider_id.is_some() && node.provider_id.as_deref() == provider_id);
    let Some(node) = node else { return ObservedAgent::NoNode };
    let report = report::of(&node.annotations);
    let instances = report.as_ref().and_then(|report| report.instances.as_deref());
    let strangers = strangers(&identity.client, vm_host, instances).await;
    ObservedAgent::Node {
        told: report::is_asked_to_leave(&node.annotations),
        left: report.is_none_or(|report| report.state == "Left"),
        strangers: strangers.unwrap_or_else(|error| Lookup::Unknown(error.to_string())),
        name: node.name,
    }
}

/// Asks the agent on a Node to stop.
pub(super) async fn ask_to_leave(context: &Context, key: &Key, observed: &Observed, node: &str) -> Result<(), String> {
    let Lookup::Found(cluster) = &observed.cluster else { return Err("the Cluster is gone".into()) };
    let cluster = key.beside(cluster.name_any());
    let found = context.kubernetes.node(&cluster, node).await.map_err(|error| error.to_string())?;
    let found = found.ok_or_else(|| format!("the Node {node} is gone"))?;
    let asked = context.kubernetes.annotate_node(&cluster, &found, names::LEAVE, "true").await;
    asked.map_err(|error| error.to_string())
}
