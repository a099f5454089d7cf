//! Machines of a control plane without a control plane object.

use capmaas_api::names::CONTROL_PLANE_LABEL;
use serde_json::json;

use super::super::node_labels::ZONE_LABEL;
use super::super::*;
use super::fixture::*;
use crate::Lookup;

#[test]
fn cluster_api_is_woken_by_the_node_of_a_control_plane_machine_if_nothing_else_wakes_it() {
    let reference = json!({"apiGroup": "controlplane.cluster.x-k8s.io", "kind": "KubeadmControlPlane", "name": "c"});
    for (label, control_plane, wanted) in [
        (Some(CONTROL_PLANE_LABEL), None, Some("its Node is bm1")),
        (Some(CONTROL_PLANE_LABEL), Some(&reference), None),
        (None, None, None),
    ] {
        let mut observed = fresh().with_journal(&with_machine()).seeing(metal(State::Deployed)).provisioned();
        observed.object.metadata.labels = label.map(|label| [(label.to_owned(), String::new())].into());
        let Lookup::Found(cluster) = &mut observed.cluster else { panic!("there is a Cluster") };
        cluster.spec.value.control_plane_ref = control_plane.map(|it| serde_json::from_value(it.clone()).unwrap());
        let message = |observed: &Observed| {
            let plan = decide(observed, now());
            condition(&plan, "MachineDeployed").message.clone().filter(|message| !message.is_empty())
        };
        for node in [ObservedNode::NotYet, ObservedNode::Joined { name: "bm1".into(), named: false, labels: [].into() }]
        {
            observed.node = node;
            assert_eq!(message(&observed), None, "Cluster API would not find the Node yet");
        }
        let labels = [(ZONE_LABEL.to_owned(), "az1".to_owned())].into();
        observed.node = ObservedNode::Joined { name: "bm1".into(), named: true, labels };
        assert_eq!(message(&observed).as_deref(), wanted, "{label:?} {control_plane:?}");
    }
}
