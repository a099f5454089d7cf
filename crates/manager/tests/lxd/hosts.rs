//! `LxdHosts`: MAAS's answers become hosts, and concurrent choices do not collide.

use std::collections::{BTreeMap, BTreeSet};
use std::sync::Arc;

use capmaas_api::MaasMachine;
use capmaas_api::lxd_error::LxdErrorKind;
use capmaas_core::Lookup;
use capmaas_core::intent::Vm;
use capmaas_core::machine::JOURNAL_ANNOTATION;
use capmaas_core::placement::{Demand, Placement};
use capmaas_manager::clock::Clock;
use capmaas_manager::identity::{
    Connect, Credentials, EnvironmentCredentials, Identities, Identity, MemoryCredentialCopies, Settings,
};
use capmaas_manager::kubernetes::MemoryKubernetes;
use capmaas_manager::lxd_hosts::{LxdHosts, Objects, Report};
use capmaas_manager::machine_index::MachineIndex;
use jiff::{SignedDuration, Timestamp};
use maas_client::{Compose, ComposeDisk};
use maas_sim::Simulator;
use serde_json::json;

use crate::{ADMIN, arrange, client_of, maas};

const ALICE: &str = "ck:tk:CANARYalice";
const PRIVATE: &str = "-----BEGIN PRIVATE KEY-----CANARYhostkey";

fn now() -> Timestamp {
    Timestamp::from_second(1_794_772_800).unwrap()
}

/// Seven hosts of 16 cores and 64 GiB in three zones.
fn seven() -> Simulator {
    let maas = maas();
    arrange(&maas, json!([{"user": {"name": "alice", "admin": false, "key": ALICE}}]));
    for number in 1..=7 {
        host(&maas, number, 16);
    }
    maas
}

fn host(maas: &Simulator, number: u32, cores: u32) {
    let (name, address, zone) =
        (format!("host{number}"), format!("10.0.0.{}:8443", 10 + number), format!("az{}", number % 3));
    let project = if number == 7 { "other" } else { "maas" };
    let pools = json!([{"name": "default", "driver": "dir", "total": 900_000_000_000_i64}]);
    arrange(
        maas,
        json!([
            {"zone": {"name": zone}},
            {"machine": {"system_id": format!("host{number}x"), "hostname": name, "status": "Deployed", "owner": "admin", "power": "on", "zone": zone}},
            {"lxd": {"address": address, "cores": cores, "memory": 65536, "host": name, "storage_pools": pools}},
            {"vm_host": {"name": name, "power_address": address, "project": project, "zone": zone, "certificate": "PEM", "key": PRIVATE}},
        ]),
    );
}

async fn identity(maas: &Simulator, key: &'static str) -> Identity {
    let (clock, _driver) = Clock::driven(now());
    let kubernetes = Arc::new(MemoryKubernetes::new(clock.clone()));
    let maas = maas.clone();
    let connect: Connect = Arc::new(move |_: &Credentials| Ok(client_of(&maas, key)));
    let settings = Settings {
        namespace: "capmaas-system".into(),
        environment: EnvironmentCredentials::new("http://maas.test:5240/MAAS", key),
        ..Settings::default()
    };
    Identities::new(kubernetes, Arc::new(MemoryCredentialCopies::default()), clock, settings, connect)
        .of_manager()
        .await
        .unwrap()
}

fn object(name: &str) -> MaasMachine {
    serde_json::from_value(json!({
        "apiVersion": "infrastructure.cluster.x-k8s.io/v1beta1", "kind": "MaasMachine",
        "metadata": { "name": name, "namespace": "default", "uid": format!("uid-{name}"),
            "labels": { "cluster.x-k8s.io/cluster-name": "c1", "cluster.x-k8s.io/control-plane": "" } },
        "spec": { "dynamicLXD": true, "image": "ubuntu/jammy", "minCPU": 2, "minMemory": 4096 },
    }))
    .unwrap()
}

fn vm() -> Vm {
    Vm { cores: 2, memory: 4096, disk: 20, image: "ubuntu/jammy".into(), ..Vm::default() }
}

async fn place(hosts: &LxdHosts, identity: &Identity, vm: &Vm, name: &str, at: Timestamp) -> Placement {
    let (failed, object) = (BTreeSet::new(), object(name));
    let demand = Demand { vm, zone: vm.zone.as_deref(), failed: &failed };
    placed(hosts.place(identity, at, &demand, &object, objects(&nothing(), &MachineIndex::default())).await)
}

/// Kubernetes without any object.
fn nothing() -> MemoryKubernetes {
    MemoryKubernetes::new(Clock::driven(now()).0)
}

fn objects<'a>(kubernetes: &'a MemoryKubernetes, index: &'a MachineIndex) -> Objects<'a> {
    Objects { kubernetes, index }
}

fn placed(placement: Lookup<Placement>) -> Placement {
    match placement {
        Lookup::Found(placement) => placement,
        other => panic!("{other:?}"),
    }
}

#[tokio::test]
async fn go22_fifty_vms_that_are_placed_at_once_are_spread_from_one_list_and_fit() {
    let maas = seven();
    let (hosts, identity) = (LxdHosts::default(), identity(&maas, ADMIN).await);
    let vm = vm();
    let names: Vec<String> = (0..50).map(|number| format!("m{number}")).collect();
    let placements =
        futures::future::join_all(names.iter().map(|name| place(&hosts, &identity, &vm, name, now()))).await;
    let (mut on_host, mut in_zone) = (BTreeMap::<i64, u32>::new(), BTreeMap::<String, u32>::new());
    for placement in placements {
        let choice = placement.choice.unwrap();
        *on_host.entry(choice.host).or_default() += 1;
        *in_zone.entry(choice.zone.unwrap().name).or_default() += 1;
    }
    assert!(on_host.values().all(|count| *count * 2 <= 16), "{on_host:?}");
    let (most, least) = (in_zone.values().max().unwrap(), in_zone.values().min().unwrap());
    assert!(most - least <= 2, "as evenly as the room of two zones with two hosts allows: {in_zone:?}");
    assert_eq!(lists(&maas), 1, "one list for all");
    let full = place(&hosts, &identity, &Vm { cores: 16, ..vm }, "late", now()).await;
    assert_eq!(full.choice.unwrap_err().kind, LxdErrorKind::InsufficientResources);
}

/// How often the list of VM hosts was read from MAAS.
fn lists(maas: &Simulator) -> usize {
    let ledger = maas.control().ledger(None);
    ledger.iter().filter(|entry| entry.method == "GET" && entry.path.ends_with("/vm-hosts/")).count()
}

#[tokio::test]
async fn a_list_serves_for_seconds_and_is_read_again_after() {
    let maas = seven();
    let (hosts, identity) = (LxdHosts::default(), identity(&maas, ADMIN).await);
    for (name, seconds, expected) in [("m1", 0, 1), ("m2", 4, 1), ("m3", 6, 2)] {
        place(&hosts, &identity, &vm(), name, now() + SignedDuration::from_secs(seconds)).await;
        assert_eq!(lists(&maas), expected, "after {seconds} s");
    }
}

#[tokio::test]
async fn a_host_of_the_project_is_found_and_no_key_is_kept() {
    let maas = seven();
    let (hosts, identity) = (LxdHosts::default(), identity(&maas, ADMIN).await);
    let other = Vm { project: Some("other".into()), ..vm() };
    let choice = place(&hosts, &identity, &other, "m1", now()).await.choice.unwrap();
    assert_eq!((choice.name.as_str(), choice.project.as_deref()), ("host7", Some("other")));
    let none = Vm { project: Some("none".into()), ..vm() };
    let error = place(&hosts, &identity, &none, "m2", now()).await.choice.unwrap_err();
    assert_eq!(error.kind, LxdErrorKind::ProjectNotFound);
    assert!(!format!("{hosts:?}").contains("CANARY"), "s21: no key of a host is kept");
}

#[tokio::test]
async fn s01_a_project_that_only_an_administrator_may_know_is_not_another_project() {
    let maas = seven();
    let (hosts, identity) = (LxdHosts::default(), identity(&maas, ALICE).await);
    let wanted = Vm { project: Some("maas".into()), ..vm() };
    let error = place(&hosts, &identity, &wanted, "m1", now()).await.choice.unwrap_err();
    assert_eq!(error.kind, LxdErrorKind::HostUnavailable, "{error}");
}

#[tokio::test]
async fn a_profile_is_where_the_agent_reports_it() {
    let maas = seven();
    let (hosts, identity) = (LxdHosts::default(), identity(&maas, ADMIN).await);
    let wanted = Vm { profile: Some("maas".into()), ..vm() };
    let error = place(&hosts, &identity, &wanted, "m1", now()).await.choice.unwrap_err();
    assert_eq!(error.kind, LxdErrorKind::ProfileNotFound, "{error}");
    let report = Report { profiles: Some(BTreeSet::from(["maas".to_owned()])), ..Report::default() };
    hosts.reports.note(&identity, "host3x", Some(report.clone()), now());
    assert_eq!(place(&hosts, &identity, &wanted, "m1", now()).await.choice.unwrap().name, "host3");
    let later = now() + SignedDuration::from_mins(11);
    let error = place(&hosts, &identity, &wanted, "m1", later).await.choice.unwrap_err();
    assert_eq!(error.kind, LxdErrorKind::ProfileNotFound, "nobody has told for a while: {error}");
    let other = Vm { profile: Some("fast".into()), ..vm() };
    let has_it = Report { profiles: Some(BTreeSet::from(["fast".to_owned()])), ..report };
    hosts.reports.note(&identity, "host3x", Some(has_it), later);
    let error = place(&hosts, &identity, &other, "m1", later).await.choice.unwrap_err();
    assert_eq!(error.kind, LxdErrorKind::ProfileNotFound, "MAAS would make the VM without it: {error}");
}

#[tokio::test]
async fn two_managers_that_do_not_see_each_other_are_kept_apart_by_maas() {
    let maas = maas();
    for number in 1..=2 {
        host(&maas, number, 2);
    }
    let identity = identity(&maas, ADMIN).await;
    let (one, two) = (LxdHosts::default(), LxdHosts::default());
    let of_one = place(&one, &identity, &vm(), "a", now()).await.choice.unwrap();
    let of_two = place(&two, &identity, &vm(), "b", now()).await.choice.unwrap();
    assert_eq!(of_one.host, of_two.host, "both see the same");
    let compose = |name: &str| Compose {
        hostname: Some(name.into()),
        cores: Some(2),
        memory_mib: Some(4096),
        disks: vec![ComposeDisk { label: "root".into(), gigabytes: 20, pool: None }],
        skip_commissioning: true,
        ..Compose::default()
    };
    identity.client.vm_hosts().compose(of_one.host, &compose("a")).await.unwrap();
    let refused = identity.client.vm_hosts().compose(of_two.host, &compose("b")).await.unwrap_err();
    assert_eq!(refused.kind(), maas_client::ErrorKind::NoCapacity, "{refused}");
    two.forget(&identity).await;
    let again = place(&two, &identity, &vm(), "b", now()).await.choice.unwrap();
    assert_ne!(again.host, of_one.host);
    identity.client.vm_hosts().compose(again.host, &compose("b")).await.unwrap();
}

#[tokio::test]
async fn go18_the_default_pool_whose_number_is_zero_is_a_pool_like_any_other() {
    let maas = seven();
    arrange(&maas, json!([{"pool": {"name": "vms"}}, {"vm_host": {"name": "host5", "pool": "vms"}}]));
    let (hosts, identity) = (LxdHosts::default(), identity(&maas, ADMIN).await);
    let of_default = identity.client.vm_hosts().list().await.unwrap();
    let of_default = of_default.iter().filter(|host| host.pool.as_ref().is_some_and(|pool| pool.id == Some(0))).count();
    assert_eq!(of_default, 6, "MAAS's own numbers");
    let asked = |pool: &str| Vm { pool: Some(pool.into()), ..vm() };
    let choice = place(&hosts, &identity, &asked("default"), "m1", now()).await.choice.unwrap();
    assert_eq!(choice.pool.unwrap().name, "default");
    assert_eq!(place(&hosts, &identity, &asked("vms"), "m2", now()).await.choice.unwrap().name, "host5");
}

/// All within one tick of the clock: the list that was shared when the first VM was placed does not include it, and the
/// next one does.
#[tokio::test]
async fn the_newest_vm_of_a_host_is_counted_once() {
    let maas = maas();
    host(&maas, 1, 4);
    let (hosts, identity) = (LxdHosts::default(), identity(&maas, ADMIN).await);
    let chosen = place(&hosts, &identity, &vm(), "a", now()).await.choice.unwrap();
    let compose = Compose {
        hostname: Some("a".into()),
        cores: Some(2),
        memory_mib: Some(4096),
        disks: vec![ComposeDisk { label: "root".into(), gigabytes: 20, pool: None }],
        skip_commissioning: true,
        ..Compose::default()
    };
    identity.client.vm_hosts().compose(chosen.host, &compose).await.unwrap();
    let mut of_a = object("a");
    let place_of_a = json!({
        "host": chosen.host, "hostName": chosen.name, "zone": "az1", "cores": 2, "memory": 4096, "disk": 20, "at": now(),
    });
    let record = json!({"key": "k", "machine": "vm-a", "vm": {"name": "a", "base": "a", "place": place_of_a}});
    of_a.metadata.annotations = Some([(JOURNAL_ANNOTATION.to_owned(), record.to_string())].into());
    let machine_index = MachineIndex::of([&of_a]);
    let (failed, wanted) = (BTreeSet::new(), vm());
    let demand = Demand { vm: &wanted, zone: None, failed: &failed };
    let nothing = nothing();
    let place = async |name: &str| {
        placed(hosts.place(&identity, now(), &demand, &object(name), objects(&nothing, &machine_index)).await)
    };
    let second = place("b").await;
    assert_eq!(second.choice.map(|choice| choice.host), Ok(chosen.host), "two of its four cores are free");
    let third = place("c").await;
    assert_eq!(third.choice.unwrap_err().kind, LxdErrorKind::InsufficientResources, "the second one is promised");
    assert_eq!(lists(&maas), 2, "and for that no list is asked for: it would show nothing new");
}

#[tokio::test]
async fn s25_a_claim_in_a_journal_that_was_written_by_hand_does_not_keep_a_host_from_others_for_ever() {
    let maas = maas();
    host(&maas, 1, 4);
    let (hosts, identity) = (LxdHosts::default(), identity(&maas, ADMIN).await);
    let id = identity.client.vm_hosts().list().await.unwrap()[0].id;
    let claiming = |at: Timestamp| {
        let mut forged = object("forged");
        let place = json!({
            "host": id, "hostName": "host1", "zone": "az1", "cores": 4000, "memory": 4096, "disk": 20, "at": at,
        });
        let record = json!({"key": "k", "vm": {"name": "f", "base": "f", "place": place}});
        forged.metadata.annotations = Some([(JOURNAL_ANNOTATION.to_owned(), record.to_string())].into());
        MachineIndex::of([&forged])
    };
    let (failed, wanted) = (BTreeSet::new(), vm());
    let demand = Demand { vm: &wanted, zone: None, failed: &failed };
    let mins = |minutes| SignedDuration::from_mins(minutes);
    for (at, fits) in [(now(), false), (now() - mins(31), true), (now() + mins(60), true)] {
        let (nothing, index) = (nothing(), claiming(at));
        let placed = placed(hosts.place(&identity, now(), &demand, &object("b"), objects(&nothing, &index)).await);
        assert_eq!(placed.choice.is_ok(), fits, "claimed at {at}");
    }
}
