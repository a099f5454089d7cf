//! Reads of LXD hosts and interfaces from MAAS; a change to interfaces shows in the next read.
#![allow(clippy::unwrap_used, clippy::expect_used, clippy::panic)]

mod hosts;
mod links;

use maas_client::transport::in_process;
use maas_client::{Client, RetryPolicy};
use maas_sim::{Config, Simulator};
use serde_json::{Value, json};

const ADMIN: &str = "consumer:token:CANARYadmin";

/// A MAAS with two networks that have DHCP.
fn maas() -> Simulator {
    let maas = Simulator::new(Config::driven(ADMIN.parse().unwrap()));
    arrange(
        &maas,
        json!([
            {"fabric": {"name": "fabric-0", "id": 0, "vlan_id": 5001}}, {"vlan": {"id": 5001, "fabric": "fabric-0", "vid": 0, "dhcp_on": true}},
            {"fabric": {"name": "fabric-1", "id": 1, "vlan_id": 5002}}, {"vlan": {"id": 5002, "fabric": "fabric-1", "vid": 0, "dhcp_on": true}},
            {"subnet": {"cidr": "10.0.0.0/24", "name": "front", "vlan": 5001, "gateway_ip": "10.0.0.1"}},
            {"subnet": {"cidr": "10.1.0.0/24", "name": "back", "vlan": 5002}},
        ]),
    );
    maas
}

fn arrange(maas: &Simulator, statements: Value) {
    maas.control().arrange(&serde_json::from_value::<Vec<_>>(statements).unwrap()).unwrap();
}

fn client(maas: &Simulator) -> Client {
    client_of(maas, ADMIN)
}

fn client_of(maas: &Simulator, key: &str) -> Client {
    Client::builder("http://maas.test:5240/MAAS", key)
        .transport(in_process(maas.router(), 1 << 20))
        .retry(RetryPolicy::never())
        .build()
        .unwrap()
}
