//! LXD hosts as MAAS shows them, and what is promised on them.
//!
//! MAAS takes 37 ms for each host in a list, so one list is shared by all passes of a few seconds; the host that was chosen
//! is read once more right before a VM is made on it.
//!
//! **Who keeps two VMs from the same room.** Within this manager the [`ledger`]: a choice counts from the moment it is made,
//! also while the watch has not told about the record that holds it, and until figures of MAAS that are younger than the VM
//! show it. Between managers that do not see each other's objects (two namespaces, one MAAS) it is MAAS itself: both may
//! choose the same host, but MAAS checks the over-commit ratios of cores and memory, and the room in the storage pool, when
//! it composes; the second one is refused, and chooses again from a fresh list. A claim in MAAS, such as a tag on the VM
//! host, would cost two more writes for each VM and be no safer: MAAS has no conditional write, so two managers could set
//! theirs at the same time. Spreading needs no such care, since siblings are always in one namespace.

mod convert;
mod ledger;
mod reports;

use std::collections::{BTreeMap, BTreeSet};
use std::sync::{Arc, Mutex, PoisonError};

use capmaas_api::MaasMachine;
use capmaas_core::Lookup;
use capmaas_core::intent::{Attach, Vm};
use capmaas_core::machine::STAMP;
use capmaas_core::placement::{Claim, Demand, Host, Placement, Sibling, is_wanted, place};
use jiff::{SignedDuration, Timestamp};
use maas_client::{Machine, Subnet, VmHost};

pub use reports::{Report, Reports};

use crate::clock::is_recent;
use crate::coalesced_reads::CoalescedReads;
use crate::identity::{Fingerprint, Identity};
use crate::machine_index::MachineIndex;
use crate::vm_claims::Seen;
use ledger::{Ledger, Moment};

/// How long a list of hosts serves all passes.
const SHARED: SignedDuration = SignedDuration::from_secs(5);
/// How long the project of a host is taken for known: nobody changes it without registering the host anew.
const PROJECT_KEPT: SignedDuration = SignedDuration::from_mins(5);

/// What of hosts has to be asked for besides, because somebody wants a VM that depends on it.
#[derive(Clone, Copy, Debug, Default)]
pub struct Details {
    pub networks: bool,
    /// Their LXD projects.
    pub projects: bool,
}

impl Details {
    /// What placing a VM needs to know.
    pub fn of(vm: &Vm) -> Self {
        let networks = vm.nics.iter().any(|nic| nic.to != Attach::Boot) || vm.nics.len() > 1;
        Self { networks, projects: vm.project.is_some() }
    }

    /// What either needs to know.
    #[must_use]
    pub fn and(self, other: Self) -> Self {
        Self { networks: self.networks || other.networks, projects: self.projects || other.projects }
    }
}

/// The hosts of a MAAS.
#[derive(Clone, Debug)]
pub struct Survey {
    /// As MAAS shows them.
    pub hosts: Vec<Host>,
    /// What is promised and not in MAAS's figures yet.
    pub claims: Vec<Claim>,
    /// By system ID: the key that is stamped on the machine (S7).
    pub stamps: BTreeMap<String, String>,
}

/// Where the siblings of an object's VM are.
pub fn siblings(object: &MaasMachine, machine_index: &MachineIndex) -> Vec<Sibling> {
    machine_index.vms_of_others(object.metadata.uid.as_deref(), |others| ledger::siblings(object, others))
}

/// A list and when it was asked for.
#[derive(Clone, Debug)]
struct Listed {
    at: Timestamp,
    asked: Moment,
    hosts: Arc<Vec<VmHost>>,
    machines: Arc<BTreeMap<String, Machine>>,
}

type Shared = Arc<tokio::sync::Mutex<Option<Listed>>>;
/// By identity and number of the host: when it was read, and the project.
type Projects = BTreeMap<(Fingerprint, i64), (Timestamp, String)>;

/// The LXD hosts of all identities. Cheap to clone; clones share everything.
#[derive(Clone, Debug, Default)]
pub struct LxdHosts {
    lists: Arc<Mutex<BTreeMap<Fingerprint, Shared>>>,
    /// Only the name of the project is kept of what MAAS answers: the rest holds a private key (S21).
    projects: Arc<Mutex<Projects>>,
    ledger: Arc<Mutex<Ledger>>,
    now: CoalescedReads<Fingerprint, Arc<Vec<VmHost>>, maas_client::Error>,
    /// By MAAS: system IDs of hosts that a roll-out is going to replace. May be forgotten: it is a preference.
    departing: Arc<Mutex<BTreeMap<String, BTreeSet<String>>>>,
    /// What agents on the hosts report.
    pub reports: Reports,
}

impl LxdHosts {
    /// All VM hosts as MAAS has them now, of whatever kind. Those who ask at the same time share an answer that was given after the
    /// last of them asked.
    pub(crate) async fn now(&self, identity: &Identity) -> Result<Arc<Vec<VmHost>>, Arc<maas_client::Error>> {
        let list = async { identity.client.vm_hosts().list().await.map(Arc::new) };
        self.now.read(&identity.fingerprint, list).await
    }

    /// Chooses a host for the VM of an object and remembers the choice, in one go: nobody chooses in between.
    pub async fn place(
        &self,
        identity: &Identity,
        now: Timestamp,
        demand: &Demand<'_>,
        object: &MaasMachine,
        machine_index: &MachineIndex,
    ) -> Lookup<Placement> {
        let uid = object.metadata.uid.as_deref();
        // Before MAAS is asked: what is there by now is in its answer.
        {
            let mut ledger = self.ledger();
            machine_index.vms_of_others(uid, |others| ledger.look(others));
        }
        let mut placement = self.choose(identity, now, demand, object, machine_index).await;
        if let Ok((Placement { choice: Err(_), .. }, asked)) = &placement
            && self.ledger().has_news_since(*asked)
        {
            // VMs that came since that list count twice, as promised and perhaps in the list. A new one tells.
            self.forget(identity).await;
            placement = self.choose(identity, now, demand, object, machine_index).await;
        }
        placement.map_or_else(|error| Lookup::Unknown(error.to_string()), |(placement, _)| Lookup::Found(placement))
    }

    /// Chooses by the list in hand, or a new one; answers when that was asked for.
    async fn choose(
        &self,
        identity: &Identity,
        now: Timestamp,
        demand: &Demand<'_>,
        object: &MaasMachine,
        machine_index: &MachineIndex,
    ) -> maas_client::Result<(Placement, Moment)> {
        let Details { networks, projects } = Details::of(demand.vm);
        let (asked, hosts) = self.hosts(identity, now, networks, |host| projects && is_wanted(demand, host)).await?;
        let (uid, maas) = (object.metadata.uid.as_deref(), identity.endpoint());
        let mut ledger = self.ledger();
        let promised = |others: &mut dyn Iterator<Item = &Seen>| ledger.promised((maas, asked), object, others, now);
        let (claims, siblings) = machine_index.vms_of_others(uid, promised);
        let placement = place(demand, &hosts, &claims, &siblings);
        if let Ok(choice) = &placement.choice {
            ledger.note(maas, object, demand.vm, choice, now);
        }
        Ok((placement, asked))
    }

    fn ledger(&self) -> std::sync::MutexGuard<'_, Ledger> {
        self.ledger.lock().unwrap_or_else(PoisonError::into_inner)
    }

    /// All hosts as MAAS shows them, what is promised on them besides, and by system ID the key that is stamped on the machine under
    /// each. Nothing is chosen.
    pub async fn survey(
        &self,
        identity: &Identity,
        now: Timestamp,
        machine_index: &MachineIndex,
        Details { networks, projects }: Details,
    ) -> maas_client::Result<Survey> {
        let (asked, hosts) = self.hosts(identity, now, networks, |_| projects).await?;
        let listed = self.listed(identity, now).await?;
        let stamp = |machine: &Machine| machine.workload_annotations.get(STAMP).cloned();
        let stamps = listed.machines.iter().filter_map(|(id, machine)| Some((id.clone(), stamp(machine)?))).collect();
        let (nobody, maas, mut ledger) = (MaasMachine::default(), identity.endpoint(), self.ledger());
        let promised = |others: &mut dyn Iterator<Item = &Seen>| ledger.promised((maas, asked), &nobody, others, now);
        let (claims, _) = machine_index.vms_of_others(None, promised);
        Ok(Survey { hosts, claims, stamps })
    }

    /// From now on just these machines of a MAAS are hosts that a roll-out is going to replace.
    pub fn note_departing(&self, identity: &Identity, system_ids: BTreeSet<String>) {
        let mut departing = self.departing.lock().unwrap_or_else(PoisonError::into_inner);
        departing.insert(identity.endpoint().to_owned(), system_ids);
    }

    fn is_departing(&self, identity: &Identity, system_id: Option<&str>) -> bool {
        let departing = self.departing.lock().unwrap_or_else(PoisonError::into_inner);
        let of_maas = departing.get(identity.endpoint());
        of_maas.is_some_and(|ids| system_id.is_some_and(|id| ids.contains(id)))
    }

    /// All hosts, and when MAAS was asked for them.
    async fn hosts(
        &self,
        identity: &Identity,
        now: Timestamp,
        networks: bool,
        of_project: impl Fn(&Host) -> bool,
    ) -> maas_client::Result<(Moment, Vec<Host>)> {
        let listed = self.listed(identity, now).await?;
        let subnets: Vec<Subnet> = if networks { identity.client.subnets().list().await? } else { Vec::new() };
        let mut hosts = Vec::with_capacity(listed.hosts.len());
        for host in listed.hosts.iter() {
            let machine = host.host.as_ref().and_then(|machine| listed.machines.get(&machine.system_id));
            let mut converted = convert::host(host, machine, &subnets);
            let report = converted.system_id.as_deref().and_then(|id| self.reports.of(identity, id, now));
            converted.profiles = report.and_then(|report| report.profiles);
            converted.departing = self.is_departing(identity, converted.system_id.as_deref());
            if of_project(&converted) {
                converted.project = self.project(identity, host.id, now).await;
            }
            hosts.push(converted);
        }
        Ok((listed.asked, hosts))
    }

    /// The list, asked for by one pass for all that want it now.
    async fn listed(&self, identity: &Identity, now: Timestamp) -> maas_client::Result<Listed> {
        let shared = {
            let mut lists = self.lists.lock().unwrap_or_else(PoisonError::into_inner);
            Arc::clone(lists.entry(identity.fingerprint).or_default())
        };
        let mut list = shared.lock().await;
        if let Some(listed) = list.as_ref().filter(|listed| is_recent(listed.at, SHARED, now)) {
            return Ok(listed.clone());
        }
        let asked = self.ledger().moment();
        let hosts = identity.client.vm_hosts().list().await?;
        let hosts: Vec<VmHost> = hosts.into_iter().filter(|host| host.kind.as_deref() == Some("lxd")).collect();
        let of = |host: &VmHost| host.host.as_ref().map(|machine| machine.system_id.clone());
        let ids: Vec<String> = hosts.iter().filter_map(of).filter(|id| !id.is_empty()).collect();
        let ids: Vec<&str> = ids.iter().map(String::as_str).collect();
        let machines = identity.client.machines().by_ids(&ids).await?;
        let machines = machines.into_iter().map(|machine| (machine.system_id.clone(), machine)).collect();
        let listed = Listed { at: now, asked, hosts: Arc::new(hosts), machines: Arc::new(machines) };
        *list = Some(listed.clone());
        Ok(listed)
    }

    /// Forgets the list of an identity: MAAS has just said something that it does not show.
    pub async fn forget(&self, identity: &Identity) {
        let shared = {
            let lists = self.lists.lock().unwrap_or_else(PoisonError::into_inner);
            lists.get(&identity.fingerprint).cloned()
        };
        if let Some(shared) = shared {
            *shared.lock().await = None;
        }
    }

    async fn project(&self, identity: &Identity, host: i64, now: Timestamp) -> Lookup<String> {
        let key = (identity.fingerprint, host);
        {
            let known = self.projects.lock().unwrap_or_else(PoisonError::into_inner);
            if let Some((at, project)) = known.get(&key)
                && is_recent(*at, PROJECT_KEPT, now)
            {
                return Lookup::Found(project.clone());
            }
        }
        let project = match identity.client.vm_hosts().parameters(host).await {
            Ok(parameters) => parameters.project,
            Err(error) => return Lookup::Unknown(error.to_string()),
        };
        let Some(project) = project.filter(|project| !project.is_empty()) else { return Lookup::Absent };
        let mut known = self.projects.lock().unwrap_or_else(PoisonError::into_inner);
        known.retain(|_, (at, _)| is_recent(*at, PROJECT_KEPT, now));
        known.insert(key, (now, project.clone()));
        Lookup::Found(project)
    }
}
