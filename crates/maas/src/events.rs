//! The event log, and a change feed based on it.

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

/// Follows the event log. It is a wake-up signal, not a complete record: a transaction that commits late may insert a
/// lower id behind the cursor, and deletions are not logged. So also read everything now and then.
///
/// The cursor is our own. Each query also requests the event at the cursor: if that event is missing or different, MAAS
/// was restored from a backup and reuses ids, and everything must be read again.
#[derive(Debug, Clone, Default)]
pub struct ChangeFeed {
    state: State,
}

#[derive(Debug, Clone, Default)]
enum State {
    /// Nothing is known yet.
    #[default]
    New,
    /// The log was empty.
    Empty,
    /// The last event seen.
    At(Box<Event>),
}

/// What happened since the last poll.
#[derive(Debug, Clone, Default)]
#[non_exhaustive]
pub struct Changes {
    /// Oldest first.
    pub events: Vec<Event>,
    /// Events may have been missed, or the log is a different one: read everything.
    pub resync: bool,
    /// There is more: poll again at once.
    pub more: bool,
}

impl ChangeFeed {
    /// A feed that starts now. Its first poll asks for a resync.
    pub fn new() -> Self {
        Self::default()
    }

    /// The id of the last event seen.
    pub fn cursor(&self) -> Option<i64> {
        match &self.state {
            State::At(event) => Some(event.id),
            State::New | State::Empty => None,
        }
    }

    /// What happened since the last poll. After an error the same poll may be repeated.
    pub async fn poll(&mut self, client: &Client) -> Result<Changes> {
        let anchor = match &self.state {
            State::At(anchor) => Some(anchor.clone()),
            State::Empty => None,
            State::New => return self.restart(client).await,
        };
        // One below the cursor, so that the event at the cursor is included.
        let after = anchor.as_ref().map_or(0, |anchor| anchor.id.saturating_sub(1));
        let query = EventQuery { after: Some(after), limit: Some(MAX_EVENTS), ..EventQuery::default() };
        let mut events = client.events().query(&query).await?.events;
        let more = events.len() >= usize::from(MAX_EVENTS);
        events.sort_by_key(|event| event.id);
        if let Some(anchor) = &anchor {
            match events.first() {
                Some(first) if is_same(first, anchor) => {
                    events.remove(0);
                }
                _ => return self.restart(client).await,
            }
        }
        if let Some(last) = events.last() {
            self.state = State::At(Box::new(last.clone()));
        }
        Ok(Changes { events, resync: false, more })
    }

    async fn restart(&mut self, client: &Client) -> Result<Changes> {
        let newest = client.events().newest().await?;
        self.state = newest.map_or(State::Empty, |event| State::At(Box::new(event)));
        Ok(Changes { resync: true, ..Changes::default() })
    }
}

/// Texts may change (a machine is renamed), so this compares only what cannot change in an event.
fn is_same(event: &Event, anchor: &Event) -> bool {
    event.id == anchor.id && event.created == anchor.created && event.kind == anchor.kind && event.node == anchor.node
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
