//! What would replace a deleted Machine.

use capmaas_api::capi::{self, Cluster, Machine};
use capmaas_core::Lookup;
use capmaas_core::evacuation::{Allowance, Domains, Group};
use k8s_openapi::apimachinery::pkg::apis::meta::v1::{ObjectMeta, OwnerReference};

use crate::kubernetes::{Owners, Result};

/// Label with the name of the MachineDeployment that a Machine belongs to.
const DEPLOYMENT_LABEL: &str = "cluster.x-k8s.io/deployment-name";
/// The API group of control planes.
const CONTROL_PLANES: &str = "controlplane.cluster.x-k8s.io";

/// What replaces a Machine when it is deleted; `all` are the Machines of its cluster. `Absent`: nothing does.
pub(super) async fn group(
    owners: &dyn Owners,
    machine: &Machine,
    all: &[Machine],
    cluster: &Lookup<Cluster>,
) -> Lookup<Group> {
    let namespace = machine.metadata.namespace.clone().unwrap_or_default();
    let Some(owner) = controller(&machine.metadata) else { return Lookup::Absent };
    let group = owner.api_version.split_once('/').map_or("", |(group, _)| group);
    let found = match (group, owner.kind.as_str()) {
        (CONTROL_PLANES, "KubeadmControlPlane") => {
            let Some(domains) = cluster.found().and_then(Cluster::control_plane_failure_domains) else {
                return Lookup::Unknown("the failure domains of its Cluster cannot be read".to_owned());
            };
            control_plane(owners, &namespace, owner, (all, domains)).await
        }
        (capi::GROUP, "MachineSet") => machine_set(owners, machine, owner, all).await,
        _ => Ok(Some(unknown(owner, machine, format!("how a {} replaces its machines is not known", owner.kind)))),
    };
    found.into()
}

/// The owner that creates replacement Machines.
pub(super) fn controller(metadata: &ObjectMeta) -> Option<&OwnerReference> {
    metadata.owner_references.iter().flatten().find(|owner| owner.controller == Some(true))
}

async fn control_plane(
    owners: &dyn Owners,
    namespace: &str,
    owner: &OwnerReference,
    (all, failure_domains): (&[Machine], Vec<String>),
) -> Result<Option<Group>> {
    let Some(object) = owners.owner(namespace, owner).await? else { return Ok(None) };
    let its_own = |machine: &&Machine| controller(&machine.metadata).is_some_and(|of| of.uid == owner.uid);
    let machines: Vec<Machine> = all.iter().filter(its_own).cloned().collect();
    Ok(Some(Group::control_plane(&object, &machines, failure_domains)))
}

async fn machine_set(
    owners: &dyn Owners,
    machine: &Machine,
    owner: &OwnerReference,
    all: &[Machine],
) -> Result<Option<Group>> {
    let namespace = machine.metadata.namespace.as_deref().unwrap_or_default();
    let Some(set) = owners.owner(namespace, owner).await? else { return Ok(None) };
    let metadata: ObjectMeta = serde_json::from_value(set["metadata"].clone()).unwrap_or_default();
    let Some(deployment) = controller(&metadata).filter(|owner| owner.kind == "MachineDeployment") else {
        return Ok(Some(unknown(owner, machine, "it belongs to no MachineDeployment".to_owned())));
    };
    let Some(object) = owners.owner(namespace, deployment).await? else { return Ok(None) };
    let machines: Vec<Machine> =
        all.iter().filter(|machine| deployment_of(machine) == Some(&deployment.name)).cloned().collect();
    Ok(Some(Group::deployment(&object, &set, &machines)))
}

/// The name of the MachineDeployment that a Machine belongs to.
pub(super) fn deployment_of(machine: &Machine) -> Option<&String> {
    machine.metadata.labels.as_ref()?.get(DEPLOYMENT_LABEL)
}

/// An owner that may replace the Machine in an unknown way.
fn unknown(owner: &OwnerReference, machine: &Machine, why: String) -> Group {
    Group {
        name: format!("{} {}", owner.kind, owner.name),
        allowance: Allowance::Unknown(why),
        desired: None,
        unsettled: None,
        domains: Domains::Template(machine.failure_domain().map(str::to_owned)),
        template: None,
        members: Vec::new(),
    }
}
