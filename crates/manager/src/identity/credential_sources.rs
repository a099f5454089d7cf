//! The sources of credentials, read and validated.

use std::collections::BTreeMap;
use std::fmt;

use capmaas_core::Lookup;
use capmaas_core::credentials::{Choice, Part, Place, choose};
use secrecy::{ExposeSecret as _, SecretString};
use sha2::{Digest as _, Sha256};

use super::{Fingerprint, Problem, Settings};
use crate::kubernetes::{Key, Kubernetes, SecretValues};

const SECRET: &str = "maas-credentials";
const CONFIG: &str = "capmaas-config";
const GO_SECRET: &str = "capmaas-manager-bootstrap-credentials";

/// The objects in the manager's namespace that are watched.
pub(crate) const SECRETS: [&str; 2] = [SECRET, GO_SECRET];
pub(crate) const CONFIG_MAPS: [&str; 1] = [CONFIG];

/// The keys under which a Secret may hold the API key, the endpoint and the certificate authority.
const KEY_NAMES: [&str; 2] = ["apiKey", "MAAS_API_KEY"];
const ENDPOINT_NAMES: [&str; 2] = ["maasEndpoint", "MAAS_ENDPOINT"];
const AUTHORITY: &str = "ca.crt";

/// Endpoint, API key and the authority to trust. `Debug` prints none of them.
#[derive(Clone)]
pub struct Credentials {
    pub endpoint: String,
    /// `consumer:token:secret`.
    pub key: SecretString,
    /// PEM of an authority to trust in addition to those of the platform.
    pub authority: Option<String>,
    /// Where they were found, for messages.
    pub place: String,
}

impl Credentials {
    /// Distinguishes these credentials from others. Length-prefixed, so that no two triples collide.
    pub fn fingerprint(&self) -> Fingerprint {
        let mut digest = Sha256::new();
        for part in [self.endpoint.as_str(), self.key.expose_secret(), self.authority.as_deref().unwrap_or_default()] {
            digest.update(part.len().to_be_bytes());
            digest.update(part);
        }
        Fingerprint(digest.finalize().into())
    }
}

impl fmt::Debug for Credentials {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        f.debug_struct("Credentials").field("place", &self.place).finish_non_exhaustive()
    }
}

/// Credentials from the environment.
#[derive(Clone, Default)]
pub struct EnvironmentCredentials {
    endpoint: Option<String>,
    key: Option<SecretString>,
    authority: Option<String>,
}

impl EnvironmentCredentials {
    /// Reads `MAAS_ENDPOINT`, `MAAS_API_KEY` and `MAAS_CA` (PEM).
    pub fn of_process() -> Self {
        let read = |name: &str| std::env::var(name).ok().and_then(|value| said(&value));
        Self { endpoint: read("MAAS_ENDPOINT"), key: read("MAAS_API_KEY").map(Into::into), authority: read("MAAS_CA") }
    }

    /// Fixed values instead of the environment.
    pub fn new(endpoint: &str, key: &str) -> Self {
        Self { endpoint: said(endpoint), key: said(key).map(Into::into), authority: None }
    }
}

impl fmt::Debug for EnvironmentCredentials {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        f.debug_struct("EnvironmentCredentials").finish_non_exhaustive()
    }
}

/// The content of one source; a half that was not read says why.
struct Contents {
    endpoint: Lookup<String>,
    key: Lookup<SecretString>,
    authority: Option<String>,
}

/// The manager's own credentials, by the precedence in the module's documentation.
pub(super) async fn of_manager(kubernetes: &dyn Kubernetes, settings: &Settings) -> Result<Credentials, Problem> {
    let namespace = &settings.namespace;
    let own = |name: &str| Key::new(namespace, name);
    let secret = read_secret(kubernetes, &own(SECRET)).await;
    let config = read_config(kubernetes, &own(CONFIG)).await;
    let go_secret = read_secret(kubernetes, &own(GO_SECRET)).await;
    let environment = &settings.environment;

    let mut contents = Vec::new();
    let mut places = Vec::new();
    let mut add = |name: String, endpoint_at: String, key_at: String, found: Contents| {
        places.push(Place {
            name,
            endpoint: Part { place: endpoint_at, found: presence(&found.endpoint) },
            key: Part { place: key_at, found: presence(&found.key) },
        });
        contents.push(found);
    };
    add(
        format!("Secret {SECRET} and ConfigMap {CONFIG} in namespace {namespace}"),
        format!("key maasEndpoint of ConfigMap {CONFIG}"),
        format!("key apiKey of Secret {SECRET}"),
        Contents {
            endpoint: and_then(&config, |data| data.get("maasEndpoint").and_then(|value| said(value))),
            key: and_then(&secret, |values| text(values, &["apiKey"])).into_secret(),
            authority: found(&config)
                .and_then(|data| data.get(AUTHORITY).and_then(|value| said(value)))
                .or_else(|| found(&secret).and_then(|values| text(values, &[AUTHORITY]))),
        },
    );
    add(
        format!("Secret {GO_SECRET} in namespace {namespace}"),
        "key MAAS_ENDPOINT".to_owned(),
        "key MAAS_API_KEY".to_owned(),
        contents_of(&go_secret),
    );
    add(
        "the environment".to_owned(),
        "MAAS_ENDPOINT".to_owned(),
        "MAAS_API_KEY".to_owned(),
        Contents {
            endpoint: environment.endpoint.clone().map_or(Lookup::Absent, Lookup::Found),
            key: environment.key.clone().map_or(Lookup::Absent, Lookup::Found),
            authority: environment.authority.clone(),
        },
    );
    pick(&places, contents)
}

/// The credentials in one Secret, without any fallback.
pub(super) async fn of_secret(kubernetes: &dyn Kubernetes, key: &Key) -> Result<Credentials, Problem> {
    let secret = read_secret(kubernetes, key).await;
    if matches!(secret, Lookup::Absent) {
        let message =
            format!("Secret {key} of spec.identityRef does not exist; create it with keys maasEndpoint and apiKey");
        return Err(Problem { nothing_there: true, ..Problem::credentials(message) });
    }
    let contents = contents_of(&secret);
    let place = Place {
        name: format!("Secret {key} of spec.identityRef"),
        endpoint: Part { place: "key maasEndpoint".to_owned(), found: presence(&contents.endpoint) },
        key: Part { place: "key apiKey".to_owned(), found: presence(&contents.key) },
    };
    pick(&[place], vec![contents]).map_err(|problem| {
        if problem.nothing_there {
            Problem::credentials(format!(
                "Secret {key} of spec.identityRef has neither key maasEndpoint nor key apiKey"
            ))
        } else {
            problem
        }
    })
}

/// The credentials in the values of a Secret; `None` unless they are complete.
pub(super) fn complete(values: &SecretValues, place: String) -> Option<Credentials> {
    let contents = contents_of(&Lookup::Found(values.clone()));
    match (contents.endpoint, contents.key) {
        (Lookup::Found(endpoint), Lookup::Found(key)) => {
            Some(Credentials { endpoint, key, authority: contents.authority, place })
        }
        _ => None,
    }
}

fn pick(places: &[Place], contents: Vec<Contents>) -> Result<Credentials, Problem> {
    let index = match choose(places) {
        Choice::Use(index) => index,
        Choice::Nothing(message) => return Err(Problem { nothing_there: true, ..Problem::credentials(message) }),
        Choice::Incomplete(message) => return Err(Problem::credentials(message)),
        Choice::Unknown(message) => return Err(Problem { not_told: true, ..Problem::credentials(message) }),
    };
    let chosen = contents.into_iter().nth(index).zip(places.get(index));
    match chosen {
        Some((Contents { endpoint: Lookup::Found(endpoint), key: Lookup::Found(key), authority }, place)) => {
            Ok(Credentials { endpoint, key, authority, place: place.name.clone() })
        }
        // `choose` uses complete sources only.
        _ => Err(Problem::credentials("the MAAS credentials could not be put together")),
    }
}

fn contents_of(secret: &Lookup<SecretValues>) -> Contents {
    Contents {
        endpoint: and_then(secret, |values| text(values, &ENDPOINT_NAMES)),
        key: and_then(secret, |values| text(values, &KEY_NAMES)).into_secret(),
        authority: found(secret).and_then(|values| text(values, &[AUTHORITY])),
    }
}

async fn read_secret(kubernetes: &dyn Kubernetes, key: &Key) -> Lookup<SecretValues> {
    match kubernetes.secret(key).await {
        Ok(Some(values)) => Lookup::Found(values),
        Ok(None) => Lookup::Absent,
        Err(error) => Lookup::Unknown(error.to_string()),
    }
}

async fn read_config(kubernetes: &dyn Kubernetes, key: &Key) -> Lookup<BTreeMap<String, String>> {
    match kubernetes.config_map(key).await {
        Ok(Some(data)) => Lookup::Found(data),
        Ok(None) => Lookup::Absent,
        Err(error) => Lookup::Unknown(error.to_string()),
    }
}

fn text(values: &SecretValues, names: &[&str]) -> Option<String> {
    names.iter().find_map(|name| values.text(name).and_then(said))
}

/// A template rendered without values leaves empty strings, and `echo` leaves line ends: neither counts as a value.
fn said(text: &str) -> Option<String> {
    let text = text.trim();
    (!text.is_empty()).then(|| text.to_owned())
}

fn found<T>(lookup: &Lookup<T>) -> Option<&T> {
    match lookup {
        Lookup::Found(value) => Some(value),
        Lookup::Absent | Lookup::Unknown(_) => None,
    }
}

fn and_then<T>(lookup: &Lookup<T>, look: impl FnOnce(&T) -> Option<String>) -> Lookup<String> {
    match lookup {
        Lookup::Found(value) => look(value).map_or(Lookup::Absent, Lookup::Found),
        Lookup::Absent => Lookup::Absent,
        Lookup::Unknown(why) => Lookup::Unknown(why.clone()),
    }
}

fn presence<T>(lookup: &Lookup<T>) -> Lookup<()> {
    match lookup {
        Lookup::Found(_) => Lookup::Found(()),
        Lookup::Absent => Lookup::Absent,
        Lookup::Unknown(why) => Lookup::Unknown(why.clone()),
    }
}

trait IntoSecret {
    fn into_secret(self) -> Lookup<SecretString>;
}

impl IntoSecret for Lookup<String> {
    fn into_secret(self) -> Lookup<SecretString> {
        match self {
            Self::Found(text) => Lookup::Found(text.into()),
            Self::Absent => Lookup::Absent,
            Self::Unknown(why) => Lookup::Unknown(why),
        }
    }
}
