//! What others need to verify a release: checksums of all files, a provenance statement, signatures.

use std::path::{Path, PathBuf};

use anyhow::{Context as _, ensure};
use base64::{Engine as _, prelude::BASE64_STANDARD};
use ring::rand::SystemRandom;
use ring::signature::{ECDSA_P256_SHA256_ASN1_SIGNING, EcdsaKeyPair};
use rustls_pki_types::PrivatePkcs8KeyDer;
use rustls_pki_types::pem::PemObject as _;
use serde_json::{Value, json};

use super::{sha256, write};

pub(crate) const SUMS: &str = "SHA256SUMS";
pub(crate) const PROVENANCE: &str = "provenance.intoto.json";

/// The build information in the statement.
pub(crate) struct Build {
    /// The commit that was built.
    pub commit: String,
    pub parameters: Value,
    /// Who built it, as a URI.
    pub builder: String,
    /// The images and their digests (`sha256:…`), which have no files of their own.
    pub images: Vec<(String, String)>,
    pub lock_file: Vec<u8>,
    pub toolchain: String,
}

/// Every file below the folder with its checksum, sorted by name.
fn sums(folder: &Path) -> anyhow::Result<Vec<(String, String)>> {
    let (mut found, mut folders) = (Vec::new(), vec![folder.to_owned()]);
    while let Some(next) = folders.pop() {
        for entry in std::fs::read_dir(&next).with_context(|| format!("read {}", next.display()))? {
            let path: PathBuf = entry?.path();
            if path.is_dir() {
                folders.push(path);
            } else {
                let bytes = std::fs::read(&path).with_context(|| format!("read {}", path.display()))?;
                found.push((path.strip_prefix(folder)?.display().to_string(), sha256(&bytes)));
            }
        }
    }
    found.sort();
    Ok(found)
}

/// Writes the provenance, the checksums of everything, and, with a key (PKCS#8 PEM), the signatures of both.
pub(crate) fn write_statements(folder: &Path, build: &Build, key: Option<&str>) -> anyhow::Result<()> {
    let subjects = sums(folder)?;
    ensure!(!subjects.is_empty(), "{} holds nothing that could be released", folder.display());
    let statement = format!("{:#}\n", provenance(&subjects, build));
    write(&folder.join(PROVENANCE), &statement)?;
    let lines: Vec<String> = sums(folder)?.iter().map(|(name, sum)| format!("{sum}  {name}\n")).collect();
    let lines = lines.concat();
    write(&folder.join(SUMS), &lines)?;
    if let Some(key) = key {
        let key = read_key(key)?;
        for (name, text) in [(SUMS, &lines), (PROVENANCE, &statement)] {
            write(&folder.join(format!("{name}.sig")), sign(&key, text.as_bytes())?)?;
        }
    }
    Ok(())
}

/// An in-toto Statement v1 with SLSA's predicate. It contains no time, so that the same commit produces the same
/// statement.
fn provenance(subjects: &[(String, String)], build: &Build) -> Value {
    let files = subjects.iter().map(|(name, sum)| json!({"name": name, "digest": {"sha256": sum}}));
    let images = build.images.iter().map(
        |(name, digest)| json!({"name": name, "digest": {"sha256": digest.strip_prefix("sha256:").unwrap_or(digest)}}),
    );
    json!({
        "_type": "https://in-toto.io/Statement/v1",
        "subject": files.chain(images).collect::<Vec<_>>(),
        "predicateType": "https://slsa.dev/provenance/v1",
        "predicate": {
            "buildDefinition": {
                "buildType": "urn:capmaas:make-release:v1",
                "externalParameters": build.parameters,
                "internalParameters": {},
                "resolvedDependencies": [
                    {"name": "source", "digest": {"gitCommit": build.commit}},
                    {"name": "Cargo.lock", "digest": {"sha256": sha256(&build.lock_file)}},
                    {"name": "rustc", "annotations": {"version": build.toolchain}},
                ],
            },
            "runDetails": {"builder": {"id": build.builder}, "metadata": {}},
        },
    })
}

fn read_key(pem: &str) -> anyhow::Result<EcdsaKeyPair> {
    let hint = "the key is no ECDSA P-256 key in PKCS#8 PEM without a password: make one with `openssl genpkey -algorithm EC \
                -pkeyopt ec_paramgen_curve:P-256`";
    let der = PrivatePkcs8KeyDer::from_pem_slice(pem.as_bytes()).ok().context(hint)?;
    // The cause is omitted: an error must not quote a key.
    EcdsaKeyPair::from_pkcs8(&ECDSA_P256_SHA256_ASN1_SIGNING, der.secret_pkcs8_der(), &SystemRandom::new())
        .ok()
        .context(hint)
}

/// As `cosign sign-blob --key` writes it: ASN.1 in base64.
fn sign(key: &EcdsaKeyPair, text: &[u8]) -> anyhow::Result<String> {
    let signature = key.sign(&SystemRandom::new(), text).ok().context("signing failed")?;
    Ok(BASE64_STANDARD.encode(signature.as_ref()))
}

#[cfg(test)]
mod tests {
    use super::*;

    fn build() -> Build {
        Build {
            commit: "c0ffee".into(),
            parameters: json!({"version": "v0.1.0"}),
            builder: "urn:test".into(),
            images: vec![("registry.example/manager:v0.1.0".into(), "sha256:abc".into())],
            lock_file: b"lock".to_vec(),
            toolchain: "rustc 1".into(),
        }
    }

    fn openssl(folder: &Path, arguments: &[&str]) -> bool {
        let status = std::process::Command::new("openssl").args(arguments).current_dir(folder).output().unwrap().status;
        status.success()
    }

    #[test]
    fn openssl_verifies_what_was_signed_and_nothing_else() {
        let (release, keys) = (tempfile::tempdir().unwrap(), tempfile::tempdir().unwrap());
        let curve = ["-algorithm", "EC", "-pkeyopt", "ec_paramgen_curve:P-256", "-out", "key.pem"];
        assert!(openssl(keys.path(), &[&["genpkey"], &curve[..]].concat()));
        assert!(openssl(keys.path(), &["pkey", "-in", "key.pem", "-pubout", "-out", "public.pem"]));
        write(&release.path().join("v0.1.0/metadata.yaml"), "kind: Metadata\n").unwrap();
        let key = std::fs::read_to_string(keys.path().join("key.pem")).unwrap();
        write_statements(release.path(), &build(), Some(&key)).unwrap();
        let public = keys.path().join("public.pem").display().to_string();
        for name in [SUMS, PROVENANCE] {
            let signature = std::fs::read_to_string(release.path().join(format!("{name}.sig"))).unwrap();
            std::fs::write(keys.path().join("signature"), BASE64_STANDARD.decode(signature).unwrap()).unwrap();
            let signature = keys.path().join("signature").display().to_string();
            let verify = ["dgst", "-sha256", "-verify", &public, "-signature", &signature, name];
            assert!(openssl(release.path(), &verify), "{name}");
            std::fs::write(release.path().join(name), "something else").unwrap();
            assert!(!openssl(release.path(), &verify), "{name} was changed");
        }
    }

    #[test]
    fn the_sums_are_those_of_every_file_and_the_statement_names_them_with_the_commit() {
        let release = tempfile::tempdir().unwrap();
        write(&release.path().join("v0.1.0/metadata.yaml"), "kind: Metadata\n").unwrap();
        write(&release.path().join("a.tar.gz"), "packed").unwrap();
        write_statements(release.path(), &build(), None).unwrap();
        let checked = std::process::Command::new("sha256sum")
            .args(["--check", "--strict", SUMS])
            .current_dir(release.path())
            .output()
            .unwrap();
        let said = String::from_utf8(checked.stdout).unwrap();
        assert_eq!(said, format!("a.tar.gz: OK\n{PROVENANCE}: OK\nv0.1.0/metadata.yaml: OK\n"));
        let statement = std::fs::read(release.path().join(PROVENANCE)).unwrap();
        let statement: Value = serde_json::from_slice(&statement).unwrap();
        let names: Vec<&str> =
            statement["subject"].as_array().unwrap().iter().map(|subject| subject["name"].as_str().unwrap()).collect();
        assert_eq!(names, ["a.tar.gz", "v0.1.0/metadata.yaml", "registry.example/manager:v0.1.0"]);
        let source = &statement["predicate"]["buildDefinition"]["resolvedDependencies"][0];
        assert_eq!(source["digest"]["gitCommit"], "c0ffee");
    }

    #[test]
    fn a_key_that_cannot_sign_is_refused_without_being_quoted() {
        let release = tempfile::tempdir().unwrap();
        write(&release.path().join("a"), "x").unwrap();
        let key = "-----BEGIN PRIVATE KEY-----\nQ0FOQVJZ\n-----END PRIVATE KEY-----\n";
        let refused = format!("{:#}", write_statements(release.path(), &build(), Some(key)).unwrap_err());
        assert!(refused.contains("openssl genpkey") && !refused.contains("Q0FOQVJZ"), "{refused}");
    }
}
