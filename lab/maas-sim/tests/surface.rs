//! The API surface is that of MAAS 3.4.10: `surface-3.4.10.txt` is the description of a real one.
#![allow(clippy::unwrap_used, clippy::expect_used, clippy::panic)]

mod common;

use std::collections::BTreeSet;

use common::{ADMIN, ALICE, get, lab, post, send, system_id};
use serde_json::{Value, json};

/// "path method op" of every operation of a description, with the prefix "anonymous" for those that need no signature.
fn operations(description: &Value) -> BTreeSet<String> {
    let mut rows = BTreeSet::new();
    for handler in description["handlers"].as_array().unwrap() {
        let anonymous = if handler["name"].as_str().unwrap().starts_with("Anon") { "anonymous " } else { "" };
        let path = handler["path"].as_str().unwrap().trim_start_matches("/MAAS/api/2.0/");
        for action in handler["actions"].as_array().unwrap() {
            let op = action["op"].as_str().unwrap_or("-");
            rows.insert(format!("{anonymous}{path} {} {op}", action["method"].as_str().unwrap()));
        }
    }
    rows
}

#[tokio::test]
async fn every_operation_that_maas_describes_is_known() {
    let described = operations(&get(&lab(), ADMIN, "describe/").await.json());
    let real: BTreeSet<String> = include_str!("surface-3.4.10.txt").lines().map(str::to_owned).collect();
    // Files of early Juju are read without a signature, and there are none here.
    let missing: Vec<&String> =
        real.difference(&described).filter(|row| *row != "anonymous files/ GET get_by_key").collect();
    assert!(missing.is_empty(), "{missing:?}");
    let invented: Vec<&String> =
        described.difference(&real).filter(|row| !row.starts_with("anonymous devices/")).collect();
    assert!(invented.is_empty(), "{invented:?}");
}

#[tokio::test]
async fn what_is_kept_for_others_is_made_shown_changed_and_deleted() {
    let sim = lab();
    let subnet = post(&sim, ADMIN, "subnets/", &[("cidr", "10.9.0.0/24")]).await.json()["id"].to_string();
    let route = [("source", "10.0.0.0/24"), ("destination", subnet.as_str()), ("gateway_ip", "10.0.0.1")];
    for (path, form, status, change, expected) in [
        ("notifications/", &[("message", "hello"), ("users", "true")][..], 200, ("message", "bye"), json!("bye")),
        ("static-routes/", &route[..], 200, ("metric", "7"), json!(7)),
        ("dhcp-snippets/", &[("name", "s"), ("value", "option x;")][..], 200, ("enabled", "false"), json!(false)),
        (
            "package-repositories/",
            &[("name", "r"), ("url", "http://x")][..],
            200,
            ("components", "main"),
            json!(["main"]),
        ),
        ("boot-sources/", &[("url", "http://x")][..], 201, ("url", "http://y"), json!("http://y")),
        ("boot-sources/1/selections/", &[("release", "jammy")][..], 201, ("release", "noble"), json!("noble")),
    ] {
        let made = post(&sim, ADMIN, path, form).await;
        assert_eq!(made.status, status, "{path}: {}", made.text);
        let missing = post(&sim, ADMIN, path, &[]).await;
        assert_eq!(missing.status, 400, "{path}: {}", missing.text);
        let item = made.json()["resource_uri"].as_str().unwrap().replace("/MAAS/api/2.0/", "");
        assert_eq!(send(&sim, ADMIN, "PUT", &item, &[change]).await.json()[change.0], expected, "{path}");
        let listed = get(&sim, ADMIN, path).await.json();
        assert!(listed.as_array().unwrap().iter().any(|row| row["resource_uri"] == made.json()["resource_uri"]));
        assert_eq!(send(&sim, ALICE, "DELETE", &item, &[]).await.status, 403, "{path}");
        assert_eq!(send(&sim, ADMIN, "DELETE", &item, &[]).await.status, 204, "{path}");
        assert_eq!(get(&sim, ADMIN, &item).await.status, 404, "{path}");
    }
}

#[tokio::test]
async fn ssh_keys_are_everybodys_own() {
    let sim = lab();
    let key = "ssh-ed25519 AAAAC3NzaC1lZDI1NTE5AAAAIJ alice@example";
    let made = post(&sim, ALICE, "account/prefs/sshkeys/", &[("key", key)]).await;
    assert_eq!((made.status, &made.json()["key"]), (201, &json!(key)));
    assert_eq!(get(&sim, ADMIN, "account/prefs/sshkeys/").await.json(), json!([]));
    assert_eq!(get(&sim, ALICE, "account/prefs/sshkeys/").await.json().as_array().unwrap().len(), 1);
    let wrong = post(&sim, ALICE, "account/prefs/sshkeys/", &[("key", "nonsense")]).await;
    assert_eq!((wrong.status, wrong.json()), (400, json!({"key": ["Invalid SSH public key."]})));
}

#[tokio::test]
async fn disks_partitions_and_results_of_a_machine_have_addresses() {
    let sim = lab();
    let id = system_id(&sim, "bm01");
    let disks = get(&sim, ALICE, &format!("nodes/{id}/blockdevices/")).await.json();
    let disk = format!("nodes/{id}/blockdevices/{}/", disks[0]["id"]);
    assert_eq!(get(&sim, ALICE, &disk).await.json(), disks[0]);
    let tagged = post(&sim, ADMIN, &format!("{disk}?op=add_tag"), &[("tag", "fast")]).await.json();
    assert!(tagged["tags"].as_array().unwrap().contains(&json!("fast")));
    assert_eq!(post(&sim, ALICE, &format!("{disk}?op=add_tag"), &[("tag", "x")]).await.status, 403);
    for partition in disks[0]["partitions"].as_array().unwrap() {
        let path = partition["resource_uri"].as_str().unwrap().replace("/MAAS/api/2.0/", "");
        assert_eq!(get(&sim, ADMIN, &path).await.json(), *partition);
    }
    for nothing in ["bcaches/", "raids/", "volume-groups/", "vmfs-datastores/", "bcache-cache-sets/", "devices/"] {
        assert_eq!(get(&sim, ADMIN, &format!("nodes/{id}/{nothing}")).await.json(), json!([]), "{nothing}");
    }
    assert_eq!(get(&sim, ADMIN, &format!("nodes/{id}/raid/7/")).await.text, "No RAID matches the given query.");
}
