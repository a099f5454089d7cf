//! The three programs in the documented order, on a real LXD and a simulated MAAS that connects to it.
#![allow(clippy::unwrap_used, clippy::expect_used, clippy::panic)]

mod support;

use std::os::unix::fs::MetadataExt;

use support::{KEY, Scene, end};

#[tokio::test(flavor = "multi_thread")]
async fn the_programs_prove_a_node_and_leave_only_what_they_say() {
    let scene = Scene::start().await;

    // Before lxd-test there is no key to register with, and the message says what to do.
    let run = scene.vmhost_test(&["--json"]).await.fails_at("Key pair", "there is no key pair");
    assert!(run.text.contains("sudo ./lxd-test-linux"), "{}", run.text);

    let dry = scene.lxd_test(&["--dry-run", "--json"]).await.succeeds();
    assert_eq!(dry.text.matches("would-do").count(), 5, "{}", dry.text);
    for subject in ["Certificate", "Reachable"] {
        assert_eq!(dry.outcome(subject), "open", "nobody has seen it yet: {subject}: {}", dry.text);
    }
    let words = scene.lxd_test(&["--dry-run"]).await.succeeds();
    assert!(
        words.text.ends_with("nothing is wrong, and 5 steps are left to do: run it without --dry-run\n"),
        "{words:?}"
    );
    assert!(words.text.contains("trusts certificate of the new key pair"), "{words:?}");
    assert!(scene.local().storage_pools().await.unwrap().is_empty(), "a dry run makes nothing");
    assert!(!scene.kept().exists(), "a dry run keeps nothing");

    let run = scene.lxd_test(&["--json"]).await.succeeds();
    for subject in ["Storage pool", "Project", "Listener", "Trust", "Key pair"] {
        assert_eq!(run.outcome(subject), "done", "{subject}: {}", run.text);
    }
    let key = std::fs::metadata(scene.kept().join("client.pem")).unwrap();
    assert_eq!((key.uid(), key.mode() & 0o777), (65534, 0o600), "the key is its user's alone");
    assert_eq!(std::fs::metadata(scene.kept()).unwrap().uid(), 0, "no user can put a link there");
    let dry = scene.lxd_test(&["--dry-run"]).await.succeeds();
    assert!(dry.text.ends_with("lxd-test: everything is in order\n"), "{dry:?}");
    let again = scene.lxd_test(&["--json"]).await.succeeds();
    assert!(!again.text.contains("\"done\""), "a second run finds all as it should be: {}", again.text);

    let before = scene.writes();
    let dry = scene.vmhost_test(&["--dry-run", "--json"]).await.succeeds();
    assert_eq!(dry.outcome("Registration"), "would-do");
    assert_eq!(scene.writes(), before);

    // As documented: with the key as a flag, and with a list for people.
    let mut words = vec!["--zone=default".to_owned(), "--resource-pool=default".to_owned()];
    words.push(format!("--maas-api-key={KEY}"));
    let words: Vec<&str> = words.iter().map(String::as_str).collect();
    let run = end(scene.as_user(env!("CARGO_BIN_EXE_vmhost-test"), &words)).await.succeeds();
    for line in ["[done] Registration", "[ ok ] MAAS reaches LXD", "[ ok ] Host machine", "[done] Unregistration"] {
        assert!(run.text.contains(line), "{line}: {}", run.text);
    }
    for words in ["this node is machine n1 (abc123)", "registered VM host n1 ("] {
        assert!(run.text.contains(words), "as MAAS calls it, and not the node itself: {}", run.text);
    }
    assert!(run.text.ends_with("vmhost-test: everything is in order\n"), "{}", run.text);
    assert_eq!(scene.in_maas(), (vec![], vec![]));

    let run = scene.maas_test(&["--json"]).await.succeeds();
    for subject in ["VM made", "VM deleted", "Unregistration"] {
        assert_eq!(run.outcome(subject), "done", "{subject}: {}", run.text);
    }
    assert_eq!(run.found("VM is gone"), "neither MAAS nor LXD has it any more");
    assert_eq!(scene.in_maas(), (vec![], vec![]));
    assert!(scene.vms().await.is_empty());

    scene.lxd_test(&["--cleanup", "--json"]).await.succeeds();
    let lxd = scene.local();
    assert!(lxd.storage_pools().await.unwrap().is_empty());
    assert!(lxd.project("maas").await.unwrap().is_none());
    assert!(lxd.certificates().await.unwrap().is_empty());
    assert_eq!(lxd.server().await.unwrap().setting("core.https_address"), None);
    assert!(!scene.kept().exists());
    scene.lxd_test(&["--cleanup", "--json"]).await.succeeds();
}

#[tokio::test(flavor = "multi_thread")]
async fn maas_test_alone_reads_and_writes_nothing() {
    let scene = Scene::start().await;
    scene.arrange(&serde_json::json!([{"vm_host": {"name": "other", "power_address": "10.9.9.9:8443"}}]));
    let mut command = tokio::process::Command::new(env!("CARGO_BIN_EXE_maas-test"));
    command.args(["--json", &format!("--maas-endpoint={}", scene.endpoint)]).env("MAAS_API_KEY", KEY);
    let run = end(command).await.succeeds();
    assert!(run.found("VM host").starts_with("other ("), "{}", run.text);
    assert_eq!(scene.writes(), 0);
}
