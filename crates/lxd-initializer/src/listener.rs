//! `core.https_address`: whether LXD's setting covers the node's address.

use std::net::{IpAddr, SocketAddr};

/// LXD's default port.
const DEFAULT_PORT: u16 = 8443;

/// The address at which LXD is reached through the node's IP, if the setting covers that.
pub fn reached_at(setting: &str, node: IpAddr) -> Option<SocketAddr> {
    let (host, port) = split(setting.trim())?;
    let covered = match host {
        "" | "*" | "::" => true,
        host => match host.parse::<IpAddr>().ok()? {
            IpAddr::V4(any) if any.is_unspecified() => node.is_ipv4(),
            ip => ip == node,
        },
    };
    covered.then(|| SocketAddr::new(node, port))
}

fn split(setting: &str) -> Option<(&str, u16)> {
    if let Ok(ip) = setting.parse::<IpAddr>() {
        // LXD stores an address without a port as given.
        return Some((if ip.is_unspecified() && ip.is_ipv6() { "::" } else { setting }, DEFAULT_PORT));
    }
    if let Some(rest) = setting.strip_prefix('[') {
        let (host, rest) = rest.split_once(']')?;
        return match rest.strip_prefix(':') {
            Some(port) => Some((host, port.parse().ok()?)),
            None if rest.is_empty() => Some((host, DEFAULT_PORT)),
            None => None,
        };
    }
    let (host, port) = setting.rsplit_once(':')?;
    Some((host, port.parse().ok()?))
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn settings_that_cover_the_node_are_told_from_those_that_do_not() {
        let v4: IpAddr = "192.0.2.7".parse().unwrap();
        let v6: IpAddr = "2001:db8::7".parse().unwrap();
        for (setting, node, expected) in [
            ("192.0.2.7:8443", v4, Some("192.0.2.7:8443")),
            ("192.0.2.7", v4, Some("192.0.2.7:8443")),
            ("192.0.2.8:8443", v4, None),
            ("[::]:8443", v4, Some("192.0.2.7:8443")),
            ("[::]:9443", v6, Some("[2001:db8::7]:9443")),
            ("[::]", v6, Some("[2001:db8::7]:8443")),
            ("::", v4, Some("192.0.2.7:8443")),
            (":8443", v4, Some("192.0.2.7:8443")),
            ("0.0.0.0:8443", v4, Some("192.0.2.7:8443")),
            ("0.0.0.0:8443", v6, None),
            ("[2001:db8::7]:8443", v6, Some("[2001:db8::7]:8443")),
            ("[2001:db8::7]:8443", v4, None),
            ("127.0.0.1:8443", v4, None),
            ("host.example:8443", v4, None),
            ("192.0.2.7:nonsense", v4, None),
            ("", v4, None),
        ] {
            assert_eq!(reached_at(setting, node).map(|at| at.to_string()).as_deref(), expected, "{setting} for {node}");
        }
    }
}
