//! Images as an OCI image layout: what `skopeo`, `crane`, `podman` and `ctr` read from a folder.

use std::path::{Path, PathBuf};

use anyhow::Context as _;
use serde_json::{Value, json};

use super::{sha256, tar::Archive, write};

const INDEX: &str = "application/vnd.oci.image.index.v1+json";
const MANIFEST: &str = "application/vnd.oci.image.manifest.v1+json";
const CONFIG: &str = "application/vnd.oci.image.config.v1+json";
/// Not compressed: registries and runtimes accept it, and compressors produce different output for the same bytes.
const LAYER: &str = "application/vnd.oci.image.layer.v1.tar";

/// One program for one architecture.
pub(crate) struct Platform {
    /// By its OCI name: `amd64`, `arm64`.
    pub architecture: String,
    /// The static program.
    pub program: Vec<u8>,
    /// Its bill of materials.
    pub bill: String,
}

/// An image from scratch: a program, the certificate authorities that it trusts, its bill of materials, nothing else.
pub(crate) struct Image {
    /// With registry and tag, for instance `registry.example/capmaas/manager:v0.1.0`.
    pub reference: String,
    /// The program's name in the image's root.
    pub program: String,
    /// The user that runs it, `user:group` as numbers.
    pub user: String,
    pub version: String,
    /// For each architecture, sorted by name.
    pub platforms: Vec<Platform>,
}

/// Writes the images into one layout and returns the digest of each.
///
/// `authorities` is a PEM bundle, because an image from scratch has no certificate store.
pub(crate) fn write_layout(folder: &Path, images: &[Image], authorities: &[u8]) -> anyhow::Result<Vec<String>> {
    let blobs = Blobs { folder: folder.join("blobs/sha256") };
    let (mut entries, mut digests) = (Vec::new(), Vec::new());
    for image in images {
        let mut manifests = Vec::new();
        for platform in &image.platforms {
            manifests.push(write_platform(&blobs, image, platform, authorities)?);
        }
        let index = json!({"schemaVersion": 2, "mediaType": INDEX, "manifests": manifests});
        let mut entry = blobs.put(INDEX, index.to_string().as_bytes())?;
        digests.push(entry["digest"].as_str().context("a digest is a text")?.to_owned());
        entry["annotations"] = json!({"org.opencontainers.image.ref.name": image.reference});
        entries.push(entry);
    }
    write(&folder.join("oci-layout"), r#"{"imageLayoutVersion":"1.0.0"}"#)?;
    let index = json!({"schemaVersion": 2, "mediaType": INDEX, "manifests": entries});
    write(&folder.join("index.json"), index.to_string())?;
    Ok(digests)
}

fn write_platform(blobs: &Blobs, image: &Image, platform: &Platform, authorities: &[u8]) -> anyhow::Result<Value> {
    anyhow::ensure!(
        is_static(&platform.program),
        "{} for {} is not a static Linux program, and the image holds no library that it could load",
        image.program,
        platform.architecture
    );
    let mut tar = Archive::default();
    for folder in ["etc", "etc/ssl", "etc/ssl/certs"] {
        tar.folder(folder)?;
    }
    tar.file("etc/ssl/certs/ca-certificates.crt", 0o644, authorities)?;
    tar.file(&image.program, 0o755, &platform.program)?;
    tar.file("sbom.cdx.json", 0o644, platform.bill.as_bytes())?;
    let layer = tar.finish()?;
    let labels = json!({
        "org.opencontainers.image.title": image.program,
        "org.opencontainers.image.version": image.version,
        "org.opencontainers.image.licenses": "Apache-2.0",
    });
    let config = json!({
        "architecture": platform.architecture,
        "os": "linux",
        "config": {"Entrypoint": [format!("/{}", image.program)], "User": image.user, "Labels": labels},
        "rootfs": {"type": "layers", "diff_ids": [format!("sha256:{}", sha256(&layer))]},
    });
    let manifest = json!({
        "schemaVersion": 2,
        "mediaType": MANIFEST,
        "config": blobs.put(CONFIG, config.to_string().as_bytes())?,
        "layers": [blobs.put(LAYER, &layer)?],
    });
    let mut entry = blobs.put(MANIFEST, manifest.to_string().as_bytes())?;
    entry["platform"] = json!({"architecture": platform.architecture, "os": "linux"});
    Ok(entry)
}

/// Files that are named by their hash.
struct Blobs {
    folder: PathBuf,
}

impl Blobs {
    fn put(&self, media_type: &str, bytes: &[u8]) -> anyhow::Result<Value> {
        let digest = sha256(bytes);
        write(&self.folder.join(&digest), bytes)?;
        Ok(json!({"mediaType": media_type, "digest": format!("sha256:{digest}"), "size": bytes.len()}))
    }
}

/// Whether this is a 64-bit little-endian ELF program without an interpreter (a program header of type 3).
fn is_static(elf: &[u8]) -> bool {
    let half = |at: usize| Some(usize::from(u16::from_le_bytes(elf.get(at..at + 2)?.try_into().ok()?)));
    let headers = || -> Option<bool> {
        let start = usize::try_from(u64::from_le_bytes(elf.get(32..40)?.try_into().ok()?)).ok()?;
        let (size, count) = (half(54)?, half(56)?);
        let kinds = (0..count).map(|index| elf.get(start + index * size..)?.get(..4));
        kinds
            .map(|kind| kind.map(|kind| kind != 3_u32.to_le_bytes()))
            .collect::<Option<Vec<_>>>()
            .map(|all| all.into_iter().all(|it| it))
    };
    elf.starts_with(b"\x7fELF\x02\x01") && headers().unwrap_or(false)
}

#[cfg(test)]
mod tests {
    use super::*;

    /// The smallest ELF file with one program header of a kind.
    fn elf(kind: u32) -> Vec<u8> {
        let mut elf = vec![0_u8; 120];
        elf[..6].copy_from_slice(b"\x7fELF\x02\x01");
        elf[32] = 64;
        elf[54] = 56;
        elf[56] = 1;
        elf[64..68].copy_from_slice(&kind.to_le_bytes());
        elf
    }

    fn image(program: Vec<u8>) -> Image {
        let platform = Platform { architecture: "amd64".into(), program, bill: "{}".into() };
        Image {
            reference: "registry.example/capmaas/manager:v0.1.0".into(),
            program: "manager".into(),
            user: "65532:65532".into(),
            version: "0.1.0".into(),
            platforms: vec![platform],
        }
    }

    #[test]
    fn the_same_input_makes_the_same_image_and_every_blob_is_called_what_it_hashes_to() {
        let (one, two) = (tempfile::tempdir().unwrap(), tempfile::tempdir().unwrap());
        let first = write_layout(one.path(), &[image(elf(1))], b"PEM").unwrap();
        assert_eq!(first, write_layout(two.path(), &[image(elf(1))], b"PEM").unwrap());
        assert_ne!(first, write_layout(two.path(), &[image(elf(1))], b"other").unwrap());
        let mut blobs = 0;
        for blob in std::fs::read_dir(one.path().join("blobs/sha256")).unwrap() {
            let blob = blob.unwrap();
            assert_eq!(sha256(&std::fs::read(blob.path()).unwrap()), blob.file_name().to_str().unwrap());
            blobs += 1;
        }
        assert_eq!(blobs, 4, "index, manifest, configuration, layer");
    }

    #[test]
    fn the_layout_leads_from_the_name_to_the_program() {
        let folder = tempfile::tempdir().unwrap();
        write_layout(folder.path(), &[image(elf(1))], b"PEM").unwrap();
        let read = |path: &str| -> Value {
            serde_json::from_slice(&std::fs::read(folder.path().join(path)).unwrap()).unwrap()
        };
        let blob = |entry: &Value| format!("blobs/{}", entry["digest"].as_str().unwrap().replace(':', "/"));
        let top = read("index.json");
        let entry = &top["manifests"][0];
        assert_eq!(
            entry["annotations"]["org.opencontainers.image.ref.name"],
            "registry.example/capmaas/manager:v0.1.0"
        );
        let index = read(&blob(entry));
        assert_eq!(index["manifests"][0]["platform"], json!({"architecture": "amd64", "os": "linux"}));
        let manifest = read(&blob(&index["manifests"][0]));
        let config = read(&blob(&manifest["config"]));
        assert_eq!(config["config"]["User"], "65532:65532");
        assert_eq!(config["config"]["Entrypoint"], json!(["/manager"]));
        assert_eq!(config["rootfs"]["diff_ids"][0], manifest["layers"][0]["digest"], "the layer is not compressed");
    }

    #[test]
    fn a_program_that_would_load_libraries_is_refused() {
        let folder = tempfile::tempdir().unwrap();
        for program in [elf(3), b"#!/bin/sh".to_vec(), Vec::new()] {
            let refused = write_layout(folder.path(), &[image(program)], b"PEM").unwrap_err();
            assert!(refused.to_string().contains("not a static Linux program"), "{refused}");
        }
    }
}
