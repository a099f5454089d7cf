//! Three programs that check a node on its way to being a VM host of MAAS, to be run on it one after the other:
//!
//! * `lxd-test` (root) makes the node's LXD ready for MAAS and leaves a key pair for the other two;
//! * `vmhost-test` registers the node in MAAS as a VM host, and takes that back;
//! * `maas-test` reads what MAAS has and, with `--test-vm-host`, makes a VM there, awaits it and deletes it.
//!
//! Each prints a [`Checklist`]: what was found, what is wrong, how to mend it. What a node needs is decided by the library
//! of `lxd-initializer`, the same that runs on nodes for good.

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

/// What every program does first: one cryptography for MAAS and LXD.
pub fn prepare() {
    // A second call would find it installed, which is as good.
    let _ = rustls::crypto::ring::default_provider().install_default();
}

/// The end of every program.
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
