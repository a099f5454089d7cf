//! The model: MAAS's database, the world outside, a clock that is passed in, and the rules. It does no input or output.

pub mod allocate;
pub mod arrange;
mod arrange_links;
mod arrange_machine;
mod arrange_network;
mod arrange_vm_hosts;
pub mod boot;
pub mod bridges;
pub mod compose;
mod constraints;
pub mod db;
pub mod deploy;
mod discovery;
pub mod dns;
pub mod due;
pub mod events;
pub mod interfaces;
pub mod inventory;
mod kinds;
pub mod links;
pub mod machines;
pub mod net;
pub mod network;
pub mod power;
pub mod records;
pub mod refusal;
pub mod release;
pub mod reports;
pub mod rng;
mod sequences;
pub mod specifiers;
pub mod statement;
mod status;
pub mod users;
pub mod vm_hosts;
pub mod wanted;
pub mod world;

use jiff::{SignedDuration, Timestamp};

use self::{
    db::{Db, Domain, Fabric, Image, Machine, Named, Rack, Table, Tag, User, UserKey, Vlan},
    due::Queue,
    rng::Rng,
    world::{LxdCommand, World},
};
pub use self::{refusal::Refusal, status::Status};
use crate::ledger::Effect;
use crate::{
    config::{Config, Durations, seconds},
    hardware::Order,
    version::{Change, Version},
};

/// The result of the model's operations.
pub type Outcome<T> = Result<T, Refusal>;

#[derive(Debug)]
pub struct Model {
    pub now: Timestamp,
    /// The simulated MAAS version.
    pub version: Version,
    /// How long things take.
    pub durations: Durations,
    /// The source of generated ids and names.
    pub rng: Rng,
    pub seed: u64,
    /// MAAS's database.
    pub db: Db,
    /// The world outside MAAS.
    pub world: World,
    /// Scheduled work.
    pub queue: Queue,
    /// Commands for real LXD daemons.
    pub outbox: Vec<LxdCommand>,
    /// Machines boot: a deployment ends when its machine fetches the user data.
    pub boots: bool,
    /// Orders for the hardware of machines.
    pub orders: Vec<Order>,
    /// What the current request has changed, for the ledger.
    pub effects: Vec<Effect>,
    /// Simulate LXD daemons at unknown addresses.
    pub invent_lxd: bool,
}

/// The ids of the default zone, pool and domain.
pub const DEFAULT_ZONE: i64 = 1;
pub const DEFAULT_POOL: i64 = 0;
pub const DEFAULT_DOMAIN: i64 = 0;

impl Model {
    /// A freshly installed MAAS with one administrator, one rack, one fabric and the images of a usual installation.
    pub fn new(config: &Config) -> Self {
        let now = config.start.unwrap_or_else(Timestamp::now);
        let mut model = Self {
            now,
            version: config.version,
            durations: config.durations.clone(),
            rng: Rng::new(config.seed),
            seed: config.seed,
            db: Db::default(),
            world: World::default(),
            queue: Queue::default(),
            outbox: Vec::new(),
            boots: config.boots,
            orders: Vec::new(),
            effects: Vec::new(),
            invent_lxd: config.invent_lxd,
        };
        model.install(config);
        model
    }

    fn install(&mut self, config: &Config) {
        let db = &mut self.db;
        for (name, email, admin) in [
            ("MAAS", "maas@localhost", false),
            ("maas-init-node", "node-init-user@localhost", false),
            ("admin", "admin@example.com", true),
        ] {
            let id = db.sequences.take(Table::User);
            let keys = if admin {
                vec![UserKey { name: "MAAS consumer".to_owned(), key: config.api_key.clone() }]
            } else {
                Vec::new()
            };
            let user = User { id, name: name.to_owned(), email: email.to_owned(), admin, local: true, keys };
            db.users.insert(id, user);
        }
        let zone = Named { id: DEFAULT_ZONE, name: "default".to_owned(), description: String::new() };
        db.zones.insert(DEFAULT_ZONE, zone);
        db.sequences.used(Table::Zone, DEFAULT_ZONE);
        let pool = Named { id: DEFAULT_POOL, name: "default".to_owned(), description: "Default pool".to_owned() };
        db.pools.insert(DEFAULT_POOL, pool);
        db.default_domain = DEFAULT_DOMAIN;
        db.domains.insert(
            DEFAULT_DOMAIN,
            Domain { id: DEFAULT_DOMAIN, name: "maas".to_owned(), authoritative: true, ttl: None },
        );
        db.fabrics.insert(0, Fabric { id: 0, name: "fabric-0".to_owned(), class_type: None });
        let vlan = if config.version.has(Change::VlansFrom5001) { 5001 } else { 1 };
        db.vlans.insert(
            vlan,
            Vlan { id: vlan, fabric: 0, vid: 0, name: "untagged".to_owned(), mtu: 1500, dhcp_on: false, space: None },
        );
        db.sequences.used(Table::Vlan, vlan);
        for (name, kernel_opts) in [("virtual", ""), ("pod-console-logging", "console=tty1 console=ttyS0")] {
            let id = db.sequences.take(Table::Tag);
            db.tags.insert(
                name.to_owned(),
                Tag {
                    id,
                    name: name.to_owned(),
                    definition: String::new(),
                    comment: String::new(),
                    kernel_opts: kernel_opts.to_owned(),
                },
            );
        }
        let rack_id = self.rng.system_id();
        db.racks.push(Rack { system_id: rack_id, hostname: "rack-1".to_owned(), connected: true });
        let second = if config.version.has(Change::NobleByDefault) {
            ("noble", "24.04 LTS", "20261101")
        } else {
            ("focal", "20.04 LTS", "20261101")
        };
        for (series, title, version) in [("jammy", "22.04 LTS", "20261101"), second] {
            let id = db.sequences.take(Table::Image);
            db.images.insert(id, Image::synced(id, series, title, version));
        }
        db.records = records::installed(&self.now.to_string()).into_iter().collect();
        db.settings = boot::default_settings(config.version);
    }

    /// Advances the clock to `until` and runs all due tasks in order.
    pub fn run_until(&mut self, until: Timestamp) {
        // A task may schedule others; the bound only guards against one that reschedules itself for the same time
        // forever.
        for _ in 0..10_000_000u32 {
            let Some((at, due)) = self.queue.pop_due(until) else { break };
            self.now = self.now.max(at);
            self.happen(due);
        }
        self.now = self.now.max(until);
    }

    /// Schedules a task `after` seconds from now.
    pub fn later(&mut self, after: f64, due: due::Due) {
        let at = self.after(after);
        self.queue.push(at, due);
    }

    /// The time `after` seconds from now.
    pub fn after(&self, after: f64) -> Timestamp {
        let duration: SignedDuration = seconds(after);
        self.now.checked_add(duration).unwrap_or(self.now)
    }

    /// Records a change, for the ledger.
    pub fn effect(&mut self, what: Effect) {
        self.effects.push(what);
    }

    /// A machine by system id.
    pub fn machine(&self, system_id: &str) -> Outcome<&Machine> {
        self.db.machines.get(system_id).ok_or(Refusal::NotFound("Machine"))
    }

    /// A machine by system id, to change it.
    pub fn machine_mut(&mut self, system_id: &str) -> Outcome<&mut Machine> {
        self.db.machines.get_mut(system_id).ok_or(Refusal::NotFound("Machine"))
    }

    /// A machine or a device by system id.
    pub fn node(&self, system_id: &str) -> Outcome<&Machine> {
        let device = || self.db.devices.get(system_id).map(|device| &device.node);
        self.db.machines.get(system_id).or_else(device).ok_or(Refusal::NotFound("Node"))
    }

    /// A machine or a device by system id, to change it.
    pub fn node_mut(&mut self, system_id: &str) -> Outcome<&mut Machine> {
        let device = self.db.devices.get_mut(system_id).map(|device| &mut device.node);
        self.db.machines.get_mut(system_id).or(device).ok_or(Refusal::NotFound("Node"))
    }

    /// All machines in order of creation, which is the order of every list.
    pub fn machines_in_order(&self) -> Vec<&Machine> {
        let mut machines: Vec<&Machine> = self.db.machines.values().collect();
        machines.sort_by_key(|machine| machine.id);
        machines
    }

    /// Name of a user, or "" for nobody.
    pub fn user_name(&self, id: Option<i64>) -> &str {
        id.and_then(|id| self.db.users.get(&id)).map_or("", |user| user.name.as_str())
    }

    /// A system id that is not in use.
    pub fn new_system_id(&mut self) -> String {
        loop {
            let id = self.rng.system_id();
            let free = !self.db.machines.contains_key(&id)
                && !self.db.devices.contains_key(&id)
                && self.db.racks.iter().all(|rack| rack.system_id != id);
            if free {
                return id;
            }
        }
    }

    /// A host name that is not in use.
    pub fn new_hostname(&mut self) -> String {
        for attempt in 0u32.. {
            let name = self.rng.pet_name();
            let name = if attempt < 50 { name } else { format!("{name}-{attempt}") };
            if !self.db.by_hostname.contains_key(&name) {
                return name;
            }
        }
        String::from("unnamed")
    }

    /// Whether any rack controller is connected.
    pub fn rack_connected(&self) -> bool {
        self.db.racks.iter().any(|rack| rack.connected)
    }

    /// The rack, for messages.
    pub fn rack_id(&self) -> &str {
        self.db.racks.first().map_or("", |rack| rack.system_id.as_str())
    }

    /// The error of a request that needs a rack while there is none.
    pub fn no_rack(&self) -> Refusal {
        Refusal::text(
            503,
            format!("Unable to connect to any rack controller {}; no connections available.", self.rack_id()),
        )
        .retry_after(10)
    }
}
