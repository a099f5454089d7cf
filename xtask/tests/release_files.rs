//! The files of a release agree with each other.
#![allow(clippy::unwrap_used, clippy::expect_used, clippy::panic)]

use std::path::{Path, PathBuf};

fn root() -> PathBuf {
    Path::new(env!("CARGO_MANIFEST_DIR")).join("..").canonicalize().unwrap()
}

fn read(path: &str) -> String {
    std::fs::read_to_string(root().join(path)).unwrap()
}

/// Every file below a folder of the repository.
fn files(folder: &str) -> Vec<PathBuf> {
    let (mut all, mut folders) = (Vec::new(), vec![root().join(folder)]);
    while let Some(folder) = folders.pop() {
        for entry in std::fs::read_dir(folder).unwrap() {
            let path = entry.unwrap().path();
            if path.is_dir() { folders.push(path) } else { all.push(path) }
        }
    }
    all
}

#[test]
fn both_dockerfiles_build_the_same_static_program_the_same_way() {
    let steps = |text: &str, program: &str| -> Vec<String> {
        let lines = text.lines().filter(|line| !line.starts_with('#') && !line.starts_with("USER "));
        lines.map(|line| line.replace(program, "PROGRAM")).collect()
    };
    let manager = steps(&read("Dockerfile"), "capmaas-manager");
    let agent = steps(&read("lxd-initializer/Dockerfile"), "lxd-initializer");
    assert_eq!(manager, agent);
    assert!(manager.iter().any(|line| line.contains("hack/build-static PROGRAM")), "{manager:?}");
}

#[test]
fn no_manifest_names_an_image_that_somebody_else_could_own() {
    let mut seen = 0;
    for path in ["config", "lxd-initializer", "charts"].iter().flat_map(|folder| files(folder)) {
        let name = path.display().to_string();
        if path.extension().is_none_or(|extension| extension != "yaml") || name.contains("/crd") {
            continue;
        }
        for line in std::fs::read_to_string(&path).unwrap().lines() {
            let value = line.trim().trim_start_matches("- ");
            let Some(image) = value.strip_prefix("image: ").or_else(|| value.strip_prefix("value: ")) else { continue };
            if !image.contains("manager:") && !image.contains("lxd-initializer:") && !value.starts_with("image:") {
                continue;
            }
            // The first cannot exist; the user fills in the others.
            let good = ["registry.invalid/", "${REGISTRY}/", "{{ include \"capmaas.registry\" . }}/"];
            assert!(good.iter().any(|start| image.trim_matches('\'').starts_with(start)), "{name}: {line}");
            seen += 1;
        }
    }
    assert!(seen >= 4, "only {seen} images were found");
}

#[test]
fn the_version_stands_in_one_place() {
    let version = env!("CARGO_PKG_VERSION");
    let mut wrong = Vec::new();
    let mut looked_at = vec![root().join("Makefile"), root().join("Dockerfile")];
    looked_at.extend(["hack", "config", ".github", "lxd-initializer"].iter().flat_map(|folder| files(folder)));
    for path in looked_at {
        let name = path.display().to_string();
        // Third-party modules have versions of their own.
        if name.contains("hack/tools/") {
            continue;
        }
        let text = String::from_utf8_lossy(&std::fs::read(&path).unwrap()).into_owned();
        if text.contains(&format!("v{version}")) || text.contains(&format!("\"{version}\"")) {
            wrong.push(name);
        }
    }
    assert_eq!(wrong, Vec::<String>::new());
    let crates = ["crates", "lab", "xtask"].iter().flat_map(|folder| files(folder));
    for manifest in crates.filter(|path| path.ends_with("Cargo.toml") && !path.display().to_string().contains("/fuzz/"))
    {
        let text = std::fs::read_to_string(&manifest).unwrap();
        assert!(text.contains("version.workspace = true"), "{}", manifest.display());
    }
}

#[test]
fn every_template_of_the_checkout_is_yaml_with_a_kind() {
    let mut seen = 0;
    for path in files("templates").into_iter().filter(|path| !path.display().to_string().contains("/src/")) {
        if path.extension().is_some_and(|extension| extension == "yaml") {
            let text = std::fs::read_to_string(&path).unwrap();
            let objects: Vec<serde_json::Value> = serde_saphyr::from_multiple(&text).unwrap();
            assert!(objects.iter().all(|object| object["kind"].is_string()), "{}", path.display());
            seen += 1;
        }
    }
    assert_eq!(seen, 12, "six for each contract");
}

#[test]
fn a_release_that_lacks_something_is_refused_in_a_sentence_before_anything_is_built() {
    let release = |variables: &[(&str, &str)]| {
        let mut command = std::process::Command::new(root().join("hack/release"));
        command.arg("amd64").env_remove("REGISTRY").env_remove("TAG").envs(variables.iter().copied());
        let output = command.output().unwrap();
        assert!(!output.status.success());
        String::from_utf8(output.stderr).unwrap()
    };
    assert!(release(&[("TAG", "v1")]).starts_with("release: REGISTRY or TAG is missing"));
    let (registry, tag) = (("REGISTRY", "registry.example"), ("TAG", "v1"));
    assert_eq!(release(&[registry, tag, ("KEY", "/nowhere.pem")]), "release: the key /nowhere.pem cannot be read\n");
}
