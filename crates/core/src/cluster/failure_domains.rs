//! The zones that are published as failure domains, and in which format.

use capmaas_api::failure_domains::{FailureDomainDetails, FailureDomains, NamedFailureDomain};
use capmaas_api::{Severity, conditions, reasons};

use super::observed::{Contract, Observed};
use crate::Lookup;
use crate::conditions::Verdict;

/// The failure domains to publish. If they cannot be read, the stored ones stay, in the format of the current contract.
pub(super) fn publish(observed: &Observed) -> Option<FailureDomains> {
    let spec = &observed.object.spec;
    let mut names: Vec<String> = Vec::new();
    if spec.failure_domains.iter().any(|name| !name.is_empty()) {
        for name in spec.failure_domains.iter().filter(|name| !name.is_empty()) {
            if !names.contains(name) {
                names.push(name.clone());
            }
        }
    } else if spec.discover_failure_domains == Some(true) {
        match &observed.usable_zones {
            Some(Lookup::Found(zones)) => names.extend(zones.iter().cloned()),
            _ => return shaped(stored(observed), observed.contract),
        }
    }
    let details = FailureDomainDetails { control_plane: Some(true), ..FailureDomainDetails::default() };
    shaped(names.into_iter().map(|name| (name, details.clone())).collect(), observed.contract)
}

fn stored(observed: &Observed) -> Vec<(String, FailureDomainDetails)> {
    let entries = observed.object.status.failure_domains.iter().flat_map(FailureDomains::entries);
    entries.map(|(name, details)| (name.to_owned(), details.clone())).collect()
}

/// No domains means no field: Cluster API from v1.11 on rejects an empty list.
fn shaped(domains: Vec<(String, FailureDomainDetails)>, contract: Contract) -> Option<FailureDomains> {
    if domains.is_empty() {
        return None;
    }
    Some(match contract {
        Contract::Map => FailureDomains::Map(domains.into_iter().collect()),
        Contract::List => FailureDomains::List(
            domains.into_iter().map(|(name, details)| NamedFailureDomain { name, details }).collect(),
        ),
    })
}

/// What is wrong with the names in the spec. They are published anyway: the zone may be created later.
pub(super) fn problem(observed: &Observed) -> Option<Verdict> {
    let Some(Lookup::Found(zones)) = &observed.zones else { return None };
    let named = observed.object.spec.failure_domains.iter().filter(|name| !name.is_empty());
    let missing: Vec<&str> = named.filter(|name| !zones.contains(*name)).map(String::as_str).collect();
    (!missing.is_empty()).then(|| {
        let message = format!("spec.failureDomains names zones that MAAS does not have: {}", missing.join(", "));
        Verdict::fault(conditions::READY, Severity::Warning, reasons::ZONE_NOT_FOUND, message)
    })
}
