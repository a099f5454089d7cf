//! Decoding that tolerates what LXD really sends: `null` for an empty list or map, numbers and booleans where a text is
//! documented, and fields of other versions. A leaf that cannot be decoded takes its default; a *list of objects* that
//! cannot be decoded is never treated as empty, since "none" is a fact that callers act on.

use std::collections::BTreeMap;

use serde::{Deserialize, Deserializer, de::DeserializeOwned};
use serde_json::Value;

/// The value, or the default if it is null or of another type.
pub(crate) fn or_default<'de, D, T>(from: D) -> Result<T, D::Error>
where
    D: Deserializer<'de>,
    T: DeserializeOwned + Default,
{
    Ok(T::deserialize(Value::deserialize(from)?).unwrap_or_default())
}

/// A text; numbers and booleans are converted, anything else is empty.
pub(crate) fn text<'de, D: Deserializer<'de>>(from: D) -> Result<String, D::Error> {
    Ok(as_text(&Value::deserialize(from)?).unwrap_or_default())
}

/// A list of texts; null is the empty list, non-scalar entries are omitted.
pub(crate) fn texts<'de, D: Deserializer<'de>>(from: D) -> Result<Vec<String>, D::Error> {
    Ok(match Value::deserialize(from)? {
        Value::Array(items) => items.iter().filter_map(as_text).collect(),
        _ => Vec::new(),
    })
}

/// A configuration map with values of any scalar type; `None` if LXD hides it (restricted clients get null).
pub(crate) fn config<'de, D: Deserializer<'de>>(from: D) -> Result<Option<BTreeMap<String, String>>, D::Error> {
    Ok(match Value::deserialize(from)? {
        Value::Object(entries) => {
            Some(entries.iter().filter_map(|(key, value)| Some((key.clone(), as_text(value)?))).collect())
        }
        _ => None,
    })
}

fn as_text(value: &Value) -> Option<String> {
    match value {
        Value::String(text) => Some(text.clone()),
        Value::Bool(flag) => Some(flag.to_string()),
        Value::Number(number) => Some(number.to_string()),
        Value::Null | Value::Array(_) | Value::Object(_) => None,
    }
}
