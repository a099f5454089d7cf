//! Whether a permission, a parameter or an object is checked first, and the message of each. These are not recorded;
//! they come from the source of MAAS's handlers and forms.
#![allow(clippy::unwrap_used, clippy::expect_used, clippy::panic)]

mod common;

use common::{ADMIN, ALICE, Answer, BOB, arrange, get, lab, lab_of, post, send, system_id, with_vm_host};
use maas_sim::Simulator;
use serde_json::{Value, json};

const CHOICE: &str = "Select a valid choice. That choice is not one of the available choices.";

fn said(answer: &Answer) -> (u16, Value) {
    let form = answer.content_type.contains("json");
    (answer.status, if form { answer.json() } else { json!(answer.text) })
}

/// Method, path, form, and the refusal.
type Case<'a> = (&'a str, &'a str, &'a [(&'a str, &'a str)], u16, Value);

async fn refused(sim: &Simulator, key: &str, cases: &[Case<'_>]) {
    for (method, path, form, status, body) in cases {
        let answer = send(sim, key, method, path, form).await;
        assert_eq!(said(&answer), (*status, body.clone()), "{method} {path} {form:?}");
    }
}

#[tokio::test]
async fn who_may_not_change_tags_is_not_told_which_there_are() {
    for (version, status, words) in [("3.4", 404, "No Tag matches the given query."), ("3.7", 403, "")] {
        let sim = lab_of(version.parse().unwrap());
        let cases: &[Case<'_>] = &[
            ("PUT", "tags/nosuch/", &[("comment", "x")], 403, json!("")),
            ("DELETE", "tags/nosuch/", &[], 403, json!("")),
            ("POST", "tags/nosuch/?op=rebuild", &[], 403, json!("")),
            ("POST", "tags/nosuch/?op=update_nodes", &[("add", "x")], status, json!(words)),
        ];
        refused(&sim, ALICE, cases).await;
    }
}

#[tokio::test]
async fn devices_carry_tags_too() {
    let sim = lab();
    let device = post(&sim, ADMIN, "devices/", &[("mac_addresses", "52:54:00:00:88:02")]).await.json();
    let id = device["system_id"].as_str().unwrap();
    let machine = system_id(&sim, "bm01");
    post(&sim, ADMIN, "tags/", &[("name", "t1")]).await;
    let counted = post(&sim, ADMIN, "tags/t1/?op=update_nodes", &[("add", id), ("add", &machine)]).await.json();
    assert_eq!(counted, json!({"added": 2, "removed": 0}));
    for (op, ids) in [("devices", vec![id]), ("machines", vec![&machine]), ("nodes", vec![id, &machine])] {
        let listed = get(&sim, ADMIN, &format!("tags/t1/?op={op}")).await.json();
        let listed: Vec<&str> =
            listed.as_array().unwrap().iter().map(|node| node["system_id"].as_str().unwrap()).collect();
        assert_eq!(listed, ids, "{op}");
    }
}

#[tokio::test]
async fn a_vm_host_is_told_of_its_kind_last_and_of_its_storage_by_choice() {
    let sim = lab();
    with_vm_host(&sim);
    let id = get(&sim, ADMIN, "vm-hosts/").await.json()[0]["id"].to_string();
    let host = format!("vm-hosts/{id}/");
    let no_type = "Cannot change the type of a pod. Delete and re-create the pod with a different type.";
    let core = "Select a valid choice. 9 is not one of the available choices.";
    let compose = format!("{host}?op=compose");
    let cases: &[Case<'_>] = &[
        ("POST", "vm-hosts/", &[("type", "lxd"), ("zone", "nosuch")], 400, json!({"zone": [CHOICE]})),
        ("POST", "vm-hosts/", &[("type", "lxd")], 400, json!({"power_address": ["This field is required."]})),
        (
            "POST",
            "vm-hosts/",
            &[("type", "lxd"), ("power_address", "a"), ("default_storage_pool", "default")],
            400,
            json!({"default_storage_pool": [CHOICE]}),
        ),
        // A certificate is only checked when the form is valid.
        (
            "POST",
            "vm-hosts/",
            &[("type", "lxd"), ("power_address", "a"), ("pool", "nosuch"), ("certificate", "garbage")],
            400,
            json!({"pool": [CHOICE]}),
        ),
        ("PUT", &host, &[("type", "virsh")], 400, json!({"type": [no_type]})),
        ("PUT", &host, &[("default_storage_pool", "nosuch")], 400, json!({"default_storage_pool": [CHOICE]})),
        ("POST", "vm-hosts/99/?op=add_tag", &[("tag", "a,b")], 400, json!("Tag may not contain a \",\".")),
        ("POST", "vm-hosts/99/?op=add_tag", &[], 400, json!("No provided tag!")),
        ("POST", "vm-hosts/99/?op=remove_tag", &[("tag", "a,b")], 404, json!("No Pod matches the given query.")),
        ("POST", &compose, &[("pinned_cores", "0"), ("pinned_cores", "9")], 400, json!({"pinned_cores": [core]})),
    ];
    refused(&sim, ADMIN, cases).await;
    // What cannot be parsed as false is true.
    assert_eq!(send(&sim, ADMIN, "DELETE", &format!("{host}?decompose=maybe"), &[]).await.status, 204);
}

#[tokio::test]
async fn a_trust_password_is_kept_until_the_daemon_trusts() {
    let sim = lab();
    arrange(&sim, r#"[{"lxd": {"address": "192.0.2.9:8443", "reachable": false}}]"#);
    let form = [("type", "lxd"), ("power_address", "192.0.2.9:8443")];
    let id = post(&sim, ADMIN, "vm-hosts/", &form).await.json()["id"].to_string();
    let parameters = async || get(&sim, ADMIN, &format!("vm-hosts/{id}/?op=parameters")).await.json();
    assert_eq!(parameters().await["password"], json!(""));
    arrange(&sim, r#"[{"lxd": {"address": "192.0.2.9:8443", "reachable": true, "trusted": "all"}}]"#);
    assert_eq!(post(&sim, ADMIN, &format!("vm-hosts/{id}/?op=refresh"), &[]).await.status, 200);
    assert_eq!(parameters().await.get("password"), None);
}

#[tokio::test]
async fn users_and_keys_miss_one_parameter_after_the_other() {
    let sim = lab();
    let full = [("username", "dave"), ("email", "d@example.com"), ("password", "x"), ("is_superuser", "true")];
    let token = "No Token matches the given query.";
    let cases: &[Case<'_>] = &[
        ("GET", "maas/?op=get_config", &[], 400, json!("No provided name!")),
        ("GET", "maas/?op=get_config&name=", &[], 400, json!("Invalid name: Please enter a value")),
        ("POST", "maas/?op=set_config", &[("name", "nosuch")], 400, json!("No provided value!")),
        ("POST", "users/", &[], 400, json!("No provided username!")),
        ("POST", "users/", &full[..1], 400, json!("No provided email!")),
        ("POST", "users/", &full[..2], 400, json!("No provided password!")),
        ("POST", "users/", &full[..3], 400, json!("No provided is_superuser!")),
        ("POST", "users/", &full, 500, json!("Not a valid Boolean value (0 or 1): 'true'")),
        ("DELETE", "users/admin/", &[], 400, json!("An administrator cannot self-delete.")),
        ("DELETE", "users/nosuch/", &[], 204, json!("")),
        ("DELETE", "users/bob/?transfer_resources_to=nosuch", &[], 404, json!("No User matches the given query.")),
        ("POST", "account/?op=delete_authorisation_token", &[], 400, json!("No provided token_key!")),
        ("POST", "account/?op=delete_authorisation_token", &[("token_key", "")], 404, json!(token)),
        ("POST", "account/?op=update_token_name", &[], 400, json!("No provided token!")),
        ("POST", "account/?op=update_token_name", &[("token", "ac:at:as")], 400, json!("No provided name!")),
        ("POST", "account/?op=update_token_name", &[("token", "ac:at:as"), ("name", "n")], 202, json!("Accepted")),
    ];
    refused(&sim, ADMIN, cases).await;
    let id = system_id(&sim, "bm01");
    post(&sim, ALICE, "machines/?op=allocate", &[("system_id", &id)]).await;
    let left = send(&sim, ADMIN, "DELETE", "users/alice/?transfer_resources_to=bob", &[]).await;
    assert_eq!(left.status, 204, "{}", left.text);
    assert_eq!(get(&sim, BOB, &format!("machines/{id}/")).await.json()["owner"], "bob");
}

#[tokio::test]
async fn the_domain_of_a_name_is_looked_for_before_the_name_and_before_rights() {
    let sim = lab();
    let id = post(&sim, ADMIN, "dnsresources/", &[("fqdn", "a.k8s.example")]).await.json()["id"].to_string();
    let path = format!("dnsresources/{id}/");
    let domain = json!("No Domain matches the given query.");
    let cases: &[Case<'_>] = &[
        ("PUT", &path, &[("domain", "nosuch")], 404, domain.clone()),
        ("PUT", "dnsresources/99/", &[("domain", "nosuch")], 404, domain),
        ("PUT", "dnsresources/99/", &[], 404, json!("No DNSResource matches the given query.")),
        ("PUT", &path, &[("domain", "k8s.example")], 403, json!("")),
        (
            "GET",
            "dnsresources/?all=maybe&domain=nosuch",
            &[],
            400,
            json!("Invalid all: Value should be 'true' or 'false'"),
        ),
    ];
    refused(&sim, ALICE, cases).await;
    let listed = get(&sim, ALICE, "dnsresources/?rrtype=a").await.json();
    assert_eq!(listed, json!([]), "addresses are no records");
}

#[tokio::test]
async fn a_question_about_events_is_read_from_its_cursors_on() {
    let sim = lab();
    let integer = |name: &str| json!(format!("Invalid {name}: Please enter an integer value"));
    let cases: &[Case<'_>] = &[
        ("GET", "events/?op=query&level=bogus&limit=x&before=y&after=z", &[], 400, integer("after")),
        ("GET", "events/?op=query&level=bogus&limit=x&before=y", &[], 400, integer("before")),
        ("GET", "events/?op=query&level=bogus&limit=x", &[], 400, integer("limit")),
        ("GET", "events/?op=query&level=bogus&mac_address=x", &[], 400, json!("Invalid MAC address(es): x")),
        ("GET", "events/?op=query&level=bogus&after=1&before=2", &[], 400, json!("Unrecognised log level: bogus")),
    ];
    refused(&sim, ALICE, cases).await;
    let id = system_id(&sim, "bm03");
    post(&sim, ADMIN, "machines/?op=allocate", &[("system_id", &id)]).await;
    let of_pool = get(&sim, ADMIN, "events/?op=query&level=DEBUG&pool=pool-a").await.json();
    assert!(of_pool["count"].as_u64().unwrap() > 0, "{of_pool}");
}

#[tokio::test]
async fn the_owner_of_a_device_has_its_interfaces() {
    let sim = lab();
    let form = [("mac_addresses", "52:54:00:00:88:03"), ("hostname", "printer")];
    let device = post(&sim, ALICE, "devices/", &form).await.json();
    let id = device["system_id"].as_str().unwrap();
    let nics = format!("nodes/{id}/interfaces/");
    let eth0 = format!("{nics}eth0/");
    let link = format!("{eth0}?op=link_subnet");
    let only_static = "'auto' is not a valid mode.  It should be one of: 'static'.";
    let cases: &[Case<'_>] = &[
        ("POST", &link, &[("mode", "auto"), ("subnet", "10.0.0.0/24")], 400, json!({"mode": [only_static]})),
        ("POST", &format!("{nics}?op=create_bridge"), &[], 404, json!("No Machine matches the given query.")),
        ("GET", "nodes/zzzzzz/interfaces/", &[], 404, json!("No Node matches the given query.")),
        ("GET", "nodes/zzzzzz/interfaces/1/", &[], 404, json!("No Interface matches the given query.")),
    ];
    refused(&sim, ALICE, cases).await;
    assert_eq!(post(&sim, BOB, &link, &[]).await.status, 403);
    let form = [("mode", "static"), ("subnet", "10.0.0.0/24"), ("ip_address", "10.0.0.77")];
    let linked = post(&sim, ALICE, &link, &form).await.json();
    assert_eq!(linked["links"][0]["ip_address"], "10.0.0.77", "{linked}");
    let made = post(&sim, ALICE, &format!("{nics}?op=create_physical"), &[("mac_address", "52:54:00:00:88:04")]).await;
    assert_eq!(made.json()["name"], "eth1", "{}", made.text);
    assert_eq!(send(&sim, ALICE, "DELETE", &format!("{nics}eth1/"), &[]).await.status, 204);
    assert_eq!(get(&sim, ALICE, &nics).await.json().as_array().unwrap().len(), 1);
    let gone = send(&sim, ALICE, "DELETE", &format!("devices/{id}/"), &[]).await;
    assert_eq!(gone.status, 204);
}

#[tokio::test]
async fn every_label_of_a_name_is_looked_at() {
    let sim = lab();
    let id = system_id(&sim, "bm01");
    let path = format!("machines/{id}/");
    let long = "a".repeat(64);
    let too_long = format!("Label is too long: '{long}'.  Maximum allowed is 63 characters.");
    let endless = format!("a.{}", "b".repeat(255));
    let endless_words = "Hostname is too long.  Maximum allowed is 255 characters.";
    let hyphen = "Label cannot start or end with hyphen: '-a'.";
    let invalid = "Domain name contains invalid characters.";
    let cases: &[Case<'_>] = &[
        ("PUT", &path, &[("hostname", &long)], 400, json!({"hostname": [too_long]})),
        ("PUT", &path, &[("hostname", "a..b")], 400, json!({"hostname": ["DNS name contains an empty label."]})),
        ("PUT", &path, &[("hostname", "a.-a")], 400, json!({"hostname": [hyphen]})),
        ("PUT", &path, &[("hostname", &endless)], 400, json!({"hostname": [endless_words]})),
        ("POST", "domains/", &[("name", "-a")], 400, json!({"name": [invalid, hyphen]})),
        ("POST", "domains/", &[("name", "a..b")], 400, json!({"name": [invalid, "DNS name contains an empty label."]})),
    ];
    refused(&sim, ADMIN, cases).await;
}

#[tokio::test]
async fn what_a_machine_is_to_become_is_looked_at_before_its_state() {
    let sim = lab();
    let id = system_id(&sim, "bm01");
    arrange(&sim, r#"[{"machine": {"hostname": "bm01", "status": "New"}}]"#);
    let deploy = format!("machines/{id}/?op=deploy");
    let state = json!("Can't deploy a machine that is in the 'New' state");
    let memory = json!("Cannot deploy as a VM host for ephemeral deployments.");
    let cases: &[Case<'_>] = &[
        ("POST", &deploy, &[("install_kvm", "true"), ("ephemeral_deploy", "true")], 400, memory),
        ("POST", &deploy, &[("distro_series", "nosuch")], 409, state),
    ];
    refused(&sim, ADMIN, cases).await;
    let cases: &[Case<'_>] = &[
        ("POST", &deploy, &[("install_rackd", "true")], 403, json!("Only administrators can deploy MAAS racks")),
        ("POST", &deploy, &[("install_kvm", "true")], 403, json!("Only administratros can deploy VM hosts")),
    ];
    refused(&sim, ALICE, cases).await;
}

#[tokio::test]
async fn a_new_machine_needs_what_its_power_type_does_not_tell() {
    let sim = lab();
    let taken = get(&sim, ADMIN, "machines/?hostname=bm01").await.json()[0]["boot_interface"]["mac_address"].clone();
    let taken = taken.as_str().unwrap();
    let several = format!("One or more MAC addresses is invalid. (MAC address {taken} already in use on bm01.)");
    let both = "One or more MAC addresses is invalid. ('x' is not a valid MAC address. \u{2014} 'y' is not a valid MAC address.)";
    let joined = "'52:54:00:00:99:01,52:54:00:00:99:02' is not a valid MAC address.";
    let needs = json!([
        "URI to power off the node: This field is required.",
        "URI to query the nodes power status: This field is required.",
    ]);
    let arch = ("architecture", "amd64");
    let new = ("mac_addresses", "52:54:00:00:99:01");
    let on = ("power_parameters_power_on_uri", "http://192.0.2.1/on");
    let cases: &[Case<'_>] = &[
        ("POST", "machines/", &[arch, new, ("mac_addresses", taken)], 400, json!({"mac_addresses": [several]})),
        (
            "POST",
            "machines/",
            &[arch, ("mac_addresses", "x"), ("mac_addresses", "y")],
            400,
            json!({"mac_addresses": [both]}),
        ),
        (
            "POST",
            "machines/",
            &[arch, ("mac_addresses", "52:54:00:00:99:01,52:54:00:00:99:02")],
            400,
            json!({"mac_addresses": [joined]}),
        ),
        ("POST", "machines/", &[arch, new, ("power_type", "webhook"), on], 400, json!({"power_parameters": needs})),
        (
            "POST",
            "machines/",
            &[arch, new, ("deployed", "maybe")],
            400,
            json!("Invalid deployed: Value should be 'true' or 'false'"),
        ),
    ];
    refused(&sim, ADMIN, cases).await;
    for form in [&[("power_type", "ipmi"), ("commission", "false")][..], &[("deployed", "true")][..]] {
        let made = post(&sim, ADMIN, "machines/", form).await;
        assert_eq!(made.status, 200, "{form:?}: {}", made.text);
    }
    let named = post(&sim, ADMIN, "machines/", &[arch, new, ("hostname", "10-0-0-7"), ("commission", "false")]).await;
    assert_ne!(named.json()["hostname"], "10-0-0-7", "a name that a reverse look-up gave");
}

#[tokio::test]
async fn a_machine_that_is_named_twice_is_released_once() {
    let sim = lab();
    let id = system_id(&sim, "bm01");
    post(&sim, ADMIN, "machines/?op=allocate", &[("system_id", &id)]).await;
    let released = post(&sim, ADMIN, "machines/?op=release", &[("machines", &id), ("machines", &id)]).await;
    assert_eq!(released.json(), json!([id]));
}
