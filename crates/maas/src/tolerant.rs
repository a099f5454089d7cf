//! Decoding that tolerates what MAAS may add, remove or change between releases.
//!
//! The rule: the fields that identify an object must be present, or the answer is not understood. Everything else may
//! be missing, null or of an unexpected type, and is then None or an empty list.

use std::collections::BTreeMap;

use serde::Deserialize;
use serde::de::{DeserializeOwned, Deserializer};
use serde_json::Value;

/// A field that is decoded as far as it is understood.
pub(crate) trait Tolerant: Sized {
    fn tolerate(value: Value) -> Self;
}

impl<T: DeserializeOwned> Tolerant for Option<T> {
    fn tolerate(value: Value) -> Self {
        if value.is_null() { None } else { serde_json::from_value(value).ok() }
    }
}

impl<T: DeserializeOwned> Tolerant for Vec<T> {
    fn tolerate(value: Value) -> Self {
        match value {
            Value::Array(items) => items.into_iter().filter_map(|item| serde_json::from_value(item).ok()).collect(),
            _ => Self::new(),
        }
    }
}

impl<T: DeserializeOwned> Tolerant for BTreeMap<String, T> {
    fn tolerate(value: Value) -> Self {
        match value {
            Value::Object(entries) => entries
                .into_iter()
                .filter_map(|(key, value)| serde_json::from_value(value).ok().map(|value| (key, value)))
                .collect(),
            _ => Self::new(),
        }
    }
}

pub(crate) fn field<'de, D: Deserializer<'de>, T: Tolerant>(deserializer: D) -> Result<T, D::Error> {
    Value::deserialize(deserializer).map(T::tolerate)
}

/// Declares a type of MAAS's JSON: first the required fields, then the optional ones.
macro_rules! wire_type {
    (
        $(#[$type_meta:meta])*
        $name:ident {
            required { $( $(#[$required_meta:meta])* $required:ident : $required_type:ty ),* $(,)? }
            $( $(#[$field_meta:meta])* $field:ident : $field_type:ty ),* $(,)?
        }
    ) => {
        $(#[$type_meta])*
        #[derive(Debug, Clone, serde::Deserialize)]
        #[non_exhaustive]
        pub struct $name {
            $( $(#[$required_meta])* pub $required: $required_type, )*
            $(
                $(#[$field_meta])*
                #[serde(default, deserialize_with = "crate::tolerant::field")]
                pub $field: $field_type,
            )*
        }
    };
    ( $(#[$type_meta:meta])* $name:ident { $($fields:tt)* } ) => {
        crate::tolerant::wire_type! { $(#[$type_meta])* $name { required {} $($fields)* } }
    };
}
pub(crate) use wire_type;

#[cfg(test)]
mod tests {
    #![allow(unreachable_pub, reason = "the macro declares public types, which none here can be")]

    use super::*;

    wire_type! {
        /// A sample type.
        Thing {
            required {
                /// The id.
                id: i64,
            }
            /// A text.
            name: Option<String>,
            /// Texts.
            tags: Vec<String>,
            /// Key and value.
            notes: BTreeMap<String, String>,
        }
    }

    #[test]
    fn a_leaf_of_another_type_reads_as_nothing_and_its_neighbours_stay() {
        let thing: Thing = serde_json::from_str(
            r#"{"id": 3, "name": 5, "tags": ["a", null, {"x": 1}, "b"], "notes": {"a": "1", "b": []}, "new": [[]]}"#,
        )
        .unwrap();
        assert_eq!((thing.id, thing.name), (3, None));
        assert_eq!(thing.tags, ["a", "b"]);
        assert_eq!(thing.notes.into_iter().collect::<Vec<_>>(), [("a".to_owned(), "1".to_owned())]);
    }

    #[test]
    fn missing_and_null_are_the_same() {
        for text in [r#"{"id": 3}"#, r#"{"id": 3, "name": null, "tags": null, "notes": null}"#] {
            let thing: Thing = serde_json::from_str(text).unwrap();
            assert!(thing.name.is_none() && thing.tags.is_empty() && thing.notes.is_empty(), "{text}");
        }
    }

    #[test]
    fn what_identifies_an_object_must_be_there() {
        for text in ["{}", r#"{"id": null}"#, r#"{"id": "x"}"#, "[]", "3", "null"] {
            assert!(serde_json::from_str::<Thing>(text).is_err(), "{text}");
        }
    }
}
