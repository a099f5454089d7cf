//! Whether a machine can get an address by DHCP when it boots, as far as MAAS knows.

/// The VLAN that the machine boots from, if MAAS neither serves nor relays DHCP there and has seen no other server.
/// Fields that MAAS does not report do not count as missing.
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
