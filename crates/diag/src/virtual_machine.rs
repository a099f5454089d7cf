//! Composes a VM on the VM host, waits for Ready, allocates it so that nobody else can, deletes it and verifies that it
//! is gone.

use std::time::Duration;

use lxd_initializer::observed::Lookup;
use maas_client::{Allocate, Compose, ComposeDisk, Effect, ErrorKind, Machine, MachineFilter, MachineStatus, Release};
use tokio::time::Instant;

use crate::{Checklist, read_maas, read_maas::Places, site::Site, stop::Stop, vm_host::Host};

const COMPOSED: &str = "VM made";
const READY: &str = "VM is Ready";
const OURS: &str = "VM is ours";
const DELETED: &str = "VM deleted";
const GONE: &str = "VM is gone";

/// MAAS's defaults for a VM; enough for commissioning.
const CORES: u32 = 1;
const MEMORY_MIB: u32 = 2048;
const DISK_GB: u32 = 8;

/// MAAS gives up commissioning after 30 min, and testing comes on top.
const READY_WITHIN: Duration = Duration::from_secs(60 * 60);
/// MAAS makes LXD delete the VM after it has answered.
const GONE_WITHIN: Duration = Duration::from_secs(120);
/// A composition whose answer was lost may still be in progress.
const APPEARS_WITHIN: Duration = Duration::from_secs(30);

/// A VM of ours.
#[derive(Debug, Clone)]
struct Vm {
    system_id: String,
    name: String,
}

/// The state of a VM before its deletion.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
enum Claim {
    /// Allocated under our key: nobody else can allocate it any more.
    Taken,
    /// Not Ready, so nobody can have allocated it.
    NotOffered,
}

/// The whole test.
pub(crate) async fn try_out(site: &Site, host: &Host, places: Places, stop: &Stop, list: &mut Checklist) {
    let name = format!("capmaas-test-{:08x}", rand::random::<u32>());
    let Some(vm) = compose(site, host, places, name, list).await else { return };
    let claim = match await_ready(site, &vm, stop, list).await {
        Ended::Ready => {
            if !take(site, &vm, list).await {
                return;
            }
            Claim::Taken
        }
        Ended::NotReady => Claim::NotOffered,
        Ended::NotOurs => return,
    };
    if delete(site, host, &vm, claim, list).await {
        await_gone(site, host, &vm, list).await;
    }
}

async fn compose(site: &Site, host: &Host, places: Places, name: String, list: &mut Checklist) -> Option<Vm> {
    let wanted = Compose {
        hostname: Some(name.clone()),
        cores: Some(CORES),
        memory_mib: Some(MEMORY_MIB),
        disks: vec![ComposeDisk { label: "root".into(), gigabytes: DISK_GB, pool: None }],
        zone: Some(places.zone),
        pool: Some(places.pool),
        ..Compose::default()
    };
    let words = format!("{CORES} core, {MEMORY_MIB} MiB, {DISK_GB} GB");
    match site.maas.vm_hosts().compose(host.id, &wanted).await {
        Ok(made) => {
            list.done(COMPOSED, format!("{name} ({}) with {words}", made.system_id));
            Some(Vm { system_id: made.system_id, name })
        }
        Err(error) => {
            if error.effect() == Effect::Unknown
                && let Some(machine) = appears(site, host, &name).await
            {
                list.done(COMPOSED, format!("{name} ({}), though MAAS's answer was lost", machine.system_id));
                return Some(Vm { system_id: machine.system_id, name });
            }
            read_maas::failed(list, COMPOSED, &error);
            if error.effect() == Effect::Unknown {
                list.leaves(format!("perhaps VM {name}: if it appears in MAAS later, delete it there"));
            }
            None
        }
    }
}

/// Finds the VM by its name, which nobody else would use.
async fn appears(site: &Site, host: &Host, name: &str) -> Option<Machine> {
    let until = Instant::now() + APPEARS_WITHIN;
    loop {
        if let Ok(machines) = site.maas.machines().list(&MachineFilter::hostname(name)).await
            && let Some(machine) =
                machines.into_iter().find(|machine| machine.pod.as_ref().is_some_and(|pod| pod.id == host.id))
        {
            return Some(machine);
        }
        if Instant::now() >= until {
            return None;
        }
        tokio::time::sleep(Duration::from_secs(2)).await;
    }
}

enum Ended {
    Ready,
    NotReady,
    /// Somebody else has deleted or allocated it.
    NotOurs,
}

async fn await_ready(site: &Site, vm: &Vm, stop: &Stop, list: &mut Checklist) -> Ended {
    use MachineStatus::{Allocated, Commissioning, Deployed, Deploying, New, Ready, Reserved, Testing};
    let start = Instant::now();
    let mut pause = Duration::from_millis(250);
    loop {
        let machine = match site.maas.machines().read(&vm.system_id).await {
            Ok(machine) => machine,
            Err(error) if error.is_not_found() => {
                list.failed(READY, format!("{} was deleted by somebody else", vm.name), "run this again");
                return Ended::NotOurs;
            }
            // A restarting MAAS is not a fault of the VM.
            Err(error) if error.is_transient() && start.elapsed() < READY_WITHIN && !stop.is_wanted() => {
                stop.sleep(pause).await;
                continue;
            }
            Err(error) => {
                read_maas::failed(list, READY, &error);
                return Ended::NotReady;
            }
        };
        let state = machine.status.map_or_else(|| "in an unknown state".to_owned(), |status| status.to_string());
        match machine.status {
            Some(Ready) => {
                list.good(READY, format!("{} after {} s", vm.name, start.elapsed().as_secs()));
                return Ended::Ready;
            }
            Some(New | Commissioning | Testing) | None => {}
            // Only somebody else can have caused this state: we have not.
            Some(Allocated | Deploying | Deployed | Reserved) => {
                stolen(vm, list);
                return Ended::NotOurs;
            }
            Some(_) => {
                let why = reason(&machine);
                let mend = "look at the VM's events and commissioning output in MAAS, and at its console (lxc console): it \
                            must boot from MAAS over the bridge";
                list.failed(READY, format!("{} is {state}: {why}", vm.name), mend);
                return Ended::NotReady;
            }
        }
        if stop.is_wanted() || start.elapsed() >= READY_WITHIN {
            let found = format!("{} is still {state} after {} s", vm.name, start.elapsed().as_secs());
            list.failed(READY, found, "look at its console (lxc console): it must boot from MAAS over the bridge");
            return Ended::NotReady;
        }
        stop.sleep(pause).await;
        pause = (pause * 2).min(Duration::from_secs(10));
    }
}

/// Why MAAS calls the machine failed. 3.4 has no description, and newer releases have an empty one where there is
/// nothing to describe.
fn reason(machine: &Machine) -> &str {
    let told = [&machine.error_description, &machine.status_message].into_iter().flatten();
    told.map(String::as_str).find(|text| !text.is_empty()).unwrap_or_default()
}

/// S10: anybody can allocate a Ready VM. Allocated under our key it is ours, and nobody can take it before it is
/// deleted.
async fn take(site: &Site, vm: &Vm, list: &mut Checklist) -> bool {
    let allocate = Allocate {
        agent_name: Some(vm.name.clone()),
        comment: Some("maas-test: allocated so that it can be deleted".into()),
        ..Allocate::by_id(&vm.system_id)
    };
    let refusal = match site.maas.machines().allocate(&allocate).await {
        // On MAAS up to 3.2 an allocation by ID may compose another machine instead.
        Ok(machine) if machine.system_id == vm.system_id => return true,
        Ok(machine) => {
            list.failed(
                OURS,
                format!("MAAS gave machine {} instead of {}", machine.system_id, vm.name),
                "the VM is left alone, since somebody else has it; run this again",
            );
            list.leaves(format!("VM {} ({}), which is somebody else's now", vm.name, vm.system_id));
            // It was never deployed and is ours by our key, so it is released immediately.
            if let Err(error) = site.maas.machines().release(&machine.system_id, &Release::default()).await {
                list.leaves(format!("machine {}, which is allocated: release it in MAAS ({error})", machine.system_id));
            }
            return false;
        }
        Err(error) => error,
    };
    // The answer may be lost: our key on the VM shows it.
    let keyed = site.maas.machines().list(&MachineFilter::agent_name(&vm.name)).await;
    if keyed.is_ok_and(|machines| machines.iter().any(|machine| machine.system_id == vm.system_id)) {
        return true;
    }
    if matches!(refusal.kind(), ErrorKind::NoMatch | ErrorKind::WrongState) {
        stolen(vm, list);
    } else {
        read_maas::failed(list, OURS, &refusal);
        list.leaves(format!("VM {} ({}), because it is not known to be ours alone", vm.name, vm.system_id));
    }
    false
}

fn stolen(vm: &Vm, list: &mut Checklist) {
    let mend =
        "somebody else has allocated it, so it is left alone; run this again when nobody else allocates machines";
    list.failed(OURS, format!("somebody else took VM {} ({}) first", vm.name, vm.system_id), mend);
    list.leaves(format!("VM {} ({}), which is somebody else's now", vm.name, vm.system_id));
}

/// Deletes it if it is still what was composed.
async fn delete(site: &Site, host: &Host, vm: &Vm, claim: Claim, list: &mut Checklist) -> bool {
    let machine = match site.maas.machines().read(&vm.system_id).await {
        Ok(machine) => machine,
        Err(error) if error.is_not_found() => return true,
        Err(error) => {
            read_maas::failed(list, DELETED, &error);
            list.leaves(format!("VM {} ({})", vm.name, vm.system_id));
            return false;
        }
    };
    let same = machine.hostname.as_deref() == Some(&vm.name)
        && machine.pod.as_ref().is_some_and(|pod| pod.id == host.id)
        && machine.locked != Some(true);
    let offered = matches!(
        machine.status,
        Some(MachineStatus::Ready | MachineStatus::Deployed | MachineStatus::Deploying | MachineStatus::Allocated)
    );
    let ours = match claim {
        Claim::Taken => machine.is(MachineStatus::Allocated),
        Claim::NotOffered if machine.is(MachineStatus::Ready) => {
            // It became Ready after all: then it has to be allocated first.
            if !take(site, vm, list).await {
                return false;
            }
            true
        }
        Claim::NotOffered => !offered,
    };
    if !(same && ours) {
        let state = machine.status.map_or_else(|| "unknown".to_owned(), |status| status.to_string());
        let owner = machine.owner.as_deref().unwrap_or("nobody");
        list.failed(
            DELETED,
            format!(
                "VM {} ({}) is no longer as it was composed (state {state}, owner {owner}): it is left alone",
                vm.name, vm.system_id
            ),
            "check in MAAS who uses it",
        );
        list.leaves(format!("VM {} ({})", vm.name, vm.system_id));
        return false;
    }
    match site.maas.machines().delete(&vm.system_id).await {
        Ok(()) => {}
        Err(error) if error.is_not_found() => {}
        Err(error) => {
            read_maas::failed(list, DELETED, &error);
            list.leaves(format!("VM {} ({})", vm.name, vm.system_id));
            return false;
        }
    }
    list.done(DELETED, format!("{} ({})", vm.name, vm.system_id));
    true
}

/// MAAS forgets a VM even if its LXD did not delete it, so both are checked.
async fn await_gone(site: &Site, host: &Host, vm: &Vm, list: &mut Checklist) {
    let until = Instant::now() + GONE_WITHIN;
    let seen_by_us = host.project == site.project;
    loop {
        let in_maas = match site.maas.machines().read(&vm.system_id).await {
            Err(error) if error.is_not_found() => Lookup::Absent,
            Ok(_) => Lookup::Found(()),
            Err(error) => Lookup::Unknown(error.to_string()),
        };
        let in_lxd = match site.lxd.instance(&host.project, &vm.name).await {
            _ if !seen_by_us => Lookup::Absent,
            Ok(None) => Lookup::Absent,
            Ok(Some(_)) => Lookup::Found(()),
            Err(error) => Lookup::Unknown(error.to_string()),
        };
        if in_maas == Lookup::Absent && in_lxd == Lookup::Absent {
            let lxd = if seen_by_us { "neither MAAS nor LXD has it any more" } else { "MAAS no longer has it" };
            list.good(GONE, lxd);
            return;
        }
        if Instant::now() >= until {
            let still = |lookup: &Lookup<()>| match lookup {
                Lookup::Found(()) => "still has it".to_owned(),
                Lookup::Absent => "no longer has it".to_owned(),
                Lookup::Unknown(why) => format!("could not be queried ({why})"),
            };
            let found = format!("MAAS {}, LXD {}", still(&in_maas), still(&in_lxd));
            let mend = format!("delete it: lxc delete --force --project {} {}", host.project, vm.name);
            list.failed(GONE, found, mend);
            list.leaves(format!("VM {}", vm.name));
            return;
        }
        tokio::time::sleep(Duration::from_millis(500)).await;
    }
}

#[cfg(test)]
mod tests {
    use serde_json::json;

    use super::*;

    #[test]
    fn a_description_that_is_empty_leaves_the_word_to_the_last_message() {
        for (described, expected) in [(None, "it timed out"), (Some(""), "it timed out"), (Some("no disk"), "no disk")]
        {
            let machine =
                json!({ "system_id": "abc123", "error_description": described, "status_message": "it timed out" });
            assert_eq!(reason(&serde_json::from_value(machine).unwrap()), expected);
        }
    }
}
