//! Instances: virtual machines and containers.

use std::collections::BTreeMap;

use http::Method;
use serde::{Deserialize, Serialize};

use crate::{
    client::{Client, Done, segment},
    error::Error,
    tolerant,
};

/// An instance.
#[derive(Debug, Clone, Default, PartialEq, Eq, Deserialize)]
pub struct Instance {
    /// Its name.
    #[serde(default, deserialize_with = "tolerant::text")]
    pub name: String,
    /// `virtual-machine` or `container`.
    #[serde(default, rename = "type", deserialize_with = "tolerant::text")]
    pub kind: String,
    /// `Running`, `Stopped`, `Frozen`, `Error`, …
    #[serde(default, deserialize_with = "tolerant::text")]
    pub status: String,
    /// Its project.
    #[serde(default, deserialize_with = "tolerant::text")]
    pub project: String,
    /// Its configuration; `None` for clients that may not see it.
    #[serde(default, deserialize_with = "tolerant::config")]
    pub config: Option<BTreeMap<String, String>>,
}

/// An instance to be made, empty: it boots from the network.
#[derive(Debug, Clone, Default)]
pub struct NewInstance {
    /// Its name.
    pub name: String,
    /// Its configuration, such as `limits.cpu`.
    pub config: BTreeMap<String, String>,
    /// Its devices by name; a virtual machine needs a disk with path `/`.
    pub devices: BTreeMap<String, BTreeMap<String, String>>,
}

/// What to do with an instance.
#[derive(Debug, Clone, Copy, PartialEq, Eq, Serialize)]
#[serde(rename_all = "lowercase")]
pub enum StateAction {
    /// Start it.
    Start,
    /// Switch it off at once.
    Stop,
}

#[derive(Serialize)]
struct Source {
    #[serde(rename = "type")]
    kind: &'static str,
}

#[derive(Serialize)]
struct Body<'a> {
    name: &'a str,
    #[serde(rename = "type")]
    kind: &'static str,
    config: &'a BTreeMap<String, String>,
    devices: &'a BTreeMap<String, BTreeMap<String, String>>,
    profiles: [&'static str; 0],
    source: Source,
}

#[derive(Serialize)]
struct StateBody {
    action: StateAction,
    timeout: u32,
    force: bool,
}

fn path(project: &str, name: &str, rest: &str) -> String {
    format!("/1.0/instances/{}{rest}?project={}", segment(name), segment(project))
}

impl Client {
    /// All instances of a project. LXD answers an empty list for a project that does not exist.
    pub async fn instances(&self, project: &str) -> Result<Vec<Instance>, Error> {
        let path = format!("/1.0/instances?project={}&recursion=1", segment(project));
        self.get::<Option<_>>(&path).await.map(Option::unwrap_or_default)
    }

    /// One instance.
    pub async fn instance(&self, project: &str, name: &str) -> Result<Option<Instance>, Error> {
        self.find(&path(project, name, "")).await
    }

    /// Makes an empty virtual machine.
    pub async fn create_virtual_machine(&self, project: &str, new: &NewInstance) -> Result<Done, Error> {
        let body = Body {
            name: &new.name,
            kind: "virtual-machine",
            config: &new.config,
            devices: &new.devices,
            profiles: [],
            source: Source { kind: "none" },
        };
        self.mutate(Method::POST, &format!("/1.0/instances?project={}", segment(project)), Some(&body)).await
    }

    /// Starts or stops an instance.
    pub async fn set_instance_state(&self, project: &str, name: &str, action: StateAction) -> Result<Done, Error> {
        let body = StateBody { action, timeout: 30, force: action == StateAction::Stop };
        self.mutate(Method::PUT, &path(project, name, "/state"), Some(&body)).await
    }

    /// Deletes a stopped instance with its disks.
    pub async fn delete_instance(&self, project: &str, name: &str) -> Result<Done, Error> {
        self.mutate(Method::DELETE, &path(project, name, ""), None::<&()>).await
    }
}
