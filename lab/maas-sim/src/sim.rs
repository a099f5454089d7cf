//! The simulator: model, HTTP and faults combined, usable in process or behind a socket.

use std::{
    collections::BTreeMap,
    sync::{Arc, Mutex, MutexGuard, PoisonError},
    time::Duration,
};

use axum::{Router, body::Body};
use http::{Request, Response};
use http_body_util::BodyExt as _;
use jiff::{SignedDuration, Timestamp};

use crate::version::Change;
use crate::{
    config::{Config, LatencyMode, TimeMode, seconds},
    control::{self, Control},
    delivery::{Delivery, deliver, made_up, plain},
    faults::{Fault, Faults, ServerState, Subject, When},
    hardware::{Dispatcher, Hardware},
    http::{self as maas, Call, Incoming, MAX_BODY, Target, auth::Nonces, metadata, reply::Reply},
    latency,
    ledger::{Entry, Ledger},
    lxd_backend,
    model::{
        Model,
        db::Db,
        due::{Due, Queue},
    },
};

/// A MAAS server. Clones share the same one.
#[derive(Clone)]
pub struct Simulator {
    shared: Arc<Shared>,
}

pub(crate) struct Shared {
    state: Mutex<State>,
    pub(crate) config: Config,
    hardware: Option<Dispatcher>,
}

/// The content of a backup.
#[derive(Clone)]
pub(crate) struct Backup {
    db: Db,
}

pub(crate) struct State {
    pub(crate) model: Model,
    pub(crate) nonces: Nonces,
    pub(crate) faults: Faults,
    pub(crate) ledger: Ledger,
    pub(crate) backups: BTreeMap<String, Backup>,
    pub(crate) server: ServerState,
    /// Down until this time, after a kill.
    down_until: Option<Timestamp>,
    late: BTreeMap<u64, (Call, Entry)>,
    last_late: u64,
}

/// Marks a response in place of which the connection is closed.
#[derive(Clone, Copy, Debug)]
pub struct ConnectionReset;

/// The maximum time that a client is kept hanging.
const LONGEST_HANG: f64 = 3600.0;
impl Simulator {
    /// A fresh MAAS.
    pub fn new(config: Config) -> Self {
        Self::of(config, None)
    }

    /// A fresh MAAS whose machines boot on this hardware.
    pub fn with_hardware(config: Config, hardware: Arc<dyn Hardware>) -> Self {
        Self::of(Config { boots: true, ..config }, Some(Dispatcher::new(hardware)))
    }

    fn of(config: Config, hardware: Option<Dispatcher>) -> Self {
        let state = State {
            model: Model::new(&config),
            nonces: Nonces::default(),
            faults: Faults::default(),
            ledger: Ledger::default(),
            backups: BTreeMap::new(),
            server: ServerState::Up,
            down_until: None,
            late: BTreeMap::new(),
            last_late: 0,
        };
        Self { shared: Arc::new(Shared { state: Mutex::new(state), config, hardware }) }
    }

    /// The server as a service, including `/_sim/` unless disabled in the configuration.
    pub fn router(&self) -> Router {
        let shared = Arc::clone(&self.shared);
        Router::new().fallback(move |request: Request<Body>| {
            let shared = Arc::clone(&shared);
            async move { serve(shared, request).await }
        })
    }

    /// Only the control API, for a separate port.
    pub fn control_router(&self) -> Router {
        let shared = Arc::clone(&self.shared);
        Router::new().fallback(move |request: Request<Body>| {
            let shared = Arc::clone(&shared);
            async move {
                let (parts, body) = request.into_parts();
                let body = body.collect().await.map(http_body_util::Collected::to_bytes).unwrap_or_default();
                control::respond(&shared, &parts.method, &parts.uri, &body)
            }
        })
    }

    pub fn control(&self) -> Control {
        Control::new(Arc::clone(&self.shared))
    }

    /// Advances a driven clock.
    pub fn advance(&self, duration: Duration) {
        self.control().advance(duration.as_secs_f64());
    }

    /// Updates a real clock and runs due tasks. The program calls it periodically.
    pub async fn tick(&self) {
        let (commands, orders) = {
            let mut state = self.shared.lock();
            self.shared.catch_up(&mut state);
            let model = &mut state.model;
            (std::mem::take(&mut model.outbox), std::mem::take(&mut model.orders))
        };
        if let Some(hardware) = &self.shared.hardware {
            hardware.send(&self.shared, orders);
        }
        lxd_backend::apply(&self.shared, commands).await;
    }
}

impl Shared {
    /// The state. A test that panicked while it held the lock must not fail the others.
    pub(crate) fn lock(&self) -> MutexGuard<'_, State> {
        self.state.lock().unwrap_or_else(PoisonError::into_inner)
    }

    /// Updates a real clock, and executes late requests that are due.
    pub(crate) fn catch_up(&self, state: &mut State) {
        if self.config.time == TimeMode::Real {
            state.model.run_until(Timestamp::now());
        }
        state.run_late();
    }
}

impl State {
    pub(crate) fn run_late(&mut self) {
        for number in std::mem::take(&mut self.model.queue.late) {
            if let Some((call, mut entry)) = self.late.remove(&number) {
                self.model.effects.clear();
                let reply = maas::answer(&mut self.model, &call);
                entry.status = Some(reply.status);
                entry.effects = std::mem::take(&mut self.model.effects);
                entry.at = self.model.now;
                self.ledger.add(entry);
            }
        }
    }

    pub(crate) fn backup(&mut self, name: &str) {
        self.backups.insert(name.to_owned(), Backup { db: self.model.db.clone() });
    }

    /// Restores MAAS's database. The work of its processes is dropped; the world stays as it is.
    pub(crate) fn restore(&mut self, name: &str) -> Result<(), String> {
        let backup = self.backups.get(name).ok_or_else(|| format!("there is no backup '{name}'"))?;
        self.model.db = backup.db.clone();
        self.model.queue.forget(|due| matches!(due, Due::LateRequest { .. }));
        // A BMC's action in progress ends with nothing waiting for it.
        for body in self.model.world.bodies.values_mut() {
            body.bmc.busy = false;
        }
        Ok(())
    }

    /// The process is gone, and with it the power actions that it had scheduled and all its timeouts.
    fn die(&mut self, queue: Queue, down_seconds: f64) {
        self.model.queue = queue;
        self.model.queue.forget(|due| !matches!(due, Due::PowerStart { .. }));
        for body in self.model.world.bodies.values_mut() {
            body.bmc.busy = false;
        }
        self.down_until = Some(self.model.after(down_seconds));
    }

    fn is_down(&mut self) -> bool {
        if self.down_until.is_some_and(|until| until <= self.model.now) {
            self.down_until = None;
        }
        self.server == ServerState::Down || self.down_until.is_some()
    }
}

async fn serve(shared: Arc<Shared>, request: Request<Body>) -> Response<Body> {
    let (parts, body) = request.into_parts();
    let path = parts.uri.path().to_owned();
    if shared.config.control && path.starts_with("/_sim") {
        let body = body.collect().await.map(http_body_util::Collected::to_bytes).unwrap_or_default();
        let response = control::respond(&shared, &parts.method, &parts.uri, &body);
        let commands = std::mem::take(&mut shared.lock().model.outbox);
        lxd_backend::apply(&shared, commands).await;
        return response;
    }
    let declared = parts
        .headers
        .get(http::header::CONTENT_LENGTH)
        .and_then(|value| value.to_str().ok())
        .and_then(|text| text.parse::<usize>().ok());
    let limit = if shared.config.version.has(Change::LargeUploads) && path.contains("/boot-resources/") {
        usize::MAX
    } else {
        MAX_BODY
    };
    let Some(body) = read_body(body, declared, limit).await else {
        return plain(&shared, Reply::nginx(413, "Request Entity Too Large"));
    };
    let incoming = Incoming {
        method: parts.method,
        path,
        query: parts.uri.query().unwrap_or_default().to_owned(),
        headers: parts.headers,
        body,
    };
    let head = incoming.method == http::Method::HEAD;
    let delivery = respond(&shared, incoming).await;
    let mut response = deliver(&shared, delivery);
    if shared.config.version.has(Change::TraceId) {
        let trace = format!("{:016x}", crate::model::rng::decide(shared.config.seed, &[&Timestamp::now().to_string()]));
        if let Ok(value) = http::HeaderValue::from_str(&trace) {
            response.headers_mut().insert("maas-trace-id", value);
        }
    }
    if head {
        *response.body_mut() = Body::empty();
    }
    response
}

/// The body, or `None` if it is too large. It is always read to its end: a client that is still sending when the
/// connection closes never sees the answer.
async fn read_body(mut body: Body, declared: Option<usize>, limit: usize) -> Option<Vec<u8>> {
    let mut kept = Vec::new();
    let mut too_large = declared.is_some_and(|length| length > limit);
    while let Some(frame) = body.frame().await {
        let Ok(data) = frame.ok()?.into_data() else { continue };
        too_large = too_large || kept.len() + data.len() > limit;
        if too_large {
            kept = Vec::new();
        } else {
            kept.extend_from_slice(&data);
        }
    }
    (!too_large).then_some(kept)
}

async fn respond(shared: &Arc<Shared>, incoming: Incoming) -> Delivery {
    let prepared = {
        let mut state = shared.lock();
        shared.catch_up(&mut state);
        match whole_server(&mut state) {
            Ok(()) if metadata::is_for(&incoming) => {
                let State { model, nonces, .. } = &mut *state;
                let wall = Timestamp::now().as_second();
                return Delivery::Whole(metadata::answer(model, nonces, &incoming, wall));
            }
            Ok(()) => Some(prepare(&mut state, &incoming)),
            Err(Some(reply)) => return Delivery::Whole(*reply),
            Err(None) => None,
        }
    };
    let Some(prepared) = prepared else {
        tokio::time::sleep(wait(LONGEST_HANG)).await;
        return Delivery::Reset;
    };
    let (call, mut entry) = match prepared {
        Ok(prepared) => prepared,
        Err(reply) => return Delivery::Whole(*reply),
    };
    let struck = {
        let mut state = shared.lock();
        let subject = subject_of(&state.model, &call, &entry);
        let seed = state.model.seed;
        state.faults.strike(seed, &subject)
    };
    entry.faults = struck.iter().map(|(when, fault)| format!("{when:?} {fault:?}")).collect();
    for (_, fault) in struck.iter().filter(|(when, _)| *when == When::Before) {
        match fault {
            Fault::Slow { seconds } => tokio::time::sleep(wait(*seconds)).await,
            other => {
                if let Some(delivery) = fail_before(shared, other, &call, &entry).await {
                    return delivery;
                }
            }
        }
    }
    let kill = struck.iter().find_map(|(when, fault)| match (when, fault) {
        (When::After, Fault::Kill { down_seconds }) => Some(*down_seconds),
        _ => None,
    });
    lxd_backend::look(shared, &call).await;
    let (reply, commands) = {
        let mut state = shared.lock();
        let queue = state.model.queue.clone();
        state.model.effects.clear();
        let reply = maas::answer(&mut state.model, &call);
        entry.status = Some(reply.status);
        entry.effects = std::mem::take(&mut state.model.effects);
        if let Some(down) = kill {
            let machines: Vec<String> = state.model.db.machines.keys().cloned().collect();
            state.die(queue, down);
            for id in machines {
                if entry.effects.iter().any(|effect| effect.about() == Some(&id))
                    && let Some(machine) = state.model.db.machines.get_mut(&id)
                {
                    machine.status_expires = None;
                }
            }
        }
        state.ledger.add(entry.clone());
        (reply, std::mem::take(&mut state.model.outbox))
    };
    let reply = lxd_backend::finish(shared, &call, reply, commands).await;
    if shared.config.latency == LatencyMode::Real && shared.config.time == TimeMode::Real {
        tokio::time::sleep(latency::real(&entry.kind, &reply)).await;
    }
    if kill.is_some() {
        return Delivery::Whole(Reply::nginx(502, "Bad Gateway"));
    }
    spoil(reply, struck).await
}

/// Faults of the whole server: an answer, or none.
fn whole_server(state: &mut State) -> Result<(), Option<Box<Reply>>> {
    if state.is_down() {
        return Err(Some(Box::new(Reply::nginx(502, "Bad Gateway"))));
    }
    match state.server {
        ServerState::Silent => Err(None),
        ServerState::DatabaseDown => {
            let words = "connection to server on socket \"/var/run/postgresql/.s.PGSQL.5432\" failed: No such file or directory";
            Err(Some(Box::new(Reply::text(500, words))))
        }
        ServerState::Up | ServerState::Down => Ok(()),
    }
}

fn prepare(state: &mut State, incoming: &Incoming) -> Result<(Call, Entry), Box<Reply>> {
    let mut entry = Entry {
        number: 0,
        at: state.model.now,
        user: String::new(),
        method: incoming.method.to_string(),
        path: incoming.path.clone(),
        query: incoming.query.clone(),
        kind: String::new(),
        machine: None,
        status: None,
        effects: Vec::new(),
        faults: Vec::new(),
    };
    let outcome = match maas::target(&state.model, incoming) {
        Target::Answer(reply) => Err(reply),
        Target::Route(found) => {
            let State { model, nonces, .. } = state;
            maas::prepare(model, nonces, incoming, found, Timestamp::now().as_second())
        }
    };
    match outcome {
        Ok(mut call) => {
            entry.kind = call.kind();
            state.model.user_name(Some(call.user)).clone_into(&mut entry.user);
            entry.machine = machine_of(&call);
            lxd_backend::prepare_pair(&mut call);
            Ok((call, entry))
        }
        Err(reply) => {
            entry.status = Some(reply.status);
            state.ledger.add(entry);
            Err(reply)
        }
    }
}

/// The machine that a request names.
fn machine_of(call: &Call) -> Option<String> {
    let in_path = call.route.path.contains("{system_id}").then(|| call.parameters.first().cloned()).flatten();
    in_path.or_else(|| call.body.text("system_id"))
}

fn subject_of(model: &Model, call: &Call, entry: &Entry) -> Subject {
    let machine = machine_of(call).map(|id| {
        let hostname = model.db.machines.get(&id).map(|machine| machine.hostname.clone()).unwrap_or_default();
        (id, hostname)
    });
    Subject {
        kind: entry.kind.clone(),
        path: entry.path.clone(),
        method: entry.method.clone(),
        machine,
        user: entry.user.clone(),
    }
}

fn wait(duration: f64) -> Duration {
    let bounded: SignedDuration = seconds(duration.min(LONGEST_HANG));
    Duration::try_from(bounded).unwrap_or_default()
}

async fn fail_before(shared: &Arc<Shared>, fault: &Fault, call: &Call, entry: &Entry) -> Option<Delivery> {
    match fault {
        Fault::Status { status, body, content_type, retry_after } => {
            shared.lock().ledger.add(Entry { status: Some(*status), ..entry.clone() });
            Some(Delivery::Whole(made_up(*status, body, content_type.as_deref(), *retry_after)))
        }
        Fault::Reset | Fault::Truncate { .. } => {
            shared.lock().ledger.add(entry.clone());
            Some(Delivery::Reset)
        }
        Fault::Hang { seconds } => {
            shared.lock().ledger.add(entry.clone());
            tokio::time::sleep(wait(seconds.unwrap_or(LONGEST_HANG))).await;
            Some(Delivery::Reset)
        }
        Fault::Slow { seconds } => {
            tokio::time::sleep(wait(*seconds)).await;
            None
        }
        Fault::Late { seconds } => {
            {
                let mut state = shared.lock();
                state.last_late += 1;
                let number = state.last_late;
                state.late.insert(number, (call.clone(), entry.clone()));
                state.model.later(*seconds, Due::LateRequest { number });
            }
            tokio::time::sleep(wait(LONGEST_HANG)).await;
            Some(Delivery::Reset)
        }
        Fault::Kill { down_seconds } => {
            let mut state = shared.lock();
            // What was done outside the database persists.
            let (db, queue) = (state.model.db.clone(), state.model.queue.clone());
            let _ = maas::answer(&mut state.model, call);
            state.model.effects.clear();
            state.model.db = db;
            state.die(queue, *down_seconds);
            state.ledger.add(entry.clone());
            Some(Delivery::Whole(Reply::nginx(502, "Bad Gateway")))
        }
    }
}

/// Faults after the effect.
async fn spoil(reply: Reply, struck: Vec<(When, Fault)>) -> Delivery {
    for (_, fault) in struck.into_iter().filter(|(when, _)| *when == When::After) {
        match fault {
            Fault::Slow { seconds } => tokio::time::sleep(wait(seconds)).await,
            Fault::Status { status, body, content_type, retry_after } => {
                return Delivery::Whole(made_up(status, &body, content_type.as_deref(), retry_after));
            }
            Fault::Reset => return Delivery::Reset,
            Fault::Truncate { bytes } => return Delivery::Truncated(reply, bytes),
            Fault::Hang { seconds } => {
                tokio::time::sleep(wait(seconds.unwrap_or(LONGEST_HANG))).await;
                return Delivery::Reset;
            }
            Fault::Late { .. } | Fault::Kill { .. } => {}
        }
    }
    Delivery::Whole(reply)
}
