//! The commands that make what a release consists of.

use std::path::{Path, PathBuf};
use std::process::Command as Process;

use anyhow::{Context as _, ensure};
use clap::{Args, Subcommand};

use super::assets::write_release;
use super::chart::{Rendered, write_chart};
use super::oci::{Image, Platform, write_layout};
use super::sbom::bill;
use super::templates::write_templates;
use super::version::{Contract, Version};
use super::{whole, write};
use crate::root;

#[derive(Subcommand)]
pub(crate) enum Command {
    /// Images as an OCI layout, with a bill of materials in each and beside them.
    Images(Images),
    /// The files that clusterctl looks for, for both contracts.
    Assets(Assets),
    /// A whole release: images, clusterctl's files, plugin, chart, bills of materials, sums, provenance, signatures.
    Release(Box<whole::Options>),
    /// The files of the checkout that are made from others: templates, metadata.yaml, the Helm chart.
    Generate {
        /// The kubectl that renders the manifests.
        #[arg(long, default_value = "kubectl")]
        kubectl: PathBuf,
    },
}

#[derive(Args)]
pub(crate) struct Images {
    /// The folder of the layout.
    #[arg(long)]
    out: PathBuf,
    #[command(flatten)]
    contents: Contents,
}

/// What images are made of.
#[derive(Args)]
pub(crate) struct Contents {
    /// Where the images will be kept, for instance registry.example/capmaas.
    #[arg(long)]
    pub(super) registry: String,
    /// The tag of the images.
    #[arg(long)]
    pub(super) tag: String,
    /// Folders with static programs, by the architecture's name: amd64=target/x86_64-unknown-linux-musl/release
    #[arg(long = "programs", value_name = "ARCHITECTURE=FOLDER", value_parser = parse_programs, required = true)]
    pub(super) programs: Vec<(String, PathBuf)>,
    /// The certificates that the programs trust beside those that they are given.
    #[arg(long, default_value = "/etc/ssl/certs/ca-certificates.crt")]
    authorities: PathBuf,
}

#[derive(Args)]
pub(crate) struct Assets {
    /// The folder to write to: one folder for each of the two releases.
    #[arg(long)]
    out: PathBuf,
    /// The release for the contract v1beta1; the one for v1beta2 follows from it. Absent: that of this checkout.
    #[arg(long)]
    version: Option<Version>,
    /// The manager's image, with registry and tag.
    #[arg(long)]
    image: String,
    /// The kubectl that renders the manifests.
    #[arg(long, default_value = "kubectl")]
    kubectl: PathBuf,
}

/// Program (its package has the same name), name of the image, user and group.
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
        Command::Images(options) => {
            let sboms = options.out.with_extension("sboms");
            images(&options.out, &sboms, &options.contents).map(drop)
        }
        Command::Assets(options) => {
            let version = options.version.map_or_else(Version::current, Ok)?;
            assets(&options.out, version, &options.image, &options.kubectl)
        }
        Command::Release(options) => whole::release(options),
        Command::Generate { kubectl } => generate(kubectl),
    }
}

/// Writes the layout and, into `sboms`, the bills of materials; returns each image with its digest.
pub(super) fn images(out: &Path, sboms: &Path, options: &Contents) -> anyhow::Result<Vec<(String, String)>> {
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
            write(&sboms.join(format!("{name}-{architecture}.cdx.json")), &bill)?;
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
    let digests = write_layout(out, &images, &authorities)?;
    let named: Vec<_> = images.into_iter().map(|image| image.reference).zip(digests).collect();
    for (image, digest) in &named {
        println!("{image} {digest}");
    }
    Ok(named)
}

fn generate(kubectl: &Path) -> anyhow::Result<()> {
    let (templates, version) = (root().join("templates"), Version::current()?);
    // Users of a checkout get the templates of the newer contract.
    for (contract, folder) in
        [(Contract::V1beta2, templates.clone()), (Contract::V1beta1, templates.join(Contract::V1beta1.to_string()))]
    {
        write_templates(&folder, &templates.join("src"), contract)?;
    }
    write(&root().join("metadata.yaml"), version.metadata()?)?;
    let rendered = Rendered {
        cluster: kustomize(kubectl, "config/default")?,
        namespaced: kustomize(kubectl, "config/namespaced")?,
        policy: kustomize(kubectl, "config/policy")?,
        prometheus: kustomize(kubectl, "config/prometheus")?,
    };
    write_chart(&root().join("charts/capmaas"), &root().join("config/crd"), version, &rendered)
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

/// Writes clusterctl's files of both series.
pub(super) fn assets(out: &Path, version: Version, image: &str, kubectl: &Path) -> anyhow::Result<()> {
    let everything = kustomize(kubectl, "config/default")?;
    let policy = kustomize(kubectl, "config/policy")?;
    for contract in Contract::ALL {
        // Clusters with Cluster API cores of the newer contract serve the policies; elsewhere clusterctl could not
        // leave them out.
        let components =
            if contract == Contract::V1beta1 { everything.clone() } else { format!("{everything}---\n{policy}") };
        write_release(out, &root().join("templates/src"), version, contract, &components, image)?;
        println!("{} (contract {contract})", out.join("infrastructure-maas").join(version.of(contract)).display());
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
