//! Connections to MAAS: one client for each pair of endpoint and key, tried once, dropped when nobody uses it any more.

use std::collections::HashMap;
use std::sync::{Arc, Mutex, PoisonError};

use capmaas_core::credentials::{Name, Standing};
use jiff::{SignedDuration, Timestamp};
use maas_client::{BuildError, Client, ErrorKind, EventQuery};
use secrecy::ExposeSecret as _;

use super::{Credentials, DnsNames, Fingerprint, Identity, LogEnd, MachineReader, Problem};
use crate::feed;

/// Makes a client of credentials. Nothing is sent yet.
pub type Connect = Arc<dyn Fn(&Credentials) -> Result<Client, BuildError> + Send + Sync>;

/// Clients over the network, with at most `concurrency` requests under way to a server.
pub fn over_network(concurrency: usize, observer: impl maas_client::Observer + Clone) -> Connect {
    Arc::new(move |credentials| {
        let mut builder = Client::builder(&credentials.endpoint, credentials.key.expose_secret())
            .concurrency(concurrency)
            .observer(observer.clone());
        if let Some(authority) = &credentials.authority {
            builder = builder.certificate_authority(authority.as_bytes());
        }
        builder.build()
    })
}

/// How long a key that did not work is not tried again.
const TRY_AGAIN: SignedDuration = SignedDuration::from_secs(10);
/// After this time without a question a connection is dropped: nobody's credentials are these any more. Longer than the longest
/// resync, because the change feed ends with it.
const IDLE: SignedDuration = SignedDuration::from_hours(24);

#[derive(Default)]
struct Slot {
    /// Held while the key is tried, so that a hundred reconciles try it once.
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

/// How many events of the end of the log are read: more than are committed late.
const LOG_END: u16 = 200;

pub(super) struct Connections {
    connect: Connect,
    /// Of the first connection of each identity: what happened since then is news, also if the connection is made anew.
    log_ends: Mutex<HashMap<Name, LogEnd>>,
    slots: Mutex<HashMap<Fingerprint, Arc<Slot>>>,
}

impl Connections {
    pub(super) fn new(connect: Connect) -> Self {
        Self { connect, log_ends: Mutex::default(), slots: Mutex::default() }
    }

    /// The identity behind credentials; MAAS is asked for the user the first time.
    pub(super) async fn of(&self, credentials: &Credentials, now: Timestamp) -> Result<Identity, Problem> {
        let fingerprint = credentials.fingerprint();
        let slot = self.slots().entry(fingerprint).or_default().clone();
        slot.known().used = now;
        if let Some(identity) = &slot.known().identity {
            return Ok(identity.clone());
        }
        let _trying = slot.trying.lock().await;
        {
            let known = slot.known();
            if let Some(identity) = &known.identity {
                return Ok(identity.clone());
            }
            if let Some((at, problem)) = &known.failed
                && now.duration_since(*at) < TRY_AGAIN
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
            let sentence = format!("MAAS does not accept the credentials in {place}: {error}");
            match error.kind() {
                ErrorKind::Denied | ErrorKind::WrongEndpoint => Problem::credentials(sentence),
                _ => Problem::unavailable(format!("MAAS at {} cannot be asked: {error}", client.endpoint())),
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
        let end = LogEnd { at: now, events: Arc::new(events.into_iter().map(feed::entry).collect()) };
        Some(self.log_ends().entry(name.clone()).or_insert(end).clone())
    }

    fn log_ends(&self) -> std::sync::MutexGuard<'_, HashMap<Name, LogEnd>> {
        self.log_ends.lock().unwrap_or_else(PoisonError::into_inner)
    }

    pub(super) fn forget(&self, fingerprint: Fingerprint) {
        self.slots().remove(&fingerprint);
    }

    /// Every connection that works and was asked for lately, the latest first. Those of the past are dropped on the way.
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
