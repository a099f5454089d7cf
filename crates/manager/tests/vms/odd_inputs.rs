//! Invalid inputs, and the message for each.

use capmaas_manager::kubernetes::Key;
use serde_json::{Value, json};

use crate::stage::Stage;

/// The spec, the expected reason, and words of the expected message.
struct Case {
    spec: Value,
    reason: &'static str,
    words: &'static str,
}

fn case(spec: Value, reason: &'static str, words: &'static str) -> Case {
    Case { spec, reason, words }
}

fn cases() -> Vec<Case> {
    let vm = |more: Value| {
        let mut spec = json!({ "provisioningMode": "lxd" });
        spec.as_object_mut().unwrap().extend(more.as_object().unwrap().clone());
        spec
    };
    vec![
        case(json!({ "image": "  " }), "UnreadableSpec", "spec.image is empty"),
        case(json!({ "image": "ubuntu/nosuch" }), "MachineDeployFailed", "nosuch"),
        case(
            json!({ "minMemory": 8_589_934_592_u64 }),
            "UnreadableSpec",
            "spec.minMemory is 8589934592, which no machine has; it is a number of MB, so 8 GiB are 8192",
        ),
        case(vm(json!({ "minMemory": 8_589_934_592_u64 })), "UnreadableSpec", "so 8 GiB are 8192"),
        case(vm(json!({ "minCPU": 4_294_967_297_u64 })), "UnreadableSpec", "it is a number of cores"),
        case(json!({ "minDiskSize": 5_000_000_000_u64 }), "UnreadableSpec", "it is a number of GB"),
        case(json!({ "minCPU": 4000 }), "NoMachineAvailable", "4000"),
        case(json!({ "tags": ["nosuch"] }), "NoMachineAvailable", "nosuch"),
        case(json!({ "resourcePool": "nosuch" }), "NoMachineAvailable", "nosuch"),
        case(json!({ "failureDomain": "nosuch" }), "NoMachineAvailable", "nosuch"),
        case(json!({ "failureDomain": "a/b" }), "NoMachineAvailable", "a/b"),
        case(json!({ "systemID": "nosuch" }), "NoMachineAvailable", "nosuch"),
        case(json!({ "providerID": "aws:///x" }), "MachineNotFound", "names no machine that could be looked up"),
        case(json!({ "provisioningMode": "cloud" }), "UnreadableSpec", "which this version does not know"),
        case(json!({ "dynamicLXD": true, "provisioningMode": "bare-metal" }), "ContradictorySpec", "disagree"),
        case(json!({ "staticIP": "10.0.0.5" }), "StaticIPFailed", "reserve the address in MAAS"),
        case(json!({ "staticIP": {} }), "WaitingForStaticIP", "fill it in"),
        case(
            vm(json!({ "lxdConfig": { "storage": { "size": "50 bananas" } } })),
            "UnreadableSpec",
            "write a number of GB such as 50",
        ),
        case(
            vm(json!({ "lxdConfig": { "storage": { "size": "999999999999999999999999999999" } } })),
            "UnreadableSpec",
            "is not a size",
        ),
        case(vm(json!({ "lxdConfig": { "vmHost": "nosuch" } })), "HostUnavailable", "lxdConfig.vmHost names"),
        case(
            vm(json!({ "lxdConfig": { "storage": { "pool": "a(b)" } } })),
            "InsufficientResources",
            "without the storage pool",
        ),
    ]
}

#[tokio::test]
async fn every_odd_input_gets_a_sentence_that_names_it() {
    for Case { spec, reason, words } in cases() {
        let stage = Stage::new();
        stage.arrange(json!([{"machine": {"hostname": "bm01", "zone": "az1", "cpu_count": 4, "memory": 8192}}]));
        stage.machine("m", spec.clone());
        for _ in 0..12 {
            stage.pass("m").await;
            stage.advance(1);
            if stage.reason("m", "MachineDeployed") == reason {
                break;
            }
        }
        let condition = stage.condition("m", "MachineDeployed");
        assert_eq!(condition["reason"], reason, "{spec}: {condition}");
        let message = condition["message"].as_str().unwrap();
        assert!(!message.is_empty() && message.contains(words), "{spec}: {message}");
        assert!(stage.object("m")["status"]["ready"] != true, "{spec}");
    }
}

#[tokio::test]
async fn a_machine_that_somebody_else_has_is_named_and_not_taken() {
    let stage = Stage::new();
    stage.arrange(json!([
        {"user": {"name": "somebody", "admin": false, "key": "cs:ts:CANARYsomebody"}},
        {"machine": {"hostname": "bm01", "zone": "az1", "cpu_count": 4, "memory": 8192, "status": "Deployed", "owner": "somebody"}},
    ]));
    let id = stage.maas.control().with_model(|model| model.machine_named("bm01").unwrap());
    stage.machine("m", json!({ "systemID": id }));
    stage.until(&["m"], "told", |stage| stage.reason("m", "MachineDeployed") == "NoMachineAvailable").await;
    let message = stage.condition("m", "MachineDeployed")["message"].to_string();
    assert!(message.contains(&id), "{message}");
}

#[tokio::test]
async fn a_bootstrap_secret_without_its_value_is_named() {
    let stage = Stage::new();
    stage.arrange(json!([{"machine": {"hostname": "bm01", "zone": "az1", "cpu_count": 4, "memory": 8192}}]));
    stage.machine("m", json!({}));
    let secret = Key::new("default", "m");
    stage.port.delete("Secret", &secret);
    stage.create(json!({
        "apiVersion": "v1", "kind": "Secret", "metadata": { "name": "m", "namespace": "default" },
        "stringData": { "format": "cloud-config" },
    }));
    let told = |stage: &Stage| stage.reason("m", "MachineDeployed") == "WaitingForBootstrapData";
    stage.until(&["m"], "told", told).await;
    let message = stage.condition("m", "MachineDeployed")["message"].to_string();
    let words = "the Secret m with the bootstrap data does not exist yet, or has no key \\\"value\\\"";
    assert!(message.contains(words), "{message}");
}

#[tokio::test]
async fn an_image_that_is_still_syncing_is_named_and_passes_by_itself() {
    let stage = Stage::new();
    let syncing = |done: bool| json!([{"image": {"name": "ubuntu/jammy", "complete": done, "on_racks": done}}]);
    stage.arrange(json!([{"machine": {"hostname": "bm01", "zone": "az1", "cpu_count": 4, "memory": 8192}}]));
    stage.arrange(syncing(false));
    stage.machine("m", json!({}));
    stage.until(&["m"], "told", |stage| stage.reason("m", "MachineDeployed") == "MachineDeployFailed").await;
    let message = stage.condition("m", "MachineDeployed")["message"].to_string();
    assert!(message.contains("jammy") && message.contains("wait until MAAS has downloaded it"), "{message}");
    stage.arrange(syncing(true));
    stage.until_ready(&["m"]).await;
}

#[tokio::test(start_paused = true)]
async fn an_endpoint_that_hangs_is_told_as_unavailable() {
    let stage = Stage::new();
    stage.fault(json!({ "do": "hang", "times": 0 }));
    stage.machine("m", json!({}));
    for _ in 0..3 {
        stage.pass("m").await;
        stage.advance(1);
    }
    let condition = stage.condition("m", "MachineDeployed");
    assert_eq!(condition["reason"], "MAASUnavailable", "{condition}");
    assert!(condition["message"].as_str().unwrap().contains("no answer within 60 s"), "{condition}");
}

#[tokio::test]
async fn a_name_of_253_letters_makes_a_vm_with_a_name_that_dns_takes() {
    let stage = Stage::new();
    let name = "a".repeat(253);
    stage.vm(&name);
    stage.until_ready(&[&name]).await;
    let made = stage.in_maas();
    assert!(made[0].starts_with("aaaa") && made[0].len() <= 63, "{made:?}");
}

#[tokio::test]
async fn a_machine_in_a_zone_with_a_blank_is_deployed_and_of_use() {
    let stage = Stage::new();
    stage.arrange(json!([
        {"zone": {"name": "rack 1"}},
        {"machine": {"hostname": "bm01", "zone": "rack 1", "cpu_count": 4, "memory": 8192}},
    ]));
    stage.machine("m", json!({ "failureDomain": "rack 1" }));
    stage.until_ready(&["m"]).await;
    let spec = stage.object("m")["spec"].clone();
    assert!(spec["providerID"].as_str().unwrap().starts_with("maas://rack%201/"), "{spec}");
    assert_eq!(spec["failureDomain"], "rack 1");
    stage.until_gone(&["m"]).await;
}

#[tokio::test]
async fn a_machine_without_dhcp_is_told_so_and_its_image_is_not_suspected() {
    let stage = Stage::new();
    for name in ["bm01", "bm02"] {
        stage.arrange(json!([{"machine": {
            "hostname": name, "zone": "az1", "cpu_count": 4, "memory": 8192, "next": {"deploy": "fail"},
        }}]));
    }
    stage.arrange(json!([{"vlan": {"fabric": "fabric-0", "vid": 0, "dhcp_on": false}}]));
    stage.machine("m", json!({}));
    let failed = |stage: &Stage| stage.record("m")["failed"].as_array().is_some_and(|failed| failed.len() == 2);
    let mut told = String::new();
    stage
        .until(&["m"], "both fail", |stage| {
            let message = stage.condition("m", "MachineDeployed")["message"].as_str().unwrap_or_default().to_owned();
            if message.contains("DHCP") {
                told = message;
            }
            failed(stage)
        })
        .await;
    assert!(told.contains("where MAAS neither serves nor relays DHCP: turn it on there"), "{told}");
    stage.until(&["m"], "waiting", |stage| stage.reason("m", "MachineDeployed") == "NoMachineAvailable").await;
}

#[tokio::test]
async fn s14_a_machine_whose_power_nobody_can_tell_stays_until_a_person_gives_it_up_by_its_name() {
    let stage = Stage::new();
    stage.arrange(json!([{"machine": {
        "hostname": "bm01", "zone": "az1", "cpu_count": 4, "memory": 8192, "power_type": "manual",
    }}]));
    stage.machine("m", json!({}));
    stage.until_ready(&["m"]).await;
    let id = stage.record("m")["machine"].as_str().unwrap().to_owned();
    let key = Key::new("default", "m");
    stage.port.delete("MaasMachine", &key);
    let told = |stage: &Stage| stage.reason("m", "MachineDeployed") == "MachineReleaseFailed";
    stage.until(&["m"], "told", told).await;
    let message = stage.condition("m", "MachineDeployed")["message"].to_string();
    assert!(message.contains(&format!("abandon-machine: {id}")), "{message}");
    let abandon = json!({ "metadata": { "annotations": { "infrastructure.cluster.x-k8s.io/abandon-machine": id } } });
    stage.port.edit("MaasMachine", &key, &abandon).unwrap();
    stage.until(&["m"], "gone", |stage| stage.object("m").is_null()).await;
}

#[tokio::test]
async fn s01_a_journal_that_cannot_be_read_keeps_the_finalizer_and_tells_what_to_do() {
    let stage = Stage::new();
    stage.machine("m", json!({}));
    stage.pass("m").await;
    let key = Key::new("default", "m");
    let garbled =
        json!({ "metadata": { "annotations": { "infrastructure.cluster.x-k8s.io/maas-record": "{\"key\":" } } });
    stage.port.edit("MaasMachine", &key, &garbled).unwrap();
    stage.port.delete("MaasMachine", &key);
    stage.pass("m").await;
    let condition = stage.condition("m", "MachineDeployed");
    assert_eq!(condition["reason"], "UnreadableSpec", "{condition}");
    assert!(condition["message"].as_str().unwrap().contains("cannot read the annotation"), "{condition}");
}
