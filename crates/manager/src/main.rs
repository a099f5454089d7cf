//! The controller manager of capmaas.

fn main() {}
