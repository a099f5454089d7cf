//! Which credentials count, what happens when they change, and what is said when there are none.
#![allow(clippy::unwrap_used, clippy::expect_used, clippy::panic)]

mod changes;
mod reads;
mod sources;
mod stage;
mod tenants;
