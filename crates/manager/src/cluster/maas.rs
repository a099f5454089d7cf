//! The reads from MAAS: the DNS record, a free name, addresses, zones, and a machine by which a changed identity proves
//! itself.

use std::collections::{BTreeMap, BTreeSet};
use std::net::IpAddr;
use std::sync::Arc;

use capmaas_api::{MaasCluster, MaasMachine, ProviderId};
use capmaas_core::Lookup;
use capmaas_core::cluster::dns::is_due;
use capmaas_core::cluster::observed::{Observed, Record, Reserved};
use capmaas_core::cluster::proof::may_be_own;
use capmaas_core::cluster::{addresses, endpoint};
use capmaas_core::credentials::{IDENTITY_ANNOTATION, Name, Standing};
use capmaas_core::machine::{Journal as MachineJournal, STAMP, debts};
use jiff::Timestamp;
use kube::ResourceExt as _;
use maas_client::{DnsFilter, DnsResource, Error, IpAddressFilter, MachineFilter, MachineStatus};
use sha2::{Digest as _, Sha256};

use super::memory::Zones;
use super::observe::{self, owner_or_nobody};
use super::{Context, stamps};
use crate::identity::Identity;
use crate::kubernetes::Key;

/// How many names are tried before a person has to intervene.
const NAMES_TRIED: u32 = 5;
/// How many machines are looked up to prove that a changed identity can see the cluster's machines.
const MACHINES_TRIED: usize = 5;
/// MAAS's `alloc_type` of an address that a user reserved.
const USER_RESERVED: i64 = 4;

/// Reads everything from MAAS that the decision needs. Returns whether the record came from the cache.
pub(super) async fn observe(
    (context, key, identity): (&Context, &Key, &Identity),
    (object, claims): (&MaasCluster, &stamps::Claims<'_>),
    observed: &mut Observed,
    how: observe::Access,
) -> bool {
    let machines = claims.machines;
    let access = Access { context, identity };
    let owner = owner_or_nobody(&observed.owner);
    let mut remembered = None;
    if let Some(name) = endpoint::name(&observed.object, &owner) {
        remembered = access.remembered(&name, observed).filter(|_| how == observe::Access::MayRemember);
        let found = match &remembered {
            Some(record) => Lookup::Found(record.clone()),
            None => access.record(&name).await,
        };
        observed.record = match &found {
            Lookup::Found(record) => Lookup::Found(facts_of(record)),
            Lookup::Absent => Lookup::Absent,
            Lookup::Unknown(why) => Lookup::Unknown(why.clone()),
        };
        if let Lookup::Found(record) = &found {
            bound_to_leaving(record, machines, observed);
        }
        stamps::observe((context, key, identity), claims, observed, remembered.is_some()).await;
        if remembered.is_none() {
            let since = object.metadata.creation_timestamp.as_ref().map(|time| time.0);
            observe_addresses(&access, observed, since).await;
        }
    } else if endpoint::needs_name(&observed.object, &owner)
        && !observed.object.deleting
        && endpoint::not_a_domain(&observed.object.spec.dns_domain).is_none()
    {
        let uid = object.uid().unwrap_or_default();
        let found = access.own_name(&owner.name, &uid, observed).await;
        if let Lookup::Found((_, Some(record))) = &found {
            observed.record = Lookup::Found(record.clone());
        }
        observed.candidate = found.map(|(name, _)| name);
    }
    if matches!(identity.standing, Standing::Changed { .. }) {
        observed.sees_a_machine = access.sees_one_of(object, machines).await;
    }
    if observed.object.deleting {
        return remembered.is_some();
    }
    let spec = &observed.object.spec;
    if !spec.failure_domains.is_empty() {
        observed.zones = Some(access.zones(Zones::All).await);
    } else if spec.discover_failure_domains == Some(true) {
        observed.usable_zones = Some(access.zones(Zones::Usable).await);
    }
    remembered.is_some()
}

fn facts_of(record: &DnsResource) -> Record {
    let entries = record.ip_addresses.as_deref().unwrap_or_default();
    let parsed = |entry: &maas_client::IpAddress| entry.ip.as_deref().and_then(|ip| ip.parse::<IpAddr>().ok());
    let holders = |entry: &maas_client::IpAddress| -> BTreeSet<String> {
        entry.interface_set.iter().filter_map(|holder| holder.system_id.clone()).collect()
    };
    let mut bound: BTreeMap<IpAddr, BTreeSet<String>> = BTreeMap::new();
    for entry in entries.iter().filter(|entry| !entry.interface_set.is_empty()) {
        let Some(address) = parsed(entry) else { continue };
        bound.entry(address).or_default().extend(holders(entry));
    }
    Record {
        bound,
        anothers: BTreeSet::new(),
        id: record.id,
        addresses: entries.iter().filter_map(parsed).collect(),
        dangling: entries.iter().filter(|entry| parsed(entry).is_none()).map(holders).collect(),
    }
}

/// A machine that is being deleted must be removed from the record even if its status, which lists its addresses, was
/// lost. MAAS shows which machine holds each address of the record.
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

/// The MAAS machine that an object refers to, unless the object is a copy (S25).
pub(super) fn system_id(machine: &MaasMachine) -> Option<String> {
    let journal = MachineJournal::read(machine.metadata.annotations.as_ref()).ok().flatten();
    if journal.is_some_and(|journal| journal.is_anothers(&machine.metadata)) {
        return None;
    }
    let provider_id = machine.spec.provider_id().and_then(|id| id.parse::<ProviderId>().ok());
    provider_id.and_then(|id| id.system_id().map(str::to_owned))
}

async fn observe_addresses(access: &Access<'_>, observed: &mut Observed, since: Option<Timestamp>) {
    let current = match &observed.record {
        Lookup::Found(record) => record.addresses.clone(),
        Lookup::Absent => BTreeSet::new(),
        Lookup::Unknown(_) => return,
    };
    let wanted = addresses::published(observed).wanted.given(&current);
    for address in wanted.difference(&current) {
        // If MAAS does not answer, the address is not considered ours to give back.
        if access.holders(*address).await.is_ok_and(|holders| holders.is_empty()) {
            observed.unknown_to_maas.insert(*address);
        }
    }
    let owed = observed.object.journal.owed.iter().filter(|address| is_due(observed, &current, address));
    let owed: Vec<IpAddr> = owed.copied().collect();
    // One list for all of them, and none if MAAS holds nothing for us.
    let mut records = None;
    for address in owed {
        let reserved = match access.is_reserved_for_us(address, since).await {
            Lookup::Found(at) => {
                if records.is_none() {
                    records = Some(access.in_records().await);
                }
                match &records {
                    Some(Lookup::Found(taken)) if taken.contains(&address) => Lookup::Absent,
                    Some(Lookup::Unknown(why)) => Lookup::Unknown(why.clone()),
                    _ => Lookup::Found(at),
                }
            }
            none => none,
        };
        observed.reserved.insert(address, reserved);
    }
}

/// Reads MAAS as one identity.
struct Access<'a> {
    context: &'a Context,
    identity: &'a Identity,
}

impl Access<'_> {
    /// The message for a failed request. A key that MAAS refused is tried again before its next use.
    fn failed(&self, error: &Error) -> String {
        if error.is_unauthenticated() {
            self.context.identities.doubt(self.identity);
        }
        error.to_string()
    }

    async fn record(&self, name: &str) -> Lookup<DnsResource> {
        match self.identity.dns_names.read(name, self.context.clock.now()).await {
            Ok(found) => found.map_or(Lookup::Absent, Lookup::Found),
            Err(error) => Lookup::Unknown(self.failed(&error)),
        }
    }

    /// The record from the cache. Not used where a decision depends on it: addresses that are to be given back, the
    /// deletion of the cluster, and an identity that has yet to prove that it sees one of our machines.
    fn remembered(&self, name: &str, observed: &Observed) -> Option<DnsResource> {
        let ends = observed.object.deleting && !matches!(&observed.machines, Lookup::Found(left) if !left.is_empty());
        let proves = matches!(self.identity.standing, Standing::Changed { .. });
        if ends || proves || !observed.object.journal.owed.is_empty() {
            return None;
        }
        self.identity.dns_names.remembered(name, self.context.clock.now())
    }

    /// The first name that nobody else uses. The same object always tries the same names in the same order, so it
    /// arrives at the same name after a crash, or after somebody deleted its annotations.
    async fn own_name(&self, cluster: &str, uid: &str, observed: &Observed) -> Lookup<(String, Option<Record>)> {
        for attempt in 0..NAMES_TRIED {
            let name = endpoint::candidate(cluster, &digits(uid, attempt), &observed.object.spec.dns_domain);
            match self.record(&name).await {
                Lookup::Absent => return Lookup::Found((name, None)),
                Lookup::Found(record) => {
                    let record = facts_of(&record);
                    if may_be_own(observed, &record) {
                        return Lookup::Found((name, Some(record)));
                    }
                }
                Lookup::Unknown(why) => return Lookup::Unknown(why),
            }
        }
        Lookup::Absent
    }

    async fn holders(&self, address: IpAddr) -> Result<Vec<maas_client::IpAddress>, Error> {
        let filter = IpAddressFilter { ip: Some(address), all: true, owner: None };
        self.identity.client.ip_addresses().list(&filter).await
    }

    /// Whether MAAS may have reserved the address because a record of this cluster contained it: it is reserved for our
    /// user, for no machine, and not before the object was created. Nor may a record contain it now. An annotation
    /// alone would let its writer free an address that people reserved long before, or one of somebody else's record, which
    /// MAAS would remove from it.
    async fn is_reserved_for_us(&self, address: IpAddr, since: Option<Timestamp>) -> Lookup<Reserved> {
        match self.holders(address).await {
            Ok(holders) => {
                let ours = |holder: &maas_client::IpAddress| {
                    let owner = holder.owner.as_ref().map(|owner| owner.username.as_str());
                    holder.alloc_type == Some(USER_RESERVED)
                        && owner == Some(self.identity.user())
                        && holder.interface_set.is_empty()
                };
                // A time that cannot be read proves nothing.
                let is_recent = |holder: &maas_client::IpAddress| {
                    since.zip(reserved_at(holder)).is_some_and(|(since, at)| at >= since)
                };
                let mut ours = holders.iter().filter(|holder| ours(holder)).peekable();
                match (ours.peek().is_some(), ours.any(is_recent)) {
                    (false, _) => Lookup::Absent,
                    (true, true) => Lookup::Found(Reserved::ForUs),
                    (true, false) => Lookup::Found(Reserved::Before),
                }
            }
            Err(error) => Lookup::Unknown(self.failed(&error)),
        }
    }

    /// The addresses of all records.
    async fn in_records(&self) -> Lookup<BTreeSet<IpAddr>> {
        match self.identity.client.dns_resources().list(&DnsFilter::default()).await {
            Ok(records) => Lookup::Found(records.iter().flat_map(|record| facts_of(record).addresses).collect()),
            Err(error) => Lookup::Unknown(self.failed(&error)),
        }
    }

    /// Whether this identity sees a machine of the cluster that carries our stamp (S5, S7).
    async fn sees_one_of(&self, object: &MaasCluster, machines: &[Arc<MaasMachine>]) -> bool {
        let owed = debts(object.metadata.annotations.as_ref()).unwrap_or_default();
        let owed = owed.into_iter().map(|debt| (Some(debt.machine), debt.key));
        let journals = machines.iter().filter_map(|machine| {
            let journal = MachineJournal::read(machine.metadata.annotations.as_ref()).ok().flatten()?;
            let tells = journal.may_hold_something() && !journal.is_anothers(&machine.metadata);
            tells.then(|| (journal.machine().cloned(), journal.key))
        });
        let recorded = object.annotations().get(IDENTITY_ANNOTATION).and_then(|name| Name::parts(name));
        // Anybody may allocate under any key, so without an ID only a machine of the recorded user counts.
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

/// States of machines that a cluster can use, now or later.
const USABLE: [MachineStatus; 6] = [
    MachineStatus::Ready,
    MachineStatus::Allocated,
    MachineStatus::Deploying,
    MachineStatus::Deployed,
    MachineStatus::Releasing,
    MachineStatus::DiskErasing,
];

/// When MAAS stored an address, in UTC; before MAAS 3.5 the time has no zone.
fn reserved_at(address: &maas_client::IpAddress) -> Option<Timestamp> {
    let created = address.created.as_deref()?;
    created.parse().ok().or_else(|| {
        let time: jiff::civil::DateTime = created.parse().ok()?;
        time.to_zoned(jiff::tz::TimeZone::UTC).ok().map(|time| time.timestamp())
    })
}

/// Whether a name was generated for the object with this UID.
pub(super) fn is_made_from(uid: &str, name: &str) -> bool {
    let label = name.split('.').next().unwrap_or_default();
    let suffix = label.rsplit_once('-').map(|(_, suffix)| suffix);
    !uid.is_empty() && (0..NAMES_TRIED).any(|attempt| suffix == Some(digits(uid, attempt).as_str()))
}

fn digits(uid: &str, attempt: u32) -> String {
    let digest = Sha256::digest(format!("{uid}/{attempt}"));
    digest.iter().take(3).fold(String::new(), |text, byte| format!("{text}{byte:02x}"))
}
