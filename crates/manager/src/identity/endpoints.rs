//! Which MAAS servers may be contacted (S28).
//!
//! A tenant can choose the endpoint in the Secret of `spec.identityRef`, and the manager can reach networks that the
//! tenant cannot. So the operator of the manager may list the permitted servers. Names are compared as names: the owner
//! of a domain controls what a name resolves to, so a network on the list permits addresses only.

use std::net::IpAddr;
use std::str::FromStr;

use maas_client::Endpoint;

use super::{Credentials, Problem};

/// The servers that may be contacted; an empty list permits all.
#[derive(Clone, Debug, Default)]
pub struct AllowedEndpoints(Vec<AllowedEndpoint>);

/// One entry of the list.
#[derive(Clone, Debug, PartialEq, Eq)]
pub enum AllowedEndpoint {
    /// Scheme, host and port: `https://maas.example:5443`.
    Origin(String),
    /// This host, on any port: `maas.example`.
    Host(String),
    /// Every host below a domain: `*.maas.example`.
    Below(String),
    /// Addresses of a network: `10.1.0.0/16`.
    Network(IpAddr, u8),
}

impl FromStr for AllowedEndpoint {
    type Err = String;

    fn from_str(text: &str) -> Result<Self, String> {
        let hint = || {
            format!(
                "{text:?} is not a valid MAAS server: write https://HOST:PORT, a host name, *.DOMAIN, an address, or a network such as \
                 10.1.0.0/16"
            )
        };
        let text = text.trim().to_ascii_lowercase();
        if text.contains("://") {
            let endpoint: Endpoint = text.parse().map_err(|error| format!("{error}"))?;
            return Ok(Self::Origin(endpoint.origin().to_owned()));
        }
        if let Some((address, bits)) = text.split_once('/') {
            let (address, bits): (IpAddr, u8) = address.parse().ok().zip(bits.parse().ok()).ok_or_else(hint)?;
            let most = if address.is_ipv4() { 32 } else { 128 };
            return if bits <= most { Ok(Self::Network(address, bits)) } else { Err(hint()) };
        }
        if let Ok(address) = text.trim_start_matches('[').trim_end_matches(']').parse::<IpAddr>() {
            return Ok(Self::Network(address, if address.is_ipv4() { 32 } else { 128 }));
        }
        let (below, name) = text.strip_prefix("*.").map_or((false, text.as_str()), |name| (true, name));
        let fits = |c: char| c.is_ascii_alphanumeric() || c == '-' || c == '.';
        if name.is_empty() || !name.chars().all(fits) {
            return Err(hint());
        }
        Ok(if below { Self::Below(format!(".{name}")) } else { Self::Host(name.to_owned()) })
    }
}

impl AllowedEndpoint {
    fn admits(&self, origin: &str, host: &str) -> bool {
        // An IPv4-mapped IPv6 address connects to the IPv4 address, so both count as the same.
        let address = host.parse::<IpAddr>().ok().map(|address| address.to_canonical());
        match (self, address) {
            (Self::Origin(allowed), _) => allowed == origin,
            (Self::Host(allowed), None) => allowed == host,
            (Self::Below(domain), None) => host.len() > domain.len() && host.ends_with(domain.as_str()),
            (Self::Network(network, bits), Some(address)) => within(address, network.to_canonical(), *bits),
            (Self::Host(_) | Self::Below(_), Some(_)) | (Self::Network(..), None) => false,
        }
    }
}

fn within(address: IpAddr, network: IpAddr, bits: u8) -> bool {
    let bits = u32::from(bits);
    match (address, network) {
        (IpAddr::V4(address), IpAddr::V4(network)) => {
            let rest = 32_u32.saturating_sub(bits);
            (u64::from(address.to_bits()) >> rest) == (u64::from(network.to_bits()) >> rest)
        }
        (IpAddr::V6(address), IpAddr::V6(network)) => {
            let rest = 128_u32.saturating_sub(bits);
            address.to_bits().checked_shr(rest) == network.to_bits().checked_shr(rest)
        }
        _ => false,
    }
}

impl AllowedEndpoints {
    /// Permits these servers; an empty list permits all.
    pub fn new(entries: Vec<AllowedEndpoint>) -> Self {
        Self(entries)
    }

    /// Checks credentials before anything is sent. A malformed endpoint is refused by the client, which sends nothing
    /// either.
    pub(super) fn check(&self, credentials: &Credentials) -> Result<(), Problem> {
        let Ok(endpoint) = credentials.endpoint.parse::<Endpoint>() else { return Ok(()) };
        let origin = endpoint.origin();
        if self.0.is_empty() || self.0.iter().any(|entry| entry.admits(origin, host(origin))) {
            return Ok(());
        }
        Err(Problem::credentials(format!(
            "the MAAS endpoint {origin} in {} is not on the manager's list --allowed-maas-endpoints, so it is not contacted; the \
             operator of the manager can add it",
            credentials.place
        )))
    }
}

/// The host of `scheme://host:port`, without the brackets of an IPv6 address.
fn host(origin: &str) -> &str {
    let authority = origin.split_once("://").map_or(origin, |(_, rest)| rest);
    match authority.strip_prefix('[').and_then(|rest| rest.split_once(']')) {
        Some((address, _)) => address,
        None => authority.split_once(':').map_or(authority, |(host, _)| host),
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    fn admits(list: &[&str], endpoint: &str) -> bool {
        let list = list.iter().map(|entry| entry.parse().unwrap()).collect();
        let credentials = Credentials {
            endpoint: endpoint.to_owned(),
            key: "a:b:CANARY".to_owned().into(),
            authority: None,
            place: "Secret team/mine".to_owned(),
        };
        match AllowedEndpoints::new(list).check(&credentials) {
            Ok(()) => true,
            Err(problem) => {
                assert!(problem.message.contains("--allowed-maas-endpoints"), "{problem}");
                assert!(!problem.message.contains("CANARY"), "{problem}");
                false
            }
        }
    }

    #[test]
    fn s28_only_servers_on_the_list_are_asked_and_an_empty_list_admits_all() {
        assert!(admits(&[], "http://169.254.169.254/latest"));
        let list = ["https://maas.example:5443", "maas.lab", "*.dc.example", "10.1.0.0/16", "fd00::/8", "192.0.2.7"];
        for good in [
            "https://maas.example:5443/MAAS",
            "http://maas.lab:5240/MAAS",
            "https://MAAS.lab",
            "https://a.dc.example",
            "http://10.1.200.3:5240/MAAS",
            "http://[fd12::1]:5240/MAAS",
            "http://[::ffff:10.1.0.1]/MAAS",
            "http://192.0.2.7/MAAS",
        ] {
            assert!(admits(&list, good), "{good}");
        }
        for bad in [
            "http://maas.example:5443/MAAS",
            "https://maas.example/MAAS",
            "http://maas.lab.evil.example",
            "http://evilmaas.lab",
            "https://dc.example",
            "https://evildc.example",
            "http://10.2.0.1",
            "http://0x0a.2.0.1",
            "http://169.254.169.254/latest/meta-data",
            "http://[::1]:8080",
            "http://localhost:10250",
            "http://10.1.0.1.evil.example",
            "http://[::ffff:10.2.0.1]",
        ] {
            assert!(!admits(&list, bad), "{bad}");
        }
        assert!(admits(&["0.0.0.0/0", "::/0"], "http://10.2.0.1") && admits(&["::/0"], "http://[fd00::1]"));
        assert!(!admits(&["0.0.0.0/0", "::/0"], "http://maas.lab"), "where a name leads is not known");
    }

    #[test]
    fn an_entry_that_names_no_server_is_told_what_to_write() {
        for bad in ["", "10.0.0.0/33", "10.0.0.0/x", "*.", "maas example", "a/b", "ftp://maas.example"] {
            assert!(bad.parse::<AllowedEndpoint>().is_err(), "{bad}");
        }
    }
}
