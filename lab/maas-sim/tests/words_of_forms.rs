//! What MAAS says to requests that are wrong, in its own words (read in the source of its forms where nobody recorded it).
#![allow(clippy::unwrap_used, clippy::expect_used, clippy::panic)]

mod common;

use common::{ADMIN, ALICE, get, lab, post, send, system_id};
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
