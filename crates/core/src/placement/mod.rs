//! Which LXD host a VM is placed on, and why no other.
//!
//! A pure function of what MAAS shows, of the existing claims and of where the VM's siblings are. The order of the input does not
//! matter, so two managers that see the same choose the same. It is computed in every pass until the choice is in the journal;
//! from then on the journal is a [`Claim`] that every other placement counts.

mod fit;
mod host;
mod verdict;

use std::cmp::Reverse;
use std::collections::{BTreeMap, BTreeSet};

use capmaas_api::lxd_error::{LxdError, LxdErrorKind};

use crate::intent::Vm;

pub use host::{
    Claim, Host, HostMachine, LEAVING_TAG, MAAS_PROFILE, MAINTENANCE_TAG, MAINTENANCE_TAGS, Named, Port, Room, Sibling,
    StoragePool, SubnetRef, is_closing,
};
pub use verdict::{Attachment, Choice, Placement, Verdict, Why};

/// What is to be placed.
#[derive(Debug, Clone, Copy)]
pub struct Demand<'a> {
    pub vm: &'a Vm,
    /// Its zone: the Machine's failure domain, otherwise the spec's. `None`: we spread over the zones.
    pub zone: Option<&'a str>,
    /// Hosts that failed for this machine: they are not tried again.
    pub failed: &'a BTreeSet<i64>,
}

/// What is claimed on a host and not yet in MAAS's figures.
#[derive(Debug, Clone, Copy, Default)]
struct Promised<'a> {
    claims: &'a [Claim],
}

impl Promised<'_> {
    fn cores(self) -> i64 {
        self.claims.iter().fold(0, |sum, claim| sum.saturating_add(i64::from(claim.cores)))
    }

    fn memory(self) -> i64 {
        self.claims.iter().fold(0, |sum, claim| sum.saturating_add(i64::from(claim.memory)))
    }

    /// Bytes in one storage pool; a claim that names none may be in any.
    fn bytes(self, pool: &str) -> i64 {
        let of = |claim: &&Claim| claim.storage_pool.as_deref().is_none_or(|name| name == pool);
        self.claims.iter().filter(of).fold(0, |sum, claim| sum.saturating_add(bytes(claim.disk)))
    }
}

/// Bytes of a disk of this many GB.
fn bytes(gigabytes: u32) -> i64 {
    i64::from(gigabytes) * 1_000_000_000
}

/// Chooses a host. Every host gets a verdict.
pub fn place(demand: &Demand<'_>, hosts: &[Host], claims: &[Claim], siblings: &[Sibling]) -> Placement {
    let mut claims: Vec<Claim> = claims.to_vec();
    claims.sort_by_key(|claim| claim.host);
    let promised = |host: i64| {
        let from = claims.partition_point(|claim| claim.host < host);
        let to = claims.partition_point(|claim| claim.host <= host);
        Promised { claims: claims.get(from..to).unwrap_or_default() }
    };
    let mut in_zone: BTreeMap<&str, usize> = BTreeMap::new();
    let mut on_host: BTreeMap<i64, usize> = BTreeMap::new();
    for sibling in siblings {
        if let Some(zone) = &sibling.zone {
            *in_zone.entry(zone).or_default() += 1;
        }
        if let Some(host) = sibling.host {
            *on_host.entry(host).or_default() += 1;
        }
    }

    let mut verdicts: Vec<Verdict> = Vec::with_capacity(hosts.len());
    let mut best: Option<(_, usize, fit::Fits<'_>)> = None;
    for host in hosts {
        let near = host.zone.as_ref().map_or(0, |zone| in_zone.get(zone.name.as_str()).copied().unwrap_or(0));
        let beside = on_host.get(&host.id).copied().unwrap_or(0);
        let why = match fit::fit(demand, host, promised(host.id)) {
            Err(why) => why,
            Ok(fits) => {
                // In a requested zone, all hosts have the same number of siblings in their zone.
                let rank = (host.departing, near, beside, Reverse(fits.more), host.name.as_str(), host.id);
                let more = fits.more;
                if best.as_ref().is_none_or(|(before, ..)| rank < *before) {
                    best = Some((rank, verdicts.len(), fits));
                }
                let (siblings_in_zone, siblings_on_host, room_for) = (near, beside, more);
                if host.departing {
                    Why::Departing { siblings_in_zone, siblings_on_host, room_for }
                } else {
                    Why::Behind { siblings_in_zone, siblings_on_host, room_for }
                }
            }
        };
        verdicts.push(Verdict { host: host.id, name: host.name.clone(), why });
    }
    let choice = match best {
        Some((_, index, fits)) => {
            if let Some(verdict) = verdicts.get_mut(index)
                && let Why::Behind { siblings_in_zone, siblings_on_host, room_for }
                | Why::Departing { siblings_in_zone, siblings_on_host, room_for } = verdict.why
            {
                verdict.why = Why::Chosen { siblings_in_zone, siblings_on_host, room_for };
            }
            Ok(fits.choice())
        }
        None => Err(refusal(demand, &verdicts)),
    };
    verdicts.sort_by(|a, b| (a.rank(), &a.name, a.host).cmp(&(b.rank(), &b.name, b.host)));
    Placement { choice, verdicts }
}

/// Whether a host matches the requested name, zone, pool and tags. The others need not be read in more detail.
pub fn is_wanted(demand: &Demand<'_>, host: &Host) -> bool {
    fit::named(demand, host).is_ok()
}

/// The error names what excluded the hosts that passed the most checks: those are the closest to the request.
fn refusal(demand: &Demand<'_>, verdicts: &[Verdict]) -> LxdError {
    let vm = demand.vm;
    let Some(furthest) = verdicts.iter().map(|verdict| verdict.why.stage()).max() else {
        return LxdError::new(
            LxdErrorKind::HostUnavailable,
            "MAAS has no LXD VM host; register one, or create a cluster with lxdControlPlaneCluster: true",
        );
    };
    let there: Vec<&Verdict> = verdicts.iter().filter(|verdict| verdict.why.stage() == furthest).collect();
    let kind = there.iter().map(|verdict| verdict.why.kind()).max_by_key(|kind| kind.is_retryable());
    let kind = kind.unwrap_or(LxdErrorKind::HostUnavailable);
    let tally = verdict::tally(verdicts.iter());
    let message = match (kind, vm.profile.as_deref(), vm.project.as_deref()) {
        (LxdErrorKind::ProfileNotFound, Some(profile), _) if profile != MAAS_PROFILE => format!(
            "MAAS gives VMs the profile {MAAS_PROFILE:?} of their project and no other, so {profile:?} cannot be \
             used: put what it sets into {MAAS_PROFILE:?} and name that, or remove lxdConfig.profile"
        ),
        (LxdErrorKind::ProfileNotFound, Some(profile), _) => format!(
            "no LXD host that fits otherwise reports the profile {profile:?}: {tally}; create the profile in the \
             host's project and have lxd-initializer run there, or remove lxdConfig.profile"
        ),
        (LxdErrorKind::ProjectNotFound, _, Some(project)) => format!(
            "no LXD host that fits otherwise is registered with the project {project:?}: {tally}; register one, or \
             remove lxdConfig.project"
        ),
        (LxdErrorKind::InsufficientResources, ..) => format!(
            "no LXD host has {} cores, {} MB of memory and {} GB of disk left: {tally}; add a host, free some, or ask \
             for less",
            vm.cores, vm.memory, vm.disk
        ),
        _ => format!("none of {} LXD hosts can take the VM: {tally}", verdicts.len()),
    };
    let error = LxdError::new(kind, message);
    match there.as_slice() {
        [only] => error.on_host(only.name.clone()),
        _ => error,
    }
}

#[cfg(test)]
mod tests;
