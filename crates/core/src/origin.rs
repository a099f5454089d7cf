//! For which object a journal was written (S25).
//!
//! Annotations are copied: in exported YAML, in backups, with `clusterctl move`. A journal therefore names its object. Any other
//! object that carries it is a copy and changes nothing, unless it is the same object after a move or a restore.

use k8s_openapi::apimachinery::pkg::apis::meta::v1::ObjectMeta;
use serde::{Deserialize, Serialize};

#[derive(Debug, Clone, Default, PartialEq, Eq, Serialize, Deserialize)]
pub struct WrittenFor {
    pub namespace: String,
    pub name: String,
    pub uid: String,
}

/// The relation of an object to the journal that it carries.
#[derive(Debug, Clone, PartialEq, Eq)]
pub enum Origin {
    /// The journal was written for this very object.
    Own,
    /// The journal does not name its object: an earlier release stored it.
    Unrecorded,
    /// Same namespace and name, another UID: the object was moved to another management cluster or restored from a backup. Its
    /// owner must prove it, because an object that somebody created again from exported YAML looks the same.
    Renewed(WrittenFor),
    /// Another namespace or name: a copy.
    Copy(WrittenFor),
}

impl WrittenFor {
    /// The object of this metadata.
    pub fn of(metadata: &ObjectMeta) -> Self {
        let text = |text: &Option<String>| text.clone().unwrap_or_default();
        Self { namespace: text(&metadata.namespace), name: text(&metadata.name), uid: text(&metadata.uid) }
    }

    /// Namespace and name, as in the stamp on a machine.
    pub fn object(&self) -> String {
        format!("{}/{}", self.namespace, self.name)
    }

    /// The relation of the object with this metadata to its journal.
    pub fn judge(journal: Option<&Self>, metadata: &ObjectMeta) -> Origin {
        Self::of(metadata).judge_of(journal)
    }

    /// The relation of this object to a journal that it carries.
    pub fn judge_of(&self, journal: Option<&Self>) -> Origin {
        match journal {
            None => Origin::Unrecorded,
            Some(journal) if journal == self => Origin::Own,
            Some(journal) if journal.namespace == self.namespace && journal.name == self.name => {
                Origin::Renewed(journal.clone())
            }
            Some(journal) => Origin::Copy(journal.clone()),
        }
    }
}

impl std::fmt::Display for WrittenFor {
    fn fmt(&self, f: &mut std::fmt::Formatter<'_>) -> std::fmt::Result {
        write!(f, "{}/{} (UID {})", self.namespace, self.name, self.uid)
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn s25_a_journal_tells_its_own_object_from_a_new_life_and_from_a_copy() {
        let metadata = |namespace: &str, name: &str, uid: &str| ObjectMeta {
            namespace: Some(namespace.into()),
            name: Some(name.into()),
            uid: Some(uid.into()),
            ..ObjectMeta::default()
        };
        let original = metadata("a", "m", "1");
        let journal = WrittenFor::of(&original);
        let judge = |metadata: &ObjectMeta| WrittenFor::judge(Some(&journal), metadata);
        assert_eq!(judge(&original), Origin::Own);
        assert_eq!(judge(&metadata("a", "m", "2")), Origin::Renewed(journal.clone()));
        assert_eq!(judge(&metadata("a", "m-copy", "2")), Origin::Copy(journal.clone()));
        assert_eq!(judge(&metadata("b", "m", "1")), Origin::Copy(journal.clone()));
        assert_eq!(WrittenFor::judge(None, &original), Origin::Unrecorded);
    }
}
