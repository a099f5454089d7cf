//! Reading stored objects without ever failing.
//!
//! One object that does not decode stops a whole watch, and with it the care for every other machine. So a part that
//! cannot be read is left out and its path is remembered, and the rest of the object is delivered. What was left out is
//! unknown, not absent: whoever acts on a spec looks at its `unreadable` list first, and nobody writes back a whole spec
//! that was read, since that would remove it.

use serde::{Deserialize, Deserializer, de::DeserializeOwned};
use serde_json::Value;
use serde_path_to_error::{Path, Segment};

/// The path that stands for the whole value in a list of unreadable parts.
pub const WHOLE_VALUE: &str = ".";

/// A value together with the paths of what could not be read into it.
#[derive(Clone, Debug, Default, PartialEq)]
pub struct Tolerant<T> {
    /// What could be read; the rest has its default.
    pub value: T,
    /// Paths of the parts that were left out, [`WHOLE_VALUE`] if nothing could be used. An index counts the list items
    /// that were still there.
    pub unreadable: Vec<String>,
}

impl<T: Default> Tolerant<T> {
    pub(crate) fn nothing_readable() -> Self {
        Self { value: T::default(), unreadable: vec![WHOLE_VALUE.to_owned()] }
    }
}

impl<T> std::ops::Deref for Tolerant<T> {
    type Target = T;

    fn deref(&self) -> &T {
        &self.value
    }
}

impl<'de, T: DeserializeOwned + Default> Deserialize<'de> for Tolerant<T> {
    fn deserialize<D: Deserializer<'de>>(deserializer: D) -> Result<Self, D::Error> {
        Ok(read(Value::deserialize(deserializer)?, |strict| T::deserialize(strict)))
    }
}

/// Reads `value` with `strict`, taking away whatever `strict` stumbles over until it succeeds.
///
/// `strict` is called with a deserializer that reports where it stands, once for each unreadable part and once more.
pub(crate) fn read<T, F>(mut value: Value, strict: F) -> Tolerant<T>
where
    T: Default,
    F: for<'a, 'b, 'v> Fn(serde_path_to_error::Deserializer<'a, 'b, &'v Value>) -> Result<T, serde_json::Error>,
{
    // `null` is how JSON says "nothing here", which is no fault of anybody.
    if value.is_null() {
        return Tolerant::default();
    }
    // serde would fill the fields of a struct from a list, one after the other.
    if !value.is_object() {
        return Tolerant::nothing_readable();
    }
    let mut unreadable = Vec::new();
    loop {
        let mut track = serde_path_to_error::Track::new();
        if let Ok(read) = strict(serde_path_to_error::Deserializer::new(&value, &mut track)) {
            return Tolerant { value: read, unreadable };
        }
        let path = track.path();
        if !remove(&mut value, &path) {
            return Tolerant::nothing_readable();
        }
        unreadable.push(path.to_string());
    }
}

/// Takes away the innermost part on `path` that exists. False if there is nothing left to take away.
fn remove(value: &mut Value, path: &Path) -> bool {
    let steps: Vec<&Segment> = path.iter().collect();
    (1..=steps.len()).rev().any(|depth| remove_exactly(value, &steps[..depth]))
}

fn remove_exactly(value: &mut Value, steps: &[&Segment]) -> bool {
    let Some((last, parents)) = steps.split_last() else { return false };
    let mut place = value;
    for step in parents {
        let next = match step {
            Segment::Map { key } => place.get_mut(key.as_str()),
            Segment::Seq { index } => place.get_mut(*index),
            Segment::Enum { .. } | Segment::Unknown => None,
        };
        match next {
            Some(next) => place = next,
            None => return false,
        }
    }
    match (last, place) {
        (Segment::Map { key }, Value::Object(fields)) => fields.remove(key).is_some(),
        (Segment::Seq { index }, Value::Array(items)) if *index < items.len() => {
            items.remove(*index);
            true
        }
        _ => false,
    }
}

/// Implements `Serialize` and a `Deserialize` that never fails for a struct that derives both with
/// `#[serde(remote = "Self")]` (which makes the derived code inherent functions) and has a field `unreadable`.
///
/// A missing value counts as unreadable: nobody can act on an object without a spec, and the Go provider's schema let
/// such objects through.
macro_rules! tolerant_struct {
    ($name:ident) => {
        impl serde::Serialize for $name {
            fn serialize<S: serde::Serializer>(&self, serializer: S) -> Result<S::Ok, S::Error> {
                $name::serialize(self, serializer)
            }
        }

        impl<'de> serde::Deserialize<'de> for $name {
            fn deserialize<D: serde::Deserializer<'de>>(deserializer: D) -> Result<Self, D::Error> {
                // An option, because that is how serde asks when the field is missing.
                let stored = Option::<serde_json::Value>::deserialize(deserializer)?;
                let read = match stored {
                    Some(stored) => $crate::tolerant::read(stored, |strict| $name::deserialize(strict)),
                    None => $crate::tolerant::Tolerant::nothing_readable(),
                };
                let mut value: Self = read.value;
                value.unreadable = read.unreadable;
                Ok(value)
            }
        }
    };
}
pub(crate) use tolerant_struct;

#[cfg(test)]
mod tests {
    use serde_json::json;

    use super::*;

    #[derive(Debug, Default, Deserialize, PartialEq)]
    #[serde(default)]
    struct Sample {
        name: String,
        size: Option<i64>,
        list: Vec<Item>,
    }

    #[derive(Debug, Deserialize, PartialEq)]
    struct Item {
        kind: String,
    }

    fn item(kind: &str) -> Item {
        Item { kind: kind.to_owned() }
    }

    fn sample(stored: Value) -> Tolerant<Sample> {
        serde_json::from_value(stored).unwrap()
    }

    #[test]
    fn a_healthy_value_reads_whole() {
        let read = sample(json!({"name": "a", "size": 3, "list": [{"kind": "x"}], "foreign": true}));
        assert_eq!(read.value, Sample { name: "a".into(), size: Some(3), list: vec![item("x")] });
        assert!(read.unreadable.is_empty());
    }

    #[test]
    fn a_wrong_leaf_is_left_out_and_named() {
        let read = sample(json!({"name": ["a"], "size": "three", "list": [{"kind": "x"}]}));
        assert_eq!(read.value, Sample { list: vec![item("x")], ..Sample::default() });
        assert_eq!(read.unreadable, ["name", "size"]);
    }

    #[test]
    fn a_list_item_that_lacks_what_it_must_have_is_left_out_alone() {
        let read = sample(json!({"list": [{"kind": "x"}, {"kind": 7}, {"kind": "y"}, 8]}));
        assert_eq!(read.list, [item("x"), item("y")]);
        assert_eq!(read.unreadable, ["list[1].kind", "list[1]", "list[2]"]);
    }

    #[test]
    fn a_value_of_another_kind_reads_as_nothing_and_says_so() {
        for stored in [json!("text"), json!([1]), json!(true)] {
            let read = sample(stored);
            assert_eq!(read.value, Sample::default());
            assert_eq!(read.unreadable, [WHOLE_VALUE]);
        }
    }

    #[test]
    fn null_is_absent_and_no_fault() {
        assert_eq!(sample(Value::Null), Tolerant::default());
    }
}
