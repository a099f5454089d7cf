//! Names that users and the manager read or write. They are part of the agent's interface.

/// Set on the Node once everything holds.
pub const LABEL_INITIALIZED: &str = "lxdhost.cluster.com/initialized";
/// The prefix of everything that the agent writes on its Node.
pub const PREFIX: &str = "lxdhost.cluster.com/";
/// Set on the Node by a person or the manager: the agent stops writing to LXD and MAAS and answers with state `Left`.
pub const LEAVE: &str = "lxdhost.cluster.com/leave";
/// `Ready`, `Working`, `Waiting`, `Blocked` or `Left`.
pub const STATE: &str = "lxdhost.cluster.com/state";
/// The sentence that belongs to the state.
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
/// Fingerprints of certificates that were made for the same purpose before and that LXD still trusts, as a JSON list; absent if
/// there are none.
pub const EARLIER: &str = "lxdhost.cluster.com/earlier-certificates";
/// Written by the manager: fingerprint of the certificate that MAAS comes with. Earlier ones need not be trusted any more.
pub const MAAS_CERTIFICATE: &str = "lxdhost.cluster.com/maas-certificate";
/// The LXD project.
pub const PROJECT: &str = "lxdhost.cluster.com/project";
/// The instances of the project as a JSON list of names; absent if that is not known right now.
pub const INSTANCES: &str = "lxdhost.cluster.com/instances";
/// The profiles that instances of the project can have, as a JSON list of names; absent if that is not known right now.
pub const PROFILES: &str = "lxdhost.cluster.com/profiles";
/// The bridges for VMs that lead out of the node, as a JSON list of names; absent if that is not known right now. Others, such
/// as those of container networks, come and go and are no concern of MAAS.
pub const BRIDGES: &str = "lxdhost.cluster.com/bridges";
/// Id of the VM host in MAAS, where the agent registered or found it.
pub const VM_HOST: &str = "lxdhost.cluster.com/vm-host";

/// The Secret of document 001.
pub const SECRET: &str = "maas-credentials";
pub const SECRET_KEY: &str = "apiKey";
/// The ConfigMap of document 001.
pub const CONFIG_MAP: &str = "capmaas-config";
pub const CONFIG_MAP_KEY: &str = "maasEndpoint";
/// The ConfigMap in which the manager gives the certificate to be trusted: key `<node name>.crt`, or `tls.crt` for all.
pub const TRUST_CONFIG_MAP: &str = "lxd-initializer-trust";
/// Its key for every node.
pub const TRUST_KEY_FOR_ALL: &str = "tls.crt";

/// The key in LXD's configuration by which the agent knows its own listener again.
pub const LISTENER_NOTE: &str = "user.lxd-initializer.listener";

/// The name under which the agent has LXD trust a certificate.
pub fn trust_name(node_name: &str) -> String {
    format!("maas-{node_name}")
}

/// The common name in the certificates that the agent makes, by which it knows its own again, even with the key lost.
pub fn common_name(node_name: &str) -> String {
    format!("lxd-initializer@{node_name}")
}
