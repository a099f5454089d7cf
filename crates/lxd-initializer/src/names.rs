//! Names that users and the manager read or write. They are part of the agent's interface.

/// Set on the Node once everything holds.
pub const LABEL_INITIALIZED: &str = "lxdhost.cluster.com/initialized";
/// The prefix of everything that the agent writes on its Node.
pub const PREFIX: &str = "lxdhost.cluster.com/";
/// Set on the Node by a person or the manager: the agent stops writing to LXD and MAAS and reports the state `Left`.
pub const LEAVE: &str = "lxdhost.cluster.com/leave";
/// `Ready`, `Working`, `Waiting`, `Blocked` or `Left`.
pub const STATE: &str = "lxdhost.cluster.com/state";
/// The message for the state.
pub const MESSAGE: &str = "lxdhost.cluster.com/message";
/// All steps as JSON: `[{"type","status","message"}]`.
pub const CONDITIONS: &str = "lxdhost.cluster.com/conditions";
/// `standalone` or `managed`.
pub const MODE: &str = "lxdhost.cluster.com/mode";
/// Where LXD listens, as `https://address:port`.
pub const ADDRESS: &str = "lxdhost.cluster.com/address";
/// Fingerprint of LXD's own certificate, for pinning it.
pub const FINGERPRINT: &str = "lxdhost.cluster.com/fingerprint";
/// Fingerprint of the client certificate that LXD trusts for the project.
pub const CERTIFICATE: &str = "lxdhost.cluster.com/certificate";
/// Fingerprints of earlier certificates for the same purpose that LXD still trusts, as a JSON list; absent if there are
/// none.
pub const EARLIER: &str = "lxdhost.cluster.com/earlier-certificates";
/// Written by the manager: fingerprint of the certificate that MAAS uses. Earlier ones need not be trusted any more.
pub const MAAS_CERTIFICATE: &str = "lxdhost.cluster.com/maas-certificate";
/// The LXD project.
pub const PROJECT: &str = "lxdhost.cluster.com/project";
/// The instances of the project as a JSON list of names; absent if not currently known.
pub const INSTANCES: &str = "lxdhost.cluster.com/instances";
/// The profiles that instances of the project can have, as a JSON list of names; absent if not currently known.
pub const PROFILES: &str = "lxdhost.cluster.com/profiles";
/// The bridges for VMs that connect to a network outside of the node, as a JSON list of names; absent if not currently
/// known. Others, such as those of container networks, change all the time and are irrelevant to MAAS.
pub const BRIDGES: &str = "lxdhost.cluster.com/bridges";
/// ID of the VM host in MAAS, if the agent registered or found it.
pub const VM_HOST: &str = "lxdhost.cluster.com/vm-host";

/// The Secret with the API key of MAAS.
pub const SECRET: &str = "maas-credentials";
pub const SECRET_KEY: &str = "apiKey";
/// The ConfigMap with the endpoint of MAAS.
pub const CONFIG_MAP: &str = "capmaas-config";
pub const CONFIG_MAP_KEY: &str = "maasEndpoint";
/// The ConfigMap in which the manager provides the certificate to be trusted: key `<node name>.crt`, or `tls.crt` for
/// all.
pub const TRUST_CONFIG_MAP: &str = "lxd-initializer-trust";
/// Its key for every node.
pub const TRUST_KEY_FOR_ALL: &str = "tls.crt";

/// The key in LXD's configuration by which the agent recognizes its own listener.
pub const LISTENER_NOTE: &str = "user.lxd-initializer.listener";

/// The name under which the agent has LXD trust a certificate.
pub fn trust_name(node_name: &str) -> String {
    format!("maas-{node_name}")
}

/// The common name in the certificates that the agent makes. It identifies them even if the key is lost.
pub fn common_name(node_name: &str) -> String {
    format!("{}{node_name}", crate::issued::OF_NODE)
}
