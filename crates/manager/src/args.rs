//! The manager's command line.

use std::net::{Ipv6Addr, SocketAddr};

use clap::Parser;

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

    /// Where /healthz and /readyz are served, as `:PORT` or `ADDRESS:PORT`.
    #[arg(long, default_value = ":9440", value_parser = parse_listen_address)]
    pub health_addr: SocketAddr,
}

/// Reads an address as Go programs write it: `:9440` means every address of the host.
fn parse_listen_address(text: &str) -> Result<SocketAddr, String> {
    let hint = || {
        format!(
            "{text:?} is no address to listen on: write :PORT or ADDRESS:PORT, for instance :9440 or 127.0.0.1:9440"
        )
    };
    match text.strip_prefix(':') {
        Some(port) => port.parse().map(|port| SocketAddr::from((Ipv6Addr::UNSPECIFIED, port))).map_err(|_| hint()),
        None => text.parse().map_err(|_| hint()),
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn a_bare_port_listens_everywhere_as_in_go_programs() {
        assert_eq!(parse_listen_address(":9440").unwrap(), "[::]:9440".parse().unwrap());
        assert_eq!(parse_listen_address("127.0.0.1:80").unwrap(), "127.0.0.1:80".parse().unwrap());
    }

    #[test]
    fn a_bad_address_is_told_what_to_write() {
        let message = parse_listen_address("9440").unwrap_err();
        assert!(message.contains("\"9440\" is no address to listen on: write :PORT"), "{message}");
    }
}
