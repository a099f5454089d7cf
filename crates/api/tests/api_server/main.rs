//! The kinds on a real API server: what it stores, what it refuses, and with which words.
//!
//! All tests share one API server. `CAPMAAS_KUBERNETES` chooses its version; before 1.30 the policies are not served and
//! what they say is not asked for.
#![allow(clippy::unwrap_used, clippy::expect_used, clippy::panic)]

mod cases;
mod columns;
mod journals;
mod server;
mod stored_objects;
mod templates;
mod typed;
