//! The objects that kubeadm and a machine's kubelet create in their cluster.

use serde_json::{Value, json};

use super::BootedMachine;

const CONTROL_PLANE: &str = "node-role.kubernetes.io/control-plane";
/// What runs on every Node.
pub(super) const KUBE_PROXY: &str = "kube-proxy";
/// What runs on a control-plane Node; etcd is external here.
pub(super) const COMPONENTS: [&str; 4] = [KUBE_PROXY, "kube-apiserver", "kube-controller-manager", "kube-scheduler"];

/// The Node, without a provider ID: the infrastructure provider sets it.
pub(super) fn node(machine: &BootedMachine, control_plane: bool) -> Value {
    let mut labels = json!({
        "kubernetes.io/hostname": machine.hostname, "kubernetes.io/os": "linux", "kubernetes.io/arch": "amd64",
    });
    let mut taints = Vec::new();
    if control_plane {
        labels[CONTROL_PLANE] = json!("");
        taints.push(json!({"key": CONTROL_PLANE, "effect": "NoSchedule"}));
    }
    json!({
        "apiVersion": "v1",
        "kind": "Node",
        "metadata": {"name": machine.hostname, "labels": labels},
        "spec": {"taints": taints},
    })
}

pub(super) fn node_status(machine: &BootedMachine) -> Value {
    let mut addresses: Vec<Value> =
        machine.addresses.iter().map(|address| json!({"type": "InternalIP", "address": address})).collect();
    addresses.push(json!({"type": "Hostname", "address": machine.hostname}));
    let quantity = json!({"cpu": "4", "memory": "8Gi", "pods": "110"});
    let condition = |type_: &str, status: &str| {
        json!({"type": type_, "status": status, "reason": "Played", "message": "played",
               "lastHeartbeatTime": jiff::Timestamp::now(), "lastTransitionTime": jiff::Timestamp::now()})
    };
    json!({"status": {
        "addresses": addresses,
        "capacity": quantity,
        "allocatable": quantity,
        "conditions": [condition("Ready", "True"), condition("MemoryPressure", "False"),
                       condition("DiskPressure", "False"), condition("PIDPressure", "False")],
        "nodeInfo": {
            "architecture": "amd64", "bootID": "", "containerRuntimeVersion": "containerd://2", "kernelVersion": "6",
            "kubeProxyVersion": "", "kubeletVersion": machine.kubelet, "machineID": "", "operatingSystem": "linux",
            "osImage": "played", "systemUUID": "",
        },
    }})
}

/// What the node lifecycle controller, which does not run here, writes when a kubelet stops reporting.
pub(super) fn silent_node_status() -> Value {
    let condition = |type_: &str| {
        json!({"type": type_, "status": "Unknown", "reason": "NodeStatusUnknown",
               "message": "Kubelet stopped posting node status.",
               "lastHeartbeatTime": jiff::Timestamp::now(), "lastTransitionTime": jiff::Timestamp::now()})
    };
    let conditions = ["Ready", "MemoryPressure", "DiskPressure", "PIDPressure"].map(condition);
    json!({"status": {"conditions": conditions}})
}

/// The name of a static Pod on a node.
pub(super) fn static_pod_name(component: &str, node: &str) -> String {
    format!("{component}-{node}")
}

/// The DaemonSet that `kubeadm init` creates: Cluster API keeps its image in step with the version. Nothing runs its
/// Pods; one is simulated for each Node.
pub(super) fn kube_proxy(version: &str) -> Value {
    let labels = json!({"k8s-app": KUBE_PROXY});
    let image = format!("registry.k8s.io/{KUBE_PROXY}:{version}");
    json!({
        "apiVersion": "apps/v1",
        "kind": "DaemonSet",
        "metadata": {"name": KUBE_PROXY, "namespace": "kube-system", "labels": labels},
        "spec": {
            "selector": {"matchLabels": labels},
            "template": {"metadata": {"labels": labels}, "spec": {"containers": [{"name": KUBE_PROXY, "image": image}]}},
        },
    })
}

/// A static Pod as the kubelet mirrors it; Cluster API selects it by its labels.
pub(super) fn static_pod(component: &str, node: &str) -> Value {
    let labels = if component == KUBE_PROXY {
        json!({"k8s-app": component})
    } else {
        json!({"tier": "control-plane", "component": component})
    };
    json!({
        "apiVersion": "v1",
        "kind": "Pod",
        "metadata": {
            "name": static_pod_name(component, node),
            "namespace": "kube-system",
            "labels": labels,
            "annotations": {"kubernetes.io/config.mirror": "played", "kubernetes.io/config.source": "file"},
        },
        "spec": {
            "nodeName": node,
            "hostNetwork": true,
            "priorityClassName": "system-node-critical",
            "tolerations": [{"operator": "Exists"}],
            "containers": [{"name": component, "image": format!("registry.k8s.io/{component}:played")}],
        },
    })
}

pub(super) fn running() -> Value {
    let condition =
        |type_: &str| json!({"type": type_, "status": "True", "lastTransitionTime": jiff::Timestamp::now()});
    json!({"status": {
        "phase": "Running",
        "conditions": [condition("PodScheduled"), condition("Initialized"), condition("ContainersReady"), condition("Ready")],
    }})
}

/// The ConfigMap that `kubeadm init` stores and by which Cluster API detects an initialized control plane.
pub(super) fn kubeadm_config(cluster_configuration: &str) -> Value {
    json!({
        "apiVersion": "v1",
        "kind": "ConfigMap",
        "metadata": {"name": "kubeadm-config", "namespace": "kube-system"},
        // JSON is YAML.
        "data": {"ClusterConfiguration": cluster_configuration},
    })
}
