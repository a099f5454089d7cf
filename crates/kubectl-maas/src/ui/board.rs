//! The objects that the page shows, and the subscribers to their changes.

use std::collections::BTreeMap;
use std::sync::{Arc, Mutex, PoisonError};

use serde_json::{Value, json};
use tokio::sync::broadcast;

/// This many changes may wait for a slow page; then it gets everything again.
const WAITING: usize = 64;

/// Objects by their key, such as `machine/default/m1`. Clones share them.
#[derive(Clone)]
pub(super) struct Board {
    objects: Arc<Mutex<BTreeMap<String, Value>>>,
    changes: broadcast::Sender<Arc<str>>,
}

impl Default for Board {
    fn default() -> Self {
        Self { objects: Arc::default(), changes: broadcast::channel(WAITING).0 }
    }
}

impl Board {
    /// Replaces everything whose key begins with one of `kinds` by `objects`.
    pub(super) fn replace(&self, kinds: &[&str], objects: BTreeMap<String, Value>) {
        let mut known = self.objects.lock().unwrap_or_else(PoisonError::into_inner);
        let is_meant = |key: &str| key.split('/').next().is_some_and(|kind| kinds.contains(&kind));
        let gone: Vec<String> =
            known.keys().filter(|key| is_meant(key) && !objects.contains_key(*key)).cloned().collect();
        let mut set = serde_json::Map::new();
        for (key, object) in objects {
            if known.get(&key) != Some(&object) {
                set.insert(key.clone(), object.clone());
                known.insert(key, object);
            }
        }
        for key in &gone {
            known.remove(key);
        }
        if !set.is_empty() || !gone.is_empty() {
            // There may be no subscriber.
            let _ = self.changes.send(json!({"set": set, "gone": gone}).to_string().into());
        }
    }

    /// Everything, and the changes from then on.
    pub(super) fn subscribe(&self) -> (Arc<str>, broadcast::Receiver<Arc<str>>) {
        let known = self.objects.lock().unwrap_or_else(PoisonError::into_inner);
        (json!({"reset": true, "set": *known}).to_string().into(), self.changes.subscribe())
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    fn objects(pairs: &[(&str, i64)]) -> BTreeMap<String, Value> {
        pairs.iter().map(|(key, value)| ((*key).to_owned(), json!(value))).collect()
    }

    #[test]
    fn only_what_changed_is_told() {
        let board = Board::default();
        board.replace(&["machine"], objects(&[("machine/a/1", 1), ("machine/a/2", 2)]));
        board.replace(&["host"], objects(&[("host/1", 1)]));
        let (all, mut changes) = board.subscribe();
        let all: Value = serde_json::from_str(&all).unwrap();
        assert_eq!(all, json!({"reset": true, "set": {"host/1": 1, "machine/a/1": 1, "machine/a/2": 2}}));

        board.replace(&["machine"], objects(&[("machine/a/1", 1), ("machine/a/2", 2)]));
        assert!(changes.try_recv().is_err(), "nothing is new");
        board.replace(&["machine"], objects(&[("machine/a/1", 1), ("machine/a/3", 3)]));
        let told: Value = serde_json::from_str(&changes.try_recv().unwrap()).unwrap();
        assert_eq!(told, json!({"set": {"machine/a/3": 3}, "gone": ["machine/a/2"]}));
    }
}
