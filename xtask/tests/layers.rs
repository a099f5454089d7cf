//! Shipped code does not depend on test code.

use std::path::Path;
use std::process::Command;

use serde_json::Value;

/// Dependencies of programs and libraries in `crates/` that lie outside of it.
fn strays(metadata: &Value, root: &str) -> Vec<String> {
    let ships = format!("{root}/crates/");
    let mut strays = Vec::new();
    for package in metadata["packages"].as_array().into_iter().flatten() {
        let shipped = package["manifest_path"].as_str().is_some_and(|path| path.starts_with(&ships));
        for dependency in package["dependencies"].as_array().into_iter().flatten().filter(|_| shipped) {
            let path = dependency["path"].as_str().unwrap_or_default();
            // Tests of shipped code may use the lab.
            if dependency["kind"] != "dev" && path.starts_with(root) && !path.starts_with(&ships) {
                strays.push(format!("{} depends on {path}", package["name"]));
            }
        }
    }
    strays
}

#[test]
fn nothing_that_ships_depends_on_the_lab() {
    let root = Path::new(env!("CARGO_MANIFEST_DIR")).parent().unwrap().canonicalize().unwrap();
    let output = Command::new(env!("CARGO"))
        .args(["metadata", "--no-deps", "--format-version", "1", "--locked"])
        .current_dir(&root)
        .output()
        .unwrap();
    let metadata: Value = serde_json::from_slice(&output.stdout).unwrap();
    assert!(metadata["packages"].as_array().is_some_and(|packages| packages.len() > 10), "cargo tells of all crates");
    assert_eq!(strays(&metadata, root.to_str().unwrap()), Vec::<String>::new());
}

#[test]
fn a_dependency_on_the_lab_is_noticed_unless_only_tests_have_it() {
    let package = |kind: Value| {
        serde_json::json!({ "packages": [{
            "name": "manager",
            "manifest_path": "/p/crates/manager/Cargo.toml",
            "dependencies": [{ "path": "/p/lab/maas-sim", "kind": kind }],
        }]})
    };
    assert_eq!(strays(&package(Value::Null), "/p").len(), 1);
    assert_eq!(strays(&package("build".into()), "/p").len(), 1);
    assert!(strays(&package("dev".into()), "/p").is_empty());
}
