//! The most frequently run pure functions, as often as requested: `hot NAME TIMES`. `xtask instructions` (`make
//! bench-check`) runs this under valgrind and takes the difference of two runs, so that one-time costs do not count.

use std::collections::{BTreeMap, BTreeSet};
use std::hint::black_box;
use std::process::ExitCode;

use capmaas_core::Lookup;
use capmaas_core::hosts::leaving::AsHost;
use capmaas_core::intent::Vm;
use capmaas_core::maas;
use capmaas_core::maas::{Power, State};
use capmaas_core::machine::{
    Access, Allocation, ClusterFacts, Format, HeldElsewhere, JOURNAL_ANNOTATION, Journal, Observed, ObservedNode,
    ObservedVm, decide,
};
use capmaas_core::placement::{Demand, Host, HostMachine, Named, Port, Room, StoragePool, SubnetRef, place};
use serde_json::json;

const MACHINE: &[u8] = include_bytes!("machine.json");

fn main() -> ExitCode {
    let arguments: Vec<String> = std::env::args().skip(1).collect();
    let [name, times] = arguments.as_slice() else { return usage() };
    let Ok(times) = times.parse::<u32>() else { return usage() };
    let done = match name.as_str() {
        "placement" => placement(times),
        "decide" => decisions(times),
        "decode" => decoding(times),
        _ => return usage(),
    };
    match done {
        Ok(()) => ExitCode::SUCCESS,
        Err(error) => {
            eprintln!("{error:#}");
            ExitCode::FAILURE
        }
    }
}

fn usage() -> ExitCode {
    eprintln!("hot placement|decide|decode TIMES");
    ExitCode::FAILURE
}

/// A VM is placed on one of a thousand hosts.
fn placement(times: u32) -> anyhow::Result<()> {
    let hosts: Vec<Host> = (0..1000).map(host).collect();
    let vm = Vm { cores: 4, memory: 8192, disk: 60, image: "ubuntu/jammy".into(), ..Vm::default() };
    let failed = BTreeSet::new();
    for _ in 0..times {
        let demand = Demand { vm: black_box(&vm), zone: None, failed: &failed };
        let placement = place(&demand, black_box(&hosts), &[], &[]);
        anyhow::ensure!(black_box(placement).choice.is_ok(), "no host was chosen");
    }
    Ok(())
}

fn host(id: i64) -> Host {
    let zone = id % 3;
    let subnet = SubnetRef { name: "front".into(), cidr: "10.0.0.0/24".into() };
    Host {
        id,
        name: format!("host-{id}"),
        system_id: Some(format!("sys{id}")),
        zone: Some(Named { id: zone, name: format!("az{zone}") }),
        pool: Some(Named { id: 1, name: "vms".into() }),
        tags: BTreeSet::new(),
        project: Lookup::Found("maas".into()),
        reached: true,
        total: Room { cores: 64, memory: 262_144 },
        free: Room { cores: id % 64, memory: 262_144 - id * 100 },
        pools: vec![StoragePool { name: "default".into(), free: 1_000_000_000_000, default: true }],
        ports: Some(vec![Port { name: "br0".into(), bridge: true, boot: true, vlan: 1, subnets: vec![subnet] }]),
        profiles: None,
        departing: false,
        machine: Lookup::Found(HostMachine { state: State::Deployed, power: Power::On, tags: BTreeSet::new() }),
    }
}

/// The decision about a running machine: the most frequent one.
fn decisions(times: u32) -> anyhow::Result<()> {
    let record = Journal { allocation: Some(Allocation::of("abc123")), ..Journal::new("uid-1") };
    let object = json!({
        "apiVersion": "infrastructure.cluster.x-k8s.io/v1beta1", "kind": "MaasMachine",
        "metadata": {
            "name": "m", "namespace": "n", "uid": "uid-1", "generation": 1,
            "finalizers": ["maasmachine.infrastructure.cluster.x-k8s.io"],
            "annotations": BTreeMap::from([(JOURNAL_ANNOTATION, record.text())]),
        },
        "spec": {"image": "ubuntu/jammy", "minCPU": 2, "minMemory": 4096, "providerID": "maas://az1/abc123",
                 "systemID": "abc123"},
        "status": {"ready": true, "machineState": "Deployed", "initialization": {"provisioned": true}},
    });
    let metal = maas::Machine {
        id: "abc123".into(),
        state: State::Deployed,
        state_name: "Deployed".into(),
        power: Power::On,
        owner: Some("admin".into()),
        stamp: Some(record.key.clone()),
        stamped_for: None,
        hostname: "bm1".into(),
        fqdn: "bm1.maas".into(),
        addresses: vec!["10.0.0.7".into()],
        zone: "az1".into(),
        locked: false,
        in_maintenance: Lookup::Found(false),
        swap_off: true,
        network: capmaas_core::hosts::bridge::Network { boot: None, interfaces: Vec::new() },
        vm_host: None,
        tags: Vec::new(),
        last_message: String::new(),
        without_dhcp: None,
    };
    let others = (0..1000).map(|id| format!("sys{id}")).collect();
    let mut observed = Observed {
        object: serde_json::from_value(object)?,
        journal: Ok(None),
        cluster: Lookup::Found(serde_json::from_value(json!({"spec": {}, "status": {"infrastructureReady": true}}))?),
        machine: Lookup::Found(serde_json::from_value(json!({
            "spec": {"bootstrap": {"dataSecretName": "s"}, "failureDomain": "az1"},
            "status": {"nodeRef": {"name": "bm1"}},
        }))?),
        maas_cluster: Lookup::Found(ClusterFacts { keeps_dns: true, bridge: Ok(None) }),
        bootstrap: Lookup::Found(Format::CloudConfig { ends_swap: false }),
        held_elsewhere: HeldElsewhere { machines: others, ..HeldElsewhere::default() },
        access: Access::Granted { name: "http://maas#admin".into(), user: "admin".into(), identity_changed: false },
        by_key: Lookup::Found(vec![metal.clone()]),
        in_journal: Lookup::Found(metal),
        surplus: Vec::new(),
        power: None,
        in_dns: Lookup::Absent,
        node: ObservedNode::NotAsked,
        vm: ObservedVm::default(),
        links: Lookup::Absent,
        debts: Lookup::Found(Vec::new()),
        as_host: AsHost::NoHost,
    };
    let now = "2026-11-15T12:00:00Z".parse()?;
    for _ in 0..times {
        observed.journal = Journal::read(observed.object.metadata.annotations.as_ref());
        let plan = decide(black_box(&observed), now);
        anyhow::ensure!(black_box(plan).effect.is_none(), "a machine that runs needs nothing");
    }
    Ok(())
}

/// Decodes a machine as MAAS describes it.
fn decoding(times: u32) -> anyhow::Result<()> {
    for _ in 0..times {
        let machine: maas_client::Machine = serde_json::from_slice(black_box(MACHINE))?;
        anyhow::ensure!(!black_box(machine).system_id.is_empty(), "the machine has no id");
    }
    Ok(())
}
