//! All facts that decide whether a VM may be evacuated.

use std::collections::BTreeMap;
use std::sync::Arc;

use capmaas_api::MaasMachine;
use capmaas_api::capi::{self, Cluster, owner};
use capmaas_api::names::{DELETE_FOR_MOVE_ANNOTATION, HOLD_EVACUATION_ANNOTATION, PAUSED_ANNOTATION};
use capmaas_core::evacuation::{
    self, Consent, Demanded, Group, Guest, Machine, Member, ObjectName, Observed, Site, Whose,
};
use capmaas_core::intent::Intent;
use capmaas_core::machine::{Journal, wanted};
use capmaas_core::placement::{Host, Sibling};
use capmaas_core::{Lookup, pause};
use kube::ResourceExt as _;
use maas_client::MachineFilter;

use super::hosts::{Closing, ClosingHost};
use super::{Context, Tenant, World, cluster_of, owners, successors};
use crate::kubernetes::Key;
use crate::lxd_hosts::{Details, machine_of, siblings};
use crate::stamp::Stamp;

/// Annotation of a MaasMachine with the name of its template, from Cluster API.
const CLONED_FROM: &str = "cluster.x-k8s.io/cloned-from-name";

/// The observed facts, and the object of each Machine.
pub(super) struct Gathered {
    pub(super) observed: Observed,
    /// The MaasMachine of each Machine.
    pub(super) objects: BTreeMap<ObjectName, Key>,
}

/// What the VMs of one Cluster share, read once per pass.
pub(super) struct ClusterFacts {
    cluster: Lookup<Cluster>,
    consent: Lookup<Consent>,
    machines: std::result::Result<Vec<capi::Machine>, String>,
}

type Known = BTreeMap<Key, ClusterFacts>;

pub(super) fn name(key: &Key) -> ObjectName {
    ObjectName::new(&key.namespace, &key.name)
}

/// Observes the VMs on hosts that are to be evacuated.
pub(super) async fn gather(
    context: &Context,
    world: &World,
    tenant: &Tenant,
    closing: Closing,
) -> maas_client::Result<Gathered> {
    let now = context.clock.now();
    let (mut hosts, mut objects, mut known) = (Vec::new(), BTreeMap::new(), Known::new());
    for ClosingHost { host, cause, object } in &closing.hosts {
        let guests = match on(tenant, host).await {
            Err(error) => Lookup::Unknown(error.to_string()),
            Ok(found) => {
                let mut guests = Vec::with_capacity(found.len());
                for vm in &found {
                    guests.push(guest(context, world, tenant, vm, (&mut known, &mut objects)).await);
                }
                Lookup::Found(guests)
            }
        };
        let waits = || {
            let uid = object.as_ref().and_then(|key| world.machines.get(key)?.uid());
            let trouble = context.memory.tag_trouble(tenant.identity.endpoint(), host.id, now);
            let trouble = trouble.or_else(|| context.memory.note_trouble(uid.as_deref(), now));
            trouble.unwrap_or_else(|| "it is being tagged in MAAS".to_owned())
        };
        hosts.push(evacuation::Host {
            id: host.id,
            name: host.name.clone(),
            cause: cause.clone(),
            object: object.as_ref().map(name),
            open: host.closed_by().is_none().then(waits),
            guests,
        });
    }
    let unplaced = if hosts.is_empty() { Vec::new() } else { unplaced(context, world, tenant).await };
    let successors =
        if hosts.is_empty() { BTreeMap::new() } else { successors::find(context, world, tenant, &closing).await };
    let site = Lookup::Found(site(context, world, tenant, demands(&hosts).chain(&unplaced)).await?);
    let refusals = context.memory.refusals(now);
    Ok(Gathered { observed: Observed { hosts, site, successors, unplaced, refusals }, objects })
}

/// Where these can be placed, with all details of the hosts that this depends on.
pub(super) async fn site(
    context: &Context,
    world: &World,
    tenant: &Tenant,
    demands: impl Iterator<Item = &Demanded>,
) -> maas_client::Result<Site> {
    let details = demands.map(|demanded| Details::of(&demanded.vm)).fold(Details::default(), Details::and);
    let (now, objects) = (context.clock.now(), world.objects(context));
    let survey = context.lxd_hosts.survey(&tenant.identity, now, objects, details).await?;
    Ok(Site { hosts: survey.hosts, claims: survey.claims })
}

pub(super) fn demands(hosts: &[evacuation::Host]) -> impl Iterator<Item = &Demanded> {
    let guests = hosts.iter().filter_map(|host| host.guests.found()).flatten();
    guests.filter_map(|guest| match &guest.whose {
        Whose::Ours(member) => member.demanded.as_ref().ok(),
        Whose::Foreign(_) => None,
    })
}

/// The VMs on a host that MAAS shows to this tenant.
async fn on(tenant: &Tenant, host: &Host) -> maas_client::Result<Vec<maas_client::Machine>> {
    let filter = MachineFilter { vm_host: Some(host.name.clone()), ..MachineFilter::default() };
    let mut found = tenant.identity.client.machines().list(&filter).await?;
    // Names of VM hosts are not unique.
    found.retain(|machine| machine.pod.as_ref().is_some_and(|pod| pod.id == host.id));
    Ok(found)
}

/// One VM. It is ours if an object holds it whose stamp it carries (S7), whichever tenant that object belongs to.
async fn guest(
    context: &Context,
    world: &World,
    tenant: &Tenant,
    vm: &maas_client::Machine,
    (known, objects): (&mut Known, &mut BTreeMap<ObjectName, Key>),
) -> Guest {
    let whose = match world.proven_holder(tenant, &vm.system_id, &Stamp::on(vm)) {
        None => Whose::Foreign(vm.owner.clone().filter(|owner| !owner.is_empty())),
        Some(object) => {
            let member = member(context, world, tenant, object, known).await;
            if let Lookup::Found(machine) = &member.machine {
                objects.insert(machine.object.clone(), Key::of(object.as_ref()));
            }
            Whose::Ours(Box::new(member))
        }
    };
    Guest { name: vm.hostname.clone().unwrap_or_else(|| vm.system_id.clone()), whose }
}

/// All facts that decide whether the VM of an object may be evacuated. Reads what the VMs of its Cluster share, unless
/// it is known.
pub(super) async fn member(
    context: &Context,
    world: &World,
    tenant: &Tenant,
    object: &MaasMachine,
    known: &mut Known,
) -> Member {
    let cluster = cluster_of(object);
    if !known.contains_key(&cluster) {
        known.insert(cluster.clone(), read(context, world, &cluster).await);
    }
    let unread = || "its Cluster was not read".to_owned();
    let facts = known.get(&cluster);
    let machine = facts.map_or_else(|| Lookup::Unknown(unread()), |facts| current_machine(object, facts));
    let group = match (&machine, facts) {
        (Lookup::Found(machine), Some(ClusterFacts { machines: Ok(all), cluster, .. })) => {
            owners::group(context.owners.as_ref(), machine, all, cluster).await
        }
        _ => Lookup::Unknown("its Machine is not known".to_owned()),
    };
    // The replacement need not come where this one is.
    let zones = match (group.found(), machine.found()) {
        (Some(group), Some(machine)) => group.next_domains(Some(&machine.name_any()), 1).pop().unwrap_or_default(),
        (_, machine) => own_zone(machine),
    };
    let model = match (group.found(), machine.found()) {
        (Some(group), Some(machine)) => model(world, object, group, &machine.name_any()),
        _ => Ok(object),
    };
    let demanded = model.and_then(|model| demanded(model, siblings(object, &world.index), zones));
    Member {
        cluster: name(&cluster),
        own_identity: if tenant.clusters.contains(&cluster) {
            Ok(())
        } else {
            Err("where else its cluster has room: the credentials of that cluster cannot see this host".to_owned())
        },
        consent: facts.map_or_else(|| Lookup::Unknown(unread()), |facts| facts.consent.clone()),
        paused: facts.map_or_else(|| Lookup::Unknown(unread()), |facts| paused(object, machine.found(), facts)),
        machine: machine.map(|machine| Machine {
            object: ObjectName::new(machine.namespace().unwrap_or_default(), machine.name_any()),
            uid: machine.uid().unwrap_or_default(),
            version: machine.resource_version().unwrap_or_default(),
            deleting: machine.metadata.deletion_timestamp.is_some(),
            held: machine.annotations().contains_key(HOLD_EVACUATION_ANNOTATION),
        }),
        group,
        demanded,
    }
}

/// What the VMs of a Cluster share, as it is now.
async fn read(context: &Context, world: &World, cluster: &Key) -> ClusterFacts {
    let consent = match world.clusters.get(cluster) {
        None => Lookup::Absent,
        Some(object) => Lookup::from(context.kubernetes.maas_cluster(&Key::of(object.as_ref())).await)
            .and_then(|object| evacuation::consent(&object.spec)),
    };
    ClusterFacts {
        cluster: context.kubernetes.cluster(cluster).await.into(),
        consent,
        machines: context.owners.machines(cluster).await.map_err(|error| error.to_string()),
    }
}

/// Whether the object must be left alone (S15). A paused Machine would only be deleted, not replaced.
fn paused(object: &MaasMachine, machine: Option<&capi::Machine>, facts: &ClusterFacts) -> Lookup<bool> {
    let held = [PAUSED_ANNOTATION, DELETE_FOR_MOVE_ANNOTATION];
    let annotations = [Some(object.annotations()), machine.map(kube::ResourceExt::annotations)];
    if annotations.into_iter().flatten().any(|all| held.iter().any(|name| all.contains_key(*name))) {
        return Lookup::Found(true);
    }
    facts.cluster.as_ref().and_then(pause::of_cluster)
}

/// The Machine that owns the object and has it as its infrastructure.
fn current_machine(object: &MaasMachine, facts: &ClusterFacts) -> Lookup<capi::Machine> {
    let all = match &facts.machines {
        Ok(all) => all,
        Err(why) => return Lookup::Unknown(why.clone()),
    };
    let Some(owner) = owner(&object.metadata, "Machine") else { return Lookup::Absent };
    let found = all.iter().find(|machine| machine.metadata.uid.as_ref() == Some(&owner.uid));
    let its_own = found.filter(|machine| {
        let reference = machine.spec.infrastructure_ref.as_ref();
        reference.is_some_and(|it| it.is_ours("MaasMachine") && it.name == object.name_any())
    });
    its_own.cloned().map_or(Lookup::Absent, Lookup::Found)
}

fn own_zone(machine: Option<&capi::Machine>) -> Vec<String> {
    machine.and_then(capi::Machine::failure_domain).map(str::to_owned).into_iter().collect()
}

/// What the replacement of a VM is like: a machine from the template that its owner uses now. An outdated VM may be of another size.
pub(super) fn model<'a>(
    world: &'a World,
    object: &'a MaasMachine,
    group: &Group,
    machine: &str,
) -> std::result::Result<&'a MaasMachine, String> {
    let Some(template) = &group.template else { return Ok(object) };
    let made_from = |it: &MaasMachine| it.annotations().get(CLONED_FROM).map(|name| name == template);
    let outdated = || group.members.iter().any(|it| it.name == machine && it.up_to_date == Some(false));
    if made_from(object).unwrap_or_else(|| !outdated()) {
        return Ok(object);
    }
    let same = |it: &&Arc<MaasMachine>| it.namespace() == object.namespace() && made_from(it) == Some(true);
    world.machines.values().find(same).map(AsRef::as_ref).ok_or_else(|| {
        format!(
            "the size of its replacement, because no MaasMachine has been created from {template} yet, which {} uses now; delete \
             one of its Machines when convenient",
            group.name
        )
    })
}

/// The demand of a VM like this one, whose Machine is created in one of these zones.
pub(super) fn demanded(
    model: &MaasMachine,
    siblings: Vec<Sibling>,
    mut zones: Vec<String>,
) -> std::result::Result<Demanded, String> {
    let journal = Journal::read(model.metadata.annotations.as_ref())?;
    let vm = match wanted(model, journal.as_ref()).map(|wanted| wanted.intent) {
        Ok(Intent::Vm(vm)) => *vm,
        Ok(Intent::Metal(_)) => return Err("the object asks for bare metal".to_owned()),
        Err(problem) => return Err(problem.message),
    };
    if zones.is_empty() {
        zones.extend(vm.zone.clone());
    }
    Ok(Demanded { vm, zones, siblings })
}

/// VMs in this MAAS that are requested but not placed yet, whoever they belong to.
async fn unplaced(context: &Context, world: &World, tenant: &Tenant) -> Vec<Demanded> {
    let mut all = Vec::new();
    for object in world.machines.values().filter(|object| tenant.neighbours.contains(&cluster_of(object))) {
        let journal = Journal::read(object.metadata.annotations.as_ref()).ok().flatten();
        let has_place = journal.as_ref().is_some_and(|it| it.allocation.is_some() || it.place().is_some());
        if object.metadata.deletion_timestamp.is_some() || has_place || object.spec.provider_id().is_some() {
            continue;
        }
        let machine = machine_of(context.kubernetes.as_ref(), object).await;
        all.extend(demanded(object, siblings(object, &world.index), own_zone(machine.found())).ok());
    }
    all
}
