//! The reads of MAAS: the record, a free name, addresses, zones, and a machine where a changed identity has to prove itself.

use std::collections::BTreeSet;
use std::fmt::Write as _;
use std::net::IpAddr;
use std::sync::Arc;

use capmaas_api::{MaasCluster, MaasMachine, ProviderId};
use capmaas_core::Lookup;
use capmaas_core::cluster::observed::{Observed, Record};
use capmaas_core::cluster::{addresses, endpoint};
use capmaas_core::credentials::{IDENTITY_ANNOTATION, Name, Standing};
use capmaas_core::machine::{Record as MachineRecord, STAMP, debts};
use kube::ResourceExt as _;
use maas_client::{DnsFilter, DnsResource, Error, ErrorKind, IpAddressFilter, MachineFilter, MachineStatus};
use sha2::{Digest as _, Sha256};

use super::Context;
use super::memory::Zones;
use crate::identity::Identity;

/// How many names are tried before a person has to help.
const NAMES_TRIED: u32 = 5;
/// How many machines are looked for until a changed identity has shown that it sees them.
const MACHINES_TRIED: usize = 5;
/// MAAS's number for an address that a user reserved.
const USER_RESERVED: i64 = 4;

/// Looks at everything in MAAS that the decision needs.
pub(super) async fn look(
    context: &Context,
    identity: &Identity,
    object: &MaasCluster,
    machines: &[Arc<MaasMachine>],
    observed: &mut Observed,
) {
    let eyes = Eyes { context, identity };
    let owner = match &observed.owner {
        Lookup::Found(owner) => owner.clone(),
        Lookup::Absent | Lookup::Unknown(_) => capmaas_core::cluster::observed::Owner::default(),
    };
    if let Some(name) = endpoint::name(&observed.object, &owner) {
        let found = eyes.record(&name).await;
        observed.record = match &found {
            Lookup::Found(record) => Lookup::Found(facts_of(record)),
            Lookup::Absent => Lookup::Absent,
            Lookup::Unknown(why) => Lookup::Unknown(why.clone()),
        };
        if let Lookup::Found(record) = &found {
            bound_to_leaving(record, machines, observed);
        }
        look_at_addresses(&eyes, observed).await;
    } else if endpoint::needs_name(&observed.object, &owner)
        && !observed.object.deleting
        && endpoint::not_a_domain(&observed.object.spec.dns_domain).is_none()
    {
        let uid = object.uid().unwrap_or_default();
        observed.candidate = eyes.free_name(&owner.name, &uid, &observed.object.spec.dns_domain).await;
    }
    if matches!(identity.standing, Standing::Changed { .. }) {
        observed.sees_a_machine = eyes.sees_one_of(object, machines).await;
    }
    if observed.object.deleting {
        return;
    }
    let spec = &observed.object.spec;
    if !spec.failure_domains.is_empty() {
        observed.zones = Some(eyes.zones(Zones::All).await);
    } else if spec.discover_failure_domains == Some(true) {
        observed.usable_zones = Some(eyes.zones(Zones::Usable).await);
    }
}

/// What matters about a record.
fn facts_of(record: &DnsResource) -> Record {
    let entries = record.ip_addresses.as_deref().unwrap_or_default();
    let parsed = |entry: &maas_client::IpAddress| entry.ip.as_deref().and_then(|ip| ip.parse().ok());
    Record {
        id: record.id,
        addresses: entries.iter().filter_map(parsed).collect(),
        dangling: entries.iter().any(|entry| parsed(entry).is_none()),
    }
}

/// A machine that leaves must be able to leave the record also if its status, which tells its addresses, was lost: MAAS tells
/// whose the addresses of the record are.
fn bound_to_leaving(record: &DnsResource, machines: &[Arc<MaasMachine>], observed: &mut Observed) {
    let Lookup::Found(facts) = &mut observed.machines else { return };
    for (machine, facts) in machines.iter().zip(facts) {
        let Some(id) = system_id(machine).filter(|_| facts.deleting) else { continue };
        for entry in record.ip_addresses.as_deref().unwrap_or_default() {
            let theirs = entry.interface_set.iter().any(|holder| holder.system_id.as_ref() == Some(&id));
            if let (true, Some(Ok(address))) = (theirs, entry.ip.as_deref().map(str::parse::<IpAddr>))
                && !facts.addresses.contains(&address)
            {
                facts.addresses.push(address);
            }
        }
    }
}

fn system_id(machine: &MaasMachine) -> Option<String> {
    let provider_id = machine.spec.provider_id().and_then(|id| id.parse::<ProviderId>().ok());
    provider_id.and_then(|id| id.system_id().map(str::to_owned))
}

async fn look_at_addresses(eyes: &Eyes<'_>, observed: &mut Observed) {
    let current = match &observed.record {
        Lookup::Found(record) => record.addresses.clone(),
        Lookup::Absent => BTreeSet::new(),
        Lookup::Unknown(_) => return,
    };
    let wanted = addresses::published(observed).wanted.given(&current);
    for address in wanted.difference(&current) {
        // If MAAS does not tell, it is not taken for ours to give back.
        if eyes.holders(*address).await.is_ok_and(|holders| holders.is_empty()) {
            observed.unheard_of.insert(*address);
        }
    }
    for address in observed.object.notes.owed.clone() {
        if !current.contains(&address) && !wanted.contains(&address) {
            observed.reserved.insert(address, eyes.is_reserved_for_us(address).await);
        }
    }
}

/// A look at MAAS with an identity.
struct Eyes<'a> {
    context: &'a Context,
    identity: &'a Identity,
}

impl Eyes<'_> {
    /// The sentence about an answer that was none. A key that is refused is tried anew before its next use.
    fn failed(&self, error: &Error) -> String {
        if error.is_unauthenticated() {
            self.context.identities.doubt(self.identity);
        }
        error.to_string()
    }

    async fn record(&self, name: &str) -> Lookup<DnsResource> {
        match self.identity.client.dns_resources().list(&DnsFilter::fqdn(name)).await {
            Ok(records) => {
                let ours = |record: &DnsResource| {
                    record.id >= 0 && record.fqdn.as_deref().is_none_or(|fqdn| fqdn.eq_ignore_ascii_case(name))
                };
                records.into_iter().find(ours).map_or(Lookup::Absent, Lookup::Found)
            }
            // Without the domain there is no record: MAAS does not let go of a domain that has any.
            Err(error) if matches!(error.kind(), ErrorKind::UnknownReference | ErrorKind::NotFound) => Lookup::Absent,
            Err(error) => Lookup::Unknown(self.failed(&error)),
        }
    }

    /// The first name that nobody has. The same object tries the same names again, so that a crash leads to the same one.
    async fn free_name(&self, cluster: &str, uid: &str, domain: &str) -> Lookup<String> {
        for attempt in 0..NAMES_TRIED {
            let name = endpoint::candidate(cluster, &digits(uid, attempt), domain);
            match self.record(&name).await {
                Lookup::Absent => return Lookup::Found(name),
                Lookup::Found(_) => {}
                Lookup::Unknown(why) => return Lookup::Unknown(why),
            }
        }
        Lookup::Absent
    }

    async fn holders(&self, address: IpAddr) -> Result<Vec<maas_client::IpAddress>, Error> {
        let filter = IpAddressFilter { ip: Some(address), all: true, owner: None };
        self.identity.client.ip_addresses().list(&filter).await
    }

    async fn is_reserved_for_us(&self, address: IpAddr) -> Lookup<()> {
        match self.holders(address).await {
            Ok(holders) => {
                let ours = |holder: &maas_client::IpAddress| {
                    let owner = holder.owner.as_ref().map(|owner| owner.username.as_str());
                    holder.alloc_type == Some(USER_RESERVED)
                        && owner == Some(self.identity.user())
                        && holder.interface_set.is_empty()
                };
                if holders.iter().any(ours) { Lookup::Found(()) } else { Lookup::Absent }
            }
            Err(error) => Lookup::Unknown(self.failed(&error)),
        }
    }

    /// Whether a machine of the cluster, with our mark on it, is seen with these eyes (S5, S7).
    async fn sees_one_of(&self, object: &MaasCluster, machines: &[Arc<MaasMachine>]) -> bool {
        let owed = debts(object.metadata.annotations.as_ref()).unwrap_or_default();
        let owed = owed.into_iter().map(|debt| (Some(debt.machine), debt.key));
        let journals = machines.iter().filter_map(|machine| {
            let journal = MachineRecord::read(machine.metadata.annotations.as_ref()).ok().flatten()?;
            let tells = journal.may_hold_something() && !journal.is_anothers(&machine.metadata);
            tells.then_some((journal.machine, journal.key))
        });
        let recorded = object.annotations().get(IDENTITY_ANNOTATION).and_then(|name| Name::parts(name));
        // Anybody may allocate under any key; only the user that we were is no stranger.
        let is_former_users =
            |machine: &maas_client::Machine| recorded.is_some_and(|(_, user)| machine.owner.as_deref() == Some(user));
        for (id, key) in owed.chain(journals).take(MACHINES_TRIED) {
            if let Some(id) = &id {
                let Ok(machine) = self.identity.machines.read(id).await else { continue };
                if machine.workload_annotations.get(STAMP) == Some(&key) {
                    return true;
                }
            }
            let by_key = self.identity.client.machines().list(&MachineFilter::agent_name(&key)).await;
            let is_it = |machine: &maas_client::Machine| match &id {
                Some(id) => machine.system_id == *id,
                None => is_former_users(machine),
            };
            if by_key.is_ok_and(|found| found.iter().any(is_it)) {
                return true;
            }
        }
        false
    }

    async fn zones(&self, which: Zones) -> Lookup<BTreeSet<String>> {
        let (memory, now) = (&self.context.memory, self.context.clock.now());
        if let Some(zones) = memory.zones(self.identity.fingerprint, which, now) {
            return Lookup::Found(zones);
        }
        let found: Result<BTreeSet<String>, Error> = match which {
            Zones::All => {
                let zones = self.identity.client.zones().list().await;
                zones.map(|zones| zones.into_iter().map(|zone| zone.name).collect())
            }
            Zones::Usable => {
                let filter = MachineFilter { statuses: USABLE.to_vec(), ..MachineFilter::default() };
                let machines = self.identity.client.machines().list(&filter).await;
                machines.map(|machines| machines.into_iter().filter_map(|machine| Some(machine.zone?.name)).collect())
            }
        };
        match found {
            Ok(zones) => {
                memory.keep_zones(self.identity.fingerprint, which, zones.clone(), now);
                Lookup::Found(zones)
            }
            Err(error) => Lookup::Unknown(self.failed(&error)),
        }
    }
}

/// States of machines that are, or will be again, of use to a cluster.
const USABLE: [MachineStatus; 6] = [
    MachineStatus::Ready,
    MachineStatus::Allocated,
    MachineStatus::Deploying,
    MachineStatus::Deployed,
    MachineStatus::Releasing,
    MachineStatus::DiskErasing,
];

fn digits(uid: &str, attempt: u32) -> String {
    let digest = Sha256::digest(format!("{uid}/{attempt}"));
    digest.iter().take(3).fold(String::new(), |mut text, byte| {
        // Writing to a String does not fail.
        let _ = write!(text, "{byte:02x}");
        text
    })
}
