//! `status.failureDomains`: a map for cores that know only the v1beta1 contract, a list for all others.

use std::{borrow::Cow, collections::BTreeMap};

use schemars::{JsonSchema, Schema, SchemaGenerator, json_schema};
use serde::{Deserialize, Deserializer, Serialize};
use serde_json::Value;

use crate::tolerant::Tolerant;

/// What is known about one failure domain, apart from its name.
#[derive(Clone, Debug, Default, PartialEq, Eq, Serialize, Deserialize)]
#[serde(default, rename_all = "camelCase")]
pub struct FailureDomainDetails {
    /// Whether control plane machines may be placed there.
    #[serde(skip_serializing_if = "Option::is_none")]
    pub control_plane: Option<bool>,
    /// Free key-value pairs.
    #[serde(skip_serializing_if = "BTreeMap::is_empty")]
    pub attributes: BTreeMap<String, String>,
}

/// One failure domain of the list form.
#[derive(Clone, Debug, Default, PartialEq, Eq, Serialize, Deserialize)]
pub struct NamedFailureDomain {
    /// The MAAS zone.
    pub name: String,
    /// The rest.
    #[serde(flatten)]
    pub details: FailureDomainDetails,
}

/// The failure domains of a cluster in either of the two shapes of the contract.
///
/// The CRD leaves the field without a type, because one schema cannot describe both.
#[derive(Clone, Debug, PartialEq, Eq, Serialize)]
#[serde(untagged)]
pub enum FailureDomains {
    /// The v1beta2 contract: Cluster API v1.11 and later.
    List(Vec<NamedFailureDomain>),
    /// The v1beta1 contract: Cluster API up to v1.10.
    Map(BTreeMap<String, FailureDomainDetails>),
}

impl FailureDomains {
    /// Name and details of each, whatever the stored shape, in stored order.
    pub fn entries(&self) -> Box<dyn Iterator<Item = (&str, &FailureDomainDetails)> + '_> {
        match self {
            Self::List(list) => Box::new(list.iter().map(|domain| (domain.name.as_str(), &domain.details))),
            Self::Map(map) => Box::new(map.iter().map(|(name, details)| (name.as_str(), details))),
        }
    }
}

impl<'de> Deserialize<'de> for FailureDomains {
    fn deserialize<D: Deserializer<'de>>(deserializer: D) -> Result<Self, D::Error> {
        use serde::de::Error;

        match Value::deserialize(deserializer)? {
            Value::Object(map) => Ok(Self::Map(
                map.into_iter()
                    .map(|(name, details)| Ok((name, details_of(details)?)))
                    .collect::<Result<_, D::Error>>()?,
            )),
            // An entry without a name cannot be used by anybody.
            Value::Array(items) => Ok(Self::List(
                items
                    .into_iter()
                    .filter_map(|item| Some((item.get("name")?.as_str()?.to_owned(), item)))
                    .map(|(name, item)| Ok(NamedFailureDomain { name, details: details_of(item)? }))
                    .collect::<Result<_, D::Error>>()?,
            )),
            other => Err(D::Error::custom(format!("failureDomains is neither a map nor a list: {other}"))),
        }
    }
}

fn details_of<E: serde::de::Error>(stored: Value) -> Result<FailureDomainDetails, E> {
    serde_json::from_value::<Tolerant<FailureDomainDetails>>(stored).map(|read| read.value).map_err(E::custom)
}

impl JsonSchema for FailureDomains {
    fn inline_schema() -> bool {
        true
    }

    fn schema_name() -> Cow<'static, str> {
        "FailureDomains".into()
    }

    fn json_schema(_: &mut SchemaGenerator) -> Schema {
        json_schema!({ "x-kubernetes-preserve-unknown-fields": true })
    }
}

#[cfg(test)]
mod tests {
    use serde_json::json;

    use super::*;

    fn read(stored: Value) -> FailureDomains {
        serde_json::from_value(stored).unwrap()
    }

    #[test]
    fn the_map_and_the_list_say_the_same_and_are_written_back_as_they_were() {
        let map = json!({"az1": {"controlPlane": true}, "az2": {"attributes": {"rack": "7"}}});
        let list = json!([{"name": "az1", "controlPlane": true}, {"name": "az2", "attributes": {"rack": "7"}}]);
        let (from_map, from_list) = (read(map.clone()), read(list.clone()));
        assert_eq!(from_map.entries().collect::<Vec<_>>(), from_list.entries().collect::<Vec<_>>());
        assert_eq!(serde_json::to_value(from_map).unwrap(), map);
        assert_eq!(serde_json::to_value(from_list).unwrap(), list);
    }

    #[test]
    fn entries_that_cannot_be_used_are_left_out() {
        let read = read(json!([{"name": "az1", "controlPlane": "yes"}, {"controlPlane": true}, 7]));
        assert_eq!(read.entries().collect::<Vec<_>>(), [("az1", &FailureDomainDetails::default())]);
    }

    #[test]
    fn anything_else_is_an_error_for_the_caller_to_leave_out() {
        assert!(serde_json::from_value::<FailureDomains>(json!("az1")).is_err());
    }
}
