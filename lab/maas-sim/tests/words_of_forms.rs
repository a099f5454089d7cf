//! MAAS's error messages for invalid requests, in its own words (from the source of its forms where they are not
//! recorded).
#![allow(clippy::unwrap_used, clippy::expect_used, clippy::panic)]

mod common;

use common::{ADMIN, ALICE, arrange, get, lab, lab_of, post, send, system_id};
use serde_json::{Value, json};

#[tokio::test]
async fn what_the_state_does_not_allow_is_a_form_error_or_an_invalid_transition() {
    let sim = lab();
    let id = system_id(&sim, "bm01");
    post(&sim, ADMIN, &format!("machines/{id}/?op=deploy"), &[]).await;
    for (op, status, body) in [
        (
            "commission",
            400,
            json!({"__all__": ["Commission is not available because of the current state of the node."]}),
        ),
        ("test", 400, json!({"__all__": ["Test is not available because of the current state of the node."]})),
        ("rescue_mode", 409, json!("Invalid transition: Deploying -> Entering rescue mode.")),
        ("exit_rescue_mode", 409, json!("Invalid transition: Deploying -> Exiting rescue mode.")),
    ] {
        let answer = post(&sim, ADMIN, &format!("machines/{id}/?op={op}"), &[]).await;
        let said = if status == 400 { answer.json() } else { Value::from(answer.text.clone()) };
        assert_eq!((answer.status, said), (status, body), "{op}");
    }
}

#[tokio::test]
async fn a_constraint_that_cannot_be_read_is_named() {
    let sim = lab();
    for (field, value, words) in [
        (
            "interfaces",
            "eth0",
            "Malformed constraint: 'eth0' (required format: '<label>:<key>=<value>[,<key2>=<value2>[,...]]')",
        ),
        ("interfaces", "eth0:subnet", "Malformed key/value pair in constraint: 'subnet'"),
        ("interfaces", "eth0:color=red", "Unknown interfaces constraint: 'color"),
        ("interfaces", "a:ip=10.0.0.7;a:ip=10.0.0.8", "Constraint label defined more than once: 'a'"),
        ("storage", "x::", "Malformed storage constraint, \"x::\"."),
        ("cpu_count", "many", "Invalid CPU count: number required."),
        ("mem", "lots", "Invalid memory: number of MiB required."),
        ("not_in_zone", "nosuch", "No such zone(s): nosuch."),
        ("zone", "az1,default", "No such zone(s): az1,default."),
        ("owner", "nobody", "No such owner: 'nobody'."),
        ("connected_to", "52:54:00:00:00:01", "No such constraint."),
        ("hostname", "bm01", "No such constraint."),
    ] {
        let answer = post(&sim, ALICE, "machines/?op=allocate", &[(field, value)]).await;
        assert_eq!((answer.status, answer.json()), (400, json!({field: [words]})), "{field}={value}");
    }
}

#[tokio::test]
async fn a_filter_that_cannot_be_read_is_named() {
    let sim = lab();
    for (query, body) in [
        ("mem=lots", json!({"mem": ["Invalid memory: number of MiB required."]})),
        ("owner=nobody", json!({"owner": ["No such owner: 'nobody'."]})),
        ("not_in_pool=nosuch", json!({"not_in_pool": ["No such pool(s): nosuch."]})),
        (
            "power_state=warm",
            json!({"power_state": ["Select a valid choice. warm is not one of the available choices."]}),
        ),
        ("fqdn=bm01.maas", json!({"fqdn": ["No such constraint."]})),
    ] {
        let answer = get(&sim, ADMIN, &format!("machines/?{query}")).await;
        assert_eq!((answer.status, answer.json()), (400, body), "{query}");
    }
    assert_eq!(get(&sim, ADMIN, "machines/?not_hostname=bm01&verbose=true").await.json().as_array().unwrap().len(), 3);
}

#[tokio::test]
async fn an_architecture_needs_an_image_and_may_leave_out_its_second_half() {
    let sim = lab();
    let create = async |architecture, mac| {
        let form = [("architecture", architecture), ("mac_addresses", mac), ("commission", "false")];
        post(&sim, ADMIN, "machines/", &form).await
    };
    let refused = create("arm64/generic", "52:54:00:00:66:01").await.json();
    let words = "'arm64/generic' is not a valid architecture.  It should be one of: 'amd64/generic'.";
    assert_eq!(refused, json!({"architecture": [words]}));
    assert_eq!(create("amd64", "52:54:00:00:66:02").await.json()["architecture"], "amd64/generic");
}

#[tokio::test]
async fn a_name_that_is_taken_is_refused_for_a_new_object_and_for_an_old_one() {
    let sim = lab();
    for (path, old, words) in [
        ("zones/", "zones/az1/", "Physical zone with this Name already exists."),
        ("resourcepools/", "resourcepool/pool-a/", "Resource pool with this Name already exists."),
        ("tags/", "tags/pod-console-logging/", "Tag with this Name already exists."),
        ("domains/", "domains/1/", "Domain with this Name already exists."),
    ] {
        post(&sim, ADMIN, path, &[("name", "taken")]).await;
        let new = post(&sim, ADMIN, path, &[("name", "taken")]).await;
        assert_eq!((new.status, new.json()), (400, json!({"name": [words]})), "{path}");
        let renamed = send(&sim, ADMIN, "PUT", old, &[("name", "taken")]).await;
        assert_eq!((renamed.status, renamed.json()), (400, json!({"name": [words]})), "{old}");
    }
}

#[tokio::test]
async fn names_are_taken_apart_as_maas_does_it() {
    let sim = lab();
    for (form, status, body) in [
        // The name of a domain is its "@".
        (&[("fqdn", "k8s.example")][..], 200, json!("k8s.example")),
        // One label is the name, and everything after it is the domain.
        (&[("fqdn", "a.b.k8s.example")][..], 404, json!("No Domain matches the given query.")),
        (&[("fqdn", "-bad.k8s.example")][..], 500, json!("cannot unpack non-iterable NoneType object")),
        // A name takes precedence over a full name.
        (&[("fqdn", "x.k8s.example"), ("name", "y")][..], 400, json!({"domain": ["This field is required."]})),
        (&[("fqdn", "x.k8s.example"), ("name", "y"), ("domain", "k8s.example")][..], 200, json!("y.k8s.example")),
        (
            &[("fqdn", "t.k8s.example"), ("address_ttl", "-1")][..],
            400,
            json!({"address_ttl": ["Ensure this value is greater than or equal to 0."]}),
        ),
    ] {
        let answer = post(&sim, ADMIN, "dnsresources/", form).await;
        assert_eq!(answer.status, status, "{form:?}: {}", answer.text);
        match status {
            200 => assert_eq!(answer.json()["fqdn"], body),
            400 => assert_eq!(answer.json(), body),
            _ => assert_eq!(answer.text, body.as_str().unwrap()),
        }
    }
    // Form errors are reported before MAAS fails on an address.
    let taken = post(&sim, ADMIN, "dnsresources/", &[("fqdn", "y.k8s.example"), ("ip_addresses", "bogus")]).await;
    assert_eq!(taken.json(), json!({"__all__": ["Labels must be unique within their zone."]}));
    assert_eq!(get(&sim, ADMIN, "dnsresources/y/").await.json()["fqdn"], "y.k8s.example");
    assert_eq!(get(&sim, ADMIN, "domains/k8s.example/").await.json()["name"], "k8s.example");
}

#[tokio::test]
async fn addresses_are_reserved_listed_and_released_in_the_order_of_maass_checks() {
    let sim = lab();
    let reserve = "ipaddresses/?op=reserve";
    let release = "ipaddresses/?op=release";
    let mac = sim.control().with_model(|model| model.machines_in_order()[0].interfaces[0].mac.clone());
    for (path, form, status, words) in [
        (reserve, &[("ip", "10.0.0.7"), ("mac", "bad")][..], 400, "'bad' is not a valid MAC address."),
        (reserve, &[("ip", "10.0.0.7"), ("mac", mac.as_str())][..], 400, "Use of the interface API is required"),
        (reserve, &[("ip", "10.0.0.7"), ("hostname", "v.nosuch.example")][..], 404, "No Domain matches"),
        (
            reserve,
            &[("ip", "10.0.0.210"), ("mac", "52:54:00:00:00:99")][..],
            403,
            "belongs to an existing dynamic range",
        ),
        (release, &[("ip", "nonsense")][..], 400, "Enter a valid IPv4 or IPv6 address."),
        (release, &[("ip", "10.0.0.99"), ("force", "true")][..], 400, "IP address 10.0.0.99 does not exist."),
    ] {
        let answer = post(&sim, ADMIN, path, form).await;
        assert_eq!(answer.status, status, "{form:?}: {}", answer.text);
        assert!(answer.text.contains(words), "{form:?}: {}", answer.text);
    }
    let listed = get(&sim, ADMIN, "ipaddresses/?ip=nonsense").await;
    assert_eq!((listed.status, listed.text.as_str()), (400, "Parameter 'ip' must contain an IP address."));
}

#[tokio::test]
async fn zones_of_machines_are_set_by_a_form_that_tells_all_at_once() {
    let answer = post(&lab(), ADMIN, "machines/?op=set_zone", &[]).await;
    let required = json!(["This field is required."]);
    assert_eq!(answer.json(), json!({"zone": required, "system_id": required}));
}

#[tokio::test]
async fn a_composition_is_checked_by_its_form_before_anything_else() {
    let sim = lab();
    common::with_vm_host(&sim);
    let host = sim.control().with_model(|model| *model.db.vm_hosts.keys().next().unwrap());
    let path = format!("vm-hosts/{host}/?op=compose");
    for (form, body) in [
        (
            &[("architecture", "nosuch")][..],
            json!({"architecture": ["Select a valid choice. nosuch is not one of the available choices."]}),
        ),
        (&[("cpu_speed", "fast")][..], json!({"cpu_speed": ["Enter a whole number."]})),
        (&[("interfaces", "eth0:nosuch=1")][..], json!({"interfaces": ["Unknown interfaces constraint: 'nosuch"]})),
    ] {
        let answer = post(&sim, ADMIN, &path, form).await;
        assert_eq!((answer.status, answer.json()), (400, body));
    }
    let nonsense = post(&sim, ADMIN, &path, &[("interfaces", "eth0:ip=nonsense")]).await;
    assert_eq!((nonsense.status, nonsense.text.as_str()), (500, "failed to detect a valid IP address from 'nonsense'"));
}

#[tokio::test]
async fn machines_are_found_by_interfaces_disks_and_networks() {
    let sim = lab();
    let id = system_id(&sim, "bm01");
    let disk = get(&sim, ADMIN, &format!("nodes/{id}/blockdevices/")).await.json()[0]["id"].to_string();
    post(&sim, ADMIN, &format!("nodes/{id}/blockdevices/{disk}/?op=add_tag"), &[("tag", "fast")]).await;
    post(&sim, ADMIN, &format!("nodes/{id}/interfaces/eth0/?op=add_tag"), &[("tag", "uplink")]).await;
    for (query, found) in [
        ("storage=root:1(fast)", 1),
        ("storage=root:1(slow)", 0),
        ("interfaces=a:tag=uplink", 1),
        ("interfaces=a:not_tag=uplink,name=eth0", 3),
        ("interfaces=a:subnet_cidr=10.0.0.0/24,mode=auto", 4),
        ("interfaces=a:subnet_cidr=10.0.0.0/24;b:name=eth7", 0),
        ("interfaces=a:space=nosuch", 0),
        ("vlans=vid:0", 4),
        ("subnets=space:undefined", 4),
        ("devices=vendor_id=8086", 0),
    ] {
        let answer = get(&sim, ADMIN, &format!("machines/?{query}")).await;
        assert_eq!(answer.status, 200, "{query}: {}", answer.text);
        assert_eq!(answer.json().as_array().unwrap().len(), found, "{query}");
    }
    let form = [("arch", "amd64"), ("link_speed", "1e9"), ("not_pod_type", "lxd")];
    let none = post(&sim, ADMIN, "machines/?op=allocate", &form).await;
    let words = "(resolved to \"arch=amd64/generic link_speed=1000000000.0 not_pod_type=lxd\")";
    assert!(none.text.ends_with(words), "{}", none.text);
}

#[tokio::test]
async fn settings_have_values_from_the_start_and_forms_of_their_own() {
    let sim = lab();
    assert_eq!(get(&sim, ALICE, "maas/?op=get_config&name=session_length").await.json(), json!(1_209_600));
    let set = "maas/?op=set_config";
    assert_eq!(post(&sim, ALICE, set, &[]).await.status, 403);
    assert_eq!(post(&sim, ADMIN, set, &[("name", "nosuch")]).await.text, "No provided value!");
    let wrong = post(&sim, ADMIN, set, &[("name", "node_timeout"), ("value", "long")]).await;
    assert_eq!((wrong.status, wrong.json()), (400, json!({"node_timeout": ["Enter a whole number."]})));
    let series = post(&sim, ADMIN, set, &[("name", "default_distro_series"), ("value", "nosuch")]).await;
    assert_eq!(series.status, 400, "{}", series.text);
    assert_eq!(post(&sim, ADMIN, set, &[("name", "default_distro_series"), ("value", "focal")]).await.text, "OK");
}

#[tokio::test]
async fn an_option_of_allocate_or_deploy_is_no_constraint_and_is_named_if_it_is_wrong() {
    let sim = lab();
    let id = system_id(&sim, "bm01");
    let words = "'%(value)s' is not a valid bridge_type.  It should be one of: 'standard', 'ovs'.";
    for path in ["machines/?op=allocate".to_owned(), format!("machines/{id}/?op=deploy")] {
        let answer = post(&sim, ADMIN, &path, &[("bridge_type", "brouter")]).await;
        assert_eq!((answer.status, answer.json()), (400, json!({"bridge_type": [words]})), "{path}");
    }
    for _ in 0..4 {
        assert_eq!(post(&sim, ADMIN, "machines/?op=allocate", &[]).await.status, 200);
    }
    let options = [("dry_run", "true"), ("agent_name", "a"), ("comment", "c")];
    for form in [&[][..], &options[..]] {
        let answer = post(&sim, ADMIN, "machines/?op=allocate", form).await;
        assert_eq!((answer.status, answer.text.as_str()), (409, "No machine available."), "{form:?}");
    }
}

#[tokio::test]
async fn a_serial_number_and_a_default_domain_are_checked() {
    let sim = lab();
    let serial = "domains/?op=set_serial";
    for (form, words) in [
        (&[][..], "Missing parameter"),
        (&[("serial", "soon")][..], "Expected a serial number"),
        (&[("serial", "0")][..], "Expected a serial number between 1 and 4294967295"),
    ] {
        let answer = post(&sim, ADMIN, serial, form).await;
        assert_eq!((answer.status, answer.json()), (400, json!({"serial": [words]})), "{form:?}");
    }
    assert_eq!(post(&sim, ADMIN, serial, &[("serial", "7")]).await.json(), Value::Null);
    assert_eq!(post(&sim, ALICE, serial, &[("serial", "7")]).await.status, 403);
    assert_eq!(post(&sim, ALICE, "domains/1/?op=set_default", &[]).await.status, 403);
    assert_eq!(post(&sim, ADMIN, "domains/1/?op=set_default", &[]).await.json()["is_default"], true);
    assert_eq!(get(&sim, ADMIN, "domains/0/").await.json()["is_default"], false);
    assert_eq!(get(&sim, ADMIN, "machines/?hostname=bm01").await.json()[0]["fqdn"], "bm01.k8s.example");
    let kept = send(&sim, ADMIN, "DELETE", "domains/1/", &[]).await;
    assert_eq!(kept.text, "This domain is the default domain, it cannot be deleted.");
}

#[tokio::test]
async fn a_short_name_selects_the_last_series_except_a_part_of_an_ubuntu_name() {
    for (asked, status, got) in [
        ("ubuntu", 200, "ubuntu/jammy"),
        ("ubuntu/ubuntu", 200, "ubuntu/jammy"),
        ("custom", 200, "custom/u-2204-b"),
        ("u-2204", 200, "custom/u-2204-b"),
        ("custom/u-2204-a", 200, "custom/u-2204-a"),
        ("jam", 400, ""),
        ("ubuntu/u-2204", 400, ""),
        ("a/b/c", 500, "too many values to unpack (expected 2)"),
    ] {
        let sim = lab();
        arrange(
            &sim,
            r#"[{"image": {"name": "ubuntu/focal"}}, {"image": {"name": "ubuntu/jammy"}},
                {"image": {"name": "custom/u-2204-b"}}, {"image": {"name": "custom/u-2204-a"}}]"#,
        );
        let id = system_id(&sim, "bm01");
        let deploy = post(&sim, ADMIN, &format!("machines/{id}/?op=deploy"), &[("distro_series", asked)]).await;
        assert_eq!(deploy.status, status, "{asked}: {}", deploy.text);
        match status {
            200 => {
                let machine = deploy.json();
                let series = machine["distro_series"].as_str().unwrap();
                assert_eq!(format!("{}/{series}", machine["osystem"].as_str().unwrap()), got, "{asked}");
            }
            500 => assert_eq!(deploy.text, got),
            _ => assert!(deploy.json()["distro_series"][0].as_str().unwrap().contains(asked), "{}", deploy.text),
        }
    }
}

#[tokio::test]
async fn a_machine_without_disks_runs_from_memory_and_so_is_no_vm_host() {
    let sim = lab();
    arrange(&sim, r#"[{"machine": {"hostname": "bm01", "disks": []}}]"#);
    let path = format!("machines/{}/?op=deploy", system_id(&sim, "bm01"));
    let refused = post(&sim, ADMIN, &path, &[("install_kvm", "true")]).await;
    assert_eq!((refused.status, refused.text.as_str()), (400, "Cannot deploy as a VM host for ephemeral deployments."));
    let deployed = post(&sim, ADMIN, &path, &[]).await.json();
    assert_eq!(deployed["ephemeral_deploy"], true);
}

#[tokio::test]
async fn a_kernel_of_a_release_without_image_is_refused_by_its_field() {
    for (version, words) in
        [("3.4", "hwe-14.04 is not a usable kernel."), ("3.7", "No kernel matches \">=hwe-14.04\" requirement.")]
    {
        let sim = lab_of(version.parse().unwrap());
        let path = format!("machines/{}/", system_id(&sim, "bm01"));
        let refused = send(&sim, ADMIN, "PUT", &path, &[("min_hwe_kernel", "hwe-14.04")]).await;
        assert_eq!((refused.status, refused.json()), (400, json!({"min_hwe_kernel": [words]})));
        assert_eq!(send(&sim, ADMIN, "PUT", &path, &[("min_hwe_kernel", "ga-22.04")]).await.status, 200);
    }
}

#[tokio::test]
async fn a_dpu_is_an_arm64_machine() {
    let form = [
        ("architecture", "amd64/generic"),
        ("mac_addresses", "52:54:00:00:66:01"),
        ("power_type", "manual"),
        ("is_dpu", "true"),
    ];
    let refused = post(&lab_of("3.7".parse().unwrap()), ADMIN, "machines/", &form).await;
    let words = "Invalid DPU architecture provided. Only 'arm64' architecture is supported.";
    assert_eq!((refused.status, refused.json()), (400, json!({"__all__": [words]})));
    assert_eq!(post(&lab(), ADMIN, "machines/", &form).await.status, 200, "3.4 has no such field");
}
