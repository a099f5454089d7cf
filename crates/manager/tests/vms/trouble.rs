//! Failures along the way, and each of the six kinds of refusal.

use std::time::Duration;

use capmaas_core::plan::Requeue;
use serde_json::{Value, json};

use crate::stage::Stage;

/// A request that cannot be fulfilled is retried after half a minute.
const RETRY: Requeue = Requeue::After(Duration::from_secs(30));
/// A problem that can be fixed is fixed immediately.
const AT_ONCE: Requeue = Requeue::NOW;

/// Runs passes until the condition has this reason, and returns it; that pass must request this requeue.
async fn refused(stage: &Stage, type_: &str, reason: &str, again: Requeue) -> Value {
    for _ in 0..60 {
        let asked = stage.pass("cp-0").await;
        if stage.reason("cp-0", type_) == reason {
            assert_eq!(asked, again, "{reason}");
            return stage.condition("cp-0", type_);
        }
        stage.advance(1);
    }
    panic!("{reason} never happens: {:#?}", stage.object("cp-0"));
}

fn says(condition: &Value, severity: &str, words: &str) {
    assert_eq!((&condition["status"], &condition["severity"]), (&json!("False"), &json!(severity)), "{condition}");
    assert!(condition["message"].as_str().unwrap().contains(words), "{condition}");
}

#[tokio::test]
async fn too_much_asked_for_is_insufficient_resources_and_passes_when_a_host_comes() {
    let stage = Stage::new();
    stage.machine("cp-0", json!({ "provisioningMode": "lxd", "minCPU": 12 }));
    let condition = refused(&stage, "LXDHostSelected", "InsufficientResources", RETRY).await;
    says(&condition, "Warning", "LXD InsufficientResources: ");
    assert_eq!(stage.reason("cp-0", "LXDResourcesAllocated"), "InsufficientResources");
    assert_eq!(stage.reason("cp-0", "MachineDeployed"), "InsufficientResources");
    assert_eq!(stage.in_lxd(), Vec::<String>::new());
    stage.host(4, 16, 32768);
    stage.until_ready(&["cp-0"]).await;
    assert_eq!(stage.object("cp-0")["status"]["lxdHost"], "host4");
}

#[tokio::test]
async fn a_project_that_no_host_has_is_project_not_found() {
    let stage = Stage::new();
    stage.machine("cp-0", json!({ "provisioningMode": "lxd", "lxdConfig": { "project": "elsewhere" } }));
    let condition = refused(&stage, "LXDHostSelected", "ProjectNotFound", RETRY).await;
    says(&condition, "Error", "LXD ProjectNotFound: ");
    assert_eq!(stage.reason("cp-0", "MachineDeployed"), "ProjectNotFound");
    assert_eq!(stage.in_lxd(), Vec::<String>::new());
}

#[tokio::test]
async fn a_profile_that_nobody_reports_is_profile_not_found() {
    let stage = Stage::new();
    stage.machine("cp-0", json!({ "provisioningMode": "lxd", "lxdConfig": { "profile": "maas" } }));
    let condition = refused(&stage, "LXDHostSelected", "ProfileNotFound", RETRY).await;
    says(&condition, "Error", "LXD ProfileNotFound: ");
    assert_eq!(stage.reason("cp-0", "MachineDeployed"), "ProfileNotFound");
    assert_eq!(stage.in_lxd(), Vec::<String>::new());
}

#[tokio::test]
async fn hosts_that_are_all_off_are_host_unavailable_and_looked_at_again() {
    let stage = Stage::new();
    let power = |state: &str| {
        let hosts = ["host1", "host2", "host3"].map(|name| json!({"machine": {"hostname": name, "power": state}}));
        stage.arrange(json!(hosts));
    };
    power("off");
    stage.vm("cp-0");
    let condition = refused(&stage, "LXDHostSelected", "HostUnavailable", RETRY).await;
    says(&condition, "Warning", "LXD HostUnavailable: none of 3 LXD hosts can take the VM: ");
    assert_eq!(stage.reason("cp-0", "MachineDeployed"), "HostUnavailable");
    assert_eq!(stage.mutations().iter().filter(|kind| kind.contains("compose")).count(), 0);
    power("on");
    stage.until_ready(&["cp-0"]).await;
}

#[tokio::test]
async fn hosts_that_do_not_answer_are_host_unavailable_and_another_one_takes_over() {
    let stage = Stage::new();
    stage.vm("cp-0");
    // MAAS considers the host available until it has to use it.
    stage.fault(json!({
        "match": { "kind": "vm-host.compose" }, "do": "status", "status": 503, "content_type": "text/plain",
        "body": "Failed talking to pod: Failed to connect to the LXD REST API.",
    }));
    let condition = refused(&stage, "MachineDeployed", "HostUnavailable", RETRY).await;
    says(&condition, "Warning", "LXD HostUnavailable: ");
    let first = stage.record("cp-0")["vm"]["avoided"][0]["host"].clone();
    stage.until_ready(&["cp-0"]).await;
    assert_ne!(stage.record("cp-0")["vm"]["place"]["host"], first);
    assert_eq!((stage.in_maas().len(), stage.in_lxd().len()), (1, 1));
}

#[tokio::test]
async fn a_vm_that_cannot_be_made_is_asked_for_once_more_and_then_another_host_takes_over() {
    let stage = Stage::new();
    stage.vm("cp-0");
    stage.fault(json!({
        "match": { "kind": "vm-host.compose" }, "do": "status", "status": 503, "content_type": "text/plain", "times": 2,
        "body": "Unable to compose machine because: No host network to attach VM interfaces to",
    }));
    let condition = refused(&stage, "LXDVMCreated", "VMCreationFailed", RETRY).await;
    says(&condition, "Warning", "LXD VMCreationFailed: ");
    let first = stage.record("cp-0")["vm"]["place"]["host"].clone();
    assert!(first.is_number(), "the host is asked once more, because LXD may have the VM: {}", stage.record("cp-0"));
    stage.until_ready(&["cp-0"]).await;
    assert_ne!(stage.record("cp-0")["vm"]["place"]["host"], first);
    assert_eq!(stage.in_lxd().len(), 1);
}

#[tokio::test]
async fn s09_a_vm_whose_deployment_fails_is_removed_and_made_elsewhere() {
    let stage = Stage::new();
    stage.vm("cp-0");
    stage.until(&["cp-0"], "a VM", |stage| !stage.in_maas().is_empty()).await;
    let first = stage.in_maas()[0].clone();
    stage.arrange(json!([{"machine": {"hostname": first, "next": {"deploy": "fail"}}}]));
    let condition = refused(&stage, "MachineDeployed", "MachineDeployFailed", AT_ONCE).await;
    says(&condition, "Warning", "LXD VM deployment failed: ");
    says(&stage.condition("cp-0", "LXDVMDeployed"), "Warning", "LXD VMDeploymentFailed: ");
    let host = stage.record("cp-0")["vm"]["place"]["host"].clone();
    stage.until_ready(&["cp-0"]).await;
    assert_ne!(stage.record("cp-0")["vm"]["place"]["host"], host);
    assert_eq!((stage.in_maas().len(), stage.in_lxd().len()), (1, 1), "nothing of the first is left");
    assert_ne!(stage.in_maas()[0], first);
}

#[tokio::test]
async fn s17_the_same_image_failing_twice_is_blamed_and_no_third_vm_is_made() {
    let stage = Stage::new();
    stage.vm("cp-0");
    for _ in 0..2 {
        let before = stage.record("cp-0")["failed"].as_array().map_or(0, Vec::len);
        stage
            .until(&["cp-0"], "a failure", |stage| {
                for name in stage.in_maas() {
                    stage.arrange(json!([{"machine": {"hostname": name, "next": {"deploy": "fail"}}}]));
                }
                stage.record("cp-0")["failed"].as_array().map_or(0, Vec::len) > before
            })
            .await;
    }
    stage.until(&["cp-0"], "the end", |stage| stage.reason("cp-0", "MachineDeployed") == "ImageSuspected").await;
    assert_eq!((stage.in_maas(), stage.in_lxd()), (Vec::<String>::new(), Vec::<String>::new()));
}

#[tokio::test]
async fn s10_a_vm_that_somebody_takes_first_is_theirs_and_another_one_is_made() {
    let stage = Stage::new();
    stage.vm("cp-0");
    stage.until(&["cp-0"], "a VM", |stage| !stage.in_maas().is_empty()).await;
    let stolen = stage.in_maas()[0].clone();
    stage.arrange(json!([{"machine": {"hostname": stolen, "status": "Allocated", "owner": "bob"}}]));
    stage.until_ready(&["cp-0"]).await;
    assert_eq!(stage.in_maas().len(), 2, "{:?}", stage.in_maas());
    let ours = stage.object("cp-0")["status"]["hostname"].clone();
    assert_ne!(ours, stolen);
    stage.until_gone(&["cp-0"]).await;
    assert_eq!(stage.in_maas(), vec![stolen], "bob's VM is not touched");
}

#[tokio::test]
async fn s12_a_vm_that_only_lxd_knows_is_left_to_a_person_where_a_refresh_could_harm_others() {
    let stage = Stage::new();
    stage.vm("cp-0");
    // MAAS dies after LXD has created the VM and before it is in the database.
    stage.fault(json!({ "match": { "kind": "vm-host.compose" }, "when": "before", "do": "kill", "down_seconds": 20 }));
    stage.until_ready(&["cp-0"]).await;
    assert_eq!(stage.mutations().iter().filter(|kind| kind.contains("refresh")).count(), 0);
    assert_eq!(stage.in_maas().len(), 1);
}

#[tokio::test]
async fn s10_a_vm_that_somebody_elses_refresh_brought_back_is_waited_for_and_taken() {
    let stage = Stage::new();
    stage.vm("cp-0");
    stage.fault(json!({ "match": { "kind": "vm-host.compose" }, "when": "before", "do": "kill", "down_seconds": 20 }));
    stage.until(&["cp-0"], "a VM that only LXD knows", |stage| !stage.in_lxd().is_empty()).await;
    stage.advance(30);
    stage.maas.control().with_model(|model| {
        let bob = model.db.users.values().find(|user| user.name == "bob").map(|user| user.id).unwrap();
        for host in model.db.vm_hosts.keys().copied().collect::<Vec<_>>() {
            assert!(model.refresh_vm_host(host, bob).is_ok());
        }
    });
    assert_eq!(stage.in_maas(), stage.in_lxd());
    stage.until_ready(&["cp-0"]).await;
    assert_eq!((stage.in_maas().len(), stage.in_lxd().len()), (1, 1), "no other VM was made");
    stage.until_gone(&["cp-0"]).await;
    assert_eq!((stage.in_maas(), stage.in_lxd()), (Vec::<String>::new(), Vec::<String>::new()));
}
