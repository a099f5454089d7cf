//! The event log.

use crate::Client;
use crate::call::Call;
use crate::error::Result;
use crate::machines::MachineStatus;
use crate::tolerant::wire_type;

wire_type! {
    /// Something that happened to a machine.
    Event {
        required {
            /// Increases with every event, until a backup of MAAS is restored: then ids are reused.
            id: i64,
        }
        /// DEBUG, INFO, WARNING, ERROR, CRITICAL or AUDIT.
        level: Option<String>,
        /// The event type, a fixed text: `Node changed status`, `Deployed`.
        #[serde(rename = "type")]
        kind: Option<String>,
        /// Details, as free text.
        description: Option<String>,
        /// The machine's system id.
        node: Option<String>,
        /// The machine's name.
        hostname: Option<String>,
        /// The user who caused it; `unknown` for MAAS itself.
        username: Option<String>,
        /// When, as MAAS formats it: `Sun, 15 Nov. 2026 20:32:02`.
        created: Option<String>,
    }
}

wire_type! {
    /// A page of the log. MAAS's links to further pages are omitted: on an empty page they are wrong.
    EventPage {
        required {
            /// The newest first.
            events: Vec<Event>,
        }
    }
}

impl Event {
    /// The states that the machine left and entered, if the event is a status change.
    pub fn status_change(&self) -> Option<(MachineStatus, MachineStatus)> {
        // "From 'Ready' to 'Allocated' (to alice)"
        let rest = self.description.as_deref()?.strip_prefix("From '")?;
        let (from, rest) = rest.split_once("' to '")?;
        let (to, _) = rest.split_once('\'')?;
        Some((MachineStatus::from_name(from)?, MachineStatus::from_name(to)?))
    }
}

/// The minimum level of the requested events.
#[derive(Debug, Clone, Copy, PartialEq, Eq, Default)]
pub enum EventLevel {
    /// Everything, including status changes, which MAAS logs as DEBUG.
    #[default]
    Debug,
    /// The steps of deployment and release.
    Info,
    /// Problems.
    Warning,
    /// Failures.
    Error,
}

impl EventLevel {
    fn as_str(self) -> &'static str {
        match self {
            Self::Debug => "DEBUG",
            Self::Info => "INFO",
            Self::Warning => "WARNING",
            Self::Error => "ERROR",
        }
    }
}

/// Which events to request.
#[derive(Debug, Clone, Default)]
pub struct EventQuery {
    /// Only events above this id; of these, a page contains the oldest.
    pub after: Option<i64>,
    /// How many, at most 1000.
    pub limit: Option<u16>,
    /// At least this level.
    pub level: EventLevel,
    /// Only those of these machines.
    pub system_ids: Vec<String>,
}

/// MAAS's maximum page size.
pub const MAX_EVENTS: u16 = 1000;

/// Calls about events; see [`Client::events`].
#[derive(Debug, Clone, Copy)]
pub struct Events<'a> {
    client: &'a Client,
}

impl Client {
    /// The event log.
    pub fn events(&self) -> Events<'_> {
        Events { client: self }
    }
}

impl Events<'_> {
    /// A page of the log.
    pub async fn query(&self, query: &EventQuery) -> Result<EventPage> {
        let call = Call::get("events.query", "events/?op=query", &[])?
            .query("level", query.level.as_str())
            .query("limit", query.limit.unwrap_or(100).clamp(1, MAX_EVENTS))
            .query_all("after", query.after)
            .query_all("id", &query.system_ids);
        self.client.json(call).await
    }

    /// The newest event, if there is any.
    pub async fn newest(&self) -> Result<Option<Event>> {
        let page = self.query(&EventQuery { limit: Some(1), ..EventQuery::default() }).await?;
        Ok(page.events.into_iter().max_by_key(|event| event.id))
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn a_change_of_state_is_read_from_the_words() {
        let event = |description: &str| -> Event {
            serde_json::from_value(serde_json::json!({"id": 1, "description": description})).unwrap()
        };
        assert_eq!(
            event("From 'Ready' to 'Allocated' (to alice)").status_change(),
            Some((MachineStatus::Ready, MachineStatus::Allocated))
        );
        assert_eq!(
            event("From 'Releasing' to 'Releasing failed'").status_change(),
            Some((MachineStatus::Releasing, MachineStatus::ReleasingFailed))
        );
        for other in ["", "(alice) - comment", "From 'Ready' to '", "From 'Ready' to 'Nosuch'"] {
            assert_eq!(event(other).status_change(), None, "{other}");
        }
    }
}
