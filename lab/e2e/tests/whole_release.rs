//! A whole release, built from existing programs: its contents, and that others can verify it.
#![allow(clippy::unwrap_used, clippy::expect_used, clippy::panic)]

use std::path::Path;
use std::process::Command;

use capmaas_e2e::{program, repository};
use capmaas_testbed::KubernetesVersion;
use capmaas_testbed::tools::ToolSet;
use serde_json::Value;

const PROGRAMS: [&str; 3] = ["capmaas-manager", "lxd-initializer", "kubectl-maas"];

fn run(command: &mut Command) -> (bool, String) {
    let output = command.output().unwrap();
    let said = format!("{}{}", String::from_utf8_lossy(&output.stdout), String::from_utf8_lossy(&output.stderr));
    (output.status.success(), said)
}

/// The smallest static program, so that nothing has to be compiled for this.
fn static_program() -> Vec<u8> {
    let mut elf = vec![0_u8; 120];
    elf[..6].copy_from_slice(b"\x7fELF\x02\x01");
    (elf[32], elf[54], elf[56], elf[64]) = (64, 56, 1, 1);
    elf
}

fn make(folder: &Path, out: &Path, key: &Path) {
    let mut command = Command::new(program("xtask").unwrap());
    command.arg("release").arg("--out").arg(out).arg("--key").arg(key);
    command.args(["--registry", "registry.example/capmaas", "--tag", "v1", "--commit", "c0ffee"]);
    command.args(["--downloads", "https://releases.example/v1"]);
    for architecture in ["amd64", "arm64"] {
        let programs = folder.join(architecture);
        std::fs::create_dir_all(&programs).unwrap();
        for name in PROGRAMS {
            std::fs::write(programs.join(name), static_program()).unwrap();
        }
        command.arg("--programs").arg(format!("{architecture}={}", programs.display()));
    }
    let kubectl = ToolSet::Kubernetes(KubernetesVersion::V1_36).ensure().unwrap().program("kubectl");
    let (made, said) = run(command.arg("--kubectl").arg(kubectl).current_dir(repository()));
    assert!(made, "{said}");
}

#[test]
fn a_release_is_whole_reproducible_and_verified_by_cosign() {
    let folder = tempfile::tempdir().unwrap();
    let at = |name: &str| folder.path().join(name);
    let (key, public) = (at("key.pem"), at("public.pem"));
    let curve = ["-algorithm", "EC", "-pkeyopt", "ec_paramgen_curve:P-256", "-out"];
    assert!(run(Command::new("openssl").arg("genpkey").args(curve).arg(&key)).0);
    assert!(run(Command::new("openssl").args(["pkey", "-pubout", "-in"]).arg(&key).arg("-out").arg(&public)).0);
    let (one, two) = (at("one"), at("two"));
    make(folder.path(), &one, &key);
    make(folder.path(), &two, &key);

    // The checksums include everything that a user looks for, and are the same after a second run.
    let sums = std::fs::read_to_string(one.join("SHA256SUMS")).unwrap();
    assert_eq!(sums, std::fs::read_to_string(two.join("SHA256SUMS")).unwrap(), "a release is reproducible");
    let version = concat!("v", env!("CARGO_PKG_VERSION"));
    for file in [
        format!("images-{version}.tar"),
        format!("infrastructure-maas/{version}/infrastructure-components.yaml"),
        format!("infrastructure-maas/{version}/metadata.yaml"),
        format!("infrastructure-maas/{version}/cluster-template-lxd.yaml"),
        format!("kubectl-maas_{version}_linux_amd64.tar.gz"),
        format!("kubectl-maas_{version}_linux_arm64.tar.gz"),
        "maas.yaml".to_owned(),
        format!("capmaas-{}.tgz", env!("CARGO_PKG_VERSION")),
        "sboms/manager-arm64.cdx.json".to_owned(),
        "RELEASE_NOTES.md".to_owned(),
        "provenance.intoto.json".to_owned(),
    ] {
        assert!(sums.lines().any(|line| line.ends_with(&format!("  {file}"))), "{file} is not in\n{sums}");
    }
    let (right, said) = run(Command::new("sha256sum").args(["--check", "--strict", "SHA256SUMS"]).current_dir(&one));
    assert!(right, "{said}");
    let statement: Value = serde_json::from_slice(&std::fs::read(one.join("provenance.intoto.json")).unwrap()).unwrap();
    assert_eq!(statement["predicateType"], "https://slsa.dev/provenance/v1");
    let subjects = statement["subject"].as_array().unwrap();
    assert!(subjects.iter().any(|subject| subject["name"] == "registry.example/capmaas/manager:v1"), "{subjects:?}");
    let krew = std::fs::read_to_string(one.join("maas.yaml")).unwrap();
    let archive = format!("kubectl-maas_{version}_linux_arm64.tar.gz");
    let sum = sums.lines().find(|line| line.ends_with(&archive)).unwrap().split(' ').next().unwrap();
    assert!(krew.contains(sum) && krew.contains(&format!("https://releases.example/v1/{archive}")), "{krew}");
    assert!(capmaas_testbed::parse_yaml(&krew).is_ok(), "{krew}");

    // The real cosign accepts the signatures, and no others.
    let cosign = ToolSet::Cosign.ensure().unwrap().program("cosign");
    let verify = |file: &Path, signature: &Path| {
        // Without a network: it would look for the roots of a public log, which is not used here.
        let mut command = Command::new("unshare");
        command
            .arg("--net")
            .arg(&cosign)
            .args(["verify-blob", "--offline", "--insecure-ignore-tlog=true", "--key"])
            .arg(&public);
        command.arg("--signature").arg(signature).arg(file).env("HOME", folder.path());
        run(&mut command)
    };
    for name in ["SHA256SUMS", "provenance.intoto.json"] {
        let (file, signature) = (one.join(name), one.join(format!("{name}.sig")));
        let (right, said) = verify(&file, &signature);
        assert!(right && said.contains("Verified OK"), "{said}");
        std::fs::write(&file, "something else").unwrap();
        assert!(!verify(&file, &signature).0, "{name} was changed");
    }

    // helm can read the chart in it.
    let helm = ToolSet::Helm.ensure().unwrap().program("helm");
    let chart = one.join(format!("capmaas-{}.tgz", env!("CARGO_PKG_VERSION")));
    let (right, said) = run(Command::new(helm).args(["show", "chart"]).arg(chart));
    assert!(right && said.contains("name: capmaas"), "{said}");
}
