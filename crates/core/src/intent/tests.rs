//! What each dialect means.

use super::*;

fn spec(yaml: serde_json::Value) -> MaasMachineSpec {
    let mut spec = serde_json::json!({ "image": "ubuntu/jammy", "minCPU": 4, "minMemory": 8192 });
    for (name, value) in yaml.as_object().unwrap() {
        spec[name] = value.clone();
    }
    serde_json::from_value(spec).unwrap()
}

fn metal(yaml: serde_json::Value) -> Metal {
    match resolve(&spec(yaml), false).unwrap() {
        Intent::Metal(metal) => metal,
        Intent::Vm(_) => panic!("a VM"),
    }
}

#[test]
fn nothing_said_means_bare_metal() {
    let asked = metal(serde_json::json!({}));
    assert_eq!((asked.min_cpu, asked.min_memory, asked.min_disk), (Some(4), Some(8192), None));
    assert_eq!((asked.image.as_str(), asked.pinned, asked.erase), ("ubuntu/jammy", None, None));
}

#[test]
fn every_dialect_of_a_vm_is_a_vm() {
    for asked in [
        serde_json::json!({ "dynamicLXD": true }),
        serde_json::json!({ "provisioningMode": "lxd" }),
        serde_json::json!({ "lxd": { "enabled": true } }),
        serde_json::json!({ "parent": "abc123" }),
        serde_json::json!({ "providerID": "maas-lxd://z/abc123" }),
    ] {
        assert!(matches!(resolve(&spec(asked.clone()), false), Ok(Intent::Vm(_))), "{asked}");
    }
}

#[test]
fn switches_that_disagree_are_named() {
    let problem = resolve(&spec(serde_json::json!({ "dynamicLXD": true, "provisioningMode": "bare-metal" })), false);
    let problem = problem.unwrap_err();
    assert_eq!(problem.reason, reasons::CONTRADICTORY_SPEC);
    assert!(problem.message.contains("provisioningMode") && problem.message.contains("dynamicLXD"));
}

#[test]
fn an_unknown_mode_or_an_unreadable_part_is_never_taken_for_metal() {
    for asked in [
        serde_json::json!({ "provisioningMode": "cloud" }),
        serde_json::json!({ "tags": "not a list" }),
        serde_json::json!({ "release": { "erase": "shred" } }),
        serde_json::json!({ "image": " " }),
    ] {
        let problem = resolve(&spec(asked.clone()), false).unwrap_err();
        assert_eq!(problem.reason, reasons::UNREADABLE_SPEC, "{asked}");
    }
}

#[test]
fn a_system_id_is_a_wish_only_until_a_machine_is_on_record() {
    assert_eq!(metal(serde_json::json!({ "systemID": "abc123" })).pinned.as_deref(), Some("abc123"));
    let recorded = spec(serde_json::json!({ "systemID": "abc123" }));
    assert!(matches!(resolve(&recorded, true), Ok(Intent::Metal(Metal { pinned: None, .. }))));
    assert_eq!(metal(serde_json::json!({ "systemID": "a", "providerID": "maas:///z/a" })).pinned, None);
}

#[test]
fn a_fixed_address_is_not_silently_left_out() {
    let of = |fixed| resolve(&spec(serde_json::json!({ "staticIP": fixed })), false).unwrap_err().reason;
    assert_eq!(of(serde_json::json!({ "cidr": "10.0.0.0/24" })), reasons::WAITING_FOR_STATIC_IP);
    assert_eq!(of(serde_json::json!("10.0.0.5")), reasons::STATIC_IP_FAILED);
}

fn vm(yaml: serde_json::Value) -> Vm {
    match resolve(&spec(yaml), false).unwrap() {
        Intent::Vm(vm) => *vm,
        Intent::Metal(_) => panic!("metal"),
    }
}

fn refused(yaml: serde_json::Value) -> Problem {
    resolve(&spec(yaml), false).unwrap_err()
}

#[test]
fn a_vm_has_the_size_that_it_asks_for_and_at_least_what_maas_makes() {
    let asked = vm(serde_json::json!({ "dynamicLXD": true }));
    assert_eq!((asked.cores, asked.memory, asked.disk), (4, 8192, 60));
    let small = vm(serde_json::json!({ "lxd": { "enabled": true }, "minCPU": 0, "minMemory": 512 }));
    assert_eq!((small.cores, small.memory), (1, 1024));
}

#[test]
fn the_disk_is_what_is_said_first_and_rounded_up_to_what_maas_counts() {
    let sized = |config: serde_json::Value, old: serde_json::Value| {
        let lxd = serde_json::json!({ "vmConfig": old });
        vm(serde_json::json!({ "dynamicLXD": true, "minDiskSize": 30, "lxdConfig": config, "lxd": lxd })).disk
    };
    let nothing = serde_json::json!({});
    assert_eq!(sized(serde_json::json!({ "storage": { "size": "50" } }), serde_json::json!({ "diskSize": 40 })), 50);
    assert_eq!(sized(serde_json::json!({ "storage": { "size": "50GiB" } }), nothing.clone()), 54);
    assert_eq!(sized(nothing.clone(), serde_json::json!({ "diskSize": 40 })), 40);
    assert_eq!(sized(nothing.clone(), nothing), 30);
    let problem = refused(serde_json::json!({ "dynamicLXD": true, "lxdConfig": { "storage": { "size": "much" } } }));
    assert!(problem.message.contains("storage.size"), "{}", problem.message);
}

#[test]
fn the_settings_of_both_dialects_become_one() {
    let asked = vm(serde_json::json!({
        "provisioningMode": "lxd", "tags": ["fast", ""], "resourcePool": "vms", "failureDomain": "z1", "parent": "abc123",
        "lxdConfig": { "profile": "p", "project": "maas", "storage": { "pool": "ssd" } },
        "lxd": { "vmConfig": { "storagePool": "old" } },
    }));
    assert_eq!((asked.profile.as_deref(), asked.project.as_deref()), (Some("p"), Some("maas")));
    assert_eq!((asked.storage_pool.as_deref(), asked.host.as_deref()), (Some("ssd"), Some("abc123")));
    assert_eq!(
        (asked.pool.as_deref(), asked.zone.as_deref(), asked.tags),
        (Some("vms"), Some("z1"), vec!["fast".into()])
    );
    let named = vm(serde_json::json!({ "dynamicLXD": true, "parent": "abc123", "lxdConfig": { "vmHost": "h1" } }));
    assert_eq!(named.host.as_deref(), Some("h1"));
}

#[test]
fn network_cards_come_from_either_dialect_and_not_from_both() {
    let nic = |name: &str, to, mode| Nic { name: name.into(), to, mode };
    let new = vm(
        serde_json::json!({ "dynamicLXD": true, "lxdConfig": { "network": { "bridge": "br0", "devices": ["storage"] } } }),
    );
    let storage = Attach::Subnet("storage".into());
    assert_eq!(
        new.nics,
        [nic("eth0", Attach::Bridge("br0".into()), None), nic("eth1", storage.clone(), Some(Mode::Dhcp))]
    );
    let old = vm(serde_json::json!({ "lxd": { "enabled": true, "vmConfig": {
        "network": "front, storage", "interfaceLinkModes": { "eth0": "static", "eth1": "LINK_UP" } } } }));
    let front = Attach::Subnet("front".into());
    assert_eq!(old.nics, [nic("eth0", front, Some(Mode::Static)), nic("eth1", storage, Some(Mode::LinkUp))]);
    let fixed = vm(
        serde_json::json!({ "lxd": { "enabled": true, "vmConfig": { "interfaceLinkModes": { "eth0": "static" } } } }),
    );
    assert_eq!(fixed.nics, [nic("eth0", Attach::Boot, Some(Mode::Static))]);
    assert_eq!(vm(serde_json::json!({ "dynamicLXD": true })).nics, []);
    let both = refused(serde_json::json!({ "dynamicLXD": true, "lxdConfig": { "network": { "bridge": "br0" } },
        "lxd": { "vmConfig": { "network": "front" } } }));
    assert_eq!(both.reason, reasons::CONTRADICTORY_SPEC);
}

#[test]
fn what_maas_cannot_do_for_a_vm_is_refused_until_one_is_there() {
    for asked in [
        serde_json::json!({ "vmConfig": { "autoStart": false } }),
        serde_json::json!({ "vmConfig": { "interfaceLinkModes": { "eth3": "dhcp" } } }),
        serde_json::json!({ "vmConfig": { "interfaceLinkModes": { "eth0": "magic" } } }),
    ] {
        let asked = serde_json::json!({ "dynamicLXD": true, "lxd": asked });
        assert!(refused(asked.clone()).message.contains("vmConfig"), "{asked}");
        assert!(matches!(resolve(&spec(asked), true), Ok(Intent::Vm(_))));
    }
    let in_memory = serde_json::json!({ "lxd": { "enabled": true }, "deployInMemory": true });
    assert!(refused(in_memory.clone()).message.contains("deployInMemory"));
}

#[test]
fn s24_a_vm_that_the_go_provider_made_is_not_abandoned_for_a_setting_that_nobody_fulfilled() {
    let stored = spec(serde_json::json!({ "lxd": { "enabled": true, "vmConfig": { "autoStart": false,
        "interfaceLinkModes": { "eth0": "whatever" }, "diskSize": -1 } }, "providerID": "maas:///z1/abc123" }));
    assert!(matches!(resolve(&stored, false), Ok(Intent::Vm(_))));
}

#[test]
fn a_fixed_address_of_a_vm_is_literal_or_awaited_and_a_wrong_one_is_said() {
    let of = |fixed| resolve(&spec(serde_json::json!({ "dynamicLXD": true, "staticIP": fixed })), false);
    let address = |answer: Result<Intent, Problem>| match answer.unwrap() {
        Intent::Vm(vm) => vm.address,
        Intent::Metal(_) => panic!("metal"),
    };
    let literal = Some(FixedAddress::Literal("10.0.0.5".parse().unwrap()));
    assert_eq!(address(of(serde_json::json!("10.0.0.5"))), literal);
    assert_eq!(address(of(serde_json::json!({ "ip": "10.0.0.5", "cidr": "10.0.0.0/24" }))), literal);
    assert_eq!(address(of(serde_json::json!({ "cidr": "10.0.0.0/24" }))), Some(FixedAddress::Awaited));
    for wrong in [serde_json::json!({ "ip": "ten" }), serde_json::json!({ "ip": "10.0.0.5", "cidr": "10.1.0.0/24" })] {
        assert_eq!(of(wrong).unwrap_err().reason, reasons::STATIC_IP_FAILED);
    }
}

#[test]
fn whether_it_is_a_vm_is_known_even_if_the_rest_cannot_be_done() {
    let broken =
        spec(serde_json::json!({ "dynamicLXD": true, "image": " ", "lxdConfig": { "storage": { "size": "x" } } }));
    assert!(resolve(&broken, false).is_err());
    assert_eq!(asks_for_vm(&broken), Ok(true));
}
