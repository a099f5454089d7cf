//! What the programs do when something is wrong, or goes wrong in the middle.
#![allow(clippy::unwrap_used, clippy::expect_used, clippy::panic)]

mod support;

use std::time::Duration;

use maas_sim::config::Durations;
use serde_json::json;
use support::{Scene, end};

async fn prepared() -> Scene {
    let scene = Scene::start().await;
    scene.lxd_test(&["--json"]).await.succeeds();
    scene
}

/// Waits for the VM of a maas-test to be in MAAS and returns its ID.
async fn vm_in_maas(scene: &Scene, status: &str) -> String {
    for _ in 0..20_000 {
        let found = scene.sim.control().with_model(|model| {
            let of_test = |name: &str| name.starts_with("capmaas-test-");
            let mut machines = model.db.machines.values().filter(|machine| of_test(&machine.hostname));
            machines.find(|machine| status.is_empty() || machine.status.name() == status).map(|m| m.system_id.clone())
        });
        if let Some(id) = found {
            return id;
        }
        tokio::time::sleep(Duration::from_millis(1)).await;
    }
    panic!("no VM appears");
}

#[tokio::test(flavor = "multi_thread")]
async fn s10_a_vm_that_somebody_else_took_is_not_deleted_and_keeps_its_host() {
    let scene = prepared().await;
    let run = scene.maas_test_command(&["--json"]).spawn().unwrap();
    let id = vm_in_maas(&scene, "Ready").await;
    scene.arrange(&json!([{"machine": {"system_id": id, "status": "Allocated", "owner": "alice"}}]));
    let output = run.wait_with_output().await.unwrap();
    let text = String::from_utf8(output.stdout).unwrap();
    assert_eq!(output.status.code(), Some(1), "{text}");
    assert!(text.contains("somebody else took"), "{text}");
    assert_eq!(scene.vms().await.len(), 1, "{text}");
    let (hosts, machines) = scene.in_maas();
    assert_eq!((hosts.len(), machines.len()), (1, 1), "S11, {text}");
}

#[tokio::test(flavor = "multi_thread")]
async fn s10_a_vm_that_cannot_be_taken_is_not_deleted() {
    let scene = prepared().await;
    let text = "No available machine matches constraints: nothing";
    scene.fault(json!({"match": {"kind": "allocate"}, "do": "status", "status": 409, "body": text, "times": 0}));
    let run = scene.maas_test(&["--json"]).await.fails_at("VM is ours", "somebody else took");
    assert_eq!(run.outcome("Unregistration"), "failed", "S11: {}", run.text);
    assert_eq!(scene.vms().await.len(), 1);
}

#[tokio::test(flavor = "multi_thread")]
async fn s12_a_host_whose_project_holds_a_vm_is_not_registered_nor_cleaned_up() {
    let scene = prepared().await;
    scene.make_vm("precious");
    scene.vmhost_test(&["--json"]).await.fails_at("Registration", "instances that MAAS does not know (precious)");
    scene.maas_test(&["--json"]).await.fails_at("Registration", "precious");
    assert_eq!(scene.writes(), 0);
    scene.lxd_test(&["--cleanup", "--json"]).await.fails_at("Project", "holds instances (precious)");
    assert_eq!(scene.local().certificates().await.unwrap().len(), 1, "nothing is taken back");
}

#[tokio::test(flavor = "multi_thread")]
async fn lost_answers_are_found_and_everything_is_taken_back() {
    let scene = prepared().await;
    for kind in ["create", "compose", "allocate"] {
        scene.fault(json!({"match": {"kind": kind, "method": "POST"}, "when": "after", "do": "reset"}));
    }
    let run = scene.maas_test(&["--json"]).await.succeeds();
    for subject in ["Registration", "VM made"] {
        assert!(run.found(subject).contains("answer was lost"), "{}", run.text);
    }
    assert_eq!(scene.in_maas(), (vec![], vec![]));
    assert!(scene.vms().await.is_empty());
}

#[tokio::test(flavor = "multi_thread")]
async fn s02_a_registration_that_an_earlier_run_sent_and_that_may_still_land_is_not_sent_again() {
    let scene = prepared().await;
    let intent = scene.kept().join("intent/registration");
    let certificate = std::fs::read_to_string(scene.kept().join("client.pem")).unwrap();
    let certificate = lxd_client::Fingerprint::of_pem(&certificate).unwrap();
    let sent = |at: jiff::Timestamp| json!({"sent": at.to_string(), "certificate": certificate}).to_string();
    for (text, words) in [
        (sent(jiff::Timestamp::now()), "waiting for MAAS's answer to its registration"),
        ("{".to_owned(), "intent/registration is not as it was written"),
    ] {
        std::fs::write(&intent, text).unwrap();
        std::fs::set_permissions(&intent, std::os::unix::fs::PermissionsExt::from_mode(0o644)).unwrap();
        scene.vmhost_test(&["--json"]).await.fails_at("Registration", words);
    }
    assert_eq!(scene.writes(), 0);
    std::fs::write(&intent, sent(jiff::Timestamp::now() - jiff::SignedDuration::from_secs(151))).unwrap();
    for _ in 0..2 {
        scene.vmhost_test(&["--json"]).await.succeeds();
        assert!(!intent.exists(), "the answer arrived");
    }
}

#[tokio::test(flavor = "multi_thread")]
async fn a_composition_that_fails_ends_with_the_registration_taken_back() {
    let scene = prepared().await;
    let text = "Unable to compose machine because: Failed talking to pod: no room";
    scene.fault(json!({"match": {"kind": "compose"}, "do": "status", "status": 503, "body": text, "times": 0}));
    let run = scene.maas_test(&["--json"]).await.fails_at("VM made", "no room");
    assert_eq!(run.outcome("Unregistration"), "done", "{}", run.text);
    assert_eq!(scene.in_maas(), (vec![], vec![]));
}

#[tokio::test(flavor = "multi_thread")]
async fn an_interrupted_program_removes_what_it_made_first() {
    let slow = Durations { commission: 600.0, ..Durations::quick() };
    let scene = Scene::with(slow, "3.8").await;
    scene.lxd_test(&["--json"]).await.succeeds();
    let run = scene.maas_test_command(&["--json"]).spawn().unwrap();
    vm_in_maas(&scene, "Commissioning").await;
    let pid = rustix::process::Pid::from_raw(i32::try_from(run.id().unwrap()).unwrap()).unwrap();
    tokio::time::sleep(Duration::from_millis(500)).await;
    rustix::process::kill_process(pid, rustix::process::Signal::INT).unwrap();
    let output = run.wait_with_output().await.unwrap();
    let text = String::from_utf8(output.stdout).unwrap();
    assert_eq!(output.status.code(), Some(1), "{text}");
    assert_eq!(scene.in_maas(), (vec![], vec![]), "{text}");
    assert!(scene.vms().await.is_empty());
}

#[tokio::test(flavor = "multi_thread")]
async fn a_registration_that_was_cut_off_is_accepted_and_taken_back() {
    let scene = prepared().await;
    // The program dies after the registration: its removal is refused.
    let refuse =
        json!({"match": {"path": "vm-hosts/", "method": "DELETE"}, "do": "status", "status": 503, "body": "busy"});
    scene.fault(refuse);
    scene.vmhost_test(&["--json"]).await.fails_at("Unregistration", "busy");
    assert_eq!(scene.in_maas().0.len(), 1);
    let intent = scene.kept().join("intent/registration");
    std::fs::write(&intent, json!({"sent": jiff::Timestamp::now().to_string()}).to_string()).unwrap();
    std::fs::set_permissions(&intent, std::os::unix::fs::PermissionsExt::from_mode(0o644)).unwrap();
    let run = scene.vmhost_test(&["--json"]).await.succeeds();
    assert!(!intent.exists(), "what was in flight has landed");
    assert_eq!((run.outcome("Registration"), run.outcome("Unregistration")), ("good".into(), "done".into()));
    assert_eq!(scene.in_maas(), (vec![], vec![]));
}

#[tokio::test(flavor = "multi_thread")]
async fn a_registration_by_somebody_else_is_accepted_and_stays() {
    let scene = prepared().await;
    // Somebody registered the machine with another key that LXD trusts.
    let other = tempfile::tempdir().unwrap();
    lxd_initializer::keys::make(other.path(), "somebody").unwrap();
    let lxd_initializer::observed::Lookup::Found(pair) = lxd_initializer::keys::load(other.path()) else { panic!() };
    let new = lxd_client::NewCertificate {
        name: "somebody".into(),
        certificate_pem: pair.certificate_pem().to_owned(),
        projects: None,
    };
    scene.local().trust_certificate(&new).await.unwrap();
    let maas = maas_client::Client::builder(&scene.endpoint, support::KEY).build().unwrap();
    let auth = maas_client::VmHostAuth::Certificate {
        certificate: pair.certificate_pem().to_owned(),
        key: pair.key_pem().clone(),
    };
    let host = maas_client::NewVmHost::new("kind-turtle", scene.node.address(), "maas", auth);
    maas.vm_hosts().create(&host).await.unwrap();
    tokio::time::sleep(Duration::from_secs(1)).await;
    let before = scene.writes();
    let run = scene.vmhost_test(&["--json"]).await.succeeds();
    assert!(run.found("Registration").contains("somebody else registered it"), "{}", run.text);
    assert_eq!(scene.writes(), before);
    scene.maas_test(&["--json"]).await.succeeds();
    assert_eq!(scene.in_maas(), (vec!["kind-turtle".to_owned()], vec![]));
}

#[tokio::test(flavor = "multi_thread")]
async fn every_trouble_of_maas_has_its_line_and_changes_nothing() {
    let scene = prepared().await;
    for (key, subject, words) in [
        ("consumer:token:CANARYwrong", "API key", "401"),
        ("ck:tk:CANARYalice", "API key", "who is not an administrator"),
        ("CANARY", "Options", "three parts"),
    ] {
        let mut command = scene.as_user(env!("CARGO_BIN_EXE_vmhost-test"), &["--json"]);
        command.env("MAAS_API_KEY", key);
        end(command).await.fails_at(subject, words);
    }
    scene.maas_test(&["--json", "--maas-ca-file=/nowhere"]).await.fails_at("Options", "/nowhere");
    let mut command = scene.as_user(env!("CARGO_BIN_EXE_vmhost-test"), &["--json", "--zone=nowhere"]);
    command.env("MAAS_API_KEY", support::KEY);
    end(command).await.fails_at("Zone", "MAAS has none named \"nowhere\", only");
    assert_eq!(scene.writes(), 0);
}

#[tokio::test(flavor = "multi_thread")]
async fn an_old_maas_and_an_unknown_machine_are_told() {
    let scene = Scene::with(Durations::quick(), "3.0").await;
    scene.lxd_test(&["--json"]).await.succeeds();
    scene.vmhost_test(&["--json"]).await.fails_at("Version", "accepts no key pair");
    let scene = prepared().await;
    scene.arrange(&json!([{"absent": {"machine": "n1"}}]));
    scene.vmhost_test(&["--json"]).await.fails_at("Machine", "MAAS knows no machine with address");
    assert_eq!(scene.writes(), 0);
}

#[tokio::test(flavor = "multi_thread")]
async fn lxd_test_leaves_alone_what_it_finds_wrong() {
    let scene = Scene::start().await;
    let pool = lxd_client::NewStoragePool { name: "default".into(), driver: "dir".into(), ..Default::default() };
    scene.local().create_storage_pool(&pool).await.unwrap();
    scene.lxd_test(&["--json"]).await.succeeds();
    // What existed before stays after a cleanup.
    scene.lxd_test(&["--cleanup", "--json"]).await.succeeds();
    assert_eq!(scene.local().storage_pools().await.unwrap().len(), 1);
    assert!(scene.local().project("maas").await.unwrap().is_none());

    let mut command = tokio::process::Command::new(env!("CARGO_BIN_EXE_lxd-test"));
    command.args(["--json", "--network-bridge=nowhere0", "--storage-backend=dir", "--storage-pool=default"]);
    command
        .arg(format!("--lxd-socket={}", scene.socket().display()))
        .arg(format!("--key-dir={}", scene.kept().display()));
    let run = end(command).await.fails_at("Bridge", "there is no bridge \"nowhere0\"");
    assert!(!run.text.contains("NETWORK_BRIDGE") && !run.text.contains("this agent"), "{}", run.text);
    assert_eq!(run.outcome("Project"), "open");

    let mut command = tokio::process::Command::new(env!("CARGO_BIN_EXE_lxd-test"));
    command.args(["--json", "--lxd-socket=/nowhere/unix.socket", &format!("--key-dir={}", scene.kept().display())]);
    end(command).await.fails_at("LXD", "there is no LXD on this node");
}

#[tokio::test(flavor = "multi_thread")]
async fn a_storage_driver_that_is_missing_is_not_blamed_on_the_version_of_lxd_or_on_kvm() {
    let scene = Scene::start().await;
    let drivers = scene.local().server().await.unwrap().environment.storage_supported_drivers;
    let missing = ["zfs", "btrfs", "lvm"].into_iter().find(|name| drivers.iter().all(|driver| driver.name != *name));
    let missing = missing.expect("LXD has zfs, btrfs and lvm here: run this test where one of them is missing");
    let mut command = tokio::process::Command::new(env!("CARGO_BIN_EXE_lxd-test"));
    command.args(["--json", "--dry-run", &format!("--storage-backend={missing}")]);
    command
        .arg(format!("--lxd-socket={}", scene.socket().display()))
        .arg(format!("--key-dir={}", scene.kept().display()));
    let run = end(command).await.fails_at("Requirements", &format!("LXD cannot create a pool on {missing} here"));
    assert!(run.found("Requirements").contains("or set --storage-backend"), "{}", run.text);
    assert!(!run.text.contains("or newer") && !run.text.contains("KVM"), "{}", run.text);
}
