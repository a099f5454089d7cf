//! The interfaces of a machine whose spec asks for addresses.

use capmaas_core::maas::State;
use capmaas_core::machine::{Observed, wanted};
use capmaas_core::{Lookup, links};
use maas_client::Client;

/// Observes the interfaces of an Allocated machine, if the spec says anything about them.
pub(super) async fn sight(client: &Client, observed: &Observed) -> Lookup<links::Observed> {
    let Lookup::Found(machine) = &observed.in_journal else { return Lookup::Absent };
    let leaving = observed.object.metadata.deletion_timestamp.is_some();
    let Ok(wanted) = wanted(&observed.object, observed.journal()) else { return Lookup::Absent };
    let desired = wanted.intent.links();
    if leaving || machine.state != State::Allocated || desired.is_empty() {
        return Lookup::Absent;
    }
    match client.machines().read(&machine.id).await {
        Ok(machine) => crate::links::sight(client, &machine, &desired).await,
        Err(error) => Lookup::Unknown(error.to_string()),
    }
}
