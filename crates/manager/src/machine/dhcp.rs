//! Whether a machine gets an address to boot with, as far as MAAS knows.

/// The VLAN that it boots from, if MAAS serves no DHCP there, relays none and has seen no other server. What MAAS does not tell is not
/// missing.
pub(super) fn missing(machine: &maas_client::Machine) -> Option<String> {
    let boot = machine.boot_interface.as_ref()?;
    let listed = machine.interface_set.iter().find(|interface| interface.id == boot.id).and_then(|it| it.vlan.as_ref());
    let vlan = boot.vlan.as_ref().or(listed)?;
    let served = vlan.dhcp_on != Some(false) || vlan.relay_vlan.is_some() || vlan.external_dhcp.is_some();
    let name = vlan.name.as_deref().unwrap_or("unnamed");
    (!served).then(|| match &vlan.fabric {
        Some(fabric) => format!("VLAN {name} of {fabric}"),
        None => format!("VLAN {name}"),
    })
}
