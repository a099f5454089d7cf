//! The only place that deletes a machine from MAAS (S27).

use maas_client::{Client, Error};

/// Why a VM was not removed.
#[derive(Debug)]
pub(crate) enum NotRemoved {
    /// It is not a VM of any VM host; the message says so.
    NoVm(String),
    /// MAAS does not know it, which is what the caller wants.
    Gone,
    /// MAAS did not answer as expected.
    Maas(Error),
}

/// Removes a VM from MAAS and from its host. A machine that MAAS does not show as a VM of a VM host is left alone,
/// whatever a journal, a debt or a spec says: deleted bare metal keeps running, and nothing tracks it any more.
pub(crate) async fn remove_vm(client: &Client, system_id: &str) -> Result<(), NotRemoved> {
    let told = |error: Error| if error.is_not_found() { NotRemoved::Gone } else { NotRemoved::Maas(error) };
    let machine = client.machines().read(system_id).await.map_err(told)?;
    if !machine.is_vm() {
        return Err(NotRemoved::NoVm(format!("{system_id} is not a VM of any VM host in MAAS, so it is not deleted")));
    }
    #[expect(clippy::disallowed_methods, reason = "the one place")]
    client.machines().delete(system_id).await.map_err(told)
}
