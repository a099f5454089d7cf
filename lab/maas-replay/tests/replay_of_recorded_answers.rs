//! The replay is run against a server that answers exactly as recorded: then nothing may differ, whatever ids it uses.
#![allow(clippy::unwrap_used, clippy::expect_used, clippy::panic)]

use std::collections::{BTreeMap, BTreeSet};
use std::path::Path;
use std::sync::{Arc, Mutex};

use axum::Router;
use axum::body::Body;
use axum::extract::{Request, State};
use axum::response::Response;
use maas_replay::arrangement::Arrangements;
use maas_replay::recording::{Recording, read_folder};
use maas_replay::replay;
use maas_replay::target::Target;
use maas_sim::config::ApiKey;
use serde_json::{Value, json};

/// A server that replays recorded answers to their requests; otherwise it only looks up machines by name.
struct Player {
    recordings: Vec<Recording>,
    /// The recording that was replayed last.
    played: Mutex<usize>,
    /// Its ids for the recorded ones.
    ids: BTreeMap<String, String>,
    /// How it changes an answer.
    change: fn(&Recording, &mut Value),
}

impl Player {
    fn in_its_ids(&self, text: &str) -> String {
        self.ids.iter().fold(text.to_owned(), |text, (recorded, own)| text.replace(recorded, own))
    }

    /// The next machine with this name, as a list of machines.
    fn look_up(&self, query: &str) -> Response {
        let Some(name) = query.strip_prefix("hostname=") else { return not_found() };
        let coming = &self.recordings[*self.played.lock().unwrap()..];
        let Some(id) = coming.iter().find_map(|recording| named(&recording.response.body, name)) else {
            return not_found();
        };
        Response::new(Body::from(self.in_its_ids(&json!([{"system_id": id, "hostname": name}]).to_string())))
    }

    fn answer(&self, request: &Request) -> Response {
        let path = request.uri().path();
        if path.starts_with("/_sim/") {
            return Response::new(Body::from("{}"));
        }
        let name =
            request.headers().get("user-agent").unwrap().to_str().unwrap().trim_start_matches("replay ").to_owned();
        let Some(at) = self.recordings.iter().position(|recording| recording.name == name) else {
            return self.look_up(request.uri().query().unwrap_or_default());
        };
        *self.played.lock().unwrap() = at;
        let recording = &self.recordings[at];
        let expected = match recording.request.path.strip_prefix('/') {
            Some(path) => format!("/{path}"),
            None => format!("/MAAS/{}", recording.request.path),
        };
        if self.in_its_ids(&expected) != path {
            return not_found();
        }
        let mut response = Response::builder().status(recording.response.status);
        for (name, value) in &recording.response.headers {
            if name != "content-length" {
                response = response.header(name, value);
            }
        }
        let mut body = recording.response.body.clone();
        (self.change)(recording, &mut body);
        let is_json = recording.response.headers.get("content-type").is_some_and(|kind| kind.contains("json"));
        let text = match body {
            Value::String(text) if !is_json => text,
            body => body.to_string(),
        };
        response.body(Body::from(self.in_its_ids(&text))).unwrap()
    }
}

/// The machine with a name, in an answer.
fn named<'a>(value: &'a Value, name: &str) -> Option<&'a Value> {
    match value {
        Value::Object(fields) if fields.get("hostname").is_some_and(|host| host == name) => fields.get("system_id"),
        Value::Object(fields) => fields.values().find_map(|field| named(field, name)),
        Value::Array(items) => items.iter().find_map(|item| named(item, name)),
        _ => None,
    }
}

fn not_found() -> Response {
    Response::builder().status(404).body(Body::from("not recorded")).unwrap()
}

fn system_ids(value: &Value, found: &mut BTreeSet<String>) {
    match value {
        Value::Object(fields) => {
            found.extend(fields.get("system_id").and_then(Value::as_str).map(str::to_owned));
            fields.values().for_each(|field| system_ids(field, found));
        }
        Value::Array(items) => items.iter().for_each(|item| system_ids(item, found)),
        _ => {}
    }
}

fn recorded(folder: &str) -> Vec<Recording> {
    read_folder(&Path::new(env!("CARGO_MANIFEST_DIR")).join("tests").join(folder)).unwrap()
}

async fn differing(
    mut recordings: Vec<Recording>,
    ids: BTreeMap<String, String>,
    change: fn(&Recording, &mut Value),
) -> Vec<String> {
    let player = Arc::new(Player { recordings: recordings.clone(), played: Mutex::new(0), ids, change });
    let router = Router::new()
        .fallback(|State(player): State<Arc<Player>>, request: Request| async move { player.answer(&request) });
    let target = Target::InProcess(router.with_state(player));
    let key: ApiKey = "a:b:c".parse().unwrap();
    let report = replay(&mut recordings, &Arrangements::default(), &target, &key, |_| {}).await.unwrap();
    let told = |outcome: &maas_replay::Outcome| {
        let what: Vec<_> = outcome.differences.iter().map(ToString::to_string).collect();
        format!("{}: {}", outcome.name, what.join("; "))
    };
    report.outcomes.iter().filter(|outcome| !outcome.agrees()).map(told).collect()
}

#[tokio::test]
async fn a_server_that_answers_as_recorded_agrees_everywhere() {
    for folder in ["recordings", "recordings-3.7.3"] {
        let found = differing(recorded(folder), BTreeMap::new(), |_, _| {}).await;
        assert!(found.is_empty(), "{} differ:\n{}", found.len(), found.join("\n"));
    }
}

#[tokio::test]
async fn a_missing_key_another_type_and_another_word_are_found() {
    let found = differing(recorded("recordings"), BTreeMap::new(), |recording, body| match recording.name.as_str() {
        "900-machine-ready-before-allocate" => {
            body.as_object_mut().unwrap().remove("bios_boot_method");
        }
        "902-machine-after-allocate-by-system-id" => body["boot_interface"]["links"][0]["id"] = json!("28"),
        "903-allocate-by-system-id-again-same-owner" => *body = json!("No machine with system ID 4ffqha is available."),
        _ => {}
    })
    .await;
    let names: Vec<_> = found.iter().map(|line| &line[..3]).collect();
    assert_eq!(names, ["900", "902", "903"], "{}", found.join("\n"));
    assert!(found[0].contains("bios_boot_method") && found[1].contains("links"), "{found:?}");
}

#[tokio::test]
async fn a_server_with_other_system_ids_agrees_as_well() {
    let recordings = recorded("recordings");
    let mut used = BTreeSet::new();
    for recording in &recordings {
        system_ids(&recording.response.body, &mut used);
    }
    let ids: BTreeMap<_, _> = used.into_iter().enumerate().map(|(at, id)| (id, format!("m{at:05}"))).collect();
    assert!(ids.len() > 20);
    let found = differing(recordings, ids, |_, _| {}).await;
    assert!(found.is_empty(), "{} differ:\n{}", found.len(), found.join("\n"));
}
