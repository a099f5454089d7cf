//! A plan and a MAAS agree: what a plan predicts for machines and VMs is what a MAAS allocates for the same
//! constraints, and planning against a MAAS started from an exported inventory gives the same result as against the
//! original.
#![allow(clippy::unwrap_used, clippy::expect_used, clippy::panic)]

use std::collections::{BTreeMap, BTreeSet};

use capmaas_core::forecast::{Action, Forecast, Group, Role, Server, forecast};
use capmaas_core::intent::{Intent, Metal, Vm};
use capmaas_core::machine::Constraints;
use capmaas_core::placement::{Demand, Sibling, place};
use jiff::Timestamp;
use kubectl_maas::inventory::{self, Addresses, Inventory};
use maas_client::transport::in_process;
use maas_client::{Allocate, Client, Compose, ComposeDisk, ErrorKind, RetryPolicy};
use maas_sim::Simulator;
use maas_sim::config::{Config, TimeMode};
use maas_sim::model::statement::Statement;
use proptest::prelude::*;
use serde_json::{Value, json};

const KEY: &str = "consumer:token:secret";
const ZONES: [&str; 3] = ["default", "az1", "az2"];
const POOLS: [&str; 2] = ["default", "pool-a"];
const TAGS: [&str; 3] = ["gpu", "nvme", "capmaas-quarantine-2026-11-15"];

fn now() -> Timestamp {
    "2026-11-15T09:00:00Z".parse().unwrap()
}

fn simulator() -> Simulator {
    Simulator::new(Config { time: TimeMode::Driven, ..Config::new(KEY.parse().unwrap()) })
}

fn client(simulator: &Simulator) -> Client {
    let transport = in_process(simulator.router(), 64 << 20);
    Client::builder("http://sim.test/MAAS", KEY).transport(transport).retry(RetryPolicy::never()).build().unwrap()
}

fn arrange(simulator: &Simulator, statements: Vec<Value>) {
    let statements: Vec<Statement> = statements.into_iter().map(|it| serde_json::from_value(it).unwrap()).collect();
    simulator.control().arrange(&statements).unwrap();
}

/// The common part of every data centre here.
fn base() -> Vec<Value> {
    vec![
        json!({"user": {"name": "alice"}}),
        json!({"zone": {"name": "az1"}}),
        json!({"zone": {"name": "az2"}}),
        json!({"pool": {"name": "pool-a"}}),
        json!({"tag": {"name": "gpu"}}),
        json!({"tag": {"name": "nvme"}}),
        json!({"subnet": {"cidr": "192.0.2.0/24", "gateway_ip": "192.0.2.1", "dhcp": true, "name": "racks"}}),
        json!({"ip_range": {"type": "dynamic", "start_ip": "192.0.2.200", "end_ip": "192.0.2.250"}}),
    ]
}

fn one_of(names: &'static [&'static str]) -> impl Strategy<Value = &'static str> {
    proptest::sample::select(names)
}

prop_compose! {
    fn machine()(
        zone in one_of(&ZONES), pool in one_of(&POOLS), cores in 1..4i64, memory in 1..4i64,
        disks in proptest::collection::vec(1..4i64, 1..3), tags in proptest::sample::subsequence(&TAGS[..], 0..3),
        status in one_of(&["Ready", "Ready", "Ready", "Deployed", "Broken", "New", "Releasing"]),
    ) -> Value {
        let disks: Vec<i64> = disks.iter().map(|size| size * 100_000_000_000).collect();
        let owner = matches!(status, "Deployed" | "Releasing").then_some("alice");
        json!({"zone": zone, "pool": pool, "cpu_count": cores, "memory": memory * 4096, "disks": disks, "tags": tags,
               "status": status, "owner": owner})
    }
}

prop_compose! {
    fn metal()(
        zone in proptest::option::of(one_of(&ZONES)), pool in proptest::option::of(one_of(&POOLS)),
        min_cpu in proptest::option::of(1..4u32), memory in proptest::option::of(1..4u32), disk in proptest::option::of(1..4u32),
        tags in proptest::sample::subsequence(&TAGS[..2], 0..2),
    ) -> Metal {
        Metal {
            min_cpu, min_memory: memory.map(|it| it * 4096), min_disk: disk.map(|it| it * 100),
            tags: tags.iter().map(|tag| (*tag).to_owned()).collect(),
            pool: pool.map(str::to_owned), zone: zone.map(str::to_owned), image: "jammy".into(), ..Metal::default()
        }
    }
}

prop_compose! {
    fn host()(
        zone in one_of(&ZONES), pool in one_of(&POOLS), tags in proptest::sample::subsequence(&TAGS[..2], 0..=2),
        cores in 1..9i64, memory in 1..9i64, disk in 1..9i64, ratio in 1..4u8,
        used in proptest::collection::vec((1..3i64, 1..3i64, 1..3i64), 0..3),
    ) -> (Value, Value, Vec<Value>) {
        let lxd = json!({"cores": cores, "memory": memory * 2048,
                         "storage_pools": [{"name": "default", "total": disk * 50_000_000_000}]});
        let host = json!({"zone": zone, "pool": pool, "tags": tags, "cpu_over_commit_ratio": f64::from(ratio) / 2.0, "memory_over_commit_ratio": 1.5});
        let vms = used.iter().map(|(cores, memory, disk)| {
            json!({"cpu_count": cores, "memory": memory * 1024, "disks": [{"size": disk * 10_000_000_000, "pool": "default"}],
                   "status": "Deployed", "owner": "alice", "zone": zone})
        });
        (lxd, host, vms.collect())
    }
}

prop_compose! {
    fn vm()(
        zone in proptest::option::weighted(0.3, one_of(&ZONES)), pool in proptest::option::weighted(0.3, one_of(&POOLS)),
        tags in prop_oneof![3 => Just(vec![]), 1 => proptest::sample::subsequence(&TAGS[..2], 1..=2)],
        cores in 1..4u32, memory in 1..4u32, disk in 1..4u32,
    ) -> Vm {
        Vm {
            cores, memory: memory * 1024, disk: disk * 20, image: "jammy".into(),
            tags: tags.iter().map(|tag| (*tag).to_owned()).collect(),
            pool: pool.map(str::to_owned), zone: zone.map(str::to_owned), ..Vm::default()
        }
    }
}

/// The host that the manager would choose for another VM, as MAAS is now.
async fn chosen(client: &Client, vm: &Vm, siblings: &[Sibling]) -> Option<Sibling> {
    let now = inventory::view(&inventory::read(client, Addresses::MadeUp).await.unwrap());
    let demand = Demand { vm, zone: vm.zone.as_deref(), failed: &BTreeSet::new() };
    let choice = place(&demand, &now.hosts, &[], siblings).choice.ok()?;
    Some(Sibling { host: Some(choice.host), zone: choice.zone.map(|zone| zone.name) })
}

fn with(mut object: Value, more: &Value) -> Value {
    for (key, value) in more.as_object().unwrap() {
        object[key] = value.clone();
    }
    object
}

/// A data centre with these machines and hosts.
fn arranged(machines: &[Value], hosts: &[(Value, Value, Vec<Value>)]) -> Simulator {
    let simulator = simulator();
    let mut statements = base();
    for (index, machine) in machines.iter().enumerate() {
        statements.push(json!({"machine": with(machine.clone(), &json!({"hostname": format!("bm{index}")}))}));
    }
    for (index, (lxd, host, vms)) in hosts.iter().enumerate() {
        let address = format!("192.0.2.{}:8443", 100 + index);
        statements.push(json!({"machine": {"hostname": format!("host{index}"), "status": "Deployed", "owner": "admin",
                                           "zone": host["zone"]}}));
        let lxd = with(lxd.clone(), &json!({"address": address, "host": format!("host{index}")}));
        statements.push(json!({"lxd": lxd}));
        let host = with(host.clone(), &json!({"name": format!("h{index}"), "power_address": address}));
        statements.push(json!({"vm_host": host}));
        for (number, vm) in vms.iter().enumerate() {
            let more = json!({"hostname": format!("vm{index}-{number}"), "vm_host": format!("h{index}")});
            statements.push(json!({"machine": with(vm.clone(), &more)}));
        }
    }
    arrange(&simulator, statements);
    simulator
}

fn planned(inventory: &Inventory, intent: Intent, replicas: usize) -> Forecast {
    let group = Group {
        cluster: "default/c".into(),
        name: "md".into(),
        role: Role::Workers,
        replicas,
        intent: Ok(intent),
        failure_domain: None,
        failure_domains: Vec::new(),
        surge: 1,
        unavailable: 0,
        rolls: true,
        members: Vec::new(),
    };
    forecast(&inventory::view(inventory), &[group], now())
}

/// Constraints as the manager sends them.
fn allocation(constraints: &Constraints) -> Allocate {
    Allocate {
        min_cpu_count: constraints.min_cpu,
        min_memory_mib: constraints.min_memory,
        tags: constraints.tags.clone(),
        not_tags: constraints.not_tags.clone(),
        zone: constraints.zone.clone(),
        pool: constraints.pool.clone(),
        storage: constraints.min_disk.map(|gigabytes| format!("root:{gigabytes}")),
        ..Allocate::metal()
    }
}

fn block_on<T>(future: impl Future<Output = T>) -> T {
    tokio::runtime::Builder::new_current_thread().enable_all().build().unwrap().block_on(future)
}

proptest! {
    #![proptest_config(ProptestConfig::with_cases(96))]

    #[test]
    fn maas_hands_out_exactly_the_machines_that_the_plan_names(
        machines in proptest::collection::vec(machine(), 0..40), metal in metal()
    ) {
        let simulator = arranged(&machines, &[]);
        let client = client(&simulator);
        let (named, handed_out) = block_on(async {
            let inventory = inventory::read(&client, Addresses::Kept).await.unwrap();
            let answer = planned(&inventory, Intent::Metal(metal.clone()), 20);
            let named: Vec<String> = answer.steps.iter().filter_map(|step| match &step.action {
                Action::Create(Server::Metal { id, .. }) => Some(id.clone()),
                _ => None,
            }).collect();
            let wanted = allocation(&Constraints::of(&metal, None, now()));
            let mut handed_out = Vec::new();
            loop {
                match client.machines().allocate(&wanted).await {
                    Ok(machine) => handed_out.push(machine.system_id),
                    Err(error) => {
                        assert_eq!(error.kind(), ErrorKind::NoMatch, "{error}");
                        break;
                    }
                }
            }
            (named, handed_out)
        });
        prop_assert_eq!(named, handed_out, "in this order: the cheapest first");
    }

    #[test]
    fn each_vm_is_composed_on_the_host_that_the_plan_names_and_the_manager_chooses(
        hosts in proptest::collection::vec(host(), 0..5), vm in vm()
    ) {
        let simulator = arranged(&[], &hosts);
        let client = client(&simulator);
        block_on(async {
            let inventory = inventory::read(&client, Addresses::MadeUp).await.unwrap();
            let answer = planned(&inventory, Intent::Vm(Box::new(vm.clone())), 30);
            let compose = |host: i64| {
                let client = client.clone();
                let disk = ComposeDisk { label: "root".into(), gigabytes: vm.disk, pool: Some("default".into()) };
                let request =
                    Compose { cores: Some(vm.cores), memory_mib: Some(vm.memory), disks: vec![disk], ..Compose::default() };
                async move { client.vm_hosts().compose(host, &request).await }
            };
            let mut siblings = Vec::new();
            for step in &answer.steps {
                if let Action::Create(Server::Vm(placement)) = &step.action {
                    let named = placement.choice.as_ref().unwrap();
                    let sibling = chosen(&client, &vm, &siblings).await.unwrap();
                    assert_eq!(sibling.host, Some(named.host), "{} is planned on {}", step.machine, named.name);
                    compose(named.host).await.unwrap_or_else(|error| panic!("on {}: {error}", named.name));
                    siblings.push(sibling);
                }
            }
            assert!(!answer.fits(), "no host has room for thirty");
            assert!(chosen(&client, &vm, &siblings).await.is_none(), "the plan says that no host is left");
            let suits = |host: &maas_client::VmHost| {
                let is = |wanted: &Option<String>, has: Option<&String>| wanted.as_ref().is_none_or(|it| Some(it) == has);
                is(&vm.zone, host.zone.as_ref().map(|zone| &zone.name))
                    && is(&vm.pool, host.pool.as_ref().map(|pool| &pool.name))
                    && vm.tags.iter().all(|tag| host.tags.contains(tag))
            };
            for host in client.vm_hosts().list().await.unwrap().iter().filter(|host| suits(host)) {
                assert!(compose(host.id).await.is_err(), "the plan says that {:?} is full", host.name);
            }
        });
    }

    #[test]
    fn a_maas_that_is_started_from_an_export_is_planned_against_alike(
        machines in proptest::collection::vec(machine(), 0..8), hosts in proptest::collection::vec(host(), 0..3)
    ) {
        let simulator = arranged(&machines, &hosts);
        let original = client(&simulator);
        block_on(async {
            let exported = inventory::read(&original, Addresses::MadeUp).await.unwrap();
            let text = exported.to_yaml().unwrap();
            assert_eq!(Inventory::parse(&text).unwrap(), exported);
            assert!(!text.contains("192.0.2") && !text.contains("secret") && !text.contains("PRIVATE KEY"), "{text}");
            let rehearsal = self::simulator();
            let loaded = maas_sim::model::inventory::Inventory::parse(&text).unwrap();
            rehearsal.control().load(&loaded).unwrap_or_else(|error| panic!("{error}\n{text}"));
            let again = inventory::read(&client(&rehearsal), Addresses::MadeUp).await.unwrap();
            let by_id = |inventory: &Inventory| {
                let view = inventory::view(inventory);
                let machines: BTreeMap<_, _> = view.machines.into_iter().map(|it| (it.id.clone(), it)).collect();
                let hosts: BTreeMap<_, _> = view.hosts.into_iter().map(|it| (it.id, it)).collect();
                (machines, hosts)
            };
            let (ours, theirs) = (by_id(&exported), by_id(&again));
            assert_eq!(ours.0, theirs.0);
            assert_eq!(ours.1, theirs.1);
        });
    }
}

#[test]
fn an_export_holds_networks_only_when_asked() {
    let simulator = arranged(&[], &[]);
    let read = |addresses| block_on(inventory::read(&client(&simulator), addresses)).unwrap();
    let kept = read(Addresses::Kept);
    assert_eq!(kept.subnets[0].cidr, "192.0.2.0/24");
    assert_eq!(kept.ip_ranges[0].start_ip, "192.0.2.200");
    let made_up = read(Addresses::MadeUp);
    assert_eq!((made_up.subnets[0].cidr.as_str(), made_up.subnets[0].name.as_deref()), ("10.0.0.0/20", Some("racks")));
}
