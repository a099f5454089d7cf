//! Labels, annotations and finalizers that are shared with other programs.

/// Finalizer of a `MaasCluster`, the same as the Go provider's.
pub const CLUSTER_FINALIZER: &str = "maascluster.infrastructure.cluster.x-k8s.io";
/// Finalizer of a `MaasMachine`, the same as the Go provider's.
pub const MACHINE_FINALIZER: &str = "maasmachine.infrastructure.cluster.x-k8s.io";
/// Second finalizer that the Go provider put on machines of a cluster with LXD hosts. Ours to remove.
pub const HOST_EVACUATION_FINALIZER: &str = "maas.lxd.io/host-evacuation";

/// Annotation of a `MaasCluster` whose endpoint the user provides; its presence counts.
pub const CUSTOM_ENDPOINT_ANNOTATION: &str = "spectrocloud.com/custom-dns-provided";
/// Annotation in which the Go provider kept the name of a VM.
pub const VM_NAME_ANNOTATION: &str = "maas.spectrocloud.com/vm-name";

/// Label with the name of the Cluster, set by Cluster API.
pub const CLUSTER_NAME_LABEL: &str = "cluster.x-k8s.io/cluster-name";
/// Label of control plane machines; its presence counts.
pub const CONTROL_PLANE_LABEL: &str = "cluster.x-k8s.io/control-plane";
/// Label that tells several managers apart.
pub const WATCH_FILTER_LABEL: &str = "cluster.x-k8s.io/watch-filter";
/// Annotation that pauses one object; its presence counts.
pub const PAUSED_ANNOTATION: &str = "cluster.x-k8s.io/paused";
/// Label or annotation of infrastructure that somebody else manages; its presence counts.
pub const MANAGED_BY: &str = "cluster.x-k8s.io/managed-by";
/// Annotation on an object that clusterctl is about to delete because it was moved.
pub const DELETE_FOR_MOVE_ANNOTATION: &str = "clusterctl.cluster.x-k8s.io/delete-for-move";

/// Annotation by which a person puts the LXD host on a `MaasMachine` into maintenance; its presence counts, its value is the reason.
pub const MAINTENANCE_ANNOTATION: &str = "infrastructure.cluster.x-k8s.io/lxd-host-maintenance";
/// Annotation by which a person keeps a Machine from being deleted because its LXD host leaves; its presence counts.
pub const HOLD_EVACUATION_ANNOTATION: &str = "infrastructure.cluster.x-k8s.io/hold-evacuation";
/// Annotation on a `MaasMachine`: the number of the VM host that we tagged for maintenance. Written before the tag, which is ours to
/// remove only then.
pub const MAINTENANCE_TAGGED_ANNOTATION: &str = "infrastructure.cluster.x-k8s.io/lxd-host-maintenance-tagged";

/// Annotation on a `MaasCluster`: the object that the journal on it was written for, as JSON (S25).
pub const WRITTEN_FOR_ANNOTATION: &str = "infrastructure.cluster.x-k8s.io/written-for";
/// Annotation on a `MaasCluster`: who provides the name of its API server (`user`, `dns` or `adopted`). Written once.
pub const ENDPOINT_SOURCE_ANNOTATION: &str = "infrastructure.cluster.x-k8s.io/endpoint-source";
/// Annotation on a `MaasCluster`: the name of its API server in MAAS's DNS. Written before the record is made.
pub const DNS_NAME_ANNOTATION: &str = "infrastructure.cluster.x-k8s.io/dns-name";
/// Annotation on a `MaasCluster`: the number of the DNS record that was made for it. Only that record is ever deleted.
pub const DNS_RECORD_ANNOTATION: &str = "infrastructure.cluster.x-k8s.io/dns-record";
/// Annotation on a `MaasCluster`: when its DNS record was last asked for.
pub const DNS_ASKED_ANNOTATION: &str = "infrastructure.cluster.x-k8s.io/dns-record-asked-at";
/// Annotation on a `MaasCluster`: addresses that MAAS reserved for its DNS record and that are still to be given back.
pub const DNS_OWED_ANNOTATION: &str = "infrastructure.cluster.x-k8s.io/dns-owed-addresses";
