//! The order of checks, and the message of each. These are not recorded; they come from the source of MAAS's handlers
//! and forms.
#![allow(clippy::unwrap_used, clippy::expect_used, clippy::panic)]

mod common;

use common::{ADMIN, ALICE, Answer, arrange, get, lab, lab_of, post, post_json, raw, send, system_id, with_vm_host};
use maas_sim::Simulator;
use serde_json::{Value, json};

/// A refusal: a message in plain text, or messages by field.
fn said(answer: &Answer) -> (u16, Value) {
    let form = answer.content_type.contains("json");
    (answer.status, if form { answer.json() } else { json!(answer.text) })
}

async fn refused(
    sim: &Simulator,
    key: &str,
    method: &str,
    path: &str,
    form: &[(&str, &str)],
    status: u16,
    body: Value,
) {
    let answer = send(sim, key, method, path, form).await;
    assert_eq!(said(&answer), (status, body), "{method} {path} {form:?}");
}

#[tokio::test]
async fn a_switch_that_is_neither_true_nor_false_is_refused_in_plain_text() {
    let sim = lab();
    let id = system_id(&sim, "bm01");
    let words = |key: &str| json!(format!("Invalid {key}: Value should be 'true' or 'false'"));
    for (path, key) in [
        ("machines/?op=allocate".to_owned(), "dry_run"),
        ("machines/?op=allocate".to_owned(), "bridge_all"),
        ("machines/".to_owned(), "commission"),
        (format!("machines/{id}/?op=deploy"), "ephemeral_deploy"),
        (format!("machines/{id}/?op=release"), "erase"),
        (format!("machines/{id}/?op=release"), "force"),
        (format!("nodes/{id}/interfaces/eth0/?op=link_subnet"), "force"),
    ] {
        refused(&sim, ADMIN, "POST", &path, &[(key, "maybe")], 400, words(key)).await;
    }
    let number = json!("Invalid bridge_fd: Please enter an integer value");
    refused(&sim, ADMIN, "POST", &format!("machines/{id}/?op=deploy"), &[("bridge_fd", "x")], 400, number).await;
    // Some are parsed before the machine is looked up, some after.
    refused(&sim, ADMIN, "POST", "machines/zzzzzz/?op=release", &[("erase", "maybe")], 400, words("erase")).await;
    let missing = json!("No Machine matches the given query.");
    refused(&sim, ADMIN, "POST", "machines/zzzzzz/?op=release", &[("force", "maybe")], 404, missing.clone()).await;
    refused(&sim, ADMIN, "POST", "machines/zzzzzz/?op=deploy", &[("bridge_all", "maybe")], 404, missing).await;
    refused(&sim, ADMIN, "DELETE", &format!("machines/{id}/?force=maybe"), &[], 400, words("force")).await;
}

#[tokio::test]
async fn a_release_reads_its_switches_leniently_from_3_5_on() {
    let sim = lab_of("3.7".parse().unwrap());
    // A checkbox that is sent as "0" is still checked.
    for (name, erase, status) in
        [("bm01", "maybe", "Disk erasing"), ("bm02", "0", "Disk erasing"), ("bm04", "False", "Ready")]
    {
        let id = system_id(&sim, name);
        post(&sim, ADMIN, "machines/?op=allocate", &[("system_id", &id)]).await;
        let answer = post(&sim, ADMIN, &format!("machines/{id}/?op=release"), &[("erase", erase)]).await;
        assert_eq!((answer.status, answer.json()["status_name"].clone()), (200, json!(status)), "{erase}");
    }
}

#[tokio::test]
async fn everything_that_is_wrong_with_a_machine_is_told_at_once() {
    let sim = lab();
    let id = system_id(&sim, "bm01");
    let choice = "Select a valid choice. That choice is not one of the available choices.";
    let form = [
        ("hostname", "bm02"),
        ("zone", "nosuch"),
        ("pool", "nosuch"),
        ("swap_size", "5k"),
        ("cpu_count", "many"),
        ("power_type", "steam"),
        ("architecture", "vax/780"),
    ];
    let body = json!({
        "hostname": ["Node with this Hostname already exists."], "zone": [choice], "pool": [choice],
        "swap_size": ["Invalid size for swap: 5k"], "cpu_count": ["Enter a whole number."],
        "power_type": ["Select a valid choice. steam is not one of the available choices."],
        "architecture": ["'vax/780' is not a valid architecture.  It should be one of: 'amd64/generic'."],
    });
    refused(&sim, ADMIN, "PUT", &format!("machines/{id}/"), &form, 400, body).await;
    // What MAAS does not handle is answered with the text of an exception.
    for (field, value, words) in [
        ("swap_size", "xG", "invalid literal for int() with base 10: 'x'"),
        ("domain", "4711", "Domain matching query does not exist."),
    ] {
        refused(&sim, ADMIN, "PUT", &format!("machines/{id}/"), &[(field, value)], 500, json!(words)).await;
    }
    let form = [("architecture", "amd64"), ("mac_addresses", "nonsense"), ("power_type", "webhook")];
    let body = json!({
        "mac_addresses": ["'nonsense' is not a valid MAC address."],
        "power_type": ["Can't set power type to webhook without network interfaces"],
    });
    refused(&sim, ADMIN, "POST", "machines/", &form, 400, body).await;
    let words = json!("hwe kernel must be specified using the min_hwe_kernel argument.");
    refused(&sim, ADMIN, "POST", "machines/", &[("architecture", "amd64/hwe-22.04")], 400, words).await;
}

#[tokio::test]
async fn scripts_that_do_not_exist_are_refused_or_leave_a_new_machine_alone() {
    let sim = lab();
    let id = system_id(&sim, "bm01");
    let wrong = "Select a valid choice. nosuch is not one of the available choices.";
    let form = [("testing_scripts", "smartctl-validate,nosuch,other")];
    for op in ["commission", "test"] {
        let body = json!({"testing_scripts": [wrong]});
        refused(&sim, ADMIN, "POST", &format!("machines/{id}/?op={op}"), &form, 400, body).await;
    }
    let none = "Select a valid choice. none is not one of the available choices.";
    let body = json!({"testing_scripts": [none]});
    refused(&sim, ADMIN, "POST", &format!("machines/{id}/?op=test"), &[("testing_scripts", "none")], 400, body).await;
    // The status is reported along with it.
    post(&sim, ADMIN, &format!("machines/{id}/?op=deploy"), &[]).await;
    let state = "Commission is not available because of the current state of the node.";
    let body = json!({"testing_scripts": [wrong], "__all__": [state]});
    refused(&sim, ADMIN, "POST", &format!("machines/{id}/?op=commission"), &form, 400, body).await;
    let new = [
        ("architecture", "amd64"),
        ("mac_addresses", "52:54:00:00:77:01"),
        ("testing_scripts", "nosuch"),
        ("power_type", "manual"),
    ];
    let made = post(&sim, ADMIN, "machines/", &new).await;
    assert_eq!((made.status, made.json()["status_name"].clone()), (200, json!("New")));
}

#[tokio::test]
async fn operations_say_which_state_they_need() {
    let sim = lab();
    let id = system_id(&sim, "bm01");
    for (op, words) in [
        ("lock", "Can't lock, node is not deployed or deploying"),
        ("unlock", "Machine is not locked"),
        ("override_failed_testing", "Unable to override node status. Node is not in 'Failed testing' status."),
    ] {
        refused(&sim, ADMIN, "POST", &format!("machines/{id}/?op={op}"), &[], 409, json!(words)).await;
    }
    refused(
        &sim,
        ADMIN,
        "POST",
        &format!("machines/{id}/?op=set_storage_layout"),
        &[],
        400,
        json!({"storage_layout": ["This field is required."]}),
    )
    .await;
    post(&sim, ADMIN, &format!("machines/{id}/?op=deploy"), &[]).await;
    for (op, words) in [
        ("set_storage_layout", "Cannot change the storage layout on a machine that is not Ready."),
        (
            "restore_networking_configuration",
            "Machine must be in a ready or failed testing state to restore networking configuration",
        ),
        (
            "restore_default_configuration",
            "Machine must be in a ready or failed testing state to restore default networking and storage configuration.",
        ),
    ] {
        refused(&sim, ADMIN, "POST", &format!("machines/{id}/?op={op}"), &[], 409, json!(words)).await;
    }
    let words = format!("Cannot accept node enlistment: node {id} is in state Deploying.");
    refused(&sim, ADMIN, "POST", "machines/?op=accept", &[("machines", &id)], 409, json!(words)).await;
    post(&sim, ADMIN, &format!("machines/{id}/?op=lock"), &[]).await;
    refused(&sim, ADMIN, "POST", &format!("machines/{id}/?op=lock"), &[], 409, json!("Machine is already locked"))
        .await;
    // Permissions are checked before statuses.
    for op in ["rescue_mode", "exit_rescue_mode", "commission", "set_storage_layout"] {
        let other = system_id(&sim, "bm02");
        refused(&sim, ALICE, "POST", &format!("machines/{other}/?op={op}"), &[], 403, json!("")).await;
    }
}

#[tokio::test]
async fn a_link_is_told_everything_that_is_wrong_with_it() {
    let sim = lab();
    let id = system_id(&sim, "bm01");
    arrange(&sim, r#"[{"fabric": {"name": "lab", "vlan_id": 9}}, {"subnet": {"cidr": "10.9.0.0/24", "vlan": 9}}]"#);
    let path = format!("nodes/{id}/interfaces/eth0/?op=link_subnet");
    let nowhere = "Enter a valid IPv4 or IPv6 address.";
    for (form, body) in [
        (
            vec![("subnet", "99"), ("ip_address", "x")],
            json!({"mode": ["This field is required."], "subnet": ["None found with id=99."], "ip_address": [nowhere]}),
        ),
        (
            vec![("mode", "dhcp"), ("default_gateway", "true")],
            json!({"default_gateway": ["Cannot use in mode 'dhcp'."]}),
        ),
        (
            vec![("mode", "auto"), ("default_gateway", "true"), ("subnet", "10.9.0.0/24"), ("force", "true")],
            json!({"default_gateway": ["Cannot set as default gateway because subnet 10.9.0.0/24:10.9.0.0/24(vid=0) \
                doesn't provide a gateway IP address."]}),
        ),
    ] {
        refused(&sim, ADMIN, "POST", &path, &form, 400, body).await;
    }
    // An address where none is used is not checked, and force allows any VLAN.
    let form = [("mode", "auto"), ("subnet", "10.9.0.0/24"), ("ip_address", "10.9.0.7"), ("force", "true")];
    let linked = post(&sim, ADMIN, &path, &form).await.json();
    assert_eq!((linked["vlan"]["id"].clone(), linked["links"][0]["mode"].clone()), (json!(9), json!("auto")));
    let words = json!({"__all__": ["This interface has no usable gateways."]});
    let gateway = format!("nodes/{id}/interfaces/eth0/?op=set_default_gateway");
    refused(&sim, ADMIN, "POST", &gateway, &[], 400, words).await;
}

#[tokio::test]
async fn vlan_interfaces_and_bonds_are_made_from_nics() {
    let sim = lab();
    let id = system_id(&sim, "bm01");
    let interfaces = format!("nodes/{id}/interfaces/");
    let nics = get(&sim, ADMIN, &interfaces).await.json();
    let (eth0, vlan) = (nics[0]["id"].to_string(), nics[0]["vlan"].clone());
    let tagged = post(&sim, ADMIN, &format!("fabrics/{}/vlans/", vlan["fabric_id"]), &[("vid", "42")]).await.json();
    let create = format!("{interfaces}?op=create_vlan");
    let untagged = json!({
        "vlan": ["A VLAN interface can only belong to a tagged VLAN."],
        "parent": ["A VLAN interface must have exactly one parent."],
    });
    refused(&sim, ADMIN, "POST", &create, &[("vlan", &vlan["id"].to_string())], 400, untagged).await;
    let made = post(&sim, ADMIN, &create, &[("vlan", &tagged["id"].to_string()), ("parent", &eth0)]).await.json();
    assert_eq!((made["name"].clone(), made["type"].clone()), (json!("eth0.42"), json!("vlan")));
    let words = json!({"mac_address": ["This field is required."], "mtu": ["Ensure this value is greater than or equal to 552."]});
    refused(&sim, ADMIN, "POST", &format!("{interfaces}?op=create_physical"), &[("mtu", "9")], 400, words).await;
    let form = [("mac_address", "52:54:00:99:00:01"), ("vlan", &vlan["id"].to_string())];
    let eth1 = post(&sim, ADMIN, &format!("{interfaces}?op=create_physical"), &form).await.json();
    assert_eq!(eth1["name"], "eth1");
    let bond = format!("{interfaces}?op=create_bond");
    let used = json!({"parents": ["Interfaces already in-use: eth0."]});
    let parents = [("name", "bond0"), ("parents", &eth0), ("parents", &eth1["id"].to_string())];
    refused(&sim, ADMIN, "POST", &bond, &parents, 400, used).await;
    let form = [("name", "bond0"), ("parents", &eth1["id"].to_string()), ("bond_mode", "802.3ad")];
    let made = post(&sim, ADMIN, &bond, &form).await.json();
    assert_eq!((made["type"].clone(), made["params"]["bond_mode"].clone()), (json!("bond"), json!("802.3ad")));
    post(&sim, ADMIN, &format!("machines/{id}/?op=restore_networking_configuration"), &[]).await;
    let left = get(&sim, ADMIN, &interfaces).await.json();
    assert_eq!(left.as_array().unwrap().iter().map(|nic| &nic["name"]).collect::<Vec<_>>(), ["eth0", "eth1"]);
}

#[tokio::test]
async fn networks_are_told_everything_that_is_wrong_with_them() {
    let sim = lab();
    let form = [("cidr", "0.0.0.0/0"), ("gateway_ip", "x"), ("rdns_mode", "9"), ("space", "s"), ("vid", "5000")];
    let body = json!({
        "cidr": ["Prefix length must be greater than 0."], "gateway_ip": ["Enter a valid IPv4 or IPv6 address."],
        "rdns_mode": ["Select a valid choice. 9 is not one of the available choices."],
        "space": ["Spaces may no longer be set on subnets. Set the space on the underlying VLAN."],
        "vid": ["Ensure this value is less than or equal to 4094."],
    });
    refused(&sim, ADMIN, "POST", "subnets/", &form, 400, body).await;
    let both = |words: &str| json!({"start_ip": [words], "end_ip": [words]});
    for (start, end, body) in [
        ("10.0.0.9", "10.0.0.5", json!({"end_ip": ["End IP address must not be less than Start IP address."]})),
        ("10.0.0.9", "10.7.0.5", json!({"end_ip": ["End IP address must be within subnet: 10.0.0.0/24."]})),
        ("10.0.0.0", "10.0.0.5", json!({"start_ip": ["Reserved network address cannot be included in IP range."]})),
        ("10.0.0.190", "10.0.0.210", both("Requested reserved range conflicts with an existing range.")),
    ] {
        let form = [("type", "reserved"), ("start_ip", start), ("end_ip", end)];
        refused(&sim, ADMIN, "POST", "ipranges/", &form, 400, body).await;
    }
    let form = [("vid", "4711"), ("mtu", "9")];
    let body = json!({
        "vid": ["VID must be between 0 and 4094."], "mtu": ["Ensure this value is greater than or equal to 552."],
    });
    refused(&sim, ADMIN, "POST", "fabrics/0/vlans/", &form, 400, body).await;
    let body = json!({"name": ["This is a reserved name."]});
    refused(&sim, ADMIN, "POST", "fabrics/", &[("name", "fabric-77")], 400, body).await;
}

#[tokio::test]
async fn nodes_are_devices_machines_and_controllers() {
    let sim = lab();
    let device = [("mac_addresses", "52:54:00:00:88:01"), ("hostname", "printer")];
    let id = post(&sim, ALICE, "devices/", &device).await.json()["system_id"].as_str().unwrap().to_owned();
    let nodes = get(&sim, ADMIN, "nodes/").await.json();
    let kinds: Vec<_> = nodes.as_array().unwrap().iter().map(|node| node["node_type_name"].as_str().unwrap()).collect();
    assert_eq!((kinds.first(), kinds.last()), (Some(&"Device"), Some(&"Region and rack controller")));
    assert_eq!(kinds.iter().filter(|kind| **kind == "Machine").count(), 4);
    let named = get(&sim, ADMIN, "nodes/?hostname=printer").await.json();
    assert_eq!(named.as_array().unwrap().len(), 1);
    assert_eq!(get(&sim, ADMIN, &format!("nodes/{id}/")).await.json()["hostname"], "printer");
    assert_eq!(get(&sim, ADMIN, &format!("nodes/{id}/interfaces/")).await.json().as_array().unwrap().len(), 1);
    let body = json!({"color": ["No such constraint."]});
    refused(&sim, ADMIN, "GET", "devices/?color=red", &[], 400, body).await;
}

#[tokio::test]
async fn a_bmc_that_hangs_under_3_7_times_the_activity_out() {
    let sim = lab_of("3.7".parse().unwrap());
    arrange(&sim, r#"[{"machine": {"hostname": "bm01", "bmc": "hangs"}}]"#);
    let id = system_id(&sim, "bm01");
    assert_eq!(post(&sim, ADMIN, &format!("machines/{id}/?op=deploy"), &[]).await.status, 200);
    arrange(&sim, r#"[{"settle": {}}]"#);
    let machine = get(&sim, ADMIN, &format!("machines/{id}/")).await.json();
    assert_eq!(machine["status_name"], "Failed deployment");
    assert_eq!(machine["error_description"], "Activity task timed out");
    assert_eq!(get(&sim, ADMIN, &format!("machines/{id}/?op=query_power_state")).await.status, 504);
}

#[tokio::test]
async fn maas_believes_that_a_commissioned_machine_is_on_until_it_asks() {
    let sim = lab();
    let id = system_id(&sim, "bm01");
    post(&sim, ADMIN, &format!("machines/{id}/?op=commission"), &[]).await;
    arrange(&sim, r#"[{"settle": {"machine": "bm01"}}]"#);
    let shown = |machine: Value| (machine["status_name"].clone(), machine["power_state"].clone());
    let path = format!("machines/{id}/");
    assert_eq!(shown(get(&sim, ADMIN, &path).await.json()), (json!("Ready"), json!("on")));
    arrange(&sim, r#"[{"advance": {"seconds": 301}}]"#);
    assert_eq!(shown(get(&sim, ADMIN, &path).await.json()), (json!("Ready"), json!("off")));
}

#[tokio::test]
async fn records_of_a_name_are_read_by_their_types() {
    let sim = lab();
    let named = |rrtype: &'static str, rrdata: &'static str| {
        [("fqdn", "svc.k8s.example"), ("rrtype", rrtype), ("rrdata", rrdata)]
    };
    for (form, body) in [
        (named("A", "10.0.0.1"), json!({"rrtype": ["A is not one of CNAME MX NS SRV SSHFP TXT."]})),
        (
            named("mx", "mail"),
            json!({"__all__": ["Invalid MX: Should be '<preference> <server>'. Range for preference is 0-65535."]}),
        ),
        (named("CNAME", "no blanks"), json!({"__all__": ["Invalid CNAME: Should be '<server>'."]})),
    ] {
        refused(&sim, ADMIN, "POST", "dnsresourcerecords/", &form, 400, body).await;
    }
    assert_eq!(post(&sim, ADMIN, "dnsresourcerecords/", &named("CNAME", "other.example")).await.status, 200);
    let one = json!({"__all__": ["Only one CNAME can be associated with a name."]});
    refused(&sim, ADMIN, "POST", "dnsresourcerecords/", &named("CNAME", "third.example"), 400, one).await;
    let alone = json!({"__all__": ["CNAME records for a name cannot coexist with non-CNAME records."]});
    refused(&sim, ADMIN, "POST", "dnsresourcerecords/", &named("TXT", "hello"), 400, alone).await;
}

#[tokio::test]
async fn json_is_empty_to_an_operation_that_only_reads_forms() {
    let sim = lab();
    let id = system_id(&sim, "bm01");
    let allocated = post_json(&sim, ADMIN, "machines/?op=allocate", &json!({"system_id": id})).await;
    assert_eq!(said(&allocated), (500, json!("'dict' object has no attribute 'lists'")));
    let reserved = post_json(&sim, ADMIN, "ipaddresses/?op=reserve", &json!({"ip": "10.0.0.9"})).await;
    assert_eq!(said(&reserved), (400, json!("Must supply either the 'subnet' or the 'ip' parameter.")));
    let released = post_json(&sim, ADMIN, "ipaddresses/?op=release", &json!({"ip": "10.0.0.9"})).await;
    assert_eq!(said(&released), (400, json!("No provided ip!")));
    let deployed = post_json(&sim, ADMIN, &format!("machines/{id}/?op=deploy"), &json!({"distro_series": "no"})).await;
    assert_eq!((deployed.status, &deployed.json()["distro_series"]), (200, &json!("jammy")));
}

#[tokio::test]
async fn deploying_an_allocated_machine_neither_bridges_nor_renames_the_agent() {
    let sim = lab();
    let options = [("bridge_all", "true"), ("agent_name", "late")];
    for (name, allocated, bridges) in [("bm01", true, 0), ("bm02", false, 1)] {
        let id = system_id(&sim, name);
        if allocated {
            post(&sim, ADMIN, "machines/?op=allocate", &[("system_id", &id), ("agent_name", "early")]).await;
        }
        let machine = post(&sim, ADMIN, &format!("machines/{id}/?op=deploy"), &options).await.json();
        let nics = machine["interface_set"].as_array().unwrap().clone();
        let made: Vec<&Value> = nics.iter().filter(|nic| nic["type"] == "bridge").collect();
        assert_eq!(made.len(), bridges, "{name}");
        assert!(made.iter().all(|bridge| bridge["params"]["bridge_fd"] == 0), "{made:?}");
        let agent = if allocated { "early" } else { "late" };
        let found = get(&sim, ADMIN, &format!("machines/?agent_name={agent}")).await.json();
        assert_eq!(found[0]["hostname"], name);
    }
}

#[tokio::test]
async fn a_vm_is_composed_as_asked_or_not_at_all() {
    let sim = lab();
    with_vm_host(&sim);
    let asked = async |form: &[(&str, &str)]| post(&sim, ADMIN, "machines/?op=allocate", form).await;
    for form in [
        // The form for composing wants at least one core and 1024 MiB, and the whole name of the host.
        &[("name", "none"), ("mem", "512")][..],
        &[("name", "none"), ("cpu_count", "0.5")][..],
        &[("name", "none"), ("pod", "host")][..],
        &[("name", "none"), ("zone", "az1")][..],
        &[("name", "none"), ("interfaces", "eth0:subnet_cidr=192.0.2.0/24")][..],
    ] {
        let answer = asked(form).await;
        assert_eq!(answer.status, 409, "{form:?}: {}", answer.text);
    }
    let form = [("name", "none"), ("mem", "1500.9"), ("cpu_count", "1.5"), ("storage", "root:5,data:3")];
    let machine = asked(&form).await.json();
    assert_eq!((&machine["memory"], &machine["cpu_count"]), (&json!(1500), &json!(1)));
    assert_eq!(machine["physicalblockdevice_set"].as_array().unwrap().len(), 2);
    // Which zone is to be avoided is a matter of machines.
    assert_eq!(asked(&[("name", "none"), ("not_in_zone", "default")]).await.status, 200);
}

#[tokio::test]
async fn a_node_is_counted_once_and_asked_for_by_its_address() {
    let sim = lab();
    let id = system_id(&sim, "bm01");
    post(&sim, ADMIN, "tags/", &[("name", "t")]).await;
    let twice = [("add", id.as_str()), ("add", &id), ("remove", &id), ("remove", &id)];
    let counted = post(&sim, ADMIN, "tags/t/?op=update_nodes", &twice).await.json();
    assert_eq!(counted, json!({"added": 1, "removed": 1}));
    let mac = get(&sim, ADMIN, &format!("machines/{id}/")).await.json()["boot_interface"]["mac_address"].clone();
    // The machine itself asks, without a signature.
    let asked = async |op: &str| {
        let path = format!("/MAAS/api/2.0/machines/?op={op}&mac_address={}", mac.as_str().unwrap());
        let request = http::Request::get(path).header("host", "maas.example:5240").body(axum::body::Body::empty());
        raw(&sim, request.unwrap()).await.json()
    };
    assert_eq!((asked("is_action_in_progress").await, asked("is_registered").await), (json!(false), json!(true)));
    post(&sim, ADMIN, &format!("machines/{id}/?op=commission"), &[]).await;
    assert_eq!((asked("is_action_in_progress").await, asked("is_registered").await), (json!(true), json!(false)));
    let admins = json!("This method is reserved for admin users.");
    refused(&sim, ALICE, "GET", "rackcontrollers/zzzzzz/?op=list_boot_images", &[], 403, admins).await;
}

#[tokio::test]
async fn the_name_of_the_operation_is_no_annotation() {
    let sim = lab();
    let id = system_id(&sim, "bm01");
    post(&sim, ADMIN, "machines/?op=allocate", &[("system_id", &id)]).await;
    let path = format!("machines/{id}/?op=set_workload_annotations");
    let machine = post(&sim, ADMIN, &path, &[("op", "x"), ("cluster", "c1")]).await.json();
    assert_eq!(machine["workload_annotations"], json!({"cluster": "c1"}));
}
