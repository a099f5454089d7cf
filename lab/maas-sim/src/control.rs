//! The control API: what tests do from outside MAAS, as library calls and as JSON over HTTP under `/_sim/`.

use std::sync::Arc;

use axum::body::Body;
use http::{Method, Response, StatusCode, Uri};
use serde::Deserialize;
use serde_json::{Value, json};

use crate::{
    faults::{FaultRule, ServerState},
    http::forms::Form,
    ledger::Entry,
    model::{
        Model,
        inventory::{Inventory, InventoryError},
        statement::Statement,
    },
    sim::{Shared, State},
};

/// Typed control of a simulator.
#[derive(Clone)]
pub struct Control {
    shared: Arc<Shared>,
}

/// A rejected statement.
#[derive(Debug, thiserror::Error)]
#[error("statement {index}: {reason}")]
pub struct ArrangeError {
    /// The index of the statement, from 0.
    pub index: usize,
    pub reason: String,
}

/// Something that happens to a machine without MAAS's doing.
#[derive(Clone, Debug, Deserialize)]
#[serde(rename_all = "snake_case")]
pub enum MachineFault {
    /// It is powered off.
    LosePower,
    /// The addresses of its AUTO links are removed; the links stay.
    LoseAddress,
    /// Another user marks it broken.
    Break,
    /// Another user deletes it from MAAS.
    Vanish,
    /// Another user allocates it as soon as it is Ready.
    Steal,
}

impl Control {
    pub(crate) fn new(shared: Arc<Shared>) -> Self {
        Self { shared }
    }

    /// Applies statements in order. If one is invalid, those before it stay applied.
    pub fn arrange(&self, statements: &[Statement]) -> Result<Vec<Value>, ArrangeError> {
        let mut state = self.shared.lock();
        self.shared.catch_up(&mut state);
        statements
            .iter()
            .enumerate()
            .map(|(index, statement)| {
                apply(&self.shared, &mut state, statement).map_err(|reason| ArrangeError { index, reason })
            })
            .collect()
    }

    /// Fills the simulator from an inventory.
    pub fn load(&self, inventory: &Inventory) -> Result<(), InventoryError> {
        self.shared.lock().model.load(inventory)
    }

    /// Advances the clock.
    pub fn advance(&self, seconds: f64) {
        let mut state = self.shared.lock();
        let until = state.model.after(seconds);
        state.model.run_until(until);
        state.run_late();
    }

    /// Completes all work in progress.
    pub fn settle(&self) {
        let mut state = self.shared.lock();
        state.model.settle();
        state.run_late();
    }

    /// Adds a fault. Returns its id.
    pub fn add_fault(&self, rule: FaultRule) -> u64 {
        self.shared.lock().faults.add(rule)
    }

    /// The faults, with the number of requests that each has affected.
    pub fn faults(&self) -> Vec<FaultRule> {
        self.shared.lock().faults.rules().to_vec()
    }

    /// Removes a fault, or all.
    pub fn remove_fault(&self, id: Option<u64>) {
        self.shared.lock().faults.remove(id);
    }

    /// Sets the state of the whole server.
    pub fn set_server(&self, server: ServerState) {
        self.shared.lock().server = server;
    }

    /// Requests of a kind, or all.
    pub fn ledger(&self, kind: Option<&str>) -> Vec<Entry> {
        self.shared.lock().ledger.entries(kind)
    }

    /// Requests after the one with this number.
    pub fn ledger_after(&self, number: u64) -> Vec<Entry> {
        self.shared.lock().ledger.after(number)
    }

    /// The number of requests of a kind that changed something.
    pub fn effective(&self, kind: &str) -> usize {
        self.shared.lock().ledger.effective(kind)
    }

    /// Clears the ledger.
    pub fn clear_ledger(&self) {
        self.shared.lock().ledger.clear();
    }

    /// Backs up MAAS's database.
    pub fn backup(&self, name: &str) {
        self.shared.lock().backup(name);
    }

    /// Restores a backup, as an operator would.
    pub fn restore(&self, name: &str) -> Result<(), String> {
        self.shared.lock().restore(name)
    }

    /// Reads the model, or changes it in ways that no statement supports.
    pub fn with_model<T>(&self, look: impl FnOnce(&mut Model) -> T) -> T {
        look(&mut self.shared.lock().model)
    }

    /// Applies a fault to a machine. `user` is the name of the thief. Without a machine, the next VM that becomes Ready
    /// is stolen.
    pub fn hurt(&self, machine: Option<&str>, fault: &MachineFault, user: Option<&str>) -> Result<(), String> {
        let mut state = self.shared.lock();
        let model = &mut state.model;
        let thief = match user {
            Some(name) => {
                Some(model.user_by_name(name).map(|user| user.id).ok_or_else(|| format!("there is no user '{name}'"))?)
            }
            None => None,
        };
        let Some(machine) = machine else {
            return match (fault, thief) {
                (MachineFault::Steal, Some(thief)) => {
                    model.world.vm_thief = Some(thief);
                    Ok(())
                }
                _ => Err("name the machine, or the user who steals the next VM".to_owned()),
            };
        };
        let id = model.machine_named(machine)?;
        match fault {
            MachineFault::LosePower => model.lose_power(&id),
            MachineFault::LoseAddress => model.free_auto_addresses(&id),
            MachineFault::Break => model.break_machine(&id, "marked broken by a fault"),
            MachineFault::Vanish => model.remove_machine(&id, false),
            MachineFault::Steal => {
                let thief = thief.ok_or("name the user who steals the machine")?;
                model.world.bodies.entry(id).or_default().stolen_by = Some(thief);
            }
        }
        Ok(())
    }
}

fn apply(shared: &Shared, state: &mut State, statement: &Statement) -> Result<Value, String> {
    match statement {
        Statement::Backup(name) => {
            state.backup(&name.name);
            Ok(json!({"backup": name.name}))
        }
        Statement::Restore(name) => state.restore(&name.name).map(|()| json!({"restored": name.name})),
        Statement::Reset(_) => {
            let now = state.model.now;
            state.model = Model::new(&shared.config);
            state.model.now = now;
            Ok(json!({}))
        }
        other => {
            let result = state.model.arrange(other);
            state.run_late();
            result
        }
    }
}

fn json_response(status: StatusCode, value: &Value) -> Response<Body> {
    let mut response = Response::new(Body::from(value.to_string()));
    *response.status_mut() = status;
    response.headers_mut().insert(http::header::CONTENT_TYPE, http::HeaderValue::from_static("application/json"));
    response
}

/// Answers a control request.
pub(crate) fn respond(shared: &Arc<Shared>, method: &Method, uri: &Uri, body: &[u8]) -> Response<Body> {
    let path = uri.path().trim_start_matches("/_sim").trim_matches('/').to_owned();
    let query = Form::from_query(uri.query().unwrap_or_default());
    match call(shared, method, &path, &query, body) {
        Ok(value) => json_response(StatusCode::OK, &value),
        Err((status, value)) => json_response(status, &value),
    }
}

type Failure = (StatusCode, Value);

fn bad(reason: impl Into<String>) -> Failure {
    (StatusCode::BAD_REQUEST, json!({"error": reason.into()}))
}

fn parse<T: for<'de> Deserialize<'de>>(body: &[u8]) -> Result<T, Failure> {
    let body = if body.is_empty() { b"{}" } else { body };
    serde_json::from_slice(body).map_err(|error| bad(error.to_string()))
}

#[derive(Deserialize)]
struct Seconds {
    seconds: f64,
}

#[derive(Deserialize)]
struct NameOnly {
    name: String,
}

#[derive(Deserialize)]
struct ServerBody {
    state: ServerState,
}

#[derive(Deserialize)]
struct Hurt {
    #[serde(default)]
    machine: Option<String>,
    #[serde(rename = "do")]
    what: MachineFault,
    #[serde(default)]
    user: Option<String>,
}

fn call(shared: &Arc<Shared>, method: &Method, path: &str, query: &Form, body: &[u8]) -> Result<Value, Failure> {
    let control = Control::new(Arc::clone(shared));
    let now = || control.with_model(|model| model.now.to_string());
    match (method.as_str(), path) {
        ("GET", "health") => {
            let version = control.with_model(|model| model.version.to_string());
            Ok(
                json!({"now": now(), "version": version, "machines": control.with_model(|model| model.db.machines.len())}),
            )
        }
        ("POST", "arrange") => arrange(&control, body),
        ("POST", "advance") => {
            control.advance(parse::<Seconds>(body)?.seconds);
            Ok(json!({"now": now()}))
        }
        ("POST", "settle") => {
            control.settle();
            Ok(json!({"now": now()}))
        }
        ("GET", "ledger") => Ok(json!(control.ledger(query.get("kind")))),
        ("DELETE", "ledger") => {
            control.clear_ledger();
            Ok(json!({}))
        }
        ("GET", "faults") => Ok(json!(shared.lock().faults.rules())),
        ("POST", "faults") => {
            let rules: Vec<FaultRule> = match parse::<Value>(body)? {
                Value::Array(items) => items.into_iter().map(serde_json::from_value).collect::<Result<_, _>>(),
                one => serde_json::from_value(one).map(|rule| vec![rule]),
            }
            .map_err(|error| bad(error.to_string()))?;
            let ids: Vec<u64> = rules.into_iter().map(|rule| control.add_fault(rule)).collect();
            Ok(json!({"ids": ids}))
        }
        ("DELETE", "faults") => {
            control.remove_fault(query.get("id").and_then(|id| id.parse().ok()));
            Ok(json!({}))
        }
        ("POST", "server") => {
            control.set_server(parse::<ServerBody>(body)?.state);
            Ok(json!({}))
        }
        ("POST", "machine") => {
            let hurt: Hurt = parse(body)?;
            control.hurt(hurt.machine.as_deref(), &hurt.what, hurt.user.as_deref()).map_err(bad)?;
            Ok(json!({}))
        }
        ("POST", "backup") => {
            control.backup(&parse::<NameOnly>(body)?.name);
            Ok(json!({}))
        }
        ("POST", "restore") => {
            control.restore(&parse::<NameOnly>(body)?.name).map_err(bad)?;
            Ok(json!({}))
        }
        ("GET", other) if other.starts_with("state/machines/") => {
            let name = other.trim_start_matches("state/machines/").to_owned();
            control.with_model(|model| machine_state(model, &name)).map_err(bad)
        }
        _ => Err((StatusCode::NOT_FOUND, json!({"error": format!("there is no control call {method} {path}")}))),
    }
}

fn arrange(control: &Control, body: &[u8]) -> Result<Value, Failure> {
    let items = match parse::<Value>(body)? {
        Value::Array(items) => items,
        Value::Object(mut object) => match object.remove("statements") {
            Some(Value::Array(items)) => items,
            _ => return Err(bad("the body is a list of statements, or an object with 'statements'")),
        },
        _ => return Err(bad("the body is a list of statements, or an object with 'statements'")),
    };
    let mut results = Vec::new();
    for (index, item) in items.into_iter().enumerate() {
        let failure = |reason: String| (StatusCode::BAD_REQUEST, json!({"statement": index, "error": reason}));
        let statement: Statement = serde_json::from_value(item).map_err(|error| failure(error.to_string()))?;
        let done = control.arrange(&[statement]).map_err(|error| failure(error.reason))?;
        results.extend(done);
    }
    Ok(json!({"applied": results.len(), "results": results}))
}

fn machine_state(model: &mut Model, name: &str) -> Result<Value, String> {
    let id = model.machine_named(name)?;
    let machine = model.db.machines.get(&id).ok_or("the machine is gone")?;
    let body = model.world.bodies.get(&id);
    Ok(json!({
        "system_id": id,
        "hostname": machine.hostname,
        "status": machine.status.name(),
        "owner": machine.owner.map(|owner| model.user_name(Some(owner)).to_owned()),
        "agent_name": machine.agent_name,
        "power_known": machine.power_state.word(),
        "power": if model.real_power(&id) { "on" } else { "off" },
        "bmc_busy": body.is_some_and(|body| body.bmc.busy),
        "status_expires": machine.status_expires.map(|at| at.to_string()),
        "work_until": model.queue.last_for(&id).map(|at| at.to_string()),
    }))
}
