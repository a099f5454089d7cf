//! The columns of `kubectl get`: what a person wants first, and, with `-o wide`, the rest.

use k8s_openapi::apiextensions_apiserver::pkg::apis::apiextensions::v1::CustomResourceColumnDefinition;

const CLUSTER: &str = r".metadata.labels['cluster\.x-k8s\.io/cluster-name']";
const READY: &str = r#".status.conditions[?(@.type=="Ready")].status"#;
const REASON: &str = r#".status.conditions[?(@.type=="Ready")].reason"#;
const PAUSED: &str = r#".status.conditions[?(@.type=="Paused")].status"#;
const LXD: &str = r#".status.conditions[?(@.type=="LXDReady")].status"#;
const MACHINE: &str = r#".metadata.ownerReferences[?(@.kind=="Machine")].name"#;

pub(crate) fn cluster() -> Vec<CustomResourceColumnDefinition> {
    vec![
        column("Cluster", CLUSTER, "Cluster that this object belongs to"),
        column("Ready", READY, "Whether everything about the cluster is as it should be"),
        column("Reason", REASON, "Why it is not ready"),
        column("Endpoint", ".spec.controlPlaneEndpoint.host", "Name or address of the API server"),
        wide(of_type("integer", column("Port", ".spec.controlPlaneEndpoint.port", "Port of the API server"))),
        wide(column("Domain", ".spec.dnsDomain", "MAAS DNS domain")),
        wide(column("LXD", LXD, "Whether the cluster's machines are registered as LXD hosts")),
        wide(column("Paused", PAUSED, "Whether nothing is done about the cluster at the moment")),
        age(),
    ]
}

pub(crate) fn machine() -> Vec<CustomResourceColumnDefinition> {
    vec![
        column("Cluster", CLUSTER, "Cluster that this machine belongs to"),
        column("Mode", ".status.provisioningMode", "bare-metal or lxd"),
        column("State", ".status.machineState", "State of the machine in MAAS"),
        column("Zone", ".status.failureDomain", "MAAS zone"),
        column("Host", ".status.lxdHost", "LXD host of a VM"),
        column("Ready", READY, "Whether everything about the machine is as it should be"),
        column("ProviderID", ".spec.providerID", "Name of the machine for Kubernetes"),
        wide(column("Reason", REASON, "Why it is not ready")),
        wide(column("Machine", MACHINE, "Machine that owns this object")),
        wide(column("Hostname", ".status.hostname", "Name of the machine in MAAS")),
        wide(column("Image", ".spec.image", "Image that is deployed")),
        wide(column("Paused", PAUSED, "Whether nothing is done about the machine at the moment")),
        age(),
    ]
}

pub(crate) fn cluster_template() -> Vec<CustomResourceColumnDefinition> {
    vec![column("Domain", ".spec.template.spec.dnsDomain", "MAAS DNS domain"), age()]
}

pub(crate) fn machine_template() -> Vec<CustomResourceColumnDefinition> {
    vec![
        column("Mode", ".spec.template.spec.provisioningMode", "bare-metal or lxd, if provisioningMode says so"),
        column("Image", ".spec.template.spec.image", "Image that is deployed"),
        of_type("integer", column("CPU", ".spec.template.spec.minCPU", "CPU cores")),
        of_type("integer", column("Memory", ".spec.template.spec.minMemory", "Memory in MB")),
        wide(column("Pool", ".spec.template.spec.resourcePool", "MAAS resource pool")),
        age(),
    ]
}

fn column(name: &str, path: &str, description: &str) -> CustomResourceColumnDefinition {
    CustomResourceColumnDefinition {
        name: name.to_owned(),
        json_path: path.to_owned(),
        description: Some(description.to_owned()),
        type_: "string".to_owned(),
        ..CustomResourceColumnDefinition::default()
    }
}

fn of_type(type_: &str, column: CustomResourceColumnDefinition) -> CustomResourceColumnDefinition {
    CustomResourceColumnDefinition { type_: type_.to_owned(), ..column }
}

/// Only shown with `-o wide`.
fn wide(column: CustomResourceColumnDefinition) -> CustomResourceColumnDefinition {
    CustomResourceColumnDefinition { priority: Some(1), ..column }
}

fn age() -> CustomResourceColumnDefinition {
    of_type("date", column("Age", ".metadata.creationTimestamp", "Time since the object was created"))
}
