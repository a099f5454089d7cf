//! The registration of one node as VM host in MAAS. It is decided here for everyone who performs it: the manager, the agent on the
//! node, and the programs that check a node.
//!
//! Whoever performs a registration first stores when, as its intent, and then sends it within a deadline. An answer that is lost
//! leaves the intent behind, so that nobody sends a second one while the first may still take effect (S2).

use jiff::{SignedDuration, Timestamp};

use crate::Lookup;
use crate::plan::IN_FLIGHT;

/// MAAS fills in a new host's resources some seconds after it was registered or refreshed.
const DIGESTING: SignedDuration = SignedDuration::from_secs(30);

/// Everything that is known about one node and its VM host.
#[derive(Debug, Clone, PartialEq, Eq)]
pub struct Facts {
    /// The machine in MAAS that the node is.
    pub machine: Lookup<Machine>,
    /// The name of the node, which a new VM host gets.
    pub node: String,
    pub lxd: Lookup<Lxd>,
    /// Fingerprint of the certificate that LXD trusts, and that MAAS is to use.
    pub certificate: Lookup<String>,
    pub vm_host: Lookup<VmHost>,
    pub wanted: Wanted,
    /// When a registration was last sent, with whatever certificate, if its answer is not known.
    pub intent: Lookup<Timestamp>,
    /// When MAAS was last made to refresh the VM host. May be lost at any time.
    pub refreshed: Option<Timestamp>,
}

/// A machine of MAAS.
#[derive(Debug, Clone, Default, PartialEq, Eq)]
pub struct Machine {
    pub system_id: String,
    pub place: Place,
}

/// The zone and resource pool of a machine or a VM host.
#[derive(Debug, Clone, Default, PartialEq, Eq)]
pub struct Place {
    pub zone: String,
    pub pool: String,
}

/// The LXD of the node.
#[derive(Debug, Clone, PartialEq, Eq)]
pub struct Lxd {
    /// Where it listens, as `https://address:port`.
    pub address: String,
    /// The project that MAAS is to work in.
    pub project: String,
    /// The names of the instances in it.
    pub instances: Lookup<Vec<String>>,
}

/// The VM host of the node.
#[derive(Debug, Clone, PartialEq, Eq)]
pub struct VmHost {
    pub id: i64,
    pub name: String,
    /// The machine that MAAS matched it to.
    pub machine: Option<String>,
    /// Where MAAS connects to it, as `https://address:port`.
    pub address: String,
    /// The project that MAAS works in.
    pub project: String,
    /// Fingerprint of the certificate that MAAS uses.
    pub certificate: Option<String>,
    pub maker: Maker,
    /// MAAS has actually reached it.
    pub reached: bool,
    /// MAAS knows its resources.
    pub measured: bool,
    pub place: Place,
    /// Instances of the project that MAAS does not know (S12).
    pub strangers: Lookup<Vec<String>>,
}

impl VmHost {
    /// Whether MAAS can use it.
    pub fn works(&self) -> bool {
        self.reached && self.measured
    }
}

/// Who registered a VM host, as the certificate that MAAS uses shows.
#[derive(Debug, Clone, PartialEq, Eq)]
pub enum Maker {
    /// Whoever asks, in this or an earlier process.
    Ours,
    /// Somebody else.
    Foreign {
        /// Whether LXD trusts that certificate.
        trusted: Lookup<()>,
    },
}

/// What is asked of the VM host.
#[derive(Debug, Clone, Default, PartialEq, Eq)]
pub struct Wanted {
    /// `None`: the machine's own.
    pub zone: Option<String>,
    /// `None`: the machine's own.
    pub pool: Option<String>,
    /// A VM host that is elsewhere is moved there. Otherwise only a new one is put there.
    pub keep_place: bool,
}

/// One call to MAAS. Each states how its result is seen if its answer is lost.
#[derive(Debug, Clone, PartialEq, Eq)]
pub enum Call {
    /// Registers the node, while its project is empty (S12). Its intent is stored first.
    ///
    /// The VM host is found by its machine, or by its name and our certificate. While the intent is young, one that is not found
    /// may still appear (S2). MAAS refuses a second one with the same certificate, address and project, which proves that this one
    /// has no effect.
    Register(Box<New>),
    /// Gives a VM host another key and address. It then shows them.
    Renew {
        id: i64,
        /// As `https://address:port`.
        address: String,
    },
    /// Moves a VM host to another zone and pool. It then shows them.
    Move { id: i64, place: Place },
    /// Makes MAAS refresh a VM host that it has not reached yet, and say why. A repetition does no harm while MAAS knows every
    /// instance (S12).
    Refresh { id: i64 },
}

impl Call {
    /// For logs.
    pub fn name(&self) -> &'static str {
        match self {
            Self::Register(_) => "register",
            Self::Renew { .. } => "renew",
            Self::Move { .. } => "move",
            Self::Refresh { .. } => "refresh",
        }
    }
}

/// A VM host to register.
#[derive(Debug, Clone, PartialEq, Eq)]
pub struct New {
    pub name: String,
    /// As `https://address:port`.
    pub address: String,
    pub project: String,
    pub place: Place,
    /// Fingerprint of the certificate that MAAS will use.
    pub certificate: String,
}

/// What to do next.
#[derive(Debug, Clone, PartialEq, Eq)]
#[must_use]
pub enum Next {
    /// The node is a VM host that works.
    Right(String),
    /// Something else has to happen first, and may happen by itself.
    Wait(String),
    /// A person has to act.
    Blocked(String),
    Do(Call, String),
}

/// How a call ended.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub enum Outcome {
    Done,
    /// It had no effect, and will have none.
    Refused,
    /// It may have had its effect, or have it later.
    Unknown,
}

/// What a call leaves behind.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub struct After {
    /// It is no longer in flight, so its intent has served.
    pub forget_intent: bool,
    /// MAAS is taking in the host from now on.
    pub refreshed: bool,
}

/// What a call leaves behind, by its outcome.
pub fn conclude(call: &Call, outcome: Outcome) -> After {
    let refreshed = match call {
        Call::Register(_) => outcome != Outcome::Refused,
        // Where a refresh failed, its reason is to be seen, and another one may be due.
        Call::Renew { .. } | Call::Refresh { .. } => outcome == Outcome::Done,
        Call::Move { .. } => false,
    };
    After { forget_intent: outcome != Outcome::Unknown, refreshed }
}

/// Whether a registration that was sent then may still take effect. A time that is further ahead than that was written by a clock
/// that has been corrected since; nobody waits hours for it, because MAAS itself refuses a second registration of the same LXD.
pub fn may_land(sent: Timestamp, now: Timestamp) -> bool {
    is_near(sent, IN_FLIGHT, now)
}

/// Whether `at` is less than `limit` away, in either direction: a clock may have been set back a little.
fn is_near(at: Timestamp, limit: SignedDuration, now: Timestamp) -> bool {
    now.duration_since(at).abs() < limit
}

/// Total: all facts yield a step, without a panic.
pub fn next(facts: &Facts, now: Timestamp) -> Next {
    let machine = match &facts.machine {
        Lookup::Found(machine) => machine,
        Lookup::Absent => {
            return Next::Blocked(
                "MAAS knows no machine with a network interface of this node, so it cannot know where the VMs run: only nodes \
                 that MAAS deployed can be VM hosts"
                    .into(),
            );
        }
        Lookup::Unknown(why) => {
            return Next::Wait(format!("this node's machine in MAAS cannot be determined: {why}"));
        }
    };
    let lxd = match &facts.lxd {
        Lookup::Found(lxd) => lxd,
        Lookup::Absent => return Next::Wait("LXD's address is not known".into()),
        Lookup::Unknown(why) => return Next::Wait(why.clone()),
    };
    let certificate = match &facts.certificate {
        Lookup::Found(certificate) => certificate,
        Lookup::Absent => return Next::Wait("there is no certificate to register with".into()),
        Lookup::Unknown(why) => {
            return Next::Wait(format!("the certificate to register with cannot be read: {why}"));
        }
    };
    match &facts.vm_host {
        Lookup::Unknown(why) => Next::Wait(format!("the VM hosts of MAAS cannot be read: {why}")),
        Lookup::Absent => absent(facts, machine, lxd, certificate, now),
        Lookup::Found(vm_host) => existing(facts, machine, lxd, certificate, vm_host, now),
    }
}

fn absent(facts: &Facts, machine: &Machine, lxd: &Lxd, certificate: &str, now: Timestamp) -> Next {
    match &facts.intent {
        Lookup::Unknown(why) => {
            return Next::Wait(format!("it cannot be determined whether a registration was sent a moment ago: {why}"));
        }
        Lookup::Found(sent) if may_land(*sent, now) => {
            return Next::Wait("waiting for MAAS's answer to its registration".into());
        }
        Lookup::Found(_) | Lookup::Absent => {}
    }
    // S12: registering power-cycles and commissions every VM of the project, so there must be none.
    match &lxd.instances {
        Lookup::Unknown(why) => Next::Wait(format!("the instances of the project cannot be listed: {why}")),
        Lookup::Absent => Next::Wait("the instances of the project cannot be listed".into()),
        Lookup::Found(instances) if !instances.is_empty() => Next::Blocked(too_late(&lxd.project, instances)),
        Lookup::Found(_) => {
            let new = New {
                name: facts.node.clone(),
                address: lxd.address.clone(),
                project: lxd.project.clone(),
                place: wanted(&facts.wanted, &machine.place),
                certificate: certificate.to_owned(),
            };
            let message = format!("registers VM host {} at {}", new.name, new.address);
            Next::Do(Call::Register(Box::new(new)), message)
        }
    }
}

/// What is asked for, otherwise this.
fn wanted(wanted: &Wanted, own: &Place) -> Place {
    Place {
        zone: wanted.zone.clone().unwrap_or_else(|| own.zone.clone()),
        pool: wanted.pool.clone().unwrap_or_else(|| own.pool.clone()),
    }
}

fn too_late(project: &str, instances: &[String]) -> String {
    format!(
        "project {project:?} holds instances that MAAS does not know ({}): registering or refreshing this host would restart \
         and commission them, so nothing is done; move or remove them first",
        instances.join(", ")
    )
}

fn existing(facts: &Facts, machine: &Machine, lxd: &Lxd, certificate: &str, vm_host: &VmHost, now: Timestamp) -> Next {
    let VmHost { id, name, .. } = vm_host;
    let own = &machine.system_id;
    if let Some(matched) = vm_host.machine.as_ref().filter(|matched| *matched != own) {
        return Next::Blocked(format!(
            "MAAS matched VM host {name} ({id}) to machine {matched}, but this node is machine {own}: MAAS matches by MAC \
             addresses; remove the VM host in MAAS while it has no VMs, and the interface that both machines show"
        ));
    }
    if let Maker::Foreign { trusted } = &vm_host.maker {
        return foreign(machine, vm_host, trusted);
    }
    if vm_host.project != lxd.project {
        return Next::Blocked(format!(
            "VM host {name} ({id}) works in project {:?}, but LXD_PROJECT is {:?}: set it back, or remove the VM host in MAAS \
             while it has no VMs",
            vm_host.project, lxd.project
        ));
    }
    if let Some((call, message)) = mend(facts, lxd, certificate, vm_host) {
        return guarded(vm_host, call, message);
    }
    if !vm_host.works() {
        if facts.refreshed.is_some_and(|last| is_near(last, DIGESTING, now)) {
            return Next::Wait(format!("MAAS is adding VM host {name} ({id})"));
        }
        let message = format!("refreshes VM host {name} ({id}), which MAAS has not reached yet");
        return guarded(vm_host, Call::Refresh { id: *id }, message);
    }
    match &vm_host.machine {
        None => Next::Wait(format!("MAAS has not matched VM host {name} ({id}) to a machine yet")),
        Some(_) => Next::Right(format!("VM host {name} ({id}) is this machine, {own}")),
    }
}

/// What a VM host of ours lacks.
fn mend(facts: &Facts, lxd: &Lxd, certificate: &str, vm_host: &VmHost) -> Option<(Call, String)> {
    let VmHost { id, name, .. } = vm_host;
    let address = &lxd.address;
    let renew = Call::Renew { id: *id, address: address.clone() };
    if vm_host.certificate.as_deref() != Some(certificate) {
        return Some((renew, format!("gives VM host {name} ({id}) the new key, since the old one is lost")));
    }
    if vm_host.address != *address {
        let message = format!("tells MAAS that VM host {name} ({id}) is at {address} now, not at {}", vm_host.address);
        return Some((renew, message));
    }
    // What is not asked for was settled when the host was registered, and is a person's to change.
    let place = wanted(&facts.wanted, &vm_host.place);
    if facts.wanted.keep_place && place != vm_host.place {
        let message = format!("moves VM host {name} ({id}) to zone {} and pool {}", place.zone, place.pool);
        return Some((Call::Move { id: *id, place }, message));
    }
    None
}

/// S12 again: MAAS reads the project whenever the host is changed or refreshed.
fn guarded(vm_host: &VmHost, call: Call, message: String) -> Next {
    match &vm_host.strangers {
        Lookup::Found(strangers) if strangers.is_empty() => Next::Do(call, message),
        Lookup::Found(strangers) => Next::Blocked(too_late(&vm_host.project, strangers)),
        Lookup::Absent => Next::Wait("which instances MAAS knows cannot be determined".into()),
        Lookup::Unknown(why) => Next::Wait(format!("which instances MAAS knows cannot be determined: {why}")),
    }
}

/// A VM host on this very machine that somebody else registered: accepted if it works, and never changed.
fn foreign(machine: &Machine, vm_host: &VmHost, trusted: &Lookup<()>) -> Next {
    let VmHost { id, name, .. } = vm_host;
    match trusted {
        Lookup::Unknown(why) => Next::Wait(format!(
            "it cannot be determined whether LXD trusts the certificate of VM host {name} ({id}), which somebody else registered: \
             {why}"
        )),
        Lookup::Absent => Next::Blocked(format!(
            "somebody else registered this machine as VM host {name} ({id}), with a certificate that its LXD does not trust: \
             trust that certificate, or remove the VM host in MAAS while it has no VMs"
        )),
        Lookup::Found(()) if !vm_host.works() => Next::Wait(format!(
            "somebody else registered this machine as VM host {name} ({id}), and MAAS has not reached it yet: refresh it in \
             MAAS"
        )),
        Lookup::Found(()) => Next::Right(format!(
            "VM host {name} ({id}) is this machine, {}; somebody else registered it and it is accepted as it is",
            machine.system_id
        )),
    }
}

#[cfg(test)]
mod tests;
