//! All reads of a pass.

use std::collections::{BTreeMap, BTreeSet};
use std::net::IpAddr;
use std::sync::Arc;

use capmaas_api::capi::owner;
use capmaas_api::machine_status::AddressType;
use capmaas_api::names::{
    CLUSTER_FINALIZER, CONTROL_PLANE_LABEL, CUSTOM_ENDPOINT_ANNOTATION, DELETE_FOR_MOVE_ANNOTATION, MANAGED_BY,
    PAUSED_ANNOTATION,
};
use capmaas_api::{Conditions as _, MaasCluster, MaasMachine, conditions, reasons};
use capmaas_core::Lookup;
use capmaas_core::cluster::observed::{ApiServer, Hosts, Known, Machine, Object, Observed, Owner, Refusal, Stamp};
use capmaas_core::cluster::provenance::is_plain_copy;
use capmaas_core::cluster::{Journal, addresses, decide, endpoint, while_reading};
use capmaas_core::credentials::Standing;
use capmaas_core::machine::{Journal as MachineJournal, debts};
use capmaas_core::origin::WrittenFor;
use capmaas_core::pause;
use kube::ResourceExt as _;
use tokio::time::Instant;

use super::{Context, maas, rivals, stamps};
use crate::belonging::cluster_name;
use crate::hosts;
use crate::identity::Identity;
use crate::kubernetes::{Key, Result};
use crate::reconcile::while_waiting;

/// The ConfigMap with the preferred subnets of a namespace, and its key.
const PREFERRED_SUBNETS: (&str, &str) = ("maas-preferred-subnet", "preferredSubnets");

/// The observed facts, and what performing needs in addition.
pub(crate) struct Seen {
    pub(super) observed: Observed,
    pub(super) object: MaasCluster,
    /// The owner Cluster, if there is one.
    pub(super) cluster: Option<Key>,
    pub(super) identity: Option<Identity>,
    /// The name that was looked up in MAAS's DNS.
    pub(super) dns_name: Option<String>,
    /// The record under that name came from the cache.
    pub(super) remembered: bool,
    /// Since when the stored status is outdated, if it is.
    pub(super) outdated: Option<Instant>,
}

/// How current the data from MAAS must be.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub(super) enum Access {
    /// Recently cached records may be used.
    MayRemember,
    /// Everything is read now.
    Fresh,
}

/// `None` if the object is gone. `outdated` is since when the stored status is known to be.
pub(super) async fn observe(
    context: &Context,
    key: &Key,
    access: Access,
    mut outdated: Option<Instant>,
) -> Result<Option<Seen>> {
    let kubernetes = context.kubernetes.as_ref();
    let Some(mut object) = kubernetes.maas_cluster(key).await? else { return Ok(None) };
    let (cluster, owner) = owner_of(context, key, &object).await;
    let not_queried = || "MAAS was not queried".to_owned();
    let mut observed = Observed {
        object: object_of(&object, &owner_or_nobody(&owner)),
        owner,
        rivals: Vec::new(),
        machines: Lookup::Unknown("the machines were not read".into()),
        preferred: Lookup::Unknown("the preferred subnets were not read".into()),
        identity: Err(Refusal { reason: reasons::MAAS_UNAVAILABLE, message: not_queried() }),
        sees_a_machine: false,
        record: Lookup::Unknown(not_queried()),
        candidate: Lookup::Unknown(not_queried()),
        unknown_to_maas: BTreeSet::new(),
        reserved: BTreeMap::new(),
        zones: None,
        usable_zones: None,
        api_server: ApiServer::NotAsked,
        hosts: Hosts::Off,
        troubles: context.memory.troubles(key),
        contract: context.contract,
    };
    if nothing_will_be_done(&observed) {
        return Ok(Some(Seen {
            observed,
            object,
            cluster,
            identity: None,
            dns_name: None,
            remembered: false,
            outdated,
        }));
    }
    let (rivals, of_rivals): (_, Vec<_>) = rivals::observe(context, key, &observed).await?.into_iter().unzip();
    observed.rivals = rivals;
    let machines = kubernetes.maas_machines(Some(&key.beside(cluster_name(&object)))).await;
    observed.machines = match &machines {
        Ok(machines) => Lookup::Found(machines.iter().map(|machine| machine_of(machine)).collect()),
        Err(error) => Lookup::Unknown(error.to_string()),
    };
    owe(&object, &mut observed);
    observed.preferred = match kubernetes.config_map(&key.beside(PREFERRED_SUBNETS.0)).await {
        Ok(Some(mut data)) => data.remove(PREFERRED_SUBNETS.1).map_or(Lookup::Absent, Lookup::Found),
        Ok(None) => Lookup::Absent,
        Err(error) => Lookup::Unknown(error.to_string()),
    };
    let read = object.clone();
    let status = while_reading(&observed, context.clock.now());
    let checking = context.identities.check(&read);
    let checked = while_waiting(kubernetes, key, &mut object, status.as_ref(), &mut outdated, checking).await;
    observed.object.status = object.status.clone().unwrap_or_default();
    let identity = match checked {
        Ok(identity) => Some(identity),
        Err(problem) => {
            observed.identity = Err(Refusal { reason: problem.reason, message: problem.message });
            None
        }
    };
    let (mut dns_name, mut remembered) = (None, false);
    if let Some(identity) = &identity {
        observed.identity = Ok(Known { name: identity.name.clone(), standing: identity.standing.clone() });
        dns_name = endpoint::name(&observed.object, &owner_or_nobody(&observed.owner));
        let claims = stamps::Claims { machines: machines.as_deref().unwrap_or_default(), rivals: &of_rivals };
        let reader = (context, key, identity);
        let status = while_reading(&observed, context.clock.now());
        let reading = Box::pin(maas::observe(reader, (&read, &claims), &mut observed, access));
        remembered = while_waiting(kubernetes, key, &mut object, status.as_ref(), &mut outdated, reading).await;
        observed.object.status = object.status.clone().unwrap_or_default();
    }
    let workload = (context, key, cluster.as_ref());
    observe_workload(workload, (&mut object, &mut outdated), (identity.as_ref(), &machines), &mut observed).await;
    Ok(Some(Seen { observed, object, cluster, identity, dns_name, remembered, outdated }))
}

/// VMs that still have to be removed block the deletion of the cluster as machines do (S16): deleting it would also
/// delete the credentials and all knowledge of these VMs.
fn owe(object: &MaasCluster, observed: &mut Observed) {
    if object.metadata.deletion_timestamp.is_none() {
        return;
    }
    match (debts(object.metadata.annotations.as_ref()), &mut observed.machines) {
        (Ok(owed), Lookup::Found(machines)) => machines.extend(owed.iter().map(|debt| Machine {
            name: format!("the VM {} on the LXD host {}, which is off", debt.name, debt.host),
            deleting: true,
            ..Machine::default()
        })),
        (Err(why), machines) => *machines = Lookup::Unknown(why),
        (Ok(_), Lookup::Absent | Lookup::Unknown(_)) => {}
    }
}

/// Probes the API server, and, once it answers, observes the machines as LXD hosts if they are meant to be hosts. Both may take
/// long; meanwhile the status says what is known so far.
async fn observe_workload(
    (context, key, cluster): (&Context, &Key, Option<&Key>),
    (object, outdated): (&mut MaasCluster, &mut Option<Instant>),
    (identity, machines): (Option<&Identity>, &Result<Vec<Arc<MaasMachine>>>),
    observed: &mut Observed,
) {
    let kubernetes = context.kubernetes.as_ref();
    let desired = capmaas_core::hosts::desired(&object.spec);
    observed.hosts = match &desired {
        Ok(Some(_)) => Hosts::NotAsked,
        Ok(None) => Hosts::Off,
        Err(why) => Hosts::Unclear(why.clone()),
    };
    if let Some(cluster) = cluster.filter(|_| may_probe(context, key, observed)) {
        observed.api_server = ApiServer::BeingAsked;
        let status = decide(observed, context.clock.now()).status;
        let probing = kubernetes.workload_version(cluster);
        let answer = while_waiting(kubernetes, key, object, status.as_ref(), outdated, probing).await;
        observed.object.status = object.status.clone().unwrap_or_default();
        observed.api_server = match answer {
            Ok(_) => ApiServer::Answers,
            Err(error) => ApiServer::Silent(error.to_string()),
        };
    }
    let Ok(Some(desired)) = desired else { return };
    if observed.object.deleting {
        return;
    }
    let answers = match observed.api_server {
        ApiServer::Answers => true,
        ApiServer::Silent(_) => false,
        ApiServer::NotAsked | ApiServer::BeingAsked => {
            observed.object.status.conditions.is_true(conditions::API_SERVER_AVAILABLE)
        }
    };
    let (Some(cluster), true) = (cluster, answers) else {
        observed.hosts = Hosts::TooEarly;
        return;
    };
    // What another identity does not see may still exist (S5).
    let identity = identity.filter(|identity| !matches!(identity.standing, Standing::Changed { .. }));
    let (Some(identity), Ok(machines)) = (identity, machines) else { return };
    if !context.memory.hosts.may_observe(key, context.clock.now()) {
        return;
    }
    observed.hosts = Hosts::BeingRead;
    let status = decide(observed, context.clock.now()).status;
    let read = object.clone();
    let host_context = host_context(context, key, cluster, &read, identity);
    let reading = hosts::observe(&host_context, desired, machines);
    let hosts = while_waiting(kubernetes, key, object, status.as_ref(), outdated, reading).await;
    observed.object.status = object.status.clone().unwrap_or_default();
    observed.hosts = Hosts::Seen(Box::new(hosts));
}

/// The inputs for observing hosts and performing effects on them.
pub(super) fn host_context<'a>(
    context: &'a Context,
    key: &'a Key,
    cluster: &'a Key,
    object: &'a MaasCluster,
    identity: &'a Identity,
) -> hosts::HostContext<'a> {
    hosts::HostContext {
        home: context.identities.namespace(),
        kubernetes: context.kubernetes.as_ref(),
        memory: &context.memory.hosts,
        key,
        cluster,
        object,
        identity,
        image: context.agent_image.as_ref(),
        reports: &context.reports,
        now: context.clock.now(),
    }
}

/// The Cluster that owns the object. A Cluster that was deleted and recreated under the same name does not own it.
pub(super) async fn owner_of(context: &Context, key: &Key, object: &MaasCluster) -> (Option<Key>, Lookup<Owner>) {
    let Some(reference) = owner(&object.metadata, "Cluster") else { return (None, Lookup::Absent) };
    let key = key.beside(&reference.name);
    let found = match context.kubernetes.cluster(&key).await {
        Ok(Some(cluster)) if cluster.metadata.uid.as_deref() == Some(reference.uid.as_str()) => {
            Owner::of(&cluster, &object.name_any())
        }
        Ok(_) => Lookup::Absent,
        Err(error) => Lookup::Unknown(error.to_string()),
    };
    (Some(key), found)
}

/// The owner, or the default if it is not known.
pub(super) fn owner_or_nobody(owner: &Lookup<Owner>) -> Owner {
    owner.found().cloned().unwrap_or_default()
}

pub(super) fn object_of(object: &MaasCluster, owner: &Owner) -> Object {
    let (annotations, labels) = (object.annotations(), object.labels());
    let mut facts = Object {
        itself: WrittenFor::of(&object.metadata),
        name_is_from_uid: false,
        generation: object.metadata.generation,
        deleting: object.metadata.deletion_timestamp.is_some(),
        finalizer: object.finalizers().iter().any(|name| name == CLUSTER_FINALIZER),
        moving: annotations.contains_key(DELETE_FOR_MOVE_ANNOTATION),
        owes: !debts(object.metadata.annotations.as_ref()).is_ok_and(|owed| owed.is_empty()),
        paused: annotations.contains_key(PAUSED_ANNOTATION),
        managed_elsewhere: annotations.contains_key(MANAGED_BY) || labels.contains_key(MANAGED_BY),
        custom_endpoint: annotations.contains_key(CUSTOM_ENDPOINT_ANNOTATION),
        spec: object.spec.clone(),
        status: object.status.clone().unwrap_or_default(),
        journal: Journal::of(annotations),
    };
    facts.name_is_from_uid =
        endpoint::recorded(&facts, owner).is_some_and(|name| maas::is_made_from(&facts.itself.uid, name));
    facts
}

/// Whether MAAS need not be read, because no answer would lead to an action.
fn nothing_will_be_done(observed: &Observed) -> bool {
    let object = &observed.object;
    let paused = pause::is_paused(object.paused, observed.owner.as_ref().map(|owner| owner.paused));
    let nobodys = observed.owner == Lookup::Absent && !object.deleting;
    let copy = is_plain_copy(&object.itself, object.journal.written_for.as_ref());
    object.moving || paused != Lookup::Found(false) || nobodys || copy || object.managed_elsewhere && !object.deleting
}

fn machine_of(machine: &MaasMachine) -> Machine {
    let status = machine.status.as_ref();
    let is_address = |type_: &AddressType| matches!(type_, AddressType::ExternalIp | AddressType::InternalIp);
    let mut addresses: Vec<IpAddr> = Vec::new();
    for address in status.iter().flat_map(|status| &status.addresses).filter(|address| is_address(&address.type_)) {
        // The Go provider could store "<nil>".
        if let Ok(address) = address.address.parse()
            && !addresses.contains(&address)
        {
            addresses.push(address);
        }
    }
    Machine {
        name: machine.name_any(),
        control_plane: machine.labels().contains_key(CONTROL_PLANE_LABEL),
        deleting: machine.metadata.deletion_timestamp.is_some(),
        system_id: maas::system_id(machine),
        stamp: Stamp::NotRead,
        provisioned: machine.spec.provider_id().is_some(),
        made: is_made(machine),
        state: status.and_then(|status| status.machine_state.clone()).filter(|state| !state.is_empty()),
        powered: status.is_some_and(|status| status.machine_powered),
        addresses,
        needs_the_name: needs_the_name(machine),
    }
}

/// Whether MAAS may hold something for it. An unreadable journal may refer to anything; the journal of a copy does not
/// count (S25).
fn is_made(machine: &MaasMachine) -> bool {
    match MachineJournal::read(machine.metadata.annotations.as_ref()) {
        Ok(Some(journal)) if journal.is_anothers(&machine.metadata) => false,
        Ok(Some(journal)) => machine.spec.provider_id().is_some() || journal.may_hold_something(),
        Ok(None) => machine.spec.provider_id().is_some(),
        Err(_) => true,
    }
}

/// Whether it is being deleted and has not reached the step of waiting for its address to be removed. Until then it may be a VM
/// host whose agent is reached by the name. Only MAAS shows that: an agent with an API key of its own registers the VM host itself.
fn needs_the_name(machine: &MaasMachine) -> bool {
    let said = machine.status.as_ref().and_then(|status| status.conditions.condition(conditions::MACHINE_DEPLOYED));
    let reason = said.and_then(|condition| condition.reason.as_deref());
    machine.metadata.deletion_timestamp.is_some() && reason != Some(reasons::DNS_DETACH_PENDING)
}

/// Whether the cluster's API server is to be probed now: a control plane machine is up, the name resolves to it, and it was not
/// probed recently. The probe may take a while, so changes that have to be published come first.
fn may_probe(context: &Context, key: &Key, observed: &Observed) -> bool {
    let (Lookup::Found(owner), Lookup::Found(machines)) = (&observed.owner, &observed.machines) else { return false };
    let up = machines.iter().any(|machine| machine.control_plane && addresses::is_up(machine));
    let in_step = match &observed.record {
        Lookup::Found(record) => addresses::published(observed).wanted.given(&record.addresses) == record.addresses,
        Lookup::Absent | Lookup::Unknown(_) => endpoint::name(&observed.object, owner).is_none(),
    };
    let known = endpoint::wanted(&observed.object, owner, None).is_some();
    !observed.object.deleting && up && in_step && known && context.memory.may_probe(key, context.clock.now())
}

#[cfg(test)]
mod tests {
    use serde_json::json;

    use super::*;

    #[test]
    fn go29_addresses_are_read_once_each_and_only_if_they_are_any() {
        let machine: MaasMachine = serde_json::from_value(json!({
            "apiVersion": "infrastructure.cluster.x-k8s.io/v1beta1", "kind": "MaasMachine", "metadata": { "name": "m" },
            "spec": {}, "status": { "machineState": "Deployed", "machinePowered": true, "addresses": [
                { "type": "ExternalDNS", "address": "m.maas" }, { "type": "ExternalIP", "address": "10.0.0.2" },
                { "type": "InternalIP", "address": "10.0.0.2" }, { "type": "ExternalIP", "address": "<nil>" },
                { "type": "ExternalIP", "address": "10.0.0.1" },
            ] },
        }))
        .unwrap();
        let expected: Vec<IpAddr> = vec!["10.0.0.2".parse().unwrap(), "10.0.0.1".parse().unwrap()];
        assert_eq!(machine_of(&machine).addresses, expected);
    }

    #[test]
    fn s11_a_host_that_leaves_needs_the_name_until_it_waits_for_its_address_to_go() {
        let needs_it = |deleting: bool, reason: &str| {
            let machine: MaasMachine = serde_json::from_value(json!({
                "apiVersion": "infrastructure.cluster.x-k8s.io/v1beta1", "kind": "MaasMachine",
                "metadata": { "name": "m", "deletionTimestamp": deleting.then_some("2026-11-15T12:00:00Z") },
                "spec": {},
                "status": { "conditions": [{ "type": "MachineDeployed", "status": "False", "reason": reason }] },
            }))
            .unwrap();
            machine_of(&machine).needs_the_name
        };
        // Also before it has reported a reason: a deletion of the cluster must not cut it off.
        assert!(needs_it(true, "MachineDeployed") && needs_it(true, "LeavingHost"));
        assert!(!needs_it(true, "DNSDetachPending") && !needs_it(false, "LeavingHost"));
    }
}
