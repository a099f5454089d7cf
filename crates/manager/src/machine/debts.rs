//! VMs that a MaasCluster still has to remove (S16): journaled when their host died, removed when the host is back.

use capmaas_api::MaasCluster;
use capmaas_core::Lookup;
use capmaas_core::maas::Power;
use capmaas_core::machine::{DEBTS_ANNOTATION, Debt, Payment, STAMP, STAMPED_FOR, debts, pay};
use maas_client::PowerState;
use serde_json::json;

use super::observe::metal;
use super::remove::remove_vm;
use crate::identity::Identity;
use crate::kubernetes::{self, Error, ErrorKind, Guard, Key, Kubernetes, Result};
use crate::lease::Fence;
use crate::machine_index::{Asker, holds};

/// How often a write of a debt is tried if others change the MaasCluster concurrently.
const TRIES: u32 = 5;

/// Journals a debt. Idempotent: if the write is lost, the next pass repeats it; if the debt is already there, nothing
/// is written. Machines that write concurrently each retry on conflict.
pub(super) async fn owe(port: &dyn Kubernetes, cluster: Option<&Key>, debt: &Debt) -> Result<()> {
    let gone = || Error::new(ErrorKind::NotFound, format!("record the debt {}", debt.machine), "no MaasCluster");
    let cluster = cluster.ok_or_else(gone)?;
    let mut tries = 0;
    loop {
        tries += 1;
        let object = port.maas_cluster(cluster).await?.ok_or_else(gone)?;
        let mut owed = read(cluster, &object)?;
        if owed.contains(debt) {
            return Ok(());
        }
        owed.push(debt.clone());
        match write(port, cluster, &object, &owed).await {
            Err(error) if error.kind == ErrorKind::Conflict && tries < TRIES => {}
            written => return written.map(drop),
        }
    }
}

fn read(cluster: &Key, object: &MaasCluster) -> Result<Vec<Debt>> {
    let doing = || format!("read the debts of {cluster}");
    debts(object.metadata.annotations.as_ref()).map_err(|why| Error::new(ErrorKind::Refused, doing(), why))
}

async fn write(port: &dyn Kubernetes, cluster: &Key, object: &MaasCluster, owed: &[Debt]) -> Result<MaasCluster> {
    let text = if owed.is_empty() { None } else { serde_json::to_string(owed).ok() };
    let patch = json!({ "metadata": { "annotations": { DEBTS_ANNOTATION: text } } });
    kubernetes::patch(port, cluster, &Guard::of(object), patch).await
}

/// How a pass over the debts ended.
#[derive(Debug, Clone, PartialEq, Eq)]
pub(crate) enum Settled {
    Even,
    /// The hosts are not back yet.
    Waiting,
    /// Something was changed; the next pass observes it.
    Worked,
    /// The host of this VM is back: see [`remove`].
    Due(String),
}

/// Looks for a debt that can be settled now: it is removed from the list if nothing is left of it, or its VM is to be
/// removed.
pub(crate) async fn settle(
    port: &dyn Kubernetes,
    cluster: &Key,
    object: &MaasCluster,
    identity: &Identity,
) -> Result<Settled> {
    let owed = read(cluster, object)?;
    let machines = identity.client.machines();
    for (index, debt) in owed.iter().enumerate() {
        let mut hinders = None;
        let vm = match machines.read(&debt.machine).await {
            Ok(machine) => {
                hinders = hindrance(port, cluster, identity.endpoint(), &machine).await?;
                Lookup::Found(metal(&machine))
            }
            Err(error) if error.is_not_found() => Lookup::Absent,
            Err(error) => Lookup::Unknown(error.to_string()),
        };
        let power = match &vm {
            Lookup::Found(_) => Some(match machines.query_power_state(&debt.machine).await {
                Ok(PowerState::On) => Power::On,
                Ok(PowerState::Off) => Power::Off,
                Ok(_) | Err(_) => Power::Unknown,
            }),
            Lookup::Absent | Lookup::Unknown(_) => None,
        };
        let payment = pay(debt, &vm, power, identity.user(), hinders);
        tracing::debug!(%cluster, machine = debt.machine, ?payment, "a debt");
        match payment {
            Payment::Wait(why) => tracing::info!(%cluster, machine = debt.machine, %why, "a debt is not settled yet"),
            Payment::Paid(why) => {
                tracing::info!(%cluster, machine = debt.machine, %why, "a debt is settled");
                let left: Vec<Debt> =
                    owed.iter().enumerate().filter(|(at, _)| *at != index).map(|(_, it)| it.clone()).collect();
                write(port, cluster, object, &left).await?;
                return Ok(Settled::Worked);
            }
            Payment::Remove => return Ok(Settled::Due(debt.machine.clone())),
        }
    }
    Ok(if owed.is_empty() { Settled::Even } else { Settled::Waiting })
}

/// Removes the VM of a debt. The debt stays until MAAS has been seen without it.
pub(crate) async fn remove(fence: &Fence, cluster: &Key, identity: &Identity, machine: &str) -> Result<Settled> {
    fence
        .check()
        .map_err(|error| Error::new(ErrorKind::Denied, format!("settle the debts of {cluster}"), error.to_string()))?;
    if let Err(error) = remove_vm(&identity.client, machine).await {
        tracing::warn!(%cluster, machine, ?error, "cannot settle a debt: the VM was not removed");
    }
    Ok(Settled::Worked)
}

/// A reason not to remove a VM that seems to match a debt. Users of the cluster's namespace can write debts, and can
/// read the stamps on other people's VMs (S27).
async fn hindrance(
    port: &dyn Kubernetes,
    cluster: &Key,
    maas: &str,
    vm: &maas_client::Machine,
) -> Result<Option<String>> {
    let id = &vm.system_id;
    let of = vm.workload_annotations.get(STAMPED_FOR).map(String::as_str).unwrap_or_default();
    let marked = vm.workload_annotations.contains_key(STAMP);
    if marked && of.split_once('/').is_none_or(|(namespace, _)| namespace != cluster.namespace) {
        let whose = if of.is_empty() { "no object" } else { of };
        return Ok(Some(format!("{id} is marked for {whose}, and not for one of this namespace; delete it in MAAS")));
    }
    let maas = Some(maas);
    for holder in port.machine_index().await?.others_holding(Asker { uid: None, maas }, id) {
        if port.maas_machine(&holder).await?.is_some_and(|object| holds(&object, maas, id)) {
            return Ok(Some(format!("the MaasMachine {holder} holds {id}, so it is not removed")));
        }
    }
    Ok(None)
}
