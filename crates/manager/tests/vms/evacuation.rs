//! Evacuation of hosts: Machines are deleted, a control plane replaces them, and it never misses two at a time.

use std::sync::Arc;

use capmaas_manager::evacuation::{Context, Memory, pass};
use capmaas_manager::kubernetes::{Key, Owners};
use capmaas_manager::lease::Fence;
use capmaas_manager::metrics::Metrics;
use serde_json::{Value, json};

use crate::crash::Mortal;
use crate::stage::Stage;

const MAINTENANCE: &str = "infrastructure.cluster.x-k8s.io/lxd-host-maintenance";
const TAGGED: &str = "infrastructure.cluster.x-k8s.io/lxd-host-maintenance-tagged";
pub(crate) const TAG: &str = "maas-lxd-host-maintenance";
const ROUNDS: usize = 400;

pub(crate) fn key(name: &str) -> Key {
    Key::new("default", name)
}

/// A stage whose machines have a control plane, simulated as Cluster API behaves.
pub(crate) struct Scene {
    pub(crate) stage: Stage,
    pub(crate) context: Context,
    control_plane: Value,
    replicas: usize,
    made: usize,
}

fn context(stage: &Stage) -> Context {
    let owners: Arc<dyn Owners> = Arc::new(Mortal { port: stage.port.clone(), crash: stage.crash.clone() });
    Context {
        kubernetes: stage.context.kubernetes.clone(),
        owners,
        identities: stage.context.identities.clone(),
        clock: stage.clock.clone(),
        fence: Fence::open(),
        metrics: Metrics::new(),
        lxd_hosts: stage.context.lxd_hosts.clone(),
        memory: Memory::default(),
    }
}

pub(crate) fn control_plane(stage: &Stage, name: &str, replicas: usize) -> Value {
    stage.create(json!({
        "apiVersion": "controlplane.cluster.x-k8s.io/v1beta2", "kind": "KubeadmControlPlane",
        "metadata": { "name": name, "namespace": "default" },
        "spec": { "replicas": replicas, "kubeadmConfigSpec": {} },
        "status": { "observedGeneration": 1, "replicas": replicas, "upToDateReplicas": replicas },
    }))
}

/// A VM whose Machine belongs to a cluster and its control plane.
pub(crate) fn member(stage: &Stage, name: &str, cluster: &str, control_plane: &Value) {
    stage.vm(name);
    let owner = json!([{
        "apiVersion": "controlplane.cluster.x-k8s.io/v1beta2", "kind": "KubeadmControlPlane",
        "name": control_plane["metadata"]["name"], "uid": control_plane["metadata"]["uid"], "controller": true,
    }]);
    let labels = json!({ "cluster.x-k8s.io/cluster-name": cluster, "cluster.x-k8s.io/control-plane": "" });
    let patch = json!({
        "metadata": { "labels": labels, "ownerReferences": owner, "finalizers": ["machine.cluster.x-k8s.io"] },
        "spec": { "clusterName": cluster },
    });
    stage.port.edit("Machine", &key(name), &patch).unwrap();
    stage.port.edit("MaasMachine", &key(name), &json!({ "metadata": { "labels": labels } })).unwrap();
}

/// The Node and the control plane report a healthy Machine.
pub(crate) fn is_well(stage: &Stage, name: &str) {
    let types = [
        "NodeHealthy",
        "APIServerPodHealthy",
        "ControllerManagerPodHealthy",
        "SchedulerPodHealthy",
        "EtcdPodHealthy",
        "EtcdMemberHealthy",
    ];
    let conditions = types.map(|type_| json!({ "type": type_, "status": "True" }));
    let status = json!({ "nodeRef": { "name": name }, "conditions": conditions });
    stage.port.set_status("Machine", &key(name), status).unwrap();
}

impl Scene {
    pub(crate) async fn new(stage: Stage, replicas: usize) -> Self {
        let control_plane = control_plane(&stage, "cp", replicas);
        let mut scene = Self { context: context(&stage), stage, control_plane, replicas, made: 0 };
        for _ in 0..ROUNDS {
            if scene.whole() {
                return scene;
            }
            scene.round().await;
        }
        panic!("the control plane never comes up: {:#?}", scene.stage.port.objects("MaasMachine"));
    }

    /// All Machines but those of hosts.
    pub(crate) fn machines(&self) -> Vec<Value> {
        let mut all = self.stage.port.objects("Machine");
        all.retain(|machine| machine["metadata"]["labels"]["kept"].is_null());
        all
    }

    /// How many Machines the control plane has had.
    pub(crate) fn made(&self) -> usize {
        self.made
    }

    /// All machines exist, are healthy, and none is being deleted.
    fn whole(&self) -> bool {
        let machines = self.machines();
        let well = |machine: &&Value| {
            machine["metadata"]["deletionTimestamp"].is_null() && !machine["status"]["nodeRef"].is_null()
        };
        machines.iter().filter(well).count() == self.replicas && machines.len() == self.replicas
    }

    /// Machines that are missing or being deleted.
    fn missing(&self) -> usize {
        let staying = self.machines().iter().filter(|it| it["metadata"]["deletionTimestamp"].is_null()).count();
        self.replicas.saturating_sub(staying)
    }

    /// Cluster API creates missing Machines, deletes the infrastructure of deleted ones, and finds their Nodes.
    fn cluster_api(&mut self) {
        for machine in self.machines() {
            let name = machine["metadata"]["name"].as_str().unwrap().to_owned();
            let there = !self.stage.object(&name).is_null();
            if !machine["metadata"]["deletionTimestamp"].is_null() {
                if there {
                    self.stage.port.delete("MaasMachine", &key(&name));
                } else {
                    let patch = json!({ "metadata": { "finalizers": null } });
                    self.stage.port.edit("Machine", &key(&name), &patch).unwrap();
                }
            } else if self.stage.object(&name)["status"]["ready"] == true && machine["status"]["nodeRef"].is_null() {
                is_well(&self.stage, &name);
            }
        }
        // KubeadmControlPlane adds one at a time, and none while one is being deleted.
        let machines = self.machines();
        let busy = machines.iter().any(|it| !it["metadata"]["deletionTimestamp"].is_null());
        if !busy && machines.len() < self.replicas {
            self.add();
        }
    }

    fn add(&mut self) {
        let name = format!("cp-{}", self.made);
        self.made += 1;
        member(&self.stage, &name, "c1", &self.control_plane);
    }

    /// Every component acts once, and five seconds pass. Returns whether the manager survived its pass over the hosts.
    async fn round(&mut self) -> bool {
        self.cluster_api();
        let machines = self.stage.port.objects("MaasMachine");
        for machine in machines.iter().filter(|machine| machine["metadata"]["labels"]["kept"].is_null()) {
            self.stage.pass(machine["metadata"]["name"].as_str().unwrap()).await;
        }
        let lives = tokio::select! {
            biased;
            result = pass(&self.context) => { result.unwrap(); true }
            () = self.stage.crash.happens() => false,
        };
        assert!(self.missing() <= 1 || self.made < self.replicas, "two machines of one control plane are missing");
        self.stage.advance(5);
        lives
    }

    pub(crate) fn restart(&mut self) {
        self.stage.restart();
        self.context = context(&self.stage);
    }

    /// Names of the VMs on a host.
    pub(crate) fn on(&self, host: &str) -> Vec<String> {
        let machines = self.stage.port.objects("MaasMachine");
        let here = machines.iter().filter(|machine| machine["status"]["lxdHost"] == host);
        here.map(|machine| machine["metadata"]["name"].as_str().unwrap().to_owned()).collect()
    }

    /// Rounds until a host has no VMs and all machines exist again.
    pub(crate) async fn until_empty(&mut self, host: &str) {
        for _ in 0..ROUNDS {
            if self.on(host).is_empty() && self.whole() {
                return;
            }
            self.round().await;
        }
        panic!("{host} is never empty: {:#?}", self.said());
    }

    pub(crate) async fn rounds(&mut self, count: usize) {
        for _ in 0..count {
            self.round().await;
        }
    }

    /// The MaasCluster's condition.
    pub(crate) fn said(&self) -> (String, String) {
        let cluster = self.stage.port.object("MaasCluster", &key("c1")).unwrap();
        let conditions = cluster["status"]["conditions"].as_array().cloned().unwrap_or_default();
        let said = conditions.into_iter().find(|condition| condition["type"] == "Evacuating").unwrap_or(Value::Null);
        let text = |value: &Value| value.as_str().unwrap_or_default().to_owned();
        (text(&said["reason"]), text(&said["message"]))
    }

    pub(crate) fn tag(&self, host: &str, tags: &[&str]) {
        self.stage.arrange(json!([{ "machine": { "hostname": host, "tags": tags } }]));
    }

    /// Tags of the VM host of this name, except MAAS's own.
    pub(crate) fn tags_of(&self, host: &str) -> Vec<String> {
        self.stage.maas.control().with_model(|model| {
            let hosts = model.db.vm_hosts.values();
            let tags = hosts.filter(|it| it.name == host).flat_map(|it| it.tags.iter().cloned());
            tags.filter(|tag| tag != "pod-console-logging").collect()
        })
    }

    /// A MaasMachine of the cluster for the machine of a host.
    fn host_object(&self, host: &str) {
        let labels = json!({ "cluster.x-k8s.io/cluster-name": "c1", "kept": "" });
        self.stage.host_object(host, json!({ "labels": labels, "finalizers": ["kept"] }));
    }

    pub(crate) fn annotate(&self, host: &str, reason: Option<&str>) {
        let patch = json!({ "metadata": { "annotations": { MAINTENANCE: reason } } });
        self.stage.port.edit("MaasMachine", &key(host), &patch).unwrap();
    }
}

#[tokio::test]
async fn s30_a_host_that_is_tagged_in_maas_is_emptied_by_replacing_its_machine_elsewhere() {
    let mut scene = Scene::new(Stage::new(), 3).await;
    assert_eq!(["host1", "host2", "host3"].map(|host| scene.on(host).len()), [1, 1, 1]);
    scene.tag("host2", &[TAG]);
    scene.until_empty("host2").await;
    assert_eq!((scene.stage.in_maas().len(), scene.stage.in_lxd().len()), (3, 3));
    assert_eq!(scene.made, 4, "one machine was replaced, and once");
    scene.rounds(2).await;
    assert_eq!(scene.said().0, "NotEvacuating");
    let told = scene.stage.port.events().into_iter().filter(|event| event.reason == "Evacuating").count();
    assert_eq!(told, 1);
}

#[tokio::test]
async fn s30_a_manager_that_dies_at_any_write_deletes_no_second_machine() {
    let mut died = 0;
    for writes in 0..7 {
        for after in [false, true] {
            let mut scene = Scene::new(Stage::new(), 3).await;
            scene.host_object("host1");
            scene.annotate("host1", Some("fans"));
            scene.stage.crash.light_for_writes(writes, after);
            for _ in 0..6 {
                let lives = tokio::select! {
                    biased;
                    result = pass(&scene.context) => { result.unwrap(); true }
                    () = scene.stage.crash.happens() => false,
                };
                scene.stage.advance(5);
                if !lives {
                    died += 1;
                    break;
                }
            }
            scene.stage.crash.put_out();
            assert!(scene.missing() <= 1);
            scene.restart();
            scene.until_empty("host1").await;
            assert_eq!(scene.made, 4, "died {} write {writes}", if after { "after" } else { "before" });
            assert_eq!(scene.tags_of("host1"), [TAG]);
        }
    }
    assert!(died >= 10, "it died {died} times");
}

#[tokio::test]
async fn s30_the_only_machine_of_a_control_plane_is_named_and_stays() {
    let mut scene = Scene::new(Stage::new(), 1).await;
    let host = scene.stage.object("cp-0")["status"]["lxdHost"].as_str().unwrap().to_owned();
    scene.tag(&host, &[TAG]);
    scene.rounds(20).await;
    assert_eq!((scene.made, scene.on(&host).len()), (1, 1));
    let (reason, message) = scene.said();
    assert_eq!(reason, "EvacuationWaiting");
    assert!(message.contains("is the only machine of KubeadmControlPlane cp"), "{message}");
}

#[tokio::test]
async fn s30_the_owner_of_the_cluster_decides_and_can_change_his_mind() {
    let mut scene = Scene::new(Stage::new(), 3).await;
    let manual = |say: Option<&str>| json!({ "spec": { "evacuation": say } });
    scene.stage.port.edit("MaasCluster", &key("c1"), &manual(Some("Manual"))).unwrap();
    scene.tag("host1", &[TAG]);
    scene.rounds(10).await;
    assert!(scene.whole() && scene.said().1.contains("evacuation: Manual"), "{:?}", scene.said());
    scene.stage.port.edit("MaasCluster", &key("c1"), &manual(None)).unwrap();
    let held = scene.on("host1").remove(0);
    let holding = |value: Value| json!({ "metadata": { "annotations": { "infrastructure.cluster.x-k8s.io/hold-evacuation": value } } });
    scene.stage.port.edit("Machine", &key(&held), &holding(json!(""))).unwrap();
    scene.rounds(10).await;
    assert!(scene.whole() && scene.said().1.contains("hold-evacuation"), "{:?}", scene.said());
    scene.stage.port.edit("Machine", &key(&held), &holding(Value::Null)).unwrap();
    scene.until_empty("host1").await;
}

#[tokio::test]
async fn s30_without_room_it_waits_in_words_and_goes_on_when_room_comes() {
    let stage = Stage::bare();
    for number in 1..=2 {
        stage.host(number, 4, 16384);
    }
    let mut scene = Scene::new(stage, 3).await;
    let (full, leaves) = if scene.on("host1").len() == 2 { ("host1", "host2") } else { ("host2", "host1") };
    scene.tag(leaves, &[TAG]);
    scene.rounds(10).await;
    assert_eq!(scene.said().0, "EvacuationWaiting", "{:?}", scene.said());
    assert!(scene.whole() && scene.said().1.contains("no room"), "{:?}", scene.said());
    scene.stage.host(3, 8, 16384);
    scene.until_empty(leaves).await;
    assert_eq!((scene.on("host3").len(), scene.on(full).len()), (1, 2));
}

#[tokio::test]
async fn s30_a_control_plane_that_is_not_well_is_left_to_its_owner() {
    let mut scene = Scene::new(Stage::new(), 3).await;
    let ill = scene.on("host3").remove(0);
    let sick = json!([{ "type": "EtcdMemberHealthy", "status": "False" }]);
    scene
        .stage
        .port
        .set_status("Machine", &key(&ill), json!({ "nodeRef": { "name": ill }, "conditions": sick }))
        .unwrap();
    scene.tag("host1", &[TAG]);
    scene.rounds(10).await;
    assert_eq!((scene.made, scene.machines().len()), (3, 3));
    assert!(scene.said().1.contains("is not healthy"), "{:?}", scene.said());
}

#[tokio::test]
async fn s31_the_annotation_on_a_host_closes_it_in_maas_and_opens_it_again() {
    let mut scene = Scene::new(Stage::new(), 3).await;
    scene.host_object("host1");
    scene.annotate("host1", Some("new fans"));
    scene.until_empty("host1").await;
    assert_eq!(scene.tags_of("host1"), [TAG]);
    scene.rounds(2).await;
    let said = scene.stage.condition("host1", "Evacuating");
    assert_eq!((&said["reason"], &said["status"]), (&json!("Evacuated"), &json!("False")), "{said}");
    assert!(said["message"].as_str().unwrap().contains("new fans"), "{said}");
    scene.annotate("host1", None);
    scene.rounds(4).await;
    assert_eq!(scene.tags_of("host1"), Vec::<String>::new());
    assert!(scene.stage.object("host1")["metadata"]["annotations"][TAGGED].is_null());
    assert_eq!(scene.stage.reason("host1", "Evacuating"), "NotEvacuating");
}

#[tokio::test]
async fn s31_an_annotation_on_an_object_that_is_not_provably_the_host_does_nothing() {
    let mut scene = Scene::new(Stage::new(), 3).await;
    scene.host_object("host1");
    scene.stage.arrange(json!([{ "machine": { "hostname": "host1", "annotations": { "capmaas-key": "another" } } }]));
    scene.annotate("host1", Some("forged"));
    scene.rounds(10).await;
    assert!(scene.whole() && scene.tags_of("host1").is_empty());
    assert_eq!(scene.made, 3);
}

#[tokio::test]
async fn s31_a_forged_claim_on_a_host_does_not_hide_the_object_that_is_it() {
    let mut scene = Scene::new(Stage::new(), 3).await;
    scene.host_object("host1");
    let id = scene.stage.port.object("MaasMachine", &key("host1")).unwrap()["spec"]["providerID"].clone();
    // Its name comes first.
    scene.stage.create(json!({
        "apiVersion": "infrastructure.cluster.x-k8s.io/v1beta1", "kind": "MaasMachine",
        "metadata": { "name": "a-claim", "namespace": "default" },
        "spec": { "image": "ubuntu/jammy", "minCPU": 1, "minMemory": 1024, "providerID": id },
    }));
    scene.annotate("host1", Some("new fans"));
    scene.until_empty("host1").await;
}

#[tokio::test]
async fn s30_a_host_whose_machine_is_deleted_is_closed_and_emptied_before_it_is_touched() {
    let mut scene = Scene::new(Stage::new(), 3).await;
    scene.host_object("host2");
    scene.stage.port.delete("MaasMachine", &key("host2"));
    scene.until_empty("host2").await;
    assert_eq!(scene.tags_of("host2"), ["capmaas-leaving"]);
}

#[tokio::test]
async fn s15_a_machine_that_is_paused_stays() {
    let mut scene = Scene::new(Stage::new(), 3).await;
    let paused = scene.on("host1").remove(0);
    let patch = json!({ "metadata": { "annotations": { "cluster.x-k8s.io/paused": "" } } });
    scene.stage.port.edit("Machine", &key(&paused), &patch).unwrap();
    scene.tag("host1", &[TAG]);
    scene.rounds(10).await;
    assert!(scene.whole() && scene.said().1.contains("is paused"), "{:?}", scene.said());
}
