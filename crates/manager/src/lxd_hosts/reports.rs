//! What agents on LXD hosts report and MAAS does not show. Whoever reads the Nodes of a host cluster notes it here.

use std::collections::{BTreeMap, BTreeSet};
use std::sync::{Arc, Mutex, PoisonError};

use crate::identity::Identity;

/// What an agent reports about its host.
#[derive(Clone, Debug, Default, PartialEq, Eq)]
pub struct Report {
    /// The LXD profiles of its project; `None` if it does not tell.
    pub profiles: Option<BTreeSet<String>>,
}

/// Reports by MAAS and system ID of the machine that the agent runs on.
#[derive(Clone, Debug, Default)]
pub struct Reports {
    reports: Arc<Mutex<BTreeMap<(String, String), Report>>>,
}

impl Reports {
    /// Notes what the agent on a machine of this MAAS says now; `None` if it is not there any more.
    pub fn note(&self, identity: &Identity, system_id: &str, report: Option<Report>) {
        let key = (identity.endpoint().to_owned(), system_id.to_owned());
        let mut reports = self.reports.lock().unwrap_or_else(PoisonError::into_inner);
        match report {
            Some(report) => drop(reports.insert(key, report)),
            None => drop(reports.remove(&key)),
        }
    }

    /// What is known about a machine of this MAAS.
    pub fn of(&self, identity: &Identity, system_id: &str) -> Option<Report> {
        let key = (identity.endpoint().to_owned(), system_id.to_owned());
        self.reports.lock().unwrap_or_else(PoisonError::into_inner).get(&key).cloned()
    }
}
