//! One run: a cluster comes up, suffers faults, recovers, and is deleted with nothing left.

use std::collections::BTreeSet;

use capmaas_api::reasons;
use capmaas_core::machine::ABANDON_ANNOTATION;
use maas_sim::faults::ServerState;
use serde_json::{Value, json};

use crate::chance::Chance;
use crate::guests::Guests;
use crate::law::{self, Seen, held, is_leaving};
use crate::maintenance;
use crate::manager::Subject;
use crate::objects::{ADOPTED_NAME, Endpoint, HOME, cluster, cluster_key, credentials, go_machine, key, machine};
use crate::people::{self, People};
use crate::sight::condition;
use crate::story::{Great, Story, gives_the_earlier_credentials_back};
use crate::tenants::{self, HeldElsewhere, is_namesake};
use crate::torments::Torment;
use crate::vms;
use crate::world::{ADMIN, Cast, World};

/// Requests worth losing.
const KINDS: [&str; 14] = [
    "machines.allocate",
    "machine.deploy",
    "machine.release",
    "machine.set_workload_annotations",
    "machine.read",
    "machines.read",
    "machine.query_power_state",
    "machine.power_on",
    "dnsresources.create",
    "dnsresource.update",
    "dnsresource.delete",
    "dnsresources.read",
    "ipaddresses.release",
    "users.whoami",
];

/// Final states of a machine that only a person can resolve.
pub(crate) const ENDS: [&str; 4] = [
    reasons::IMAGE_SUSPECTED,
    reasons::ATTEMPTS_EXHAUSTED,
    reasons::NO_MACHINE_AVAILABLE,
    reasons::MACHINE_STATE_UNDEFINED,
];
/// The same, after a restore made MAAS forget what it had done (S6).
const ENDS_AFTER_RESTORE: [&str; 3] =
    [reasons::MACHINE_TERMINATED, reasons::NOT_OUR_MACHINE, reasons::MACHINE_NOT_FOUND];

/// Rounds of faults.
const ROUNDS: u64 = 24;

pub(crate) async fn life(seed: u64, cast: Cast) -> World {
    let mut world = World::new(seed, cast);
    let mut story = Story::of(&mut world.chance, cast, ROUNDS);
    let mut people = People::of(seed);
    let mut others = HeldElsewhere::of(seed, story.great, ROUNDS);
    inventory(&world, metal(&world));
    slow_bmcs(&world);
    refused_names(&world);
    let endpoint = match story.great {
        Great::TakeOver => Endpoint::Adopted,
        _ if world.chance.percent(25) => Endpoint::Users,
        _ => Endpoint::Ours,
    };
    let reserved = law::reserved(&world);
    let made_of_metal = world.inventory().into_iter().filter(|(_, machine)| !machine.is_vm).map(|(id, _)| id);
    world.ledgers.metal = made_of_metal.collect();
    begin(&mut world, &mut story, endpoint);
    world.with_guests(|guests, world| {
        guests.come(world);
        guests.take_hosts(world);
        world.schedule(Subject::hosts(), 0);
    });
    world.after_last_pass = Seen::anew(&world);
    world.mortality = [0, 5, 15, 40][usize::try_from(world.chance.below(4)).unwrap()];
    world.sluggishness = [0, 2, 10][usize::try_from(world.chance.below(3)).unwrap()];
    torment(&mut world, &mut story, &mut people, &mut others).await;
    story.ends(&mut world);
    people.heal(&mut world);
    heal(&world);
    world.with_guests(Guests::heal);
    (world.mortality, world.sluggishness) = (0, 0);
    world.port.let_index_lag(false);
    rest(&mut world, &story, endpoint).await;
    nothing_leaked(&world, &story);
    tenants::heal(&mut world);
    others_rest(&mut world).await;
    idle(&mut world).await;
    world.guests = None;
    world.due.remove(&Subject::hosts());
    delete(&mut world, &story).await;
    nothing_leaked(&world, &story);
    law::nothing_named(&world, &reserved);
    vms::all_accounted_for(&world);
    tenants::nothing_left(&world);
    story.check(&world);
    world
}

/// In some runs, powering a machine on or off takes as long as with many a real BMC.
fn slow_bmcs(world: &World) {
    let mut chance = Chance::new(world.seed ^ 0x0b3c);
    let seconds = *chance.one_of(&[1.0, 1.0, 8.0, 20.0]);
    if Torment::SlowBmcs.is_on() {
        world.maas.control().with_model(|model| model.durations.power = seconds);
    }
}

/// In some runs MAAS refuses the first writes of DNS records.
fn refused_names(world: &World) {
    let mut chance = Chance::new(world.seed ^ 0x0d45);
    if !Torment::RefusedNames.is_on() || !chance.percent(30) {
        return;
    }
    for kind in ["dnsresources.create", "dnsresource.update"] {
        let rule = json!({
            "match": { "kind": kind }, "do": "status", "status": 503, "body": "away", "times": 1 + chance.below(4),
        });
        world.maas.control().add_fault(serde_json::from_value(rule).unwrap());
    }
}

/// MAAS's inventory: this many free physical machines, and machines that are not ours.
pub(crate) fn inventory(world: &World, metal: u64) {
    world.arrange(json!([
        {"user": {"name": "bob", "admin": false, "key": "cb:tb:CANARYbob"}},
        {"user": {"name": "carol", "admin": true, "key": crate::story::CAROL}},
        {"zone": {"name": "az1"}}, {"zone": {"name": "az2"}},
        {"image": {"name": "ubuntu/jammy"}},
        {"fabric": {"name": "fabric-0", "id": 0}}, {"vlan": {"fabric": "fabric-0", "vid": 0, "dhcp_on": true}},
        {"subnet": {"cidr": "10.0.0.0/24", "gateway_ip": "10.0.0.254", "dns_servers": ["10.0.0.1"]}},
    ]));
    for number in 0..metal {
        let zone = if number % 2 == 0 { "az1" } else { "az2" };
        world.arrange(json!([
            {"machine": {"hostname": format!("bm{number}"), "status": "Ready", "zone": zone, "cpu_count": 4, "memory": 8192}},
        ]));
    }
    world.arrange(json!([
        {"machine": {"hostname": "of-bob", "status": "Deployed", "owner": "bob", "zone": "az1"}},
        {"dns": {"fqdn": law::FOREIGN_NAME, "ip_addresses": ["10.0.0.77"]}},
    ]));
    if world.cast == Cast::Vms {
        vms::inventory(world);
    }
}

/// The number of free physical machines.
fn metal(world: &World) -> u64 {
    if world.cast == Cast::Vms { 2 } else { 7 }
}

fn begin(world: &mut World, story: &mut Story, endpoint: Endpoint) {
    credentials(world, &world.endpoint(), ADMIN);
    cluster(world, HOME, endpoint, &json!({}));
    if endpoint == Endpoint::Adopted {
        let addresses: Vec<String> =
            (0..2).map(|number| go_machine(world, &format!("go{number}"), "az1", true)).collect();
        world.arrange(json!([{"dns": {"fqdn": ADOPTED_NAME, "ip_addresses": addresses}}]));
        story.took_over(world);
    }
    // Sometimes more VMs than the hosts can hold.
    let count = if world.cast == Cast::Vms { 3 + world.chance.below(5) } else { 2 + world.chance.below(3) };
    let count = if world.guests.is_some() { 2 } else { count };
    for number in 0..count {
        let zone = [None, Some("az1"), Some("az2")][usize::try_from(world.chance.below(3)).unwrap()];
        let control_plane = number == 0 || world.chance.percent(60);
        join(world, &format!("m{number}"), zone, control_plane);
    }
}

fn join(world: &mut World, name: &str, zone: Option<&str>, control_plane: bool) {
    let spec = if world.cast == Cast::Vms { vms::spec(&mut world.chance) } else { json!({}) };
    machine(world, HOME, name, zone, control_plane, &spec);
}

/// About twenty minutes in which anything may happen.
async fn torment(world: &mut World, story: &mut Story, people: &mut People, others: &mut HeldElsewhere) {
    for round in 0..ROUNDS {
        let seconds = 10 + i64::try_from(world.chance.below(100)).unwrap();
        world.run_for(seconds).await;
        foreign_is_untouched(world);
        story.check(world);
        if world.chance.percent(45) {
            blow(world);
        }
        if world.cast == Cast::Vms && world.chance.percent(60) {
            vms::blow(world);
        }
        people.meddle(world);
        world.with_guests(Guests::blow);
        others.go_on(world, round);
        story.goes_on(world, round).await;
    }
}

fn blow(world: &mut World) {
    let target = format!("bm{}", world.chance.below(metal(world)));
    let keys = world.machines();
    match world.chance.below(12) {
        0..=3 => fault(world),
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
            world.tell(format!("somebody deletes {}", key.name));
            world.port.delete("MaasMachine", &key);
        }
        10 => {
            let paused = world.chance.percent(40);
            world.tell(format!("somebody sets paused: {paused}"));
            world.port.edit("Cluster", &cluster_key(), &json!({"spec": {"paused": paused}})).unwrap();
        }
        _ => {
            let name = format!("n{}", world.now());
            let control_plane = world.chance.percent(50);
            join(world, &name, None, control_plane);
        }
    }
}

fn fault(world: &mut World) {
    let kind = match world.cast {
        Cast::Vms if world.chance.percent(50) => *world.chance.one_of(&vms::KINDS),
        _ => *world.chance.one_of(&KINDS),
    };
    let when = *world.chance.one_of(&["before", "after"]);
    let mut rule = match world.chance.below(6) {
        0 => json!({"do": "reset"}),
        1 => json!({"do": "hang"}),
        2 => json!({"do": "status", "status": 503, "body": "away"}),
        // Late requests are waited for by the clock.
        3 if people::sets_clocks(world.seed) => json!({"do": "hang"}),
        3 => json!({"do": "late", "seconds": 1 + world.chance.below(90)}),
        4 => json!({"do": "kill", "down_seconds": world.chance.below(60)}),
        _ => json!({"do": "truncate"}),
    };
    // A late change of the record may arrive after the machine is released, and is then reverted.
    world.lenient |= rule["do"] == "late" && kind.starts_with("dnsresource");
    rule["match"] = json!({"kind": kind});
    rule["when"] = json!(when);
    rule["times"] = json!(1 + world.chance.below(2));
    world.tell(format!("fault: {rule}"));
    world.maas.control().add_fault(serde_json::from_value(rule).unwrap());
}

fn heal(world: &World) {
    world.maas.control().remove_fault(None);
    world.maas.control().set_server(ServerState::Up);
    for number in 0..metal(world) {
        world.arrange(json!([{"machine": {"hostname": format!("bm{number}"), "bmc": "ok"}}]));
    }
    if world.cast == Cast::Vms {
        vms::heal(world);
    }
    world.port.edit("Cluster", &cluster_key(), &json!({"spec": {"paused": false}})).unwrap();
    // A MAAS that was killed while it released a machine leaves it in that state for ever. What would resolve this was
    // never measured on a real MAAS, so a person does it here; until then the finalizer stays.
    for (id, machine) in world.inventory() {
        if ["Releasing", "DiskErasing"].contains(&machine.state.as_str()) {
            world.arrange(json!([{"machine": {"system_id": id, "status": "Ready", "power": "off"}}]));
        }
    }
}

/// The second tenant settles once its MAAS answers.
async fn others_rest(world: &mut World) {
    for _ in 0..12 {
        let settled = tenants::unsettled(world).is_none();
        world.run_for(300).await;
        if settled {
            return;
        }
    }
    if let Some(why) = tenants::unsettled(world) {
        world.fail(&format!("does not converge: {why}"));
    }
}

/// The first tenant settles, even while the second tenant's MAAS hangs.
async fn rest(world: &mut World, story: &Story, endpoint: Endpoint) {
    for _ in 0..24 {
        world.run_for(600).await;
        if story.great == Great::Restore {
            abandon(world);
        }
        if story.great == Great::OtherUser {
            gives_the_earlier_credentials_back(world);
        }
        match unsettled(world, story, endpoint) {
            None => return,
            Some(why) => world.tell(format!("not at rest yet: {why}")),
        }
    }
    if let Some(why) = unsettled(world, story, endpoint) {
        world.fail(&format!("does not converge: {why}"));
    }
}

/// Why the world has not settled.
fn unsettled(world: &World, story: &Story, endpoint: Endpoint) -> Option<String> {
    let of_machine = |object: &Value| {
        let name = object["metadata"]["name"].as_str().unwrap();
        let (reason, message) = condition(object, "MachineDeployed");
        if is_leaving(object) {
            return (!maintenance::is_kept(object))
                .then(|| format!("{name} is still being deleted: {reason}: {message}"));
        }
        let given_up = ENDS.contains(&reason.as_str())
            || world.cast == Cast::Vms && vms::is_end(world, object, &reason)
            || story.great == Great::Restore && ENDS_AFTER_RESTORE.contains(&reason.as_str());
        let done = object["status"]["ready"] == true || given_up;
        (!done).then(|| format!("{name} is not ready: {reason}: {message}"))
    };
    if let Some(why) = world.originals().iter().find_map(of_machine).or_else(|| people::unsettled(world)) {
        return Some(why);
    }
    if let Some(why) = maintenance::unsettled(world) {
        return Some(why);
    }
    let object = world.port.object("MaasCluster", &cluster_key()).unwrap();
    if let Some(owed) = vms::owed(&object) {
        return Some(format!("the cluster still owes {owed}"));
    }
    if object["status"]["ready"] != true {
        let (reason, message) = condition(&object, "Ready");
        return Some(format!("the cluster is not ready: {reason}: {message}"));
    }
    if endpoint == Endpoint::Users { None } else { law::unsettled_name(world) }
}

/// A settled world writes nothing, neither to MAAS nor to Kubernetes. One seed in four waits that long.
async fn idle(world: &mut World) {
    let all_run = world.originals().iter().all(|object| object["status"]["ready"] == true);
    if !all_run || !world.seed.is_multiple_of(4) {
        return;
    }
    let versions = |world: &World| -> BTreeSet<String> {
        let objects = ["MaasCluster", "MaasMachine"].into_iter().flat_map(|kind| world.port.objects(kind));
        objects.map(|object| format!("{} {}", key(&object), object["metadata"]["resourceVersion"])).collect()
    };
    let (before, asked) = (versions(world), world.maas.control().ledger(None).len());
    world.run_for(1000).await;
    let since = world.maas.control().ledger(None).split_off(asked);
    let writes = since.iter().filter(|entry| entry.method != "GET");
    let written: Vec<String> = writes.map(|entry| format!("{} {}", entry.method, entry.path)).collect();
    let after = versions(world);
    if !written.is_empty() || after != before {
        let changed: Vec<&String> = after.difference(&before).collect();
        world.fail(&format!("writes although nothing changes: {written:?}, {changed:?}"));
    }
}

/// The cluster is deleted: its machines first, or everything at once.
async fn delete(world: &mut World, story: &Story) {
    let at_once = world.chance.percent(50);
    world.tell(format!("everything is deleted, at once: {at_once}"));
    if at_once {
        world.port.delete("MaasCluster", &cluster_key());
    }
    for key in world.keys("MaasMachine") {
        world.port.delete("MaasMachine", &key);
    }
    for _ in 0..24 {
        world.run_for(600).await;
        if story.great == Great::Restore {
            abandon(world);
        }
        if story.great == Great::OtherUser {
            gives_the_earlier_credentials_back(world);
        }
        if world.cast == Cast::Vms {
            maintenance::give_up(world);
        }
        if world.keys("MaasMachine").is_empty() {
            for key in world.keys("MaasCluster") {
                world.port.delete("MaasCluster", &key);
            }
        }
        if world.subjects().is_empty() {
            return;
        }
    }
    world.fail("what was deleted stays for ever");
}

/// A restored MAAS may report live nodes in any state; a person who has checked them abandons them by ID (S14).
fn abandon(world: &World) {
    for object in world.originals().into_iter().filter(is_leaving) {
        let (reason, message) = condition(&object, "MachineDeployed");
        // Another object claims a machine that the restored MAAS has allocated again.
        let named = message.split_once(&format!("{ABANDON_ANNOTATION}: ")).map(|(_, id)| id.to_owned());
        let surplus = named.filter(|_| message.contains("another MaasMachine claims it"));
        if let Some(id) = surplus.or_else(|| held(&object).filter(|_| reason == reasons::NOT_OUR_MACHINE)) {
            let key = capmaas_manager::kubernetes::Key::new("default", object["metadata"]["name"].as_str().unwrap());
            let note = json!({ "metadata": { "annotations": { ABANDON_ANNOTATION: id } } });
            world.port.edit("MaasMachine", &key, &note).unwrap();
        }
    }
}

/// Every machine with an owner in MAAS is held by an object here; all others are free and off.
fn nothing_leaked(world: &World, story: &Story) {
    foreign_is_untouched(world);
    let rivals = world.port.objects("MaasMachine").into_iter().filter(is_namesake);
    let held: BTreeSet<String> =
        world.originals().into_iter().chain(rivals).filter_map(|object| held(&object)).collect();
    for (id, machine) in world.inventory() {
        if machine.hostname == vms::FOREIGN {
            continue;
        }
        if machine.owner == Some(bob(world)) || held.contains(&id) || story.excuses(&id) || vms::is_host(&machine) {
            continue;
        }
        let on = machine.on && !world.ledgers.untold.contains(&id);
        if machine.is_vm || machine.owner.is_some() || on || machine.state != "Ready" {
            world.fail(&format!("{id} is leaked: {machine:?}"));
        }
    }
    if world.cast == Cast::Vms {
        vms::nothing_left(world);
    }
}

pub(crate) fn bob(world: &World) -> i64 {
    world.maas.control().with_model(|model| {
        let found = model.db.users.values().find(|user| user.name == "bob");
        found.map(|user| user.id).unwrap()
    })
}

fn foreign_is_untouched(world: &World) {
    let of_bob = world.inventory().into_values().find(|machine| machine.hostname == "of-bob");
    match of_bob {
        Some(machine) if machine.state == "Deployed" && machine.owner == Some(bob(world)) => {}
        other => world.fail(&format!("bob's machine was touched: {other:?}")),
    }
}
