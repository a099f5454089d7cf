//! Puts the model into the state that statements describe.

use std::net::IpAddr;

use jiff::Timestamp;
use serde_json::{Value, json};

use super::{
    Model,
    db::{Db, Domain, Event, Image, Level, Named, Subnet, Table, Tag, User, UserKey, Vlan},
    statement::{
        DnsState, DomainState, EventState, ImageState, NamedState, RackState, Ref, Statement, TagState, UserState,
    },
};

/// Why a statement is invalid.
pub type Nonsense = String;

impl Model {
    /// Applies one statement to the model. Returns the ids of the affected objects.
    pub fn arrange(&mut self, statement: &Statement) -> Result<Value, Nonsense> {
        match statement {
            Statement::User(state) => self.arrange_user(state),
            Statement::Zone(state) => {
                let id = arrange_named(&mut self.db, Table::Zone, state)?;
                Ok(json!({"zone": id}))
            }
            Statement::Pool(state) => {
                let id = arrange_named(&mut self.db, Table::Pool, state)?;
                Ok(json!({"pool": id}))
            }
            Statement::Space(state) => {
                let id = arrange_named(&mut self.db, Table::Space, state)?;
                Ok(json!({"space": id}))
            }
            Statement::Domain(state) => Ok(self.arrange_domain(state)),
            Statement::Fabric(state) => Ok(self.arrange_fabric(state)),
            Statement::Vlan(state) => self.arrange_vlan(state),
            Statement::Subnet(state) => self.arrange_subnet(state),
            Statement::IpRange(state) => self.arrange_range(state),
            Statement::IpAddress(state) => self.arrange_address(state),
            Statement::Tag(state) => self.arrange_tag(state),
            Statement::Dns(state) => self.arrange_dns(state),
            Statement::Image(state) => self.arrange_image(state),
            Statement::Rack(state) => self.arrange_rack(state),
            Statement::Config(settings) => {
                for (name, value) in settings {
                    self.db.settings.insert(name.clone(), value.clone());
                }
                Ok(json!({}))
            }
            Statement::Machine(state) => self.arrange_machine(state),
            Statement::Interface(state) => self.arrange_interface(state),
            Statement::VmHost(state) => self.arrange_vm_host(state),
            Statement::Lxd(state) => self.arrange_lxd(state),
            Statement::Event(state) => self.arrange_event(state),
            Statement::Sequence(numbers) => {
                for (word, next) in numbers {
                    let table = Table::parse(word).ok_or_else(|| format!("there is no sequence '{word}'"))?;
                    self.db.sequences.set(table, *next);
                }
                Ok(json!({}))
            }
            Statement::Absent(things) => {
                for (kind, what) in things {
                    self.arrange_absent(kind, what)?;
                }
                Ok(json!({}))
            }
            Statement::Clock(state) => {
                self.now = parse_time(&state.now)?;
                Ok(json!({"now": self.now.to_string()}))
            }
            Statement::Advance(state) => {
                let until = self.after(state.seconds);
                self.run_until(until);
                Ok(json!({"now": self.now.to_string()}))
            }
            Statement::Settle(state) => {
                match &state.machine {
                    Some(machine) => {
                        let id = self.machine_named(machine)?;
                        self.settle_machine(&id);
                    }
                    None => self.settle(),
                }
                Ok(json!({"now": self.now.to_string()}))
            }
            Statement::Backup(_) | Statement::Restore(_) | Statement::Reset(_) => {
                Err("this statement is about the simulator, not about the model".to_owned())
            }
        }
    }

    /// Completes all work in progress, as if enough time had passed. This triggers no timeouts.
    pub fn settle(&mut self) {
        for _ in 0..1_000_000u32 {
            let Some(at) = self.queue.next_work_at() else { break };
            self.run_until(at);
        }
        for poll in self.queue.take_polls() {
            self.happen(poll);
        }
    }

    /// Completes all work in progress for one machine; time passes for the others as well.
    pub fn settle_machine(&mut self, system_id: &str) {
        for _ in 0..1000u32 {
            let Some(at) = self.queue.last_for(system_id) else { break };
            self.run_until(at);
        }
    }

    /// The system id for a host name or a system id.
    pub fn machine_named(&self, text: &str) -> Result<String, Nonsense> {
        if self.db.machines.contains_key(text) {
            return Ok(text.to_owned());
        }
        self.db.by_hostname.get(text).cloned().ok_or_else(|| format!("there is no machine '{text}'"))
    }

    pub(super) fn user_named(&self, name: &str) -> Result<i64, Nonsense> {
        self.user_by_name(name).map(|user| user.id).ok_or_else(|| format!("there is no user '{name}'"))
    }

    fn arrange_user(&mut self, state: &UserState) -> Result<Value, Nonsense> {
        let existing = self.user_by_name(&state.name).map(|user| user.id);
        let id = existing.unwrap_or_else(|| new_id(&mut self.db, Table::User, state.id));
        if let (Some(existing), Some(wanted)) = (existing, state.id.filter(|wanted| Some(*wanted) != existing)) {
            return Err(format!("user '{}' has id {existing}, it cannot become {wanted}", state.name));
        }
        let user = self.db.users.entry(id).or_insert_with(|| User {
            id,
            name: state.name.clone(),
            email: format!("{}@example.com", state.name),
            admin: false,
            local: true,
            keys: Vec::new(),
        });
        user.admin = state.admin.unwrap_or(user.admin);
        user.local = state.local.unwrap_or(user.local);
        if let Some(email) = &state.email {
            user.email.clone_from(email);
        }
        let named = |key: &crate::config::ApiKey| UserKey { name: "MAAS consumer".to_owned(), key: key.clone() };
        if let Some(keys) = &state.keys {
            user.keys = keys.iter().map(named).collect();
        }
        if let Some(key) = &state.key {
            user.keys.retain(|known| known.key.token != key.token);
            user.keys.push(named(key));
        }
        Ok(json!({"user": id}))
    }

    fn arrange_domain(&mut self, state: &DomainState) -> Value {
        let existing = self
            .db
            .domains
            .values()
            .find(|domain| Some(&domain.name) == state.name.as_ref() || Some(domain.id) == state.id)
            .map(|domain| domain.id);
        let id = existing.unwrap_or_else(|| new_id(&mut self.db, Table::Domain, state.id));
        let domain = self.db.domains.entry(id).or_insert_with(|| Domain {
            id,
            name: String::new(),
            authoritative: true,
            ttl: None,
        });
        if let Some(name) = &state.name {
            domain.name.clone_from(name);
        }
        domain.authoritative = state.authoritative.unwrap_or(domain.authoritative);
        domain.ttl = state.ttl.unwrap_or(domain.ttl);
        json!({"domain": id})
    }

    fn arrange_tag(&mut self, state: &TagState) -> Result<Value, Nonsense> {
        self.ensure_tag(&state.name);
        if let Some(tag) = self.db.tags.get_mut(&state.name) {
            let Tag { comment, definition, kernel_opts, .. } = tag;
            for (into, value) in
                [(comment, &state.comment), (definition, &state.definition), (kernel_opts, &state.kernel_opts)]
            {
                if let Some(value) = value {
                    into.clone_from(value);
                }
            }
        }
        if let Some(machines) = &state.machines {
            let ids: Result<Vec<String>, Nonsense> = machines.iter().map(|name| self.machine_named(name)).collect();
            let ids = ids?;
            for machine in self.db.machines.values_mut() {
                machine.tags.retain(|tag| *tag != state.name);
                if ids.contains(&machine.system_id) {
                    machine.tags.push(state.name.clone());
                }
            }
        }
        Ok(json!({"tag": state.name}))
    }

    fn arrange_dns(&mut self, state: &DnsState) -> Result<Value, Nonsense> {
        let (name, domain) =
            self.split_fqdn(&state.fqdn).map_err(|_| format!("no domain of '{}' exists", state.fqdn))?;
        let existing = self.dns_by_name(&name, domain).map(|dns| dns.id);
        let id = existing.unwrap_or_else(|| new_id(&mut self.db, Table::Dns, state.id));
        let user = match &state.user {
            Some(name) => self.user_named(name)?,
            None => self.db.users.values().find(|user| user.admin).map_or(0, |user| user.id),
        };
        let rows = match &state.ip_addresses {
            Some(texts) => {
                let ips: Result<Vec<IpAddr>, Nonsense> = texts.iter().map(|text| parse_ip(text)).collect();
                Some(self.address_rows(user, &ips?))
            }
            None => None,
        };
        let mut records = Vec::new();
        for record in state.records.iter().flatten() {
            records.push(super::db::Record {
                id: new_id(&mut self.db, Table::Record, record.id),
                rrtype: record.rrtype.to_uppercase(),
                rrdata: record.rrdata.clone(),
                ttl: record.ttl,
            });
        }
        let dns = self.db.dns.entry(id).or_insert_with(|| super::db::DnsResource {
            id,
            name,
            domain,
            address_ttl: None,
            addresses: std::collections::BTreeSet::new(),
            records: Vec::new(),
        });
        dns.address_ttl = state.ttl.unwrap_or(dns.address_ttl);
        if let Some(rows) = rows {
            dns.addresses = rows;
        }
        if state.records.is_some() {
            dns.records = records;
        }
        Ok(json!({"dns": id}))
    }

    fn arrange_image(&mut self, state: &ImageState) -> Result<Value, Nonsense> {
        let (osystem, series) = state.name.split_once('/').unwrap_or(("custom", &state.name));
        let existing =
            self.db.images.values().find(|image| image.osystem == osystem && image.series == series).map(|i| i.id);
        let id = existing.unwrap_or_else(|| new_id(&mut self.db, Table::Image, state.id));
        let last = match &state.last_deployed {
            Some(text) => Some(parse_time(text)?),
            None => None,
        };
        let image = self.db.images.entry(id).or_insert_with(|| {
            let mut image = Image::synced(id, series, series, "20261101");
            if osystem != "ubuntu" {
                image.uploaded = true;
                osystem.clone_into(&mut image.osystem);
                "amd64/generic".clone_into(&mut image.architecture);
                "root-tgz".clone_into(&mut image.filetype);
            }
            image
        });
        for (into, value) in [(&mut image.architecture, &state.architecture), (&mut image.title, &state.title)] {
            if let Some(value) = value {
                into.clone_from(value);
            }
        }
        image.complete = state.complete.unwrap_or(image.complete);
        image.on_racks = state.on_racks.unwrap_or(image.on_racks);
        image.size = state.size.unwrap_or(image.size);
        image.last_deployed = last.or(image.last_deployed);
        Ok(json!({"image": id}))
    }

    fn arrange_rack(&mut self, state: &RackState) -> Result<Value, Nonsense> {
        let Some(rack) = self.db.racks.first_mut() else { return Err("there is no rack".to_owned()) };
        if let Some(id) = &state.system_id {
            rack.system_id.clone_from(id);
        }
        if let Some(name) = &state.hostname {
            rack.hostname.clone_from(name);
        }
        rack.connected = state.connected.unwrap_or(rack.connected);
        Ok(json!({"rack": rack.system_id}))
    }

    fn arrange_event(&mut self, state: &EventState) -> Result<Value, Nonsense> {
        let node = match &state.machine {
            Some(name) if *name == self.rack_id() => name.clone(),
            Some(name) => self.machine_named(name)?,
            None => self.rack_id().to_owned(),
        };
        let word = state.level.as_deref().unwrap_or("INFO");
        let level = Level::parse(word).ok_or_else(|| format!("there is no level '{word}'"))?;
        if let Some(id) = state.id {
            self.db.sequences.set(Table::Event, id);
        }
        let created = match &state.created {
            Some(text) => Some(parse_time(text)?),
            None => None,
        };
        let username = state.username.clone().unwrap_or_else(|| "unknown".to_owned());
        let description = state.description.clone().unwrap_or_default();
        self.log(&node, level, state.kind.clone().into(), description, &username);
        let mut id = 0;
        if let Some(Event { created: at, id: row, .. }) = self.db.events.last_mut() {
            *at = created.unwrap_or(*at);
            id = *row;
        }
        self.db.events.sort_by_key(|event| event.id);
        let next = self.db.events.last().map_or(1, |event| event.id + 1);
        self.db.sequences.set(Table::Event, next);
        Ok(json!({"event": id}))
    }

    fn arrange_absent(&mut self, kind: &str, what: &Ref) -> Result<(), Nonsense> {
        let text = what.text();
        let id = text.parse::<i64>().ok();
        match kind {
            "machine" => {
                if let Ok(machine) = self.machine_named(&text) {
                    self.remove_machine(&machine, false);
                }
            }
            "user" => self.db.users.retain(|_, user| user.name != text),
            "zone" => self.db.zones.retain(|_, zone| zone.name != text && Some(zone.id) != id),
            "pool" => self.db.pools.retain(|_, pool| pool.name != text && Some(pool.id) != id),
            "domain" => self.db.domains.retain(|_, domain| domain.name != text && Some(domain.id) != id),
            "subnet" => {
                if let Some(subnet) = self.find_subnet(&text).map(|subnet| subnet.id) {
                    self.db.subnets.remove(&subnet);
                    self.db.ranges.retain(|_, range| range.subnet != subnet);
                }
            }
            "vlan" => self.db.vlans.retain(|_, vlan| Some(vlan.id) != id),
            "fabric" => self.db.fabrics.retain(|_, fabric| fabric.name != text && Some(fabric.id) != id),
            "tag" => {
                self.db.tags.remove(&text);
                for machine in self.db.machines.values_mut() {
                    machine.tags.retain(|tag| *tag != text);
                }
            }
            "dns" => {
                let gone: Vec<i64> = self
                    .db
                    .dns
                    .values()
                    .filter(|dns| self.dns_fqdn(dns) == text || Some(dns.id) == id)
                    .map(|d| d.id)
                    .collect();
                self.db.dns.retain(|key, _| !gone.contains(key));
            }
            "image" => self
                .db
                .images
                .retain(|_, image| format!("{}/{}", image.osystem, image.series) != text && Some(image.id) != id),
            "ip_range" => self.db.ranges.retain(|_, range| range.start.to_string() != text && Some(range.id) != id),
            "vm_host" => {
                let hosts: Vec<i64> = self
                    .db
                    .vm_hosts
                    .values()
                    .filter(|host| host.name == text || Some(host.id) == id)
                    .map(|h| h.id)
                    .collect();
                for host in hosts {
                    self.remove_vm_host(host, false);
                }
            }
            "lxd" => {
                self.world.lxds.remove(&super::world::lxd_key(&text));
            }
            other => return Err(format!("'absent' does not know the kind '{other}'")),
        }
        Ok(())
    }
}

/// An id: the fixed one, or the next.
pub(super) fn new_id(db: &mut Db, table: Table, fixed: Option<i64>) -> i64 {
    match fixed {
        Some(id) => {
            db.sequences.used(table, id);
            id
        }
        None => db.sequences.take(table),
    }
}

fn arrange_named(db: &mut Db, table: Table, state: &NamedState) -> Result<i64, Nonsense> {
    let rows = match table {
        Table::Zone => &db.zones,
        Table::Pool => &db.pools,
        _ => &db.spaces,
    };
    let existing = rows
        .values()
        .find(|row| match (&state.name, state.id) {
            (Some(name), _) if row.name == *name => true,
            (None, Some(id)) => row.id == id,
            _ => false,
        })
        .map(|row| row.id);
    let id = existing.unwrap_or_else(|| new_id(db, table, state.id));
    let rows = match table {
        Table::Zone => &mut db.zones,
        Table::Pool => &mut db.pools,
        _ => &mut db.spaces,
    };
    let name = state.name.clone();
    if existing.is_none() && name.is_none() {
        return Err("a new one needs a name".to_owned());
    }
    let row = rows.entry(id).or_insert_with(|| Named { id, name: String::new(), description: String::new() });
    row.name = name.unwrap_or_else(|| row.name.clone());
    if let Some(text) = &state.description {
        row.description.clone_from(text);
    }
    Ok(id)
}

/// A VLAN as created with a fabric.
pub fn new_vlan(id: i64, fabric: i64, vid: i64, name: &str) -> Vlan {
    Vlan { id, fabric, vid, name: name.to_owned(), mtu: 1500, dhcp_on: false, space: None }
}

/// A subnet with MAAS's defaults.
pub fn new_subnet(id: i64, cidr: super::net::Cidr, vlan: i64) -> Subnet {
    Subnet {
        id,
        name: cidr.to_string(),
        cidr,
        vlan,
        gateway_ip: None,
        dns_servers: Vec::new(),
        managed: true,
        allow_dns: true,
        allow_proxy: true,
        active_discovery: false,
        rdns_mode: 2,
        description: String::new(),
    }
}

/// Parses an address, or returns why it is invalid.
pub(super) fn parse_ip(text: &str) -> Result<IpAddr, Nonsense> {
    text.parse().map_err(|_| format!("'{text}' is not an address"))
}

fn parse_time(text: &str) -> Result<Timestamp, Nonsense> {
    text.parse().map_err(|error| format!("'{text}' is not a time: {error}"))
}
