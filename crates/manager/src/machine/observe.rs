//! All reads of a pass.

use capmaas_api::capi::{Cluster, Machine, owner};
use capmaas_api::names::{
    CLUSTER_NAME_LABEL, CUSTOM_ENDPOINT_ANNOTATION, DNS_NAME_ANNOTATION, ENDPOINT_SOURCE_ANNOTATION,
};
use capmaas_api::{MaasCluster, MaasMachine, reasons};
use capmaas_core::Lookup;
use capmaas_core::credentials::{IDENTITY_ANNOTATION, Standing};
use capmaas_core::hosts::desired;
use capmaas_core::hosts::leaving::AsHost;
use capmaas_core::intent::Intent;
use capmaas_core::maas::{Power, State};
use capmaas_core::machine::{
    Access, ClusterFacts, HeldElsewhere, Journal, Observed, ObservedNode, ObservedVm, Surplus, VmStage, Write,
    asks_power, debts, first_journal, idle, is_sent_back, may_be_served, wanted, while_reading,
};
use kube::ResourceExt as _;
use maas_client::{MachineFilter, PowerState};

use super::bootstrap::bootstrap;
pub(super) use super::conversion::metal;
use super::held_elsewhere::{claims, held_elsewhere};
use super::node::node;
use super::{Carried, Context, Seen};
use crate::identity::Identity;
use crate::kubernetes::{Key, Result};
use crate::machine_index::MachineIndex;
use crate::reconcile::while_waiting;
use capmaas_core::maas;

/// The identity used for MAAS, and the location of the Cluster: what effects need in addition to the facts.
#[derive(Clone, Debug)]
pub(super) struct Session {
    pub(super) identity: Identity,
    /// The MaasCluster, if there is one.
    pub(super) maas_cluster: Option<Key>,
}

/// What the reads from Kubernetes have shown, before MAAS is read.
struct Local {
    observed: Box<Observed>,
    /// The journal, or the one that would be the first.
    journal: Option<Journal>,
    maas_cluster: Lookup<MaasCluster>,
    cluster: Option<String>,
    machine_index: MachineIndex,
}

/// `None` if the object is gone. What the previous pass has just observed is not read again. If MAAS takes long, the
/// status that the previous pass skipped is written meanwhile, or that MAAS is being read.
pub(super) async fn observe(context: &Context, key: &Key, known: &mut Carried) -> Result<Option<Seen>> {
    let kubernetes = context.kubernetes.as_ref();
    let (carried, journal) = (known.object.take(), known.journal.take());
    let journal = journal.filter(|_| carried.is_some());
    let object = match carried {
        Some(object) => object,
        None => match kubernetes.maas_machine(key).await? {
            Some(object) => object,
            None => return Ok(None),
        },
    };
    let machine = owner_machine(context, key, &object).await;
    let cluster = owner_cluster(context, key, &object, &machine).await;
    // Boxed, because passes hold it across all their awaits.
    let mut observed = Box::new(Observed {
        journal: journal
            .map_or_else(|| Journal::read(object.metadata.annotations.as_ref()), |journal| Ok(Some(journal))),
        cluster,
        machine,
        maas_cluster: Lookup::Unknown("the MaasCluster was not read".into()),
        bootstrap: Lookup::Unknown("the bootstrap data was not read".into()),
        held_elsewhere: HeldElsewhere::default(),
        access: Access::Denied { reason: reasons::MAAS_UNAVAILABLE, message: "MAAS was not queried".into() },
        by_key: Lookup::Unknown("MAAS was not queried for the idempotency key".into()),
        in_journal: Lookup::Unknown("MAAS was not queried for the machine".into()),
        surplus: Vec::new(),
        power: None,
        in_dns: Lookup::Absent,
        node: ObservedNode::NotAsked,
        vm: ObservedVm::default(),
        debts: Lookup::Absent,
        links: Lookup::Absent,
        as_host: AsHost::NotAsked,
        object,
    });
    let mut outdated = known.unwritten.as_ref().map(|unwritten| unwritten.since);
    if idle(&observed, context.clock.now()).is_some() {
        return Ok(Some(Seen { observed, session: None, outdated }));
    }
    let machine_index = kubernetes.machine_index().await?;
    let journal = observed.journal().cloned();
    if let Some(journal) = &journal {
        observed.held_elsewhere = claims(kubernetes, &observed.object, journal, &machine_index).await?;
    }
    if !may_be_served(&observed) {
        return Ok(Some(Seen { observed, session: None, outdated }));
    }
    let (maas_cluster, cluster) = infrastructure(context, key, &observed.cluster).await;
    observed.maas_cluster = match &maas_cluster {
        Lookup::Found(cluster) => Lookup::Found(ClusterFacts {
            keeps_dns: dns_name(cluster).is_some(),
            bridge: desired(&cluster.spec).map(|desired| desired.map(|desired| desired.bridge)),
        }),
        Lookup::Absent => Lookup::Absent,
        Lookup::Unknown(why) => Lookup::Unknown(why.clone()),
    };
    observed.debts = match &maas_cluster {
        Lookup::Found(cluster) => {
            debts(cluster.metadata.annotations.as_ref()).map_or_else(Lookup::Unknown, Lookup::Found)
        }
        Lookup::Absent => Lookup::Absent,
        Lookup::Unknown(why) => Lookup::Unknown(why.clone()),
    };
    if !has_begun(journal.as_ref()) {
        observed.bootstrap = bootstrap(context, key, &observed, known).await;
    }
    let journal = journal.or_else(|| first_journal(&observed));
    let unwritten = known.unwritten.take();
    let status = match &unwritten {
        Some(unwritten) => Some(unwritten.status.clone()),
        None => while_reading(&observed, context.clock.now()),
    };
    let mut object = observed.object.clone();
    let reading =
        Box::pin(in_maas(context, key, known, Local { observed, journal, maas_cluster, cluster, machine_index }));
    let (mut observed, session) =
        while_waiting(kubernetes, key, &mut object, status.as_ref(), &mut outdated, reading).await?;
    observed.object = object;
    known.unwritten = unwritten.filter(|_| outdated.is_some());
    Ok(Some(Seen { observed, session, outdated }))
}

/// A machine that is being deployed already has its bootstrap data.
fn has_begun(journal: Option<&Journal>) -> bool {
    journal.and_then(|journal| journal.allocation.as_ref()).is_some_and(|it| it.deploy_began.is_some())
}

/// The reads from MAAS and from the workload cluster, and what Kubernetes has about the machines that they show.
async fn in_maas(
    context: &Context,
    key: &Key,
    known: &mut Carried,
    local: Local,
) -> Result<(Box<Observed>, Option<Session>)> {
    let kubernetes = context.kubernetes.as_ref();
    let Local { mut observed, journal, maas_cluster, cluster, machine_index } = local;
    let identity = match identity(context, key, &observed, &maas_cluster, cluster).await {
        Ok(identity) => identity,
        Err(closed) => {
            observed.access = closed;
            observed.held_elsewhere = held_elsewhere(kubernetes, &observed, journal.as_ref(), &machine_index).await?;
            return Ok((observed, None));
        }
    };
    observed.access = Access::Granted {
        name: identity.name.to_string(),
        user: identity.user().to_owned(),
        identity_changed: matches!(identity.standing, Standing::Changed { .. }),
    };
    if let Some(journal) = &journal {
        let seen = known.just_seen(context.clock.now());
        observe_machine(context, &identity, journal, seen, &mut observed).await;
        if has_begun(Some(journal))
            && !matches!(&observed.in_journal, Lookup::Found(metal) if matches!(metal.state, State::Deploying | State::Deployed))
        {
            observed.bootstrap = bootstrap(context, key, &observed, known).await;
        }
        observe_vm(context, &identity, journal, &mut observed, &machine_index).await;
        observed.links = super::links::sight(&identity.client, &observed).await;
        if let Lookup::Found(cluster) = &maas_cluster {
            observed.in_dns = in_dns(context, &identity, cluster, &observed).await;
        }
        observed.node = node(context, key, &observed).await;
        observed.as_host = super::leaving_host::observe(context, key, &observed, &identity).await;
    }
    // After all other reads, because it covers every machine that MAAS has returned.
    observed.held_elsewhere = held_elsewhere(kubernetes, &observed, journal.as_ref(), &machine_index).await?;
    let maas_cluster = match &maas_cluster {
        Lookup::Found(cluster) => Some(Key::of(cluster)),
        Lookup::Absent | Lookup::Unknown(_) => None,
    };
    Ok((observed, Some(Session { identity, maas_cluster })))
}

async fn owner_machine(context: &Context, key: &Key, object: &MaasMachine) -> Lookup<Machine> {
    let Some(owner) = owner(&object.metadata, "Machine") else { return Lookup::Absent };
    match Lookup::from(context.kubernetes.machine(&key.beside(&owner.name), &owner.uid).await) {
        // Deleted and recreated under the same name: not our owner.
        Lookup::Found(machine) if machine.metadata.uid.as_deref() != Some(owner.uid.as_str()) => Lookup::Absent,
        found => found,
    }
}

fn cluster_name(object: &MaasMachine, machine: &Lookup<Machine>) -> Option<String> {
    let labelled = object.labels().get(CLUSTER_NAME_LABEL).cloned();
    labelled.or_else(|| match machine {
        Lookup::Found(machine) => machine.spec.cluster_name.clone(),
        _ => None,
    })
}

async fn owner_cluster(
    context: &Context,
    key: &Key,
    object: &MaasMachine,
    machine: &Lookup<Machine>,
) -> Lookup<Cluster> {
    match cluster_name(object, machine) {
        Some(name) => Lookup::from(context.kubernetes.cluster(&key.beside(name)).await),
        None => Lookup::Absent,
    }
}

/// The MaasCluster, and the key of the Cluster. If the Cluster is gone, the MaasCluster is assumed to have its name, by
/// convention.
async fn infrastructure(
    context: &Context,
    key: &Key,
    cluster: &Lookup<Cluster>,
) -> (Lookup<MaasCluster>, Option<String>) {
    let name = match cluster {
        Lookup::Found(cluster) => match &cluster.spec.infrastructure_ref {
            Some(reference) if reference.is_ours("MaasCluster") => reference.name.clone(),
            _ => return (Lookup::Absent, cluster.metadata.name.clone()),
        },
        Lookup::Unknown(why) => return (Lookup::Unknown(why.clone()), None),
        Lookup::Absent => {
            let object = Lookup::from(context.kubernetes.maas_machine(key).await);
            let Lookup::Found(object) = object else { return (Lookup::Absent, None) };
            let Some(name) = object.labels().get(CLUSTER_NAME_LABEL).cloned() else { return (Lookup::Absent, None) };
            name
        }
    };
    let found = Lookup::from(context.kubernetes.maas_cluster(&key.beside(&name)).await);
    let cluster = match cluster {
        Lookup::Found(cluster) => cluster.metadata.name.clone(),
        _ => Some(name),
    };
    (found, cluster)
}

async fn identity(
    context: &Context,
    key: &Key,
    observed: &Observed,
    maas_cluster: &Lookup<MaasCluster>,
    cluster: Option<String>,
) -> Result<Identity, Access> {
    let closed = |reason, message: String| Access::Denied { reason, message };
    match maas_cluster {
        Lookup::Found(maas_cluster) => {
            context.identities.check(maas_cluster).await.map_err(|problem| closed(problem.reason, problem.message))
        }
        Lookup::Unknown(why) => Err(closed(reasons::MAAS_UNAVAILABLE, why.clone())),
        Lookup::Absent => {
            let recorded = observed.object.annotations().get(IDENTITY_ANNOTATION).map(String::as_str);
            match context.identities.resolve_orphan(&key.beside(cluster.unwrap_or_default()), recorded).await {
                Lookup::Found(identity) => Ok(identity),
                Lookup::Absent => {
                    Err(closed(reasons::CREDENTIALS_INVALID, "waiting for MAAS credentials: there are none".into()))
                }
                Lookup::Unknown(why) => Err(closed(reasons::MAAS_UNAVAILABLE, why)),
            }
        }
    }
}

/// The reads from MAAS: the machine in the journal, the machines under our idempotency key where that matters, its
/// power state where that matters. One answer may cover both the machine and the key.
async fn observe_machine(
    context: &Context,
    identity: &Identity,
    journal: &Journal,
    just_seen: Option<maas::Machine>,
    observed: &mut Observed,
) {
    let deleting = observed.object.metadata.deletion_timestamp.is_some();
    let is_in_journal = |metal: &&maas::Machine| journal.has_machine(&metal.id);
    // The machine that an allocation has just returned. Nothing else was under our key right before.
    let sent = journal.in_flight.as_ref().map(|sent| sent.write);
    let brought = journal.allocation.is_none() && sent == Some(Write::Allocate);
    let (brought, just_seen): (Option<_>, Option<_>) =
        (just_seen.clone().filter(|_| brought), just_seen.filter(|metal| is_in_journal(&metal)));
    let asked = just_seen.is_none() && deleting && journal.allocation.as_ref().is_none_or(|it| it.released.is_none());
    if let Some(seen) = just_seen {
        observed.in_journal = Lookup::Found(seen);
    }
    if let Some(brought) = brought {
        observed.by_key = Lookup::Found(vec![brought]);
        return;
    }
    if asked {
        observed.by_key = under_key(context, identity, journal).await;
        if let Lookup::Found(found) = &observed.by_key
            && let Some(metal) = found.iter().find(is_in_journal)
        {
            observed.in_journal = Lookup::Found(metal.clone());
        }
    }
    if let (Some(id), Lookup::Unknown(_)) = (journal.machine(), &observed.in_journal) {
        observed.in_journal = in_journal(context, identity, id).await;
    }
    let known = match &observed.in_journal {
        Lookup::Found(metal) => observed.is_ours(journal, metal) && !journal.awaits_more_than(metal),
        Lookup::Absent | Lookup::Unknown(_) => false,
    };
    let unsure = !known || !journal.surplus.is_empty();
    let asks = if deleting { !is_sent_back(journal, &observed.in_journal) } else { unsure };
    if asks && !asked {
        observed.by_key = under_key(context, identity, journal).await;
    }
    if let Lookup::Found(metal) = &observed.in_journal
        && asks_power(observed, journal, metal, context.clock.now())
    {
        observed.power = Some(power(identity, &metal.id).await);
    }
    // Only where it would be powered on. A VM is no host.
    if let (Lookup::Found(metal), Some(Power::Off)) = (&mut observed.in_journal, observed.power)
        && (metal.state == State::Deployed && !metal.is_vm() && !deleting)
        && metal.in_maintenance != Lookup::Found(true)
    {
        metal.in_maintenance = super::hosts::is_in_maintenance(context, identity, &metal.id).await;
    }
    for id in &journal.surplus {
        let seen = match identity.machines.read(id).await {
            Ok(machine) => Lookup::Found(metal(&machine)),
            Err(error) if error.is_not_found() => Lookup::Absent,
            Err(error) => Lookup::Unknown(error.to_string()),
        };
        let released = matches!(&seen, Lookup::Found(metal) if matches!(metal.state, State::Ready | State::New));
        let power = if released { Some(power(identity, id).await) } else { None };
        observed.surplus.push(Surplus { id: id.clone(), seen, power });
    }
}

async fn in_journal(context: &Context, identity: &Identity, id: &str) -> Lookup<maas::Machine> {
    match identity.machines.read(id).await {
        Ok(machine) => Lookup::Found(metal(&machine)),
        Err(error) if error.is_not_found() => Lookup::Absent,
        Err(error) => unanswered(context, identity, &error),
    }
}

async fn under_key(context: &Context, identity: &Identity, journal: &Journal) -> Lookup<Vec<maas::Machine>> {
    match identity.client.machines().list(&MachineFilter::agent_name(&journal.key)).await {
        Ok(machines) => Lookup::Found(machines.iter().map(metal).collect()),
        Err(error) => unanswered(context, identity, &error),
    }
}

fn unanswered<T>(context: &Context, identity: &Identity, error: &maas_client::Error) -> Lookup<T> {
    if error.is_unauthenticated() {
        context.identities.doubt(identity);
    }
    Lookup::Unknown(error.to_string())
}

/// The power state according to the power driver. Anything other than on or off, or no answer, does not count as off
/// (S20).
async fn power(identity: &Identity, id: &str) -> Power {
    match identity.client.machines().query_power_state(id).await {
        Ok(PowerState::On) => Power::On,
        Ok(PowerState::Off) => Power::Off,
        Ok(_) | Err(_) => Power::Unknown,
    }
}

/// The reads for a VM: machines with its name, possible hosts, the state of its host; each only where it matters.
async fn observe_vm(
    context: &Context,
    identity: &Identity,
    journal: &Journal,
    observed: &mut Observed,
    machine_index: &MachineIndex,
) {
    if let (Lookup::Found(metal), Some(Power::Unknown)) = (&observed.in_journal, observed.power)
        && (observed.object.metadata.deletion_timestamp.is_some() || observed.object.spec.provider_id().is_none())
        && let Some(host) = metal.vm_host
    {
        // The VM does not answer. Is its host still alive (S16)?
        observed.vm.host = super::hosts::health(&identity.client, host).await;
    }
    let Some(vm) = &journal.vm else { return };
    if matches!(observed.in_journal, Lookup::Found(_)) {
        return;
    }
    observed.vm.by_name = match identity.client.machines().list(&MachineFilter::hostname(&vm.name)).await {
        Ok(machines) => Lookup::Found(machines.iter().map(metal).collect()),
        Err(error) => Lookup::Unknown(error.to_string()),
    };
    let deleting = observed.object.metadata.deletion_timestamp.is_some();
    // Machines that the MaasCluster owes are no longer ours.
    let nothing = |found: &Lookup<Vec<maas::Machine>>| matches!(found, Lookup::Found(found) if found.iter().all(|metal| journal.owed.contains(&metal.id)));
    let in_flight = journal.in_flight.as_ref().is_some_and(|sent| sent.may_still_land(context.clock.now()));
    let identity_changed = matches!(&observed.access, Access::Granted { identity_changed: true, .. });
    let waits = deleting || in_flight || identity_changed || journal.allocation.is_some();
    if waits || !nothing(&observed.by_key) || !nothing(&observed.vm.by_name) {
        return;
    }
    match vm.stage.place() {
        Some(place) => {
            let orphan = matches!(vm.stage, VmStage::OnlyInLxd(_)).then_some(vm.name.as_str());
            observed.vm.host = super::hosts::session(context, identity, place.host, orphan, machine_index).await;
        }
        None => {
            if let Ok(Intent::Vm(wanted)) = wanted(&observed.object, Some(journal)).map(|wanted| wanted.intent) {
                let asked = (journal, wanted.as_ref());
                observed.vm.placement =
                    super::hosts::placement(context, identity, observed, asked, machine_index).await;
            }
        }
    }
}

/// The name that we manage in MAAS's DNS for a cluster; `None` if the user manages the endpoint, or before there is
/// one.
fn dns_name(cluster: &MaasCluster) -> Option<String> {
    let annotations = cluster.annotations();
    let by_user = annotations.get(ENDPOINT_SOURCE_ANNOTATION).is_some_and(|source| source == "user");
    if by_user || annotations.contains_key(CUSTOM_ENDPOINT_ANNOTATION) {
        return None;
    }
    let endpoint = cluster.spec.control_plane_endpoint.as_ref().map(|endpoint| endpoint.host.clone());
    let network = cluster.status.as_ref().and_then(|status| status.network.as_ref()?.dns_name.clone());
    let noted = annotations.get(DNS_NAME_ANNOTATION).cloned();
    noted.or(endpoint).or(network).filter(|name| !name.is_empty())
}

/// Whether the cluster's record resolves to the machine, for control plane machines that run or are being deleted. The
/// MaasCluster controller writes the record and shares MAAS's answer, so MAAS is read only after a restart and when the
/// resync is due.
async fn in_dns(context: &Context, identity: &Identity, cluster: &MaasCluster, observed: &Observed) -> Lookup<bool> {
    let deleting = observed.object.metadata.deletion_timestamp.is_some();
    let control_plane = observed.is_control_plane();
    let (Lookup::Found(metal), true, Some(name)) = (&observed.in_journal, control_plane, dns_name(cluster)) else {
        return Lookup::Absent;
    };
    if !deleting && metal.state != State::Deployed {
        return Lookup::Absent;
    }
    match identity.dns_names.lookup(&name, context.clock.now()).await {
        Ok(record) => {
            let addresses = record.iter().filter_map(|record| record.ip_addresses.as_ref()).flatten();
            let leads = |address: &maas_client::IpAddress| {
                address.ip.as_ref().is_some_and(|ip| metal.addresses.contains(ip))
                    || address.interface_set.iter().any(|holder| holder.system_id.as_ref() == Some(&metal.id))
            };
            Lookup::Found(addresses.into_iter().any(leads))
        }
        Err(error) => Lookup::Unknown(error.to_string()),
    }
}
