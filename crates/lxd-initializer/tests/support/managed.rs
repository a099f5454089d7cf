//! A node in managed mode.

use std::sync::Arc;

use lxd_client::Identity;
use lxd_initializer::{agent::Agent, settings::Settings};

use super::{cluster::MemoryCluster, lxd::RealLxd};

fn pair() -> Identity {
    let pair = rcgen::generate_simple_self_signed(["manager".to_owned()]).unwrap();
    Identity::new(pair.cert.pem(), pair.signing_key.serialize_pem().into())
}

pub(crate) struct Scene {
    pub(crate) lxd: RealLxd,
    pub(crate) state: tempfile::TempDir,
    pub(crate) cluster: Arc<MemoryCluster>,
    pub(crate) identity: Identity,
}

/// A fresh LXD, and a manager that has given its certificate.
pub(crate) async fn scene() -> Scene {
    let (identity, cluster) = (pair(), Arc::new(MemoryCluster::default()));
    cluster.give_certificate(identity.certificate_pem());
    Scene { lxd: RealLxd::start().await, state: tempfile::tempdir().unwrap(), cluster, identity }
}

impl Scene {
    pub(crate) fn settings(&self, more: &[&str]) -> Settings {
        super::settings(&self.lxd, self.state.path(), more)
    }

    pub(crate) fn agent(&self) -> Agent {
        super::agent(&self.settings(&[]), &self.cluster)
    }
}
