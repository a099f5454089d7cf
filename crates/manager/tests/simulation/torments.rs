//! Faults other than crashes and lost requests, and the invariants that came with them. Each can be switched.

/// A fault, or an invariant that not every state of the product keeps.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub(crate) enum Torment {
    /// Invariant: a request that MAAS refused, or a write of a DNS record that failed, is not repeated before its backoff
    /// is over (S26).
    BackOff,
    /// Invariant: a machine whose object is gone is free and off, also a minute later (S14).
    StaysOff,
    /// BMCs that need many seconds to turn a machine on or off.
    SlowBmcs,
    /// MAAS refuses the first writes of DNS records.
    RefusedNames,
    /// People edit specs in a way that leads to requests which MAAS refuses.
    Edits,
    /// People break journals and repair them.
    BrokenJournals,
    /// People change the mode of a machine, or forge debts.
    ForgedDebts,
    /// Machines are copied with their annotations, next to the original or into another namespace, and the copies are
    /// deleted.
    Copies,
    /// The MaasCluster is copied with its annotations into another namespace, and the copy is deleted.
    ClusterCopies,
    /// Another cluster claims the DNS name of this one.
    Namesakes,
    /// Another user of MAAS puts a machine of his own under the idempotency key of one of ours.
    ForeignKeys,
    /// Somebody names a VM that is not ours in an annotation, and deletes the object.
    NamedVms,
    /// A second tenant with its own MAAS and identity.
    Tenants,
    /// The machines in the second tenant's MAAS have the same IDs as ours.
    ClonedIds,
    /// The second tenant's MAAS accepts requests and never answers, until all others have settled.
    Hanging,
    /// The manager's clock is ahead or behind for a while.
    ClockJumps,
    /// LXD hosts are put into maintenance or deleted under control planes that have to be complete all the time.
    Evacuation,
}

use Torment::{
    BackOff, BrokenJournals, ClockJumps, ClonedIds, ClusterCopies, Copies, Edits, Evacuation, ForeignKeys, ForgedDebts,
    Hanging, NamedVms, Namesakes, RefusedNames, SlowBmcs, StaysOff, Tenants,
};

const ALL: [Torment; 17] = [
    BackOff,
    StaysOff,
    SlowBmcs,
    RefusedNames,
    Edits,
    BrokenJournals,
    ForgedDebts,
    Copies,
    ClusterCopies,
    Namesakes,
    ForeignKeys,
    NamedVms,
    Tenants,
    ClonedIds,
    Hanging,
    ClockJumps,
    Evacuation,
];

/// Those that are off because the product does not pass them yet. `CAPMAAS_TORMENTS` selects others: `all`, or an
/// exhaustive comma-separated list.
const NOT_YET: &[Torment] = &[];

impl Torment {
    pub(crate) fn is_on(self) -> bool {
        static CHOSEN: std::sync::LazyLock<Vec<Torment>> = std::sync::LazyLock::new(chosen);
        CHOSEN.contains(&self)
    }
}

fn chosen() -> Vec<Torment> {
    match std::env::var("CAPMAAS_TORMENTS").as_deref() {
        Err(_) => ALL.into_iter().filter(|torment| !NOT_YET.contains(torment)).collect(),
        Ok("all") => ALL.to_vec(),
        Ok(names) => {
            let names: Vec<&str> = names.split(',').map(str::trim).filter(|name| !name.is_empty()).collect();
            let known: Vec<String> = ALL.iter().map(|torment| format!("{torment:?}")).collect();
            if let Some(unknown) = names.iter().find(|name| !known.iter().any(|known| known == *name)) {
                panic!("CAPMAAS_TORMENTS: {unknown} is none of {known:?}");
            }
            ALL.into_iter().filter(|torment| names.contains(&format!("{torment:?}").as_str())).collect()
        }
    }
}
