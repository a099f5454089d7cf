//! The controller manager.
