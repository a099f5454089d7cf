//! The kinds.
