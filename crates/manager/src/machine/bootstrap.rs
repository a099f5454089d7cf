//! What is known about the bootstrap data before it is handed to MAAS.

use capmaas_core::Lookup;
use capmaas_core::machine::{Format, Observed, ends_swap};

use super::{Carried, Context};
use crate::kubernetes::Key;

/// The format of the bootstrap data, if it matters now and the previous pass has not read it.
pub(super) async fn bootstrap(
    context: &Context,
    key: &Key,
    observed: &Observed,
    known: &mut Carried,
) -> Lookup<Format> {
    let format = match known.bootstrap.take() {
        Some(format) => Lookup::Found(format),
        None => read(context, key, observed).await,
    };
    if let Lookup::Found(format) = &format {
        known.bootstrap = Some(format.clone());
    }
    format
}

async fn read(context: &Context, key: &Key, observed: &Observed) -> Lookup<Format> {
    let leaving = observed.object.metadata.deletion_timestamp.is_some();
    let provisioned = observed.object.status.as_ref().is_some_and(|status| status.ready);
    if leaving || provisioned {
        return Lookup::Unknown("the bootstrap data was not read".into());
    }
    let name = match &observed.machine {
        Lookup::Found(machine) => match machine.bootstrap_secret() {
            Some(name) => name.to_owned(),
            None => return Lookup::Absent,
        },
        Lookup::Absent => return Lookup::Absent,
        Lookup::Unknown(why) => return Lookup::Unknown(why.clone()),
    };
    match Lookup::from(context.kubernetes.secret(&key.beside(name)).await) {
        Lookup::Found(secret) if secret.bytes("value").is_none() => Lookup::Absent,
        Lookup::Found(secret) => Lookup::Found(match secret.text("format") {
            None | Some("" | "cloud-config") => {
                Format::CloudConfig { ends_swap: secret.text("value").is_some_and(ends_swap) }
            }
            Some("ignition") => Format::Ignition,
            Some(other) => Format::Other(other.to_owned()),
        }),
        Lookup::Absent => Lookup::Absent,
        Lookup::Unknown(why) => Lookup::Unknown(why),
    }
}
