//! The list of exchanges that are known not to agree, each with its reason.

use std::collections::BTreeMap;
use std::fs;
use std::path::Path;

use crate::arrangement::ArrangementError;
use crate::recording::ReadError;

/// Exceptions by the name of the recording.
#[derive(Clone, Debug, Default)]
pub struct Exceptions {
    reasons: BTreeMap<String, String>,
}

impl Exceptions {
    /// Reads a YAML file of names and reasons.
    pub fn read(path: &Path) -> Result<Self, ArrangementError> {
        let text = fs::read_to_string(path).map_err(|source| ReadError::Io { path: path.to_owned(), source })?;
        let reasons: Option<BTreeMap<String, String>> = serde_saphyr::from_str(&text)
            .map_err(|source| ArrangementError::Yaml { path: path.to_owned(), source: Box::new(source) })?;
        let reasons = reasons.unwrap_or_default();
        if let Some((entry, name)) =
            reasons.iter().enumerate().find(|(_, (_, why))| why.trim().is_empty()).map(|(n, (name, _))| (n, name))
        {
            let what = format!("{name} has no reason");
            return Err(ArrangementError::Entry { path: path.to_owned(), entry: entry + 1, what });
        }
        Ok(Self { reasons })
    }

    /// Why a recording is known not to agree.
    pub fn reason(&self, name: &str) -> Option<&str> {
        self.reasons.get(name).map(String::as_str)
    }

    /// The names of all exceptions.
    pub fn names(&self) -> impl Iterator<Item = &str> {
        self.reasons.keys().map(String::as_str)
    }
}
