//! What agents on LXD hosts report and MAAS does not show. Filled by passes over host clusters, which read the Nodes.

use std::collections::{BTreeMap, BTreeSet};
use std::sync::{Arc, Mutex, PoisonError};

use jiff::{SignedDuration, Timestamp};

use crate::clock::is_recent;
use crate::identity::Identity;

/// How long a report is valid. The hosts of a healthy cluster are observed every five minutes; an older report comes
/// from a cluster that is no longer reconciled, or does not answer.
const KEPT: SignedDuration = SignedDuration::from_mins(10);

/// What an agent reports about its host.
#[derive(Clone, Debug, Default, PartialEq, Eq)]
pub struct Report {
    /// The LXD profiles of its project; `None` if not reported.
    pub profiles: Option<BTreeSet<String>>,
    /// The instances in its project; `None` if not reported. The agent may have observed them up to a minute before
    /// they were read, and they are as old as this report: an instance created since then is missing.
    pub instances: Option<BTreeSet<String>>,
}

/// By MAAS and system ID of the machine that the agent runs on: when it was read, and the report.
type ByMachine = BTreeMap<(String, String), (Timestamp, Report)>;

/// The reports of all agents. Clones share them.
#[derive(Clone, Debug, Default)]
pub struct Reports {
    reports: Arc<Mutex<ByMachine>>,
}

impl Reports {
    /// Stores the current report of the agent on a machine of this MAAS; `None` if there is none any more.
    pub fn note(&self, identity: &Identity, system_id: &str, report: Option<Report>, now: Timestamp) {
        let key = (identity.endpoint().to_owned(), system_id.to_owned());
        let mut reports = self.reports.lock().unwrap_or_else(PoisonError::into_inner);
        reports.retain(|_, (read, _)| is_recent(*read, KEPT, now));
        match report {
            Some(report) => drop(reports.insert(key, (now, report))),
            None => drop(reports.remove(&key)),
        }
    }

    /// The report about a machine of this MAAS.
    pub fn of(&self, identity: &Identity, system_id: &str, now: Timestamp) -> Option<Report> {
        let key = (identity.endpoint().to_owned(), system_id.to_owned());
        let reports = self.reports.lock().unwrap_or_else(PoisonError::into_inner);
        let (read, report) = reports.get(&key)?;
        is_recent(*read, KEPT, now).then(|| report.clone())
    }
}
