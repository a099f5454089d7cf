//! Registers this node as a VM host, and reverts that. The library of `lxd-initializer` decides whether that is
//! permitted: only while the project is empty (S12), and never if the machine is already registered.

use std::time::Duration;

use capmaas_core::registration::{Call, New, Outcome};
use lxd_initializer::{
    effect::Effect,
    observed::{Lookup, Maker},
    plan::{State, Step},
    registering::{self, KeyPair, SEND},
};
use maas_client::MachineFilter;
use secrecy::ExposeSecret;
use tokio::time::Instant;

use crate::{Checklist, read_maas, site::Site, stop::Stop};

const REGISTERED: &str = "Registration";
const REACHED: &str = "MAAS reaches LXD";
const UNREGISTERED: &str = "Unregistration";
/// MAAS fills in a new host's resources some seconds after its registration.
const DIGESTS_WITHIN: Duration = Duration::from_secs(120);
const PAUSE: Duration = Duration::from_millis(500);

/// The VM host of this node.
#[derive(Debug, Clone)]
pub(crate) struct Host {
    pub(crate) id: i64,
    pub(crate) name: String,
    pub(crate) project: String,
    /// Whether it was registered with our key: by this run, or by an interrupted one.
    pub(crate) ours: bool,
}

/// The result of registering.
pub(crate) enum Registered {
    /// It is a VM host and works.
    Yes(Host),
    /// It is not, and may have to be reverted.
    No(Option<Host>),
    /// Nothing was done, because of `--dry-run`.
    WouldBe,
}

/// Registers this node unless it is already registered, and verifies that MAAS has really reached it.
pub(crate) async fn register(site: &Site, dry_run: bool, stop: &Stop, list: &mut Checklist) -> Registered {
    let (plan, found) = match site.decide().await {
        Ok(decided) => decided,
        Err(error) => {
            read_maas::failed(list, REGISTERED, &error);
            return Registered::No(None);
        }
    };
    let existing =
        found.map(|host| Host { id: host.id, name: host.name, project: host.project, ours: host.maker == Maker::Ours });
    match plan.effect {
        Some(Effect::OnHost(Call::Register(new))) if dry_run => {
            let New { name, address, .. } = *new;
            list.would(REGISTERED, format!("would register VM host {name} at {address}, and unregister it"));
            Registered::WouldBe
        }
        Some(Effect::OnHost(Call::Register(new))) => match create(site, *new, list).await {
            Some(host) => prove(site, host, stop, list).await,
            None => Registered::No(None),
        },
        Some(Effect::OnHost(Call::Refresh { .. })) if dry_run => {
            list.would(REGISTERED, format!("would refresh the host in MAAS: {}", plan.message));
            Registered::WouldBe
        }
        Some(Effect::OnHost(Call::Refresh { .. })) => {
            list.good(REGISTERED, plan.message);
            match existing {
                Some(host) => prove(site, host, stop, list).await,
                None => Registered::No(None),
            }
        }
        Some(Effect::OnHost(Call::Renew { .. })) => {
            let found = format!("it is registered with an address other than {}: {}", site.address, plan.message);
            list.failed(
                REGISTERED,
                found,
                "give the address that is registered, or remove the VM host while it has no VMs",
            );
            Registered::No(None)
        }
        _ => {
            let message = plan.conditions.iter().find(|condition| condition.step == Step::Registered);
            let message = message.map(|condition| condition.message.clone()).unwrap_or_default();
            match existing {
                Some(host) if plan.state == State::Ready => {
                    list.good(REGISTERED, message);
                    Registered::Yes(host)
                }
                _ => {
                    list.failed(REGISTERED, message, "fix that in MAAS or LXD and run this again; nothing was changed");
                    Registered::No(None)
                }
            }
        }
    }
}

async fn create(site: &Site, new: New, list: &mut Checklist) -> Option<Host> {
    let pair = KeyPair {
        certificate: site.identity.certificate_pem().to_owned(),
        key: site.identity.key_pem().expose_secret().to_owned().into(),
    };
    let New { name, address, project, .. } = new.clone();
    let call = Call::Register(Box::new(new));
    let answer = registering::perform(&site.maas.sending_within(SEND), &call, pair).await;
    let outcome = registering::outcome(&answer);
    if let Ok(Some(id)) = answer {
        list.done(REGISTERED, format!("registered VM host {name} ({id}) at {address}"));
        return Some(Host { id, name, project, ours: true });
    }
    // The answer may be lost although the host was created.
    if outcome == Outcome::Unknown
        && let Ok((_, Some(found))) = site.decide().await
        && found.maker == Maker::Ours
    {
        let id = found.id;
        list.done(REGISTERED, format!("registered VM host {name} ({id}), though MAAS's answer was lost"));
        return Some(Host { id, name, project, ours: true });
    }
    match answer {
        Err(error) => read_maas::failed(list, REGISTERED, &error),
        Ok(_) => list.failed(
            REGISTERED,
            "MAAS says that this LXD is registered already, but shows no VM host of this node",
            "look for a VM host at this address in MAAS",
        ),
    }
    None
}

/// MAAS confirms a registration before it has reached anything: a refresh shows the truth, and the totals follow later.
async fn prove(site: &Site, host: Host, stop: &Stop, list: &mut Checklist) -> Registered {
    let vm_hosts = site.maas.vm_hosts();
    let until = Instant::now() + DIGESTS_WITHIN;
    let mut refreshed = false;
    loop {
        let seen = match vm_hosts.read(host.id).await {
            Ok(seen) => seen,
            Err(error) => {
                read_maas::failed(list, REACHED, &error);
                return Registered::No(Some(host));
            }
        };
        if seen.is_reached() && seen.is_measured() {
            list.good(REACHED, read_maas::describe(&seen));
            break;
        }
        if !seen.is_reached() && !refreshed {
            refreshed = true;
            if let Err(why) = refresh(site, &host).await {
                let mend = "check whether MAAS's rack controllers reach this node on LXD's port, and for a firewall";
                list.failed(REACHED, why, mend);
                return Registered::No(Some(host));
            }
        }
        if Instant::now() >= until || stop.is_wanted() {
            let mend = "check the logs of MAAS's region; a bridge without an address of its own can keep MAAS from it";
            list.failed(REACHED, format!("MAAS has not read the resources of VM host {} yet", host.id), mend);
            return Registered::No(Some(host));
        }
        stop.sleep(PAUSE).await;
    }
    matched(site, host, list).await
}

/// S12: only while the project holds nothing that MAAS does not know.
async fn refresh(site: &Site, host: &Host) -> Result<(), String> {
    match site.decide().await {
        Ok((_, Some(found))) if found.strangers == Lookup::Found(Vec::new()) => {}
        Ok(_) => return Err("the project holds instances that MAAS does not know, so the host is not refreshed".into()),
        Err(error) => return Err(error.to_string()),
    }
    site.maas.vm_hosts().refresh(host.id).await.map(drop).map_err(|error| error.to_string())
}

async fn matched(site: &Site, host: Host, list: &mut Checklist) -> Registered {
    const SUBJECT: &str = "Host machine";
    let own = &site.machine.system_id;
    let seen = match site.maas.vm_hosts().read(host.id).await {
        Ok(seen) => seen.host.map(|reference| reference.system_id),
        Err(error) => {
            read_maas::failed(list, SUBJECT, &error);
            return Registered::No(Some(host));
        }
    };
    if seen.as_ref() == Some(own) {
        list.good(SUBJECT, format!("MAAS matched VM host {} to this machine, {own}", host.id));
        return Registered::Yes(host);
    }
    let other = seen.as_deref().unwrap_or("no machine");
    list.failed(
        SUBJECT,
        format!("MAAS matched VM host {} to {other}, but this node is {own}", host.id),
        "MAAS matches by MAC addresses: commission this machine again so that MAAS knows its interfaces, and look for one \
         that two machines show",
    );
    Registered::No(Some(host))
}

/// Reverts a registration of ours, unless there is a VM (S11): its owner needs the host.
pub(crate) async fn unregister(site: &Site, host: &Host, list: &mut Checklist) {
    if !host.ours {
        list.good(UNREGISTERED, format!("VM host {} ({}) is kept: somebody else registered it", host.name, host.id));
        return;
    }
    match vms_on(site, host).await {
        Ok(vms) if vms.is_empty() => {}
        Ok(vms) => {
            list.failed(
                UNREGISTERED,
                format!(
                    "VM host {} ({}) stays registered, because VMs are on it: {}",
                    host.name,
                    host.id,
                    vms.join(", ")
                ),
                "once they are gone, remove the VM host in MAAS, or run this again",
            );
            return;
        }
        Err(why) => {
            list.failed(
                UNREGISTERED,
                format!(
                    "VM host {} ({}) stays registered: it cannot be determined whether VMs are on it: {why}",
                    host.name, host.id
                ),
                "remove the VM host in MAAS once you have seen that it has no VMs, or run this again",
            );
            return;
        }
    }
    if let Err(error) = site.maas.vm_hosts().delete(host.id).await
        && !error.is_not_found()
    {
        read_maas::failed(list, UNREGISTERED, &error);
        return;
    }
    match site.maas.vm_hosts().read(host.id).await {
        Err(error) if error.is_not_found() => {
            list.done(UNREGISTERED, format!("unregistered VM host {} ({})", host.name, host.id));
        }
        Ok(_) => {
            let mend = "remove it there, or run this again";
            list.failed(UNREGISTERED, format!("VM host {} ({}) is still in MAAS", host.name, host.id), mend);
        }
        Err(error) => read_maas::failed(list, UNREGISTERED, &error),
    }
}

/// The VMs on a host, according to MAAS after a refresh, and according to LXD.
async fn vms_on(site: &Site, host: &Host) -> Result<Vec<String>, String> {
    if let Err(why) = refresh(site, host).await {
        // If MAAS has never reached it, MAAS has created nothing there.
        let seen = site.maas.vm_hosts().read(host.id).await.map_err(|error| error.to_string())?;
        if seen.is_reached() {
            return Err(why);
        }
    }
    // Names are not unique, so the filter only saves time.
    let filter = MachineFilter { vm_host: Some(host.name.clone()), ..MachineFilter::default() };
    let machines = site.maas.machines().list(&filter).await.map_err(|error| error.to_string())?;
    let here = machines.iter().filter(|machine| machine.pod.as_ref().is_some_and(|pod| pod.id == host.id));
    let mut names: Vec<String> =
        here.map(|machine| machine.hostname.clone().unwrap_or_else(|| machine.system_id.clone())).collect();
    names.extend(site.instances().await.map_err(|error| error.to_string())?);
    names.sort();
    names.dedup();
    Ok(names)
}
