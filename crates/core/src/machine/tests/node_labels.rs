//! The labels of a Node.

use std::collections::BTreeMap;

use proptest::prelude::*;

use super::super::node_labels::{NodeLabels, ZONE_LABEL, is_label_name, is_label_value};
use super::fixture::{fresh, metal};
use crate::Lookup;
use crate::maas::{self, State};

fn map(pairs: &[(&str, &str)]) -> BTreeMap<String, String> {
    pairs.iter().map(|(name, value)| ((*name).to_owned(), (*value).to_owned())).collect()
}

fn labels(wanted: &[(&str, &str)], on_machine: &[(&str, &str)], zone: &str, present: &[(&str, &str)]) -> NodeLabels {
    let mut observed = fresh();
    observed.object.spec.node_labels = map(wanted);
    if let Lookup::Found(machine) = &mut observed.machine {
        machine.metadata.labels.get_or_insert_default().extend(map(on_machine));
    }
    let metal = maas::Machine { zone: zone.into(), ..metal(State::Deployed) };
    NodeLabels::of(&observed, &metal, &map(present))
}

#[test]
fn a_node_gets_the_zone_and_what_is_asked_for_unless_it_has_it() {
    let zone = (ZONE_LABEL, "az1");
    let rack = ("example.com/rack", "r7");
    let region = ("topology.kubernetes.io/region", "north");
    let role = ("node-role.kubernetes.io/storage", "");
    for (wanted, on_machine, present, missing) in [
        (&[][..], &[][..], &[][..], &[zone][..]),
        (&[rack, region], &[], &[], &[zone, rack, region]),
        // A value that somebody else set stays.
        (&[rack], &[], &[("example.com/rack", "r8"), (ZONE_LABEL, "other")], &[]),
        // Requested labels win over MAAS.
        (&[(ZONE_LABEL, "room-3")], &[], &[], &[(ZONE_LABEL, "room-3")]),
        // Labels that Cluster API propagates are left to it; what it does not propagate is ours.
        (&[role], &[("node-role.kubernetes.io/storage", "yes")], &[], &[zone]),
        (&[("a.node.cluster.x-k8s.io/x", "1")], &[("a.node.cluster.x-k8s.io/x", "2")], &[], &[zone]),
        (&[role], &[], &[], &[zone, role]),
        (&[rack], &[rack], &[], &[zone, rack]),
        (
            &[("anode.cluster.x-k8s.io/x", "1")],
            &[("anode.cluster.x-k8s.io/x", "2")],
            &[],
            &[zone, ("anode.cluster.x-k8s.io/x", "1")],
        ),
    ] {
        assert_eq!(labels(wanted, on_machine, "az1", present).missing, map(missing), "{wanted:?} {on_machine:?}");
    }
}

#[test]
fn what_no_label_can_be_is_left_out_and_a_zone_of_that_kind_is_told() {
    let odd = [("two words", "x"), ("example.com/rack", "seventh row"), ("A.com/x", ""), ("", "x"), ("a//b", "x")];
    let found = labels(&odd, &[], "Züri 2", &[]);
    assert_eq!(found, NodeLabels { missing: BTreeMap::new(), impossible_zone: Some("Züri 2".into()) });
    let said = labels(&[(ZONE_LABEL, "zh-2")], &[], "Züri 2", &[]);
    assert_eq!(said, NodeLabels { missing: map(&[(ZONE_LABEL, "zh-2")]), impossible_zone: None });
}

proptest! {
    #[test]
    fn labels_are_only_added_are_valid_and_none_is_missing_afterwards(
        wanted in proptest::collection::btree_map("([a-c.-]{0,3}/)?[ab_ .]{0,3}", "[ab_ -]{0,3}", 0..6),
        mut present in proptest::collection::btree_map("([a-c]{0,3}/)?[ab]{0,3}", "[ab]{0,3}", 0..6),
        zone in "[ab -]{0,4}",
    ) {
        let mut observed = fresh();
        observed.object.spec.node_labels = wanted;
        let metal = maas::Machine { zone, ..metal(State::Deployed) };
        let found = NodeLabels::of(&observed, &metal, &present);
        for (name, value) in found.missing {
            prop_assert!(is_label_name(&name) && is_label_value(&value), "{name}={value}");
            prop_assert_eq!(present.insert(name, value), None);
        }
        prop_assert_eq!(NodeLabels::of(&observed, &metal, &present).missing, BTreeMap::new());
    }
}
