//! Every call about VM hosts.

use maas_client::{
    Allocate, Compose, ComposeDisk, ErrorKind, MachineFilter, MachineStatus, NewVmHost, Release, VmHost, VmHostAuth,
    VmHostUpdate,
};
use serde_json::json;

use crate::world::World;

/// A pair that MAAS can parse; the simulator does not care what it certifies.
fn pair() -> (String, String) {
    let rcgen::CertifiedKey { cert, signing_key } = rcgen::generate_simple_self_signed(["maas".to_owned()]).unwrap();
    (cert.pem(), signing_key.serialize_pem())
}

async fn register(world: &World, address: &str) -> VmHost {
    let auth = if world.capabilities().await.vm_host_certificates {
        let (certificate, key) = pair();
        VmHostAuth::Certificate { certificate, key: key.into() }
    } else {
        VmHostAuth::Password("trustme".into())
    };
    let host = NewVmHost {
        zone: Some("az1".to_owned()),
        pool: Some("pool-a".to_owned()),
        tags: vec!["rack-1".to_owned()],
        ..NewVmHost::new("host-a", address, "maas", auth)
    };
    let made = world.client.vm_hosts().create(&host).await.unwrap();
    world.settle().await;
    made
}

fn compose(hostname: &str) -> Compose {
    Compose {
        hostname: Some(hostname.to_owned()),
        cores: Some(1),
        memory_mib: Some(2048),
        disks: vec![ComposeDisk { label: "root".to_owned(), gigabytes: 8, pool: None }],
        skip_commissioning: true,
        ..Compose::default()
    }
}

pub async fn a_vm_host_lives_from_registration_to_removal(version: &str) {
    let world = World::new(version).await;
    let hosts = world.client.vm_hosts();
    let id = register(&world, "10.0.0.9:8443").await.id;
    let host = hosts.read(id).await.unwrap();
    assert!(host.is_reached() && host.is_measured(), "{host:?}");
    assert_eq!(host.host.unwrap().system_id, world.id("bm04").await);
    assert_eq!((host.zone.unwrap().name.as_str(), host.pool.unwrap().name.as_str()), ("az1", "pool-a"));
    assert!(hosts.list().await.unwrap().iter().any(|host| host.id == id));
    let parameters = hosts.parameters(id).await.unwrap();
    assert_eq!(
        (parameters.power_address.as_deref(), parameters.project.as_deref()),
        (Some("10.0.0.9:8443"), Some("maas"))
    );
    assert!(parameters.key.is_some() || !world.capabilities().await.vm_host_certificates, "a pair for each from 3.1");

    assert!(hosts.add_tag(id, "extra").await.unwrap().tags.contains(&"extra".to_owned()));
    assert!(!hosts.remove_tag(id, "extra").await.unwrap().tags.contains(&"extra".to_owned()));
    hosts.remove_tag(id, "extra").await.unwrap();
    let update = VmHostUpdate { cpu_over_commit_ratio: Some(2.0), ..VmHostUpdate::default() };
    assert_eq!(hosts.update(id, &update).await.unwrap().cpu_over_commit_ratio, Some(2.0));
    let (certificate, key) = pair();
    let update = VmHostUpdate {
        power_address: Some("https://10.0.0.9:8443".to_owned()),
        certificate: Some(certificate.clone()),
        key: Some(key.into()),
        ..VmHostUpdate::default()
    };
    if world.capabilities().await.vm_host_certificates {
        hosts.update(id, &update).await.unwrap();
        let parameters = hosts.parameters(id).await.unwrap();
        assert_eq!(parameters.power_address.as_deref(), Some("https://10.0.0.9:8443"));
        assert_eq!(parameters.certificate, Some(certificate));
    } else {
        assert_eq!(hosts.update(id, &update).await.unwrap_err().kind(), ErrorKind::Unsupported);
    }
    assert!(hosts.refresh(id).await.unwrap().is_reached());

    let vm = hosts.compose(id, &compose("vm-1")).await.unwrap();
    let machine = world.client.machines().read(&vm.system_id).await.unwrap();
    assert!(machine.is_vm() && machine.is(MachineStatus::Ready) && machine.owner.is_none());
    assert_eq!(machine.pod.unwrap().id, id);
    let on_host = MachineFilter { vm_host: Some("host-a".to_owned()), ..MachineFilter::default() };
    assert_eq!(world.client.machines().list(&on_host).await.unwrap().len(), 1);
    world.client.machines().allocate(&Allocate::by_id(&vm.system_id)).await.unwrap();
    world.client.machines().release(&vm.system_id, &Release::default()).await.unwrap();
    world.settle().await;
    world.client.machines().delete(&vm.system_id).await.unwrap();

    let other = hosts.compose(id, &compose("vm-2")).await.unwrap();
    hosts.delete(id).await.unwrap();
    assert!(hosts.read(id).await.unwrap_err().is_not_found());
    assert!(world.client.machines().read(&other.system_id).await.unwrap_err().is_not_found());
    assert!(hosts.delete(id).await.unwrap_err().is_not_found());
}

pub async fn what_a_vm_host_refuses(version: &str) {
    let world = World::new(version).await;
    let hosts = world.client.vm_hosts();
    let id = register(&world, "10.0.0.9:8443").await.id;
    let kind = async |compose: Compose| hosts.compose(id, &compose).await.unwrap_err().kind();
    hosts.compose(id, &compose("vm-1")).await.unwrap();
    assert_eq!(kind(compose("vm-1")).await, ErrorKind::AlreadyExists);
    assert_eq!(kind(Compose { cores: Some(400), ..compose("vm-2") }).await, ErrorKind::NoCapacity);
    assert_eq!(kind(Compose { memory_mib: Some(100), ..compose("vm-2") }).await, ErrorKind::Invalid);
    assert_eq!(kind(Compose { zone: Some(99), ..compose("vm-2") }).await, ErrorKind::Invalid);
    let host_machine = world.id("bm04").await;
    let error = world.client.machines().release(&host_machine, &Release::default()).await.unwrap_err();
    assert_eq!(error.kind(), ErrorKind::InUse, "{error}");
    assert_eq!(world.client.machines().delete(&host_machine).await.unwrap_err().kind(), ErrorKind::InUse);

    world.arrange(json!([{"lxd": {"address": "10.0.0.9:8443", "reachable": false}}])).await;
    let error = hosts.refresh(id).await.unwrap_err();
    assert_eq!(error.kind(), ErrorKind::HostTrouble, "{error}");

    world.arrange(json!([{"lxd": {"address": "10.0.0.8:8443", "cores": 2, "reachable": false}}])).await;
    let host = NewVmHost::new("host-b", "10.0.0.8:8443", "maas", VmHostAuth::Password("wrong".into()));
    match hosts.create(&host).await {
        // From 3.1 on the host is stored anyway, empty.
        Ok(host) => {
            assert!(world.capabilities().await.vm_host_certificates && !host.is_reached());
            assert_eq!(hosts.refresh(host.id).await.unwrap_err().kind(), ErrorKind::HostTrouble);
            let error = hosts.compose(host.id, &compose("vm-3")).await.unwrap_err();
            assert_eq!(error.kind(), ErrorKind::HostTrouble, "{error}");
        }
        Err(error) => {
            assert!(!world.capabilities().await.vm_host_certificates, "{error}");
            assert_eq!(error.kind(), ErrorKind::HostTrouble, "{error}");
        }
    }
}
