//! Networks in CIDR notation.

use std::net::IpAddr;

/// A network: an address and the length of its prefix.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub struct Network {
    address: IpAddr,
    prefix: u32,
}

impl Network {
    /// Parses `10.0.0.0/16` or `fd00::/64`. A plain address is a network of one.
    pub fn parse(text: &str) -> Option<Self> {
        let (address, prefix) = match text.trim().split_once('/') {
            Some((address, prefix)) => (address, Some(prefix)),
            None => (text.trim(), None),
        };
        let address: IpAddr = address.parse().ok()?;
        let width = width(address);
        let prefix = match prefix {
            Some(prefix) if prefix.bytes().all(|byte| byte.is_ascii_digit()) => prefix.parse().ok()?,
            Some(_) => return None,
            None => width,
        };
        (prefix <= width).then_some(Self { address, prefix })
    }

    /// The longer the prefix, the smaller the network.
    pub fn prefix(&self) -> u32 {
        self.prefix
    }

    pub fn contains(&self, address: IpAddr) -> bool {
        let (width, shift) = (width(address), width(address).saturating_sub(self.prefix));
        // A shift by the full bit width is `None`; then every address matches.
        let equal = bits(address).checked_shr(shift) == bits(self.address).checked_shr(shift);
        width == self::width(self.address) && equal
    }
}

fn width(address: IpAddr) -> u32 {
    if address.is_ipv4() { 32 } else { 128 }
}

fn bits(address: IpAddr) -> u128 {
    match address {
        IpAddr::V4(address) => u128::from(u32::from(address)),
        IpAddr::V6(address) => u128::from(address),
    }
}

/// A list of networks, best first, and the entries that could not be parsed.
#[derive(Debug, Clone, Default, PartialEq, Eq)]
pub struct Networks {
    pub known: Vec<Network>,
    pub unreadable: Vec<String>,
}

impl Networks {
    /// Parses a list; empty entries are skipped.
    pub fn parse<'a>(words: impl IntoIterator<Item = &'a str>) -> Self {
        let mut networks = Self::default();
        for word in words.into_iter().map(str::trim).filter(|word| !word.is_empty()) {
            match Network::parse(word) {
                Some(network) => networks.known.push(network),
                None => networks.unreadable.push(word.to_owned()),
            }
        }
        networks
    }

    /// Whether the list has no entries at all, not even unreadable ones.
    pub fn is_empty(&self) -> bool {
        self.known.is_empty() && self.unreadable.is_empty()
    }

    /// The address that fits best. For an empty list, the first one.
    pub fn best(&self, addresses: &[IpAddr]) -> Option<IpAddr> {
        if self.is_empty() {
            return addresses.first().copied();
        }
        self.known.iter().find_map(|network| addresses.iter().copied().find(|address| network.contains(*address)))
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    fn ip(text: &str) -> IpAddr {
        text.parse().unwrap()
    }

    #[test]
    fn a_network_holds_the_addresses_that_begin_alike() {
        for (network, inside, outside) in [
            ("10.1.0.0/16", "10.1.255.9", "10.2.0.1"),
            ("10.1.2.3/32", "10.1.2.3", "10.1.2.4"),
            ("10.1.2.3", "10.1.2.3", "10.1.2.4"),
            ("fd00:10::/64", "fd00:10::1", "fd00:11::1"),
            ("0.0.0.0/0", "192.0.2.1", "::1"),
            ("::/0", "fd00::1", "10.0.0.1"),
        ] {
            let parsed = Network::parse(network).unwrap();
            assert!(parsed.contains(ip(inside)), "{network} {inside}");
            assert!(!parsed.contains(ip(outside)), "{network} {outside}");
        }
    }

    #[test]
    fn what_is_no_network_is_said_and_not_taken_for_one() {
        for text in ["", "10.0.0.0/33", "10.0.0/8", "fd00::/129", "10.0.0.0/+8", "pxe", "10.0.0.0/"] {
            assert_eq!(Network::parse(text), None, "{text}");
        }
        let networks = Networks::parse(["10.0.0.0/8", " ", "pxe"]);
        assert_eq!((networks.known.len(), networks.unreadable), (1, vec!["pxe".to_owned()]));
    }

    #[test]
    fn go15_every_address_of_a_machine_is_considered_and_the_best_network_wins() {
        let machine = [ip("172.16.0.5"), ip("10.0.0.5"), ip("192.168.1.5")];
        let best = |words: &[&str]| Networks::parse(words.iter().copied()).best(&machine);
        assert_eq!(best(&[]), Some(machine[0]));
        assert_eq!(best(&["192.168.1.0/24", "10.0.0.0/8"]), Some(machine[2]));
        assert_eq!(best(&["203.0.113.0/24", "10.0.0.0/8"]), Some(machine[1]));
        assert_eq!(best(&["203.0.113.0/24"]), None);
        assert_eq!(best(&["pxe"]), None, "a list that cannot be read is not 'anything goes'");
    }
}
