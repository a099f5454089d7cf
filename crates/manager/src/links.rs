//! The network interfaces of a machine in MAAS: read for `capmaas_core::links`, and changed as it decides.

use std::net::IpAddr;

use capmaas_core::Lookup;
use capmaas_core::intent::{FixedAddress, Mode};
use capmaas_core::links::{Change, DesiredLinks, Holder, Interface, Link, Observed, Subnet};
use maas_client::{Client, IpAddressFilter, LinkMode, Machine};

/// The facts that the decision needs; read only if the spec asks for something. At most two reads.
pub async fn sight(client: &Client, machine: &Machine, desired: &DesiredLinks<'_>) -> Lookup<Observed> {
    let subnets = match client.subnets().list().await {
        Ok(subnets) => subnets,
        Err(error) => return Lookup::Unknown(error.to_string()),
    };
    let holder = match desired.address {
        Some(FixedAddress::Literal(address)) => holder(client, *address).await,
        Some(FixedAddress::Awaited) | None => Lookup::Absent,
    };
    let boot = machine.boot_interface.as_ref().map(|interface| interface.id);
    Lookup::Found(Observed {
        interfaces: machine.interface_set.iter().map(|it| interface(it, boot == Some(it.id))).collect(),
        subnets: subnets.iter().filter_map(subnet).collect(),
        holder,
    })
}

fn subnet(subnet: &maas_client::Subnet) -> Option<Subnet> {
    Some(Subnet {
        id: subnet.id,
        name: subnet.name.clone().unwrap_or_default(),
        cidr: subnet.cidr.clone()?,
        vlan: subnet.vlan.as_ref().map(|vlan| vlan.id),
    })
}

fn interface(interface: &maas_client::Interface, boot: bool) -> Interface {
    let link = |link: &maas_client::InterfaceLink| Link {
        id: link.id,
        mode: link.mode.as_deref().and_then(mode),
        subnet: link.subnet.as_ref().map(|subnet| subnet.id),
        address: link.ip_address.as_deref().and_then(|address| address.parse().ok()),
    };
    Interface {
        id: interface.id,
        name: interface.name.clone().unwrap_or_default(),
        boot,
        vlan: interface.vlan.as_ref().map(|vlan| vlan.id),
        children: interface.children.clone(),
        parents: interface.parents.clone(),
        links: interface.links.iter().map(link).collect(),
    }
}

fn mode(word: &str) -> Option<Mode> {
    match word {
        "auto" => Some(Mode::Auto),
        "dhcp" => Some(Mode::Dhcp),
        "static" => Some(Mode::Static),
        "link_up" => Some(Mode::LinkUp),
        _ => None,
    }
}

/// Who holds an address. Only an administrator sees what others hold; nobody else may change interfaces either.
async fn holder(client: &Client, address: IpAddr) -> Lookup<Holder> {
    let filter = IpAddressFilter { ip: Some(address), owner: None, all: true };
    let found = match client.ip_addresses().list(&filter).await {
        Ok(found) => found,
        Err(error) => return Lookup::Unknown(error.to_string()),
    };
    let text = address.to_string();
    let Some(held) = found.into_iter().find(|held| held.ip.as_deref() == Some(text.as_str())) else {
        return Lookup::Absent;
    };
    let machine = held.interface_set.iter().find_map(|interface| interface.system_id.clone());
    let why = held.alloc_type_name.unwrap_or_else(|| "taken".to_owned());
    let words = match (&machine, held.owner.map(|owner| owner.username)) {
        (Some(machine), _) => format!("{why}, by machine {machine}"),
        (None, Some(user)) => format!("{why}, by {user}"),
        (None, None) => why,
    };
    Lookup::Found(Holder { machine, words })
}

/// Performs one change. A taken address is [`AddressInUse`](maas_client::ErrorKind::AddressInUse).
pub async fn perform(client: &Client, machine: &str, change: &Change) -> maas_client::Result<()> {
    match change {
        Change::Link { interface, mode, subnet, address, replace } => {
            let link = maas_client::Link {
                mode: match mode {
                    Mode::Auto => LinkMode::Auto,
                    Mode::Dhcp => LinkMode::Dhcp,
                    Mode::Static => LinkMode::Static,
                    Mode::LinkUp => LinkMode::LinkUp,
                },
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
