//! Scenarios over several crates on real parts; the crate itself is empty.
