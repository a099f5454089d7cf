//! Decides, from facts alone, what to do next. Pure and total: no clock, no I/O, no way to fail.
//!
//! The steps are evaluated in order up to the first that does not hold; that one yields the effect, or the message
//! about what is awaited. Nothing that somebody else created is ever deleted, reformatted or replaced: such a finding
//! only yields a message.

use std::{
    collections::BTreeMap,
    net::{IpAddr, SocketAddr},
};

use jiff::Timestamp;

use crate::{
    earlier,
    effect::{Effect, EffectKind},
    listener, names,
    observed::{Certificate, Lookup, LxdFacts, NodeFacts, Observed, Probe, ServerFacts},
    plan::{Condition, Plan, State, Step, Verdict},
    register, report,
    requirements::{self, ProjectFit},
    settings::Settings,
};

/// Who registers the host.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub enum Mode {
    /// The agent itself: both MAAS variables are set.
    Standalone,
    /// The manager: neither is.
    Managed,
}

impl Mode {
    /// As written on the Node.
    pub fn as_str(self) -> &'static str {
        match self {
            Self::Standalone => "standalone",
            Self::Managed => "managed",
        }
    }
}

/// The mode, or `None` while it is not clear.
pub fn mode(observed: &Observed) -> Option<Mode> {
    match (&observed.api_key, &observed.endpoint) {
        (Lookup::Found(()), Lookup::Found(_)) => Some(Mode::Standalone),
        (Lookup::Absent, Lookup::Absent) => Some(Mode::Managed),
        _ => None,
    }
}

/// A Node about which nothing is known.
static UNREAD: NodeFacts =
    NodeFacts { labels: BTreeMap::new(), annotations: BTreeMap::new(), internal_ip: None, system_id: None };

/// The Node, as far as the work needs it. An agent that registers its host itself needs no Kubernetes for that: it
/// continues while the Node cannot be read, unless it knows that it was asked to leave.
pub(crate) fn node_for_work(observed: &Observed) -> Option<&NodeFacts> {
    match &observed.node {
        Lookup::Found(node) => Some(node),
        Lookup::Unknown(_) if mode(observed) == Some(Mode::Standalone) && !observed.memory.left => Some(&UNREAD),
        Lookup::Absent | Lookup::Unknown(_) => None,
    }
}

/// The certificate that LXD should trust.
pub fn certificate(observed: &Observed) -> Lookup<&Certificate> {
    let source = match mode(observed) {
        Some(Mode::Standalone) => &observed.own_certificate,
        Some(Mode::Managed) => &observed.given_certificate,
        None => return Lookup::Unknown("it is not clear yet who registers this host".into()),
    };
    match source {
        Lookup::Found(certificate) => Lookup::Found(certificate),
        Lookup::Absent => Lookup::Absent,
        Lookup::Unknown(why) => Lookup::Unknown(why.clone()),
    }
}

/// The node's address for LXD.
pub fn node_ip(settings: &Settings, node: &NodeFacts) -> Option<IpAddr> {
    settings.node_ip.or(node.internal_ip)
}

/// Where LXD is, or will be, reached.
pub fn address(settings: &Settings, node: &NodeFacts, server: &ServerFacts) -> Option<SocketAddr> {
    let ip = node_ip(settings, node)?;
    match &server.listener {
        Some(setting) => listener::reached_at(setting, ip),
        None => Some(SocketAddr::new(ip, settings.port)),
    }
}

/// What to do next, and the state of all steps.
pub fn decide(settings: &Settings, observed: &Observed, now: Timestamp) -> Plan {
    let mut conditions = Vec::with_capacity(Step::ALL.len());
    let mut stop: Option<(Verdict, Step)> = None;
    for step in Step::ALL {
        if let Some((_, before)) = &stop {
            let message = format!("waits for step {before:?}");
            conditions.push(Condition { step, status: "Unknown", message });
            continue;
        }
        let verdict = patient(walk(step, settings, observed, now), observed, now);
        let (status, message) = match &verdict {
            Verdict::Holds(message) => ("True", message),
            Verdict::Do(_, message) | Verdict::Wait(message) | Verdict::Block(message) | Verdict::Leave(message) => {
                ("False", message)
            }
        };
        conditions.push(Condition { step, status, message: message.clone() });
        if !matches!(verdict, Verdict::Holds(_)) {
            stop = Some((verdict, step));
        }
    }
    let (effect, state, message) = match stop.map(|(verdict, _)| verdict) {
        None | Some(Verdict::Holds(_)) => (None, State::Ready, "this node is a VM host for MAAS".to_owned()),
        Some(Verdict::Do(effect, message)) => (Some(effect), State::Working, message),
        Some(Verdict::Wait(message)) => (None, State::Waiting, message),
        Some(Verdict::Block(message)) => (None, State::Blocked, message),
        Some(Verdict::Leave(message)) => (None, State::Left, message),
    };
    let mut plan = Plan { effect, state, message, conditions };
    if let (State::Ready, Lookup::Unknown(why)) = (plan.state, &observed.node) {
        // Readers of the Node do not know yet, so it is not done.
        plan.state = State::Waiting;
        plan.message = format!("this node is a VM host for MAAS, but its Node could not be read and labelled: {why}");
    }
    if plan.effect.is_none()
        && let Some(patch) = report::patch(settings, observed, &plan)
    {
        match observed.memory.failures.get(&EffectKind::Report) {
            Some(failure) if failure.retry > now => {
                // Readers of the Node do not know yet, so it is not done.
                if plan.state == State::Ready {
                    plan.state = State::Waiting;
                    plan.message = format!(
                        "everything is in the desired state, but {} failed: {}",
                        EffectKind::Report.words(),
                        failure.why
                    );
                }
            }
            _ => plan.effect = Some(Effect::Report(patch)),
        }
    }
    plan
}

/// An effect that failed recently is not retried immediately; the reason is reported instead.
fn patient(verdict: Verdict, observed: &Observed, now: Timestamp) -> Verdict {
    match verdict {
        Verdict::Do(effect, message) => match observed.memory.failures.get(&effect.kind()) {
            Some(failure) if failure.retry > now => {
                Verdict::Block(format!("{} failed: {}", effect.kind().words(), failure.why))
            }
            _ => Verdict::Do(effect, message),
        },
        other => other,
    }
}

fn walk(step: Step, settings: &Settings, observed: &Observed, now: Timestamp) -> Verdict {
    // The first steps ensure that both exist; nothing below is reached without them.
    let (LxdFacts::Here(server), Some(node)) = (&observed.lxd, node_for_work(observed)) else {
        return before_lxd(step, settings, observed);
    };
    match step {
        Step::Node | Step::Credentials | Step::Lxd => before_lxd(step, settings, observed),
        Step::Requirements => required(settings, server),
        Step::StoragePool => storage_pool(settings, server),
        Step::Bridge => bridge(settings, server),
        Step::Project => project(settings, server),
        Step::Listener => listener(settings, observed, node, server),
        Step::Certificate => have_certificate(settings, observed),
        Step::Trust => trust(settings, observed, server),
        Step::Reachable => reachable(settings, observed, node, server),
        Step::Registered => match mode(observed) {
            Some(Mode::Standalone) => register::registered(settings, observed, node, server, now),
            _ => Verdict::Holds("the manager registers this host".into()),
        },
        Step::Earlier => earlier::verdict(observed, node, server),
    }
}

fn before_lxd(step: Step, settings: &Settings, observed: &Observed) -> Verdict {
    match step {
        Step::Node => node(settings, observed),
        Step::Credentials => credentials(settings, observed),
        _ => lxd(settings, observed),
    }
}

fn node(settings: &Settings, observed: &Observed) -> Verdict {
    match &observed.node {
        Lookup::Unknown(why) if node_for_work(observed).is_some() => Verdict::Holds(format!(
            "the Node cannot be read and is tried again; registering this host needs no Kubernetes: {why}"
        )),
        Lookup::Unknown(why) if mode(observed) == Some(Mode::Standalone) => Verdict::Leave(format!(
            "this agent was asked to leave, or its host was unregistered, and the Node cannot be read to check that: {why}"
        )),
        Lookup::Unknown(why) => Verdict::Wait(format!(
            "the Node cannot be read, so it is not known whether this agent was asked to leave: {why}"
        )),
        Lookup::Absent => Verdict::Block(format!(
            "there is no Node named {:?}: NODE_NAME must be the name of the Node that this agent runs on",
            settings.node_name
        )),
        Lookup::Found(node) => {
            if asked_to_leave(node) {
                Verdict::Leave(format!(
                    "the Node's annotation {} asks the agent to leave: LXD and MAAS are left as they are, nothing is unregistered",
                    names::LEAVE
                ))
            } else {
                Verdict::Holds(format!("runs on Node {}", settings.node_name))
            }
        }
    }
}

/// Whether this agent was asked to stop.
pub(crate) fn asked_to_leave(node: &NodeFacts) -> bool {
    node.annotations.get(names::LEAVE).is_some_and(|told| !told.is_empty() && told != "false")
}

fn credentials(settings: &Settings, observed: &Observed) -> Verdict {
    let key = format!("MAAS_API_KEY (or Secret {}/{}, key {})", settings.namespace, names::SECRET, names::SECRET_KEY);
    let endpoint = format!(
        "MAAS_ENDPOINT (or ConfigMap {}/{}, key {})",
        settings.namespace,
        names::CONFIG_MAP,
        names::CONFIG_MAP_KEY
    );
    match (&observed.api_key, &observed.endpoint) {
        (Lookup::Found(()), Lookup::Found(_)) => Verdict::Holds("this agent registers the host in MAAS".into()),
        (Lookup::Absent, Lookup::Absent) => {
            Verdict::Holds(format!("neither {key} nor {endpoint} is set, so the manager registers this host"))
        }
        (Lookup::Found(()), Lookup::Absent) => Verdict::Block(format!(
            "MAAS_API_KEY is set but {endpoint} is missing: set both to let this agent register the host, or neither"
        )),
        (Lookup::Absent, Lookup::Found(_)) => Verdict::Block(format!(
            "MAAS_ENDPOINT is set but {key} is missing: set both to let this agent register the host, or neither"
        )),
        (Lookup::Unknown(why), _) => Verdict::Wait(format!("it cannot be determined whether {key} is set: {why}")),
        (_, Lookup::Unknown(why)) => Verdict::Wait(format!("it cannot be determined whether {endpoint} is set: {why}")),
    }
}

fn lxd(settings: &Settings, observed: &Observed) -> Verdict {
    match &observed.lxd {
        LxdFacts::NoSocket { tried } => Verdict::Wait(format!(
            "there is no LXD on this node (no socket at {}): install it, for instance with \"snap install lxd\", or keep this \
             agent off the node; nothing was changed",
            tried.join(", ")
        )),
        LxdFacts::Away { why } => Verdict::Wait(format!("LXD does not answer yet: {why}")),
        LxdFacts::Here(server) => {
            Verdict::Holds(format!("{} {} answers on node {}", server.product, server.version, settings.node_name))
        }
    }
}

fn required(settings: &Settings, server: &ServerFacts) -> Verdict {
    if server.product != "lxd" {
        return Verdict::Block(format!(
            "this is {:?}, not LXD: MAAS supports LXD only, so nothing is changed here",
            server.product
        ));
    }
    if !server.trusted {
        return Verdict::Block(
            "LXD does not trust this agent on its socket: it needs unix.socket itself and to run as root".into(),
        );
    }
    if server.clustered {
        return Verdict::Block(
            "this LXD is a member of a cluster, which its administrators set up: nothing is changed here; register the \
             cluster in MAAS by hand"
                .into(),
        );
    }
    if server.trust_password {
        return Verdict::Block(
            "core.trust_password is set, so everyone who knows it controls this node: unset it (lxc config unset \
             core.trust_password), MAAS does not need it"
                .into(),
        );
    }
    if !server.missing_extensions.is_empty() {
        return Verdict::Block(format!(
            "LXD {} lacks what MAAS needs ({}): update LXD, 5.0 or newer is recommended",
            server.version,
            server.missing_extensions.join(", ")
        ));
    }
    if !server.virtual_machines {
        return Verdict::Block(
            "this LXD cannot run virtual machines: the node needs KVM, vhost_vsock and QEMU; the warnings of LXD (lxc warning \
             list) show which is missing"
                .into(),
        );
    }
    // An existing pool needs no tools to be created.
    let driver = &settings.pool.driver;
    if server.pool == Lookup::Absent && !server.storage_drivers.contains(driver) {
        return Verdict::Block(format!(
            "LXD cannot create a pool on {driver} here, only on {}: install the kernel module and tools of {driver}, or set \
             STORAGE_BACKEND",
            server.storage_drivers.join(", ")
        ));
    }
    Verdict::Holds(format!("LXD {} has what MAAS needs", server.version))
}

fn storage_pool(settings: &Settings, server: &ServerFacts) -> Verdict {
    let wanted = &settings.pool;
    let name = &wanted.name;
    match &server.pool {
        Lookup::Unknown(why) => Verdict::Wait(format!("storage pool {name:?} cannot be read: {why}")),
        Lookup::Absent => Verdict::Do(
            Effect::CreatePool(wanted.clone()),
            format!("creates storage pool {name:?} on {}", wanted.driver),
        ),
        Lookup::Found(pool) if pool.driver != wanted.driver => Verdict::Block(format!(
            "storage pool {name:?} is on {}, not on {}: it is left alone; set STORAGE_BACKEND={} to use it, or STORAGE_POOL to \
             create another",
            pool.driver, wanted.driver, pool.driver
        )),
        Lookup::Found(pool) => match pool.status.as_str() {
            "Created" => Verdict::Holds(format!("storage pool {name:?} on {} works", pool.driver)),
            "Pending" => Verdict::Wait(format!("storage pool {name:?} is being created")),
            "Unavailable" => Verdict::Block(format!(
                "storage pool {name:?} is known to LXD but Unavailable: its disk is missing, or its creation was interrupted. It \
                 is left alone. If its disk comes back, it recovers by itself; if it never held anything, remove it (lxc storage \
                 delete {name}) and it is created again"
            )),
            status => Verdict::Block(format!(
                "storage pool {name:?} has status {status}: it is left alone; repair or remove it (lxc storage show {name})"
            )),
        },
    }
}

fn bridge(settings: &Settings, server: &ServerFacts) -> Verdict {
    let name = &settings.bridge;
    match &server.bridge {
        Lookup::Unknown(why) => Verdict::Wait(format!("bridge {name:?} cannot be read: {why}")),
        Lookup::Absent => Verdict::Block(format!(
            "there is no bridge {name:?} on this node: create it in MAAS on the machine's boot interface before deploying, or \
             set NETWORK_BRIDGE; this agent never moves the node's own network interface"
        )),
        Lookup::Found(found) if found.kind != "bridge" => Verdict::Block(format!(
            "{name:?} is an interface of type {}, not a bridge: set NETWORK_BRIDGE to the bridge that MAAS created",
            found.kind
        )),
        Lookup::Found(found) if found.ports.is_empty() => Verdict::Block(format!(
            "bridge {name:?} has no interface of this node as a port, so a VM on it would reach no network: create the \
             bridge in MAAS on the machine's boot interface"
        )),
        Lookup::Found(found) => Verdict::Holds(format!("bridge {name:?} is on {}", found.ports.join(", "))),
    }
}

fn project(settings: &Settings, server: &ServerFacts) -> Verdict {
    let name = &settings.project;
    match &server.project {
        Lookup::Unknown(why) => Verdict::Wait(format!("project {name:?} cannot be read: {why}")),
        Lookup::Absent => Verdict::Do(
            Effect::CreateProject { name: name.clone(), config: requirements::project_config() },
            format!("creates project {name:?}"),
        ),
        Lookup::Found(config) => match requirements::judge_project(config) {
            ProjectFit::AsOurs => Verdict::Holds(format!("project {name:?} exists")),
            ProjectFit::Open => Verdict::Holds(format!(
                "project {name:?} exists; it was not created by this agent and restricts nothing, so users who may create \
                 VMs in it may reach the node's own files"
            )),
            ProjectFit::TooTight(missing) => Verdict::Block(format!(
                "project {name:?} would refuse the VMs of MAAS: it needs {}; it is left alone",
                missing.join(" and ")
            )),
        },
    }
}

fn listener(settings: &Settings, observed: &Observed, node: &NodeFacts, server: &ServerFacts) -> Verdict {
    let Some(ip) = node_ip(settings, node) else {
        return Verdict::Block(
            "the node's address is not known: set NODE_IP, or wait for the Node's InternalIP".into(),
        );
    };
    let wanted = SocketAddr::new(ip, settings.port);
    let Some(setting) = &server.listener else {
        return match &server.probe {
            Probe::Stranger | Probe::Trusted | Probe::Untrusted => Verdict::Block(format!(
                "another program listens on {wanted} already, so LXD cannot: stop it, or set LXD_PORT"
            )),
            Probe::NotTried | Probe::Closed | Probe::Unclear(_) => {
                Verdict::Do(Effect::Listen { address: wanted.to_string() }, format!("makes LXD listen on {wanted}"))
            }
        };
    };
    let ours = server.listener_note.as_deref() == Some(setting.as_str());
    let Some(at) = listener::reached_at(setting, ip) else {
        if ours {
            return Verdict::Do(
                Effect::Listen { address: wanted.to_string() },
                format!("makes LXD listen on {wanted}, since the node is no longer at {setting}"),
            );
        }
        return Verdict::Block(format!(
            "LXD listens on {setting}, which does not cover the node's address {ip}: it was set by somebody else and is left \
             alone; set core.https_address to {wanted}, or NODE_IP to the address that MAAS should use"
        ));
    };
    // LXD 5.0.2 keeps an address that it could not open. Ours is reset, so that it can be tried again; whether LXD
    // could open it is known once LXD has said so. An LXD that is just starting gets a second observation.
    let refused = observed.memory.failures.contains_key(&EffectKind::Listen);
    let certain = refused || observed.memory.shut > 1;
    let shut = matches!(server.probe, Probe::Closed | Probe::Stranger)
        || (refused && matches!(server.probe, Probe::Unclear(_)));
    if ours && shut && certain && !observed.memory.listens {
        return Verdict::Do(Effect::StopListening, format!("removes the listener {setting}, which LXD could not open"));
    }
    Verdict::Holds(format!("LXD is set to listen on {at}"))
}

fn have_certificate(settings: &Settings, observed: &Observed) -> Verdict {
    match (mode(observed), certificate(observed)) {
        (_, Lookup::Found(certificate)) => Verdict::Holds(format!("the certificate is {}", certificate.fingerprint)),
        (Some(Mode::Standalone), Lookup::Absent) => Verdict::Do(
            Effect::MakeKey,
            format!("creates the key pair of this node in {}", settings.state_dir.display()),
        ),
        (Some(Mode::Standalone), Lookup::Unknown(why)) => Verdict::Block(format!(
            "the key pair in {} cannot be used and is left alone: {why}",
            settings.state_dir.display()
        )),
        (_, Lookup::Absent) => Verdict::Wait(format!(
            "LXD is prepared; waiting for Secret {ns}/{} and ConfigMap {ns}/{} to register this host in MAAS, or for the \
             manager's certificate in ConfigMap {ns}/{}",
            names::SECRET,
            names::CONFIG_MAP,
            names::TRUST_CONFIG_MAP,
            ns = settings.namespace,
        )),
        (_, Lookup::Unknown(why)) => Verdict::Wait(format!("the certificate to trust cannot be read: {why}")),
    }
}

fn trust(settings: &Settings, observed: &Observed, server: &ServerFacts) -> Verdict {
    let Lookup::Found(certificate) = certificate(observed) else {
        return Verdict::Wait("there is no certificate to trust yet".into());
    };
    let (print, project) = (certificate.fingerprint, &settings.project);
    match &server.trust {
        Lookup::Unknown(why) => Verdict::Wait(format!("LXD's trust store cannot be read: {why}")),
        Lookup::Absent => Verdict::Do(
            Effect::Trust { pem: certificate.pem.clone(), project: project.clone() },
            format!("trusts certificate {print} for project {project:?}"),
        ),
        Lookup::Found(trust) if !trust.restricted => Verdict::Holds(format!(
            "LXD trusts certificate {print} with everything: somebody else allowed that; bind it to project {project:?} (lxc \
             config trust edit)"
        )),
        Lookup::Found(trust) if trust.projects.contains(project) => {
            Verdict::Holds(format!("LXD trusts certificate {print} for project {project:?}"))
        }
        Lookup::Found(trust) => Verdict::Block(format!(
            "LXD trusts certificate {print} for {:?} but not for project {project:?}: somebody else set that; add the project \
             (lxc config trust edit)",
            trust.projects
        )),
    }
}

fn reachable(settings: &Settings, observed: &Observed, node: &NodeFacts, server: &ServerFacts) -> Verdict {
    let at = address(settings, node, server).map(|at| at.to_string()).unwrap_or_default();
    match (&server.probe, mode(observed)) {
        (Probe::Trusted, _) => Verdict::Holds(format!("LXD answers on {at} and trusts the certificate")),
        // Without the private key, the most that can be shown is that the right LXD is there.
        (Probe::Untrusted, Some(Mode::Managed)) => Verdict::Holds(format!("LXD answers on {at}")),
        (Probe::Untrusted, _) => Verdict::Wait(format!("LXD answers on {at} but does not trust the certificate yet")),
        (Probe::Closed, _) => Verdict::Wait(format!(
            "LXD is set to listen on {at}, but nothing answers there: check for a firewall or NetworkPolicy, or restart LXD"
        )),
        (Probe::Stranger, _) => Verdict::Block(format!(
            "a program other than this LXD answers on {at}: stop it and restart LXD, or set LXD_PORT"
        )),
        (Probe::Unclear(why), _) => {
            Verdict::Wait(format!("it could not be determined whether LXD answers on {at}: {why}"))
        }
        (Probe::NotTried, _) => Verdict::Wait(format!("LXD on {at} has not been tried yet")),
    }
}
