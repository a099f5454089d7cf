//! Ports of 127.0.0.1 that nobody listens on.

use std::net::{IpAddr, Ipv4Addr, TcpListener};

use crate::error::{Error, Result};

/// Below the range from which Linux takes the ports of outgoing connections: those come and go at any moment.
const RANGE: std::ops::Range<u16> = 15_000..30_000;

/// The loopback address that everything listens on unless told otherwise.
pub(crate) const LOOPBACK: IpAddr = IpAddr::V4(Ipv4Addr::LOCALHOST);

/// `N` different ports that were free a moment ago. Somebody else may still come first: whoever uses them tries again.
pub(crate) fn free_ports<const N: usize>() -> Result<[u16; N]> {
    // All are held until the last is found, so that no port is given twice.
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
