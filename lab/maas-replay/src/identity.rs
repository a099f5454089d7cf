//! Maps objects of the recording to objects of the simulator.
//!
//! Ids, addresses and names that MAAS generated differ between the two. They are learned by comparing a recorded answer
//! with the simulator's, and are then substituted in later requests, arrangements and error texts.

use std::collections::HashMap;

use serde_json::Value;

/// Kinds of objects that are identified by an id, a name or an address.
#[derive(Clone, Copy, Debug, PartialEq, Eq, Hash)]
pub enum Kind {
    /// A machine, device or controller, by its `system_id`.
    System,
    /// A network interface.
    Interface,
    /// The link of an interface to a subnet.
    Link,
    /// A disk.
    BlockDevice,
    /// A partition of a disk.
    Partition,
    /// A subnet.
    Subnet,
    /// A VLAN, by its database id.
    Vlan,
    /// A fabric.
    Fabric,
    /// A space.
    Space,
    /// A zone, by its id.
    Zone,
    /// A resource pool.
    Pool,
    /// A domain.
    Domain,
    /// A DNS resource.
    DnsResource,
    /// A record of a DNS resource.
    DnsRecord,
    /// An address range.
    IpRange,
    /// An image.
    Image,
    /// A VM host.
    VmHost,
    /// An event.
    Event,
    /// A virtual machine's own id.
    VirtualMachine,
    /// A name: of a machine or of a VM host.
    Name,
    /// An IP address.
    Address,
    /// A MAC address.
    Mac,
}

impl Kind {
    /// The kind of the objects in an API collection.
    pub(crate) fn of_collection(collection: &str) -> Option<Self> {
        Some(match collection {
            "machines" | "nodes" | "devices" | "rackcontrollers" | "regioncontrollers" => Self::System,
            "interfaces" => Self::Interface,
            "blockdevices" => Self::BlockDevice,
            "partition" | "partitions" => Self::Partition,
            "subnets" => Self::Subnet,
            "vlans" => Self::Vlan,
            "fabrics" => Self::Fabric,
            "spaces" => Self::Space,
            "resourcepool" => Self::Pool,
            "domains" => Self::Domain,
            "dnsresources" => Self::DnsResource,
            "dnsresourcerecords" => Self::DnsRecord,
            "ipranges" => Self::IpRange,
            "boot-resources" => Self::Image,
            "vm-hosts" | "pods" => Self::VmHost,
            _ => return None,
        })
    }

    /// Every kind, for texts that do not show which kind a number is.
    const ALL: [Self; 22] = [
        Self::System,
        Self::Name,
        Self::Address,
        Self::Mac,
        Self::Link,
        Self::Interface,
        Self::VmHost,
        Self::BlockDevice,
        Self::Partition,
        Self::Subnet,
        Self::Vlan,
        Self::Fabric,
        Self::Space,
        Self::Zone,
        Self::Pool,
        Self::Domain,
        Self::DnsResource,
        Self::DnsRecord,
        Self::IpRange,
        Self::Image,
        Self::Event,
        Self::VirtualMachine,
    ];
}

/// The pairs of recorded and simulated identities, in both directions.
#[derive(Debug, Default)]
pub struct Identities {
    simulated: HashMap<(Kind, String), String>,
    recorded: HashMap<(Kind, String), String>,
}

impl Identities {
    /// The simulated identity for a recorded one, if known.
    pub fn known(&self, kind: Kind, recorded: &str) -> Option<&str> {
        self.simulated.get(&(kind, recorded.to_owned())).map(String::as_str)
    }

    /// The simulated identity for a recorded one; itself if none is known.
    pub fn simulated<'a>(&'a self, kind: Kind, recorded: &'a str) -> &'a str {
        self.known(kind, recorded).unwrap_or(recorded)
    }

    /// The recorded identity for a simulated one.
    pub fn recorded(&self, kind: Kind, simulated: &str) -> Option<&str> {
        self.recorded.get(&(kind, simulated.to_owned())).map(String::as_str)
    }

    /// Whether a word of a recorded text and one of the simulator's mean the same.
    pub fn same_word(&self, recorded: &str, simulated: &str) -> bool {
        Kind::ALL.iter().any(|kind| self.known(*kind, recorded) == Some(simulated))
    }

    /// Whether a recorded word is a paired identity.
    pub fn uses(&self, recorded: &str) -> bool {
        Kind::ALL.iter().any(|kind| self.known(*kind, recorded).is_some())
    }

    /// Whether a word of the simulator's is a paired identity.
    pub fn made(&self, simulated: &str) -> bool {
        Kind::ALL.iter().any(|kind| self.recorded(*kind, simulated).is_some())
    }

    /// Clears everything: another MAAS answers from now on.
    pub fn forget(&mut self) {
        *self = Self::default();
    }

    /// Pairs two identities. The newer pairing wins, and nothing is paired twice.
    pub fn pair(&mut self, kind: Kind, recorded: &str, simulated: &str) {
        if recorded.is_empty() || simulated.is_empty() {
            return;
        }
        if let Some(former) = self.simulated.insert((kind, recorded.to_owned()), simulated.to_owned()) {
            self.recorded.remove(&(kind, former));
        }
        if let Some(former) = self.recorded.insert((kind, simulated.to_owned()), recorded.to_owned())
            && former != recorded
        {
            self.simulated.remove(&(kind, former));
        }
    }

    /// Removes the pairing of a deleted object: a new one may be a different object.
    pub fn part(&mut self, kind: Kind, recorded: &str) {
        if let Some(former) = self.simulated.remove(&(kind, recorded.to_owned())) {
            self.recorded.remove(&(kind, former));
        }
    }

    /// Pairs two identities unless the recorded one is already paired.
    fn pair_if_new(&mut self, kind: Kind, recorded: &str, simulated: &str) {
        if self.known(kind, recorded).is_none() {
            self.pair(kind, recorded, simulated);
        }
    }

    /// Learns from a recorded answer and the simulator's answer to the same request.
    pub fn learn(&mut self, recorded: &Value, simulated: &Value) {
        self.walk(recorded, simulated, "");
    }

    fn walk(&mut self, recorded: &Value, simulated: &Value, role: &str) {
        match (recorded, simulated) {
            (Value::Object(ours), Value::Object(theirs)) => {
                if self.are_strangers(recorded, simulated) {
                    return;
                }
                let kind = self.learn_uri(recorded, simulated).or(match role {
                    "links" => Some(Kind::Link),
                    "events" => Some(Kind::Event),
                    _ => None,
                });
                for (key, value) in ours {
                    let Some(other) = theirs.get(key) else { continue };
                    match leaf_kind(key, kind) {
                        Some(kind) => self.learn_leaf(kind, value, other),
                        None => self.walk(value, other, key),
                    }
                }
            }
            (Value::Array(ours), Value::Array(theirs)) => {
                if role == "ip_addresses" && ours.len() == theirs.len() && ours.iter().all(Value::is_string) {
                    for (ours, theirs) in ours.iter().zip(theirs) {
                        self.learn_leaf(Kind::Address, ours, theirs);
                    }
                    return;
                }
                for (ours, theirs) in self.couples(ours, theirs) {
                    self.walk(ours, theirs, role);
                }
            }
            _ => {}
        }
    }

    /// Two machines that are both paired with others: the answers are about different objects.
    fn are_strangers(&self, recorded: &Value, simulated: &Value) -> bool {
        let id = |value: &Value| value.get("system_id").and_then(Value::as_str).map(str::to_owned);
        let name = |value: &Value| value.get("hostname").and_then(Value::as_str).map(str::to_owned);
        let (Some(ours), Some(theirs)) = (id(recorded), id(simulated)) else { return false };
        let taken = |known: Option<&str>, partner: &str| known.is_some_and(|known| known != partner);
        if !taken(self.known(Kind::System, &ours), &theirs) && !taken(self.recorded(Kind::System, &theirs), &ours) {
            return false;
        }
        // The same name on both sides: an object was recreated.
        match (name(recorded), name(simulated)) {
            (Some(ours), Some(theirs)) => self.simulated(Kind::Name, &ours) != theirs,
            _ => true,
        }
    }

    /// Pairs the ids in two resource URIs of the same form; returns the kind of the object itself.
    fn learn_uri(&mut self, recorded: &Value, simulated: &Value) -> Option<Kind> {
        let uri = |value: &Value| value.get("resource_uri").and_then(Value::as_str).map(str::to_owned);
        let (ours, theirs) = (uri(recorded)?, uri(simulated)?);
        let ours: Vec<_> = ours.trim_matches('/').split('/').collect();
        let theirs: Vec<_> = theirs.trim_matches('/').split('/').collect();
        if ours.len() != theirs.len() {
            return None;
        }
        let mut kind = None;
        for (pair, other) in ours.windows(2).zip(&theirs[1..]) {
            if let Some(found) = Kind::of_collection(pair[0]) {
                self.pair(found, pair[1], other);
                kind = Some(found);
            }
        }
        kind.or_else(|| (ours.iter().rev().nth(1) == Some(&"zones")).then_some(Kind::Zone))
    }

    fn learn_leaf(&mut self, kind: Kind, recorded: &Value, simulated: &Value) {
        if let (Some(ours), Some(theirs)) = (scalar(recorded), scalar(simulated)) {
            // A name is more often chosen by users than generated: similarity never moves it to another object.
            if kind == Kind::Name { self.pair_if_new(kind, &ours, &theirs) } else { self.pair(kind, &ours, &theirs) }
        }
    }

    /// Elements of two lists about the same object: known pairs, then equal natural keys, then, if just one element is
    /// left on either side, those two.
    pub fn couples<'a>(&self, recorded: &'a [Value], simulated: &'a [Value]) -> Vec<(&'a Value, &'a Value)> {
        let mut couples = Vec::new();
        let mut ours: Vec<_> = recorded.iter().collect();
        let mut theirs: Vec<_> = simulated.iter().collect();
        for test in [Self::are_partners, Self::are_alike] {
            ours.retain(|mine| match theirs.iter().position(|other| test(self, mine, other)) {
                Some(at) => {
                    couples.push((*mine, theirs.remove(at)));
                    false
                }
                None => true,
            });
        }
        if let ([mine], [other]) = (ours.as_slice(), theirs.as_slice()) {
            couples.push((mine, other));
        }
        couples
    }

    fn are_partners(&self, recorded: &Value, simulated: &Value) -> bool {
        let id = |value: &Value| value.get("system_id").and_then(Value::as_str).map(str::to_owned);
        // Parts of a machine have the machine's system_id too; their names distinguish them.
        let whole = recorded.get("hostname").is_some();
        matches!((id(recorded), id(simulated)), (Some(ours), Some(theirs))
            if whole && self.known(Kind::System, &ours) == Some(&theirs))
    }

    fn are_alike(&self, recorded: &Value, simulated: &Value) -> bool {
        let same = |key: &str, kind: Kind| {
            let (ours, theirs) = (recorded.get(key)?.as_str()?, simulated.get(key)?.as_str()?);
            Some(self.simulated(kind, ours) == theirs)
        };
        // Events repeat the names of machines; their texts distinguish them.
        if recorded.get("node").is_some() && recorded.get("level").is_some() {
            let words = ["type", "description"].iter().all(|key| recorded.get(key) == simulated.get(key));
            return words && same("hostname", Kind::Name) == Some(true);
        }
        same("hostname", Kind::Name)
            .or_else(|| same("fqdn", Kind::Name))
            .or_else(|| same("cidr", Kind::Address))
            .or_else(|| same("mac_address", Kind::Mac).filter(|_| recorded.get("parents").is_none()))
            .or_else(|| same("name", Kind::Name))
            .or_else(|| same("ip", Kind::Address))
            .or_else(|| same("start_ip", Kind::Address))
            .or_else(|| same("username", Kind::Name))
            .or_else(|| same("mode", Kind::Name))
            .unwrap_or(recorded == simulated)
    }

    /// The event id for a cursor: that of the nearest known event that is not newer, with the same distance.
    pub fn event_cursor(&self, recorded: u64) -> u64 {
        let events = self.simulated.iter().filter(|((kind, _), _)| *kind == Kind::Event);
        let pairs = events.filter_map(|((_, ours), theirs)| Some((ours.parse().ok()?, theirs.parse().ok()?)));
        let nearest = pairs.filter(|(ours, _): &(u64, u64)| *ours <= recorded).max();
        nearest.map_or(recorded, |(ours, theirs)| theirs + (recorded - ours))
    }
}

fn scalar(value: &Value) -> Option<String> {
    match value {
        Value::String(text) => Some(text.clone()),
        Value::Number(number) if number.is_u64() => Some(number.to_string()),
        _ => None,
    }
}

/// The kind of identity that a field contains, if any.
fn leaf_kind(key: &str, object: Option<Kind>) -> Option<Kind> {
    Some(match key {
        "system_id" | "primary_rack" | "secondary_rack" => Kind::System,
        "id" => return object,
        "fabric_id" => Kind::Fabric,
        "virtualmachine_id" => Kind::VirtualMachine,
        "link_id" => Kind::Link,
        "hostname" | "fqdn" => Kind::Name,
        "name" if object == Some(Kind::VmHost) => Kind::Name,
        "ip" | "ip_address" => Kind::Address,
        "mac_address" => Kind::Mac,
        _ => return None,
    })
}

#[cfg(test)]
mod tests {
    use super::*;
    use serde_json::json;

    fn machine(id: &str, name: &str, interface: u64) -> Value {
        json!({"system_id": id, "hostname": name, "resource_uri": format!("/MAAS/api/2.0/machines/{id}/"),
            "interface_set": [{"name": "eth0", "id": interface, "links": [{"id": interface + 50, "mode": "auto"}],
                "resource_uri": format!("/MAAS/api/2.0/nodes/{id}/interfaces/{interface}/")}]})
    }

    #[test]
    fn ids_of_a_machine_and_its_parts_are_learnt_from_two_answers() {
        let mut identities = Identities::default();
        identities.learn(&machine("ah4dxd", "bm2", 11), &machine("m00001", "bm2", 3));
        assert_eq!(identities.known(Kind::System, "ah4dxd"), Some("m00001"));
        assert_eq!(identities.known(Kind::Interface, "11"), Some("3"));
        assert_eq!(identities.known(Kind::Link, "61"), Some("53"));
        assert_eq!(identities.recorded(Kind::System, "m00001"), Some("ah4dxd"));
    }

    #[test]
    fn lists_are_paired_by_name_and_not_by_place() {
        let mut identities = Identities::default();
        let ours = json!([machine("aaaaaa", "one", 1), machine("bbbbbb", "two", 2)]);
        let theirs = json!([machine("m2", "two", 12), machine("m1", "one", 11)]);
        identities.learn(&ours, &theirs);
        assert_eq!(identities.known(Kind::System, "aaaaaa"), Some("m1"));
        assert_eq!(identities.known(Kind::Interface, "2"), Some("12"));
    }

    #[test]
    fn a_machine_keeps_its_partner_when_the_simulator_picks_another_one() {
        let mut identities = Identities::default();
        identities.learn(&machine("aaaaaa", "one", 1), &machine("m1", "one", 11));
        identities.learn(&machine("bbbbbb", "two", 2), &machine("m2", "two", 12));
        identities.learn(&machine("aaaaaa", "one", 1), &machine("m2", "two", 12));
        assert_eq!(identities.known(Kind::System, "aaaaaa"), Some("m1"));
    }

    #[test]
    fn a_made_up_name_is_learnt_with_its_machine() {
        let mut identities = Identities::default();
        identities.learn(&machine("r88esy", "joint-grub", 17), &machine("m9", "calm-fox", 9));
        assert_eq!(identities.simulated(Kind::Name, "joint-grub"), "calm-fox");
    }

    #[test]
    fn an_unknown_cursor_keeps_its_distance_from_the_nearest_known_event() {
        let mut identities = Identities::default();
        identities.pair(Kind::Event, "100", "7");
        assert_eq!(identities.event_cursor(103), 10);
        assert_eq!(identities.event_cursor(2), 2);
    }
}
