//! The replay itself: arrangement, request, comparison, one exchange after the other.

use std::collections::BTreeMap;

use jiff::Timestamp;
use serde_json::{Value, json};

use crate::arrangement::{Arrangements, Credentials, Entry, WrongPart};
use crate::command::Report;
use crate::compare::{Difference, compare, drift};
use crate::directory::Directory;
use crate::identity::{Identities, Kind};
use crate::recording::{Body, Recording};
use crate::request::{Context, Key, Pem, prepare, recorded_now};
use crate::target::{Target, TargetError};

/// The user of recordings that name none.
const FIRST_ADMIN: &str = "admin";
/// Statuses that a machine leaves by itself.
const PASSING: [&str; 7] = [
    "Commissioning",
    "Testing",
    "Deploying",
    "Releasing",
    "Disk erasing",
    "Entering rescue mode",
    "Exiting rescue mode",
];

/// Why a replay was aborted.
#[derive(Debug, thiserror::Error)]
pub enum ReplayError {
    /// The simulator gave no answer.
    #[error(transparent)]
    Target(#[from] TargetError),
    /// No temporary certificate could be created.
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
    /// The differences; empty if the exchange agrees.
    pub differences: Vec<Difference>,
    /// Where lists agree in form but differ in length; a hint that an arrangement is missing.
    pub drift: Option<String>,
    /// The simulator's answer: status and body.
    pub answer: String,
}

impl Outcome {
    /// Whether the simulator answered as MAAS did.
    pub fn agrees(&self) -> bool {
        self.differences.is_empty()
    }
}

/// A replay in progress.
pub(crate) struct Replay<'a> {
    target: &'a Target,
    arrangements: &'a Arrangements,
    identities: Identities,
    callers: BTreeMap<String, String>,
    admin: Key,
    keys: BTreeMap<(String, String), Key>,
    pem: Pem,
    number: usize,
    /// Statements that the simulator refused. The replay continues: the rest may still agree.
    refused: Vec<String>,
    /// Machines in a transitional status that did not reach the stated status, unless their entry declares that.
    forced: Vec<String>,
    /// Machines that did reach it by themselves although their entry declares otherwise.
    unforced: Vec<String>,
}

impl<'a> Replay<'a> {
    pub(crate) fn new(target: &'a Target, arrangements: &'a Arrangements, admin: Key) -> Result<Self, ReplayError> {
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
            refused: Vec::new(),
            forced: Vec::new(),
            unforced: Vec::new(),
        })
    }

    /// Replays all recordings; `tell` is called with every outcome.
    pub(crate) async fn run(
        mut self,
        recordings: &[Recording],
        mut tell: impl FnMut(&Outcome),
    ) -> Result<Report, ReplayError> {
        let mut entries = self.arrangements.entries.iter().peekable();
        let mut outcomes = Vec::with_capacity(recordings.len());
        let directory = Directory::of(recordings);
        for (at, recording) in recordings.iter().enumerate() {
            while let Some(entry) = entries.next_if(|entry| recording.position.reaches(&entry.before)) {
                self.arrange(entry).await?;
            }
            self.introduce(recording, &directory, at).await?;
            let outcome = self.exchange(recording, recorded_now(recordings, at)).await?;
            tell(&outcome);
            outcomes.push(outcome);
        }
        Ok(Report { outcomes, refused: self.refused, forced: self.forced, unforced: self.unforced })
    }

    async fn exchange(&mut self, recording: &Recording, recorded_now: Option<i64>) -> Result<Outcome, ReplayError> {
        self.number += 1;
        let (key, about) = self.key_for(recording).await?;
        let context = Context {
            identities: &self.identities,
            key: &key,
            about: &about,
            pem: &self.pem,
            now: now(),
            recorded_now,
            number: self.number,
        };
        let request = prepare(recording, &context);
        // MAAS commits at the end of a request, so the recorded time passes before the effect.
        if recording.seconds > 0.0 {
            self.target.control("advance", &json!({"seconds": recording.seconds})).await?;
        }
        let mut headers = request.headers;
        if let Some(host) = quoted_host(&recording.response.body) {
            headers.push(("host".to_owned(), host));
        }
        let sent = self.target.send(&request.method, &request.path, &headers, request.body).await;
        let answer = match sent {
            Ok(answer) => answer,
            // A server may drop one connection and answer on the next.
            Err(error @ (TargetError::Unreachable { .. } | TargetError::Broken { .. })) => {
                let difference = Difference::silence(recording.response.status, &error);
                return Ok(outcome(recording, vec![difference], None, "no answer".to_owned()));
            }
            Err(error) => return Err(error.into()),
        };
        let both_fine = recording.response.status < 400 && answer.status < 400;
        let body = answer.json().filter(|_| both_fine);
        // Ids are learned first: an answer may already use the ids that it introduces.
        if let Some(body) = &body {
            self.identities.learn(&recording.response.body, body);
        }
        let differences = compare(&recording.response, &answer, &self.identities);
        let drift = body.and_then(|body| drift(&recording.response.body, &body));
        let answer = format!("{} {}", answer.status, answer.text());
        Ok(outcome(recording, differences, drift, answer))
    }

    /// The key that a request was signed with, and the one that it refers to. Keys that do not exist yet are created
    /// for their user.
    async fn key_for(&mut self, recording: &Recording) -> Result<(Key, Key), ReplayError> {
        let caller = recording.request.caller.as_deref().unwrap_or(FIRST_ADMIN);
        let user = match self.callers.get(caller) {
            Some(user) => user.clone(),
            None => self.stranger(caller).await?,
        };
        let Credentials { key, about, wrong } = self.arrangements.credentials(&recording.position);
        let mut key = self.key_of(&user, key.as_deref()).await?;
        match wrong {
            Some(WrongPart::Consumer) => "wrongconsumer".clone_into(&mut key.consumer),
            Some(WrongPart::Token) => "wrongtoken".clone_into(&mut key.token),
            Some(WrongPart::Secret) => "wrongsecret".clone_into(&mut key.secret),
            None => {}
        }
        let about = match &about {
            Some(label) => self.key_of(&user, Some(label)).await?,
            None => key.clone(),
        };
        Ok((key, about))
    }

    /// A user that no arrangement names: the recording's name for it shows whether it is an administrator.
    async fn stranger(&mut self, caller: &str) -> Result<String, ReplayError> {
        if caller == FIRST_ADMIN {
            return Ok(caller.to_owned());
        }
        let name = caller.replace(' ', "-");
        let admin = caller.contains("admin") && !caller.contains("non-admin");
        self.target.control("arrange", &json!([{"user": {"name": name, "admin": admin}}])).await?;
        self.callers.insert(caller.to_owned(), name.clone());
        Ok(name)
    }

    async fn key_of(&mut self, user: &str, label: Option<&str>) -> Result<Key, ReplayError> {
        if user == FIRST_ADMIN && label.is_none() {
            return Ok(self.admin.clone());
        }
        let slot = (user.to_owned(), label.unwrap_or_default().to_owned());
        if let Some(key) = self.keys.get(&slot) {
            return Ok(key.clone());
        }
        // The name is part of the key, so that the key of a user is the same in every replay.
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
        let mut forced = Vec::new();
        for original in &entry.statements {
            self.recognise(original).await?;
            let mut statement = self.map_statement(original);
            if let Some(machine) = statement.get_mut("machine").and_then(Value::as_object_mut)
                && let Some(status) = machine.get("status").and_then(Value::as_str).map(str::to_owned)
            {
                match self.way_to(machine, &status).await? {
                    Way::Arrived => drop(machine.remove("status")),
                    Way::Absent | Way::Resting => {}
                    Way::Elsewhere { reached } => forced.push((name_of(original), format!("{reached}, not {status}"))),
                }
            }
            self.state(entry, &statement).await?;
            if let Some(gone) = original.pointer("/absent/machine").and_then(Value::as_str) {
                self.identities.part(Kind::System, gone);
            }
        }
        let before = &entry.before;
        let is_said = |name: &str| entry.forces.iter().any(|said| said == name);
        let unsaid = forced.iter().filter(|(name, _)| !is_said(name));
        self.forced.extend(unsaid.map(|(name, what)| format!("before {before}: {name} comes by itself to {what}")));
        let idle = entry.forces.iter().filter(|said| !forced.iter().any(|(name, _)| name == *said));
        self.unforced.extend(idle.map(|name| format!("before {before}: {name} needs no force")));
        Ok(())
    }

    async fn state(&mut self, entry: &Entry, statement: &Value) -> Result<(), ReplayError> {
        match self.target.control("arrange", &json!([statement])).await {
            Err(TargetError::Refused { answer, .. }) => {
                self.refused.push(format!(
                    "the arrangement before {}: {statement} was refused: {}",
                    entry.before,
                    answer.trim()
                ));
                Ok(())
            }
            other => Ok(other.map(drop)?),
        }
    }

    /// If a statement gives a machine's name and recorded id, and the simulator has another id for it, the two are
    /// paired.
    async fn recognise(&mut self, statement: &Value) -> Result<(), ReplayError> {
        let fields = statement.get("machine");
        let text = |key: &str| fields.and_then(|fields| fields.get(key)).and_then(Value::as_str).map(str::to_owned);
        let (Some(id), Some(name)) = (text("system_id"), text("hostname")) else { return Ok(()) };
        if self.identities.known(Kind::System, &id).is_some() {
            return Ok(());
        }
        let name = self.identities.simulated(Kind::Name, &name).to_owned();
        let list = self.ask(&format!("/MAAS/api/2.0/machines/?hostname={name}")).await?;
        let found = list.and_then(|list| Some(list.get(0)?.get("system_id")?.as_str()?.to_owned()));
        if let Some(found) = found.filter(|found| self.identities.recorded(Kind::System, found).is_none()) {
            self.identities.pair(Kind::System, &id, &found);
        }
        Ok(())
    }

    /// How a machine reaches a status: waits for one that is in a transitional status.
    async fn way_to(&mut self, machine: &serde_json::Map<String, Value>, wanted: &str) -> Result<Way, ReplayError> {
        let Some((id, status)) = self.find(machine).await? else { return Ok(Way::Absent) };
        if status == wanted {
            return Ok(Way::Arrived);
        }
        if !PASSING.contains(&status.as_str()) {
            return Ok(Way::Resting);
        }
        self.target.control("arrange", &json!([{"settle": {"machine": id}}])).await?;
        let reached = self.find(machine).await?.map(|(_, status)| status).unwrap_or_default();
        Ok(if reached == wanted { Way::Arrived } else { Way::Elsewhere { reached } })
    }

    /// System id and status of the machine in a statement, as MAAS shows them to an administrator.
    async fn find(
        &mut self,
        machine: &serde_json::Map<String, Value>,
    ) -> Result<Option<(String, String)>, ReplayError> {
        let text = |key: &str| machine.get(key).and_then(Value::as_str);
        let query = match (text("system_id"), text("hostname")) {
            (Some(id), _) => format!("id={id}"),
            (None, Some(name)) => format!("hostname={name}"),
            (None, None) => return Ok(None),
        };
        let list = self.ask(&format!("/MAAS/api/2.0/machines/?{query}")).await?;
        Ok(list.and_then(|list| {
            let machine = list.get(0)?;
            Some((machine.get("system_id")?.as_str()?.to_owned(), machine.get("status_name")?.as_str()?.to_owned()))
        }))
    }

    /// The answer of MAAS to an administrator.
    async fn ask(&mut self, path: &str) -> Result<Option<Value>, ReplayError> {
        self.number += 1;
        let nothing = Identities::default();
        let context = Context {
            identities: &nothing,
            key: &self.admin,
            about: &self.admin,
            pem: &self.pem,
            now: now(),
            recorded_now: None,
            number: self.number,
        };
        let request = prepare(&Recording::asking("GET", path), &context);
        let answer = self.target.send(&request.method, &request.path, &request.headers, request.body).await?;
        Ok(answer.json().filter(|_| answer.status == 200))
    }

    /// Pairs the ids of a request that no answer has paired yet, by the names of their objects in recordings.
    async fn introduce(&mut self, recording: &Recording, directory: &Directory, at: usize) -> Result<(), ReplayError> {
        for (kind, id) in ids_of(recording) {
            if self.identities.known(kind, &id).is_some() {
                continue;
            }
            let Some(name) = directory.name(kind, &id, at).map(str::to_owned) else { continue };
            let found = match kind {
                Kind::System => {
                    let name = self.identities.simulated(Kind::Name, &name).to_owned();
                    let list = self.ask(&format!("/MAAS/api/2.0/machines/?hostname={name}")).await?;
                    list.and_then(|list| Some(list.get(0)?.get("system_id")?.as_str()?.to_owned()))
                }
                Kind::Interface => {
                    let Some(machine) = directory.machine_of_interface(&id, at) else { continue };
                    let machine = self.identities.simulated(Kind::System, machine).to_owned();
                    let list = self.ask(&format!("/MAAS/api/2.0/nodes/{machine}/interfaces/")).await?;
                    id_by_name(list.as_ref(), "name", &name)
                }
                Kind::VmHost => id_by_name(self.ask("/MAAS/api/2.0/vm-hosts/").await?.as_ref(), "name", &name),
                Kind::DnsResource => id_by_name(self.ask("/MAAS/api/2.0/dnsresources/").await?.as_ref(), "fqdn", &name),
                _ => None,
            };
            // One that is already paired is a different object.
            if let Some(found) = found.filter(|found| self.identities.recorded(kind, found).is_none()) {
                self.identities.pair(kind, &id, &found);
            }
        }
        Ok(())
    }

    /// Replaces recorded names in a statement with the simulator's.
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

/// How a machine reaches the status in a statement.
enum Way {
    /// It does not exist yet.
    Absent,
    /// No work is in progress for it, so only the statement changes its status.
    Resting,
    /// It is already in that status.
    Arrived,
    /// It was in a transitional status and reached another one.
    Elsewhere { reached: String },
}

/// The machine's name in a statement.
fn name_of(statement: &Value) -> String {
    let text = |key: &str| statement.pointer(&format!("/machine/{key}")).and_then(Value::as_str);
    text("hostname").or_else(|| text("system_id")).unwrap_or_default().to_owned()
}

fn outcome(recording: &Recording, differences: Vec<Difference>, drift: Option<String>, answer: String) -> Outcome {
    let operation = recording.operation().map(|op| format!(" {op}")).unwrap_or_default();
    let request = format!("{} {}{operation}", recording.request.method, recording.request.path);
    Outcome { name: recording.name.clone(), request, differences, drift, answer }
}

/// The host that a request was sent to, if the answer quotes it in the text that a signature covers.
fn quoted_host(body: &Value) -> Option<String> {
    let (_, rest) = body.as_str()?.split_once("http%3A%2F%2F")?;
    Some(rest.split_once("%2F")?.0.replace("%3A", ":"))
}

/// Signatures use the system clock, whatever clock drives the simulator, as all clients do.
fn now() -> i64 {
    Timestamp::now().as_second()
}

/// The ids that a request uses: in its path, and as parents of an interface.
fn ids_of(recording: &Recording) -> Vec<(Kind, String)> {
    let request = &recording.request;
    let parts: Vec<&str> = request.path.split('/').collect();
    let mut ids: Vec<_> = parts
        .windows(2)
        .filter(|pair| !pair[1].is_empty() && !pair[1].starts_with("op-"))
        .filter_map(|pair| Some((Kind::of_collection(pair[0])?, pair[1].to_owned())))
        .collect();
    let form = if let Body::Form(fields) = &request.body { fields.as_slice() } else { &[] };
    for (key, value) in request.query.iter().chain(form) {
        match key.as_str() {
            "parent" | "parents" => ids.push((Kind::Interface, value.clone())),
            "system_id" | "machines" | "nodes" | "add" | "remove" => ids.push((Kind::System, value.clone())),
            "id" if recording.operation() != Some("unlink_subnet") => ids.push((Kind::System, value.clone())),
            _ => {}
        }
    }
    ids
}

fn id_by_name(list: Option<&Value>, key: &str, name: &str) -> Option<String> {
    let found = list?.as_array()?.iter().find(|item| item.get(key).and_then(Value::as_str) == Some(name))?;
    found.get("id")?.as_u64().map(|id| id.to_string())
}

fn map_identities(kind: &str, value: &mut Value, identities: &Identities) {
    let Value::Object(fields) = value else { return };
    for (key, value) in fields {
        if key == "interfaces" {
            let interfaces = value.as_array_mut().into_iter().flatten();
            interfaces.for_each(|interface| map_identities("interface", interface, identities));
            continue;
        }
        if key == "instances" {
            let instances = value.as_array_mut().into_iter().flatten();
            instances.for_each(|instance| map_instance(instance, identities));
            continue;
        }
        let of = match (kind, key.as_str()) {
            (_, "system_id" | "machine" | "host") => Kind::System,
            (_, "hostname" | "vm_host") | ("vm_host", "name") => Kind::Name,
            ("vm_host", "id") => Kind::VmHost,
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
                .known(if key == "vm_host" { Kind::VmHost } else { of }, &number.to_string())
                .and_then(|known| known.parse::<u64>().ok())
                .map(|id| json!(id)),
            _ => None,
        };
        if let Some(known) = known {
            *value = known;
        }
    }
}

/// Instances in LXD have the names that MAAS generated for its machines.
fn map_instance(instance: &mut Value, identities: &Identities) {
    if let Some(Value::String(name)) = instance.get_mut("name")
        && let Some(known) = identities.known(Kind::Name, name)
    {
        *name = known.to_owned();
    }
}
