//! Machines that really boot: actions on a machine's hardware are forwarded to an implementation of [`Hardware`].
//!
//! Without hardware a deployment ends after a fixed time. With it, a machine is Deployed when it fetches its user data
//! from the metadata API ([`crate::http::metadata`]), and fails through its own report or MAAS's timeout.

use std::{
    collections::BTreeMap,
    net::IpAddr,
    process::Stdio,
    sync::{Arc, Mutex, PoisonError, Weak},
};

use futures::future::BoxFuture;
use serde::Serialize;
use tokio::{io::AsyncWriteExt as _, process::Command, sync::mpsc};

use crate::{config::ApiKey, sim::Shared};

/// An action on a machine's hardware.
#[derive(Clone, Copy, Debug, PartialEq, Eq, Serialize)]
#[serde(rename_all = "snake_case")]
pub enum Action {
    /// It boots from its disk.
    PowerOn,
    /// It is powered off, or boots something from the network that is independent of its disk.
    PowerOff,
    /// Off and on again.
    PowerCycle,
    /// The image is written to its disk, replacing its content, and booted.
    Deploy,
    /// Its disk is erased.
    Erase,
    /// It no longer has an owner.
    Release,
}

impl Action {
    /// The name passed to the boot hook.
    pub fn word(self) -> &'static str {
        match self {
            Self::PowerOn => "power-on",
            Self::PowerOff => "power-off",
            Self::PowerCycle => "power-cycle",
            Self::Deploy => "deploy",
            Self::Erase => "erase",
            Self::Release => "release",
        }
    }
}

/// The credentials with which a machine calls the metadata API. Its Debug form hides the secret.
#[derive(Clone, Debug, PartialEq, Eq)]
pub struct Credentials(pub ApiKey);

impl Serialize for Credentials {
    fn serialize<S: serde::Serializer>(&self, serializer: S) -> Result<S::Ok, S::Error> {
        use serde::ser::SerializeMap as _;
        let mut map = serializer.serialize_map(Some(3))?;
        map.serialize_entry("consumer_key", &self.0.consumer)?;
        map.serialize_entry("token_key", &self.0.token)?;
        map.serialize_entry("token_secret", &self.0.secret)?;
        map.end()
    }
}

/// The network of a machine: the AUTO or static link of its boot interface.
#[derive(Clone, Debug, PartialEq, Eq, Serialize)]
pub struct Link {
    pub address: IpAddr,
    /// The prefix length.
    pub prefix: u8,
    pub gateway: Option<IpAddr>,
    /// The DNS servers of its subnet.
    pub name_servers: Vec<String>,
}

/// An action for a machine's hardware to perform.
#[derive(Clone, Debug, PartialEq, Eq, Serialize)]
pub struct Order {
    pub action: Action,
    /// The machine's MAAS id.
    pub system_id: String,
    pub hostname: String,
    pub fqdn: String,
    /// The MAC address of its boot interface.
    pub mac: Option<String>,
    /// The image name: the part of `distro_series` after the slash.
    pub series: String,
    /// Its network, once it has an address.
    pub link: Option<Link>,
    /// For a deployment: its metadata API credentials.
    pub credentials: Option<Credentials>,
}

/// The hardware of a MAAS.
pub trait Hardware: Send + Sync {
    /// Performs an order. Orders for one machine arrive one after the other. An error fails the deployment with its
    /// message.
    fn carry_out(&self, order: Order) -> BoxFuture<'static, Result<(), String>>;
}

/// Hardware implemented by a command: it is run with the action as its argument and the order as JSON on standard
/// input.
#[derive(Clone, Debug)]
pub struct BootHook {
    command: String,
}

impl BootHook {
    /// A program, by its path or its name in PATH.
    pub fn new(command: impl Into<String>) -> Self {
        Self { command: command.into() }
    }
}

impl Hardware for BootHook {
    fn carry_out(&self, order: Order) -> BoxFuture<'static, Result<(), String>> {
        let command = self.command.clone();
        Box::pin(async move { run_hook(&command, &order).await })
    }
}

async fn run_hook(command: &str, order: &Order) -> Result<(), String> {
    let failed = |error: std::io::Error| format!("the boot hook {command} cannot be run: {error}");
    let json = serde_json::to_vec(order).map_err(|error| error.to_string())?;
    let mut child = Command::new(command)
        .arg(order.action.word())
        .stdin(Stdio::piped())
        .stdout(Stdio::null())
        .stderr(Stdio::piped())
        .kill_on_drop(true)
        .spawn()
        .map_err(failed)?;
    if let Some(mut stdin) = child.stdin.take() {
        // A hook that does not read its input closes it.
        let _ = stdin.write_all(&json).await;
    }
    let output = child.wait_with_output().await.map_err(failed)?;
    if output.status.success() {
        return Ok(());
    }
    let said = String::from_utf8_lossy(&output.stderr);
    let last = said.lines().rfind(|line| !line.trim().is_empty()).unwrap_or("it did not say why");
    Err(format!("the boot hook failed ({}): {last}", output.status))
}

/// Dispatches orders: sequentially for one machine, concurrently for different ones.
pub(crate) struct Dispatcher {
    hardware: Arc<dyn Hardware>,
    machines: Mutex<BTreeMap<String, mpsc::UnboundedSender<Order>>>,
}

impl Dispatcher {
    pub(crate) fn new(hardware: Arc<dyn Hardware>) -> Self {
        Self { hardware, machines: Mutex::default() }
    }

    /// Needs a runtime; a machine whose runtime has ended gets a new task.
    pub(crate) fn send(&self, shared: &Arc<Shared>, orders: Vec<Order>) {
        let mut machines = self.machines.lock().unwrap_or_else(PoisonError::into_inner);
        for order in orders {
            let order = match machines.get(&order.system_id) {
                Some(sender) => match sender.send(order) {
                    Ok(()) => continue,
                    Err(mpsc::error::SendError(order)) => order,
                },
                None => order,
            };
            let (sender, orders) = mpsc::unbounded_channel();
            machines.insert(order.system_id.clone(), sender.clone());
            tokio::spawn(follow(Arc::clone(&self.hardware), Arc::downgrade(shared), orders));
            let _ = sender.send(order);
        }
    }
}

async fn follow(hardware: Arc<dyn Hardware>, shared: Weak<Shared>, mut orders: mpsc::UnboundedReceiver<Order>) {
    while let Some(order) = orders.recv().await {
        let (system_id, action) = (order.system_id.clone(), order.action);
        let Err(why) = hardware.carry_out(order).await else { continue };
        tracing::warn!("{} of {system_id} failed: {why}", action.word());
        if let Some(shared) = shared.upgrade()
            && action == Action::Deploy
        {
            shared.lock().model.installation_failed(&system_id, &why);
        }
    }
}
