//! A whole release in one folder.

use std::path::{Path, PathBuf};
use std::process::Command;

use anyhow::{Context as _, ensure};
use clap::Args;
use serde_json::json;

use super::command::{Contents, assets, images};
use super::notes::notes;
use super::plugin::write_plugin;
use super::statement::{Build, write_statements};
use super::tar::Archive;
use super::version::Version;
use super::{read, root_text, write};
use crate::root;

#[derive(Args)]
pub(crate) struct Options {
    /// The folder to write to. It must not hold anything yet.
    #[arg(long)]
    out: PathBuf,
    #[command(flatten)]
    contents: Contents,
    /// The commit that the programs were built from.
    #[arg(long)]
    commit: String,
    /// A file with the key that signs (ECDSA P-256, PKCS#8 PEM). Absent: nothing is signed.
    #[arg(long)]
    key: Option<PathBuf>,
    /// From where the files of this release will be downloaded; krew's manifest needs it.
    #[arg(long)]
    downloads: Option<String>,
    /// Who builds this, as a URI.
    #[arg(long, default_value = "urn:capmaas:builder:maintainer")]
    builder: String,
    /// The kubectl that renders the manifests.
    #[arg(long, default_value = "kubectl")]
    kubectl: PathBuf,
}

pub(crate) fn release(options: &Options) -> anyhow::Result<()> {
    let out = &options.out;
    let is_new = std::fs::read_dir(out).map_or(true, |mut entries| entries.next().is_none());
    ensure!(is_new, "{} holds something already: a release is made into an empty folder", out.display());
    let version = Version::current()?;
    let notes = notes(&root_text("CHANGELOG.md")?, version)?;
    // Before anything is built: with an unreadable key all of it would be worthless.
    let key = options.key.as_deref().map(read).transpose()?;

    let layout = tempfile::tempdir().context("make a temporary folder")?;
    let named = images(layout.path(), &out.join("sboms"), &options.contents)?;
    write(&out.join(format!("images-{version}.tar")), archive(layout.path(), "")?.finish()?)?;
    let image = named.first().context("no image was made")?.0.clone();
    assets(out, version, &image, &options.kubectl)?;
    write_plugin(out, version, &options.contents.programs, options.downloads.as_deref())?;
    let chart = archive(&root().join("charts/capmaas"), "capmaas/")?.finish_gzip()?;
    write(&out.join(format!("capmaas-{}.tgz", env!("CARGO_PKG_VERSION"))), chart)?;
    write(&out.join("RELEASE_NOTES.md"), notes)?;

    let architectures: Vec<&String> = options.contents.programs.iter().map(|(name, _)| name).collect();
    let build = Build {
        commit: options.commit.clone(),
        parameters: json!({
            "version": version.to_string(), "registry": options.contents.registry, "tag": options.contents.tag,
            "architectures": architectures,
        }),
        builder: options.builder.clone(),
        images: named,
        lock_file: root_text("Cargo.lock")?.into_bytes(),
        toolchain: toolchain()?,
    };
    write_statements(out, &build, key.as_deref())?;
    let signed = if key.is_some() { "signed" } else { "not signed: KEY=<file> signs it" };
    println!("{} ({signed})", out.display());
    Ok(())
}

/// Everything below a folder, sorted by name.
fn archive(folder: &Path, prefix: &str) -> anyhow::Result<Archive> {
    let (mut files, mut folders) = (Vec::new(), vec![folder.to_owned()]);
    while let Some(next) = folders.pop() {
        for entry in std::fs::read_dir(&next).with_context(|| format!("read {}", next.display()))? {
            let path = entry?.path();
            if path.is_dir() { folders.push(path) } else { files.push(path) }
        }
    }
    files.sort();
    let mut archive = Archive::default();
    for path in files {
        let name = format!("{prefix}{}", path.strip_prefix(folder)?.display());
        let bytes = std::fs::read(&path).with_context(|| format!("read {}", path.display()))?;
        archive.file(&name, 0o644, &bytes)?;
    }
    Ok(archive)
}

fn toolchain() -> anyhow::Result<String> {
    let output = Command::new("rustc").arg("--version").current_dir(root()).output().context("start rustc")?;
    ensure!(output.status.success(), "rustc --version failed: {}", String::from_utf8_lossy(&output.stderr));
    Ok(String::from_utf8(output.stdout)?.trim().to_owned())
}
