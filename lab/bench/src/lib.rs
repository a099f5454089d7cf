//! Measures any provider on the testbed against a simulated MAAS: it is a command line that takes a kubeconfig and
//! `MAAS_ENDPOINT`/`MAAS_API_KEY` from its environment, with CRDs from a folder. Only fields that the Go original has
//! are used.

pub mod audit;
pub mod budgets;
pub mod capi;
pub mod compare;
pub mod floor;
pub mod kinds;
pub mod maas;
pub mod phases;
pub mod plot;
pub mod processors;
pub mod provider;
pub mod report;
pub mod run;
pub mod situations;
pub mod soak;
pub mod targets;
pub mod tenants;

/// Prints progress on the terminal.
pub fn tell(what: &str) {
    eprintln!("  {what}");
}
