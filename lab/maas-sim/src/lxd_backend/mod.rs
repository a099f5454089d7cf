//! Real LXD daemons behind VM hosts. MAAS connects with the certificate that it was given, does not verify the
//! daemon's, and reports what it finds; so does the simulator. It connects only to loopback and the addresses in its
//! configuration.

mod caller;
mod snapshot;

use std::{net::IpAddr, sync::Arc};

use self::caller::Caller;
use crate::{
    config::Config,
    http::{
        Call,
        reply::Reply,
        surface::{Action, Collection, MachineAction, VmHostAction},
    },
    model::{
        db::VmHost,
        world::{LxdCommand, lxd_key},
    },
    sim::Shared,
};

/// A fresh pair for a registration without one.
pub(crate) fn prepare_pair(call: &mut Call) {
    if matches!(call.action, Action::VmHosts(Collection::Create) | Action::Pods(Collection::Create))
        && call.body.get("certificate").is_none_or(str::is_empty)
        && let Ok(pair) = rcgen::generate_simple_self_signed(["maas-sim".to_owned()])
    {
        call.new_pair = (pair.cert.pem(), pair.signing_key.serialize_pem());
    }
}

/// Whether the simulator may connect to an address.
fn allowed(config: &Config, key: &str) -> bool {
    let host = key.rsplit_once(':').map_or(key, |(host, _)| host).trim_matches(['[', ']']);
    let loopback = host == "localhost" || host.parse::<IpAddr>().is_ok_and(|ip| ip.is_loopback());
    loopback || config.real_lxd.iter().any(|address| lxd_key(address) == key || address == host)
}

/// What is needed to connect to the daemon of a host.
#[derive(Clone, Debug)]
struct Access {
    key: String,
    project: String,
    certificate: String,
    private_key: String,
    password: String,
}

impl Access {
    fn of(host: &VmHost) -> Self {
        Self {
            key: lxd_key(&host.power_address),
            project: host.project.clone(),
            certificate: host.certificate.clone(),
            private_key: host.key.clone(),
            password: host.password.clone().unwrap_or_default(),
        }
    }

    fn caller(&self) -> Result<Caller, String> {
        Caller::new(&self.key, &self.certificate, &self.private_key)
    }
}

/// Whether MAAS contacts the daemon of a VM host for this action.
fn reaches_lxd(action: VmHostAction) -> bool {
    match action {
        VmHostAction::Refresh | VmHostAction::Update | VmHostAction::Compose | VmHostAction::Delete => true,
        VmHostAction::Read | VmHostAction::Parameters | VmHostAction::AddTag | VmHostAction::RemoveTag => false,
    }
}

/// The daemon that a request concerns, if it is a real one.
fn access_for(shared: &Shared, call: &Call) -> Option<Access> {
    let state = shared.lock();
    let model = &state.model;
    let mut access = match call.action {
        Action::VmHosts(Collection::Create) | Action::Pods(Collection::Create) if call.admin => {
            let form = &call.body;
            let given = |key: &str| form.text(key).filter(|text| !text.is_empty());
            let (certificate, private_key) = match (given("certificate"), given("key")) {
                (Some(certificate), Some(key)) => (certificate, key),
                _ => call.new_pair.clone(),
            };
            Access {
                key: lxd_key(&given("power_address")?),
                project: given("project").unwrap_or_else(|| "default".to_owned()),
                certificate,
                private_key,
                password: given("password").unwrap_or_default(),
            }
        }
        Action::VmHost(action) | Action::Pod(action) if call.admin && reaches_lxd(action) => {
            let id: i64 = call.parameters.first()?.parse().ok()?;
            let mut access = Access::of(model.db.vm_hosts.get(&id)?);
            if action == VmHostAction::Update {
                // MAAS uses the new values, not the stored ones.
                let given = |key: &str| call.body.text(key).filter(|text| !text.is_empty());
                if let Some(address) = given("power_address") {
                    access.key = lxd_key(&address);
                }
                if let (Some(certificate), Some(key)) = (given("certificate"), given("key")) {
                    (access.certificate, access.private_key) = (certificate, key);
                }
            }
            access
        }
        Action::Machine(MachineAction::QueryPowerState | MachineAction::Delete) => {
            let (host, ..) = model.vm_place(call.parameters.first()?)?;
            Access::of(model.db.vm_hosts.get(&host)?)
        }
        _ => return None,
    };
    let made_up = model.world.lxds.get(&access.key).is_some_and(|lxd| !lxd.real);
    if made_up || !allowed(&shared.config, &access.key) {
        return None;
    }
    if access.key.starts_with("localhost:") {
        access.key = access.key.replacen("localhost", "127.0.0.1", 1);
    }
    Some(access)
}

/// Reads the state of the daemon that a request concerns into the model.
pub(crate) async fn look(shared: &Arc<Shared>, call: &Call) {
    let Some(access) = access_for(shared, call) else { return };
    let found = snapshot::read(&access).await;
    let mut state = shared.lock();
    let old = state.model.world.lxds.get(&access.key).cloned();
    state.model.world.lxds.insert(access.key.clone(), snapshot::merged(found, old));
}

/// Sends the model's decisions to daemons. A failure is only logged, as MAAS does for work after its answer.
pub(crate) async fn apply(shared: &Arc<Shared>, commands: Vec<LxdCommand>) {
    for command in commands {
        if let Err(error) = carry_out(shared, &command).await {
            failed(shared, &command, &error);
        }
    }
}

/// A daemon that cannot start VMs would make each of them a machine whose power is lost. From then on it is asked for everything but
/// whether a VM runs.
fn failed(shared: &Arc<Shared>, command: &LxdCommand, error: &str) {
    tracing::warn!("LXD did not do {command:?}: {error}");
    let LxdCommand::Power { host, project, name, on: true } = command else { return };
    let mut state = shared.lock();
    let Some(lxd) = state.model.lxd_of_mut(*host) else { return };
    if let Some(instance) = lxd.instances.get_mut(&(project.clone(), name.clone())) {
        instance.running = true;
        lxd.starts_no_vms = true;
    }
}

/// Sends the commands to daemons, and replaces the answer if one of them refuses to create a VM.
pub(crate) async fn finish(shared: &Arc<Shared>, call: &Call, reply: Reply, commands: Vec<LxdCommand>) -> Reply {
    for command in commands {
        let outcome = carry_out(shared, &command).await;
        match (&command, outcome) {
            (_, Ok(())) => {}
            (LxdCommand::Create { host, project, name }, Err(error)) => {
                let mut state = shared.lock();
                let machine = state.model.db.vm_hosts.get(host).and_then(|host| {
                    host.vms
                        .iter()
                        .find(|vm| vm.project == *project && vm.name == *name)
                        .and_then(|vm| vm.machine.clone())
                });
                if let Some(lxd) = state.model.lxd_of_mut(*host) {
                    lxd.instances.remove(&(project.clone(), name.clone()));
                }
                if let Some(machine) = machine {
                    state.model.remove_machine(&machine, false);
                }
                let words = format!("Unable to compose machine because: Failed talking to pod: {error}");
                tracing::debug!("{} was taken back: {words}", call.operation.name);
                return Reply::text(503, &words);
            }
            (_, Err(error)) => failed(shared, &command, &error),
        }
    }
    reply
}

async fn carry_out(shared: &Arc<Shared>, command: &LxdCommand) -> Result<(), String> {
    let (host, project, name) = match command {
        LxdCommand::Create { host, project, name }
        | LxdCommand::Delete { host, project, name }
        | LxdCommand::Power { host, project, name, .. } => (*host, project, name),
    };
    let (access, instance, bridge) = {
        let state = shared.lock();
        let Some(vm_host) = state.model.db.vm_hosts.get(&host) else { return Err("the VM host is gone".to_owned()) };
        let lxd = state.model.lxd_of(host);
        let instance = lxd.and_then(|lxd| lxd.instances.get(&(project.clone(), name.clone())).cloned());
        (Access::of(vm_host), instance, lxd.and_then(|lxd| lxd.bridge.clone()))
    };
    let caller = access.caller()?;
    match command {
        LxdCommand::Create { .. } => match instance {
            Some(instance) => caller.create_vm(project, name, &instance, bridge.as_deref()).await,
            None => Ok(()),
        },
        LxdCommand::Delete { .. } => caller.delete_vm(project, name).await,
        LxdCommand::Power { on, .. } => caller.set_power(project, name, *on).await,
    }
}
