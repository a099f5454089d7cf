//! What agents on LXD hosts report and MAAS does not show. Whoever reads the Nodes of a host cluster notes it here.

use std::collections::{BTreeMap, BTreeSet};
use std::sync::{Arc, Mutex, PoisonError};

use jiff::{SignedDuration, Timestamp};

use crate::clock::is_recent;
use crate::identity::Identity;

/// How long a report counts. The hosts of a cluster that is well are looked at every five minutes; one that is older comes from
/// a cluster that is no longer looked at, or does not answer.
const KEPT: SignedDuration = SignedDuration::from_mins(10);

/// What an agent reports about its host.
#[derive(Clone, Debug, Default, PartialEq, Eq)]
pub struct Report {
    /// The LXD profiles of its project; `None` if it does not tell.
    pub profiles: Option<BTreeSet<String>>,
    /// The instances in its project; `None` if it does not tell. They are as the agent saw them up to a minute before they were
    /// read, and as old as this report: one that was made meanwhile is not among them.
    pub instances: Option<BTreeSet<String>>,
}

/// By MAAS and system ID of the machine that the agent runs on: when it was read, and what it said.
type ByMachine = BTreeMap<(String, String), (Timestamp, Report)>;

/// What is known of all agents. Clones share it.
#[derive(Clone, Debug, Default)]
pub struct Reports {
    reports: Arc<Mutex<ByMachine>>,
}

impl Reports {
    /// Notes what the agent on a machine of this MAAS says now; `None` if it says nothing any more.
    pub fn note(&self, identity: &Identity, system_id: &str, report: Option<Report>, now: Timestamp) {
        let key = (identity.endpoint().to_owned(), system_id.to_owned());
        let mut reports = self.reports.lock().unwrap_or_else(PoisonError::into_inner);
        reports.retain(|_, (read, _)| is_recent(*read, KEPT, now));
        match report {
            Some(report) => drop(reports.insert(key, (now, report))),
            None => drop(reports.remove(&key)),
        }
    }

    /// What is known about a machine of this MAAS.
    pub fn of(&self, identity: &Identity, system_id: &str, now: Timestamp) -> Option<Report> {
        let key = (identity.endpoint().to_owned(), system_id.to_owned());
        let reports = self.reports.lock().unwrap_or_else(PoisonError::into_inner);
        let (read, report) = reports.get(&key)?;
        is_recent(*read, KEPT, now).then(|| report.clone())
    }
}
