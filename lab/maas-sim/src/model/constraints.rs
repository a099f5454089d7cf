//! Shared by constraints of `op=allocate` and list filters: names that must exist, and a small constraint language.

use super::{Model, refusal::FormCheck};

/// The possible constraints of an interface, and their negation with the prefix "not_".
pub(super) const INTERFACE_KEYS: &[&str] = &[
    "id",
    "not_id",
    "fabric",
    "not_fabric",
    "fabric_class",
    "not_fabric_class",
    "ip",
    "not_ip",
    "mode",
    "name",
    "not_name",
    "hostname",
    "not_hostname",
    "subnet",
    "not_subnet",
    "space",
    "not_space",
    "subnet_cidr",
    "not_subnet_cidr",
    "type",
    "vlan",
    "not_vlan",
    "vid",
    "not_vid",
    "tag",
    "not_tag",
    "link_speed",
];

/// A label with its keys and values.
type Labelled<'a> = (&'a str, Vec<(&'a str, &'a str)>);

/// Parses "label:key=value,…;…", or returns MAAS's error message.
pub(super) fn parse_labelled(text: &str) -> Result<Vec<Labelled<'_>>, String> {
    let mut all: Vec<Labelled<'_>> = Vec::new();
    for constraint in text.split(';') {
        let Some((label, pairs)) = constraint.split_once(':') else {
            return Err(format!(
                "Malformed constraint: '{constraint}' (required format: '<label>:<key>=<value>[,<key2>=<value2>[,...]]')"
            ));
        };
        let fits = |c: char| c.is_ascii_alphanumeric() || c == '-' || c == '_';
        if !label.starts_with(|c: char| c.is_ascii_alphanumeric()) || !label.chars().all(fits) {
            return Err(format!(
                "Invalid label name: '{label}' (Must begin with an alphanumeric character, and include only \
                 alphanumeric characters, dashes, and underscores.)"
            ));
        }
        if all.iter().any(|(known, _)| *known == label) {
            return Err(format!("Constraint label defined more than once: '{label}'"));
        }
        let mut read = Vec::new();
        for pair in pairs.split(',') {
            let Some(pair) = pair.split_once('=') else {
                return Err(format!("Malformed key/value pair in constraint: '{pair}'"));
            };
            read.push(pair);
        }
        all.push((label, read));
    }
    Ok(all)
}

fn missing(names: &[String], known: impl Fn(&str) -> bool) -> Vec<String> {
    let mut missing: Vec<String> = names.iter().filter(|name| !known(name)).cloned().collect();
    missing.sort();
    missing.dedup();
    missing
}

impl Model {
    /// Zones must exist.
    pub fn check_zones(&self, field: &str, names: &[String], check: &mut FormCheck) {
        let missing = missing(names, |name| self.db.zones.values().any(|zone| zone.name == name));
        if !missing.is_empty() {
            check.add(field, format!("No such zone(s): {}.", missing.join(", ")));
        }
    }

    /// Pools must exist.
    pub fn check_pools(&self, field: &str, names: &[String], check: &mut FormCheck) {
        let missing = missing(names, |name| self.db.pools.values().any(|pool| pool.name == name));
        if !missing.is_empty() {
            check.add(field, format!("No such pool(s): {}.", missing.join(", ")));
        }
    }

    /// Tags must exist; a tag that is only excluded need not, and is not checked here.
    pub fn check_tags(&self, names: &[String], check: &mut FormCheck) {
        let missing = missing(names, |name| self.db.tags.contains_key(name));
        if !missing.is_empty() {
            let quoted: Vec<String> = missing.iter().map(|name| format!("'{name}'")).collect();
            check.add("tags", format!("No such tag(s): {}.", quoted.join(", ")));
        }
    }

    /// Owners must exist.
    pub fn check_owners(&self, names: &[String], check: &mut FormCheck) {
        let missing = missing(names, |name| self.db.users.values().any(|user| user.name == name));
        if let Some(first) = missing.first() {
            check.add("owner", format!("No such owner: '{first}'."));
        }
    }
}
