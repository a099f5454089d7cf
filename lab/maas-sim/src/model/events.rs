//! The event log and its queries.

use std::borrow::Cow;

use super::{
    Model, Outcome, Refusal,
    db::{Event, Level, Table},
    machines::is_mac,
};

impl Model {
    /// Logs an event of a machine. The last one of level INFO or above is the machine's `status_message`.
    pub fn event(&mut self, system_id: &str, level: Level, kind: &'static str, description: &str) {
        self.log(system_id, level, Cow::Borrowed(kind), description.to_owned(), "unknown");
    }

    /// Logs the DEBUG event of a user's action: "(alice) - comment".
    pub fn user_event(&mut self, system_id: &str, kind: &'static str, user: i64, comment: Option<&str>) {
        let name = self.user_name(Some(user)).to_owned();
        let description = match comment {
            Some(comment) if !comment.is_empty() => format!("({name}) - {comment}"),
            _ => format!("({name})"),
        };
        self.log(system_id, Level::Debug, Cow::Borrowed(kind), description, &name);
    }

    /// Logs any event.
    pub fn log(&mut self, node: &str, level: Level, kind: Cow<'static, str>, description: String, username: &str) {
        let id = self.db.sequences.take(Table::Event);
        let mut hostname = String::new();
        if let Some(machine) = self.db.machines.get_mut(node) {
            hostname.clone_from(&machine.hostname);
            if level >= Level::Info {
                let message = if description.is_empty() { kind.to_string() } else { format!("{kind} - {description}") };
                machine.status_message = Some(message);
            }
        } else if let Some(rack) = self.db.racks.iter().find(|rack| rack.system_id == node) {
            hostname.clone_from(&rack.hostname);
        }
        self.db.events.push(Event {
            id,
            node: node.to_owned(),
            hostname,
            level,
            kind,
            description,
            username: username.to_owned(),
            created: self.now,
        });
    }
}

/// A query of the event log.
#[derive(Debug, Default)]
pub struct EventQuery {
    /// Machines by system id; empty means all.
    pub ids: Vec<String>,
    /// Machines by host name.
    pub hostnames: Vec<String>,
    /// Machines by MAC address.
    pub macs: Vec<String>,
    /// Machines by domain.
    pub domains: Vec<String>,
    /// Machines by zone.
    pub zones: Vec<String>,
    /// Machines by resource pool.
    pub pools: Vec<String>,
    /// Machines by agent name.
    pub agent_name: Option<String>,
    /// The user who caused it.
    pub owner: Option<String>,
    /// The minimum level.
    pub level: Option<String>,
    /// The maximum number.
    pub limit: Option<String>,
    /// Only newer than this id; the oldest first if truncated.
    pub after: Option<String>,
    /// Only older than this id.
    pub before: Option<String>,
}

/// A page of events, newest first, with the cursors of the neighbouring pages.
#[derive(Debug)]
pub struct EventPage {
    /// Positions in the log.
    pub rows: Vec<usize>,
    /// `after` of the next page.
    pub next_after: Option<i64>,
    /// `before` of the previous page; `None`: there is none.
    pub prev_before: Option<i64>,
}

const DEFAULT_LIMIT: usize = 100;
const MAX_LIMIT: i64 = 1000;

impl Model {
    /// Answers `op=query` for a user, administrator or not.
    pub fn query_events(&self, query: &EventQuery, user: i64) -> Outcome<EventPage> {
        let number = |name: &str, value: &Option<String>| -> Outcome<Option<i64>> {
            match value.as_deref() {
                None | Some("") => Ok(None),
                Some(text) => text
                    .trim()
                    .parse()
                    .map(Some)
                    .map_err(|_| Refusal::bad_request(format!("Invalid {name}: Please enter an integer value"))),
            }
        };
        let after = number("after", &query.after)?;
        let before = number("before", &query.before)?;
        let limit = number("limit", &query.limit)?;
        if limit.is_some_and(|limit| limit > MAX_LIMIT) {
            return Err(Refusal::bad_request(format!(
                "Requested number of events {} is greater than limit: {MAX_LIMIT}",
                limit.unwrap_or(0)
            )));
        }
        let limit = limit.map_or(DEFAULT_LIMIT, |limit| usize::try_from(limit.max(1)).unwrap_or(1));
        let wrong: Vec<&str> = query.macs.iter().map(String::as_str).filter(|mac| !is_mac(mac)).collect();
        if !wrong.is_empty() {
            return Err(Refusal::bad_request(format!("Invalid MAC address(es): {}", wrong.join(", "))));
        }
        let level = match query.level.as_deref() {
            None => Level::Info,
            Some(word) => {
                Level::parse(word).ok_or_else(|| Refusal::bad_request(format!("Unrecognised log level: {word}")))?
            }
        };
        if after.is_some() && before.is_some() {
            return Err(Refusal::bad_request(
                "There is undetermined behaviour when both `after` and `before` are specified.",
            ));
        }
        let admin = self.db.users.get(&user).is_some_and(|user| user.admin);
        let wanted = |event: &Event| self.event_matches(query, event, level, admin, user);
        let events = &self.db.events;
        let mut rows: Vec<usize> = if let Some(after) = after {
            // The oldest above the cursor, so that a reader that pages forward misses nothing.
            let start = events.partition_point(|event| event.id <= after);
            let mut rows: Vec<usize> = (start..events.len()).filter(|row| wanted(&events[*row])).take(limit).collect();
            rows.reverse();
            rows
        } else {
            let end = before.map_or(events.len(), |before| events.partition_point(|event| event.id < before));
            (0..end).rev().filter(|row| wanted(&events[*row])).take(limit).collect()
        };
        rows.truncate(limit);
        let newest = rows.first().map(|row| events[*row].id);
        let oldest = rows.last().map(|row| events[*row].id);
        let (next_after, prev_before) = match (newest, oldest) {
            (Some(newest), Some(oldest)) => (Some(newest), Some(oldest)),
            _ => (before.map(|before| before - 1), after.map(|after| after + 1)),
        };
        Ok(EventPage { rows, next_after, prev_before })
    }

    fn event_matches(&self, query: &EventQuery, event: &Event, level: Level, admin: bool, user: i64) -> bool {
        // AUDIT is a separate log.
        let level_fits = if level == Level::Audit { event.level == level } else { event.level >= level };
        if !level_fits {
            return false;
        }
        if query.owner.as_ref().is_some_and(|owner| *owner != event.username) {
            return false;
        }
        if !query.ids.is_empty() && !query.ids.contains(&event.node) {
            return false;
        }
        let machine = self.db.machines.get(&event.node);
        // Events of a deleted node stay in the database, and only the audit log shows them.
        let is_there = machine.is_some() || self.db.racks.iter().any(|rack| rack.system_id == event.node);
        if !is_there && level != Level::Audit {
            return false;
        }
        if !admin && machine.is_some_and(|machine| machine.owner.is_some_and(|owner| owner != user)) {
            return false;
        }
        let hostname = machine.map_or(event.hostname.as_str(), |machine| machine.hostname.as_str());
        if !query.hostnames.is_empty() && !query.hostnames.iter().any(|name| name == hostname) {
            return false;
        }
        let restricts = !query.macs.is_empty()
            || !query.domains.is_empty()
            || !query.zones.is_empty()
            || !query.pools.is_empty()
            || query.agent_name.is_some();
        if !restricts {
            return true;
        }
        let Some(machine) = machine else { return false };
        let in_zone = |names: &[String]| {
            names.is_empty() || self.db.zones.get(&machine.zone).is_some_and(|zone| names.contains(&zone.name))
        };
        let in_pool = |names: &[String]| {
            names.is_empty() || self.db.pools.get(&machine.pool).is_some_and(|pool| names.contains(&pool.name))
        };
        let in_domain = |names: &[String]| {
            names.is_empty() || self.db.domains.get(&machine.domain).is_some_and(|domain| names.contains(&domain.name))
        };
        let has_mac = query.macs.is_empty()
            || machine.interfaces.iter().any(|nic| query.macs.iter().any(|mac| nic.mac.eq_ignore_ascii_case(mac)));
        has_mac
            && in_zone(&query.zones)
            && in_pool(&query.pools)
            && in_domain(&query.domains)
            && query.agent_name.as_ref().is_none_or(|name| *name == machine.agent_name)
    }
}
