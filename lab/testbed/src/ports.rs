//! Free ports of 127.0.0.1.

use std::net::{IpAddr, Ipv4Addr, TcpListener};

use crate::error::{Error, Result};

/// Below Linux's range of ephemeral ports, which outgoing connections take at any moment.
const RANGE: std::ops::Range<u16> = 15_000..30_000;

/// The default address that everything listens on.
pub(crate) const LOOPBACK: IpAddr = IpAddr::V4(Ipv4Addr::LOCALHOST);

/// `N` different ports that were free a moment ago. Another process may still take one first, so callers retry.
pub(crate) fn free_ports<const N: usize>() -> Result<[u16; N]> {
    // All are held until the last is found, so that no port is returned twice.
    let mut held = Vec::with_capacity(N);
    let mut ports = [0; N];
    for port in &mut ports {
        let listener =
            (0..1000).find_map(|_| TcpListener::bind((LOOPBACK, rand::random_range(RANGE))).ok()).ok_or_else(|| {
                Error::Missing("1000 random ports of 127.0.0.1 are all taken: end what holds them".into())
            })?;
        *port = listener.local_addr().map_err(|source| Error::Io { doing: "read a port".into(), source })?.port();
        held.push(listener);
    }
    Ok(ports)
}
