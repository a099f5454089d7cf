//! Projects.

use std::collections::BTreeMap;

use http::Method;
use serde::{Deserialize, Serialize};

use crate::{
    client::{Client, Mutated, segment},
    error::Error,
    tolerant,
};

/// A project.
#[derive(Debug, Clone, Default, PartialEq, Eq, Deserialize)]
pub struct Project {
    /// Its name.
    #[serde(default, deserialize_with = "tolerant::text")]
    pub name: String,
    /// Free text.
    #[serde(default, deserialize_with = "tolerant::text")]
    pub description: String,
    /// Its configuration; `None` for clients that may not read it.
    #[serde(default, deserialize_with = "tolerant::config")]
    pub config: Option<BTreeMap<String, String>>,
    /// The objects in it.
    #[serde(default, deserialize_with = "tolerant::texts")]
    pub used_by: Vec<String>,
}

/// A new project. Features that the configuration does not set get LXD's defaults.
#[derive(Debug, Clone, Default, Serialize)]
pub struct NewProject {
    /// Its name.
    pub name: String,
    /// Free text.
    pub description: String,
    /// Its configuration.
    pub config: BTreeMap<String, String>,
}

impl Client {
    /// One project.
    pub async fn project(&self, name: &str) -> Result<Option<Project>, Error> {
        self.find(&format!("/1.0/projects/{}", segment(name))).await
    }

    /// All projects that are visible to this client.
    pub async fn projects(&self) -> Result<Vec<Project>, Error> {
        self.get::<Option<_>>("/1.0/projects?recursion=1").await.map(Option::unwrap_or_default)
    }

    /// Creates a project.
    ///
    /// There is no method that changes one: LXD up to 5.0.3 drops every key that a PATCH does not name, including the
    /// restrictions.
    pub async fn create_project(&self, project: &NewProject) -> Mutated {
        self.mutate(Method::POST, "/1.0/projects", Some(project)).await
    }
}
