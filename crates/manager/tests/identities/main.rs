//! Which credentials apply, what happens when they change, and what is reported when there are none.
#![allow(clippy::unwrap_used, clippy::expect_used, clippy::panic)]

mod changes;
mod reads;
mod sources;
mod stage;
mod tenants;
