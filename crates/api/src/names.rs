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
/// Annotation on what Cluster API's topology controller applies only to see what would happen.
pub const TOPOLOGY_DRY_RUN_ANNOTATION: &str = "topology.cluster.x-k8s.io/dry-run";
