//! The event log, and a change feed made of it.

use crate::Client;
use crate::call::Call;
use crate::error::Result;
use crate::machines::MachineStatus;
use crate::tolerant::wire_type;

wire_type! {
    /// Something that happened to a machine.
    Event {
        required {
            /// Grows with every event, until a backup of MAAS is restored: then numbers come again.
            id: i64,
        }
        /// DEBUG, INFO, WARNING, ERROR, CRITICAL or AUDIT.
        level: Option<String>,
        /// What, in a few fixed words: `Node changed status`, `Deployed`.
        #[serde(rename = "type")]
        kind: Option<String>,
        /// The details, for people.
        description: Option<String>,
        /// The machine's system id.
        node: Option<String>,
        /// The machine's name.
        hostname: Option<String>,
        /// Who did it; `unknown` for MAAS itself.
        username: Option<String>,
        /// When, as MAAS words it: `Sun, 15 Nov. 2026 20:32:02`.
        created: Option<String>,
    }
}

wire_type! {
    /// A page of the log. MAAS's links to further pages are left away: on an empty page they lead astray.
    EventPage {
        required {
            /// The newest first.
            events: Vec<Event>,
        }
    }
}

impl Event {
    /// The states that the machine left and entered, if the event is about that.
    pub fn status_change(&self) -> Option<(MachineStatus, MachineStatus)> {
        // "From 'Ready' to 'Allocated' (to alice)"
        let rest = self.description.as_deref()?.strip_prefix("From '")?;
        let (from, rest) = rest.split_once("' to '")?;
        let (to, _) = rest.split_once('\'')?;
        Some((MachineStatus::from_name(from)?, MachineStatus::from_name(to)?))
    }
}

/// The least important events to ask for.
#[derive(Debug, Clone, Copy, PartialEq, Eq, Default)]
pub enum EventLevel {
    /// Everything, changes of state included: MAAS logs those as DEBUG.
    #[default]
    Debug,
    /// The steps of deployment and release.
    Info,
    /// Trouble.
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

/// Which events to ask for.
#[derive(Debug, Clone, Default)]
pub struct EventQuery {
    /// Only events above this id; of these the oldest come first onto a page.
    pub after: Option<i64>,
    /// How many, at most 1000.
    pub limit: Option<u16>,
    /// At least this important.
    pub level: EventLevel,
    /// Only those of these machines.
    pub system_ids: Vec<String>,
}

/// The largest page that MAAS gives.
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

/// Follows the event log. It is a wake-up call, not a record: a transaction that commits late may slip a lower number
/// in behind the cursor, and deletions are not logged. So also read everything now and then.
///
/// The cursor is our own. Each question also asks for the event that the cursor stands on: if that one is missing or
/// different, MAAS was restored from a backup and gives out numbers again, and everything must be read anew.
#[derive(Debug, Clone, Default)]
pub struct ChangeFeed {
    state: State,
}

#[derive(Debug, Clone, Default)]
enum State {
    /// Nothing is known.
    #[default]
    New,
    /// The log was empty.
    Empty,
    /// The last event seen.
    At(Box<Event>),
}

/// What happened since the last question.
#[derive(Debug, Clone, Default)]
#[non_exhaustive]
pub struct Changes {
    /// The oldest first.
    pub events: Vec<Event>,
    /// Events may have been missed, or the log is another than before: read everything.
    pub resync: bool,
    /// There is more: ask again at once.
    pub more: bool,
}

impl ChangeFeed {
    /// A feed that starts now. Its first answer asks for a resync.
    pub fn new() -> Self {
        Self::default()
    }

    /// The number of the last event seen.
    pub fn cursor(&self) -> Option<i64> {
        match &self.state {
            State::At(event) => Some(event.id),
            State::New | State::Empty => None,
        }
    }

    /// What happened since the last question. After an error the same question may be asked again.
    pub async fn poll(&mut self, client: &Client) -> Result<Changes> {
        let anchor = match &self.state {
            State::At(anchor) => Some(anchor.clone()),
            State::Empty => None,
            State::New => return self.restart(client).await,
        };
        // One below the cursor, so that the event under the cursor comes along.
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

/// The words may change (a machine is renamed), so the comparison is of what an event cannot lose.
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
