//! Performs effects as calls to MAAS.

use std::collections::BTreeMap;

use capmaas_core::intent::Wipe;
use capmaas_core::machine::{Constraints, Effect, Outcome, Place, QUARANTINE_PREFIX, STAMP, STAMPED_FOR, VmNic};
use capmaas_core::placement::LEAVING_TAG;
use capmaas_core::plan::Refusal;
use kube::ResourceExt as _;
use maas_client::{
    Allocate, Client, Compose, ComposeDisk, ComposeInterface, Deploy, Erase, ErrorKind, MachineUpdate, NewBridge,
    Release,
};

use super::observe::{Session, metal};
use super::remove::{NotRemoved, remove_vm};
use super::{Context, debts, leaving_host};
use crate::kubernetes::{self, Key};

/// Shown in MAAS's event log.
const COMMENT: &str = "capmaas";

/// Performs the effect once.
pub(super) async fn perform(
    context: &Context,
    key: &Key,
    observed: &capmaas_core::machine::Observed,
    effect: &Effect,
    session: &Session,
) -> Outcome {
    let client = &session.identity.client;
    let machines = client.machines();
    let result = match effect {
        Effect::Allocate { key, constraints } => {
            return answered(context, session, machines.allocate(&allocation(key, constraints)).await);
        }
        Effect::Reclaim { key, machine } => {
            let wanted = Allocate {
                system_id: Some(machine.clone()),
                agent_name: Some(key.clone()),
                comment: Some(COMMENT.into()),
                ..Allocate::metal()
            };
            machines.allocate(&wanted).await.map(drop)
        }
        Effect::Compose { name, place } => {
            return match client.vm_hosts().compose(place.host, &composition(name, place)).await {
                Ok(_) => Outcome::Done(None),
                Err(error) => {
                    // MAAS knows something about the host that the cached list does not show.
                    context.lxd_hosts.forget(&session.identity).await;
                    not_composed(&error)
                }
            };
        }
        Effect::RefreshHost { host } => client.vm_hosts().refresh(*host).await.map(drop),
        Effect::Take { key, machine } => {
            let wanted = Allocate {
                agent_name: Some(key.clone()),
                comment: Some(COMMENT.into()),
                ..Allocate::by_id(machine.clone())
            };
            machines.allocate(&wanted).await.map(drop)
        }
        Effect::ChangeLink { machine, change } => crate::links::perform(client, machine, change).await,
        Effect::Tag { machine, tag } => client.tags().update(tag, &[machine.as_str()], &[]).await.map(drop),
        Effect::DeleteVm { machine } => match remove_vm(client, machine).await {
            Ok(()) | Err(NotRemoved::Gone) => Ok(()),
            Err(NotRemoved::NoVm(why)) => return Outcome::Refused(Refusal::Invalid, why),
            Err(NotRemoved::Maas(error)) => Err(error),
        },
        Effect::Owe(debt) => {
            return match debts::owe(context.kubernetes.as_ref(), session.maas_cluster.as_ref(), debt).await {
                Ok(()) => Outcome::Done(None),
                Err(error) => Outcome::Refused(Refusal::Passing, error.to_string()),
            };
        }
        Effect::Stamp { key: stamp, machine } => {
            let annotations =
                BTreeMap::from([(STAMP.to_owned(), stamp.clone()), (STAMPED_FOR.to_owned(), key.to_string())]);
            return answered(context, session, machines.set_annotations(machine, &annotations).await);
        }
        Effect::DisableSwap { machine } => {
            let update = MachineUpdate { swap_size: Some("0".into()), ..MachineUpdate::default() };
            return answered(context, session, machines.update(machine, &update).await);
        }
        Effect::CreateBridge { machine, name, parent } => {
            let bridge = NewBridge { name: name.clone(), parent: *parent };
            client.interfaces().create_bridge(machine, &bridge).await.map(drop)
        }
        Effect::Deploy { key: stamp, machine, image, in_memory } => {
            let data = match user_data(context, key, observed).await {
                Ok(data) => data,
                Err(why) => return Outcome::Refused(Refusal::Passing, why),
            };
            let deploy = Deploy {
                distro_series: Some(image.clone()),
                user_data: Some(data),
                agent_name: Some(stamp.clone()),
                comment: Some(COMMENT.into()),
                ephemeral: *in_memory,
                ..Deploy::default()
            };
            return answered(context, session, machines.deploy(machine, &deploy).await);
        }
        Effect::Quarantine { machine, tag } => quarantine(client, machine, tag).await,
        Effect::Release { machine, erase } => {
            let release = Release { erase: erasing(*erase), comment: Some(COMMENT.into()) };
            return answered(context, session, machines.release(machine, &release).await);
        }
        Effect::AbortErase { machine } => machines.abort(machine, COMMENT).await.map(drop),
        Effect::MarkHost { vm_host, .. } => client.vm_hosts().add_tag(*vm_host, LEAVING_TAG).await.map(drop),
        Effect::TellAgent { node } => {
            return match leaving_host::ask_to_leave(context, key, observed, node).await {
                Ok(()) => Outcome::Done(None),
                Err(why) => Outcome::Refused(Refusal::Passing, why),
            };
        }
        Effect::LookAtHost { vm_host, .. } => client.vm_hosts().refresh(*vm_host).await.map(drop),
        Effect::Unregister { vm_host, .. } => match client.vm_hosts().delete(*vm_host).await {
            Err(error) if error.is_not_found() => Ok(()),
            result => result,
        },
        Effect::PowerOn { machine } => machines.power_on(machine).await.map(drop),
        Effect::NameNode { node, provider_id, labels } => {
            return name_node(context, key, observed, node, provider_id, labels).await;
        }
    };
    match result {
        Ok(()) => Outcome::Done(None),
        Err(error) => not_done(context, session, &error),
    }
}

/// The outcome of a call that returns the updated machine.
fn answered(context: &Context, session: &Session, answer: maas_client::Result<maas_client::Machine>) -> Outcome {
    match answer {
        Ok(machine) => Outcome::Done(Some(Box::new(metal(&machine)))),
        Err(error) => not_done(context, session, &error),
    }
}

fn not_done(context: &Context, session: &Session, error: &maas_client::Error) -> Outcome {
    if error.is_unauthenticated() {
        context.identities.doubt(&session.identity);
    }
    outcome(error)
}

fn outcome(error: &maas_client::Error) -> Outcome {
    let why = error.to_string();
    if error.effect() == maas_client::Effect::Unknown {
        return Outcome::Unknown(why);
    }
    let refusal = match error.kind() {
        ErrorKind::NoMatch => Refusal::NoMatch,
        ErrorKind::Denied => Refusal::Denied,
        ErrorKind::Invalid | ErrorKind::UnknownReference | ErrorKind::Unsupported => Refusal::Invalid,
        ErrorKind::InUse => Refusal::InUse,
        _ => Refusal::Passing,
    };
    Outcome::Refused(refusal, why)
}

/// The VM skips commissioning and is Ready immediately: while MAAS commissions a VM, anybody else could wait to
/// allocate it (S10).
fn composition(name: &str, place: &Place) -> Compose {
    let interface = |nic: &VmNic| ComposeInterface {
        name: nic.name.clone(),
        constraints: vec![("subnet_cidr".to_owned(), nic.subnet.clone())],
    };
    Compose {
        hostname: Some(name.to_owned()),
        cores: Some(place.cores),
        memory_mib: Some(place.memory),
        disks: vec![ComposeDisk { label: "root".into(), gigabytes: place.disk, pool: place.storage_pool.clone() }],
        interfaces: place.nics.iter().map(interface).collect(),
        zone: place.zone_id,
        skip_commissioning: true,
        ..Compose::default()
    }
}

/// MAAS reports problems with a host as 5xx, and does not always tell whether LXD already has the VM.
fn not_composed(error: &maas_client::Error) -> Outcome {
    let why = error.to_string();
    let refusal = match error.kind() {
        ErrorKind::NoCapacity => Refusal::NoRoom,
        // The first kind was reported before LXD was asked for anything; the other may have happened at any point.
        ErrorKind::HostTrouble if is_unreached(&why) => Refusal::HostTrouble,
        ErrorKind::HostTrouble => Refusal::HalfWay,
        ErrorKind::AlreadyExists => Refusal::Exists,
        ErrorKind::NotFound | ErrorKind::Invalid | ErrorKind::UnknownReference => Refusal::Invalid,
        _ if why.contains("Unable to compose") => Refusal::HalfWay,
        _ => return outcome(error),
    };
    Outcome::Refused(refusal, why)
}

/// Whether MAAS never reached the LXD of the host, or found that it cannot compose VMs: then there is no VM.
fn is_unreached(why: &str) -> bool {
    ["Failed to connect to the LXD REST API", "does not support composability"].iter().any(|words| why.contains(words))
}

/// Never allocates a VM, and never composes one: `not_pod_type` keeps MAAS from doing so.
fn allocation(key: &str, constraints: &Constraints) -> Allocate {
    Allocate {
        system_id: constraints.machine.clone(),
        agent_name: Some(key.to_owned()),
        min_cpu_count: constraints.min_cpu,
        min_memory_mib: constraints.min_memory,
        tags: constraints.tags.clone(),
        not_tags: constraints.not_tags.clone(),
        zone: constraints.zone.clone(),
        pool: constraints.pool.clone(),
        storage: constraints.min_disk.map(|gigabytes| format!("root:{gigabytes}")),
        comment: Some(COMMENT.into()),
        ..Allocate::metal()
    }
}

fn erasing(erase: Option<Wipe>) -> Erase {
    match erase {
        None => Erase::ServerDefault,
        Some(Wipe::Nothing) => Erase::None,
        Some(Wipe::Quick) => Erase::Quick,
        Some(Wipe::Secure) => Erase::Secure,
        Some(Wipe::Full) => Erase::Full,
    }
}

async fn user_data(
    context: &Context,
    key: &Key,
    observed: &capmaas_core::machine::Observed,
) -> Result<maas_client::SecretSlice<u8>, String> {
    let name = match &observed.machine {
        capmaas_core::Lookup::Found(machine) => machine.bootstrap_secret().map(str::to_owned),
        _ => None,
    };
    let name = name.ok_or("the Machine names no bootstrap data any more")?;
    let secret = context.kubernetes.secret(&key.beside(&name)).await.map_err(|error| error.to_string())?;
    let secret = secret.ok_or_else(|| format!("the Secret {name} with the bootstrap data is gone"))?;
    secret.bytes("value").cloned().ok_or_else(|| format!("the Secret {name} has no key \"value\""))
}

/// Creating tags requires an administrator. The first machine to need the tag of the day creates it.
async fn quarantine(client: &Client, machine: &str, tag: &str) -> maas_client::Result<()> {
    match client.tags().update(tag, &[machine], &[]).await {
        Err(error) if error.is_not_found() => {}
        result => return result.map(drop),
    }
    let comment = format!(
        "A machine with this tag failed on the day in the name; tags {QUARANTINE_PREFIX}* keep it out for a day or two"
    );
    match client.tags().create(tag, &comment).await {
        Err(error) if error.kind() != ErrorKind::AlreadyExists => return Err(error),
        _ => {}
    }
    client.tags().update(tag, &[machine], &[]).await.map(drop)
}

async fn name_node(
    context: &Context,
    key: &Key,
    observed: &capmaas_core::machine::Observed,
    node: &str,
    provider_id: &str,
    labels: &BTreeMap<String, String>,
) -> Outcome {
    let capmaas_core::Lookup::Found(cluster) = &observed.cluster else {
        return Outcome::Refused(Refusal::Passing, "the Cluster is gone".into());
    };
    let cluster = key.beside(cluster.name_any());
    let kubernetes = context.kubernetes.as_ref();
    let refused = |error: kubernetes::Error| Outcome::Refused(Refusal::Passing, error.to_string());
    let found = match kubernetes.node(&cluster, node).await {
        Ok(Some(found)) => found,
        Ok(None) => return Outcome::Refused(Refusal::Passing, format!("the Node {node} is gone")),
        Err(error) => return refused(error),
    };
    if found.provider_id.as_deref().is_some_and(|id| id != provider_id) {
        return Outcome::Refused(Refusal::Passing, format!("the Node {node} carries another provider ID"));
    }
    let mut labels = labels.clone();
    labels.retain(|name, _| !found.labels.contains_key(name));
    if found.provider_id.is_some() && labels.is_empty() {
        return Outcome::Done(None);
    }
    match kubernetes.name_node(&cluster, &found, provider_id, &labels).await {
        Ok(()) => Outcome::Done(None),
        Err(error) => refused(error),
    }
}
