//! Specifiers of subnets, VLANs and interfaces: "cidr:10.0.0.0/24", "vid:7", "eth0:space=lab,mode=auto".

use super::{
    Model,
    constraints::{INTERFACE_KEYS, parse_labelled},
    db::{Address, AllocType, Interface, Machine, Subnet, Vlan},
};

/// The constraints of one interface: keys and values.
#[derive(Clone, Debug, Default)]
pub struct WantedInterface(Vec<(String, String)>);

impl WantedInterface {
    /// The value of a key.
    pub fn value(&self, key: &str) -> Option<&str> {
        self.0.iter().find(|(known, _)| known == key).map(|(_, value)| value.as_str())
    }
}

impl Model {
    /// The subnets that a specifier matches: an id, a network, a name, or a type with a value.
    pub fn subnets_for<'a>(&'a self, text: &str) -> Vec<&'a Subnet> {
        if let Ok(id) = text.parse::<i64>() {
            return self.db.subnets.get(&id).into_iter().collect();
        }
        let (kind, value) = match text.split_once(':') {
            Some((kind @ ("cidr" | "name" | "ip" | "id" | "vlan" | "vid" | "fabric" | "space"), value)) => {
                (kind, value)
            }
            _ => ("", text),
        };
        let rows =
            |fits: &dyn Fn(&Subnet) -> bool| self.db.subnets.values().filter(|row| fits(row)).collect::<Vec<_>>();
        let cidr = value.parse().ok();
        let vlan = |subnet: &Subnet| self.db.vlans.get(&subnet.vlan);
        match kind {
            "id" => rows(&|subnet| subnet.id.to_string() == value),
            "cidr" => rows(&|subnet| Some(subnet.cidr) == cidr),
            "name" => rows(&|subnet| subnet.name == value),
            "ip" => value.parse().ok().and_then(|ip| self.subnet_of(ip)).into_iter().collect(),
            "vid" => rows(&|subnet| vlan(subnet).is_some_and(|vlan| vlan.vid.to_string() == value)),
            "vlan" => {
                let vlans: Vec<i64> = self.vlans_for(value).iter().map(|vlan| vlan.id).collect();
                rows(&|subnet| vlans.contains(&subnet.vlan))
            }
            "space" => rows(&|subnet| self.space_name(vlan(subnet)) == value),
            "fabric" => rows(&|subnet| self.is_fabric(vlan(subnet), value)),
            _ => rows(&|subnet| cidr.map_or(subnet.name == value, |cidr| subnet.cidr == cidr)),
        }
    }

    /// The VLANs that a specifier matches: an id or VID, a name, or a type with a value.
    pub fn vlans_for<'a>(&'a self, text: &str) -> Vec<&'a Vlan> {
        let (kind, value) = text.split_once(':').unwrap_or(("", text));
        let fits = |vlan: &&Vlan| match kind {
            "id" => vlan.id.to_string() == value,
            "vid" => vlan.vid.to_string() == value,
            "name" => vlan.name == value,
            "space" => self.space_name(Some(vlan)) == value,
            "fabric" => self.is_fabric(Some(vlan), value),
            "subnet" => self.subnets_for(value).iter().any(|subnet| subnet.vlan == vlan.id),
            _ => vlan.vid.to_string() == text || vlan.name == text,
        };
        self.db.vlans.values().filter(fits).collect()
    }

    fn is_fabric(&self, vlan: Option<&Vlan>, text: &str) -> bool {
        vlan.is_some_and(|vlan| vlan.fabric.to_string() == text) || self.fabric_name(vlan) == text
    }

    /// Parses "label:key=value,…;…" into constraints per label, or returns MAAS's error message.
    pub fn parse_interfaces(text: &str) -> Result<Vec<(String, WantedInterface)>, String> {
        let labelled = parse_labelled(text)?;
        let unknown = labelled.iter().flat_map(|(_, pairs)| pairs).find(|(key, _)| !INTERFACE_KEYS.contains(key));
        if let Some((key, _)) = unknown {
            // The missing closing quote is MAAS's.
            return Err(format!("Unknown interfaces constraint: '{key}"));
        }
        let owned = |(label, pairs): (&str, Vec<(&str, &str)>)| {
            let pairs = pairs.into_iter().map(|(key, value)| (key.to_owned(), value.to_owned())).collect();
            (label.to_owned(), WantedInterface(pairs))
        };
        Ok(labelled.into_iter().map(owned).collect())
    }

    /// Whether an interface matches: one of the values of every key, and none of those with the prefix "not_".
    pub fn interface_fits(&self, machine: &Machine, nic: &Interface, wanted: &WantedInterface) -> bool {
        let pairs = &wanted.0;
        pairs.iter().all(|(key, value)| {
            if let Some(key) = key.strip_prefix("not_") {
                return !self.interface_is(machine, nic, key, value);
            }
            let mut values = pairs.iter().filter(|(other, _)| other == key).map(|(_, value)| value);
            values.any(|value| self.interface_is(machine, nic, key, value))
        })
    }

    /// Whether a subnet matches the constraints of an interface; constraints of the interface itself are ignored.
    pub fn subnet_fits(&self, subnet: &Subnet, wanted: &WantedInterface) -> bool {
        let is = |key: &str, value: &str| {
            let word = match key {
                "subnet" => value.to_owned(),
                "subnet_cidr" => format!("cidr:{value}"),
                "space" | "fabric" | "vid" | "vlan" => format!("{key}:{value}"),
                _ => return None,
            };
            Some(self.subnets_for(&word).iter().any(|row| row.id == subnet.id))
        };
        wanted.0.iter().all(|(key, value)| match key.strip_prefix("not_") {
            Some(key) => !is(key, value).unwrap_or(false),
            None => is(key, value).unwrap_or(true),
        })
    }

    fn interface_is(&self, machine: &Machine, nic: &Interface, key: &str, value: &str) -> bool {
        let links = || nic.addresses.iter().filter_map(|id| self.db.addresses.get(id)).filter(|row| is_link(row));
        let vlan = nic.vlan.and_then(|id| self.db.vlans.get(&id));
        let on = |subnets: Vec<&Subnet>| links().any(|row| subnets.iter().any(|subnet| row.subnet == Some(subnet.id)));
        match key {
            "id" => nic.id.to_string() == value,
            "name" => nic.name == value,
            "hostname" => machine.hostname == value,
            "type" => nic.kind.word() == value,
            "tag" => nic.tags.iter().any(|tag| tag == value),
            "ip" => value.parse().is_ok_and(|ip| links().any(|row| row.ip == Some(ip))),
            "mode" => links().any(|row| link_mode(row) == value),
            "subnet" => on(self.subnets_for(value)),
            "subnet_cidr" => on(self.subnets_for(&format!("cidr:{value}"))),
            "space" => on(self.subnets_for(&format!("space:{value}"))),
            "fabric" => self.is_fabric(vlan, value),
            "fabric_class" => {
                let fabric = vlan.and_then(|vlan| self.db.fabrics.get(&vlan.fabric));
                fabric.and_then(|fabric| fabric.class_type.as_deref()) == Some(value)
            }
            "vid" => vlan.is_some_and(|vlan| vlan.vid.to_string() == value),
            "vlan" => vlan.is_some_and(|vlan| self.vlans_for(value).iter().any(|row| row.id == vlan.id)),
            "link_speed" => value.parse::<i64>().is_ok_and(|least| nic.speed >= least),
            _ => false,
        }
    }
}

fn is_link(row: &Address) -> bool {
    row.alloc != AllocType::Discovered
}

/// How a link gets its address, by the name in the JSON.
pub fn link_mode(row: &Address) -> &'static str {
    match (row.alloc, row.ip) {
        (AllocType::Auto, _) => "auto",
        (AllocType::Dhcp, _) => "dhcp",
        (_, None) => "link_up",
        _ => "static",
    }
}
