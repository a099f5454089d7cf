//! The LXD client.
