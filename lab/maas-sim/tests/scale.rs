//! Ten thousand machines.
#![allow(clippy::unwrap_used, clippy::expect_used, clippy::panic)]

mod common;

use common::{ADMIN, get, post};
use maas_sim::{
    Config, Simulator,
    model::inventory::{Inventory, generate},
};

#[tokio::test]
async fn ten_thousand_machines_are_listed_one_by_one_and_found_by_any_key() {
    let sim = Simulator::new(Config::driven(ADMIN.parse().unwrap()));
    sim.control().load(&Inventory::parse(&generate(10_000)).unwrap()).unwrap();
    let one = get(&sim, ADMIN, "machines/?hostname=m09999").await.json();
    let id = one[0]["system_id"].as_str().unwrap().to_owned();
    assert_eq!(get(&sim, ADMIN, &format!("machines/{id}/")).await.json()["hostname"], "m09999");
    let allocated = post(&sim, ADMIN, "machines/?op=allocate", &[("system_id", &id)]).await;
    assert_eq!(allocated.status, 200);
    // More than are rendered at once: the list is streamed, and still one document.
    let zone = get(&sim, ADMIN, "machines/?zone=az1&pool=pool-a").await.json();
    assert!(zone.as_array().unwrap().len() > 1000);
}
