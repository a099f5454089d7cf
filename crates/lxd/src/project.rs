//! Projects.

use std::collections::BTreeMap;

use http::Method;
use serde::{Deserialize, Serialize};

use crate::{
    client::{Client, Done, absent, segment},
    error::Error,
    tolerant,
};

/// A project.
#[derive(Debug, Clone, Default, PartialEq, Eq, Deserialize)]
pub struct Project {
    /// Its name.
    #[serde(default, deserialize_with = "tolerant::text")]
    pub name: String,
    /// What a person reads.
    #[serde(default, deserialize_with = "tolerant::text")]
    pub description: String,
    /// Its configuration; `None` for clients that may not see it.
    #[serde(default, deserialize_with = "tolerant::config")]
    pub config: Option<BTreeMap<String, String>>,
    /// What is in it.
    #[serde(default, deserialize_with = "tolerant::texts")]
    pub used_by: Vec<String>,
    /// Its version, for [`Client::replace_project`].
    #[serde(skip)]
    pub etag: Option<String>,
}

/// A project to be made. Features that the configuration does not name take LXD's defaults.
#[derive(Debug, Clone, Default, Serialize)]
pub struct NewProject {
    /// Its name.
    pub name: String,
    /// What a person reads.
    pub description: String,
    /// Its configuration.
    pub config: BTreeMap<String, String>,
}

#[derive(Serialize)]
struct Replacement<'a> {
    description: &'a str,
    config: &'a BTreeMap<String, String>,
}

impl Client {
    /// One project.
    pub async fn project(&self, name: &str) -> Result<Option<Project>, Error> {
        let read = self.read(&format!("/1.0/projects/{}", segment(name))).await;
        absent(read.map(|(project, etag)| Project { etag, ..project }))
    }

    /// All projects that this client may see.
    pub async fn projects(&self) -> Result<Vec<Project>, Error> {
        self.get::<Option<_>>("/1.0/projects?recursion=1").await.map(Option::unwrap_or_default)
    }

    /// Makes a project.
    pub async fn create_project(&self, project: &NewProject) -> Result<Done, Error> {
        self.mutate(Method::POST, "/1.0/projects", Some(project)).await
    }

    /// Replaces description and configuration as a whole, if the project is still as it was read.
    ///
    /// There is no partial change on purpose: LXD up to 5.0.3 drops every key that a PATCH does not name, the restrictions
    /// among them.
    pub async fn replace_project(&self, project: &Project) -> Result<Done, Error> {
        let empty = BTreeMap::new();
        let body = Replacement { description: &project.description, config: project.config.as_ref().unwrap_or(&empty) };
        let path = format!("/1.0/projects/{}", segment(&project.name));
        self.mutate_if(Method::PUT, &path, Some(&body), project.etag.as_deref()).await
    }
}
