//! The addresses that the name of the API server resolves to (S18).

use std::collections::BTreeSet;
use std::net::IpAddr;

use super::network::Networks;
use super::observed::{Machine, Object, Observed};
use crate::Lookup;

/// MAAS's name for the state of a machine that runs its image.
const DEPLOYED: &str = "Deployed";

/// How the addresses of the record should change.
#[derive(Debug, Clone, PartialEq, Eq)]
pub enum Wanted {
    /// These and no others.
    Exactly(BTreeSet<IpAddr>),
    /// Not enough is known to remove addresses that cannot be explained: the others stay.
    Change {
        /// To be added.
        add: BTreeSet<IpAddr>,
        /// To be removed.
        remove: BTreeSet<IpAddr>,
    },
}

impl Wanted {
    /// The addresses that a record with the `current` ones should have.
    pub fn given(&self, current: &BTreeSet<IpAddr>) -> BTreeSet<IpAddr> {
        match self {
            Self::Exactly(addresses) => addresses.clone(),
            Self::Change { add, remove } => current.difference(remove).copied().chain(add.iter().copied()).collect(),
        }
    }
}

#[derive(Debug, Clone, PartialEq, Eq)]
pub struct Published {
    pub wanted: Wanted,
    /// A message for people, if there is anything to report.
    pub remark: Option<String>,
}

/// A control plane machine is published while it is Deployed, powered on and not being deleted. The health of its API server
/// never counts: `kubeadm init` would wait for itself. The last machines stay published while they leave as VM hosts: without the
/// name, their agents could not be asked what is on them, and the VM hosts could not be unregistered safely (S11).
pub fn published(observed: &Observed) -> Published {
    let unchanged = Wanted::Change { add: BTreeSet::new(), remove: BTreeSet::new() };
    let machines = match &observed.machines {
        Lookup::Found(machines) => machines,
        Lookup::Absent => return Published { wanted: unchanged, remark: None },
        Lookup::Unknown(why) => return Published { wanted: unchanged, remark: Some(why.clone()) },
    };
    let (networks, unsure) = preference(&observed.object, &observed.preferred);
    let (leaving, staying): (Vec<&Machine>, Vec<&Machine>) =
        machines.iter().filter(|machine| machine.control_plane).partition(|machine| machine.deleting);

    let up: Vec<&Machine> = staying.iter().copied().filter(|machine| is_up(machine)).collect();
    let add: BTreeSet<IpAddr> = match &unsure {
        Some(_) => BTreeSet::new(),
        None => up.iter().filter_map(|machine| chosen(&networks, &machine.addresses, observed)).collect(),
    };
    let (last, leaving): (Vec<&Machine>, Vec<&Machine>) =
        leaving.into_iter().partition(|machine| staying.is_empty() && machine.needs_the_name && is_up(machine));
    let kept = |address: &IpAddr| staying.iter().chain(&last).any(|machine| machine.addresses.contains(address));
    let remove: BTreeSet<IpAddr> =
        leaving.iter().flat_map(|machine| &machine.addresses).copied().filter(|address| !kept(address)).collect();

    // After a move every status is lost for a while: the address of a machine without status may rightly be in the record. So may
    // that of one that is up and has lost its address, or has none in the preferred subnets: the record keeps what it had.
    let unseen = staying.iter().any(|machine| machine.provisioned && machine.state.is_none())
        || up.iter().any(|machine| networks.best(&machine.addresses).is_none());
    let wanted = if !last.is_empty() {
        Wanted::Change { add: BTreeSet::new(), remove }
    } else if staying.is_empty() && (!leaving.is_empty() || observed.object.deleting) {
        Wanted::Exactly(BTreeSet::new())
    } else if add.is_empty() || unseen || unsure.is_some() {
        // Never emptied while there are machines: an API server behind a stale address is better than a name without any.
        Wanted::Change { add, remove }
    } else {
        Wanted::Exactly(add)
    };
    Published { wanted, remark: unsure.or_else(|| remark(&networks, &up)) }
}

/// The address that is published for a machine. Without preferred networks, an address that is published already stays, so that
/// the order in which MAAS lists them does not change the record; otherwise the first IPv4 address, otherwise the first one.
fn chosen(networks: &Networks, addresses: &[IpAddr], observed: &Observed) -> Option<IpAddr> {
    if !networks.is_empty() {
        return networks.best(addresses);
    }
    let published =
        |address: &&IpAddr| matches!(&observed.record, Lookup::Found(record) if record.addresses.contains(address));
    let stays = addresses.iter().find(published);
    stays.or_else(|| addresses.iter().find(|address| address.is_ipv4())).or(addresses.first()).copied()
}

/// Deployed and powered on.
pub fn is_up(machine: &Machine) -> bool {
    machine.state.as_deref() == Some(DEPLOYED) && machine.powered
}

/// The preferred networks: the spec's, otherwise the namespace's. The message states why they are not known.
fn preference(object: &Object, config: &Lookup<String>) -> (Networks, Option<String>) {
    let of_spec = Networks::parse(object.spec.preferred_subnets.iter().map(String::as_str));
    if !of_spec.is_empty() {
        return (of_spec, None);
    }
    match config {
        Lookup::Found(text) => (Networks::parse(text.split(',')), None),
        Lookup::Absent => (Networks::default(), None),
        Lookup::Unknown(why) => (Networks::default(), Some(why.clone())),
    }
}

fn remark(networks: &Networks, up: &[&Machine]) -> Option<String> {
    let named = |bare: bool| -> Vec<&str> {
        let unpublished =
            |machine: &&&Machine| machine.addresses.is_empty() == bare && networks.best(&machine.addresses).is_none();
        up.iter().filter(unpublished).map(|machine| machine.name.as_str()).collect()
    };
    let (bare, outside) = (named(true), named(false));
    let mut remarks = Vec::new();
    if !networks.unreadable.is_empty() {
        remarks.push(format!("these preferred subnets are not networks: {}", networks.unreadable.join(", ")));
    }
    if !outside.is_empty() {
        remarks.push(format!("not published, because no address is in a preferred subnet: {}", outside.join(", ")));
    }
    if !bare.is_empty() {
        let why = "not published, because no link of an interface has an address in MAAS";
        remarks.push(format!("{why}: {}", bare.join(", ")));
    }
    (!remarks.is_empty()).then(|| remarks.join("; "))
}
