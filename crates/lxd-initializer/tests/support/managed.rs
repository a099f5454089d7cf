//! A node in managed mode.

use std::sync::Arc;

use lxd_client::Identity;
use lxd_initializer::{agent::Agent, settings::Settings};

use super::{cluster::MemoryCluster, lxd::RealLxd};

/// A key pair as the manager makes it for a cluster.
pub(crate) fn pair(cluster: &str) -> Identity {
    let key = rcgen::KeyPair::generate().unwrap();
    let mut params = rcgen::CertificateParams::default();
    params.distinguished_name = rcgen::DistinguishedName::new();
    params.distinguished_name.push(rcgen::DnType::CommonName, format!("capmaas@{cluster}"));
    Identity::new(params.self_signed(&key).unwrap().pem(), key.serialize_pem().into())
}

pub(crate) struct Scene {
    pub(crate) lxd: RealLxd,
    pub(crate) state: tempfile::TempDir,
    pub(crate) cluster: Arc<MemoryCluster>,
    pub(crate) identity: Identity,
}

/// A fresh LXD, and a manager that has provided its certificate.
pub(crate) async fn scene() -> Scene {
    let (identity, cluster) = (pair("c1"), Arc::new(MemoryCluster::default()));
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
