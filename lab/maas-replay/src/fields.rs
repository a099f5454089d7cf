//! Fields of recorded forms and queries: objects or lists of pairs, read in their order.

use std::collections::BTreeMap;
use std::fmt;

use serde::de::{Deserializer, Error, MapAccess, SeqAccess, Visitor};
use serde_json::Value;

use crate::recording::{Body, Pairs};

pub(crate) fn no_body() -> Body {
    Body::None
}

pub(crate) fn pairs<'de, D: Deserializer<'de>>(deserializer: D) -> Result<Pairs, D::Error> {
    match deserializer.deserialize_any(Fields)? {
        Body::None => Ok(Vec::new()),
        Body::Form(pairs) => Ok(pairs),
        Body::Text(text) if text.is_empty() => Ok(Vec::new()),
        Body::Text(text) => {
            Err(D::Error::custom(format!("fields are neither an object nor a list of pairs: {text:?}")))
        }
    }
}

pub(crate) fn body<'de, D: Deserializer<'de>>(deserializer: D) -> Result<Body, D::Error> {
    deserializer.deserialize_any(Fields)
}

/// Headers that are not text (a recording may shorten them to null) are omitted.
pub(crate) fn headers<'de, D: Deserializer<'de>>(deserializer: D) -> Result<BTreeMap<String, String>, D::Error> {
    let headers: Option<BTreeMap<String, Value>> = serde::Deserialize::deserialize(deserializer)?;
    let text = |(name, value): (String, Value)| Some((name.to_lowercase(), value.as_str()?.to_owned()));
    Ok(headers.unwrap_or_default().into_iter().filter_map(text).collect())
}

struct Fields;

impl<'de> Visitor<'de> for Fields {
    type Value = Body;

    fn expecting(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        f.write_str("fields (an object or a list of pairs), a text or null")
    }

    fn visit_unit<E: Error>(self) -> Result<Body, E> {
        Ok(Body::None)
    }

    fn visit_str<E: Error>(self, text: &str) -> Result<Body, E> {
        Ok(Body::Text(text.to_owned()))
    }

    fn visit_map<A: MapAccess<'de>>(self, mut map: A) -> Result<Body, A::Error> {
        let mut pairs = Vec::new();
        while let Some((key, value)) = map.next_entry::<String, Value>()? {
            push(&mut pairs, &key, value);
        }
        Ok(Body::Form(pairs))
    }

    fn visit_seq<A: SeqAccess<'de>>(self, mut list: A) -> Result<Body, A::Error> {
        let mut pairs = Vec::new();
        while let Some((key, value)) = list.next_element::<(String, Value)>()? {
            push(&mut pairs, &key, value);
        }
        Ok(Body::Form(pairs))
    }
}

/// A list as value repeats the key.
fn push(pairs: &mut Pairs, key: &str, value: Value) {
    match value {
        Value::Array(values) => values.into_iter().for_each(|value| push(pairs, key, value)),
        Value::String(text) => pairs.push((key.to_owned(), text)),
        Value::Null => pairs.push((key.to_owned(), String::new())),
        other => pairs.push((key.to_owned(), other.to_string())),
    }
}
