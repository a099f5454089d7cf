//! Whether MAAS knows every VM of a host but one, according to the agent on the host.

use capmaas_core::Lookup;
use maas_client::VmHost;

use super::Context;
use crate::hosts::{report, strangers};
use crate::identity::Identity;
use crate::machine_index::MachineIndex;
use crate::stamp::Stamp;

/// Whether MAAS knows every other VM in the project of a host, so that a refresh harms none (S12). `Absent`: the agent
/// cannot be reached now, or has not seen this VM yet, so its report is too old to rely on. `Unknown`: there is no way
/// to tell.
pub(super) async fn others_known(
    context: &Context,
    identity: &Identity,
    host: &VmHost,
    name: &str,
    machine_index: &MachineIndex,
) -> Lookup<bool> {
    let unknown = |why: &str| Lookup::Unknown(why.to_owned());
    let Some(system_id) = host.host.as_ref().map(|machine| &machine.system_id) else {
        return unknown("MAAS does not say which machine the host is on");
    };
    let Ok(machine) = identity.machines.read(system_id).await else {
        return unknown("the machine of the host cannot be read in MAAS");
    };
    // Only the agent on the host itself counts, not one on a Node of somebody who claims the host (S7).
    let stamp = Stamp::on(&machine);
    let mut proven = None;
    for (object, cluster) in machine_index.holders(identity.endpoint(), system_id) {
        let Ok(Some(object)) = context.kubernetes.maas_machine(&object).await else {
            return unknown("the MaasMachine of the host cannot be read");
        };
        if stamp.is_of(&object) {
            proven = Some((object, cluster));
            break;
        }
    }
    let Some((object, cluster)) = proven else {
        return unknown("the host is not a machine of a cluster, so no agent counts its VMs");
    };
    let (false, Some(provider_id)) = (cluster.name.is_empty(), object.spec.provider_id()) else {
        return unknown("the machine of the host belongs to no cluster");
    };
    // An API server that does not answer now may answer later.
    let Ok(nodes) = context.kubernetes.nodes(&cluster).await else { return Lookup::Absent };
    let node = nodes.iter().find(|node| node.provider_id.as_deref() == Some(provider_id));
    let report = node.and_then(|node| report::of(&node.annotations));
    let Some(instances) = report.and_then(|report| report.instances) else {
        return unknown("no agent on the host counts its VMs");
    };
    if !instances.iter().any(|instance| instance == name) {
        return Lookup::Absent;
    }
    match strangers(&identity.client, host.id, Some(&instances)).await {
        Ok(Lookup::Found(strangers)) => Lookup::Found(strangers.iter().all(|stranger| stranger == name)),
        Ok(Lookup::Absent) => unknown("nobody counts its VMs"),
        Ok(Lookup::Unknown(why)) => Lookup::Unknown(why),
        Err(error) => Lookup::Unknown(error.to_string()),
    }
}
