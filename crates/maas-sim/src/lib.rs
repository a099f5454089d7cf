//! The MAAS simulator.
