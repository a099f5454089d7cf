//! LXD hosts as MAAS shows them, and what is claimed on them.
//!
//! MAAS takes 37 ms for each host in a list, so all passes within a few seconds share one list; the chosen host is read
//! again right before a VM is composed on it.
//!
//! **What keeps two VMs from claiming the same capacity.** Within this manager it is the [`ledger`]: a choice counts
//! from the moment it is made, even while the watch has not delivered the journal that holds it, and until figures from
//! MAAS that are newer than the VM include it. Between managers that do not see each other's objects (two namespaces,
//! one MAAS) it is MAAS itself: both may choose the same host, but MAAS checks the over-commit ratios of cores and
//! memory, and the free space of the storage pool, when it composes; the second request is refused, and its manager
//! chooses again from a fresh list. A claim in MAAS, such as a tag on the VM host, would cost two more writes per VM
//! and be no safer: MAAS has no conditional write, so two managers could set theirs at the same time. Spreading needs
//! no such care, since siblings are always in one namespace.

mod convert;
mod departing;
mod ledger;
mod reports;

use std::collections::{BTreeMap, BTreeSet};
use std::sync::{Arc, Mutex, PoisonError};

use capmaas_api::MaasMachine;
use capmaas_core::Lookup;
use capmaas_core::intent::{Attach, Vm};
use capmaas_core::placement::{Claim, Demand, Host, Placement, Sibling, is_wanted, place};
use jiff::{SignedDuration, Timestamp};
use maas_client::{Machine, Subnet, VmHost};

pub(crate) use departing::machine_of;
pub use reports::{Report, Reports};

use crate::clock::is_recent;
use crate::coalesced_reads::CoalescedReads;
use crate::identity::{Fingerprint, Identity};
use crate::kubernetes::Kubernetes;
use crate::machine_index::MachineIndex;
use crate::stamp::Stamp;
use crate::vm_claims::Seen;
use ledger::{Ledger, Moment};

/// How long a list of hosts is shared by all passes.
const SHARED: SignedDuration = SignedDuration::from_secs(5);
/// How long the project of a host is cached: it does not change unless the host is registered again.
const PROJECT_KEPT: SignedDuration = SignedDuration::from_mins(5);

/// Details of hosts that have to be read in addition, because a VM depends on them.
#[derive(Clone, Copy, Debug, Default)]
pub struct Details {
    pub networks: bool,
    pub projects: bool,
}

impl Details {
    /// The details that placing a VM needs.
    pub fn of(vm: &Vm) -> Self {
        let networks = vm.nics.iter().any(|nic| nic.to != Attach::Boot) || vm.nics.len() > 1;
        Self { networks, projects: vm.project.is_some() }
    }

    /// The details that either needs.
    #[must_use]
    pub fn and(self, other: Self) -> Self {
        Self { networks: self.networks || other.networks, projects: self.projects || other.projects }
    }
}

/// The objects of this manager, from the watches.
#[derive(Clone, Copy, Debug)]
pub struct Objects<'a> {
    pub kubernetes: &'a dyn Kubernetes,
    /// What they claim.
    pub index: &'a MachineIndex,
}

#[derive(Clone, Debug)]
pub struct Survey {
    pub hosts: Vec<Host>,
    /// Claims that MAAS's figures do not include yet.
    pub claims: Vec<Claim>,
    /// By system ID: the stamp on the machine of each host (S7).
    pub stamps: BTreeMap<String, Stamp>,
}

/// Where the siblings of an object's VM are.
pub fn siblings(object: &MaasMachine, machine_index: &MachineIndex) -> Vec<Sibling> {
    machine_index.vms_of_others(object.metadata.uid.as_deref(), |others| ledger::siblings(object, others))
}

/// A list and when it was requested.
#[derive(Clone, Debug)]
struct Listed {
    at: Timestamp,
    asked: Moment,
    hosts: Arc<Vec<VmHost>>,
    machines: Arc<BTreeMap<String, Machine>>,
    /// System IDs of hosts that are going to leave.
    departing: Arc<BTreeSet<String>>,
}

type Shared = Arc<tokio::sync::Mutex<Option<Listed>>>;
/// By identity and ID of the host: when it was read, and the project.
type Projects = BTreeMap<(Fingerprint, i64), (Timestamp, String)>;

/// The LXD hosts of all identities. Clones share the state.
#[derive(Clone, Debug, Default)]
pub struct LxdHosts {
    lists: Arc<Mutex<BTreeMap<Fingerprint, Shared>>>,
    /// Of MAAS's answer only the name of the project is kept: the rest contains a private key (S21).
    projects: Arc<Mutex<Projects>>,
    ledger: Arc<Mutex<Ledger>>,
    now: CoalescedReads<Fingerprint, Arc<Vec<VmHost>>, maas_client::Error>,
    /// What agents on the hosts report.
    pub reports: Reports,
}

impl LxdHosts {
    /// All VM hosts of any kind as MAAS has them now. Concurrent callers share an answer that was given after the last
    /// of them asked.
    pub(crate) async fn now(&self, identity: &Identity) -> Result<Arc<Vec<VmHost>>, Arc<maas_client::Error>> {
        let list = async { identity.client.vm_hosts().list().await.map(Arc::new) };
        self.now.read(&identity.fingerprint, list).await
    }

    /// Chooses a host for the VM of an object and records the choice atomically.
    pub async fn place(
        &self,
        identity: &Identity,
        now: Timestamp,
        demand: &Demand<'_>,
        object: &MaasMachine,
        objects: Objects<'_>,
    ) -> Lookup<Placement> {
        let uid = object.metadata.uid.as_deref();
        // Before the request to MAAS: VMs that exist by now are in its answer.
        {
            let mut ledger = self.ledger();
            objects.index.vms_of_others(uid, |others| ledger.note_created(others));
        }
        let mut placement = self.choose(identity, now, demand, object, objects).await;
        if let Ok((Placement { choice: Err(_), .. }, asked)) = &placement
            && self.ledger().has_news_since(*asked)
        {
            // VMs created since that list count twice, as a claim and perhaps in the list. A new list resolves that.
            self.forget(identity).await;
            placement = self.choose(identity, now, demand, object, objects).await;
        }
        placement.map_or_else(|error| Lookup::Unknown(error.to_string()), |(placement, _)| Lookup::Found(placement))
    }

    /// Chooses from the current list, or a new one; returns when that was requested.
    async fn choose(
        &self,
        identity: &Identity,
        now: Timestamp,
        demand: &Demand<'_>,
        object: &MaasMachine,
        objects: Objects<'_>,
    ) -> maas_client::Result<(Placement, Moment)> {
        let Details { networks, projects } = Details::of(demand.vm);
        let listed = self.listed(identity, now, objects).await?;
        let hosts = self.hosts(identity, now, &listed, networks, |host| projects && is_wanted(demand, host)).await?;
        let asked = listed.asked;
        let (uid, maas) = (object.metadata.uid.as_deref(), identity.endpoint());
        let mut ledger = self.ledger();
        let promised = |others: &mut dyn Iterator<Item = &Seen>| ledger.promised((maas, asked), object, others, now);
        let (claims, siblings) = objects.index.vms_of_others(uid, promised);
        let placement = place(demand, &hosts, &claims, &siblings);
        if let Ok(choice) = &placement.choice {
            ledger.note(maas, object, demand.vm, choice, now);
        }
        Ok((placement, asked))
    }

    fn ledger(&self) -> std::sync::MutexGuard<'_, Ledger> {
        self.ledger.lock().unwrap_or_else(PoisonError::into_inner)
    }

    /// All hosts as MAAS shows them, the claims on them, and the stamps on their machines. Nothing is chosen.
    pub async fn survey(
        &self,
        identity: &Identity,
        now: Timestamp,
        objects: Objects<'_>,
        Details { networks, projects }: Details,
    ) -> maas_client::Result<Survey> {
        let listed = self.listed(identity, now, objects).await?;
        let hosts = self.hosts(identity, now, &listed, networks, |_| projects).await?;
        let stamps = listed.machines.iter().map(|(id, machine)| (id.clone(), Stamp::on(machine))).collect();
        let (nobody, maas, mut ledger) = (MaasMachine::default(), identity.endpoint(), self.ledger());
        let asked = (maas, listed.asked);
        let promised = |others: &mut dyn Iterator<Item = &Seen>| ledger.promised(asked, &nobody, others, now);
        let (claims, _) = objects.index.vms_of_others(None, promised);
        Ok(Survey { hosts, claims, stamps })
    }

    /// All hosts of a list.
    async fn hosts(
        &self,
        identity: &Identity,
        now: Timestamp,
        listed: &Listed,
        networks: bool,
        of_project: impl Fn(&Host) -> bool,
    ) -> maas_client::Result<Vec<Host>> {
        let subnets: Vec<Subnet> = if networks { identity.client.subnets().list().await? } else { Vec::new() };
        let mut hosts = Vec::with_capacity(listed.hosts.len());
        for host in listed.hosts.iter() {
            let machine = host.host.as_ref().and_then(|machine| listed.machines.get(&machine.system_id));
            let mut converted = convert::host(host, machine, &subnets);
            let report = converted.system_id.as_deref().and_then(|id| self.reports.of(identity, id, now));
            converted.profiles = report.and_then(|report| report.profiles);
            converted.departing = converted.system_id.as_ref().is_some_and(|id| listed.departing.contains(id));
            if of_project(&converted) {
                converted.project = self.project(identity, host.id, now).await;
            }
            hosts.push(converted);
        }
        Ok(hosts)
    }

    /// The list, requested by one pass for all that need it now.
    async fn listed(&self, identity: &Identity, now: Timestamp, objects: Objects<'_>) -> maas_client::Result<Listed> {
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
        let departing = Arc::new(departing::departing(objects, identity.endpoint(), &machines).await);
        let listed = Listed { at: now, asked, hosts: Arc::new(hosts), machines: Arc::new(machines), departing };
        *list = Some(listed.clone());
        Ok(listed)
    }

    /// Drops the list of an identity: MAAS has just reported something that it does not show.
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
