//! Which addresses of a machine are valid.

use std::collections::BTreeSet;

/// The addresses of the machine's links, in MAAS's order. `ip_addresses` may also list addresses that no link has:
/// addresses observed on the network during commissioning, which may belong to another machine by now. An observed
/// address counts only for a link in DHCP mode.
pub(crate) fn linked_addresses(machine: &maas_client::Machine) -> Vec<String> {
    let mut linked = BTreeSet::new();
    for interface in &machine.interface_set {
        for link in &interface.links {
            let by_dhcp = link.mode.as_deref() == Some("dhcp") && link.ip_address.is_none();
            let seen = interface.discovered.iter().filter(|_| by_dhcp).filter_map(|seen| seen.ip_address.clone());
            linked.extend(link.ip_address.clone().into_iter().chain(seen).filter(|address| !address.is_empty()));
        }
    }
    let listed = machine.ip_addresses.iter().filter(|address| linked.remove(*address)).cloned().collect::<Vec<_>>();
    listed.into_iter().chain(linked.clone()).collect()
}

#[cfg(test)]
mod tests {
    use serde_json::{Value, json};

    use super::*;

    fn of(interfaces: Value, listed: &[&str]) -> Vec<String> {
        let machine = json!({ "system_id": "abc123", "interface_set": interfaces, "ip_addresses": listed });
        linked_addresses(&serde_json::from_value(machine).unwrap())
    }

    #[test]
    fn only_addresses_of_links_count_in_the_order_that_maas_gives() {
        let seen = json!([{ "ip_address": "10.0.0.108" }]);
        let auto = |ip: &str| json!([{ "id": 1, "mode": "auto", "ip_address": ip }]);
        let both = json!([
            { "id": 1, "links": auto("10.0.0.5"), "discovered": seen }, { "id": 2, "links": auto("10.1.0.5") },
        ]);
        assert_eq!(of(both, &["10.1.0.5", "10.0.0.5"]), ["10.1.0.5", "10.0.0.5"]);
        // Answers of a real MAAS for an Allocated machine, and for a machine whose link lost its address.
        let bare = json!([{ "id": 1, "links": [{ "id": 1, "mode": "auto" }], "discovered": seen }]);
        assert!(of(bare, &["10.0.0.108"]).is_empty());
        let up = json!([{ "id": 1, "links": [{ "id": 1, "mode": "link_up" }], "discovered": seen }]);
        assert!(of(up, &["10.0.0.108"]).is_empty());
        assert!(of(json!([]), &["10.0.0.108"]).is_empty());
    }

    #[test]
    fn of_a_link_that_asks_a_dhcp_server_what_was_seen_is_the_address() {
        let seen = json!([{ "ip_address": "10.0.0.108" }]);
        let bare = json!([{ "id": 1, "links": [{ "id": 1, "mode": "dhcp" }], "discovered": seen }]);
        assert_eq!(of(bare, &["10.0.0.108"]), ["10.0.0.108"]);
        let told =
            json!([{ "id": 1, "links": [{ "id": 1, "mode": "dhcp", "ip_address": "10.0.0.9" }], "discovered": seen }]);
        assert_eq!(of(told, &["10.0.0.9"]), ["10.0.0.9"]);
    }
}
