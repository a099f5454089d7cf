//! Every answer that was recorded from MAAS 3.4.10 or 3.7.3 is decoded by the client.

#![allow(clippy::unwrap_used, clippy::expect_used, clippy::panic)]

mod common;

use std::collections::{BTreeMap, BTreeSet};

use common::recordings::{self, Recording};
use common::{Script, builder};
use maas_client::{
    Allocate, BootResource, Client, Compose, Deploy, DnsFilter, Domain, ErrorKind, EventQuery, Fabric, Interface,
    IpAddressFilter, IpRange, Link, LinkMode, MachineFilter, MachineStatus, MachineUpdate, NewBridge, NewVmHost, Pool,
    PowerState, Release, Result, RetryPolicy, Subnet, Tag, Vlan, VmHostAuth, VmHostUpdate, Zone,
};
use serde::de::DeserializeOwned;

/// Makes the call that a recording answers, with any arguments: the answer is fixed. None for requests that this client
/// never makes.
async fn call(client: &Client, recording: &Recording) -> Option<Result<()>> {
    let segments: Vec<&str> = recording.segments.iter().map(String::as_str).collect();
    let number = |at: usize| segments.get(at).and_then(|segment| segment.parse::<i64>().ok()).unwrap_or(0);
    let address = "10.0.0.1".parse().unwrap();
    let done = |result: Result<()>| Some(result);
    macro_rules! some {
        ($call:expr) => {
            done($call.await.map(|_| ()))
        };
    }
    match (recording.method.as_str(), segments.as_slice(), recording.op.as_deref()) {
        ("GET", ["version"], None) => some!(client.version()),
        ("GET", ["users"], Some("whoami")) => some!(client.whoami()),

        ("GET", ["zones"], None) => some!(client.zones().list()),
        ("GET", ["resourcepools"], None) => some!(client.pools().list()),
        ("GET", ["domains"], None) => some!(client.domains().list()),

        ("GET", ["dnsresources"], None) => some!(client.dns_resources().list(&DnsFilter::fqdn("a.b"))),
        ("POST", ["dnsresources"], None) => some!(client.dns_resources().create("a.b", &[], None)),
        ("GET", ["dnsresources", _], None) => some!(client.dns_resources().read(number(1))),
        ("PUT", ["dnsresources", _], None) => some!(client.dns_resources().set_addresses(number(1), &[])),
        ("DELETE", ["dnsresources", _], None) => some!(client.dns_resources().delete(number(1))),

        ("GET", ["subnets"], None) => some!(client.subnets().list()),
        ("GET", ["fabrics"], None) => some!(client.fabrics().list()),
        ("GET", ["ipranges"], None) => some!(client.ip_ranges().list()),
        ("GET", ["ipaddresses"], None) => some!(client.ip_addresses().list(&IpAddressFilter::default())),
        ("POST", ["ipaddresses"], Some("reserve")) => some!(client.ip_addresses().reserve(address)),
        ("POST", ["ipaddresses"], Some("release")) => some!(client.ip_addresses().release(address)),

        ("GET", ["tags"], None) => some!(client.tags().list()),
        ("POST", ["tags"], None) => some!(client.tags().create("x", "")),
        ("DELETE", ["tags", name], None) => some!(client.tags().delete(name)),
        ("GET", ["tags", name], Some("machines" | "nodes")) => some!(client.tags().machines(name)),
        ("POST", ["tags", name], Some("update_nodes")) => some!(client.tags().update(name, &["x"], &[])),
        ("GET", ["boot-resources"], None) => some!(client.boot_resources().list(None)),
        ("GET", ["events"], Some("query")) => some!(client.events().query(&EventQuery::default())),

        ("GET", ["machines" | "nodes"], None) => some!(client.machines().list(&MachineFilter::default())),
        ("POST", ["machines"], Some("allocate")) => some!(client.machines().allocate(&Allocate::metal())),
        ("GET", ["machines", id], None) => some!(client.machines().read(id)),
        ("PUT", ["machines", id], None) => some!(client.machines().update(id, &MachineUpdate::default())),
        ("DELETE", ["machines", id], None) => some!(client.machines().delete(id)),
        ("POST", ["machines", id], Some("deploy")) => some!(client.machines().deploy(id, &Deploy::default())),
        ("POST", ["machines", id], Some("release")) => some!(client.machines().release(id, &Release::default())),
        ("POST", ["machines", id], Some("abort")) => some!(client.machines().abort(id, "")),
        ("POST", ["machines", id], Some("power_on")) => some!(client.machines().power_on(id)),
        ("GET", ["machines", id], Some("query_power_state")) => some!(client.machines().query_power_state(id)),
        ("POST", ["machines", id], Some("set_workload_annotations")) => {
            some!(client.machines().set_annotations(id, &BTreeMap::new()))
        }

        ("POST", ["nodes", id, "interfaces"], Some("create_bridge")) => {
            some!(client.interfaces().create_bridge(id, &NewBridge { name: "br0".to_owned(), parent: 1 }))
        }
        ("POST", ["nodes", id, "interfaces", _], Some("link_subnet")) => {
            some!(client.interfaces().link(id, number(3), &Link::new(LinkMode::Auto, "1")))
        }
        ("POST", ["nodes", id, "interfaces", _], Some("unlink_subnet")) => {
            some!(client.interfaces().unlink(id, number(3), 1))
        }

        ("GET", ["vm-hosts" | "pods"], None) => some!(client.vm_hosts().list()),
        ("POST", ["vm-hosts"], None) => some!(client.vm_hosts().create(&new_vm_host())),
        ("GET", ["vm-hosts", _], None) => some!(client.vm_hosts().read(number(1))),
        ("PUT", ["vm-hosts", _], None) => some!(client.vm_hosts().update(number(1), &VmHostUpdate::default())),
        ("DELETE", ["vm-hosts", _], None) => some!(client.vm_hosts().delete(number(1))),
        ("GET", ["vm-hosts", _], Some("parameters")) => some!(client.vm_hosts().parameters(number(1))),
        ("POST", ["vm-hosts", _], Some("refresh")) => some!(client.vm_hosts().refresh(number(1))),
        ("POST", ["vm-hosts", _], Some("compose")) => some!(client.vm_hosts().compose(number(1), &Compose::default())),
        ("POST", ["vm-hosts", _], Some("add_tag")) => some!(client.vm_hosts().add_tag(number(1), "x")),
        ("POST", ["vm-hosts", _], Some("remove_tag")) => some!(client.vm_hosts().remove_tag(number(1), "x")),
        _ => same_shape(client, recording).await,
    }
}

/// Requests that this client never makes, but whose answers are objects that it reads elsewhere.
async fn same_shape(client: &Client, recording: &Recording) -> Option<Result<()>> {
    let segments: Vec<&str> = recording.segments.iter().map(String::as_str).collect();
    let op = recording.op.as_deref();
    Some(match (recording.method.as_str(), segments.as_slice(), op) {
        (_, _, Some("set_zone" | "release")) if segments.len() == 1 => return None,
        ("POST", ["machines", ..], _) => client.machines().power_on("x").await.map(|_| ()),
        ("GET" | "PUT" | "POST", ["nodes", _, "interfaces", _], _) => {
            client.interfaces().unlink("x", 1, 1).await.map(|_| ())
        }
        ("DELETE", ["nodes", _, "interfaces", _], None) if recording.status >= 300 => {
            client.interfaces().unlink("x", 1, 1).await.map(|_| ())
        }
        // Only a request for the object itself can tell that it is absent.
        ("GET" | "PUT" | "DELETE", ..) if recording.status == 404 => return None,
        ("DELETE", ["zones" | "resourcepool" | "domains", _] | ["nodes", _, "interfaces", _], None) => {
            client.tags().delete("x").await
        }
        ("GET" | "PUT" | "POST", ["zones", ..], None) => part::<Zone>(client, recording).await,
        ("GET" | "PUT" | "POST", ["resourcepool" | "resourcepools", ..], None) => part::<Pool>(client, recording).await,
        ("GET" | "PUT" | "POST", ["domains", ..], None) => part::<Domain>(client, recording).await,
        ("GET" | "POST", ["subnets", ..], None) => part::<Subnet>(client, recording).await,
        ("GET", ["fabrics", _], None) | ("POST", ["fabrics"], None) => part::<Fabric>(client, recording).await,
        ("GET", ["fabrics", _, "vlans"], None) => part::<Vec<Vlan>>(client, recording).await,
        ("GET" | "PUT" | "POST", ["fabrics" | "vlans", ..], None) => part::<Vlan>(client, recording).await,
        ("POST", ["ipranges"], None) => part::<IpRange>(client, recording).await,
        ("GET", ["tags", _], None) => part::<Tag>(client, recording).await,
        ("GET" | "POST", ["boot-resources", ..], None) => part::<BootResource>(client, recording).await,
        ("GET", ["nodes", _, "interfaces"], None) => part::<Vec<Interface>>(client, recording).await,
        _ => return None,
    })
}

/// An answer about an object that this client reads in a list or within another object only.
async fn part<T: DeserializeOwned>(client: &Client, recording: &Recording) -> Result<()> {
    if recording.status < 300 {
        let part = serde_json::from_value::<T>(recording.body.clone());
        part.unwrap_or_else(|error| panic!("{}: {error}", recording.name));
        return Ok(());
    }
    // MAAS refuses a form or a right in the same words everywhere.
    client.tags().create("x", "").await.map(|_| ())
}

fn new_vm_host() -> NewVmHost {
    NewVmHost::new("host-a", "10.0.0.1:8443", "maas", VmHostAuth::Generated)
}

async fn outcome(recording: &Recording) -> Option<Result<()>> {
    let script = Script::new([recording.response()]);
    let client = builder(script.transport()).retry(RetryPolicy::never()).build().unwrap();
    call(&client, recording).await
}

/// Those that the client has no call for (set-up, other authentication, deliberately odd requests) are listed.
#[tokio::test]
async fn every_recorded_success_decodes() {
    let mut decoded = 0;
    let mut skipped = BTreeSet::new();
    let both = recordings::all().iter().chain(recordings::newer());
    for recording in both.filter(|recording| recording.status < 300) {
        match outcome(recording).await {
            Some(Ok(())) => decoded += 1,
            Some(Err(error)) => panic!("{}: {error}", recording.name),
            None => {
                skipped.insert(format!("{} {} {:?}", recording.method, recording.segments[0], recording.op));
            }
        }
    }
    assert!(decoded > 800, "only {decoded} answers went through the client");
    insta::assert_snapshot!("calls_that_the_client_does_not_make", Vec::from_iter(skipped).join("\n"));
}

/// The kind of each recorded refusal. Review changes of the list: a line that moves is a change of behaviour.
#[tokio::test]
async fn every_recorded_refusal_has_its_kind() {
    insta::assert_snapshot!("kinds_of_recorded_refusals", kinds(recordings::all()).await);
}

#[tokio::test]
async fn every_recorded_refusal_of_a_newer_maas_has_its_kind() {
    insta::assert_snapshot!("kinds_of_recorded_refusals_of_3_7", kinds(recordings::newer()).await);
}

async fn kinds(recordings: &[Recording]) -> String {
    let mut kinds: BTreeMap<String, Vec<String>> = BTreeMap::new();
    for recording in recordings.iter().filter(|recording| recording.status >= 300) {
        if let Some(result) = outcome(recording).await {
            // A failed power query reports an unknown power state.
            if recording.op.as_deref() == Some("query_power_state") && result.is_ok() {
                kinds.entry("power unknown".to_owned()).or_default().push(recording.name.clone());
                continue;
            }
            let error = result.expect_err(&recording.name);
            assert_eq!(error.status(), Some(recording.status), "{}", recording.name);
            kinds.entry(error.kind().to_string()).or_default().push(format!("{} {}", recording.status, recording.name));
        }
    }
    let list: Vec<String> = kinds.iter().map(|(kind, names)| format!("{kind}\n  {}", names.join("\n  "))).collect();
    list.join("\n")
}

/// A client that gets the answer with this number, from 3.7.3.
fn newer_answering(number: &str) -> Client {
    let script = Script::new([recordings::newer_numbered(number).response()]);
    builder(script.transport()).retry(RetryPolicy::never()).build().unwrap()
}

#[tokio::test]
async fn a_rack_that_is_away_is_waited_for_in_the_words_of_every_release() {
    let deploy = newer_answering("887").machines().deploy("x6hw8q", &Deploy::default()).await.unwrap_err();
    assert_eq!((deploy.kind(), deploy.status()), (ErrorKind::ServerTrouble, Some(500)), "{deploy}");
    let unrouted = newer_answering("761").machines().deploy("x6hw8q", &Deploy::default()).await.unwrap_err();
    let release = newer_answering("889").machines().release("x6hw8q", &Release::default()).await.unwrap_err();
    let compose = newer_answering("885").vm_hosts().compose(14, &Compose::default()).await.unwrap_err();
    let refresh = newer_answering("888").vm_hosts().refresh(14).await.unwrap_err();
    let query = newer_answering("760").machines().query_power_state("x6hw8q").await.unwrap_err();
    for error in [deploy, unrouted, release, compose, refresh, query] {
        assert!(error.is_transient(), "{error}");
    }
}

#[tokio::test]
async fn a_power_query_that_fails_says_that_the_power_is_unknown() {
    let failed = newer_answering("1175").machines().query_power_state("x6hw8q").await.unwrap();
    assert_eq!(failed, PowerState::Unknown);
    let garbled = newer_answering("1172").machines().query_power_state("x6hw8q").await.unwrap();
    assert_eq!(garbled, PowerState::Unknown);
    let no_rack = newer_answering("752").machines().query_power_state("x6hw8q").await.unwrap_err();
    assert!(no_rack.is_transient(), "whoever is not asked has not failed: {no_rack}");
}

#[tokio::test]
async fn an_image_that_is_missing_is_waited_for_in_the_words_of_every_release() {
    let older = answering("887").machines().deploy("x", &Deploy::default()).await.unwrap_err();
    let newer = newer_answering("771").machines().deploy("qrg7tp", &Deploy::default()).await.unwrap_err();
    let incomplete = newer_answering("774").machines().deploy("qrg7tp", &Deploy::default()).await.unwrap_err();
    for error in [older, newer, incomplete] {
        assert_eq!(error.kind(), ErrorKind::ImageUnavailable, "{error}");
    }
}

#[tokio::test]
async fn an_abort_that_comes_too_early_for_older_releases_succeeds() {
    let early = answering("502").machines().abort("x", "stop").await.unwrap_err();
    assert!(early.is_transient(), "{early}");
    let aborted = newer_answering("502").machines().abort("dx6cex", "stop").await.unwrap();
    assert_eq!(aborted.status, Some(MachineStatus::Deploying), "the state follows");
    let twice = newer_answering("502b").machines().abort("dx6cex", "stop").await.unwrap_err();
    assert_eq!(twice.kind(), ErrorKind::WrongState, "{twice}");
}

#[tokio::test]
async fn why_a_deployment_failed_is_decoded_and_stays_after_a_release() {
    let failed = newer_answering("1189").machines().read("x6hw8q").await.unwrap();
    assert_eq!(failed.error_description.as_deref(), Some("Activity task failed"));
    let ready = newer_answering("762").machines().read("x6hw8q").await.unwrap();
    assert_eq!(ready.status, Some(MachineStatus::Ready));
    assert!(ready.error_description.is_some_and(|text| text.starts_with("Installation failed")));
    let older = answering("960").machines().read("4ffqha").await.unwrap();
    assert_eq!(older.error_description, None, "3.4 does not tell");
}

#[tokio::test]
async fn who_may_not_change_a_tag_is_denied_with_and_without_words() {
    for client in [answering("204"), newer_answering("204"), newer_answering("1196")] {
        let error = client.tags().update("quarantine", &["qrg7tp"], &[]).await.unwrap_err();
        assert_eq!((error.kind(), error.is_unauthenticated()), (ErrorKind::Denied, false), "{error}");
    }
}

/// A client that gets the answer with this number.
fn answering(number: &str) -> Client {
    Script::new([recordings::numbered(number).response()]).client()
}

#[tokio::test]
async fn a_deployed_machine_is_read_as_maas_says_it() {
    let machine = answering("960").machines().read("4ffqha").await.unwrap();
    assert_eq!((machine.system_id.as_str(), machine.fqdn.as_deref()), ("4ffqha", Some("bm01.maas")));
    assert_eq!((machine.status, machine.power_state), (Some(MachineStatus::Deployed), Some(PowerState::On)));
    assert_eq!((machine.owner.as_deref(), machine.cpu_count, machine.memory), (Some("alice"), Some(4), Some(16384)));
    assert_eq!(machine.ip_addresses, ["10.196.0.251"]);
    assert_eq!(machine.workload_annotations["cluster"], "c3");
    assert_eq!(machine.zone.unwrap().name, "az1");
    assert_eq!(machine.pool.unwrap().id, Some(0));
    let nic = &machine.interface_set[0];
    assert_eq!((nic.name.as_deref(), nic.links[0].mode.as_deref()), (Some("eth0"), Some("auto")));
    assert_eq!(nic.links[0].subnet.as_ref().unwrap().cidr.as_deref(), Some("10.196.0.0/24"));
    assert_eq!(machine.default_gateways.unwrap().ipv4.unwrap().gateway_ip.as_deref(), Some("10.196.0.254"));
    assert!(!machine.locked.unwrap());
}

#[tokio::test]
async fn a_name_on_a_released_machine_has_an_entry_without_an_address() {
    let name = answering("1326").dns_resources().read(1).await.unwrap();
    assert!(name.ip_addresses.unwrap()[0].ip.is_none());
    assert_eq!(name.resource_records[0].rrdata.as_deref(), Some("owner=c1"));
    let all = answering("1339").dns_resources().list(&DnsFilter { all: true, ..DnsFilter::default() }).await.unwrap();
    assert!(all.iter().any(|name| name.id == -1 && name.ip_addresses.is_none()));
}

#[tokio::test]
async fn a_vm_host_that_maas_never_reached_is_told_from_one_that_it_has() {
    let unreached = answering("610").vm_hosts().create(&new_vm_host()).await.unwrap();
    assert!(!unreached.is_reached() && !unreached.is_measured());
    let reached = answering("1107").vm_hosts().refresh(16).await.unwrap();
    assert!(reached.is_reached() && reached.is_measured());
    assert_eq!(reached.host.unwrap().system_id, "atyrf7");
    let unmeasured = answering("712").vm_hosts().refresh(29).await.unwrap();
    assert!(unmeasured.is_reached() && !unmeasured.is_measured());
}

#[tokio::test]
async fn a_bridge_says_what_it_is_made_of() {
    let bridge = NewBridge { name: "br0".to_owned(), parent: 2 };
    let bridge = answering("968").interfaces().create_bridge("4ffqha", &bridge).await.unwrap();
    assert!(bridge.is_bridge());
    assert_eq!((bridge.parents, bridge.params["bridge_fd"].as_i64()), (vec!["eth0".to_owned()], Some(15)));
}

#[tokio::test]
async fn a_refused_form_says_which_field() {
    let error = answering("1257").machines().deploy("x", &Deploy::default()).await.unwrap_err();
    assert!(error.fields()["distro_series"][0].starts_with("'nosuch' is not a valid distro_series"), "{error}");
}
