//! `spec.staticIP`: a text, or the object of the commercial line of the Go provider.

use std::borrow::Cow;

use schemars::{JsonSchema, Schema, SchemaGenerator, json_schema};
use serde::{Deserialize, Serialize};

/// A fixed address for the machine.
///
/// The CRD leaves the field without a type, because one schema cannot describe both forms, and CEL sees only fields that
/// have one. `crd` adds a schema that takes a text only if it is an address; in the object every value is accepted, since
/// each may already be stored (S24).
#[derive(Clone, Debug, PartialEq, Eq, Serialize, Deserialize)]
#[serde(untagged)]
pub enum StaticIp {
    /// Just the address.
    Address(String),
    /// Address, network and resolvers. Without `ip` somebody else (an IPAM controller) is going to fill it in.
    Detailed(StaticIpDetails),
}

/// The object form of [`StaticIp`].
#[derive(Clone, Debug, Default, PartialEq, Eq, Serialize, Deserialize)]
#[serde(default)]
pub struct StaticIpDetails {
    /// The address.
    #[serde(skip_serializing_if = "Option::is_none")]
    pub ip: Option<String>,
    /// The network that the address belongs to.
    #[serde(skip_serializing_if = "Option::is_none")]
    pub cidr: Option<String>,
    /// The network's router.
    #[serde(skip_serializing_if = "Option::is_none")]
    pub gateway: Option<String>,
    /// The resolvers.
    #[serde(skip_serializing_if = "Vec::is_empty")]
    pub nameservers: Vec<String>,
}

impl StaticIp {
    /// The address asked for; `None` while it is still to be filled in by somebody else.
    pub fn address(&self) -> Option<&str> {
        match self {
            Self::Address(address) => Some(address.as_str()),
            Self::Detailed(details) => details.ip.as_deref(),
        }
        .filter(|address| !address.is_empty())
    }
}

impl JsonSchema for StaticIp {
    fn inline_schema() -> bool {
        true
    }

    fn schema_name() -> Cow<'static, str> {
        "StaticIp".into()
    }

    fn json_schema(_: &mut SchemaGenerator) -> Schema {
        json_schema!({ "x-kubernetes-preserve-unknown-fields": true })
    }
}

#[cfg(test)]
mod tests {
    use serde_json::json;

    use super::*;

    #[test]
    fn both_forms_give_the_address_and_are_written_back_as_they_were() {
        for stored in [json!("192.168.1.100"), json!({"ip": "192.168.1.100", "cidr": "192.168.1.0/24"})] {
            let read: StaticIp = serde_json::from_value(stored.clone()).unwrap();
            assert_eq!(read.address(), Some("192.168.1.100"));
            assert_eq!(serde_json::to_value(read).unwrap(), stored);
        }
    }

    #[test]
    fn an_object_without_an_address_asks_to_wait() {
        for stored in [json!({}), json!({"ip": ""}), json!({"gateway": "192.168.1.1"})] {
            assert_eq!(serde_json::from_value::<StaticIp>(stored).unwrap().address(), None);
        }
    }
}
