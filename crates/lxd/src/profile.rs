//! Profiles: settings that instances inherit.

use serde::Deserialize;

use crate::{
    client::{Client, segment},
    error::Error,
    tolerant,
};

/// A profile.
#[derive(Debug, Clone, Default, PartialEq, Eq, Deserialize)]
pub struct Profile {
    /// Its name.
    #[serde(default, deserialize_with = "tolerant::text")]
    pub name: String,
    /// What uses it.
    #[serde(default, deserialize_with = "tolerant::texts")]
    pub used_by: Vec<String>,
}

impl Client {
    /// The profiles that are available to instances of a project.
    pub async fn profiles(&self, project: &str) -> Result<Vec<Profile>, Error> {
        let path = format!("/1.0/profiles?recursion=1&project={}", segment(project));
        self.get::<Option<_>>(&path).await.map(Option::unwrap_or_default)
    }
}
