//! The commands that make what a release consists of.

use std::path::{Path, PathBuf};
use std::process::Command as Process;

use anyhow::{Context as _, ensure};
use clap::{Args, Subcommand};

use super::assets::{Contract, Version, write_release, write_templates};
use super::oci::{Image, Platform, write_layout};
use super::sbom::bill;
use crate::root;

#[derive(Subcommand)]
pub(crate) enum Command {
    /// Images as an OCI layout, with a bill of materials in each and beside them.
    Images(Images),
    /// The files that clusterctl looks for, for both contracts.
    Assets(Assets),
    /// The cluster templates alone.
    Templates {
        /// v1beta1 or v1beta2.
        #[arg(long)]
        contract: Contract,
        /// The folder to write to.
        #[arg(long)]
        out: PathBuf,
    },
}

#[derive(Args)]
pub(crate) struct Images {
    /// The folder of the layout.
    #[arg(long)]
    out: PathBuf,
    /// Where the images will be kept, for instance registry.example/capmaas.
    #[arg(long)]
    registry: String,
    /// The tag of the images.
    #[arg(long)]
    tag: String,
    /// Folders with static programs, by the architecture's name: amd64=target/x86_64-unknown-linux-musl/release
    #[arg(long = "programs", value_name = "ARCHITECTURE=FOLDER", value_parser = parse_programs, required = true)]
    programs: Vec<(String, PathBuf)>,
    /// The certificates that the programs trust beside those that they are given.
    #[arg(long, default_value = "/etc/ssl/certs/ca-certificates.crt")]
    authorities: PathBuf,
}

#[derive(Args)]
pub(crate) struct Assets {
    /// The folder to write to: one folder for each of the two releases.
    #[arg(long)]
    out: PathBuf,
    /// The release for the contract v1beta1; the one for v1beta2 follows from it.
    #[arg(long)]
    version: Version,
    /// The manager's image, with registry and tag.
    #[arg(long)]
    image: String,
    /// The kubectl that renders the manifests.
    #[arg(long, default_value = "kubectl")]
    kubectl: PathBuf,
}

/// Program (its package is called the same), name of the image, who runs it.
const IMAGES: [(&str, &str, &str); 2] =
    [("capmaas-manager", "manager", "65532:65532"), ("lxd-initializer", "lxd-initializer", "0:0")];

fn parse_programs(text: &str) -> Result<(String, PathBuf), String> {
    let (architecture, folder) = text.split_once('=').ok_or("write ARCHITECTURE=FOLDER")?;
    triple(architecture).ok_or_else(|| format!("{architecture:?} is neither amd64 nor arm64"))?;
    Ok((architecture.to_owned(), folder.into()))
}

fn triple(architecture: &str) -> Option<&'static str> {
    match architecture {
        "amd64" => Some("x86_64-unknown-linux-musl"),
        "arm64" => Some("aarch64-unknown-linux-musl"),
        _ => None,
    }
}

pub(crate) fn run(command: &Command) -> anyhow::Result<()> {
    match command {
        Command::Images(options) => images(options),
        Command::Assets(options) => assets(options),
        Command::Templates { contract, out } => write_templates(out, &root().join("templates"), *contract),
    }
}

fn images(options: &Images) -> anyhow::Result<()> {
    let authorities = std::fs::read(&options.authorities).with_context(|| {
        format!("read the certificates in {} (package ca-certificates)", options.authorities.display())
    })?;
    let mut programs = options.programs.clone();
    programs.sort();
    let mut images: Vec<Image> = Vec::new();
    for (program, name, user) in IMAGES {
        let mut platforms = Vec::new();
        for (architecture, folder) in &programs {
            let path = folder.join(program);
            let bytes = std::fs::read(&path).with_context(|| format!("read the program {}", path.display()))?;
            let target = triple(architecture).context("an architecture without a target")?;
            let bill = format!("{:#}\n", bill(&metadata(target)?, program, target)?);
            let beside = options.out.with_extension("sboms").join(format!("{name}-{architecture}.cdx.json"));
            std::fs::create_dir_all(beside.parent().context("a folder")?)?;
            std::fs::write(&beside, &bill).with_context(|| format!("write {}", beside.display()))?;
            platforms.push(Platform { architecture: architecture.clone(), program: bytes, bill });
        }
        images.push(Image {
            reference: format!("{}/{name}:{}", options.registry.trim_end_matches('/'), options.tag),
            program: program.to_owned(),
            user: user.to_owned(),
            version: env!("CARGO_PKG_VERSION").to_owned(),
            platforms,
        });
    }
    let digests = write_layout(&options.out, &images, &authorities)?;
    for (image, digest) in images.iter().zip(digests) {
        println!("{} {digest}", image.reference);
    }
    Ok(())
}

fn metadata(target: &str) -> anyhow::Result<serde_json::Value> {
    let cargo = std::env::var_os("CARGO").unwrap_or_else(|| "cargo".into());
    let output = Process::new(cargo)
        .args(["metadata", "--format-version", "1", "--locked", "--filter-platform", target])
        .current_dir(root())
        .output()
        .context("start cargo")?;
    ensure!(output.status.success(), "cargo metadata failed: {}", String::from_utf8_lossy(&output.stderr));
    serde_json::from_slice(&output.stdout).context("read what cargo metadata printed")
}

fn assets(options: &Assets) -> anyhow::Result<()> {
    let everything = kustomize(&options.kubectl, "config/default")?;
    let policy = kustomize(&options.kubectl, "config/policy")?;
    for contract in Contract::ALL {
        // Cluster API cores of the newer contract run where the policies are served; clusterctl could not leave them out elsewhere.
        let components =
            if contract == Contract::V1beta1 { everything.clone() } else { format!("{everything}---\n{policy}") };
        write_release(&options.out, &root().join("templates"), options.version, contract, &components, &options.image)?;
        println!("{} (contract {contract})", options.out.join(options.version.of(contract)).display());
    }
    Ok(())
}

fn kustomize(kubectl: &Path, folder: &str) -> anyhow::Result<String> {
    let output = Process::new(kubectl)
        .arg("kustomize")
        .arg(root().join(folder))
        .output()
        .with_context(|| format!("start {}: install kubectl, or name it with --kubectl", kubectl.display()))?;
    ensure!(
        output.status.success(),
        "{} kustomize {folder}: {}",
        kubectl.display(),
        String::from_utf8_lossy(&output.stderr)
    );
    Ok(String::from_utf8(output.stdout)?)
}
