//! Whatever is stored decodes: an object that does not would stop the watch of all others.
#![allow(clippy::unwrap_used, clippy::expect_used, clippy::panic)]

use std::{path::Path, sync::LazyLock};

use capmaas_api::{
    MaasCluster, MaasClusterTemplate, MaasMachine, MaasMachineTemplate, ProvisioningMode, capi, cluster::NicType,
    condition::ConditionStatus, failure_domains::FailureDomains, machine_status::AddressType,
};
use proptest::prelude::*;
use serde_json::{Value, json};

static STORED: LazyLock<Vec<Value>> = LazyLock::new(|| {
    let folder = Path::new(env!("CARGO_MANIFEST_DIR")).join("tests/fixtures");
    [
        "go-provider-v0.9/maasclusters",
        "go-provider-v0.9/maasmachines",
        "go-provider-v0.9/maasmachinetemplates",
        "go-provider-schemas/v4.6",
        "go-provider-schemas/extremes",
        "documents/001-integration",
        "documents/004-design",
    ]
    .into_iter()
    .flat_map(|name| {
        let text = std::fs::read_to_string(folder.join(format!("{name}.yaml"))).unwrap();
        serde_saphyr::from_multiple::<Value>(&text).unwrap()
    })
    .filter(|object| !object.is_null())
    .collect()
});

/// Decodes the object as its kind; what could not be read of spec and status, and what is written back.
fn decode(object: &Value) -> Result<(Vec<String>, Value), serde_json::Error> {
    let unreadable = |parts: [&[String]; 2]| parts.concat();
    Ok(match object["kind"].as_str() {
        Some("MaasCluster") => {
            let read: MaasCluster = serde_json::from_value(object.clone())?;
            let status = read.status.clone().unwrap_or_default();
            (unreadable([&read.spec.unreadable, &status.unreadable]), serde_json::to_value(read)?)
        }
        Some("MaasMachine") => {
            let read: MaasMachine = serde_json::from_value(object.clone())?;
            let status = read.status.clone().unwrap_or_default();
            (unreadable([&read.spec.unreadable, &status.unreadable]), serde_json::to_value(read)?)
        }
        Some("MaasMachineTemplate") => {
            let read: MaasMachineTemplate = serde_json::from_value(object.clone())?;
            (unreadable([&read.spec.unreadable, &read.spec.template.spec.unreadable]), serde_json::to_value(read)?)
        }
        Some("MaasClusterTemplate") => {
            let read: MaasClusterTemplate = serde_json::from_value(object.clone())?;
            (unreadable([&read.spec.unreadable, &read.spec.template.spec.unreadable]), serde_json::to_value(read)?)
        }
        other => panic!("{other:?}"),
    })
}

/// Without what means the same as nothing: empty lists and maps.
fn meaningful(value: &Value) -> Value {
    match value {
        Value::Object(fields) => Value::Object(
            fields
                .iter()
                .map(|(name, value)| (name.clone(), meaningful(value)))
                .filter(|(_, value)| *value != json!({}) && *value != json!([]))
                .collect(),
        ),
        Value::Array(items) => items.iter().map(meaningful).collect(),
        other => other.clone(),
    }
}

/// Everything that `stored` says, `written` says too.
fn holds(written: &Value, stored: &Value, path: &str) {
    match (written, stored) {
        (Value::Object(written), Value::Object(stored)) => {
            for (name, value) in stored {
                holds(written.get(name).unwrap_or(&Value::Null), value, &format!("{path}.{name}"));
            }
        }
        _ => assert_eq!(written, stored, "{path}"),
    }
}

#[test]
fn every_stored_object_is_read_whole_and_written_back_with_nothing_lost() {
    for object in STORED.iter().filter(|object| object.get("spec").is_some()) {
        let (unreadable, written) = decode(object).unwrap();
        assert!(unreadable.is_empty(), "{unreadable:?} in {object}");
        for part in ["spec", "status"] {
            holds(&meaningful(&written[part]), &meaningful(&object[part]), part);
        }
    }
}

#[test]
fn an_unknown_mode_is_not_the_same_as_none() {
    let machine = |spec: Value| -> MaasMachine {
        serde_json::from_value(json!({"apiVersion": "infrastructure.cluster.x-k8s.io/v1beta1", "kind": "MaasMachine", "metadata": {}, "spec": spec}))
            .unwrap()
    };
    let unknown = machine(json!({"provisioningMode": "container"})).spec;
    assert_eq!(unknown.provisioning_mode, Some(ProvisioningMode::Unknown("container".into())));
    assert_eq!(serde_json::to_value(&unknown).unwrap()["provisioningMode"], "container");

    let wrong = machine(json!({"provisioningMode": {"a": 1}, "image": "ubuntu/jammy"})).spec;
    assert_eq!(
        (wrong.provisioning_mode.as_ref(), wrong.unreadable.as_slice()),
        (None, &["provisioningMode".to_owned()][..])
    );
    assert_eq!(wrong.image, "ubuntu/jammy");

    let absent = machine(json!({})).spec;
    assert!(absent.provisioning_mode.is_none() && absent.unreadable.is_empty());
}

#[test]
fn an_object_without_a_spec_is_read_and_known_to_say_nothing() {
    let without: Vec<&Value> = STORED.iter().filter(|object| object.get("spec").is_none()).collect();
    assert_eq!(without.len(), 3);
    for object in without {
        assert_eq!(decode(object).unwrap().0, ["."], "{object}");
    }
}

#[test]
fn unknown_words_are_kept_as_they_are() {
    let cluster: MaasCluster = serde_json::from_value(json!({
        "apiVersion": "infrastructure.cluster.x-k8s.io/v1beta1", "kind": "MaasCluster", "metadata": {},
        "spec": {"dnsDomain": "maas", "lxdConfig": {"nicType": "pigeon"}},
        "status": {"conditions": [{"type": "Ready", "status": "Perhaps", "severity": "Fatal"}], "failureDomains": "az1"},
    }))
    .unwrap();
    assert_eq!(cluster.spec.lxd_config.unwrap().nic_type, Some(NicType::Unknown("pigeon".into())));
    let status = cluster.status.unwrap();
    assert_eq!(status.conditions[0].status, ConditionStatus::Unknown("Perhaps".into()));
    assert_eq!(
        (status.failure_domains.as_ref(), status.unreadable.as_slice()),
        (None, &["failureDomains".to_owned()][..])
    );

    let machine: MaasMachine = serde_json::from_value(json!({
        "apiVersion": "infrastructure.cluster.x-k8s.io/v1beta1", "kind": "MaasMachine", "metadata": {}, "spec": {},
        "status": {"addresses": [{"type": "Pigeon", "address": "a"}], "machineState": "Levitating"},
    }))
    .unwrap();
    let status = machine.status.unwrap();
    assert_eq!(status.addresses[0].type_, AddressType::Unknown("Pigeon".into()));
    assert_eq!(status.machine_state.as_deref(), Some("Levitating"));
}

#[test]
fn failure_domains_of_both_contracts_are_read() {
    for (domains, is_list) in [(json!({"az1": {"controlPlane": true}}), false), (json!([{"name": "az1"}]), true)] {
        let cluster: MaasCluster = serde_json::from_value(json!({
            "apiVersion": "infrastructure.cluster.x-k8s.io/v1beta1", "kind": "MaasCluster", "metadata": {}, "spec": {},
            "status": {"failureDomains": domains},
        }))
        .unwrap();
        let read = cluster.status.unwrap().failure_domains.unwrap();
        assert_eq!(matches!(read, FailureDomains::List(_)), is_list);
        assert_eq!(read.entries().next().unwrap().0, "az1");
    }
}

fn any_json() -> impl Strategy<Value = Value> {
    let leaf = prop_oneof![
        Just(Value::Null),
        any::<bool>().prop_map(Value::from),
        any::<i64>().prop_map(Value::from),
        (-1.0e9..1.0e9_f64).prop_map(Value::from),
        "[a-zA-Z0-9 :/.-]{0,12}".prop_map(Value::from),
    ];
    leaf.prop_recursive(2, 8, 3, |inner| {
        prop_oneof![
            prop::collection::vec(inner.clone(), 0..3).prop_map(Value::from),
            prop::collection::btree_map("[a-z]{1,6}", inner, 0..3).prop_map(|map| map.into_iter().collect()),
        ]
    })
}

/// Every place in spec and status, as JSON pointers.
fn places(value: &Value, at: &str, found: &mut Vec<String>) {
    found.push(at.to_owned());
    match value {
        Value::Object(fields) => fields.iter().for_each(|(name, value)| places(value, &format!("{at}/{name}"), found)),
        Value::Array(items) => items.iter().enumerate().for_each(|(i, item)| places(item, &format!("{at}/{i}"), found)),
        _ => {}
    }
}

proptest! {
    #![proptest_config(ProptestConfig { cases: 2_000, failure_persistence: None, ..ProptestConfig::default() })]

    #[test]
    fn a_stored_object_with_anything_anywhere_still_decodes(
        which in any::<prop::sample::Index>(),
        changes in prop::collection::vec((any::<prop::sample::Index>(), any_json(), any::<bool>()), 1..4),
    ) {
        let mut object = which.get(&STORED).clone();
        for (place, replacement, beside) in changes {
            let mut found = Vec::new();
            for part in ["spec", "status"] {
                if let Some(value) = object.get(part) {
                    places(value, &format!("/{part}"), &mut found);
                }
            }
            if found.is_empty() {
                break;
            }
            let Some(target) = object.pointer_mut(place.get::<String>(&found)) else { continue };
            match (beside, target) {
                (true, Value::Object(fields)) => drop(fields.insert("foreign".into(), replacement)),
                (_, target) => *target = replacement,
            }
        }
        prop_assert!(decode(&object).is_ok(), "{object}");
        // The views of Cluster API's kinds go by shape, so any object will do to try them.
        prop_assert!(serde_json::from_value::<capi::Cluster>(object.clone()).is_ok(), "{object}");
        prop_assert!(serde_json::from_value::<capi::Machine>(object.clone()).is_ok(), "{object}");
    }
}
