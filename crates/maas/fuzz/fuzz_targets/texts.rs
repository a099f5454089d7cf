//! Arbitrary text in settings: no panic, and what is accepted is printed in a form that is accepted again.

#![no_main]

use libfuzzer_sys::fuzz_target;
use maas_client::{ApiKey, Endpoint, Version};

fuzz_target!(|text: &str| {
    if let Ok(endpoint) = text.parse::<Endpoint>() {
        assert_eq!(endpoint.to_string().parse(), Ok(endpoint));
    }
    if let Ok(version) = text.parse::<Version>() {
        assert_eq!(version.to_string().parse(), Ok(version));
    }
    let _ = text.parse::<ApiKey>();
});
