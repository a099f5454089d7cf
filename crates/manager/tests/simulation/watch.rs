//! What watches deliver: every version of every object, one by one.

use std::collections::{BTreeMap, BTreeSet};

use capmaas_api::MaasMachine;
use capmaas_api::names::{CLUSTER_NAME_LABEL, CONTROL_PLANE_LABEL};
use capmaas_core::machine::JOURNAL_ANNOTATION;
use capmaas_manager::kubernetes::{Key, Node, Version};
use capmaas_manager::machine::fingerprint;
use serde_json::{Value, json};

use crate::chance::Chance;
use crate::guests::Guests;
use crate::law;
use crate::maintenance;
use crate::manager::Subject;
use crate::objects::{HOME, cluster_key, is_copied, key};
use crate::torments::Torment;
use crate::world::{Cast, World};

/// The state so far.
#[derive(Default)]
pub(crate) struct Watched {
    /// Fingerprints of each MaasMachine's fields that may trigger a pass.
    seen: BTreeMap<Key, u64>,
    /// Nodes that have joined.
    nodes: BTreeMap<(Key, String), Vec<String>>,
    /// Machines whose deployment has begun.
    deploying: BTreeSet<Key>,
}

impl World {
    /// Delivers what watches would.
    pub(crate) fn hear(&mut self) {
        self.play_cluster_api();
        self.with_guests(Guests::play);
        let mut concerned = BTreeSet::new();
        for version in self.port.take_versions() {
            self.heed_departures(&version);
            self.somebody_thinks_better_of_it(&version);
            let key = &version.key;
            match version.kind.as_str() {
                "MaasMachine" => {
                    // Of workers, only the deletion affects a cluster.
                    let matters = version.object.as_ref().is_none_or(|object| {
                        object["metadata"]["labels"].get(CONTROL_PLANE_LABEL).is_some() || law::is_leaving(object)
                    });
                    if matters {
                        concerned.extend(self.clusters_beside(key).map(Subject::Cluster));
                    }
                    if self.is_news(&version) {
                        concerned.insert(Subject::Machine(key.clone()));
                    }
                }
                "MaasCluster" | "Cluster" => {
                    concerned.insert(Subject::Cluster(key.clone()));
                    concerned.extend(self.machines_of(key).map(Subject::Machine));
                }
                "Machine" => drop(concerned.insert(Subject::Machine(key.clone()))),
                "Secret" | "ConfigMap" if key.namespace == "capmaas-system" => {
                    self.manager.hears_of_credentials();
                    if let Some(guests) = &self.guests {
                        guests.second.hears_of_credentials();
                    }
                    // As `Rotation` does: an idle cluster would notice half an hour later.
                    concerned.extend(self.subjects());
                }
                _ => {}
            }
        }
        self.heed_the_departed();
        // Any of them may be first.
        for subject in concerned {
            let soon = self.time + 10 + i64::try_from(self.chance.below(400)).unwrap();
            self.schedule(subject, soon);
        }
    }

    /// Whether this version of a MaasMachine triggers a pass over it, as the controller decides: checked for each
    /// version, not only for the last one, which may equal an earlier one.
    fn is_news(&mut self, version: &Version) -> bool {
        match &version.object {
            None => {
                self.watched.seen.remove(&version.key);
                true
            }
            Some(object) => {
                let object: MaasMachine = serde_json::from_value(object.clone()).unwrap();
                let now = fingerprint(&object);
                self.watched.seen.insert(version.key.clone(), now) != Some(now)
            }
        }
    }

    /// Sometimes a machine is deleted while its BMC is still turning it on: then it may turn on after its release.
    fn somebody_thinks_better_of_it(&mut self, version: &Version) {
        if version.kind != "MaasMachine" || version.key.namespace != HOME.namespace || is_copied(&version.key) {
            return;
        }
        let journal = version.object.as_ref().and_then(|it| it["metadata"]["annotations"][JOURNAL_ANNOTATION].as_str());
        if !journal.is_some_and(|journal| journal.contains("deployBegan")) {
            self.watched.deploying.remove(&version.key);
        } else if self.watched.deploying.insert(version.key.clone()) && Torment::SlowBmcs.is_on() {
            let mut chance = Chance::new(self.seed ^ self.time.unsigned_abs());
            if self.mortality > 0 && chance.percent(15) {
                self.tell(format!("somebody deletes {} right after its deployment began", version.key));
                self.port.delete("MaasMachine", &version.key);
            }
        }
    }

    fn clusters_beside(&self, machine: &Key) -> impl Iterator<Item = Key> {
        let namespace = machine.namespace.clone();
        self.keys("MaasCluster").into_iter().filter(move |key| key.namespace == namespace)
    }

    fn machines_of(&self, cluster: &Key) -> impl Iterator<Item = Key> {
        let name = |object: &Value| object["metadata"]["labels"][CLUSTER_NAME_LABEL].as_str().map(str::to_owned);
        let cluster = cluster.clone();
        let objects = self.port.objects("MaasMachine").into_iter();
        objects
            .filter(move |object| {
                object["metadata"]["namespace"] == cluster.namespace.as_str()
                    && name(object) == Some(cluster.name.clone())
            })
            .map(|object| key(&object))
    }

    /// Cluster API lets machines start once the infrastructure of the cluster is ready, and takes over its endpoint.
    fn play_cluster_api(&self) {
        for key in self.keys("MaasCluster") {
            let (Some(cluster), Some(ours)) =
                (self.port.object("Cluster", &key), self.port.object("MaasCluster", &key))
            else {
                continue;
            };
            if cluster["spec"]["paused"] == true || ours["status"]["ready"] != true {
                continue;
            }
            let endpoint = &ours["spec"]["controlPlaneEndpoint"];
            if cluster["spec"]["controlPlaneEndpoint"] != *endpoint {
                self.port.edit("Cluster", &key, &json!({ "spec": { "controlPlaneEndpoint": endpoint } })).unwrap();
            }
            if cluster["status"]["initialization"]["infrastructureProvisioned"] != true {
                let status = json!({ "initialization": { "infrastructureProvisioned": true } });
                self.port.set_status("Cluster", &key, status).unwrap();
            }
        }
    }

    /// A machine that MAAS has deployed joins as a Node, as with kubeadm.
    pub(crate) fn boot_nodes(&mut self) {
        for object in self.port.objects("MaasMachine") {
            let Some(name) = object["status"]["hostname"].as_str() else { continue };
            let addresses: Vec<String> = law::addresses(&object).map(str::to_owned).collect();
            let namespace = object["metadata"]["namespace"].as_str().unwrap();
            let cluster = object["metadata"]["labels"][CLUSTER_NAME_LABEL].as_str();
            let cluster = cluster.map_or_else(cluster_key, |cluster| Key::new(namespace, cluster));
            let known = (cluster.clone(), name.to_owned());
            if object["status"]["machineState"] != "Deployed" || self.watched.nodes.get(&known) == Some(&addresses) {
                continue;
            }
            self.watched.nodes.insert(known, addresses.clone());
            self.port.put_node(&cluster, Node { name: name.to_owned(), addresses, ..Node::default() });
        }
        if self.cast == Cast::Vms {
            maintenance::agents_report(self);
        }
    }
}
