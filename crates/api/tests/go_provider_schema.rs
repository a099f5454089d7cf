//! S24 without an API server: our schemas are nowhere stricter than those of the Go provider.
#![allow(clippy::unwrap_used, clippy::expect_used, clippy::panic)]

use capmaas_api::crd;
use k8s_openapi::apiextensions_apiserver::pkg::apis::apiextensions::v1::{
    JSONSchemaProps, JSONSchemaPropsOrArray, JSONSchemaPropsOrBool,
};

/// What the Go provider's schema said about a field.
#[derive(Clone, Copy, Debug, Default)]
struct Go {
    required: bool,
    min_length: i64,
    minimum: Option<f64>,
    values: &'static [&'static str],
}

const FREE: Go = Go { required: false, min_length: 0, minimum: None, values: &[] };
const REQUIRED: Go = Go { required: true, ..FREE };
const REQUIRED_TEXT: Go = Go { min_length: 1, ..REQUIRED };
const REQUIRED_NUMBER: Go = Go { minimum: Some(0.0), ..REQUIRED };
const NUMBER: Go = Go { minimum: Some(0.0), ..FREE };

/// Every path of `MaasCluster` in releases v4.6 and v0.9. `*` is a list item or map value, an empty type means that the two
/// releases disagree about it.
const CLUSTER: &[(&str, &str, Go)] = &[
    ("spec.dnsDomain", "string", REQUIRED_TEXT),
    ("spec.controlPlaneEndpoint", "object", FREE),
    ("spec.controlPlaneEndpoint.host", "string", REQUIRED),
    ("spec.controlPlaneEndpoint.port", "integer", REQUIRED),
    ("spec.failureDomains", "array", FREE),
    ("spec.failureDomains.*", "string", FREE),
    ("spec.lxdConfig", "object", FREE),
    ("spec.lxdConfig.enabled", "boolean", FREE),
    ("spec.lxdConfig.resourcePool", "string", FREE),
    ("spec.lxdConfig.zone", "string", FREE),
    ("spec.lxdConfig.storageBackend", "string", FREE),
    ("spec.lxdConfig.storageSize", "string", FREE),
    ("spec.lxdConfig.nicType", "string", Go { values: &["bridge", "macvlan"], ..FREE }),
    ("spec.lxdConfig.nicParent", "string", FREE),
    ("spec.lxdConfig.networkBridge", "string", FREE),
    ("spec.lxdConfig.skipNetworkUpdate", "boolean", FREE),
    ("status.ready", "boolean", REQUIRED),
    ("status.initialization", "object", FREE),
    ("status.initialization.provisioned", "boolean", FREE),
    ("status.network", "object", FREE),
    ("status.network.dnsName", "string", FREE),
    ("status.failureDomains", "", FREE),
    ("status.conditions", "array", FREE),
    ("status.conditions.*.type", "string", REQUIRED),
    ("status.conditions.*.status", "string", REQUIRED),
    ("status.conditions.*.severity", "string", FREE),
    ("status.conditions.*.reason", "string", FREE),
    ("status.conditions.*.message", "string", FREE),
    ("status.conditions.*.lastTransitionTime", "string", REQUIRED),
    ("status.conditions.*.observedGeneration", "integer", FREE),
];

/// Every path of `MaasMachine.spec`, also of the line that had `staticIP`.
const MACHINE_SPEC: &[(&str, &str, Go)] = &[
    ("failureDomain", "string", FREE),
    ("systemID", "string", FREE),
    ("parent", "string", FREE),
    ("providerID", "string", FREE),
    ("resourcePool", "string", FREE),
    ("minCPU", "integer", REQUIRED_NUMBER),
    ("minMemory", "integer", REQUIRED_NUMBER),
    ("minDiskSize", "integer", NUMBER),
    ("tags", "array", FREE),
    ("tags.*", "string", FREE),
    ("image", "string", REQUIRED_TEXT),
    ("deployInMemory", "boolean", FREE),
    ("lxd", "object", FREE),
    ("lxd.enabled", "boolean", FREE),
    ("lxd.vmConfig", "object", FREE),
    ("lxd.vmConfig.diskSize", "integer", FREE),
    ("lxd.vmConfig.storagePool", "string", FREE),
    ("lxd.vmConfig.network", "string", FREE),
    ("lxd.vmConfig.interfaceLinkModes", "object", FREE),
    ("lxd.vmConfig.interfaceLinkModes.*", "string", FREE),
    ("lxd.vmConfig.autoStart", "boolean", FREE),
    ("staticIP", "", FREE),
];

const MACHINE_STATUS: &[(&str, &str, Go)] = &[
    ("status.ready", "boolean", FREE),
    ("status.initialization.provisioned", "boolean", FREE),
    ("status.machineState", "string", FREE),
    ("status.machinePowered", "boolean", FREE),
    ("status.hostname", "string", FREE),
    ("status.dnsAttached", "boolean", FREE),
    ("status.addresses", "array", FREE),
    ("status.addresses.*.type", "string", REQUIRED),
    ("status.addresses.*.address", "string", REQUIRED),
    ("status.conditions", "array", FREE),
    ("status.conditions.*.type", "string", REQUIRED),
    ("status.conditions.*.status", "string", REQUIRED),
    ("status.conditions.*.severity", "string", FREE),
    ("status.conditions.*.reason", "string", FREE),
    ("status.conditions.*.message", "string", FREE),
    ("status.conditions.*.lastTransitionTime", "string", REQUIRED),
    ("status.failureReason", "string", FREE),
    ("status.failureMessage", "string", FREE),
];

fn schema(kind: &str) -> JSONSchemaProps {
    let crd = crd::all().unwrap().into_iter().find(|crd| crd.spec.names.kind == kind).unwrap();
    crd.spec.versions[0].schema.clone().unwrap().open_api_v3_schema.unwrap()
}

/// The schema at a path, and whether it is required there.
fn at<'a>(root: &'a JSONSchemaProps, path: &str) -> (&'a JSONSchemaProps, bool) {
    path.split('.').fold((root, false), |(schema, _), step| {
        if step == "*" {
            let inner = match (&schema.items, &schema.additional_properties) {
                (Some(JSONSchemaPropsOrArray::Schema(items)), _) => items,
                (_, Some(JSONSchemaPropsOrBool::Schema(values))) => values,
                _ => panic!("{path}: nothing is inside"),
            };
            return (inner, false);
        }
        let required = schema.required.as_ref().is_some_and(|names| names.iter().any(|name| name == step));
        (schema.properties.as_ref().unwrap().get(step).unwrap_or_else(|| panic!("{path} is missing")), required)
    })
}

fn is_nowhere_stricter(root: &JSONSchemaProps, path: &str, kind: &str, go: Go) {
    let (ours, required) = at(root, path);
    assert_eq!(ours.type_.as_deref().unwrap_or_default(), kind, "{path}");
    assert!(go.required || !required, "{path} was not required");
    assert!(ours.min_length.unwrap_or(0) <= go.min_length, "{path}: minLength");
    assert!(ours.minimum.is_none() || (go.minimum.is_some() && ours.minimum <= go.minimum), "{path}: minimum");
    assert!(ours.maximum.is_none() && ours.max_length.is_none() && ours.max_items.is_none(), "{path}: an upper limit");
    assert!(ours.min_items.is_none() && ours.pattern.is_none() && ours.max_properties.is_none(), "{path}: a limit");
    assert!(ours.format.as_deref().is_none_or(|format| format == "date-time"), "{path}: format");
    if let Some(values) = &ours.enum_ {
        assert!(!go.values.is_empty(), "{path} took any text");
        for value in go.values {
            assert!(values.iter().any(|ours| ours.0 == *value), "{path}: {value}");
        }
    }
}

#[test]
fn s24_a_cluster_of_the_go_provider_fits_our_schema() {
    let root = schema("MaasCluster");
    for (path, kind, go) in CLUSTER {
        is_nowhere_stricter(&root, path, kind, *go);
    }
}

#[test]
fn s24_a_machine_of_the_go_provider_fits_our_schema() {
    let root = schema("MaasMachine");
    for (path, kind, go) in MACHINE_SPEC {
        is_nowhere_stricter(&root, &format!("spec.{path}"), kind, *go);
    }
    for (path, kind, go) in MACHINE_STATUS {
        is_nowhere_stricter(&root, path, kind, *go);
    }
}

#[test]
fn s24_a_machine_template_of_the_go_provider_fits_our_schema() {
    let root = schema("MaasMachineTemplate");
    for (path, kind, go) in MACHINE_SPEC {
        is_nowhere_stricter(&root, &format!("spec.template.spec.{path}"), kind, *go);
    }
}

#[test]
fn nothing_is_required_beside_what_the_go_provider_required() {
    let spec = at(&schema("MaasMachine"), "spec").0.required.clone();
    assert_eq!(spec.unwrap(), ["image", "minCPU", "minMemory"]);
    assert_eq!(at(&schema("MaasCluster"), "spec").0.required.clone().unwrap(), ["dnsDomain"]);
    for kind in ["MaasMachine", "MaasCluster"] {
        assert_eq!(at(&schema(kind), "status").0.required, None);
    }
}
