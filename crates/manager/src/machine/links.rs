//! The interfaces of a machine, where addresses were asked for, and writes to them.

use std::net::IpAddr;

use capmaas_core::Lookup;
use capmaas_core::intent::{FixedAddress, Mode, resolve};
use capmaas_core::links::{Change, Holder, Interface, Link, Sight, Subnet};
use capmaas_core::machine::{Observed, State};
use maas_client::{Client, IpAddressFilter, LinkMode};

/// Looks at the interfaces of an Allocated machine, if anything about them is asked for.
pub(super) async fn sight(client: &Client, observed: &Observed) -> Lookup<Sight> {
    let Lookup::Found(machine) = &observed.on_record else { return Lookup::Absent };
    let leaving = observed.object.metadata.deletion_timestamp.is_some();
    let Ok(intent) = resolve(&observed.object.spec, true) else { return Lookup::Absent };
    let wish = intent.links();
    if leaving || machine.state != State::Allocated || wish.is_empty() {
        return Lookup::Absent;
    }
    let holder = match wish.address {
        Some(FixedAddress::Literal(address)) => holder(client, *address).await,
        _ => Lookup::Absent,
    };
    match read(client, &machine.id, holder).await {
        Ok(sight) => Lookup::Found(sight),
        Err(error) => Lookup::Unknown(error.to_string()),
    }
}

async fn read(client: &Client, machine: &str, holder: Lookup<Holder>) -> maas_client::Result<Sight> {
    let seen = client.machines().read(machine).await?;
    let boot = seen.boot_interface.as_ref().map(|boot| boot.id);
    let interface = |interface: &maas_client::Interface| Interface {
        id: interface.id,
        name: interface.name.clone().unwrap_or_default(),
        boot: boot == Some(interface.id),
        vlan: interface.vlan.as_ref().map(|vlan| vlan.id),
        children: interface.children.clone(),
        parents: interface.parents.clone(),
        links: interface.links.iter().map(link).collect(),
    };
    let subnets = client.subnets().list().await?;
    let subnet = |subnet: &maas_client::Subnet| {
        let (name, cidr) = (subnet.name.clone().unwrap_or_default(), subnet.cidr.clone()?);
        Some(Subnet { id: subnet.id, name, cidr, vlan: subnet.vlan.as_ref().map(|vlan| vlan.id) })
    };
    Ok(Sight {
        interfaces: seen.interface_set.iter().map(interface).collect(),
        subnets: subnets.iter().filter_map(subnet).collect(),
        holder,
    })
}

fn link(link: &maas_client::InterfaceLink) -> Link {
    let mode = match link.mode.as_deref() {
        Some("auto") => Some(Mode::Auto),
        Some("dhcp") => Some(Mode::Dhcp),
        Some("static") => Some(Mode::Static),
        Some("link_up") => Some(Mode::LinkUp),
        _ => None,
    };
    let address = link.ip_address.as_ref().and_then(|ip| ip.parse().ok());
    Link { id: link.id, mode, subnet: link.subnet.as_ref().map(|subnet| subnet.id), address }
}

/// Who has an address: a machine, or somebody who reserved it.
async fn holder(client: &Client, address: IpAddr) -> Lookup<Holder> {
    let filter = IpAddressFilter { ip: Some(address), all: true, ..IpAddressFilter::default() };
    let found = match client.ip_addresses().list(&filter).await {
        Ok(found) => found,
        Err(error) => return Lookup::Unknown(error.to_string()),
    };
    let is = |held: &&maas_client::IpAddress| held.ip.as_ref().is_some_and(|ip| ip.parse() == Ok(address));
    let Some(held) = found.iter().find(is) else { return Lookup::Absent };
    let machine = held.interface_set.iter().find_map(|holder| holder.system_id.clone());
    let how = held.alloc_type_name.clone().unwrap_or_else(|| "held".to_owned());
    let words = match (&machine, held.owner.as_ref().map(|owner| owner.username.clone())) {
        (Some(machine), _) => format!("{machine} has it"),
        (None, Some(owner)) => format!("{how} by {owner}"),
        (None, None) => how,
    };
    Lookup::Found(Holder { machine, words })
}

/// Does one write.
pub(super) async fn change(client: &Client, machine: &str, change: &Change) -> maas_client::Result<()> {
    match change {
        Change::Link { interface, mode, subnet, address, replace } => {
            let mode = match mode {
                Mode::Auto => LinkMode::Auto,
                Mode::Dhcp => LinkMode::Dhcp,
                Mode::Static => LinkMode::Static,
                Mode::LinkUp => LinkMode::LinkUp,
            };
            let link = maas_client::Link {
                mode,
                subnet: subnet.map(|subnet| subnet.to_string()),
                ip_address: *address,
                default_gateway: false,
                force: *replace,
            };
            client.interfaces().link(machine, *interface, &link).await.map(drop)
        }
        Change::Unlink { interface, link } => client.interfaces().unlink(machine, *interface, *link).await.map(drop),
    }
}
