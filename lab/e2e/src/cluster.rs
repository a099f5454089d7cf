//! A cluster as a user writes it, in the API version of the Cluster API release under test.

use base64::{Engine as _, prelude::BASE64_STANDARD};
use capmaas_testbed::CapiVersion;
use serde_json::{Value, json};

use crate::INFRASTRUCTURE;
use crate::maas::{DOMAIN, Expected, image};

const CONTROL_PLANE: &str = "controlplane.cluster.x-k8s.io";
const BOOTSTRAP: &str = "bootstrap.cluster.x-k8s.io";
/// KubeadmControlPlane reads the API servers' certificates through their kubelets unless this annotation gives their
/// expiry.
const CERTIFICATES_EXPIRY: &str = "machine.cluster.x-k8s.io/certificates-expiry";

/// cloud-init replaces this with the machine's name in MAAS.
const NODE_NAME: &str = "{{ ds.meta_data.local_hostname }}";

/// A cluster of metal machines or VMs with a kubeadm control plane.
pub struct ClusterPlan {
    /// The Cluster API version that reconciles it.
    pub core: CapiVersion,
    pub namespace: String,
    pub name: String,
    pub control_planes: u32,
    pub workers: u32,
    /// The Kubernetes version of its machines.
    pub version: String,
    /// Additional fields of the MaasCluster's spec.
    pub infrastructure: Value,
    /// Additional fields of every machine's spec.
    pub machine: Value,
    /// Replaces `machine` for workers.
    pub worker: Option<Value>,
    /// The zone of workers.
    pub failure_domain: Option<String>,
}

impl ClusterPlan {
    /// One control-plane machine and no worker, in the namespace `default`.
    pub fn new(core: CapiVersion, name: &str) -> Self {
        Self {
            core,
            namespace: "default".into(),
            name: name.into(),
            control_planes: 1,
            workers: 0,
            version: "v1.35.8".into(),
            infrastructure: json!({}),
            machine: json!({}),
            worker: None,
            failure_domain: None,
        }
    }

    fn is_old(&self) -> bool {
        self.core < CapiVersion::V1_14
    }

    /// The API version in which a user of this core writes Cluster API objects.
    pub fn api_version(&self) -> &'static str {
        if self.is_old() { "v1beta1" } else { "v1beta2" }
    }

    fn reference(&self, group: &str, kind: &str, name: &str) -> Value {
        if self.is_old() {
            return json!({"apiVersion": format!("{group}/v1beta1"), "kind": kind, "name": name});
        }
        json!({"apiGroup": group, "kind": kind, "name": name})
    }

    fn object(&self, api_version: &str, kind: &str, name: &str, spec: Value) -> Value {
        let metadata = json!({"name": name, "namespace": self.namespace});
        json!({"apiVersion": api_version, "kind": kind, "metadata": metadata, "spec": spec})
    }

    /// All objects, for one `apply`.
    pub fn objects(&self, expected: &Expected) -> Vec<Value> {
        let Self { name, .. } = self;
        let version = self.api_version();
        let network = json!({
            "apiServerPort": expected.port,
            "pods": {"cidrBlocks": ["192.168.0.0/16"]},
            "services": {"cidrBlocks": ["10.128.0.0/12"]},
        });
        let cluster = json!({
            "clusterNetwork": network,
            "controlPlaneRef": self.reference(CONTROL_PLANE, "KubeadmControlPlane", &format!("{name}-cp")),
            "infrastructureRef": self.reference(INFRASTRUCTURE, "MaasCluster", name),
        });
        let mut infrastructure = json!({"dnsDomain": DOMAIN});
        merge(&mut infrastructure, &self.infrastructure);
        let mut all = self.secrets(expected);
        all.push(self.object(&format!("{INFRASTRUCTURE}/v1beta1"), "MaasCluster", name, infrastructure));
        all.push(self.object(&format!("cluster.x-k8s.io/{version}"), "Cluster", name, cluster));
        all.push(self.template(&format!("{name}-cp"), &self.version));
        all.push(self.control_plane(&format!("{name}-cp")));
        if self.workers > 0 {
            all.push(self.worker_template(&format!("{name}-md"), &self.version));
            all.push(self.object(
                &format!("{BOOTSTRAP}/{version}"),
                "KubeadmConfigTemplate",
                &format!("{name}-md"),
                json!({"template": {"spec": {"joinConfiguration": {"nodeRegistration": {"name": NODE_NAME}}}}}),
            ));
            all.push(self.workers());
        }
        all
    }

    /// What the owner of a cluster with external etcd passes to Cluster API: certificate authorities and the etcd
    /// client key.
    pub fn secrets(&self, expected: &Expected) -> Vec<Value> {
        let (certificate, key) = &expected.authority;
        let data = json!({"tls.crt": BASE64_STANDARD.encode(certificate), "tls.key": BASE64_STANDARD.encode(key)});
        let secret = |purpose: &str| {
            json!({
                "apiVersion": "v1",
                "kind": "Secret",
                "metadata": {
                    "name": format!("{}-{purpose}", self.name),
                    "namespace": self.namespace,
                    "labels": {"cluster.x-k8s.io/cluster-name": self.name},
                },
                "type": "cluster.x-k8s.io/secret",
                "data": data,
            })
        };
        ["ca", "etcd", "apiserver-etcd-client"].map(secret).to_vec()
    }

    /// A machine template with an image of this Kubernetes version.
    pub fn template(&self, name: &str, version: &str) -> Value {
        self.template_with(name, version, &self.machine)
    }

    /// As [`Self::template`], for workers.
    pub fn worker_template(&self, name: &str, version: &str) -> Value {
        self.template_with(name, version, self.worker.as_ref().unwrap_or(&self.machine))
    }

    fn template_with(&self, name: &str, version: &str, more: &Value) -> Value {
        let mut spec = json!({"image": image(version), "minCPU": 4, "minMemory": 8192});
        merge(&mut spec, more);
        let spec = json!({"template": {"spec": spec}});
        self.object(&format!("{INFRASTRUCTURE}/v1beta1"), "MaasMachineTemplate", name, spec)
    }

    /// Replaces machines with this label whose Node has not reported for a while.
    pub fn health_check(&self, (label, value): (&str, &str)) -> Value {
        let mut spec = json!({"clusterName": self.name, "selector": {"matchLabels": {label: value}}});
        let states = ["False", "Unknown"];
        let checks = if self.is_old() {
            let unhealthy = states.map(|status| json!({"type": "Ready", "status": status, "timeout": "5s"}));
            json!({"nodeStartupTimeout": "0s", "unhealthyConditions": unhealthy})
        } else {
            let unhealthy = states.map(|status| json!({"type": "Ready", "status": status, "timeoutSeconds": 5}));
            json!({"checks": {"nodeStartupTimeoutSeconds": 0, "unhealthyNodeConditions": unhealthy}})
        };
        merge(&mut spec, &checks);
        self.object(&format!("cluster.x-k8s.io/{}", self.api_version()), "MachineHealthCheck", &self.name, spec)
    }

    /// A merge patch of the control plane: machines of the plan's version, from this template.
    pub fn control_plane_upgrade(&self, template: &str) -> Value {
        json!({"spec": {"version": self.version, "machineTemplate": self.machine_template(template)}})
    }

    fn machine_template(&self, template: &str) -> Value {
        let reference = self.reference(INFRASTRUCTURE, "MaasMachineTemplate", template);
        if self.is_old() {
            json!({"infrastructureRef": reference})
        } else {
            json!({"spec": {"infrastructureRef": reference}})
        }
    }

    fn control_plane(&self, template: &str) -> Value {
        let mut machine_template = self.machine_template(template);
        let metadata = json!({"annotations": {CERTIFICATES_EXPIRY: "2036-01-01T00:00:00Z"}});
        merge(&mut machine_template, &json!({"metadata": metadata}));
        let etcd = json!({"external": {
            "endpoints": ["https://127.0.0.1:2379"],
            "caFile": "/etc/kubernetes/pki/etcd/ca.crt",
            "certFile": "/etc/kubernetes/pki/apiserver-etcd-client.crt",
            "keyFile": "/etc/kubernetes/pki/apiserver-etcd-client.key",
        }});
        let mut kubeadm = json!({"clusterConfiguration": {"etcd": etcd}});
        if self.is_old() {
            // Without it Cluster API 1.10 considers the first control-plane machine outdated and replaces it.
            kubeadm["initConfiguration"] = json!({"nodeRegistration": {"name": NODE_NAME}});
            kubeadm["joinConfiguration"] = json!({"nodeRegistration": {"name": NODE_NAME}});
        }
        let spec = json!({
            "replicas": self.control_planes,
            "version": self.version,
            "machineTemplate": machine_template,
            "kubeadmConfigSpec": kubeadm,
        });
        let name = format!("{}-cp", self.name);
        self.object(&format!("{CONTROL_PLANE}/{}", self.api_version()), "KubeadmControlPlane", &name, spec)
    }

    fn workers(&self) -> Value {
        let name = format!("{}-md", self.name);
        let labels = json!({"cluster.x-k8s.io/cluster-name": self.name, "pool": name});
        let mut spec = json!({
            "clusterName": self.name,
            "replicas": self.workers,
            "selector": {"matchLabels": labels},
            "template": {
                "metadata": {"labels": labels},
                "spec": {
                    "clusterName": self.name,
                    "version": self.version,
                    "bootstrap": {"configRef": self.reference(BOOTSTRAP, "KubeadmConfigTemplate", &name)},
                    "infrastructureRef": self.reference(INFRASTRUCTURE, "MaasMachineTemplate", &name),
                },
            },
        });
        if let Some(zone) = &self.failure_domain {
            spec["template"]["spec"]["failureDomain"] = json!(zone);
        }
        self.object(&format!("cluster.x-k8s.io/{}", self.api_version()), "MachineDeployment", &name, spec)
    }
}

fn merge(into: &mut Value, more: &Value) {
    for (key, value) in more.as_object().into_iter().flatten() {
        into[key] = value.clone();
    }
}
