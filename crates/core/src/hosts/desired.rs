//! What a `MaasCluster` asks of its hosts, in one form whatever the dialect of its spec.

use capmaas_api::MaasClusterSpec;
use capmaas_api::cluster::{ClusterLxdConfig, NicType};

use super::bridge::DesiredBridge;

/// The longest interface name that Linux accepts. MAAS would accept a longer one, and the deployment would fail.
const LONGEST_NAME: usize = 15;

/// The desired configuration of a cluster's machines as LXD hosts.
#[derive(Debug, Clone, PartialEq, Eq)]
pub struct DesiredHosts {
    /// Driver of the storage pool.
    pub storage_backend: String,
    /// Its size, as the user wrote it.
    pub storage_size: String,
    /// The bridge that VMs are attached to.
    pub bridge: DesiredBridge,
    /// Zone of the VM hosts; `None` is each machine's own.
    pub zone: Option<String>,
    /// Resource pool of the VM hosts; `None` is each machine's own.
    pub pool: Option<String>,
}

/// Resolves the spec: no hosts, hosts, or a message about what cannot be understood.
pub fn desired(spec: &MaasClusterSpec) -> Result<Option<DesiredHosts>, String> {
    let matters = |path: &&String| *path == "." || path.starts_with("lxd");
    if let Some(path) = spec.unreadable.iter().find(matters) {
        return Err(format!("cannot read spec.{path} of the MaasCluster; correct it"));
    }
    let config = spec.lxd_config.clone().unwrap_or_default();
    let wanted = match (spec.lxd_control_plane_cluster, config.enabled) {
        (Some(one), Some(other)) if one != other => {
            return Err("spec.lxdControlPlaneCluster and spec.lxdConfig.enabled disagree; make them agree".into());
        }
        (one, other) => one.or(other) == Some(true),
    };
    if !wanted {
        return Ok(None);
    }
    if config.nic_type == Some(NicType::Macvlan) {
        return Err(
            "spec.lxdConfig.nicType is macvlan, but hosts are set up with a bridge; remove it or set it to bridge"
                .into(),
        );
    }
    let name = config.network_bridge_or_default();
    if name.len() > LONGEST_NAME {
        return Err(format!("spec.lxdConfig.networkBridge {name:?} is longer than {LONGEST_NAME} letters; shorten it"));
    }
    Ok(Some(DesiredHosts {
        storage_backend: config.storage_backend_or_default().to_owned(),
        storage_size: config.storage_size_or_default().to_owned(),
        bridge: bridge(&config, name),
        zone: config.zone().map(str::to_owned),
        pool: config.resource_pool().map(str::to_owned),
    }))
}

fn bridge(config: &ClusterLxdConfig, name: &str) -> DesiredBridge {
    DesiredBridge {
        name: name.to_owned(),
        parent: config.nic_parent.clone().filter(|parent| !parent.is_empty()),
        make: config.skip_network_update != Some(true),
    }
}

#[cfg(test)]
mod tests {
    use serde_json::json;

    use super::*;

    fn of(spec: serde_json::Value) -> Result<Option<DesiredHosts>, String> {
        let mut whole = json!({ "dnsDomain": "maas" });
        whole.as_object_mut().unwrap().extend(spec.as_object().cloned().unwrap());
        desired(&serde_json::from_value(whole).unwrap())
    }

    #[test]
    fn nothing_said_means_no_hosts_and_every_dialect_means_hosts() {
        for spec in [json!({}), json!({ "lxdControlPlaneCluster": false }), json!({ "lxdConfig": { "zone": "z" } })] {
            assert_eq!(of(spec.clone()), Ok(None), "{spec}");
        }
        for spec in [json!({ "lxdControlPlaneCluster": true }), json!({ "lxdConfig": { "enabled": true } })] {
            let desired = of(spec).unwrap().unwrap();
            assert_eq!((desired.storage_backend.as_str(), desired.storage_size.as_str()), ("zfs", "50"));
            assert_eq!(desired.bridge, DesiredBridge { name: "br0".into(), parent: None, make: true });
            assert_eq!((desired.zone, desired.pool), (None, None));
        }
    }

    #[test]
    fn what_the_documents_say_is_taken_over_and_an_empty_text_is_nothing() {
        let desired = of(json!({ "lxdControlPlaneCluster": true, "lxdConfig": {
            "storageBackend": "btrfs", "storageSize": "2TiB", "networkBridge": "br1", "zone": "", "resourcePool": "vm-generic",
            "nicParent": "eth1", "skipNetworkUpdate": true, "nicType": "bridged",
        } }));
        let desired = desired.unwrap().unwrap();
        assert_eq!((desired.storage_backend.as_str(), desired.storage_size.as_str()), ("btrfs", "2TiB"));
        assert_eq!(desired.bridge, DesiredBridge { name: "br1".into(), parent: Some("eth1".into()), make: false });
        assert_eq!((desired.zone, desired.pool.as_deref()), (None, Some("vm-generic")));
    }

    #[test]
    fn what_cannot_be_honoured_is_said() {
        for (spec, word) in [
            (json!({ "lxdControlPlaneCluster": false, "lxdConfig": { "enabled": true } }), "disagree"),
            (json!({ "lxdControlPlaneCluster": true, "lxdConfig": { "nicType": "macvlan" } }), "macvlan"),
            (json!({ "lxdControlPlaneCluster": true, "lxdConfig": { "networkBridge": "a-name-of-16-char" } }), "15"),
            (json!({ "lxdControlPlaneCluster": true, "lxdConfig": 7 }), "lxdConfig"),
        ] {
            let why = of(spec.clone()).unwrap_err();
            assert!(why.contains(word), "{spec}: {why}");
        }
    }
}
