//! Every call except those about VM hosts.

use std::collections::BTreeMap;

use maas_client::{
    Allocate, BootResourceKind, Deploy, DnsFilter, Erase, EventQuery, IpAddressFilter, Link, LinkMode, MAX_EVENTS,
    Machine, MachineFilter, MachineStatus, MachineUpdate, NewBridge, PowerState, Release, Reserve, StopMode,
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
    assert!(world.client.get_config("default_distro_series").await.unwrap().is_string());
}

pub async fn zones_pools_and_domains_come_and_go(version: &str) {
    let world = World::new(version).await;
    let zones = world.client.zones();
    let zone = zones.create("az9", "far away").await.unwrap();
    assert_eq!(zones.read("az9").await.unwrap().id, zone.id);
    assert!(zones.list().await.unwrap().iter().any(|zone| zone.name == "az9"));
    zones.delete("az9").await.unwrap();
    zones.delete("az9").await.unwrap();
    assert!(zones.read("az9").await.unwrap_err().is_not_found());

    let pools = world.client.pools();
    let pool = pools.create("pool-z", "").await.unwrap();
    let id = pool.id.unwrap().to_string();
    assert_eq!(pools.read(&id).await.unwrap().name, "pool-z");
    assert_eq!(pools.list().await.unwrap().iter().find(|pool| pool.name == "default").unwrap().id, Some(0));
    pools.delete(&id).await.unwrap();
    assert!(pools.delete(&id).await.unwrap_err().is_not_found());

    let domains = world.client.domains();
    let domain = domains.create("x.example").await.unwrap();
    assert_eq!(domains.read(domain.id).await.unwrap().name.as_deref(), Some("x.example"));
    assert!(domains.list().await.unwrap().iter().any(|domain| domain.is_default == Some(true)));
    domains.delete(domain.id).await.unwrap();
    assert!(domains.read(domain.id).await.unwrap_err().is_not_found());
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
    let subnets = world.client.subnets();
    let subnet = subnets.read("10.0.0.0/24").await.unwrap();
    assert_eq!(subnets.read(&subnet.id.to_string()).await.unwrap().gateway_ip.as_deref(), Some("10.0.0.1"));
    assert_eq!(subnets.read(subnet.name.as_deref().unwrap()).await.unwrap().id, subnet.id);
    assert!(subnets.list().await.unwrap().iter().any(|found| found.id == subnet.id));
    assert!(subnets.statistics(subnet.id).await.unwrap().num_available.is_some());

    let vlan = subnet.vlan.unwrap();
    let (fabric, vid) = (vlan.fabric_id.unwrap(), vlan.vid.unwrap());
    assert_eq!(world.client.vlans().read(vlan.id).await.unwrap().dhcp_on, Some(true));
    assert_eq!(world.client.vlans().read_tagged(fabric, vid).await.unwrap().id, vlan.id);
    assert!(world.client.vlans().list(fabric).await.unwrap().iter().any(|found| found.id == vlan.id));
    assert!(!world.client.fabrics().read(fabric).await.unwrap().vlans.is_empty());
    assert!(!world.client.fabrics().list().await.unwrap().is_empty());
    world.arrange(json!([{"space": {"name": "lab"}}])).await;
    let spaces = world.client.spaces().list().await.unwrap();
    let lab = spaces.iter().find(|space| space.name.as_deref() == Some("lab")).unwrap();
    assert_eq!(world.client.spaces().read(lab.id).await.unwrap().name.as_deref(), Some("lab"));
}

pub async fn addresses_and_ranges_are_reserved_and_given_back(version: &str) {
    let world = World::new(version).await;
    let addresses = world.client.ip_addresses();
    let wanted = "10.0.0.70".parse().unwrap();
    let reserved = addresses.reserve(&Reserve::Address(wanted), None).await.unwrap();
    assert_eq!((reserved.ip.as_deref(), reserved.alloc_type), (Some("10.0.0.70"), Some(4)));
    let chosen = addresses.reserve(&Reserve::In("10.0.0.0/24".to_owned()), Some("vip.k8s.example")).await.unwrap();
    assert!(chosen.ip.is_some_and(|ip| ip.starts_with("10.0.0.")));
    assert_eq!(addresses.list(&IpAddressFilter::default()).await.unwrap().len(), 2);
    let one = IpAddressFilter { ip: Some(wanted), ..IpAddressFilter::default() };
    assert_eq!(addresses.list(&one).await.unwrap()[0].owner.as_ref().unwrap().username, "admin");
    let all = IpAddressFilter { all: true, ..IpAddressFilter::default() };
    assert!(addresses.list(&all).await.unwrap().len() > 2, "bm04's is among them");
    addresses.release(wanted).await.unwrap();
    assert!(addresses.release(wanted).await.is_err());

    let ranges = world.client.ip_ranges();
    let range = ranges.reserve("10.0.0.10".parse().unwrap(), "10.0.0.20".parse().unwrap(), "vips").await.unwrap();
    assert_eq!(ranges.read(range.id).await.unwrap().kind.as_deref(), Some("reserved"));
    assert!(ranges.list().await.unwrap().iter().any(|range| range.kind.as_deref() == Some("dynamic")));
    ranges.delete(range.id).await.unwrap();
    assert!(ranges.read(range.id).await.unwrap_err().is_not_found());
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
    assert!(tags.read("quarantine").await.unwrap_err().is_not_found());
}

pub async fn images_are_listed(version: &str) {
    let world = World::new(version).await;
    let images = world.client.boot_resources();
    let synced = images.list(Some(BootResourceKind::Synced)).await.unwrap();
    let jammy = synced.iter().find(|image| image.name.as_deref() == Some("ubuntu/jammy")).unwrap();
    let read = images.read(jammy.id).await.unwrap();
    assert!(!read.sets.is_empty() && read.sets.values().all(|set| set.complete == Some(true)));
    assert!(images.list(None).await.unwrap().len() > synced.len());
    images.is_importing().await.unwrap();
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
    machines.power_off(id, StopMode::Soft).await.unwrap();
    world.settle().await;
    assert_eq!(machines.query_power_state(id).await.unwrap(), PowerState::Off);
    machines.power_on(id).await.unwrap();
    world.settle().await;
    assert_eq!(machines.query_power_state(id).await.unwrap(), PowerState::On);

    let erasing = machines.release(id, &Release { erase: Erase::Quick, comment: None }).await.unwrap();
    assert!(erasing.is(MachineStatus::DiskErasing), "{:?}", erasing.status);
    world.settle().await;
    let released = machines.read(id).await.unwrap();
    assert!(released.is(MachineStatus::Ready) && released.owner.is_none() && released.workload_annotations.is_empty());
    assert!(machines.list(&MachineFilter::agent_name("ns/m1")).await.unwrap().is_empty());

    machines.allocate(&Allocate::by_id(id)).await.unwrap();
    assert!(machines.mark_broken(id, "it smells").await.unwrap().is(MachineStatus::Broken));
    machines.delete(id).await.unwrap();
    assert!(machines.read(id).await.unwrap_err().is_not_found());
}

pub async fn interfaces_are_changed_while_a_machine_is_allocated(version: &str) {
    let world = World::new(version).await;
    let (interfaces, id) = (world.client.interfaces(), world.id("bm01").await);
    world.client.machines().allocate(&Allocate::by_id(&id)).await.unwrap();
    let nic = interfaces.list(&id).await.unwrap().remove(0);
    let name = nic.name.clone().unwrap();
    assert_eq!(interfaces.read(&id, &name).await.unwrap().id, nic.id);
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
    interfaces.set_default_gateway(&id, bridge.id, Some(fixed)).await.unwrap();
    let unlinked = interfaces.unlink(&id, bridge.id, fixed).await.unwrap();
    assert!(unlinked.links.iter().all(|link| link.id != fixed));
    for mode in [LinkMode::Dhcp, LinkMode::LinkUp, LinkMode::Auto] {
        interfaces.link(&id, bridge.id, &Link { force: true, ..Link::new(mode, subnet.as_str()) }).await.unwrap();
    }
    interfaces.delete(&id, bridge.id).await.unwrap();
    assert!(interfaces.read(&id, &bridge.id.to_string()).await.unwrap_err().is_not_found());
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
