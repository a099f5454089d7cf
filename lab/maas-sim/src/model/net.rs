//! Addresses and networks, as far as MAAS computes with them.

use std::{
    fmt,
    net::{IpAddr, Ipv4Addr, Ipv6Addr},
    str::FromStr,
};

/// A network with its prefix length.
#[derive(Clone, Copy, Debug, PartialEq, Eq, PartialOrd, Ord)]
pub struct Cidr {
    base: IpAddr,
    length: u8,
}

/// Not a network.
#[derive(Debug, thiserror::Error)]
#[error("'{0}' is not a network such as 10.0.0.0/24")]
pub struct BadCidr(String);

impl FromStr for Cidr {
    type Err = BadCidr;

    fn from_str(text: &str) -> Result<Self, Self::Err> {
        let bad = || BadCidr(text.to_owned());
        let (ip, length) = text.trim().split_once('/').ok_or_else(bad)?;
        let ip: IpAddr = ip.parse().map_err(|_| bad())?;
        let length: u8 = length.parse().map_err(|_| bad())?;
        if length > if ip.is_ipv4() { 32 } else { 128 } {
            return Err(bad());
        }
        let number = to_number(ip) & !host_mask(ip, length);
        Ok(Self { base: from_number(number, ip.is_ipv4()), length })
    }
}

impl fmt::Display for Cidr {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        write!(f, "{}/{}", self.base, self.length)
    }
}

fn host_mask(ip: IpAddr, length: u8) -> u128 {
    let bits = if ip.is_ipv4() { 32 } else { 128 };
    let host_bits = bits - u32::from(length);
    if host_bits >= 128 { u128::MAX } else { (1u128 << host_bits) - 1 }
}

/// An address as a number.
pub fn to_number(ip: IpAddr) -> u128 {
    match ip {
        IpAddr::V4(ip) => u128::from(u32::from(ip)),
        IpAddr::V6(ip) => u128::from(ip),
    }
}

/// A number as an address.
pub fn from_number(number: u128, v4: bool) -> IpAddr {
    if v4 {
        IpAddr::V4(Ipv4Addr::from(u32::try_from(number & u128::from(u32::MAX)).unwrap_or(0)))
    } else {
        IpAddr::V6(Ipv6Addr::from(number))
    }
}

impl Cidr {
    /// Whether it is IPv4.
    pub fn is_v4(self) -> bool {
        self.base.is_ipv4()
    }

    /// The length of the prefix.
    pub fn length(self) -> u8 {
        self.length
    }

    /// Whether the address is in it.
    pub fn contains(self, ip: IpAddr) -> bool {
        ip.is_ipv4() == self.base.is_ipv4()
            && to_number(ip) & !host_mask(self.base, self.length) == to_number(self.base)
    }

    /// Whether the networks overlap.
    pub fn overlaps(self, other: Self) -> bool {
        self.contains(other.base) || other.contains(self.base)
    }

    /// The first address.
    pub fn base(self) -> IpAddr {
        self.base
    }

    /// The last address.
    pub fn last(self) -> IpAddr {
        from_number(to_number(self.base) | host_mask(self.base, self.length), self.is_v4())
    }

    /// First and last usable host address, as numbers.
    pub fn host_range(self) -> (u128, u128) {
        let first = to_number(self.base);
        let last = first | host_mask(self.base, self.length);
        if self.is_v4() && self.length < 31 { (first + 1, last - 1) } else { (first + 1, last) }
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn a_network_knows_its_hosts() {
        let net: Cidr = "10.42.0.9/24".parse().unwrap();
        assert_eq!(net.to_string(), "10.42.0.0/24");
        assert!(net.contains("10.42.0.254".parse().unwrap()));
        assert!(!net.contains("10.42.1.1".parse().unwrap()));
        let (first, last) = net.host_range();
        assert_eq!(from_number(first, true).to_string(), "10.42.0.1");
        assert_eq!(from_number(last, true).to_string(), "10.42.0.254");
    }
}
