//! Arrangement files: the state that a recording presupposes and that no earlier one created. See README.md.

use std::collections::BTreeMap;
use std::fs;
use std::path::{Path, PathBuf};

use serde::{Deserialize, Deserializer};
use serde_json::Value;

use crate::recording::{Position, ReadError, Recording, files_of};
use crate::sentence;

#[derive(Debug, thiserror::Error)]
pub enum ArrangementError {
    /// The folder or a file cannot be read.
    #[error(transparent)]
    Read(#[from] ReadError),
    /// The file is not YAML of this format.
    #[error("{} is not an arrangement file: {source}", path.display())]
    Yaml {
        path: PathBuf,
        /// The parser's error.
        source: Box<serde_saphyr::Error>,
    },
    /// An invalid entry.
    #[error("{}, entry {entry}: {what}", path.display())]
    Entry {
        path: PathBuf,
        /// Its index, from 1.
        entry: usize,
        what: String,
    },
}

/// One entry as written in a file.
#[derive(Debug, Deserialize)]
#[serde(deny_unknown_fields)]
struct RawEntry {
    #[serde(default, deserialize_with = "mark")]
    before: Option<String>,
    #[serde(default, rename = "for", deserialize_with = "mark")]
    range: Option<String>,
    because: String,
    #[serde(default)]
    reset: bool,
    #[serde(default)]
    callers: BTreeMap<String, String>,
    #[serde(default)]
    state: Vec<Value>,
    #[serde(default)]
    forces: Vec<String>,
    #[serde(default)]
    credentials: Option<Credentials>,
    #[serde(default)]
    order: Vec<String>,
}

/// Numbers of recordings may be written with or without quotes.
fn mark<'de, D: Deserializer<'de>>(deserializer: D) -> Result<Option<String>, D::Error> {
    Ok(match Value::deserialize(deserializer)? {
        Value::Null => None,
        Value::String(text) => Some(text),
        // YAML parses 008, which is not an octal number, as a float.
        other => Some(other.to_string().trim_end_matches(".0").to_owned()),
    })
}

/// How a request was authenticated, where the recording hides it.
#[derive(Clone, Debug, Default, Deserialize, PartialEq, Eq)]
#[serde(deny_unknown_fields)]
pub struct Credentials {
    /// An additional key of the caller, with any name.
    #[serde(default)]
    pub key: Option<String>,
    /// An additional key of the caller that the request refers to.
    #[serde(default)]
    pub about: Option<String>,
    /// A part of the key that was wrong.
    #[serde(default)]
    pub wrong: Option<WrongPart>,
}

/// A part of an API key.
#[derive(Clone, Copy, Debug, Deserialize, PartialEq, Eq)]
#[serde(rename_all = "lowercase")]
pub enum WrongPart {
    /// The consumer key.
    Consumer,
    /// The token key.
    Token,
    /// The token secret.
    Secret,
}

/// What is arranged before a recording.
#[derive(Clone, Debug)]
pub struct Entry {
    /// Before the first recording that reaches this number.
    pub before: Position,
    /// From here on another, freshly installed MAAS answers.
    pub reset: bool,
    /// The users that the recording's caller names refer to.
    pub callers: BTreeMap<String, String>,
    /// Statements for the simulator, in order.
    pub statements: Vec<Value>,
    /// Machines in a transitional status that do not reach the stated status by themselves.
    pub forces: Vec<String>,
}

/// The contents of all arrangement files of a folder.
#[derive(Clone, Debug, Default)]
pub struct Arrangements {
    /// In the order of the recordings; entries for the same number in the order of files and lines.
    pub entries: Vec<Entry>,
    credentials: Vec<(Position, Position, Credentials)>,
    orders: Vec<Vec<String>>,
}

impl Arrangements {
    /// Reads `folder/arrangements/*.yaml` and `folder/*.arrange.yaml`.
    pub fn beside(folder: &Path) -> Result<Self, ArrangementError> {
        let mut found = Self::default();
        let is_yaml = |path: &Path| path.extension().is_some_and(|end| end == "yaml" || end == "yml");
        let nested = folder.join("arrangements");
        let mut paths: Vec<_> = files_of(folder)?.into_iter().filter(|path| is_yaml(path)).collect();
        paths.retain(|path| {
            path.file_stem().is_some_and(|stem| Path::new(stem).extension().is_some_and(|end| end == "arrange"))
        });
        if nested.is_dir() {
            paths.extend(files_of(&nested)?.into_iter().filter(|path| is_yaml(path)));
        }
        for path in paths {
            found.read_file(&path)?;
        }
        Ok(found.sorted())
    }

    /// Reads every `*.yaml` of a folder.
    pub fn in_folder(folder: &Path) -> Result<Self, ArrangementError> {
        let mut found = Self::default();
        for path in files_of(folder)?.into_iter().filter(|path| path.extension().is_some_and(|end| end == "yaml")) {
            found.read_file(&path)?;
        }
        Ok(found.sorted())
    }

    /// Adds the entries of another set.
    #[must_use]
    pub fn and(mut self, other: Self) -> Self {
        self.entries.extend(other.entries);
        self.credentials.extend(other.credentials);
        self.orders.extend(other.orders);
        self.sorted()
    }

    fn sorted(mut self) -> Self {
        self.entries.sort_by(|a, b| a.before.cmp(&b.before));
        self
    }

    fn read_file(&mut self, path: &Path) -> Result<(), ArrangementError> {
        let text = fs::read_to_string(path).map_err(|source| ReadError::Io { path: path.to_owned(), source })?;
        let entries: Vec<RawEntry> = serde_saphyr::from_str(&text)
            .map_err(|source| ArrangementError::Yaml { path: path.to_owned(), source: Box::new(source) })?;
        for (number, entry) in entries.into_iter().enumerate() {
            let wrong = |what: String| ArrangementError::Entry { path: path.to_owned(), entry: number + 1, what };
            self.add(entry).map_err(wrong)?;
        }
        Ok(())
    }

    fn add(&mut self, entry: RawEntry) -> Result<(), String> {
        if entry.because.trim().is_empty() {
            return Err("says not why it is needed (because: …)".to_owned());
        }
        let said = usize::from(entry.before.is_some())
            + usize::from(entry.range.is_some())
            + usize::from(!entry.order.is_empty());
        if said != 1 {
            return Err("needs exactly one of before, for and order".to_owned());
        }
        if let Some(before) = entry.before {
            if entry.credentials.is_some() {
                return Err("credentials belong to single requests: write for: instead of before:".to_owned());
            }
            let statements = entry.state.iter().map(sentence::statement).collect::<Result<_, _>>()?;
            let (before, forces) = (before.parse()?, entry.forces);
            self.entries.push(Entry { before, reset: entry.reset, callers: entry.callers, statements, forces });
        } else if let Some(range) = entry.range {
            let credentials = entry.credentials.ok_or("for: is followed by credentials")?;
            let (first, last) = range.split_once('-').unwrap_or((&range, &range));
            self.credentials.push((first.trim().parse()?, last.trim().parse()?, credentials));
        } else {
            self.orders.push(entry.order);
        }
        Ok(())
    }

    /// How the request of a recording was authenticated.
    pub fn credentials(&self, position: &Position) -> Credentials {
        let covers = |(first, last, _): &&(Position, Position, Credentials)| {
            position.reaches(first) && (position.is_at(last) || !position.reaches(last))
        };
        self.credentials.iter().rev().find(covers).map(|(_, _, credentials)| credentials.clone()).unwrap_or_default()
    }

    /// Puts recordings with the same number, or made at the same time, into the order given in a file. They only swap
    /// their own positions; recordings between them stay where they are.
    pub fn reorder(&self, recordings: &mut [Recording]) {
        for names in &self.orders {
            let mut places: Vec<usize> = names
                .iter()
                .filter_map(|name| recordings.iter().position(|recording| recording.name == *name))
                .collect();
            let wanted: Vec<Recording> = places.iter().map(|place| recordings[*place].clone()).collect();
            places.sort_unstable();
            for (place, recording) in places.into_iter().zip(wanted) {
                recordings[place] = recording;
            }
        }
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    fn read(text: &str) -> Result<Arrangements, String> {
        let entries: Vec<RawEntry> = serde_saphyr::from_str(text).map_err(|error| error.to_string())?;
        let mut arrangements = Arrangements::default();
        entries.into_iter().try_for_each(|entry| arrangements.add(entry))?;
        Ok(arrangements.sorted())
    }

    #[test]
    fn entries_are_sorted_by_the_number_that_they_stand_before() {
        let found = read(
            "- before: 368b\n  because: x\n- before: 010\n  because: x\n- before: \"008\"\n  because: x\n- before: 1000\n  because: x\n",
        )
        .unwrap();
        let marks: Vec<_> = found.entries.iter().map(|entry| entry.before.to_string()).collect();
        assert_eq!(marks, ["008", "010", "368b", "1000"]);
    }

    #[test]
    fn credentials_cover_a_range_of_requests() {
        let found = read("- for: 1246-1253\n  because: x\n  credentials: {key: tmp}\n- for: 008\n  because: x\n  credentials: {wrong: secret}\n").unwrap();
        let at = |name: &str| found.credentials(&name.parse().unwrap());
        assert_eq!(at("1250-x").key.as_deref(), Some("tmp"));
        assert_eq!(at("1253-x").key.as_deref(), Some("tmp"));
        assert_eq!(at("1254-x"), Credentials::default());
        assert_eq!(at("008-x").wrong, Some(WrongPart::Secret));
    }

    #[test]
    fn an_entry_without_a_reason_or_a_place_is_refused() {
        assert!(read("- before: 1\n").unwrap_err().contains("because"));
        assert!(read("- because: x\n").unwrap_err().contains("exactly one"));
        assert!(read("- before: 1\n  because: x\n  answer: 200\n").unwrap_err().contains("answer"));
    }
}
