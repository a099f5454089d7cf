//! One life: a cluster comes up, is tormented, heals, and is deleted with nothing left.

use capmaas_manager::port::Key;
use maas_sim::faults::ServerState;
use serde_json::json;

use crate::world::{World, cluster, deployed_condition, machine};

/// Requests worth losing.
const KINDS: [&str; 8] = [
    "machines.allocate",
    "machine.deploy",
    "machine.release",
    "machine.set_workload_annotations",
    "machine.read",
    "machines.read",
    "machine.query_power_state",
    "machine.power_on",
];

const ENDS: [&str; 4] = ["ImageSuspected", "AttemptsExhausted", "NoMachineAvailable", "MachineStateUndefined"];

pub(crate) async fn life(seed: u64) -> World {
    let mut world = World::new(seed);
    inventory(&world);
    cluster(&world);
    let count = 2 + world.chance.below(3);
    for number in 0..count {
        let zone = [None, Some("az1"), Some("az2")][usize::try_from(world.chance.below(3)).unwrap()];
        machine(&world, &format!("m{number}"), zone);
    }
    world.mortality = [0, 5, 15, 40][usize::try_from(world.chance.below(4)).unwrap()];
    torment(&mut world).await;
    heal(&world);
    world.mortality = 0;
    for _ in 0..24 {
        world.run_for(600).await;
        world.check();
        if settled(&world).is_none() {
            break;
        }
    }
    if let Some(why) = settled(&world) {
        world.fail(&format!("does not converge: {why}"));
    }
    nothing_leaked(&world);
    for key in world.machines() {
        world.port.delete("MaasMachine", &key);
    }
    for _ in 0..24 {
        world.run_for(600).await;
        if world.machines().is_empty() {
            break;
        }
    }
    if !world.machines().is_empty() {
        world.fail("deleted machines stay for ever");
    }
    nothing_leaked(&world);
    world
}

fn inventory(world: &World) {
    world.arrange(json!([
        {"user": {"name": "bob", "admin": false, "key": "cb:tb:CANARYbob"}},
        {"zone": {"name": "az1"}}, {"zone": {"name": "az2"}},
        {"image": {"name": "ubuntu/jammy"}},
        {"fabric": {"name": "fabric-0", "id": 0}}, {"vlan": {"fabric": "fabric-0", "vid": 0, "dhcp_on": true}},
        {"subnet": {"cidr": "10.0.0.0/24", "gateway_ip": "10.0.0.254", "dns_servers": ["10.0.0.1"]}},
    ]));
    for number in 0..7 {
        let zone = if number % 2 == 0 { "az1" } else { "az2" };
        world.arrange(json!([
            {"machine": {"hostname": format!("bm{number}"), "status": "Ready", "zone": zone, "cpu_count": 4, "memory": 8192}},
        ]));
    }
    world.arrange(json!([{"machine": {"hostname": "of-bob", "status": "Deployed", "owner": "bob", "zone": "az1"}}]));
}

/// Some twenty minutes in which anything may happen.
async fn torment(world: &mut World) {
    for _ in 0..24 {
        let seconds = 10 + i64::try_from(world.chance.below(100)).unwrap();
        world.run_for(seconds).await;
        world.check();
        foreign_is_untouched(world);
        if world.chance.percent(45) {
            blow(world);
        }
    }
}

fn blow(world: &mut World) {
    let target = format!("bm{}", world.chance.below(7));
    let keys = world.machines();
    match world.chance.below(12) {
        0..=3 => {
            let kind = *world.chance.one_of(&KINDS);
            let when = *world.chance.one_of(&["before", "after"]);
            let mut rule = match world.chance.below(6) {
                0 => json!({"do": "reset"}),
                1 => json!({"do": "hang"}),
                2 => json!({"do": "status", "status": 503, "body": "away"}),
                3 => json!({"do": "late", "seconds": 1 + world.chance.below(90)}),
                4 => json!({"do": "kill", "down_seconds": world.chance.below(60)}),
                _ => json!({"do": "truncate"}),
            };
            rule["match"] = json!({"kind": kind});
            rule["when"] = json!(when);
            rule["times"] = json!(1 + world.chance.below(2));
            world.maas.control().add_fault(serde_json::from_value(rule).unwrap());
        }
        4 | 5 => world.arrange(json!([{"machine": {"hostname": target, "next": {"deploy": "fail"}}}])),
        6 => {
            let bmc = *world.chance.one_of(&["hangs", "error", "ok"]);
            world.arrange(json!([{"machine": {"hostname": target, "bmc": bmc}}]));
        }
        7 => {
            let server = if world.chance.percent(50) { ServerState::Down } else { ServerState::Up };
            world.maas.control().set_server(server);
        }
        8 | 9 if !keys.is_empty() => {
            let key = world.chance.one_of(&keys).clone();
            world.port.delete("MaasMachine", &key);
        }
        10 => {
            let paused = world.chance.percent(40);
            world.port.edit("Cluster", &Key::new("default", "c1"), &json!({"spec": {"paused": paused}})).unwrap();
        }
        _ => {
            let name = format!("n{}", world.now());
            machine(world, &name, None);
        }
    }
}

fn heal(world: &World) {
    world.maas.control().remove_fault(None);
    world.maas.control().set_server(ServerState::Up);
    for number in 0..7 {
        world.arrange(json!([{"machine": {"hostname": format!("bm{number}"), "bmc": "ok"}}]));
    }
    world.port.edit("Cluster", &Key::new("default", "c1"), &json!({"spec": {"paused": false}})).unwrap();
    // A MAAS that was killed while it released a machine leaves it so for ever. What would move it was never measured on a
    // real one, so a person does it here; until then the finalizer stays.
    for (id, machine) in world.inventory() {
        if ["Releasing", "DiskErasing"].contains(&machine.state.as_str()) {
            world.arrange(json!([{"machine": {"system_id": id, "status": "Ready", "power": "off"}}]));
        }
    }
}

/// Why the world has not come to rest.
fn settled(world: &World) -> Option<String> {
    world.port.objects("MaasMachine").iter().find_map(|object| {
        let name = object["metadata"]["name"].as_str().unwrap();
        if !object["metadata"]["deletionTimestamp"].is_null() {
            return Some(format!("{name} is still being deleted"));
        }
        let (reason, message) = deployed_condition(object);
        let done = object["status"]["ready"] == true || ENDS.contains(&reason.as_str());
        (!done).then(|| format!("{name} is not ready: {reason}: {message}"))
    })
}

/// Every machine that is somebody's in MAAS is held by an object here; all others are free and off.
fn nothing_leaked(world: &World) {
    foreign_is_untouched(world);
    let held: Vec<String> = world
        .port
        .objects("MaasMachine")
        .iter()
        .filter_map(|object| {
            let record = object["metadata"]["annotations"]["infrastructure.cluster.x-k8s.io/maas-record"].as_str()?;
            serde_json::from_str::<serde_json::Value>(record).unwrap()["machine"].as_str().map(str::to_owned)
        })
        .collect();
    for (id, machine) in world.inventory() {
        if machine.owner == Some(bob(world)) || held.contains(&id) {
            continue;
        }
        if machine.owner.is_some() || machine.on || machine.state != "Ready" {
            world.fail(&format!("{id} is leaked: {machine:?}"));
        }
    }
}

fn bob(world: &World) -> i64 {
    world.maas.control().with_model(|model| {
        let found = model.db.users.values().find(|user| user.name == "bob");
        found.map(|user| user.id).unwrap()
    })
}

fn foreign_is_untouched(world: &World) {
    let of_bob = world.inventory().into_values().find(|machine| machine.owner == Some(bob(world)));
    match of_bob {
        Some(machine) if machine.state == "Deployed" => {}
        other => world.fail(&format!("bob's machine was touched: {other:?}")),
    }
}
