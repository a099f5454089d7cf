//! The objects that users and Cluster API create.

use capmaas_api::names::{
    CLUSTER_FINALIZER, CLUSTER_NAME_LABEL, CONTROL_PLANE_LABEL, CUSTOM_ENDPOINT_ANNOTATION, MACHINE_FINALIZER,
};
use capmaas_manager::kubernetes::Key;
use serde_json::{Value, json};

use crate::world::World;

/// Who manages the name of the API server.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub(crate) enum Endpoint {
    /// The user.
    Users,
    /// We, in MAAS's DNS.
    Ours,
    /// The Go provider created it in MAAS's DNS, and we adopt it.
    Adopted,
}

/// The name that the Go provider created.
pub(crate) const ADOPTED_NAME: &str = "c1-abc123.maas";

/// Where the objects of a cluster are.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub(crate) struct Home {
    pub(crate) namespace: &'static str,
    pub(crate) cluster: &'static str,
}

impl Home {
    pub(crate) fn key(self, name: &str) -> Key {
        Key::new(self.namespace, name)
    }

    pub(crate) fn cluster_key(self) -> Key {
        self.key(self.cluster)
    }
}

/// The first tenant's.
pub(crate) const HOME: Home = Home { namespace: "default", cluster: "c1" };

/// The namespace into which backups are restored next to the originals.
pub(crate) const RESTORED: &str = "restored";
/// Name prefix of copies next to the original.
pub(crate) const COPY: &str = "copy-";

/// Whether it was created from another object.
pub(crate) fn is_copy(object: &Value) -> bool {
    is_copied(&key(object))
}

/// The same, by its name.
pub(crate) fn is_copied(key: &Key) -> bool {
    key.namespace == RESTORED || key.name.starts_with(COPY)
}

/// The name of an object.
pub(crate) fn key(object: &Value) -> Key {
    let metadata = &object["metadata"];
    Key::new(metadata["namespace"].as_str().unwrap(), metadata["name"].as_str().unwrap())
}

pub(crate) fn cluster_key() -> Key {
    HOME.cluster_key()
}

/// The manager's credentials, replacing any existing ones.
pub(crate) fn credentials(world: &World, endpoint: &str, api_key: &str) {
    let (secret, config) =
        (Key::new("capmaas-system", "maas-credentials"), Key::new("capmaas-system", "capmaas-config"));
    world.port.delete("Secret", &secret);
    world.port.delete("ConfigMap", &config);
    let metadata = |key: &Key| json!({ "name": key.name, "namespace": key.namespace });
    create(
        world,
        json!({ "apiVersion": "v1", "kind": "Secret", "metadata": metadata(&secret), "stringData": { "apiKey": api_key } }),
    );
    let data = json!({ "maasEndpoint": endpoint });
    create(world, json!({ "apiVersion": "v1", "kind": "ConfigMap", "metadata": metadata(&config), "data": data }));
}

pub(crate) fn create(world: &World, object: Value) -> Value {
    world.port.create(object).unwrap()
}

/// A Cluster and its MaasCluster with these fields in its spec.
pub(crate) fn cluster(world: &World, home: Home, endpoint: Endpoint, more: &Value) {
    let Home { namespace, cluster } = home;
    let made = create(
        world,
        json!({
            "apiVersion": "cluster.x-k8s.io/v1beta2", "kind": "Cluster", "metadata": { "name": cluster, "namespace": namespace },
            "spec": { "infrastructureRef": { "apiGroup": "infrastructure.cluster.x-k8s.io", "kind": "MaasCluster", "name": cluster } },
        }),
    );
    let mut metadata = json!({
        "name": cluster, "namespace": namespace, "labels": { CLUSTER_NAME_LABEL: cluster },
        "ownerReferences": [{
            "apiVersion": "cluster.x-k8s.io/v1beta2", "kind": "Cluster", "name": cluster, "uid": made["metadata"]["uid"],
        }],
    });
    let mut spec = json!({ "dnsDomain": "maas" });
    match endpoint {
        Endpoint::Ours => {}
        Endpoint::Users => {
            metadata["annotations"] = json!({ CUSTOM_ENDPOINT_ANNOTATION: "" });
            spec["controlPlaneEndpoint"] = json!({ "host": "10.0.0.250", "port": 6443 });
        }
        Endpoint::Adopted => {
            metadata["finalizers"] = json!([CLUSTER_FINALIZER]);
            spec["controlPlaneEndpoint"] = json!({ "host": ADOPTED_NAME, "port": 6443 });
        }
    }
    spec.as_object_mut().unwrap().extend(more.as_object().unwrap().clone());
    create(
        world,
        json!({
            "apiVersion": "infrastructure.cluster.x-k8s.io/v1beta1", "kind": "MaasCluster", "metadata": metadata, "spec": spec,
        }),
    );
    world.port.workload_answers(&home.cluster_key(), true);
}

/// A Machine and its bootstrap data; returns its owner reference.
fn owner(world: &World, home: Home, name: &str, zone: Option<&str>) -> Value {
    let Home { namespace, cluster } = home;
    create(
        world,
        json!({
            "apiVersion": "v1", "kind": "Secret", "metadata": { "name": name, "namespace": namespace },
            "stringData": { "value": "#cloud-config\n# CANARYbootstrap" },
        }),
    );
    let made = create(
        world,
        json!({
            "apiVersion": "cluster.x-k8s.io/v1beta2", "kind": "Machine",
            "metadata": { "name": name, "namespace": namespace, "labels": { CLUSTER_NAME_LABEL: cluster } },
            "spec": {
                "clusterName": cluster, "bootstrap": { "dataSecretName": name }, "failureDomain": zone,
                "infrastructureRef": { "apiGroup": "infrastructure.cluster.x-k8s.io", "kind": "MaasMachine", "name": name },
            },
        }),
    );
    json!([{ "apiVersion": "cluster.x-k8s.io/v1beta2", "kind": "Machine", "name": name, "uid": made["metadata"]["uid"] }])
}

fn labels(home: Home, control_plane: bool) -> Value {
    let mut labels = json!({ CLUSTER_NAME_LABEL: home.cluster });
    if control_plane {
        labels[CONTROL_PLANE_LABEL] = json!("");
    }
    labels
}

/// A Machine, its bootstrap data and its MaasMachine with these fields in its spec.
pub(crate) fn machine(world: &World, home: Home, name: &str, zone: Option<&str>, control_plane: bool, spec: &Value) {
    let mut asked = json!({ "image": "ubuntu/jammy", "minCPU": 1, "minMemory": 1024 });
    asked.as_object_mut().unwrap().extend(spec.as_object().unwrap().clone());
    let owners = owner(world, home, name, zone);
    create(
        world,
        json!({
            "apiVersion": "infrastructure.cluster.x-k8s.io/v1beta1", "kind": "MaasMachine",
            "metadata": {
                "name": name, "namespace": home.namespace, "labels": labels(home, control_plane), "ownerReferences": owners,
            },
            "spec": asked,
        }),
    );
}

/// A machine as the Go provider leaves it: deployed, with its finalizer and its ID, without a stamp in MAAS.
pub(crate) fn go_machine(world: &World, name: &str, zone: &str, control_plane: bool) -> String {
    world.arrange(
        json!([{"machine": {"hostname": name, "status": "Deployed", "owner": "admin", "zone": zone, "power": "on"}}]),
    );
    let (id, address) = world.maas.control().with_model(|model| {
        let id = model.machine_named(name).unwrap();
        let machine = model.db.machines.get(&id).unwrap();
        (id, maas_sim::http::render::machine::addresses(model, machine)[0].clone())
    });
    let owners = owner(world, HOME, name, Some(zone));
    create(
        world,
        json!({
            "apiVersion": "infrastructure.cluster.x-k8s.io/v1beta1", "kind": "MaasMachine",
            "metadata": {
                "name": name, "namespace": "default", "labels": labels(HOME, control_plane), "ownerReferences": owners,
                "finalizers": [MACHINE_FINALIZER],
            },
            "spec": {
                "image": "ubuntu/jammy", "minCPU": 1, "minMemory": 1024, "providerID": format!("maas:///{zone}/{id}"), "systemID": id,
                "failureDomain": zone,
            },
        }),
    );
    let status = json!({
        "ready": true, "machineState": "Deployed", "machinePowered": true, "hostname": name,
        "addresses": [{ "type": "InternalIP", "address": address }],
    });
    world.port.set_status("MaasMachine", &Key::new("default", name), status).unwrap();
    address
}
