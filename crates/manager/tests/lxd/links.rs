//! `links`: an Allocated machine gets its addresses, one write at a time.

use capmaas_core::Lookup;
use capmaas_core::intent::{Attach, FixedAddress, Mode, Nic};
use capmaas_core::links::{DesiredLinks, Next, next};
use capmaas_manager::links::{perform, sight};
use maas_client::Client;
use serde_json::json;

use crate::{arrange, client, maas};

/// Performs changes until there are none left; returns how many, and the final decision.
async fn settle(client: &Client, machine: &str, desired: &DesiredLinks<'_>) -> (usize, Next) {
    for writes in 0..10 {
        match look(client, machine, desired).await {
            Next::Write(change) => perform(client, machine, &change).await.unwrap(),
            other => return (writes, other),
        }
    }
    panic!("still writing");
}

async fn look(client: &Client, machine: &str, desired: &DesiredLinks<'_>) -> Next {
    let seen = client.machines().read(machine).await.unwrap();
    let Lookup::Found(sight) = sight(client, &seen, desired).await else { panic!("no sight") };
    next(machine, desired, &sight)
}

fn stage() -> (maas_sim::Simulator, Client) {
    let maas = maas();
    let nics = json!([{"name": "eth0", "vlan": 5001}, {"name": "eth1", "vlan": 5002}]);
    for id in ["vm1abc", "vm2abc"] {
        arrange(
            &maas,
            json!([{"machine": {"system_id": id, "hostname": id, "status": "Allocated", "owner": "admin", "interfaces": nics}}]),
        );
    }
    let client = client(&maas);
    (maas, client)
}

fn literal(address: &str) -> FixedAddress {
    FixedAddress::Literal(address.parse().unwrap())
}

#[tokio::test]
async fn a_literal_address_is_given_once_and_reported_to_the_second_who_asks() {
    let (_maas, client) = stage();
    let address = literal("10.1.0.50");
    let desired = DesiredLinks { address: Some(&address), nics: &[] };
    assert_eq!(settle(&client, "vm1abc", &desired).await, (1, Next::Done));
    let machine = client.machines().read("vm1abc").await.unwrap();
    let eth1 = machine.interface_set.iter().find(|it| it.name.as_deref() == Some("eth1")).unwrap();
    assert_eq!(eth1.links.len(), 1);
    assert_eq!(eth1.links[0].ip_address.as_deref(), Some("10.1.0.50"));
    let Next::Refused(problem) = look(&client, "vm2abc", &desired).await else { panic!("refused") };
    assert!(problem.message.contains("10.1.0.50") && problem.message.contains("vm1abc"), "{}", problem.message);
}

#[tokio::test]
async fn an_address_that_a_person_reserved_is_left_to_them() {
    let (maas, client) = stage();
    arrange(&maas, json!([{"ip_address": {"ip": "10.0.0.60", "user": "admin", "kind": "user_reserved"}}]));
    let address = literal("10.0.0.60");
    let Next::Refused(problem) = look(&client, "vm1abc", &DesiredLinks { address: Some(&address), nics: &[] }).await
    else {
        panic!("refused")
    };
    assert!(problem.message.contains("admin"), "{}", problem.message);
}

#[tokio::test]
async fn two_machines_of_one_template_get_fixed_addresses_of_their_own() {
    let (_maas, client) = stage();
    let nic = |name: &str, mode| Nic { name: name.into(), to: Attach::Boot, mode: Some(mode) };
    let nics = [nic("eth0", Mode::Static), nic("eth1", Mode::Dhcp)];
    let desired = DesiredLinks { address: None, nics: &nics };
    let mut addresses = Vec::new();
    for id in ["vm1abc", "vm2abc"] {
        assert_eq!(settle(&client, id, &desired).await, (2, Next::Done));
        let machine = client.machines().read(id).await.unwrap();
        let link = |name: &str| {
            machine.interface_set.iter().find(|it| it.name.as_deref() == Some(name)).unwrap().links[0].clone()
        };
        assert_eq!(link("eth1").mode.as_deref(), Some("dhcp"));
        addresses.push(link("eth0").ip_address.unwrap());
    }
    assert_ne!(addresses[0], addresses[1]);
}
