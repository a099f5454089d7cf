//! The testbed.
