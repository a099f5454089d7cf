//! A program that installed no cryptography provider gets an error, not a panic.

#![allow(clippy::unwrap_used, clippy::expect_used, clippy::panic)]

use maas_client::transport::TransportError;
use maas_client::{BuildError, Client};

#[test]
fn a_client_without_cryptography_is_an_error_that_says_what_to_call() {
    let error = Client::builder("https://maas.test/MAAS", "a:b:c").build().unwrap_err();
    assert!(matches!(error, BuildError::Transport(TransportError::NoCryptoProvider)), "{error:?}");
    assert!(error.to_string().contains("install_default()"), "{error}");
}
