//! Registers this node as a VM host, and reverts that. Whether that is permitted is decided as for the manager and the
//! agent: only while the project is empty (S12), and never if the machine is already registered.

use std::time::Duration;

use capmaas_core::registration::{self, Call, Facts, Maker, New, Next};
use jiff::Timestamp;
use lxd_initializer::{
    intent,
    observed::{Lookup, VmHost},
    registering::{self, KeyPair, SEND},
};
use maas_client::{ErrorKind, MachineFilter};
use secrecy::ExposeSecret;
use tokio::time::Instant;

use crate::{Checklist, read_maas, site::Site, stop::Stop};

const REGISTERED: &str = "Registration";
const REACHED: &str = "MAAS reaches LXD";
const MATCHED: &str = "Host machine";
const UNREGISTERED: &str = "Unregistration";
/// MAAS fills in a new host's resources some seconds after its registration.
const DIGESTS_WITHIN: Duration = Duration::from_secs(120);
const NOTHING_CHANGED: &str = "fix that in MAAS or LXD and run this again; nothing was changed";
const WAITED: &str =
    "check the logs of MAAS's region; a bridge without an address of its own can keep MAAS from the node";
const MISMATCHED: &str = "MAAS matches by MAC addresses: commission this machine again so that MAAS knows its interfaces, and look \
                          for one that two machines show";
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

impl Host {
    fn of(found: &VmHost) -> Self {
        let VmHost { id, name, project, maker, .. } = found.clone();
        Self { id, name, project, ours: maker == Maker::Ours }
    }
}

/// Registers this node unless it is already registered, and verifies that MAAS has really reached it.
pub(crate) async fn register(site: &Site, dry_run: bool, stop: &Stop, list: &mut Checklist) -> Registered {
    let mut run = Registering { site, dry_run, list, refreshed: None, acted: false, lost: None, host: None };
    let until = Instant::now() + DIGESTS_WITHIN;
    loop {
        let ended = match site.facts(run.refreshed).await {
            Ok(facts) => run.step(&facts, Instant::now() >= until || stop.is_wanted()).await,
            Err(error) => {
                let subject = run.subject();
                read_maas::failed(run.list, subject, &error);
                Err(Registered::No(run.host.take()))
            }
        };
        if let Err(registered) = ended {
            return registered;
        }
        stop.sleep(PAUSE).await;
    }
}

/// One run, from pass to pass.
struct Registering<'a> {
    site: &'a Site,
    dry_run: bool,
    list: &'a mut Checklist,
    refreshed: Option<Timestamp>,
    /// It has sent something to MAAS.
    acted: bool,
    /// What to say and what to do, where the answer to the registration is not known, or MAAS answered that it exists already.
    lost: Option<(String, &'static str)>,
    /// The VM host that it registered or refreshed.
    host: Option<Host>,
}

impl Registering<'_> {
    fn subject(&self) -> &'static str {
        if self.host.is_some() { REACHED } else { REGISTERED }
    }

    fn ends(&mut self) -> Registered {
        Registered::No(self.host.take())
    }

    /// One pass. `Err`: it is over.
    async fn step(&mut self, facts: &Facts, late: bool) -> Result<(), Registered> {
        self.find_lost(facts);
        let subject = self.subject();
        match registration::next(facts, Timestamp::now()) {
            Next::Right(message) => Err(self.works(facts, message).await),
            Next::Wait(_) if self.acted && !late => Ok(()),
            Next::Wait(why) => {
                match self.lost.take() {
                    Some((said, mend)) => self.list.failed(REGISTERED, said, mend),
                    None if self.acted => self.list.failed(subject, why, WAITED),
                    None => self.list.failed(REGISTERED, why, "wait until that is over and run this again"),
                }
                Err(self.ends())
            }
            Next::Blocked(why) => {
                let matched = facts.vm_host.found().and_then(|host| host.machine.as_ref());
                match (self.acted, matched) {
                    (true, Some(machine)) if *machine != self.site.machine.system_id => {
                        self.list.failed(MATCHED, why, MISMATCHED);
                    }
                    (true, _) => self.list.failed(subject, why, WAITED),
                    (false, _) => self.list.failed(REGISTERED, why, NOTHING_CHANGED),
                }
                Err(self.ends())
            }
            Next::Do(call, message) if self.dry_run => Err(self.would(&call, &message)),
            Next::Do(call, message) => self.act(&call, message, facts).await,
        }
    }

    /// The answer may be lost although the host was created.
    fn find_lost(&mut self, facts: &Facts) {
        if self.lost.is_some()
            && let Lookup::Found(found) = &facts.vm_host
            && found.maker == Maker::Ours
        {
            self.lost = None;
            let VmHost { id, name, .. } = found;
            self.list.done(REGISTERED, format!("registered VM host {name} ({id}), though MAAS's answer was lost"));
            self.host = Some(Host::of(found));
            // If it cannot be removed, it merely expires.
            let _ = intent::forget(&self.site.intents);
        }
    }

    async fn works(&mut self, facts: &Facts, message: String) -> Registered {
        let Lookup::Found(found) = &facts.vm_host else { return self.ends() };
        let (id, own) = (found.id, &self.site.machine.system_id);
        if !self.acted {
            self.list.good(REGISTERED, message);
            return Registered::Yes(Host::of(found));
        }
        match self.site.maas.vm_hosts().read(id).await {
            Ok(seen) => self.list.good(REACHED, read_maas::describe(&seen)),
            Err(error) => {
                read_maas::failed(self.list, REACHED, &error);
                return self.ends();
            }
        }
        self.list.good(MATCHED, format!("MAAS matched VM host {id} to this machine, {own}"));
        Registered::Yes(Host::of(found))
    }

    fn would(&mut self, call: &Call, message: &str) -> Registered {
        match call {
            Call::Register(new) => {
                let New { name, address, .. } = new.as_ref();
                self.list.would(REGISTERED, format!("would register VM host {name} at {address}, and unregister it"));
            }
            Call::Refresh { .. } => {
                self.list.would(REGISTERED, format!("would refresh the host in MAAS: {message}"));
            }
            Call::Renew { .. } | Call::Move { .. } => return self.elsewhere(message),
        }
        Registered::WouldBe
    }

    /// It is not for a test to change a registration.
    fn elsewhere(&mut self, message: &str) -> Registered {
        let found = format!("it is registered with an address other than {}: {message}", self.site.address);
        self.list.failed(
            REGISTERED,
            found,
            "give the address that is registered, or remove the VM host while it has no VMs",
        );
        Registered::No(None)
    }

    async fn act(&mut self, call: &Call, message: String, facts: &Facts) -> Result<(), Registered> {
        let (site, now) = (self.site, Timestamp::now());
        // The limit counts from the intent.
        let maas = site.maas.sending_within(SEND);
        match call {
            Call::Renew { .. } | Call::Move { .. } => return Err(self.elsewhere(&message)),
            Call::Register(_) => {
                // It was sent and has no effect, and this pass has not found another one: it is not sent again.
                if let Some((said, mend)) = self.lost.take() {
                    self.list.failed(REGISTERED, said, mend);
                    return Err(self.ends());
                }
                if let Err(error) = intent::store(&site.intents, now) {
                    let found = format!("the registration cannot be recorded, so it is not sent: {error:#}");
                    self.list.failed(REGISTERED, found, "run sudo ./lxd-test-linux again, then this");
                    return Err(self.ends());
                }
            }
            Call::Refresh { .. } => {
                if !self.acted {
                    self.list.good(REGISTERED, message);
                }
                self.host = facts.vm_host.found().map(Host::of);
            }
        }
        let pair = KeyPair {
            certificate: site.identity.certificate_pem().to_owned(),
            key: site.identity.key_pem().expose_secret().to_owned().into(),
        };
        let answer = registering::perform(&maas, call, pair).await;
        let after = registration::conclude(call, registering::outcome(&answer));
        self.acted = true;
        if after.refreshed {
            self.refreshed = Some(now);
        }
        if after.forget_intent {
            // If it cannot be removed, it merely expires.
            let _ = intent::forget(&site.intents);
        }
        match (call, answer) {
            (Call::Register(new), Ok(id)) => {
                let New { name, address, project, .. } = new.as_ref().clone();
                self.list.done(REGISTERED, format!("registered VM host {name} ({id}) at {address}"));
                self.host = Some(Host { id, name, project, ours: true });
            }
            // The one that exists may be that of an earlier run: the next pass looks for it.
            (Call::Register(_), Err(error)) if !after.forget_intent || error.kind() == ErrorKind::AlreadyExists => {
                self.lost = Some((registering::failure(call, &error), error.advice()));
            }
            (Call::Register(_), Err(error)) => {
                self.list.failed(REGISTERED, registering::failure(call, &error), error.advice());
                return Err(self.ends());
            }
            (_, Err(error)) => {
                let mend = "check whether MAAS's rack controllers reach this node on LXD's port, and for a firewall";
                self.list.failed(REACHED, registering::failure(call, &error), mend);
                return Err(self.ends());
            }
            (_, Ok(_)) => {}
        }
        Ok(())
    }
}

/// S12: only while the project holds nothing that MAAS does not know.
async fn refresh(site: &Site, host: &Host) -> Result<(), String> {
    match site.facts(None).await.map(|facts| facts.vm_host) {
        Ok(Lookup::Found(found)) if found.strangers == Lookup::Found(Vec::new()) => {}
        Ok(_) => return Err("the project holds instances that MAAS does not know, so the host is not refreshed".into()),
        Err(error) => return Err(error.to_string()),
    }
    site.maas.vm_hosts().refresh(host.id).await.map(drop).map_err(|error| error.to_string())
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
            // What was in flight has landed. If the intent cannot be removed, it merely expires.
            let _ = intent::forget(&site.intents);
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
