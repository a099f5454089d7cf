//! Connections to MAAS: one client per pair of endpoint and key, tried once, dropped when no longer used.

use std::collections::HashMap;
use std::sync::{Arc, Mutex, PoisonError};

use capmaas_core::credentials::{Name, Standing};
use capmaas_core::feed::Entry;
use jiff::{SignedDuration, Timestamp};
use maas_client::{Breaker, BuildError, Client, ErrorKind, Event, EventQuery, Limiter};
use secrecy::ExposeSecret as _;

use super::{Credentials, DnsNames, Fingerprint, Identity, LogEnd, MachineReader, Problem};
use crate::clock::is_recent;
use crate::lease::Fence;

/// Creates a client from credentials. Sends nothing yet.
pub type Connect = Arc<dyn Fn(&Credentials) -> Result<Client, BuildError> + Send + Sync>;

/// Clients over the network. Each has its own request slots and circuit breaker, so that problems of one identity do
/// not affect others (S29): at most `concurrency` requests are in flight. Every write checks the fence at the moment it
/// is sent (S23).
pub fn over_network(concurrency: usize, observer: impl maas_client::Observer + Clone, fence: Fence) -> Connect {
    Arc::new(move |credentials| {
        let fence = fence.clone();
        let mut builder = Client::builder(&credentials.endpoint, credentials.key.expose_secret())
            .concurrency(concurrency)
            .limiter(Limiter::new(concurrency))
            .breaker(Breaker::new())
            .before_writes(move || fence.check().map_err(|error| error.to_string()))
            .observer(observer.clone());
        if let Some(authority) = &credentials.authority {
            builder = builder.certificate_authority(authority.as_bytes());
        }
        builder.build()
    })
}

/// Hides the text of an answer until the server has proven to be a MAAS: a tenant can choose the endpoint, and must not
/// see what another service in our network answers (S28). Our own messages about a connection, a refused key or a
/// redirect are kept.
fn unproven(error: maas_client::Error) -> maas_client::Error {
    match error.status() {
        None | Some(300..=399 | 401) => error,
        Some(_) => error.without_words(),
    }
}

/// How long a failed key is not tried again.
const TRY_AGAIN: SignedDuration = SignedDuration::from_secs(10);
/// A connection that is unused for this long is dropped: its credentials are no longer in use. Longer than the longest
/// resync, because the change feed ends with the connection.
const IDLE: SignedDuration = SignedDuration::from_hours(24);

#[derive(Default)]
struct Slot {
    /// Held while the key is tried, so that a hundred reconciles try it only once.
    trying: tokio::sync::Mutex<()>,
    known: Mutex<Known>,
}

#[derive(Default)]
struct Known {
    identity: Option<Identity>,
    failed: Option<(Timestamp, Problem)>,
    used: Timestamp,
}

impl Slot {
    fn known(&self) -> std::sync::MutexGuard<'_, Known> {
        self.known.lock().unwrap_or_else(PoisonError::into_inner)
    }
}

/// How many events at the end of the log are read: more than can be committed late.
const LOG_END: u16 = 200;

pub(super) struct Connections {
    connect: Connect,
    /// From the first connection of each identity: later events are new even if the connection is re-established.
    log_ends: Mutex<HashMap<Name, LogEnd>>,
    slots: Mutex<HashMap<Fingerprint, Arc<Slot>>>,
}

impl Connections {
    pub(super) fn new(connect: Connect) -> Self {
        Self { connect, log_ends: Mutex::default(), slots: Mutex::default() }
    }

    /// The identity behind credentials. The first time, MAAS is asked for the user.
    pub(super) async fn of(&self, credentials: &Credentials, now: Timestamp) -> Result<Identity, Problem> {
        let fingerprint = credentials.fingerprint();
        let slot = self.slots().entry(fingerprint).or_default().clone();
        slot.known().used = now;
        if let Some(identity) = &slot.known().identity {
            return Ok(identity.clone());
        }
        let failed = slot.known().failed.clone();
        let _trying = match (slot.trying.try_lock(), failed) {
            (Ok(trying), _) => trying,
            // One caller at a time checks whether an unresponsive MAAS is back; the others do not wait for it (S29).
            (Err(_), Some((_, problem))) => return Err(problem),
            (Err(_), None) => slot.trying.lock().await,
        };
        {
            let known = slot.known();
            if let Some(identity) = &known.identity {
                return Ok(identity.clone());
            }
            if let Some((at, problem)) = &known.failed
                && is_recent(*at, TRY_AGAIN, now)
            {
                return Err(problem.clone());
            }
        }
        let tried = self.try_out(credentials, fingerprint, now).await;
        let mut known = slot.known();
        match &tried {
            Ok(identity) => {
                tracing::info!(
                    endpoint = %identity.name.endpoint, user = %identity.name.user, place = %identity.place,
                    "MAAS accepts the credentials"
                );
                known.failed = None;
                known.identity = Some(identity.clone());
            }
            Err(problem) => {
                tracing::warn!(reason = problem.reason, "{problem}");
                known.failed = Some((now, problem.clone()));
            }
        }
        tried
    }

    async fn try_out(
        &self,
        credentials: &Credentials,
        fingerprint: Fingerprint,
        now: Timestamp,
    ) -> Result<Identity, Problem> {
        let place = &credentials.place;
        let client = (self.connect)(credentials).map_err(|error| {
            Problem::credentials(format!("the MAAS credentials in {place} cannot be used: {error}"))
        })?;
        let user = client.whoami().await.map_err(|error| {
            tracing::debug!(%error, "the MAAS credentials in {place} do not work");
            let error = unproven(error);
            let sentence = format!("MAAS does not accept the credentials in {place}: {error}");
            match error.kind() {
                ErrorKind::Denied | ErrorKind::WrongEndpoint => Problem::credentials(sentence),
                _ => Problem::unavailable(format!("MAAS at {} cannot be queried: {error}", client.endpoint())),
            }
        })?;
        let name = Name { endpoint: client.endpoint().to_string(), user: user.username };
        Ok(Identity {
            machines: MachineReader::new(client.clone()),
            dns_names: DnsNames::new(client.clone()),
            log_end: self.log_end(&client, &name, now).await,
            name,
            standing: Standing::First,
            fingerprint,
            place: place.clone(),
            client,
        })
    }

    async fn log_end(&self, client: &Client, name: &Name, now: Timestamp) -> Option<LogEnd> {
        let known = self.log_ends().get(name).cloned();
        if known.is_some() {
            return known;
        }
        let query = EventQuery { limit: Some(LOG_END), ..EventQuery::default() };
        let events = client.events().query(&query).await.ok()?.events;
        let end = LogEnd { at: now, events: Arc::new(events.into_iter().map(entry).collect()) };
        Some(self.log_ends().entry(name.clone()).or_insert(end).clone())
    }

    fn log_ends(&self) -> std::sync::MutexGuard<'_, HashMap<Name, LogEnd>> {
        self.log_ends.lock().unwrap_or_else(PoisonError::into_inner)
    }

    pub(super) fn forget(&self, fingerprint: Fingerprint) {
        self.slots().remove(&fingerprint);
    }

    /// Every working connection that was used recently, most recent first. Unused ones are dropped on the way.
    pub(super) fn in_use(&self, now: Timestamp) -> Vec<Identity> {
        let mut slots = self.slots();
        slots.retain(|_, slot| now.duration_since(slot.known().used) < IDLE);
        let working = |slot: &Arc<Slot>| {
            let known = slot.known();
            known.identity.clone().map(|identity| (known.used, identity))
        };
        let mut identities: Vec<_> = slots.values().filter_map(working).collect();
        identities.sort_by_key(|(used, identity)| (std::cmp::Reverse(*used), identity.fingerprint));
        identities.into_iter().map(|(_, identity)| identity).collect()
    }

    fn slots(&self) -> std::sync::MutexGuard<'_, HashMap<Fingerprint, Arc<Slot>>> {
        self.slots.lock().unwrap_or_else(PoisonError::into_inner)
    }
}

/// An entry of MAAS's event log, as the change feed compares it.
pub(crate) fn entry(event: Event) -> Entry {
    let part = |part: Option<String>| part.unwrap_or_default();
    Entry {
        id: event.id,
        mark: format!("{}|{}|{}", part(event.created), part(event.kind.clone()), part(event.node.clone())),
        kind: part(event.kind),
        system_id: event.node,
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[tokio::test]
    async fn s23_a_write_to_maas_asks_the_fence_when_it_is_sent() {
        let _ = rustls::crypto::ring::default_provider().install_default();
        let credentials = Credentials {
            endpoint: "http://127.0.0.1:9/MAAS".to_owned(),
            key: "a:b:c".to_owned().into(),
            authority: None,
            place: "a test".to_owned(),
        };
        let sent = async |fence: Fence| {
            let client = over_network(4, |_: &maas_client::Observation| {}, fence)(&credentials).unwrap();
            client.machines().power_on("abc123").await.unwrap_err().to_string()
        };
        let closed = sent(Fence::closed(capmaas_core::lease::Timing::default())).await;
        assert!(closed.contains("not sent: the leader lease was not renewed in time"), "{closed}");
        let open = sent(Fence::open()).await;
        assert!(open.contains("no connection to"), "{open}");
    }
}
