//! What the decision needs to know of a machine, from MAAS's answer.

use capmaas_core::Lookup;
use capmaas_core::hosts::bridge::{Interface, Network};
use capmaas_core::maas;
use capmaas_core::maas::{Power, State};
use capmaas_core::machine::{STAMP, STAMPED_FOR};
use capmaas_core::placement::MAINTENANCE_TAG;
use maas_client::PowerState;

use super::addresses::linked_addresses;

/// Tags of machines under maintenance; the second is the Go provider's.
const MAINTENANCE_TAGS: [&str; 2] = ["maintenance", MAINTENANCE_TAG];

/// Converts a MAAS machine to the facts that the decision needs.
pub(super) fn metal(machine: &maas_client::Machine) -> maas::Machine {
    let text = |text: &Option<String>| text.clone().unwrap_or_default();
    let said = |said: &Option<String>| said.clone().filter(|said| !said.is_empty());
    let state = machine.status.map_or(State::Unknown, |status| State::from_code(status.code()));
    // MAAS keeps the description of an earlier failure through release, allocation and the next deployment, so it
    // counts only in a failed state.
    let described = said(&machine.error_description).filter(|_| state.is_failed());
    maas::Machine {
        id: machine.system_id.clone(),
        state,
        state_name: machine.status.map_or_else(|| "of unknown state".to_owned(), |status| status.to_string()),
        power: match machine.power_state {
            Some(PowerState::On) => Power::On,
            Some(PowerState::Off) => Power::Off,
            _ => Power::Unknown,
        },
        owner: said(&machine.owner),
        stamp: machine.workload_annotations.get(STAMP).cloned(),
        stamped_for: machine.workload_annotations.get(STAMPED_FOR).cloned(),
        hostname: text(&machine.hostname),
        fqdn: text(&machine.fqdn),
        addresses: linked_addresses(machine),
        zone: machine.zone.as_ref().map(|zone| zone.name.clone()).unwrap_or_default(),
        locked: machine.locked == Some(true),
        in_maintenance: Lookup::Found(machine.tag_names.iter().any(|tag| MAINTENANCE_TAGS.contains(&tag.as_str()))),
        swap_off: machine.swap_size == Some(0),
        network: network(machine),
        vm_host: machine.pod.as_ref().map(|pod| pod.id),
        tags: machine.tag_names.clone(),
        last_message: described.or_else(|| said(&machine.status_message)).unwrap_or_default(),
        without_dhcp: super::dhcp::missing(machine),
    }
}

fn network(machine: &maas_client::Machine) -> Network {
    let interface = |interface: &maas_client::Interface| Interface {
        id: interface.id,
        name: interface.name.clone().unwrap_or_default(),
        kind: interface.kind.clone().unwrap_or_default(),
        children: interface.children.clone(),
    };
    Network {
        boot: machine.boot_interface.as_ref().map(|boot| boot.id),
        interfaces: machine.interface_set.iter().map(interface).collect(),
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    /// The machine in an answer that was recorded from MAAS 3.7.3.
    fn recorded(number: &str) -> maas::Machine {
        let folder = format!("{}/../../lab/maas-replay/tests/recordings-3.7.3", env!("CARGO_MANIFEST_DIR"));
        for file in ["from-001.jsonl", "from-900.jsonl"] {
            for line in std::fs::read_to_string(format!("{folder}/{file}")).unwrap().lines() {
                let recording: serde_json::Value = serde_json::from_str(line).unwrap();
                if recording["name"].as_str().is_some_and(|name| name.starts_with(&format!("{number}-"))) {
                    return metal(&serde_json::from_value(recording["response"]["body"].clone()).unwrap());
                }
            }
        }
        panic!("there is no recording {number}")
    }

    #[test]
    fn why_a_machine_failed_is_told_while_it_is_failed_and_not_any_more_when_it_is_ready() {
        let failed = recorded("1189");
        assert!(failed.state.is_failed(), "{}", failed.state_name);
        assert_eq!(failed.last_message, "Activity task failed");
        // Released since, and MAAS still has the description.
        let ready = recorded("762");
        assert_eq!(ready.state, State::Ready);
        assert!(!ready.last_message.contains("Installation failed"), "{}", ready.last_message);
    }
}
