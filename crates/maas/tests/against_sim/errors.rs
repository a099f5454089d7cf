//! Every kind of error except those about VM hosts.

use maas_client::{
    Allocate, Deploy, DnsFilter, ErrorKind, Link, LinkMode, MachineFilter, MachineUpdate, NewBridge, Release,
};
use serde_json::json;

use crate::world::World;

pub async fn absence_is_said_only_about_the_very_object(version: &str) {
    let world = World::new(version).await;
    let client = &world.client;
    let bm01 = world.id("bm01").await;
    let bridge = NewBridge { name: "br0".to_owned(), parent: 1 };
    for (what, error) in [
        ("machine", client.machines().read("nosuch").await.unwrap_err()),
        ("machine", client.machines().delete("nosuch").await.unwrap_err()),
        ("machine", client.machines().deploy("nosuch", &Deploy::default()).await.unwrap_err()),
        ("machine", client.interfaces().create_bridge("nosuch", &bridge).await.unwrap_err()),
        ("interface", client.interfaces().unlink(&bm01, 99999, 1).await.unwrap_err()),
        ("name", client.dns_resources().read(999).await.unwrap_err()),
        ("tag", client.tags().delete("nosuch").await.unwrap_err()),
        ("VM host", client.vm_hosts().read(999).await.unwrap_err()),
    ] {
        assert!(error.is_not_found(), "{what}: {error}");
    }
    let error = client.dns_resources().list(&DnsFilter::fqdn("a.nosuch.example")).await.unwrap_err();
    assert_eq!(error.kind(), ErrorKind::UnknownReference, "{error}");
    assert!(client.machines().list(&MachineFilter::hostname("nosuch")).await.unwrap().is_empty());
}

pub async fn refusals_of_machines_have_their_kinds(version: &str) {
    let world = World::new(version).await;
    let machines = world.client.machines();
    let (bm01, bm02, bm03) = (world.id("bm01").await, world.id("bm02").await, world.id("bm03").await);
    let none = Allocate { min_cpu_count: Some(512), ..Allocate::metal() };
    assert_eq!(machines.allocate(&none).await.unwrap_err().kind(), ErrorKind::NoMatch);
    let unknown = Allocate { zone: Some("nosuch".to_owned()), ..Allocate::metal() };
    let error = machines.allocate(&unknown).await.unwrap_err();
    assert_eq!(error.kind(), ErrorKind::Invalid);
    assert!(error.fields().contains_key("zone"), "{error}");
    machines.allocate(&Allocate::by_id(&bm01)).await.unwrap();
    let taken = Allocate { system_id: Some(bm01.clone()), ..Allocate::metal() };
    assert_eq!(machines.allocate(&taken).await.unwrap_err().kind(), ErrorKind::NoMatch);

    assert_eq!(machines.deploy(&bm03, &Deploy::default()).await.unwrap_err().kind(), ErrorKind::WrongState);
    assert_eq!(machines.release(&bm03, &Release::default()).await.unwrap_err().kind(), ErrorKind::WrongState);
    assert_eq!(machines.power_on(&bm02).await.unwrap_err().kind(), ErrorKind::WrongState);
    let stamp = [("a".to_owned(), "b".to_owned())].into();
    assert_eq!(machines.set_annotations(&bm02, &stamp).await.unwrap_err().kind(), ErrorKind::WrongState);
    let nosuch = Deploy { distro_series: Some("nosuch".to_owned()), ..Deploy::default() };
    let error = machines.deploy(&bm01, &nosuch).await.unwrap_err();
    assert_eq!(error.kind(), ErrorKind::Invalid);
    assert!(error.fields().contains_key("distro_series"), "{error}");
    let late = Deploy { distro_series: Some("custom/late".to_owned()), ..Deploy::default() };
    let error = machines.deploy(&bm01, &late).await.unwrap_err();
    assert_eq!(error.kind(), ErrorKind::ImageUnavailable, "{error}");
    let name = MachineUpdate { hostname: Some("bm02".to_owned()), ..MachineUpdate::default() };
    assert_eq!(machines.update(&bm01, &name).await.unwrap_err().kind(), ErrorKind::AlreadyExists);

    let bm04 = world.id("bm04").await;
    let nic = machines.read(&bm04).await.unwrap().interface_set.remove(0);
    let link = Link::new(LinkMode::Dhcp, "1");
    assert_eq!(world.client.interfaces().link(&bm04, nic.id, &link).await.unwrap_err().kind(), ErrorKind::WrongState);
}

pub async fn refusals_of_names_and_addresses_have_their_kinds(version: &str) {
    let world = World::new(version).await;
    let client = &world.client;
    let address = "10.0.0.70".parse().unwrap();
    client.dns_resources().create("api.k8s.example", &[], None).await.unwrap();
    let again = client.dns_resources().create("api.k8s.example", &[], None).await.unwrap_err();
    assert_eq!(again.kind(), ErrorKind::AlreadyExists, "{again}");
    assert_eq!(client.tags().create("", "").await.unwrap_err().kind(), ErrorKind::Invalid);
    client.tags().create("twice", "").await.unwrap();
    assert_eq!(client.tags().create("twice", "").await.unwrap_err().kind(), ErrorKind::AlreadyExists);

    client.ip_addresses().reserve(address).await.unwrap();
    let taken = client.ip_addresses().reserve(address).await.unwrap_err();
    assert_eq!(taken.kind(), ErrorKind::AddressInUse, "{taken}");
    let dynamic = "10.0.0.210".parse().unwrap();
    assert_eq!(client.ip_addresses().reserve(dynamic).await.unwrap_err().kind(), ErrorKind::Invalid);
    let bm01 = world.id("bm01").await;
    let nic = client.machines().read(&bm01).await.unwrap().interface_set.remove(0);
    let subnet = world.subnet().await.id.to_string();
    let link = Link { ip_address: Some(address), force: true, ..Link::new(LinkMode::Static, subnet) };
    let taken = client.interfaces().link(&bm01, nic.id, &link).await.unwrap_err();
    assert_eq!(taken.kind(), ErrorKind::AddressInUse, "{taken}");
}

pub async fn keys_and_rights_are_denied(version: &str) {
    let world = World::new(version).await;
    for key in ["nosuch:nosuch:nosuch", "adminconsumer:admintoken:wrongsecret"] {
        let error = world.with_key(key).whoami().await.unwrap_err();
        assert!(error.is_unauthenticated() && error.status() == Some(401), "{error}");
    }
    let alice = world.as_alice();
    let bm04 = world.id("bm04").await;
    for error in [
        alice.machines().read(&bm04).await.unwrap_err(),
        alice.vm_hosts().parameters(1).await.unwrap_err(),
        alice.tags().create("x", "").await.unwrap_err(),
        alice.dns_resources().create("x.k8s.example", &[], None).await.unwrap_err(),
        alice.machines().release(&bm04, &Release::default()).await.unwrap_err(),
    ] {
        assert_eq!((error.kind(), error.status()), (ErrorKind::Denied, Some(403)), "{error}");
        assert!(!error.is_unauthenticated());
    }
    assert!(alice.machines().by_ids(&[&bm04]).await.unwrap().is_empty(), "hidden, which is not gone");
    world.arrange(json!([{"machine": {"system_id": bm04, "locked": true}}])).await;
    let error = world.client.machines().release(&bm04, &Release::default()).await.unwrap_err();
    assert_eq!(error.kind(), ErrorKind::Denied, "{error}");
}

pub async fn trouble_of_the_server_is_told_apart(version: &str) {
    let world = World::new(version).await;
    let machines = world.client.machines();
    let (bm01, bm04) = (world.id("bm01").await, world.id("bm04").await);
    world.arrange(json!([{"rack": {"connected": false}}])).await;
    let error = machines.query_power_state(&bm04).await.unwrap_err();
    assert_eq!((error.kind(), error.retry_after().map(|wait| wait.as_secs())), (ErrorKind::ServerTrouble, Some(10)));
    let error = machines.deploy(&bm01, &Deploy::default()).await.unwrap_err();
    // Where racks serve the images, MAAS reports missing images; later releases report the missing rack itself.
    let missed = if matches!(version, "3.0" | "3.4") { ErrorKind::ImageUnavailable } else { ErrorKind::ServerTrouble };
    assert_eq!(error.kind(), missed, "{error}");
    assert!(error.is_transient(), "{error}");
    world.arrange(json!([{"rack": {"connected": true}}])).await;
    assert!(machines.query_power_state(&bm04).await.is_ok());
}
