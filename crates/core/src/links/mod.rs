//! How the network interfaces of an Allocated machine get the requested addresses: which write comes next.
//!
//! One write at a time, and the next read of the interfaces shows each of them, so a crash in between loses nothing. An address
//! that somebody else holds is never taken away. What was not requested stays as it is in MAAS.

use std::net::IpAddr;

use capmaas_api::reasons;

use crate::Lookup;
use crate::cluster::network::Network;
use crate::intent::{Attach, FixedAddress, Mode, Nic, Problem};

/// The requested link configuration.
#[derive(Debug, Clone, Copy, Default)]
pub struct DesiredLinks<'a> {
    pub address: Option<&'a FixedAddress>,
    /// The NICs of a VM; bare metal has none.
    pub nics: &'a [Nic],
}

impl DesiredLinks<'_> {
    /// Nothing is requested: MAAS's defaults will do, and interfaces need not be read.
    pub fn is_empty(&self) -> bool {
        self.address.is_none() && self.nics.iter().all(|nic| nic.mode.is_none())
    }
}

/// What MAAS shows.
#[derive(Debug, Clone, PartialEq, Eq)]
pub struct Observed {
    pub interfaces: Vec<Interface>,
    /// All subnets that MAAS knows.
    pub subnets: Vec<Subnet>,
    /// Who has the fixed address; `Absent` if nobody does or none is requested.
    pub holder: Lookup<Holder>,
}

#[derive(Debug, Clone, PartialEq, Eq)]
pub struct Interface {
    pub id: i64,
    /// `eth0`, …
    pub name: String,
    /// The machine boots from it.
    pub boot: bool,
    /// ID of its VLAN.
    pub vlan: Option<i64>,
    /// Interfaces built on it, such as a bridge: these have the links then.
    pub children: Vec<String>,
    /// Interfaces that it is built on.
    pub parents: Vec<String>,
    pub links: Vec<Link>,
}

/// The configuration of an interface on one subnet.
#[derive(Debug, Clone, PartialEq, Eq)]
pub struct Link {
    pub id: i64,
    /// How it gets its address; `None` for a mode that is not known.
    pub mode: Option<Mode>,
    /// ID of the subnet.
    pub subnet: Option<i64>,
    /// The address, once there is one.
    pub address: Option<IpAddr>,
}

#[derive(Debug, Clone, PartialEq, Eq)]
pub struct Subnet {
    pub id: i64,
    pub name: String,
    /// `10.0.0.0/24`
    pub cidr: String,
    /// ID of its VLAN.
    pub vlan: Option<i64>,
}

#[derive(Debug, Clone, PartialEq, Eq)]
pub struct Holder {
    /// System ID of a machine.
    pub machine: Option<String>,
    /// For people: `metal-3`, `reserved by admin`, …
    pub words: String,
}

/// A write to one interface.
///
/// Each variant states how its result is seen again if it took effect and we crashed before recording it ("after a crash").
#[derive(Debug, Clone, PartialEq, Eq)]
pub enum Change {
    /// Links an interface to a subnet. After a crash: the interface shows the link; a repetition changes nothing.
    Link {
        interface: i64,
        /// How it gets its address.
        mode: Mode,
        /// ID of the subnet; none for an interface that is only up.
        subnet: Option<i64>,
        /// The address, if it is fixed; otherwise MAAS chooses.
        address: Option<IpAddr>,
        /// Removes the existing links. For a fixed address, never set where one of them is on another subnet.
        replace: bool,
    },
    /// Removes a link, to make room for another on the same subnet. After a crash: the link is gone.
    Unlink { interface: i64, link: i64 },
}

#[derive(Debug, Clone, PartialEq, Eq)]
pub enum Next {
    /// Everything is as requested.
    Done,
    Write(Change),
    /// It cannot be done; the machine is not deployed without it.
    Refused(Problem),
    /// Whether it can be done is not known; the message states why.
    Unknown(String),
}

/// The next write for an Allocated machine of ours.
pub fn next(machine: &str, desired: &DesiredLinks<'_>, observed: &Observed) -> Next {
    let mut fixed = None;
    match desired.address {
        None => {}
        Some(FixedAddress::Awaited) => return Next::Refused(FixedAddress::awaited()),
        Some(FixedAddress::Literal(address)) => match literal(machine, *address, observed) {
            Ok((_, Some(change))) => return Next::Write(change),
            Ok((interface, None)) => fixed = Some(interface),
            Err(next) => return next,
        },
    }
    for (index, nic) in desired.nics.iter().enumerate() {
        let Some(mode) = nic.mode else { continue };
        let Some(interface) = interface_of(observed, nic, index) else {
            return refused(format!("the VM has no NIC {}; delete the Machine to get another one", nic.name));
        };
        // The fixed address is on this NIC: that is its mode.
        if fixed == Some(interface.id) {
            continue;
        }
        match configured(observed, nic, interface, mode) {
            Ok(None) => {}
            Ok(Some(change)) => return Next::Write(change),
            Err(next) => return next,
        }
    }
    Next::Done
}

fn holding(address: IpAddr, interfaces: &[Interface]) -> Option<(&Interface, &Link)> {
    let links = interfaces.iter().flat_map(|interface| interface.links.iter().map(move |link| (interface, link)));
    links.into_iter().find(|(_, link)| link.mode == Some(Mode::Static) && link.address == Some(address))
}

/// The interface of a fixed address, and the write that it needs, if any.
fn literal(machine: &str, address: IpAddr, observed: &Observed) -> Result<(i64, Option<Change>), Next> {
    if let Some((interface, _)) = holding(address, &observed.interfaces) {
        return Ok((interface.id, None));
    }
    match &observed.holder {
        Lookup::Absent => {}
        Lookup::Found(holder) if holder.machine.as_deref() == Some(machine) => {}
        Lookup::Found(holder) => {
            return Err(refused(format!(
                "spec.staticIP {address} is held in MAAS: {}; use another address, or free it there",
                holder.words
            )));
        }
        Lookup::Unknown(why) => return Err(Next::Unknown(format!("the holder of {address} is not known: {why}"))),
    }
    let holds = |subnet: &&Subnet| Network::parse(&subnet.cidr).is_some_and(|network| network.contains(address));
    let prefix = |subnet: &&Subnet| Network::parse(&subnet.cidr).map_or(0, |network| network.prefix());
    let mut around: Vec<&Subnet> = observed.subnets.iter().filter(holds).collect();
    around.sort_by_key(|subnet| (u32::MAX - prefix(subnet), subnet.id));
    let Some(nearest) = around.first() else {
        return Err(refused(format!(
            "spec.staticIP {address} is in no subnet that MAAS knows; add its subnet to MAAS"
        )));
    };
    // Prefer the interface that is linked to such a subnet, then the one that is on its VLAN, then the boot interface.
    let found = around.iter().flat_map(|subnet| {
        let usable = observed.interfaces.iter().filter(|interface| interface.children.is_empty());
        usable.filter_map(move |interface| {
            let linked = interface.links.iter().any(|link| link.subnet == Some(subnet.id));
            let near = subnet.vlan.is_some() && subnet.vlan == interface.vlan;
            (linked || near).then_some((!linked, !boots(interface, observed), interface.id, interface, *subnet))
        })
    });
    let Some((.., interface, subnet)) = found.min_by_key(|(linked, boot, id, ..)| (*linked, *boot, *id)) else {
        return Err(refused(format!(
            "spec.staticIP {address} is in subnet {} ({}), and no interface of {machine} is attached to it; use an \
             address of a subnet that the machine is attached to",
            nearest.cidr, nearest.name
        )));
    };
    Ok((interface.id, Some(replacing(interface, Mode::Static, subnet.id, Some(address)))))
}

/// A bridge on the boot interface counts as the boot interface.
fn boots(interface: &Interface, observed: &Observed) -> bool {
    let boot = |name: &String| observed.interfaces.iter().any(|parent| parent.boot && parent.name == *name);
    interface.boot || interface.parents.iter().any(boot)
}

/// A link that replaces those on the same subnet. Links on other subnets are not ours to remove.
fn replacing(interface: &Interface, mode: Mode, subnet: i64, address: Option<IpAddr>) -> Change {
    let here = |link: &&Link| link.subnet.is_none() || link.subnet == Some(subnet);
    if interface.links.iter().all(|link| here(&link)) {
        return Change::Link { interface: interface.id, mode, subnet: Some(subnet), address, replace: true };
    }
    match interface.links.iter().find(|link| link.subnet == Some(subnet)) {
        Some(link) => Change::Unlink { interface: interface.id, link: link.id },
        None => Change::Link { interface: interface.id, mode, subnet: Some(subnet), address, replace: false },
    }
}

/// The interface of a NIC: by its name, otherwise by its position in the order in which MAAS created them.
fn interface_of<'a>(observed: &'a Observed, nic: &Nic, index: usize) -> Option<&'a Interface> {
    let mut nics: Vec<&Interface> = observed.interfaces.iter().filter(|it| it.parents.is_empty()).collect();
    nics.sort_by_key(|interface| interface.id);
    nics.iter().find(|interface| interface.name == nic.name).or(nics.get(index)).copied()
}

fn configured(observed: &Observed, nic: &Nic, interface: &Interface, mode: Mode) -> Result<Option<Change>, Next> {
    let so = |link: &Link| link.mode == Some(mode) && (mode != Mode::Static || link.address.is_some());
    if interface.links.iter().any(so) && interface.links.len() == 1 {
        return Ok(None);
    }
    if mode == Mode::LinkUp {
        let change = Change::Link { interface: interface.id, mode, subnet: None, address: None, replace: true };
        return Ok(Some(change));
    }
    let near = |subnet: &&Subnet| subnet.vlan.is_some() && subnet.vlan == interface.vlan;
    let named = match &nic.to {
        Attach::Subnet(name) => {
            let is = |subnet: &&Subnet| subnet.name == *name || subnet.cidr == *name;
            observed.subnets.iter().filter(near).find(is).map(|subnet| subnet.id)
        }
        Attach::Boot | Attach::Bridge(_) => None,
    };
    let linked = interface.links.iter().find_map(|link| link.subnet);
    let first = observed.subnets.iter().filter(near).min_by_key(|subnet| subnet.id).map(|subnet| subnet.id);
    let Some(subnet) = named.or(linked).or(first) else {
        return Err(refused(format!("MAAS knows no subnet on the network of {}; add one to MAAS", interface.name)));
    };
    Ok(Some(Change::Link { interface: interface.id, mode, subnet: Some(subnet), address: None, replace: true }))
}

fn refused(message: String) -> Next {
    Next::Refused(Problem { reason: reasons::STATIC_IP_FAILED, message })
}

#[cfg(test)]
mod tests;
