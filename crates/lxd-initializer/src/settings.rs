//! The agent's settings: environment variables, each also a flag.

use std::{net::IpAddr, path::PathBuf, time::Duration};

use clap::Parser;
use secrecy::SecretString;

/// Prepares this node's LXD for MAAS and registers it as a VM host.
#[derive(Parser, Clone)]
#[command(name = "lxd-initializer", version, about, after_help = AFTER_HELP)]
pub struct Arguments {
    /// Do this once and exit, instead of running as an agent
    #[arg(value_enum)]
    action: Option<Action>,
    /// Name of the Kubernetes node that this runs on
    #[arg(long, env = "NODE_NAME", value_parser = filled)]
    node_name: String,
    /// Address of this node on which LXD should listen; by default the Node's InternalIP
    #[arg(long, env = "NODE_IP", value_parser = optional)]
    node_ip: Option<String>,
    /// Storage driver: zfs, btrfs, lvm or dir
    #[arg(long, env = "STORAGE_BACKEND", default_value = "zfs", value_parser = optional)]
    storage_backend: String,
    /// Size of the storage pool: a number of GB, or one with a unit; ignored by dir
    #[arg(long, env = "STORAGE_SIZE", default_value = "50", value_parser = optional)]
    storage_size: String,
    /// Name of the storage pool to create, or to use if it exists and is healthy
    #[arg(long, env = "STORAGE_POOL", default_value = "default", value_parser = optional)]
    storage_pool: String,
    /// Bridge of the node to which VMs are attached; it must exist
    #[arg(long, env = "NETWORK_BRIDGE", default_value = "br0", value_parser = optional)]
    network_bridge: String,
    /// LXD project for MAAS
    #[arg(long, env = "LXD_PROJECT", default_value = "maas", value_parser = optional)]
    lxd_project: String,
    /// LXD's unix socket; by default the usual paths are tried
    #[arg(long, env = "LXD_SOCKET", value_parser = optional)]
    lxd_socket: Option<String>,
    /// LXD's directory, as LXD itself knows it
    #[arg(long, env = "LXD_DIR", value_parser = optional)]
    lxd_dir: Option<String>,
    /// Port on which LXD should listen
    #[arg(long, env = "LXD_PORT", default_value_t = 8443)]
    lxd_port: u16,
    /// API key of a MAAS administrator; by default Secret maas-credentials, key apiKey
    #[arg(long, env = "MAAS_API_KEY", hide_env_values = true)]
    maas_api_key: Option<SecretString>,
    /// Address of MAAS; by default ConfigMap capmaas-config, key maasEndpoint
    #[arg(long, env = "MAAS_ENDPOINT", value_parser = optional)]
    maas_endpoint: Option<String>,
    /// File with the CA certificates (PEM) that MAAS's certificate is checked against, besides the system's
    #[arg(long, env = "MAAS_CA_FILE", value_parser = optional)]
    maas_ca_file: Option<String>,
    /// MAAS zone of the VM host; empty means that of the node's own machine
    #[arg(long, env = "ZONE", default_value = "default")]
    zone: String,
    /// MAAS resource pool of the VM host; empty means that of the node's own machine
    #[arg(long, env = "RESOURCE_POOL", default_value = "default")]
    resource_pool: String,
    /// Directory on the host for the key pair of this node
    #[arg(long, env = "STATE_DIR", default_value = "/var/lib/lxd-initializer", value_parser = optional)]
    state_dir: String,
    /// Namespace of the Secret and the ConfigMaps
    #[arg(long, env = "POD_NAMESPACE", default_value = "capmaas-system", value_parser = optional)]
    namespace: String,
    /// Address of /healthz, /readyz and, for the node itself only, /metrics
    #[arg(long, env = "HEALTH_ADDRESS", default_value = "[::]:8081", value_parser = optional)]
    health_address: String,
    /// Seconds between two passes over a node in the desired state
    #[arg(long, env = "WATCH_SECONDS", default_value_t = 60, value_parser = clap::value_parser!(u64).range(1..=3600))]
    watch_seconds: u64,
    /// Seconds between two reads of MAAS while the VM host is in the desired state
    #[arg(long, env = "MAAS_SECONDS", default_value_t = 600, value_parser = clap::value_parser!(u64).range(1..=86_400))]
    maas_seconds: u64,
    /// What to log, as in RUST_LOG
    #[arg(long, env = "LOG", default_value = "info", value_parser = optional)]
    log: String,
}

/// What a person can ask for.
#[derive(Clone, Copy, Debug, PartialEq, Eq, clap::ValueEnum)]
pub enum Action {
    /// Remove the VM host that this agent registered from MAAS: only on a Node that was asked to leave, and only while there
    /// are no VMs on it
    Unregister,
}

const AFTER_HELP: &str = "With MAAS_API_KEY and MAAS_ENDPOINT the agent registers the node itself; with neither it trusts the \
certificate in ConfigMap lxd-initializer-trust and reports on its Node, and the capmaas manager registers it.";

/// A DaemonSet passes an unset value as an empty string; clap would accept that as a value.
fn filled(text: &str) -> Result<String, String> {
    let text = text.trim();
    if text.is_empty() { Err("it is empty".into()) } else { Ok(text.to_owned()) }
}

#[allow(clippy::unnecessary_wraps)] // the shape that clap wants
fn optional(text: &str) -> Result<String, std::convert::Infallible> {
    Ok(text.trim().to_owned())
}

/// An invalid setting, named by its variable.
#[derive(Debug, thiserror::Error, PartialEq, Eq)]
#[error("{variable} is {value:?}, but {expected}")]
pub struct SettingError {
    variable: &'static str,
    value: String,
    expected: &'static str,
}

/// The desired storage pool.
#[derive(Debug, Clone, PartialEq, Eq)]
pub struct PoolSettings {
    pub name: String,
    pub driver: String,
    /// Its size with a unit; `None` for the driver that takes none.
    pub size: Option<String>,
}

/// The validated settings. They contain no secret.
#[derive(Debug, Clone)]
pub struct Settings {
    pub node_name: String,
    /// Address to listen on, if given.
    pub node_ip: Option<IpAddr>,
    pub pool: PoolSettings,
    pub bridge: String,
    /// The LXD project.
    pub project: String,
    /// Where LXD's socket may be, in search order.
    pub sockets: Vec<PathBuf>,
    /// LXD's port.
    pub port: u16,
    /// MAAS's zone; empty means the machine's own.
    pub zone: String,
    /// MAAS's resource pool; empty means the machine's own.
    pub resource_pool: String,
    /// The directory of the key pair.
    pub state_dir: PathBuf,
    /// The namespace of the Secret and the ConfigMaps.
    pub namespace: String,
    /// CA certificates for MAAS.
    pub maas_ca_file: Option<PathBuf>,
    /// The address of the health endpoints.
    pub health_address: std::net::SocketAddr,
    /// The interval between passes over a node in the desired state.
    pub watch: Duration,
    /// The interval between reads of MAAS when everything is right.
    pub maas_watch: Duration,
    pub log: String,
}

/// Credentials from environment or flags; missing ones are looked up in the cluster.
#[derive(Clone, Default)]
pub struct GivenCredentials {
    pub api_key: Option<SecretString>,
    pub endpoint: Option<String>,
}

impl Arguments {
    /// The one-time action, if any.
    pub fn action(&self) -> Option<Action> {
        self.action
    }

    /// Validates the arguments.
    pub fn settle(self) -> Result<(Settings, GivenCredentials), SettingError> {
        let or = |value: String, default: &str| if value.is_empty() { default.to_owned() } else { value };
        let some = |value: Option<String>| value.filter(|value| !value.is_empty());
        let driver = or(self.storage_backend, "zfs");
        if !["zfs", "btrfs", "lvm", "dir"].contains(&driver.as_str()) {
            return Err(wrong("STORAGE_BACKEND", driver, "it must be zfs, btrfs, lvm or dir"));
        }
        let size = size_with_unit(&or(self.storage_size, "50"))?;
        let bridge = or(self.network_bridge, "br0");
        if bridge.len() > 15 {
            return Err(wrong("NETWORK_BRIDGE", bridge, "an interface's name has at most 15 characters"));
        }
        let node_ip = some(self.node_ip)
            .map(|ip| ip.parse().map_err(|_| wrong("NODE_IP", ip, "it must be an IP address")))
            .transpose()?;
        let health_address = or(self.health_address, "[::]:8081");
        let health_address = health_address
            .parse()
            .map_err(|_| wrong("HEALTH_ADDRESS", health_address, "it must be an address like [::]:8081"))?;
        let settings = Settings {
            node_name: self.node_name,
            node_ip,
            pool: PoolSettings {
                name: or(self.storage_pool, "default"),
                size: (driver != "dir").then_some(size),
                driver,
            },
            bridge,
            project: or(self.lxd_project, "maas"),
            sockets: sockets(some(self.lxd_socket), some(self.lxd_dir)),
            port: self.lxd_port,
            zone: self.zone.trim().to_owned(),
            resource_pool: self.resource_pool.trim().to_owned(),
            state_dir: or(self.state_dir, "/var/lib/lxd-initializer").into(),
            namespace: or(self.namespace, "capmaas-system"),
            maas_ca_file: some(self.maas_ca_file).map(PathBuf::from),
            health_address,
            watch: Duration::from_secs(self.watch_seconds),
            maas_watch: Duration::from_secs(self.maas_seconds),
            log: or(self.log, "info"),
        };
        let given = GivenCredentials {
            api_key: self.maas_api_key.filter(|key| !secrecy::ExposeSecret::expose_secret(key).trim().is_empty()),
            endpoint: some(self.maas_endpoint),
        };
        Ok((settings, given))
    }
}

fn wrong(variable: &'static str, value: String, expected: &'static str) -> SettingError {
    SettingError { variable, value, expected }
}

/// The size as LXD parses it. LXD takes a plain number for bytes, so a pool of "50" would have 50 bytes; and it knows
/// neither `50G` nor `50Gi`, which MaasCluster accepts as well.
fn size_with_unit(text: &str) -> Result<String, SettingError> {
    const UNITS: [(&str, u64); 5] =
        [("GB", 1_000_000_000), ("GiB", 1 << 30), ("MB", 1_000_000), ("MiB", 1 << 20), ("B", 1)];
    const EXPECTED: &str = "it must be a number of GB such as 50, or a size with a unit such as 500GiB or 2TB";
    let bytes = capmaas_api::size::bytes(text).map_err(|_| wrong("STORAGE_SIZE", text.to_owned(), EXPECTED))?;
    let whole = UNITS.into_iter().find(|(_, factor)| bytes.is_multiple_of(*factor));
    Ok(whole.map_or_else(|| format!("{bytes}B"), |(unit, factor)| format!("{}{unit}", bytes / factor)))
}

/// Every place where the socket can be. Never `unix.socket.user`, which is for unprivileged users.
fn sockets(explicit: Option<String>, lxd_dir: Option<String>) -> Vec<PathBuf> {
    if let Some(socket) = explicit {
        return vec![socket.into()];
    }
    let in_dir = lxd_dir.map(|dir| PathBuf::from(dir).join("unix.socket"));
    let usual = ["/var/snap/lxd/common/lxd/unix.socket", "/var/lib/lxd/unix.socket"].map(PathBuf::from);
    in_dir.into_iter().chain(usual).collect()
}

#[cfg(test)]
mod tests {
    use super::*;

    fn settle(arguments: &[&str]) -> Result<Settings, SettingError> {
        let all = ["lxd-initializer", "--node-name", "n1"].iter().chain(arguments);
        Arguments::try_parse_from(all).unwrap().settle().map(|(settings, _)| settings)
    }

    #[test]
    fn the_defaults_are_those_of_the_document() {
        let settings = settle(&[]).unwrap();
        assert_eq!((settings.pool.driver.as_str(), settings.pool.size.as_deref()), ("zfs", Some("50GB")));
        assert_eq!((settings.bridge.as_str(), settings.project.as_str()), ("br0", "maas"));
        assert_eq!((settings.zone.as_str(), settings.resource_pool.as_str()), ("default", "default"));
    }

    #[test]
    fn a_size_without_a_unit_is_gigabytes_and_never_bytes_and_units_are_those_of_the_cluster() {
        for (given, sent) in [
            ("50", "50GB"),
            ("1", "1GB"),
            ("500GB", "500GB"),
            ("500G", "500GB"),
            ("2TB", "2000GB"),
            ("2TiB", "2048GiB"),
            ("20 GiB", "20GiB"),
            ("20Gi", "20GiB"),
            ("1.5", "1500MB"),
            ("0.0000000015", "1B"),
        ] {
            assert_eq!(settle(&["--storage-size", given]).unwrap().pool.size.as_deref(), Some(sent), "{given}");
        }
        for wrong in ["0", "-1", "fifty", "50XB", "99999999999"] {
            let error = settle(&[&format!("--storage-size={wrong}")]).unwrap_err();
            assert!(error.to_string().starts_with("STORAGE_SIZE is"), "{error}");
        }
    }

    #[test]
    fn the_dir_driver_gets_no_size_because_it_takes_none() {
        assert_eq!(settle(&["--storage-backend", "dir"]).unwrap().pool.size, None);
    }

    #[test]
    fn a_wrong_setting_is_named_by_its_variable() {
        for (flags, name) in [
            (["--storage-backend", "ext4"], "STORAGE_BACKEND"),
            (["--network-bridge", "a-name-of-16-char"], "NETWORK_BRIDGE"),
            (["--node-ip", "host.example"], "NODE_IP"),
            (["--health-address", "8081"], "HEALTH_ADDRESS"),
        ] {
            assert!(settle(&flags).unwrap_err().to_string().starts_with(name));
        }
    }

    #[test]
    fn an_explicit_socket_is_the_only_one_tried_and_else_every_usual_place_is() {
        assert_eq!(settle(&["--lxd-socket", "/x"]).unwrap().sockets, [PathBuf::from("/x")]);
        let searched = settle(&["--lxd-dir", "/d"]).unwrap().sockets;
        assert_eq!(searched[0], PathBuf::from("/d/unix.socket"));
        assert_eq!(searched.len(), 3);
        assert!(searched.iter().all(|socket| socket.ends_with("unix.socket")));
    }

    #[test]
    fn empty_values_count_as_not_given() {
        let settings = settle(&["--node-ip", "", "--storage-backend", "", "--lxd-socket", ""]).unwrap();
        assert_eq!(settings.node_ip, None);
        assert_eq!(settings.pool.driver, "zfs");
        assert_eq!(settings.sockets.len(), 2);
    }

    #[test]
    fn the_node_name_is_required() {
        assert!(Arguments::try_parse_from(["lxd-initializer", "--node-name", " "]).is_err());
    }
}
