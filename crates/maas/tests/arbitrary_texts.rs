//! Arbitrary text in settings. `fuzz/` contains the long form of this.

#![allow(clippy::unwrap_used, clippy::expect_used, clippy::panic)]

use maas_client::{ApiKey, Endpoint, Version};
use proptest::prelude::*;

fn endpoint_like() -> impl Strategy<Value = String> {
    let scheme = prop_oneof![Just("http://"), Just("https://"), Just("HTTP://"), Just("ftp://"), Just("")];
    let host = prop_oneof![Just("maas.example"), Just("10.0.0.1:5240"), Just("[fd00::1]:80"), Just("a b"), Just("")];
    let part = prop_oneof![
        Just("/"),
        Just("/MAAS"),
        Just("/api/2.0"),
        Just("/api/"),
        Just("/api/1.0"),
        Just("/.."),
        Just("/%2e"),
        Just("/x y"),
        Just("?q"),
        Just("#f"),
    ];
    (scheme, host, prop::collection::vec(part, 0..6))
        .prop_map(|(scheme, host, parts)| format!("{scheme}{host}{}", parts.concat()))
}

proptest! {
    #[test]
    fn an_endpoint_prints_as_a_text_that_is_the_same_endpoint(text in prop_oneof![endpoint_like(), Just(String::new()), ".*"]) {
        if let Ok(endpoint) = text.parse::<Endpoint>() {
            prop_assert_eq!(endpoint.to_string().parse(), Ok(endpoint));
        }
    }

    #[test]
    fn a_version_prints_as_a_text_that_is_the_same_version(text in r"[0-9]{0,12}\.?[0-9~a-z.-]{0,20}") {
        if let Ok(version) = text.parse::<Version>() {
            prop_assert_eq!(version.to_string().parse(), Ok(version));
        }
    }

    #[test]
    fn a_key_that_is_refused_is_not_in_the_refusal(text in "[a-z]{8}[:a-z]{0,20}[ \"'$]?[:a-z]{0,20}") {
        if let Err(error) = text.parse::<ApiKey>() {
            prop_assert!(!error.to_string().contains(&text[..8]), "{error}");
        }
    }
}
