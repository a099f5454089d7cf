//! Every call except those about VM hosts.

use std::collections::BTreeMap;

use maas_client::{
    Allocate, BootResourceKind, Deploy, DnsFilter, Erase, EventQuery, IpAddressFilter, Link, LinkMode, MAX_EVENTS,
    Machine, MachineFilter, MachineStatus, MachineUpdate, NewBridge, PowerState, Release,
};
use serde_json::json;

use crate::world::World;

pub async fn the_server_says_who_and_what_it_is(version: &str) {
    let world = World::new(version).await;
    let info = world.client.version().await.unwrap();
    assert!(info.version.starts_with(version), "{}", info.version);
    let admin = world.client.whoami().await.unwrap();
    assert_eq!((admin.username.as_str(), admin.is_superuser), ("admin", Some(true)));
    let alice = world.as_alice().whoami().await.unwrap();
    assert_eq!((alice.username.as_str(), alice.is_superuser), ("alice", Some(false)));
}

pub async fn zones_pools_and_domains_are_listed(version: &str) {
    let world = World::new(version).await;
    assert!(world.client.zones().list().await.unwrap().iter().any(|zone| zone.name == "az1"));
    let pools = world.client.pools().list().await.unwrap();
    assert_eq!(pools.iter().find(|pool| pool.name == "default").unwrap().id, Some(0));
    assert!(world.client.domains().list().await.unwrap().iter().any(|domain| domain.is_default == Some(true)));
}

pub async fn names_have_addresses(version: &str) {
    let world = World::new(version).await;
    let names = world.client.dns_resources();
    let addresses = ["10.0.0.60".parse().unwrap(), "10.0.0.61".parse().unwrap()];
    let name = names.create("api.k8s.example", &addresses, Some(30)).await.unwrap();
    assert_eq!((name.fqdn.as_deref(), name.address_ttl), (Some("api.k8s.example"), Some(30)));
    let found = names.list(&DnsFilter::fqdn("api.k8s.example")).await.unwrap();
    assert_eq!(found.iter().map(|found| found.id).collect::<Vec<_>>(), [name.id]);
    let left = names.set_addresses(name.id, &addresses[..1]).await.unwrap().ip_addresses.unwrap();
    assert_eq!(left.iter().map(|left| left.ip.as_deref()).collect::<Vec<_>>(), [Some("10.0.0.60")]);
    assert!(names.set_addresses(name.id, &[]).await.unwrap().ip_addresses.unwrap().is_empty());
    assert!(names.read(name.id).await.unwrap().ip_addresses.unwrap().is_empty());
    assert!(!names.list(&DnsFilter { all: true, ..DnsFilter::default() }).await.unwrap().is_empty());
    names.delete(name.id).await.unwrap();
    assert!(names.read(name.id).await.unwrap_err().is_not_found());
    assert!(names.list(&DnsFilter::fqdn("api.k8s.example")).await.unwrap().is_empty());
}

pub async fn networks_are_read(version: &str) {
    let world = World::new(version).await;
    let subnet = world.subnet().await;
    assert_eq!(subnet.gateway_ip.as_deref(), Some("10.0.0.1"));
    let vlan = subnet.vlan.unwrap();
    assert_eq!(vlan.dhcp_on, Some(true));
    let fabrics = world.client.fabrics().list().await.unwrap();
    let fabric = fabrics.iter().find(|fabric| Some(fabric.id) == vlan.fabric_id).unwrap();
    assert!(fabric.vlans.iter().any(|found| found.id == vlan.id));
    let ranges = world.client.ip_ranges().list().await.unwrap();
    assert!(ranges.iter().any(|range| range.kind.as_deref() == Some("dynamic")));
}

pub async fn addresses_are_reserved_and_given_back(version: &str) {
    let world = World::new(version).await;
    let addresses = world.client.ip_addresses();
    let wanted = "10.0.0.70".parse().unwrap();
    let reserved = addresses.reserve(wanted).await.unwrap();
    assert_eq!((reserved.ip.as_deref(), reserved.alloc_type), (Some("10.0.0.70"), Some(4)));
    addresses.reserve("10.0.0.71".parse().unwrap()).await.unwrap();
    assert_eq!(addresses.list(&IpAddressFilter::default()).await.unwrap().len(), 2);
    let one = IpAddressFilter { ip: Some(wanted), ..IpAddressFilter::default() };
    assert_eq!(addresses.list(&one).await.unwrap()[0].owner.as_ref().unwrap().username, "admin");
    let all = IpAddressFilter { all: true, ..IpAddressFilter::default() };
    assert!(addresses.list(&all).await.unwrap().len() > 2, "bm04's is among them");
    addresses.release(wanted).await.unwrap();
    assert!(addresses.release(wanted).await.is_err());
}

pub async fn tags_are_put_on_machines(version: &str) {
    let world = World::new(version).await;
    let (tags, bm01) = (world.client.tags(), world.id("bm01").await);
    assert_eq!(tags.create("quarantine", "left alone").await.unwrap().comment.as_deref(), Some("left alone"));
    let change = tags.update("quarantine", &[&bm01], &[]).await.unwrap();
    assert_eq!((change.added, change.removed), (Some(1), Some(0)));
    assert_eq!(ids(&tags.machines("quarantine").await.unwrap()), [bm01.as_str()]);
    assert_eq!(world.client.machines().read(&bm01).await.unwrap().tag_names, ["quarantine"]);
    tags.update("quarantine", &[], &[&bm01]).await.unwrap();
    assert!(tags.machines("quarantine").await.unwrap().is_empty());
    assert!(tags.list().await.unwrap().iter().any(|tag| tag.name == "quarantine"));
    tags.delete("quarantine").await.unwrap();
    assert!(tags.delete("quarantine").await.unwrap_err().is_not_found());
}

pub async fn images_are_listed(version: &str) {
    let world = World::new(version).await;
    let images = world.client.boot_resources();
    let synced = images.list(Some(BootResourceKind::Synced)).await.unwrap();
    assert!(synced.iter().any(|image| image.name.as_deref() == Some("ubuntu/jammy")));
    assert!(images.list(None).await.unwrap().len() > synced.len());
}

fn ids(machines: &[Machine]) -> Vec<&str> {
    machines.iter().map(|machine| machine.system_id.as_str()).collect()
}

pub async fn machines_are_found_by_every_filter(version: &str) {
    let world = World::new(version).await;
    let machines = world.client.machines();
    let [bm01, bm02, bm03, bm04] =
        [world.id("bm01").await, world.id("bm02").await, world.id("bm03").await, world.id("bm04").await];
    world.client.tags().create("fast", "").await.unwrap();
    world.client.tags().update("fast", &[&bm01], &[]).await.unwrap();
    let text = |text: &str| Some(text.to_owned());
    for (filter, expected) in [
        (MachineFilter::hostname("bm01"), vec![&bm01]),
        (MachineFilter { system_ids: vec![bm01.clone(), bm03.clone()], ..Default::default() }, vec![&bm01, &bm03]),
        (MachineFilter { owner: text("admin"), ..Default::default() }, vec![&bm04]),
        (MachineFilter { statuses: vec![MachineStatus::New], ..Default::default() }, vec![&bm03]),
        (
            MachineFilter { statuses: vec![MachineStatus::New, MachineStatus::Deployed], ..Default::default() },
            vec![&bm03, &bm04],
        ),
        (MachineFilter { zone: text("az1"), ..Default::default() }, vec![&bm01, &bm02]),
        (MachineFilter { zone: text("az1"), not_tags: vec!["fast".to_owned()], ..Default::default() }, vec![&bm02]),
        (MachineFilter { tags: vec!["fast".to_owned()], ..Default::default() }, vec![&bm01]),
        (MachineFilter { pool: text("pool-a"), ..Default::default() }, vec![]),
        (MachineFilter::agent_name("nobody's"), vec![]),
        (MachineFilter::default(), vec![&bm01, &bm02, &bm03, &bm04]),
    ] {
        let found = machines.list(&filter).await.unwrap();
        let (mut found, mut expected) = (ids(&found), expected.iter().map(|id| id.as_str()).collect::<Vec<_>>());
        found.sort_unstable();
        expected.sort_unstable();
        assert_eq!(found, expected, "{filter:?}");
    }
    assert_eq!(machines.by_ids(&[&bm01, &bm02, "nosuch"]).await.unwrap().len(), 2);
    assert_eq!(machines.read(&bm04).await.unwrap().status, Some(MachineStatus::Deployed));
}

pub async fn a_machine_lives_from_allocation_to_release(version: &str) {
    let world = World::new(version).await;
    let machines = world.client.machines();
    let wanted = Allocate {
        agent_name: Some("ns/m1".to_owned()),
        min_cpu_count: Some(2),
        zone: Some("az1".to_owned()),
        ..Allocate::metal()
    };
    let dry = Allocate { dry_run: true, agent_name: None, ..wanted.clone() };
    let candidate = machines.allocate(&dry).await.unwrap();
    assert_eq!(machines.read(&candidate.system_id).await.unwrap().status, Some(MachineStatus::Ready));
    assert_eq!(machines.query_power_state(&candidate.system_id).await.unwrap(), PowerState::Off);
    let machine = machines.allocate(&wanted).await.unwrap();
    let id = machine.system_id.as_str();
    assert_eq!((machine.status, machine.owner.as_deref()), (Some(MachineStatus::Allocated), Some("admin")));
    assert_eq!(ids(&machines.list(&MachineFilter::agent_name("ns/m1")).await.unwrap()), [id]);

    let stamp = BTreeMap::from([("capmaas.io-uid".to_owned(), "u1".to_owned())]);
    assert_eq!(machines.set_annotations(id, &stamp).await.unwrap().workload_annotations["capmaas.io-uid"], "u1");
    let update =
        MachineUpdate { hostname: Some("node-1".to_owned()), pool: Some("pool-a".to_owned()), ..Default::default() };
    let updated = machines.update(id, &update).await.unwrap();
    assert_eq!((updated.hostname.as_deref(), updated.pool.unwrap().name.as_str()), (Some("node-1"), "pool-a"));

    let capabilities = world.capabilities().await;
    let deploy = Deploy {
        distro_series: Some("jammy".to_owned()),
        user_data: Some(b"#cloud-config\n".to_vec().into()),
        enable_hw_sync: capabilities.hardware_sync,
        enable_kernel_crash_dump: capabilities.kernel_crash_dump,
        ..Deploy::default()
    };
    assert!(machines.deploy(id, &deploy).await.unwrap().is(MachineStatus::Deploying));
    world.settle().await;
    let deployed = machines.read(id).await.unwrap();
    assert!(deployed.is(MachineStatus::Deployed) && !deployed.ip_addresses.is_empty());
    assert_eq!(deployed.distro_series.as_deref(), Some("jammy"));

    assert_eq!(machines.query_power_state(id).await.unwrap(), PowerState::On);
    machines.power_on(id).await.unwrap();
    world.settle().await;
    assert_eq!(machines.query_power_state(id).await.unwrap(), PowerState::On);

    let erasing = machines.release(id, &Release { erase: Erase::Quick, comment: None }).await.unwrap();
    assert!(erasing.is(MachineStatus::DiskErasing), "{:?}", erasing.status);
    world.settle().await;
    let released = machines.read(id).await.unwrap();
    assert!(released.is(MachineStatus::Ready) && released.owner.is_none() && released.workload_annotations.is_empty());
    assert!(machines.list(&MachineFilter::agent_name("ns/m1")).await.unwrap().is_empty());

    machines.delete(id).await.unwrap();
    assert!(machines.read(id).await.unwrap_err().is_not_found());
}

pub async fn interfaces_are_changed_while_a_machine_is_allocated(version: &str) {
    let world = World::new(version).await;
    let (interfaces, id) = (world.client.interfaces(), world.id("bm01").await);
    world.client.machines().allocate(&Allocate::by_id(&id)).await.unwrap();
    let nic = world.client.machines().read(&id).await.unwrap().interface_set.remove(0);
    let name = nic.name.unwrap();
    let bridge = NewBridge { name: "br0".to_owned(), parent: nic.id };
    let bridge = interfaces.create_bridge(&id, &bridge).await.unwrap();
    assert!(bridge.is_bridge() && bridge.parents == [name]);
    assert_eq!(bridge.links[0].mode.as_deref(), Some("auto"), "it took over the link");

    let subnet = bridge.links[0].subnet.as_ref().unwrap().id.to_string();
    let link = Link {
        ip_address: Some("10.0.0.99".parse().unwrap()),
        force: true,
        ..Link::new(LinkMode::Static, subnet.as_str())
    };
    let linked = interfaces.link(&id, bridge.id, &link).await.unwrap();
    let fixed = linked.links.iter().find(|link| link.ip_address.as_deref() == Some("10.0.0.99")).unwrap().id;
    let unlinked = interfaces.unlink(&id, bridge.id, fixed).await.unwrap();
    assert!(unlinked.links.iter().all(|link| link.id != fixed));
    for mode in [LinkMode::Dhcp, LinkMode::LinkUp, LinkMode::Auto] {
        interfaces.link(&id, bridge.id, &Link { force: true, ..Link::new(mode, subnet.as_str()) }).await.unwrap();
    }
}

pub async fn the_event_log_tells_what_happened_and_loses_what_a_restored_backup_lacks(version: &str) {
    let world = World::new(version).await;
    let (machines, events, id) = (world.client.machines(), world.client.events(), world.id("bm01").await);
    machines.allocate(&Allocate::by_id(&id)).await.unwrap();
    let allocated = events.newest().await.unwrap().unwrap().id;
    world.arrange(json!([{"backup": {"name": "before"}}])).await;
    machines.deploy(&id, &Deploy::default()).await.unwrap();
    world.settle().await;
    let query = EventQuery { after: Some(allocated), limit: Some(MAX_EVENTS), ..EventQuery::default() };
    let since = events.query(&query).await.unwrap().events;
    let states: Vec<_> = since.iter().filter_map(maas_client::Event::status_change).collect();
    assert!(states.contains(&(MachineStatus::Deploying, MachineStatus::Deployed)), "{states:?}");
    assert!(since.iter().all(|event| event.node.as_deref() == Some(id.as_str())));
    assert_eq!(events.newest().await.unwrap().map(|event| event.id), since.iter().map(|event| event.id).max());

    let query = EventQuery { system_ids: vec![id.clone()], limit: Some(3), ..EventQuery::default() };
    assert_eq!(events.query(&query).await.unwrap().events.len(), 3);

    world.arrange(json!([{"restore": {"name": "before"}}])).await;
    assert_eq!(events.newest().await.unwrap().unwrap().id, allocated);
    assert!(machines.read(&id).await.unwrap().is(MachineStatus::Allocated));
}
