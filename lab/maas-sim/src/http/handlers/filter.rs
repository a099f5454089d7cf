//! The filters of lists of machines, devices and nodes.

use std::collections::BTreeSet;

use super::super::forms::Form;
use crate::model::{
    Model, Outcome, Status,
    allocate::OPTIONS,
    db::Machine,
    machines::is_mac,
    refusal::FormCheck,
    wanted::{Parameters, Wanted, no_choice},
};
use crate::version::Change;

/// List filters that are not constraints of an allocation.
const FILTERS: &[&str] = &["hostname", "id", "mac_address", "domain", "agent_name", "status"];
/// Filters that were added later, all at once.
const MANY_FILTERS: &[&str] = &["system_id", "not_id", "not_hostname", "not_domain", "not_agent_name", "not_status"];

/// The parsed filter of a list; parsed once, because there may be ten thousand machines.
pub(super) struct Filter<'a> {
    query: &'a Form,
    wanted: Wanted,
    statuses: Vec<Status>,
    not_statuses: Vec<Status>,
    hostnames: Vec<&'a str>,
    domains: Vec<&'a str>,
    agents: Vec<&'a str>,
    macs: Vec<&'a str>,
    not_hostnames: Vec<&'a str>,
    not_domains: Vec<&'a str>,
    not_agents: Vec<&'a str>,
    not_ids: Vec<&'a str>,
}

impl<'a> Filter<'a> {
    pub(super) fn read(model: &Model, query: &'a Form) -> Outcome<Self> {
        let mut check = FormCheck::default();
        let known = |key: &str| {
            FILTERS.contains(&key)
                || OPTIONS.contains(&key)
                || key.starts_with("oauth_")
                || (MANY_FILTERS.contains(&key) && model.version.has(Change::ManyFilters))
        };
        let wanted = model.parse_wanted(Parameters(&query.pairs), known, &mut check);
        let mut statuses = |field: &str| -> Vec<Status> {
            let words = query.all_texts(field);
            let read = |word: &str| Status::ALL.iter().copied().find(|status| status.filter_word() == word);
            no_choice(&mut check, field, words.iter().find(|word| read(word).is_none()));
            words.iter().filter_map(|word| read(word)).collect()
        };
        let (statuses, not_statuses) = (statuses("status"), statuses("not_status"));
        for mac in query.all("mac_address").iter().filter(|mac| !is_mac(mac)) {
            check.add("mac_address", format!("'{mac}' is not a valid MAC address."));
        }
        check.done()?;
        Ok(Self {
            query,
            wanted,
            statuses,
            not_statuses,
            hostnames: query.all("hostname"),
            domains: query.all("domain"),
            agents: query.all("agent_name"),
            macs: query.all("mac_address"),
            not_hostnames: query.all("not_hostname"),
            not_domains: query.all("not_domain"),
            not_agents: query.all("not_agent_name"),
            not_ids: query.all("not_id"),
        })
    }

    /// The requested ids, if any.
    pub(super) fn ids(&self) -> Option<BTreeSet<&'a str>> {
        let ids = self.query.all("id");
        (!ids.is_empty()).then(|| ids.into_iter().collect())
    }

    pub(super) fn fits(&self, model: &Model, node: &Machine) -> bool {
        let one_of = |wanted: &[&str], value: &str| wanted.is_empty() || wanted.contains(&value);
        let domain = model.db.domains.get(&node.domain).map_or("", |domain| domain.name.as_str());
        one_of(&self.hostnames, &node.hostname)
            && one_of(&self.domains, domain)
            && one_of(&self.agents, &node.agent_name)
            && (self.macs.is_empty() || self.macs.iter().any(|mac| node.has_mac(mac)))
            && (self.statuses.is_empty() || self.statuses.contains(&node.status))
            && !self.not_statuses.contains(&node.status)
            && !self.not_hostnames.contains(&node.hostname.as_str())
            && !self.not_domains.contains(&domain)
            && !self.not_agents.contains(&node.agent_name.as_str())
            && !self.not_ids.contains(&node.system_id.as_str())
            && model.fits(node, &self.wanted)
    }
}
