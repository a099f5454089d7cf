//! From nothing to a running VM.

use serde_json::json;

use crate::stage::Stage;

#[tokio::test]
async fn a_vm_is_made_taken_and_deployed_with_at_most_six_changes_in_maas() {
    let stage = Stage::new();
    stage.vm("cp-0");
    stage.maas.control().clear_ledger();
    stage.until_ready(&["cp-0"]).await;
    let made = stage.mutations();
    assert!(made.len() <= 6, "{made:?}");
    assert_eq!(made.first().map(String::as_str), Some("vm-host.compose"), "{made:?}");
    let object = stage.object("cp-0");
    let id = object["spec"]["systemID"].as_str().unwrap();
    let zone = object["status"]["failureDomain"].as_str().unwrap();
    assert_eq!(object["spec"]["providerID"], format!("maas-lxd://{zone}/{id}"));
    let status = &object["status"];
    assert_eq!((&status["provisioningMode"], &object["spec"]["failureDomain"]), (&json!("lxd"), &json!(null)));
    assert_eq!(status["lxdHost"], zone.replace("az", "host"));
    assert_eq!(status["lxdProject"], "maas");
    let usage = json!({ "allocatedCores": 2, "allocatedMemory": 2048, "allocatedDisk": 20 });
    assert_eq!(status["vmResourceUsage"], usage);
    for (type_, reason) in [
        ("LXDHostSelected", "HostSelected"),
        ("LXDResourcesAllocated", "ResourcesAllocated"),
        ("LXDVMCreated", "VMCreated"),
        ("LXDVMDeployed", "VMDeployed"),
        ("MachineDeployed", "MachineDeployed"),
    ] {
        let condition = stage.condition("cp-0", type_);
        assert_eq!((&condition["status"], &condition["reason"]), (&json!("True"), &json!(reason)), "{condition}");
    }
    assert!(stage.condition("cp-0", "LXDHostSelected")["message"].as_str().unwrap().contains("host"));
}

#[tokio::test]
async fn s03_name_and_place_are_written_down_before_the_vm_is_made() {
    let stage = Stage::new();
    stage.vm("cp-0");
    stage
        .until(&["cp-0"], "a place", |stage| {
            assert_eq!(stage.mutations().iter().filter(|kind| *kind == "vm-host.compose").count(), 0);
            !stage.record("cp-0")["vm"]["place"].is_null()
        })
        .await;
    let name = stage.record("cp-0")["vm"]["name"].as_str().unwrap().to_owned();
    assert!(name.starts_with("cp-0-") && name.len() <= 63, "{name}");
    stage.until_ready(&["cp-0"]).await;
    assert_eq!((stage.in_maas(), stage.in_lxd()), (vec![name.clone()], vec![name]));
}

#[tokio::test]
async fn a_control_plane_that_is_made_at_once_is_spread_over_the_zones() {
    let stage = Stage::new();
    let names = ["cp-0", "cp-1", "cp-2"];
    for name in names {
        stage.vm(name);
    }
    stage.until_ready(&names).await;
    let mut zones: Vec<_> =
        names.iter().map(|name| stage.object(name)["status"]["failureDomain"].to_string()).collect();
    zones.sort();
    zones.dedup();
    assert_eq!(zones.len(), 3, "{zones:?}");
}

#[tokio::test]
async fn metal_and_vms_live_side_by_side() {
    let stage = Stage::new();
    stage.arrange(json!([{"machine": {"hostname": "bm01", "zone": "az1", "cpu_count": 4, "memory": 8192}}]));
    stage.machine("metal", json!({}));
    stage.vm("vm");
    stage.until_ready(&["metal", "vm"]).await;
    assert!(stage.object("metal")["spec"]["providerID"].as_str().unwrap().starts_with("maas://"));
    assert!(stage.object("vm")["spec"]["providerID"].as_str().unwrap().starts_with("maas-lxd://"));
    assert_eq!(stage.object("metal")["status"]["provisioningMode"], "bare-metal");
}

#[tokio::test]
async fn s02_a_manager_that_dies_between_making_a_vm_and_writing_it_down_finds_it_by_its_name() {
    let mut stage = Stage::new();
    stage.vm("cp-0");
    stage.until(&["cp-0"], "composing", |stage| stage.mutations().contains(&"vm-host.compose".to_owned())).await;
    // As if the pass had been interrupted right after the request: only the intent is journaled.
    stage.restart();
    stage.until_ready(&["cp-0"]).await;
    assert_eq!((stage.in_maas().len(), stage.in_lxd().len()), (1, 1));
    assert_eq!(stage.maas.control().effective("compose"), 1);
}

#[tokio::test]
async fn s02_a_lost_answer_makes_no_second_vm() {
    let stage = Stage::new();
    stage.vm("cp-0");
    for kind in ["vm-host.compose", "machines.allocate", "machine.deploy"] {
        stage.fault(json!({ "match": { "kind": kind }, "when": "after", "do": "reset" }));
    }
    stage.until_ready(&["cp-0"]).await;
    assert_eq!((stage.in_maas().len(), stage.in_lxd().len()), (1, 1));
    assert_eq!(stage.maas.control().effective("compose"), 1);
}

#[tokio::test]
async fn a_fixed_address_is_given_to_the_vm_and_one_that_somebody_holds_is_not_taken() {
    let stage = Stage::new();
    let fixed = json!({ "provisioningMode": "lxd", "staticIP": "10.0.0.77" });
    stage.machine("cp-0", fixed.clone());
    stage.maas.control().clear_ledger();
    stage.until_ready(&["cp-0"]).await;
    assert!(stage.mutations().len() <= 6, "{:?}", stage.mutations());
    let addresses = stage.object("cp-0")["status"]["addresses"].to_string();
    assert!(addresses.contains("10.0.0.77"), "{addresses}");
    stage.machine("cp-1", fixed);
    stage.until(&["cp-1"], "a refusal", |stage| stage.reason("cp-1", "MachineDeployed") == "StaticIPFailed").await;
    let said = stage.condition("cp-1", "MachineDeployed")["message"].to_string();
    assert!(said.contains("10.0.0.77") && said.contains("held"), "{said}");
}

#[tokio::test]
async fn a_fixed_address_that_is_to_be_filled_in_is_waited_for_before_anything_is_made() {
    let stage = Stage::new();
    stage.machine("cp-0", json!({ "provisioningMode": "lxd", "staticIP": { "cidr": "10.0.0.0/24" } }));
    for _ in 0..5 {
        stage.pass("cp-0").await;
        stage.advance(30);
    }
    assert_eq!(stage.reason("cp-0", "MachineDeployed"), "WaitingForStaticIP");
    assert_eq!(stage.in_lxd(), Vec::<String>::new());
}

#[tokio::test]
async fn three_vms_of_one_template_each_get_a_fixed_address_of_their_own() {
    let stage = Stage::new();
    let names = ["cp-0", "cp-1", "cp-2"];
    let modes = json!({ "eth0": "static" });
    for name in names {
        let config = json!({ "enabled": true, "vmConfig": { "interfaceLinkModes": modes } });
        stage.machine(name, json!({ "lxd": config }));
    }
    stage.until_ready(&names).await;
    let mut given: Vec<String> = names
        .iter()
        .map(|name| {
            let addresses = stage.object(name)["status"]["addresses"].as_array().cloned().unwrap();
            let ip = addresses.iter().find(|address| address["type"] == "InternalIP").unwrap();
            ip["address"].as_str().unwrap().to_owned()
        })
        .collect();
    given.sort();
    given.dedup();
    assert_eq!(given.len(), 3, "{given:?}");
}
