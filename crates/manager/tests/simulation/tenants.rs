//! Others next to the first tenant: one with its own MAAS and identity, and a cluster that claims the first one's name.

use capmaas_api::names::CLUSTER_FINALIZER;
use capmaas_manager::kubernetes::Key;
use maas_sim::Config;
use maas_sim::faults::ServerState;
use serde_json::{Value, json};

use crate::chance::Chance;
use crate::chaos::ENDS;
use crate::objects::{Endpoint, HOME, Home, cluster, cluster_key, create, machine};
use crate::sight::{condition, inventory};
use crate::story::Great;
use crate::torments::Torment;
use crate::world::World;

/// The second tenant's.
const THEIRS: Home = Home { namespace: "tenant", cluster: "c2" };
/// A cluster with the first one's name, in the same MAAS.
const NAMESAKE: Home = Home { namespace: "namesake", cluster: HOME.cluster };
const THEIR_KEY: &str = "ct:tt:CANARYtheirs";

pub(crate) fn is_theirs(key: &Key) -> bool {
    key.namespace == THEIRS.namespace
}

pub(crate) fn is_namesake(object: &Value) -> bool {
    object["metadata"]["namespace"] == NAMESAKE.namespace
}

/// The second tenant's MAAS: its machines have their own IDs, or the first one's, as in a clone.
pub(crate) fn config(first: Config) -> Config {
    if Torment::ClonedIds.is_on() && first.seed.is_multiple_of(2) {
        return first;
    }
    Config { seed: first.seed ^ 0x5eed, ..first }
}

/// Which others there are, and when.
pub(crate) struct HeldElsewhere {
    /// The round in which each appears.
    tenant: Option<u64>,
    namesake: Option<u64>,
    /// The round from which the second tenant's MAAS hangs.
    hangs: Option<u64>,
}

impl HeldElsewhere {
    pub(crate) fn of(seed: u64, great: Great, rounds: u64) -> Self {
        let mut chance = Chance::new(seed ^ 0x7e4a_4175);
        let mut at = |torment: Torment, percent| {
            let (comes, when) = (chance.percent(percent), chance.below(rounds - 4));
            (comes && torment.is_on()).then_some(when)
        };
        let tenant = at(Torment::Tenants, 50);
        let hangs = at(Torment::Hanging, 60).filter(|_| tenant.is_some());
        // A cluster that never did anything may start in an empty MAAS.
        let namesake = at(Torment::Namesakes, 40).filter(|_| great != Great::EmptyMaas);
        Self { tenant, namesake, hangs }
    }

    pub(crate) fn go_on(&mut self, world: &mut World, round: u64) {
        if self.tenant == Some(round) {
            tenant_comes(world);
        }
        if self.hangs == Some(round) {
            world.tell("the second tenant's MAAS hangs".to_owned());
            world.theirs.control().set_server(ServerState::Silent);
            world.hangs = true;
        }
        if self.namesake.is_some_and(|from| from <= round) && namesake_comes(world, self.hangs.is_none()) {
            self.namesake = None;
        }
    }
}

/// The second tenant's MAAS answers again.
pub(crate) fn heal(world: &mut World) {
    world.theirs.control().set_server(ServerState::Up);
    world.hangs = false;
}

fn tenant_comes(world: &mut World) {
    world.tell("a second tenant comes".to_owned());
    let statements = json!([
        {"user": {"name": "them", "admin": true, "key": THEIR_KEY}},
        {"zone": {"name": "az1"}}, {"image": {"name": "ubuntu/jammy"}},
        {"fabric": {"name": "fabric-0", "id": 0}}, {"vlan": {"fabric": "fabric-0", "vid": 0, "dhcp_on": true}},
        {"subnet": {"cidr": "10.7.0.0/24", "gateway_ip": "10.7.0.254", "dns_servers": ["10.7.0.1"]}},
        {"machine": {"hostname": "bm0", "status": "Ready", "zone": "az1", "cpu_count": 4, "memory": 8192}},
        {"machine": {"hostname": "bm1", "status": "Ready", "zone": "az1", "cpu_count": 4, "memory": 8192}},
    ]);
    let statements: Vec<_> = serde_json::from_value(statements).unwrap();
    world.theirs.control().arrange(&statements).unwrap();
    let data = json!({ "apiKey": THEIR_KEY, "maasEndpoint": world.their_endpoint() });
    let metadata = json!({ "name": "maas", "namespace": THEIRS.namespace });
    create(world, json!({ "apiVersion": "v1", "kind": "Secret", "metadata": metadata, "stringData": data }));
    cluster(world, THEIRS, Endpoint::Ours, &json!({ "identityRef": { "name": "maas" } }));
    machine(world, THEIRS, "t0", None, true, &json!({}));
    machine(world, THEIRS, "t1", None, false, &json!({}));
}

/// Somebody creates a cluster from an exported manifest, with the endpoint left in. Not before there is one.
fn namesake_comes(world: &mut World, with_finalizer: bool) -> bool {
    let Some(first) = world.port.object("MaasCluster", &cluster_key()) else { return false };
    let endpoint = &first["spec"]["controlPlaneEndpoint"];
    if endpoint["host"].as_str().is_none_or(|host| host.rsplit('.').next() != Some("maas")) {
        return false;
    }
    world.tell("another cluster claims the name".to_owned());
    cluster(world, NAMESAKE, Endpoint::Ours, &json!({ "controlPlaneEndpoint": endpoint }));
    if with_finalizer {
        let finalizer = json!({ "metadata": { "finalizers": [CLUSTER_FINALIZER] } });
        world.port.edit("MaasCluster", &NAMESAKE.cluster_key(), &finalizer).unwrap();
    }
    machine(world, NAMESAKE, "rival", None, true, &json!({}));
    true
}

/// Why the second tenant has not settled.
pub(crate) fn unsettled(world: &World) -> Option<String> {
    let objects = ["MaasCluster", "MaasMachine"].into_iter().flat_map(|kind| world.port.objects(kind));
    let mut theirs = objects.filter(|object| object["metadata"]["namespace"] == THEIRS.namespace);
    // If the clock was ahead, a deployment may have seemed to take too long, and a failed machine is quarantined for a
    // day.
    let given_up = |object: &Value| ENDS.contains(&condition(object, "MachineDeployed").0.as_str());
    let late = theirs.find(|object| object["status"]["ready"] != true && !given_up(object))?;
    let (reason, message) = condition(&late, "Ready");
    let (other, words) = condition(&late, "MachineDeployed");
    let name = late["metadata"]["name"].as_str().unwrap();
    Some(format!("the second tenant's {name} is not ready: {reason}: {message} {other}: {words}"))
}

/// Once everything is deleted: nothing is left in the second tenant's MAAS either.
pub(crate) fn nothing_left(world: &World) {
    for (id, machine) in inventory(&world.theirs) {
        if machine.owner.is_some() || machine.on || machine.state != "Ready" {
            world.fail(&format!("{id} is leaked in the second tenant's MAAS: {machine:?}"));
        }
    }
    let names = world.theirs.control().with_model(|model| model.db.dns.len());
    if names > 0 {
        world.fail("a record is left in the second tenant's MAAS");
    }
}
