//! A machine that runs: its provider ID, its Node, its power.

use std::collections::BTreeMap;
use std::time::Duration;

use capmaas_api::names::CONTROL_PLANE_LABEL;
use capmaas_api::{ConditionStatus, reasons};
use serde_json::json;

use super::super::*;
use super::fixture::*;
use crate::Lookup;
use crate::maas;
use crate::plan::Requeue;

#[test]
fn s19_the_provider_id_is_written_once_and_before_the_nodes() {
    let deployed = fresh().with_journal(&with_machine()).seeing(metal(State::Deployed));
    let plan = decide(&deployed, now());
    assert_eq!(plan.patch.spec.provider_id.as_deref(), Some("maas://az1/abc123"));
    assert_eq!(plan.patch.spec.system_id.as_deref(), Some(ID));
    assert_eq!(plan.effect, None);
    let status = plan.status.unwrap();
    assert!(status.ready);
    assert_eq!(status.initialization.unwrap().provisioned, Some(true));
    let mut go = deployed.clone();
    go.held_elsewhere.use_go_form = true;
    assert_eq!(decide(&go, now()).patch.spec.provider_id.as_deref(), Some("maas:///az1/abc123"));
    let mut named = deployed.provisioned();
    named.node = joined(false, &[]);
    let plan = decide(&named, now());
    assert_eq!(plan.patch.spec, SpecPatch::default());
    let labels = BTreeMap::from([(ZONE_LABEL.to_owned(), "az1".to_owned())]);
    let provider_id = "maas://az1/abc123".to_owned();
    assert_eq!(plan.effect, Some(Effect::NameNode { node: "bm1".into(), provider_id, labels }));
    named.node = joined(true, &[(ZONE_LABEL, "elsewhere")]);
    assert_eq!(effect(&decide(&named, now())), "", "what somebody else set stays");
    named.node = joined(true, &[]);
    assert_eq!(effect(&decide(&named, now())), "name_node", "a kubelet that names its Node itself knows no zone");
    named.node = ObservedNode::Foreign("it is another's".into());
    let plan = decide(&named, now());
    assert_eq!((effect(&plan), reason(&plan)), ("", "NodeProviderIDConflict"));
}

fn joined(named: bool, labels: &[(&str, &str)]) -> ObservedNode {
    let labels = labels.iter().map(|(name, value)| ((*name).to_owned(), (*value).to_owned())).collect();
    ObservedNode::Joined { name: "bm1".into(), named, labels }
}

#[test]
fn a_zone_that_cannot_be_a_label_is_told_and_does_not_keep_the_node_from_its_name() {
    let elsewhere = maas::Machine { zone: "second floor".into(), ..metal(State::Deployed) };
    let mut observed = fresh().with_journal(&with_machine()).seeing(elsewhere).provisioned();
    observed.node = joined(false, &[]);
    let plan = decide(&observed, now());
    assert_eq!(effect(&plan), "name_node");
    let told: Vec<_> = plan.events.iter().map(|event| event.reason).collect();
    assert_eq!(told, [reasons::NODE_LABELS_LEFT_OUT]);
    observed.node = joined(true, &[]);
    assert_eq!(decide(&observed, now()).events, [], "once");
}

#[test]
fn what_cloud_init_reported_is_said_of_a_machine_that_has_no_node() {
    let words = "Node post-installation failure - 'cloudinit' running modules for final";
    let failed = maas::Machine { last_message: words.into(), ..metal(State::Deployed) };
    let mut observed = fresh().with_journal(&with_machine()).seeing(failed).provisioned();
    observed.node = ObservedNode::NotYet;
    let plan = decide(&observed, now());
    let said = condition(&plan, "MachineDeployed");
    assert_eq!((&said.status, reason(&plan)), (&ConditionStatus::True, "BootstrapFailed"), "it runs all the same");
    assert_eq!(said.message.as_deref(), Some(format!("bm1 (abc123) has not joined: {words}").as_str()));
    assert_eq!(effect(&plan), "");
    for node in [joined(true, &[(ZONE_LABEL, "az1")]), ObservedNode::NotAsked] {
        observed.node = node;
        assert_eq!(reason(&decide(&observed, now())), "MachineDeployed", "whatever failed, it has joined");
    }
}

#[test]
fn s20_a_machine_that_is_off_is_turned_on_with_more_and_more_patience() {
    let off = maas::Machine { power: Power::Off, ..metal(State::Deployed) };
    let mut observed = fresh().with_journal(&with_machine()).seeing(off.clone()).provisioned();
    assert_eq!(effect(&decide(&observed, now())), "", "nobody asked the power driver");
    observed.power = Some(Power::Unknown);
    assert_eq!(effect(&decide(&observed, now())), "", "unknown is not off");
    observed.power = Some(Power::Off);
    let plan = decide(&observed, now());
    assert_eq!((effect(&plan), reason(&plan)), ("power_on", "MachinePoweredOff"));
    let observed = observed.with_journal(&plan.patch.journal.unwrap());
    assert_eq!(effect(&decide(&observed, later(500))), "");
    assert_eq!(effect(&decide(&observed, later(601))), "power_on");
    for left in [
        maas::Machine { locked: true, ..off.clone() },
        maas::Machine { in_maintenance: Lookup::Found(true), ..off.clone() },
    ] {
        assert_eq!(effect(&decide(&observed.clone().seeing(left), later(601))), "");
    }
    for annotation in [LEAVE_POWER_ANNOTATION, capmaas_api::names::MAINTENANCE_ANNOTATION] {
        let opted_out = observed.clone().with_annotation(annotation, "");
        assert_eq!(effect(&decide(&opted_out, later(601))), "", "{annotation}");
    }
}

#[test]
fn s20_a_machine_stays_off_and_says_so_while_the_tags_of_its_vm_host_cannot_be_read() {
    let in_maintenance = Lookup::Unknown("MAAS answered 403".into());
    let off = maas::Machine { in_maintenance, ..metal(State::Deployed) };
    let mut observed = fresh().with_journal(&with_machine()).seeing(off).provisioned();
    observed.power = Some(Power::Off);
    let plan = decide(&observed, now());
    let waits = Requeue::After(Duration::from_secs(60));
    assert_eq!((effect(&plan), reason(&plan), plan.requeue), ("", "MachinePoweredOff", waits));
    let message = condition(&plan, "MachineDeployed").message.clone().unwrap();
    assert!(message.ends_with("cannot be read: MAAS answered 403"), "{message}");
    let status = plan.status.unwrap();
    assert!(!status.ready && !status.machine_powered);
}

#[test]
fn a_control_plane_machine_polls_the_more_rarely_the_longer_its_address_is_not_in_dns() {
    let mut observed = fresh().with_journal(&with_machine()).seeing(metal(State::Deployed)).provisioned();
    let labels = BTreeMap::from([(CONTROL_PLANE_LABEL.to_owned(), String::new())]);
    observed.object.metadata.labels = Some(labels);
    let mut after = |in_dns: bool, seconds: i64| {
        observed.in_dns = Lookup::Found(in_dns);
        let plan = decide(&observed, later(seconds));
        observed.object.status = plan.status.or(observed.object.status.take());
        plan.requeue
    };
    let pauses = [0, 10, 30, 100, 299, 5000].map(|seconds| after(false, seconds));
    let expected = [10, 10, 30, 100, 299, 300].map(|seconds| Requeue::After(Duration::from_secs(seconds)));
    assert_eq!(pauses, expected);
    assert_eq!(after(true, 5300), Requeue::OnChange);
    assert_eq!(after(false, 9000), Requeue::After(Duration::from_secs(10)), "it has just left");
}

#[test]
fn a_control_plane_machine_that_was_off_polls_for_its_address_as_often_as_a_new_one() {
    let mut observed = fresh().with_journal(&with_machine()).seeing(metal(State::Deployed)).provisioned();
    observed.object.metadata.labels = Some([(CONTROL_PLANE_LABEL.to_owned(), String::new())].into());
    observed.in_dns = Lookup::Found(false);
    let mut after = |power, seconds: i64| {
        observed.power = Some(power);
        let plan = decide(&observed, later(seconds));
        observed.object.status = plan.status.or(observed.object.status.take());
        plan.requeue
    };
    for seconds in [0, 60] {
        after(Power::Off, seconds);
    }
    let pauses = [600, 610, 630].map(|seconds| after(Power::On, seconds));
    assert_eq!(pauses, [10, 10, 30].map(|seconds| Requeue::After(Duration::from_secs(seconds))));
}

#[test]
fn s20_a_machine_whose_node_fell_silent_is_turned_on_although_maas_has_not_noticed() {
    let mut observed = fresh().with_journal(&with_machine()).seeing(metal(State::Deployed)).provisioned();
    let asks = |observed: &Observed| asks_power(observed, &with_machine(), &metal(State::Deployed), now());
    assert!(!asks(&observed), "its Node is heard");
    let unheard = json!({"nodeRef": {"name": "bm1"}, "conditions": [{"type": "NodeReady", "status": "Unknown"}]});
    let Lookup::Found(machine) = &mut observed.machine else { panic!("it has a Machine") };
    machine.status = serde_json::from_value(unheard).unwrap();
    assert!(asks(&observed));
    observed.power = Some(Power::Unknown);
    let plan = decide(&observed, now());
    assert_eq!((effect(&plan), plan.requeue), ("", Requeue::After(Duration::from_mins(2))), "unknown is not off");
    observed.power = Some(Power::On);
    assert_eq!(effect(&decide(&observed, now())), "", "it runs, so it is somebody else's matter");
    observed.power = Some(Power::Off);
    let plan = decide(&observed, now());
    assert_eq!((effect(&plan), reason(&plan)), ("power_on", "MachinePoweredOff"));
    assert!(plan.patch.journal.unwrap().allocation.unwrap().turned_on.is_some(), "MAAS's old word ends no back-off");
}

#[test]
fn an_api_server_that_went_away_is_a_reason_to_ask_for_the_power_of_control_planes_alone() {
    let mut observed = fresh().with_journal(&with_machine()).seeing(metal(State::Deployed)).provisioned();
    let Lookup::Found(cluster) = &mut observed.cluster else { panic!("it has a Cluster") };
    cluster.status = serde_json::from_value(json!({
        "initialization": {"controlPlaneInitialized": true},
        "conditions": [{"type": "RemoteConnectionProbe", "status": "False"}],
    }))
    .unwrap();
    assert!(!observed.is_silent(), "of a worker, only its own Node tells");
    observed.object.metadata.labels = Some([(CONTROL_PLANE_LABEL.to_owned(), String::new())].into());
    assert!(observed.is_silent());
}
