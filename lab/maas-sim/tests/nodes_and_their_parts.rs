//! Devices, controllers and the disks of machines: what belongs to them, and what each state allows. Only in MAAS's
//! source, not recorded, except where a test says so.
#![allow(clippy::unwrap_used, clippy::expect_used, clippy::panic)]

mod common;

use common::{ADMIN, ALICE, Answer, BOB, arrange, get, lab, lab_of, post, send, system_id};
use maas_sim::Simulator;
use serde_json::{Value, json};

/// A refusal: a message in plain text, or messages by field.
fn said(answer: &Answer) -> (u16, Value) {
    let form = answer.content_type.contains("json");
    (answer.status, if form { answer.json() } else { json!(answer.text) })
}

async fn device(sim: &Simulator, key: &str, mac: &str, form: &[(&str, &str)]) -> String {
    let form: Vec<(&str, &str)> = [("mac_addresses", mac)].into_iter().chain(form.iter().copied()).collect();
    let made = post(sim, key, "devices/", &form).await;
    assert_eq!(made.status, 200, "{}", made.text);
    made.json()["system_id"].as_str().unwrap().to_owned()
}

async fn link(sim: &Simulator, id: &str, ip: &str) {
    let form = [("mode", "static"), ("subnet", "10.0.0.0/24"), ("ip_address", ip)];
    let linked = post(sim, ADMIN, &format!("nodes/{id}/interfaces/eth0/?op=link_subnet"), &form).await;
    assert_eq!(linked.status, 200, "{}", linked.text);
}

#[tokio::test]
async fn a_deleted_device_gives_its_addresses_back() {
    let sim = lab();
    let id = device(&sim, ADMIN, "52:54:00:00:77:01", &[]).await;
    link(&sim, &id, "10.0.0.50").await;
    let reserve = async || post(&sim, ADMIN, "ipaddresses/?op=reserve", &[("ip", "10.0.0.50")]).await.status;
    assert_eq!(reserve().await, 404);
    let shown = get(&sim, ADMIN, "ipaddresses/?ip=10.0.0.50&all=true").await.json();
    assert_eq!(shown[0]["interface_set"][0]["system_id"], json!(id), "{shown}");
    assert_eq!(send(&sim, ADMIN, "DELETE", &format!("devices/{id}/"), &[]).await.status, 204);
    assert_eq!(reserve().await, 200);
}

#[tokio::test]
async fn devices_that_belong_to_a_machine_go_when_it_is_released() {
    let sim = lab();
    let id = system_id(&sim, "bm01");
    assert_eq!(post(&sim, ALICE, "machines/?op=allocate", &[("system_id", &id)]).await.status, 200);
    let child = device(&sim, ALICE, "52:54:00:00:77:02", &[("parent", &id)]).await;
    let other = device(&sim, ALICE, "52:54:00:00:77:03", &[]).await;
    link(&sim, &child, "10.0.0.51").await;
    assert_eq!(post(&sim, ALICE, &format!("machines/{id}/?op=release"), &[]).await.status, 200);
    let gone = get(&sim, ALICE, &format!("devices/{child}/")).await;
    assert_eq!(said(&gone), (404, json!("No Device matches the given query.")));
    assert_eq!(get(&sim, ALICE, &format!("devices/{other}/")).await.status, 200);
    assert_eq!(post(&sim, ADMIN, "ipaddresses/?op=reserve", &[("ip", "10.0.0.51")]).await.status, 200);
}

#[tokio::test]
async fn a_device_is_annotated_by_its_owner_under_the_rules_of_machines() {
    let sim = lab();
    let id = device(&sim, ALICE, "52:54:00:00:77:04", &[]).await;
    let long = "k".repeat(256);
    let unacquired = json!("Cannot set workload annotation: it hasn't been acquired.");
    let too_long = json!({"key": ["Ensure this value has at most 255 characters (it has 256)."]});
    for op in ["set_workload_annotations", "set_owner_data"] {
        let path = format!("devices/{id}/?op={op}");
        assert_eq!(said(&post(&sim, ADMIN, &path, &[("a", "b")]).await), (409, unacquired.clone()));
        assert_eq!(said(&post(&sim, BOB, &path, &[("a", "b")]).await), (403, json!("")));
        let bad = post(&sim, ALICE, &path, &[("a/b", "c")]).await;
        assert_eq!(said(&bad), (500, json!("Invalid character in key name")));
        assert_eq!(said(&post(&sim, ALICE, &path, &[(&long, "c")]).await), (400, too_long.clone()));
        let set = post(&sim, ALICE, &path, &[("a", "b"), ("c", "d")]).await;
        assert_eq!(set.json()["workload_annotations"], json!({"a": "b", "c": "d"}));
        let fewer = post(&sim, ALICE, &path, &[("a", ""), ("c", "")]).await;
        assert_eq!(fewer.json()["workload_annotations"], json!({}));
    }
}

#[tokio::test]
async fn half_an_architecture_is_completed_for_a_new_machine_only_once() {
    let sim = lab();
    let create = async |form: &[(&str, &str)], mac| {
        let form: Vec<_> = [("mac_addresses", mac), ("commission", "false")].into_iter().chain(form.to_vec()).collect();
        said(&post(&sim, ADMIN, "machines/", &form).await)
    };
    let twice = create(&[("architecture", "amd64/generic"), ("subarchitecture", "x")], "52:54:00:00:77:05").await;
    assert_eq!(twice, (400, json!("Subarchitecture cannot be specified twice.")));
    let both = create(&[("architecture", "amd64/ga-22.04"), ("subarchitecture", "x")], "52:54:00:00:77:05").await;
    assert_eq!(both, (400, json!("Subarchitecture cannot be specified twice.")));
    let words = "'amd64/x' is not a valid architecture.  It should be one of: 'amd64/generic'.";
    let joined = create(&[("architecture", "amd64"), ("subarchitecture", "x")], "52:54:00:00:77:05").await;
    assert_eq!(joined, (400, json!({"architecture": [words]})));
    let made = create(&[("architecture", "amd64"), ("subarchitecture", "generic")], "52:54:00:00:77:05").await;
    assert_eq!((made.0, &made.1["architecture"]), (200, &json!("amd64/generic")));
}

#[tokio::test]
async fn a_controller_shows_its_services_and_where_it_is_connected() {
    for (version, newer) in [("3.4", false), ("3.7", true)] {
        let sim = lab_of(version.parse().unwrap());
        let racks = get(&sim, ADMIN, "rackcontrollers/").await.json();
        let id = racks[0]["system_id"].as_str().unwrap().to_owned();
        let region = get(&sim, ADMIN, &format!("regioncontrollers/{id}/")).await.json();
        assert_eq!(get(&sim, ADMIN, "regioncontrollers/").await.json(), json!([region]));
        assert!(region["service_set"].is_null() && region["interface_set"][0].is_object(), "{region}");
        assert_eq!(region["resource_uri"], format!("/MAAS/api/2.0/regioncontrollers/{id}/"));
        for path in [format!("rackcontrollers/{id}/"), format!("nodes/{id}/")] {
            let rack = get(&sim, ADMIN, &path).await.json();
            assert_eq!(rack, racks[0]);
            let services = rack["service_set"].as_array().unwrap();
            let named = |name: &str| services.iter().find(|service| service["name"] == name);
            for name in ["regiond", "rackd", "tftp", "http", "dhcpd", "ntp_region", "reverse_proxy"] {
                let service = named(name).unwrap();
                assert!(service["status"].is_string() && service["status_info"] == "", "{service}");
                assert_eq!(service.as_object().unwrap().len(), 3);
            }
            assert_eq!((named("temporal").is_some(), named("agent").is_some()), (newer, newer));
            let nic = &rack["interface_set"][0];
            assert_eq!((&nic["system_id"], &nic["name"]), (&json!(id), &json!("eth0")));
            assert_eq!(nic["links"][0]["subnet"]["cidr"], "10.0.0.0/24");
            assert_eq!(nic["links"][0]["ip_address"], rack["ip_addresses"][0]);
            assert_eq!(rack["hardware_info"]["cpu_model"], "Unknown");
        }
    }
}

#[tokio::test]
async fn a_special_file_system_is_mounted_while_ready_or_allocated() {
    let sim = lab();
    let id = system_id(&sim, "bm01");
    let mount = format!("machines/{id}/?op=mount_special");
    let unmount = format!("machines/{id}/?op=unmount_special");
    let required = json!(["This field is required."]);
    assert_eq!(
        said(&post(&sim, ALICE, &mount, &[]).await),
        (400, json!({"mount_point": required, "fstype": required}))
    );
    let form = [("mount_point", "tmp"), ("fstype", "ext4")];
    let wrong = json!({
        "mount_point": ["Enter a valid value."],
        "fstype": ["Select a valid choice. ext4 is not one of the available choices."],
    });
    assert_eq!(said(&post(&sim, ALICE, &mount, &form).await), (400, wrong));
    post(&sim, ALICE, "machines/?op=allocate", &[("system_id", &id)]).await;
    let form = [("mount_point", "/mnt/tmp"), ("fstype", "tmpfs"), ("mount_options", " size=10% ")];
    let mounted = post(&sim, ALICE, &mount, &form).await.json();
    let system = &mounted["special_filesystems"][0];
    assert_eq!((&system["fstype"], &system["mount_point"]), (&json!("tmpfs"), &json!("/mnt/tmp")));
    assert_eq!((&system["mount_options"], &system["label"]), (&json!("size=10%"), &json!(null)));
    let absent = json!({"mount_point": ["No special filesystem is mounted at this path."]});
    assert_eq!(said(&post(&sim, ALICE, &unmount, &[("mount_point", "/mnt")]).await), (400, absent));
    let unmounted = post(&sim, ALICE, &unmount, &[("mount_point", "/mnt/tmp")]).await;
    assert_eq!((unmounted.status, &unmounted.json()["special_filesystems"]), (200, &json!([])));
    // What was mounted for an allocation ends with it.
    post(&sim, ALICE, &mount, &form).await;
    let released = post(&sim, ALICE, &format!("machines/{id}/?op=release"), &[]).await.json();
    assert_eq!(released["special_filesystems"], json!([]));
    arrange(&sim, r#"[{"machine": {"hostname": "bm01", "status": "Deployed", "owner": "alice"}}]"#);
    for (path, what) in [(&mount, "mount"), (&unmount, "unmount")] {
        let words = format!("Cannot {what} the filesystem because the machine is not Ready or Allocated.");
        assert_eq!(said(&post(&sim, ALICE, path, &[]).await), (409, json!(words)));
    }
}

#[tokio::test]
async fn a_clone_and_a_chassis_are_checked_before_they_are_not_simulated() {
    let sim = lab();
    let required = json!(["This field is required."]);
    let neither = json!(["Either storage or interfaces must be true."]);
    let nothing = json!({"destinations": required, "source": required, "__all__": neither});
    assert_eq!(said(&post(&sim, ADMIN, "machines/?op=clone", &[]).await), (400, nothing));
    let form = [("storage", "true"), ("source", "nosuch"), ("destinations", "nosuch")];
    assert_eq!(post(&sim, ADMIN, "machines/?op=clone", &form).await.status, 501);
    let chassis = "machines/?op=add_chassis";
    assert_eq!(said(&post(&sim, ADMIN, chassis, &[]).await), (400, json!("No provided chassis_type!")));
    let reserved = json!("This method is reserved for admin users.");
    assert_eq!(said(&post(&sim, ALICE, chassis, &[]).await), (403, reserved));
    let virsh = post(&sim, ADMIN, chassis, &[("chassis_type", "virsh")]).await;
    assert_eq!(said(&virsh), (400, json!("No provided hostname!")));
}

#[tokio::test]
async fn addresses_of_a_name_are_texts_or_row_ids_and_need_a_valid_label() {
    for version in ["3.4", "3.7"] {
        let sim = lab_of(version.parse().unwrap());
        let reserved = post(&sim, ADMIN, "ipaddresses/?op=reserve", &[("ip", "10.0.0.60")]).await;
        assert_eq!(reserved.status, 200, "{}", reserved.text);
        let row = sim.control().with_model(|model| *model.db.taken.values().next_back().unwrap()).to_string();
        let form = [("fqdn", "by-id.k8s.example"), ("ip_addresses", row.as_str())];
        let made = post(&sim, ADMIN, "dnsresources/", &form).await;
        assert_eq!((made.status, &made.json()["ip_addresses"][0]["ip"]), (200, &json!("10.0.0.60")));
        let label = json!({"__all__": ["Invalid dnsresource name: under_score."]});
        let form = [("name", "under_score"), ("domain", "k8s.example"), ("ip_addresses", "10.0.0.61")];
        assert_eq!(said(&post(&sim, ADMIN, "dnsresources/", &form).await), (400, label.clone()));
        let named = post(&sim, ADMIN, "dnsresources/", &form[..2]).await.json();
        let path = format!("dnsresources/{}/", named["id"]);
        assert_eq!(said(&send(&sim, ADMIN, "PUT", &path, &form[2..]).await), (400, label));
    }
}

#[tokio::test]
async fn a_storage_layout_tells_which_of_its_fields_is_wrong() {
    let sim = lab();
    let id = system_id(&sim, "bm01");
    let disk = get(&sim, ADMIN, &format!("nodes/{id}/blockdevices/")).await.json()[0].clone();
    let most = disk["size"].as_i64().unwrap() - 512 * 1024 * 1024 * 2;
    let path = format!("machines/{id}/?op=set_storage_layout");
    let device = format!("'x' is not a valid root_device.  It should be one of: '{}'.", disk["id"]);
    for (field, value, words) in [
        ("root_size", "1G", "Size is too small. Minimum size is 3221225472.".to_owned()),
        ("boot_size", "1M", "Size is too small. Minimum size is 536870912.".to_owned()),
        ("root_size", "100P", format!("Size is too large. Maximum size is {most}.")),
        ("root_size", "big", "Enter a valid value.".to_owned()),
        ("root_device", "x", device),
    ] {
        let form = [("storage_layout", "flat"), (field, value)];
        assert_eq!(said(&post(&sim, ADMIN, &path, &form).await), (400, json!({field: [words]})), "{value}");
    }
    let form = [("storage_layout", "flat"), ("root_size", "50%"), ("boot_size", "1G")];
    assert_eq!(post(&sim, ADMIN, &path, &form).await.status, 200);
    let words = "Failed to configure storage layout 'bcache': Node doesn't have an available cache device to setup \
                 bcache.";
    assert_eq!(said(&post(&sim, ADMIN, &path, &[("storage_layout", "bcache")]).await), (400, json!(words)));
}

#[tokio::test]
async fn disks_and_partitions_are_left_alone_unless_ready_or_allocated() {
    let sim = lab();
    let id = system_id(&sim, "bm01");
    arrange(&sim, r#"[{"machine": {"hostname": "bm01", "status": "Deployed", "owner": "alice"}}]"#);
    let disk = get(&sim, ADMIN, &format!("nodes/{id}/blockdevices/")).await.json()[0].clone();
    let (partition, disk) = (disk["partitions"][0]["id"].clone(), disk["id"].clone());
    let disk = format!("nodes/{id}/blockdevices/{disk}/");
    let partition = format!("{disk}partition/{partition}");
    let of_disk = |what: &str| format!("Cannot {what} block device because the machine is not Ready or Allocated.");
    let of_part = |what: &str| format!("Cannot {what} partition because the node is not Ready or Allocated.");
    for (method, path, words) in [
        ("DELETE", disk.clone(), "Cannot delete block device because the machine is not Ready.".to_owned()),
        (
            "POST",
            format!("{disk}?op=add_tag"),
            "Cannot update block device because the machine is not Ready.".to_owned(),
        ),
        (
            "POST",
            format!("{disk}?op=set_boot_disk"),
            "Cannot set as boot disk because the machine is not Ready.".to_owned(),
        ),
        ("POST", format!("{disk}?op=format"), of_disk("format")),
        ("POST", format!("{disk}?op=unmount"), of_disk("unmount")),
        ("POST", format!("{disk}partitions/"), "Cannot create partition because the node is not Ready.".to_owned()),
        ("DELETE", partition.clone(), "Cannot delete block device because the node is not Ready.".to_owned()),
        ("POST", format!("{partition}?op=mount"), of_part("mount")),
        ("POST", format!("{partition}?op=unformat"), of_part("unformat")),
    ] {
        assert_eq!(said(&send(&sim, ADMIN, method, &path, &[]).await), (409, json!(words)), "{method} {path}");
        assert_eq!(send(&sim, BOB, method, &path, &[]).await.status, 403, "{method} {path}");
    }
    // The owner may format, but not create.
    assert_eq!(post(&sim, ALICE, &format!("{disk}?op=format"), &[]).await.status, 409);
    assert_eq!(post(&sim, ALICE, &format!("{disk}partitions/"), &[]).await.status, 403);
}
