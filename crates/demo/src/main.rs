//! make demo.

fn main() {}
