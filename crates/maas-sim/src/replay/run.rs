//! The replay itself: arrangement, request, comparison, one exchange after the other.

use std::collections::BTreeMap;

use jiff::Timestamp;
use serde_json::{Value, json};

use super::arrangement::{Arrangements, Credentials, Entry, WrongPart};
use super::compare::{Difference, compare};
use super::identity::{Identities, Kind};
use super::recording::Recording;
use super::request::{Context, Key, Pem, prepare, recorded_now};
use super::target::{Target, TargetError};

/// The user of recordings that name none.
const FIRST_ADMIN: &str = "admin";
/// States that a machine leaves by itself.
const PASSING: [&str; 7] = [
    "Commissioning",
    "Testing",
    "Deploying",
    "Releasing",
    "Disk erasing",
    "Entering rescue mode",
    "Exiting rescue mode",
];

/// Why a replay could not go on.
#[derive(Debug, thiserror::Error)]
pub enum ReplayError {
    /// The simulator gave no answer.
    #[error(transparent)]
    Target(#[from] TargetError),
    /// An arrangement was refused.
    #[error("the arrangement before {before}: {source}")]
    Arrangement {
        /// The number that it stands before.
        before: String,
        /// What the simulator said.
        source: TargetError,
    },
    /// No throw-away certificate could be made.
    #[error("cannot make a certificate to replay with: {0}")]
    Certificate(#[from] rcgen::Error),
}

/// How one exchange went.
#[derive(Clone, Debug)]
pub struct Outcome {
    /// Name of the recording.
    pub name: String,
    /// Method, path and operation, as recorded.
    pub request: String,
    /// What differs; nothing if the exchange agrees.
    pub differences: Vec<Difference>,
    /// The simulator's answer: status and body.
    pub answer: String,
}

impl Outcome {
    /// Whether the simulator answered as MAAS did.
    pub fn agrees(&self) -> bool {
        self.differences.is_empty()
    }
}

/// A replay under way.
pub(super) struct Replay<'a> {
    target: &'a Target,
    arrangements: &'a Arrangements,
    identities: Identities,
    callers: BTreeMap<String, String>,
    admin: Key,
    keys: BTreeMap<(String, String), Key>,
    pem: Pem,
    number: usize,
}

impl<'a> Replay<'a> {
    pub(super) fn new(target: &'a Target, arrangements: &'a Arrangements, admin: Key) -> Result<Self, ReplayError> {
        let pair = rcgen::generate_simple_self_signed(["replay".to_owned()])?;
        let pem = Pem { certificate: pair.cert.pem(), key: pair.signing_key.serialize_pem() };
        Ok(Self {
            target,
            arrangements,
            identities: Identities::default(),
            callers: BTreeMap::new(),
            admin,
            keys: BTreeMap::new(),
            pem,
            number: 0,
        })
    }

    /// Replays all recordings; `tell` hears of every outcome as it comes.
    pub(super) async fn run(
        mut self,
        recordings: &[Recording],
        mut tell: impl FnMut(&Outcome),
    ) -> Result<Vec<Outcome>, ReplayError> {
        let mut entries = self.arrangements.entries.iter().peekable();
        let mut outcomes = Vec::with_capacity(recordings.len());
        for (at, recording) in recordings.iter().enumerate() {
            while let Some(entry) = entries.next_if(|entry| recording.position.reaches(&entry.before)) {
                self.arrange(entry).await.map_err(|error| match error {
                    ReplayError::Target(source) => {
                        ReplayError::Arrangement { before: entry.before.to_string(), source }
                    }
                    other => other,
                })?;
            }
            let outcome = self.exchange(recording, recorded_now(recordings, at)).await?;
            tell(&outcome);
            outcomes.push(outcome);
        }
        Ok(outcomes)
    }

    async fn exchange(&mut self, recording: &Recording, recorded_now: Option<i64>) -> Result<Outcome, ReplayError> {
        self.number += 1;
        let key = self.key_for(recording).await?;
        let context = Context {
            identities: &self.identities,
            key: &key,
            pem: &self.pem,
            now: self.now().await?,
            recorded_now,
            number: self.number,
        };
        let request = prepare(recording, &context);
        let answer = self.target.send(&request.method, &request.path, &request.headers, request.body).await?;
        let both_fine = recording.response.status < 400 && answer.status < 400;
        let body = answer.json().filter(|_| both_fine);
        // Ids are learnt first: an answer may already use those that it brings.
        if let Some(body) = &body {
            self.identities.learn(&recording.response.body, body);
        }
        let differences = compare(&recording.response, &answer, &self.identities);
        if recording.seconds > 0.0 {
            self.target.control("advance", &json!({"seconds": recording.seconds})).await?;
        }
        let operation = recording.operation().map(|op| format!(" {op}")).unwrap_or_default();
        let request = format!("{} {}{operation}", recording.request.method, recording.request.path);
        let answer = format!("{} {}", answer.status, answer.text());
        Ok(Outcome { name: recording.name.clone(), request, differences, answer })
    }

    /// The simulator's clock.
    async fn now(&self) -> Result<i64, ReplayError> {
        let health = self.target.send("GET", "/_sim/health", &[], Vec::new()).await?;
        let now = health.json().and_then(|health| health.get("now")?.as_str()?.parse::<Timestamp>().ok());
        Ok(now.unwrap_or_else(Timestamp::now).as_second())
    }

    /// The key that a request was signed with. Keys that do not exist yet are given to their user.
    async fn key_for(&mut self, recording: &Recording) -> Result<Key, ReplayError> {
        let caller = recording.request.caller.as_deref().unwrap_or(FIRST_ADMIN);
        let user = self.callers.get(caller).map_or(caller, String::as_str).to_owned();
        let Credentials { key, wrong } = self.arrangements.credentials(&recording.position);
        let mut key = self.key_of(&user, key.as_deref()).await?;
        match wrong {
            Some(WrongPart::Consumer) => key.consumer = "wrong".to_owned(),
            Some(WrongPart::Token) => key.token = "wrong".to_owned(),
            Some(WrongPart::Secret) => key.secret = "wrong".to_owned(),
            None => {}
        }
        Ok(key)
    }

    async fn key_of(&mut self, user: &str, label: Option<&str>) -> Result<Key, ReplayError> {
        if user == FIRST_ADMIN && label.is_none() {
            return Ok(self.admin.clone());
        }
        let slot = (user.to_owned(), label.unwrap_or_default().to_owned());
        if let Some(key) = self.keys.get(&slot) {
            return Ok(key.clone());
        }
        // The name is part of the key, and the key of a user is the same in every replay.
        let word = |part: &str| format!("{part}{}{}", slot.0, slot.1).replace(|c: char| !c.is_ascii_alphanumeric(), "");
        let key = Key { consumer: word("consumer"), token: word("token"), secret: word("secret") };
        self.target.control("arrange", &json!([{"user": {"name": user, "key": key.text()}}])).await?;
        self.keys.insert(slot, key.clone());
        Ok(key)
    }

    async fn arrange(&mut self, entry: &Entry) -> Result<(), ReplayError> {
        if entry.reset {
            self.target.control("arrange", &json!([{"reset": {}}])).await?;
            self.identities.forget();
            self.keys.clear();
            self.callers.clear();
        }
        self.callers.extend(entry.callers.clone());
        for statement in &entry.statements {
            let mut statement = self.map_statement(statement);
            if let Some(machine) = statement.get_mut("machine").and_then(Value::as_object_mut)
                && let Some(status) = machine.get("status").and_then(Value::as_str).map(str::to_owned)
                && self.comes_to(machine, &status).await?
            {
                machine.remove("status");
            }
            self.target.control("arrange", &json!([statement])).await?;
        }
        Ok(())
    }

    /// Whether a machine reaches a status by itself: one that is on its way is waited for.
    async fn comes_to(&self, machine: &serde_json::Map<String, Value>, wanted: &str) -> Result<bool, ReplayError> {
        let Some((id, status)) = self.find(machine).await? else { return Ok(false) };
        if status == wanted || !PASSING.contains(&status.as_str()) {
            return Ok(status == wanted);
        }
        self.target.control("arrange", &json!([{"settle": {"machine": id}}])).await?;
        Ok(self.find(machine).await?.is_some_and(|(_, status)| status == wanted))
    }

    /// System id and status of the machine that a statement speaks of, as MAAS shows them to an administrator.
    async fn find(&self, machine: &serde_json::Map<String, Value>) -> Result<Option<(String, String)>, ReplayError> {
        let text = |key: &str| machine.get(key).and_then(Value::as_str);
        let query = match (text("system_id"), text("hostname")) {
            (Some(id), _) => format!("id={id}"),
            (None, Some(name)) => format!("hostname={name}"),
            (None, None) => return Ok(None),
        };
        let request = Recording::asking("GET", &format!("/MAAS/api/2.0/machines/?{query}"));
        let nothing = Identities::default();
        let context = Context {
            identities: &nothing,
            key: &self.admin,
            pem: &self.pem,
            now: self.now().await?,
            recorded_now: None,
            number: 0,
        };
        let mut request = prepare(&request, &context);
        for (_, value) in &mut request.headers {
            *value = value.replace("oauth_nonce=\"replay", &format!("oauth_nonce=\"find{}", fresh()));
        }
        let answer = self.target.send(&request.method, &request.path, &request.headers, request.body).await?;
        let found = answer.json().and_then(|list| {
            let machine = list.get(0)?;
            Some((machine.get("system_id")?.as_str()?.to_owned(), machine.get("status_name")?.as_str()?.to_owned()))
        });
        Ok(found)
    }

    /// A statement speaks of recorded objects; the simulator's names for them go in.
    fn map_statement(&self, statement: &Value) -> Value {
        let mut statement = statement.clone();
        let Some((kind, fields)) = statement.as_object_mut().and_then(|fields| fields.iter_mut().next()) else {
            return statement;
        };
        let kind = kind.clone();
        map_identities(&kind, fields, &self.identities);
        statement
    }
}

/// Numbers for nonces of requests that no recording made.
fn fresh() -> u64 {
    use std::sync::atomic::{AtomicU64, Ordering};
    static NEXT: AtomicU64 = AtomicU64::new(1);
    NEXT.fetch_add(1, Ordering::Relaxed)
}

fn map_identities(kind: &str, value: &mut Value, identities: &Identities) {
    let Value::Object(fields) = value else { return };
    for (key, value) in fields {
        let of = match (kind, key.as_str()) {
            ("machine", "id") => continue,
            (_, "system_id" | "machine" | "host") => Kind::System,
            (_, "hostname") => Kind::Name,
            ("vm_host", "id") => Kind::VmHost,
            ("vm_host", "name") | (_, "vm_host") => Kind::Name,
            ("subnet", "id") => Kind::Subnet,
            ("dns", "id") => Kind::DnsResource,
            ("interface", "id") => Kind::Interface,
            ("ip_address", "ip") => Kind::Address,
            _ => continue,
        };
        let known = match value {
            Value::String(text) => {
                identities.known(of, text).or_else(|| identities.known(Kind::Name, text)).map(|known| json!(known))
            }
            Value::Number(number) => identities
                .known(of, &number.to_string())
                .and_then(|known| known.parse::<u64>().ok())
                .map(|id| json!(id)),
            _ => None,
        };
        if let Some(known) = known {
            *value = known;
        }
    }
}
