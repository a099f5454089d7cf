//! Three programs that check a node on its way to becoming a VM host of MAAS, to be run on it one after the other:
//!
//! * `lxd-test` (root) prepares the node's LXD for MAAS and leaves a key pair for the other two;
//! * `vmhost-test` registers the node in MAAS as a VM host, and reverts that;
//! * `maas-test` reads MAAS's state and, with `--test-vm-host`, composes a VM there, waits for it and deletes it.
//!
//! Each prints a [`Checklist`]: what was found, what is wrong, how to fix it. The library of `lxd-initializer`, the
//! agent that runs on nodes permanently, decides what a node needs.

mod checklist;
mod kept;
pub mod lxd_test;
pub mod maas_test;
mod options;
mod read_maas;
mod site;
mod stop;
mod virtual_machine;
mod vm_host;
pub mod vmhost_test;

pub use checklist::{Check, Checklist, Outcome};

use std::process::ExitCode;

/// The first step of every program: one crypto provider for MAAS and LXD.
pub fn prepare() {
    // If it is already installed, that is fine.
    let _ = rustls::crypto::ring::default_provider().install_default();
}

/// The last step of every program.
pub fn exit(list: Checklist) -> ExitCode {
    match list.finish() {
        Ok(true) => ExitCode::SUCCESS,
        Ok(false) => ExitCode::FAILURE,
        Err(error) => {
            eprintln!("the checklist cannot be printed: {error}");
            ExitCode::FAILURE
        }
    }
}
