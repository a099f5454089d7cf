//! The contents of a release, built without a container daemon and without a network: images as an OCI layout, a bill
//! of materials for each, and the files that clusterctl uses. The same input produces the same bytes.

mod assets;
mod chart;
mod command;
mod notes;
mod oci;
mod plugin;
mod sbom;
mod statement;
mod tar;
mod templates;
mod version;
mod whole;

pub(crate) use command::{Command, run};

use std::path::Path;

use anyhow::Context as _;

/// The SHA-256 of some bytes in hexadecimal digits.
fn sha256(bytes: &[u8]) -> String {
    use sha2::Digest as _;
    use std::fmt::Write as _;

    let mut digits = String::with_capacity(64);
    for byte in sha2::Sha256::digest(bytes) {
        let _ = write!(digits, "{byte:02x}");
    }
    digits
}

/// Writes a file and creates its parent folders.
fn write(path: &Path, bytes: impl AsRef<[u8]>) -> anyhow::Result<()> {
    if let Some(folder) = path.parent() {
        std::fs::create_dir_all(folder).with_context(|| format!("make the folder {}", folder.display()))?;
    }
    std::fs::write(path, bytes).with_context(|| format!("write {}", path.display()))
}

fn read(path: &Path) -> anyhow::Result<String> {
    std::fs::read_to_string(path).with_context(|| format!("read {}", path.display()))
}

/// Reads a text file of the checkout.
fn root_text(path: &str) -> anyhow::Result<String> {
    read(&crate::root().join(path))
}
