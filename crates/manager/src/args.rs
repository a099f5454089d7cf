//! The manager's command line.

use std::net::{Ipv6Addr, SocketAddr};
use std::path::PathBuf;
use std::time::Duration;

use clap::Parser;

use crate::identity::AllowedEndpoint;

/// The controller manager of capmaas.
#[derive(Debug, Clone, Parser)]
#[command(name = "capmaas-manager", version)]
pub struct Args {
    /// Reconcile only the objects of this namespace. Absent: those of all namespaces.
    #[arg(long)]
    pub namespace: Option<String>,

    /// Reconcile only the objects that carry the label cluster.x-k8s.io/watch-filter with this value. Absent: all.
    #[arg(long)]
    pub watch_filter: Option<String>,

    /// Where /healthz, /readyz and /log-level are served, as `:PORT` or `ADDRESS:PORT`.
    #[arg(long, default_value = ":9440", value_parser = parse_listen_address)]
    pub health_addr: SocketAddr,

    /// Where /metrics is served, as `:PORT` or `ADDRESS:PORT`; 0 for nowhere. Over HTTPS, for clients that Kubernetes
    /// authorizes to GET /metrics.
    #[arg(long, default_value = ":8443", value_parser = parse_optional_address)]
    pub diagnostics_address: OptionalAddress,

    /// Serve /metrics over plain HTTP, without authorization.
    #[arg(long)]
    pub insecure_diagnostics: bool,

    /// A folder with tls.crt and tls.key for /metrics; they are read again when they change. Absent: a self-signed
    /// certificate, created at every start.
    #[arg(long, conflicts_with = "insecure_diagnostics")]
    pub diagnostics_cert_dir: Option<PathBuf>,

    /// Run only while holding the leader Lease, so that only one of several managers writes.
    #[arg(long)]
    pub leader_elect: bool,

    /// Name of the leader Lease. The Go provider's Lease has the same name, so only one of the two is active. Give managers
    /// that should run side by side in one namespace (with --namespace or --watch-filter) different names.
    #[arg(long, default_value = capmaas_core::lease::LEASE_NAME)]
    pub leader_election_id: String,

    /// The namespace that the manager runs in: its own credentials and the leader Lease are there.
    #[arg(long, env = "POD_NAMESPACE", default_value = "capmaas-system")]
    pub pod_namespace: String,

    /// Namespaces besides the cluster's own that spec.identityRef of a MaasCluster may point into, separated by commas.
    #[arg(long, value_delimiter = ',')]
    pub identity_namespaces: Vec<String>,

    /// The MAAS servers that may be contacted, separated by commas: https://HOST:PORT, a host name, *.DOMAIN, an
    /// address, or a network such as 10.1.0.0/16. Absent: any.
    #[arg(long, value_delimiter = ',')]
    pub allowed_maas_endpoints: Vec<AllowedEndpoint>,

    /// Image of the lxd-initializer, which runs on the nodes of clusters that ask for LXD hosts. Without it such
    /// clusters report an error.
    #[arg(long, env = "LXD_INITIALIZER_IMAGE")]
    pub lxd_initializer_image: Option<String>,

    /// How many MaasClusters are reconciled at the same time.
    #[arg(long, default_value_t = 10)]
    pub cluster_concurrency: u16,

    /// How many MaasMachines are reconciled at the same time.
    #[arg(long, default_value_t = 50)]
    pub machine_concurrency: u16,

    /// How many concurrent requests to MAAS each identity may have. One region worker answers no faster with more than
    /// four.
    #[arg(long, default_value_t = 4)]
    pub maas_concurrency: usize,

    /// How often MAAS's event log is polled, for instance 4s; up to four times as often after a machine has begun to be
    /// deployed, released or commissioned.
    #[arg(long, default_value = "4s", value_parser = parse_duration)]
    pub maas_poll_interval: Duration,

    /// Within this time every machine is reconciled once, even if MAAS's event log shows nothing about it; at most 12h.
    #[arg(long, default_value = "30m", value_parser = parse_sync_period)]
    pub sync_period: Duration,

    /// How much is logged: error, warn, info, debug or trace. Can be changed at run time with PUT /log-level.
    #[arg(long, default_value = "info")]
    pub log_level: String,
}

/// An address to listen on, or none.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub struct OptionalAddress(pub Option<SocketAddr>);

/// Parses an address as Go programs write it: `:9440` means every address of the host.
fn parse_listen_address(text: &str) -> Result<SocketAddr, String> {
    let hint = || {
        format!(
            "{text:?} is not a valid listen address: write :PORT or ADDRESS:PORT, for instance :9440 or 127.0.0.1:9440"
        )
    };
    match text.strip_prefix(':') {
        Some(port) => port.parse().map(|port| SocketAddr::from((Ipv6Addr::UNSPECIFIED, port))).map_err(|_| hint()),
        None => text.parse().map_err(|_| hint()),
    }
}

/// The same, with `0` for none, as in Go programs.
fn parse_optional_address(text: &str) -> Result<OptionalAddress, String> {
    if text == "0" { Ok(OptionalAddress(None)) } else { parse_listen_address(text).map(|it| OptionalAddress(Some(it))) }
}

/// Parses `500ms`, `4s`, `30m` or `2h`. Zero is refused: it would poll MAAS without a pause.
fn parse_duration(text: &str) -> Result<Duration, String> {
    let hint =
        || format!("{text:?} is not a valid duration: write a number with ms, s, m or h, for instance 4s, 30m or 2h");
    let unit = text.find(|c: char| !c.is_ascii_digit()).ok_or_else(hint)?;
    let (number, unit) = text.split_at(unit);
    let number: u32 = number.parse().map_err(|_| hint())?;
    let unit = match unit {
        "ms" => Duration::from_millis(1),
        "s" => Duration::from_secs(1),
        "m" => Duration::from_secs(60),
        "h" => Duration::from_secs(3600),
        _ => return Err(hint()),
    };
    let time = unit * number;
    if time.is_zero() { Err(format!("{text:?} is too short: give at least 1ms")) } else { Ok(time) }
}

fn parse_sync_period(text: &str) -> Result<Duration, String> {
    let time = parse_duration(text)?;
    let longest = Duration::from_secs(12 * 3600);
    if time > longest { Err("sync period must be at most 12h".to_owned()) } else { Ok(time) }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn a_bare_port_listens_everywhere_as_in_go_programs() {
        assert_eq!(parse_listen_address(":9440").unwrap(), "[::]:9440".parse().unwrap());
        assert_eq!(parse_listen_address("127.0.0.1:80").unwrap(), "127.0.0.1:80".parse().unwrap());
        assert_eq!(parse_optional_address("0").unwrap(), OptionalAddress(None));
    }

    #[test]
    fn a_bad_address_is_told_what_to_write() {
        let message = parse_listen_address("9440").unwrap_err();
        assert!(message.contains("\"9440\" is not a valid listen address: write :PORT"), "{message}");
    }

    #[test]
    fn times_are_written_as_in_go_programs() {
        let seconds = |text| parse_duration(text).map(|time| time.as_secs_f64());
        assert_eq!(seconds("500ms"), Ok(0.5));
        assert_eq!(seconds("30m"), Ok(1800.0));
        for bad in ["", "5", "s", "0s", "1d", "-1s", "99999999999s"] {
            assert!(seconds(bad).is_err(), "{bad}");
        }
        assert!(parse_sync_period("12h").is_ok() && parse_sync_period("13h").is_err());
    }

    #[test]
    fn a_manager_without_flags_starts_and_uses_the_go_providers_lease() {
        let args = Args::try_parse_from(["capmaas-manager"]).unwrap();
        assert_eq!(args.leader_election_id, "controller-leader-election-capmaas");
        let args = Args::try_parse_from(["capmaas-manager", "--identity-namespaces=a,b", "--leader-elect"]).unwrap();
        assert_eq!((args.identity_namespaces, args.leader_elect), (vec!["a".into(), "b".into()], true));
        assert!(args.allowed_maas_endpoints.is_empty());
        let listed = |list: &str| Args::try_parse_from(["capmaas-manager", "--allowed-maas-endpoints", list]);
        assert_eq!(listed("maas.lab,10.1.0.0/16").unwrap().allowed_maas_endpoints.len(), 2);
        assert!(listed("maas lab").unwrap_err().to_string().contains("is not a valid MAAS server"));
    }
}
