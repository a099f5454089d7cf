//! The kubectl plugin for krew: an archive for each architecture, and a manifest that lists them with their checksums.

use std::fmt::Write as _;
use std::path::Path;

use anyhow::Context as _;

use super::tar::Archive;
use super::version::Version;
use super::{root_text, sha256, write};

const PROGRAM: &str = "kubectl-maas";

/// Writes the archives and, if their download URL is known, krew's manifest.
pub(crate) fn write_plugin(
    out: &Path,
    version: Version,
    programs: &[(String, std::path::PathBuf)],
    downloads: Option<&str>,
) -> anyhow::Result<()> {
    let mut platforms = String::new();
    for (architecture, folder) in programs {
        let path = folder.join(PROGRAM);
        let program = std::fs::read(&path).with_context(|| format!("read the program {}", path.display()))?;
        let mut archive = Archive::default();
        archive.file(PROGRAM, 0o755, &program)?;
        archive.file("LICENSE", 0o644, root_text("LICENSE")?.as_bytes())?;
        let bytes = archive.finish_gzip()?;
        let name = format!("{PROGRAM}_{version}_linux_{architecture}.tar.gz");
        write(&out.join(&name), &bytes)?;
        let _ = write!(
            platforms,
            "    - selector:\n        matchLabels: {{os: linux, arch: {architecture}}}\n      uri: {}/{name}\n      sha256: {}\n      \
             bin: {PROGRAM}\n",
            downloads.unwrap_or_default().trim_end_matches('/'),
            sha256(&bytes)
        );
    }
    let Some(downloads) = downloads else {
        println!("no krew manifest: DOWNLOADS=<url> says from where the files of this release will be downloaded");
        return Ok(());
    };
    let manifest = format!(
        "apiVersion: krew.googlecontainertools.github.com/v1alpha2\nkind: Plugin\nmetadata:\n  name: maas\nspec:\n  version: \
         {version}\n  homepage: {downloads}\n  shortDescription: Shows and plans clusters of the MAAS provider\n  description: |\n    \
         What MaasMachines wait for, how full LXD hosts are, whether a change fits, and what is wrong with an installation\n    of the \
         Cluster API provider for MAAS. It reads Kubernetes with your kubeconfig and MAAS with your own API key.\n  platforms:\n{platforms}"
    );
    write(&out.join("maas.yaml"), manifest)
}
