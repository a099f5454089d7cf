//! Machines.

mod model;
mod requests;
mod status;

use std::collections::BTreeMap;

pub use model::{BlockDevice, DefaultGateways, Gateway, Machine, MachineReference, PodReference};
pub use requests::{Allocate, Deploy, Erase, MachineFilter, MachineUpdate, Release};
pub use status::{MachineStatus, PowerState};

use self::model::PowerAnswer;
use crate::Client;
use crate::call::Call;
use crate::error::{Effect, Error, ErrorKind, Result};

/// MAAS's names for the object at `machines/{system_id}/`.
const OBJECT: &[&str] = &["Machine", "Node"];

/// A list takes MAAS some 28 ms per machine; fifty keep a region worker busy for under two seconds.
const BATCH: usize = 50;

/// Calls about machines; see [`Client::machines`].
#[derive(Debug, Clone, Copy)]
pub struct Machines<'a> {
    client: &'a Client,
}

impl Client {
    /// Machines.
    pub fn machines(&self) -> Machines<'_> {
        Machines { client: self }
    }
}

impl Machines<'_> {
    /// Machines that match, of those visible to this user. **A machine that is missing here is not gone**: machines of
    /// other users are omitted. Only [`read`](Self::read) can tell that a machine does not exist.
    pub async fn list(&self, filter: &MachineFilter) -> Result<Vec<Machine>> {
        let capabilities = if filter.needs_version() { Some(self.client.capabilities().await?) } else { None };
        let call = filter.apply(Call::get("machines.list", "machines/", &[])?, capabilities);
        let mut machines: Vec<Machine> = self.client.json(call).await?;
        machines.retain(|machine| filter.admits(machine));
        Ok(machines)
    }

    /// Machines by id, fifty at a time: a list takes an eighth of the time of single reads. Ids that are not visible to
    /// this user are omitted, as are those that do not exist; see [`list`](Self::list).
    pub async fn by_ids(&self, system_ids: &[&str]) -> Result<Vec<Machine>> {
        const OPERATION: &str = "machines.by_ids";
        let mut machines = Vec::with_capacity(system_ids.len());
        for batch in system_ids.chunks(BATCH) {
            let call = Call::get(OPERATION, "machines/", &[])?.query_all("id", batch);
            let found: Vec<Machine> = self.client.json(call).await?;
            if found.len() > batch.len() {
                let message = format!("MAAS answered with {} machines for {} ids", found.len(), batch.len());
                return Err(Error::new(ErrorKind::NotUnderstood, OPERATION, Effect::None, message));
            }
            machines.extend(found);
        }
        Ok(machines)
    }

    /// One machine. [`NotFound`](crate::ErrorKind::NotFound) means that it does not exist;
    /// [`Denied`](crate::ErrorKind::Denied) that it may belong to someone else.
    pub async fn read(&self, system_id: &str) -> Result<Machine> {
        const OPERATION: &str = "machines.read";
        if !is_system_id(system_id) {
            let shown: String = system_id.chars().take(LONGEST_ID).collect();
            return Err(Error::refused(OPERATION, format!("{shown:?} cannot be a MAAS system ID")));
        }
        self.client.json(Call::get(OPERATION, "machines/{system_id}/", &[system_id])?.of(OBJECT)).await
    }

    /// Allocates a machine to this user. Never retried: if the answer is lost, look the machine up by `agent_name` (or
    /// host name).
    pub async fn allocate(&self, allocate: &Allocate) -> Result<Machine> {
        const OPERATION: &str = "machines.allocate";
        if allocate.dry_run {
            let named = allocate.system_id.is_some();
            let capabilities = if named { Some(self.client.capabilities().await?) } else { None };
            if allocate.may_compose(capabilities) {
                let message = "a dry run that does not exclude VM hosts makes a real VM when no machine fits";
                return Err(Error::refused(OPERATION, message));
            }
        }
        self.client.json(allocate.apply(Call::post(OPERATION, "machines/?op=allocate", &[])?)).await
    }

    /// Installs an operating system. From Ready, this allocates as well.
    pub async fn deploy(&self, system_id: &str, deploy: &Deploy) -> Result<Machine> {
        if deploy.needs_version() {
            deploy.check(self.client.capabilities().await?)?;
        }
        let call = Call::post("machines.deploy", "machines/{system_id}/?op=deploy", &[system_id])?.of(OBJECT);
        self.client.json(deploy.apply(call)).await
    }

    /// Releases a machine. The answer arrives while it is still Releasing; owner and annotations stay until Ready.
    /// Right after a deployment began, the machine may become Ready and stay powered on: check with
    /// [`query_power_state`](Self::query_power_state).
    pub async fn release(&self, system_id: &str, release: &Release) -> Result<Machine> {
        let call = Call::post("machines.release", "machines/{system_id}/?op=release", &[system_id])?.of(OBJECT);
        self.client.json(release.apply(call)).await
    }

    /// Updates a machine, in any state. Needs an administrator.
    pub async fn update(&self, system_id: &str, update: &MachineUpdate) -> Result<Machine> {
        let call = Call::put("machines.update", "machines/{system_id}/", &[system_id])?.of(OBJECT);
        self.client.json(update.apply(call)).await
    }

    /// Deletes a machine. A VM is removed from its host as well; a bare-metal machine stays powered on if it is on.
    pub async fn delete(&self, system_id: &str) -> Result<()> {
        self.client.empty(Call::delete("machines.delete", "machines/{system_id}/", &[system_id])?.of(OBJECT)).await
    }

    /// Turns a machine on. On an Allocated one **this starts a deployment** with the server's default image.
    pub async fn power_on(&self, system_id: &str) -> Result<Machine> {
        let call = Call::post("machines.power_on", "machines/{system_id}/?op=power_on", &[system_id])?;
        self.client.json(call.of(OBJECT)).await
    }

    /// Queries the power driver for a machine's power state. May take a minute when its BMC does not answer, and is
    /// then an error.
    pub async fn query_power_state(&self, system_id: &str) -> Result<PowerState> {
        let call = Call::get("machines.query_power_state", "machines/{system_id}/?op=query_power_state", &[system_id])?;
        match self.client.json(call.of(OBJECT)).await {
            Ok(PowerAnswer { state }) => Ok(state),
            // From 3.5 on, a failing BMC is reported as an error in the driver's own words; before, as a state.
            Err(error) if error.kind() == ErrorKind::NotUnderstood && error.status() == Some(500) => {
                Ok(PowerState::Unknown)
            }
            Err(error) => Err(error),
        }
    }

    /// Sets annotations; an empty value removes one, others are kept. Only the owner may do this, and only after
    /// allocation.
    ///
    /// A key consists of letters, digits, `_`, `.` and `-`: MAAS answers 500 to a slash.
    pub async fn set_annotations(&self, system_id: &str, annotations: &BTreeMap<String, String>) -> Result<Machine> {
        const OPERATION: &str = "machines.set_annotations";
        let is_fit = |c: char| c.is_alphanumeric() || matches!(c, '_' | '.' | '-');
        for key in annotations.keys() {
            if key.is_empty() || key.chars().count() > 255 || !key.chars().all(is_fit) {
                let message = format!("{key:?} is no annotation key: 1 to 255 letters, digits, '_', '.' or '-'");
                return Err(Error::refused(OPERATION, message));
            }
        }
        let call = Call::post(OPERATION, "machines/{system_id}/?op=set_workload_annotations", &[system_id])?;
        let call = annotations.iter().fold(call.of(OBJECT), |call, (key, value)| call.field(key, value));
        self.client.json(call).await
    }

    /// Aborts what MAAS is doing to a machine: commissioning, deploying, testing, or erasing its disks. It is turned
    /// off.
    pub async fn abort(&self, system_id: &str, comment: &str) -> Result<Machine> {
        let call = Call::post("machines.abort", "machines/{system_id}/?op=abort", &[system_id])?;
        self.client.json(call.of(OBJECT).field("comment", comment)).await
    }
}

/// Far longer than any id that MAAS assigns.
const LONGEST_ID: usize = 64;

/// Whether a machine in MAAS can have this id. Real ones are six lower-case letters and digits. The check accepts more:
/// a wrongly accepted id costs a request, a wrongly rejected one a machine.
pub fn is_system_id(text: &str) -> bool {
    let fits = |letter: char| letter.is_ascii_alphanumeric() || matches!(letter, '-' | '_');
    (1..=LONGEST_ID).contains(&text.len()) && text.chars().all(fits)
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn ids_that_maas_can_have_are_let_through_and_no_others() {
        for id in ["abc123", "4y3h7n", "ABC123", "node-1", "x", &"a".repeat(64)] {
            assert!(is_system_id(id), "{id}");
        }
        let long = "a".repeat(10_000);
        for id in ["", "a,b", "abc 123", " abc123", "abc123\n", "abc/../def", "..", "ümlaut", "a&id=b", "a%20", &long]
        {
            assert!(!is_system_id(id), "{id}");
        }
    }
}
