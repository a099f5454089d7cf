//! Plain http is allowed, and logged once.

#![allow(clippy::unwrap_used, clippy::expect_used, clippy::panic)]

mod common;

use std::io::Write;
use std::sync::{Arc, Mutex};

use common::KEY;
use common::server::install_cryptography;
use maas_client::Client;

#[derive(Clone, Default)]
struct Log(Arc<Mutex<Vec<u8>>>);

impl Write for Log {
    fn write(&mut self, bytes: &[u8]) -> std::io::Result<usize> {
        self.0.lock().unwrap().extend_from_slice(bytes);
        Ok(bytes.len())
    }

    fn flush(&mut self) -> std::io::Result<()> {
        Ok(())
    }
}

#[test]
fn plain_http_is_warned_about_once_for_each_server() {
    install_cryptography();
    let log = Log::default();
    let writer = log.clone();
    let subscriber = tracing_subscriber::fmt().with_writer(move || writer.clone()).finish();
    tracing::subscriber::with_default(subscriber, || {
        for endpoint in [
            "http://one.test/MAAS",
            "http://one.test/MAAS/api/2.0/",
            "https://safe.test/MAAS",
            "http://two.test/MAAS",
            "http://one.test/MAAS",
        ] {
            Client::builder(endpoint, KEY).build().unwrap();
        }
    });
    let log = String::from_utf8(log.0.lock().unwrap().clone()).unwrap();
    let count = |words: &str| log.matches(words).count();
    assert_eq!((count("plain http"), count("one.test"), count("two.test"), count("safe.test")), (2, 1, 1, 0), "{log}");
}
