//! Makes idle clusters notice changed credentials.
//!
//! Only the manager's own namespace can be watched: Secrets elsewhere can only be read by name. So the credentials of
//! every cluster are read again periodically, each Secret once however many clusters use it, and immediately when the
//! watch of the manager's own credentials reports a change. A cluster whose credentials have changed is woken, with its
//! machines (S5).

use std::collections::BTreeMap;
use std::time::Duration;

use capmaas_api::names::CLUSTER_NAME_LABEL;
use capmaas_api::{MaasCluster, MaasMachine};
use kube::ResourceExt as _;
use kube::runtime::reflector::{ObjectRef, Store};

use crate::feed::Waker;
use crate::identity::{Identities, Mark, cluster_of};
use crate::kubernetes::Key;

/// The check interval; credentials are also cached for half a minute.
const PACE: Duration = Duration::from_secs(15);

/// Tracks the credentials of all clusters.
pub struct Rotation {
    pub identities: Identities,
    pub clusters: Store<MaasCluster>,
    pub machines: Store<MaasMachine>,
    /// Wakes the cluster controller.
    pub cluster_waker: Waker<MaasCluster>,
    /// Wakes the machine controller.
    pub machine_waker: Waker,
}

impl Rotation {
    /// Runs until it is dropped.
    pub async fn run(self) {
        let mut seen = BTreeMap::new();
        loop {
            self.check(&mut seen).await;
            tokio::select! {
                () = tokio::time::sleep(PACE) => {}
                () = self.identities.until_changed() => {}
            }
        }
    }

    async fn check(&self, seen: &mut BTreeMap<Key, Mark>) {
        let clusters = self.clusters.state();
        seen.retain(|key, _| clusters.iter().any(|cluster| Key::of(cluster.as_ref()) == *key));
        for cluster in clusters {
            // An API server that does not answer does not mean a change.
            let Some(mark) = self.identities.mark(&cluster).await else { continue };
            match seen.insert(Key::of(cluster.as_ref()), mark.clone()) {
                Some(before) if before == mark => {}
                // It is unknown whether its last pass came before or after a change: one more pass is cheap.
                None => self.cluster_waker.wake(&ObjectRef::from_obj(cluster.as_ref())),
                Some(_) => {
                    tracing::info!(cluster = %Key::of(cluster.as_ref()), "the MAAS credentials have changed");
                    self.cluster_waker.wake(&ObjectRef::from_obj(cluster.as_ref()));
                    self.wake_machines(&cluster);
                }
            }
        }
    }

    fn wake_machines(&self, cluster: &MaasCluster) {
        let name = cluster_of(cluster);
        for machine in self.machines.state() {
            let labelled = machine.labels().get(CLUSTER_NAME_LABEL) == Some(&name);
            if labelled && machine.namespace() == cluster.namespace() {
                self.machine_waker.wake(&ObjectRef::from_obj(machine.as_ref()));
            }
        }
    }
}
