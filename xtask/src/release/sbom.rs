//! A bill of materials in CycloneDX 1.5 format, from what `cargo metadata` resolved for one target.

use std::collections::{BTreeMap, BTreeSet};

use anyhow::Context as _;
use serde_json::{Value, json};

/// The bill of materials of a package: every crate that is linked into it, none that only builds or tests it.
///
/// `metadata` is the output of `cargo metadata --format-version 1 --filter-platform <target>`. It contains no time and
/// no random number, so that the same lock file produces the same bill.
pub(crate) fn bill(metadata: &Value, package: &str, target: &str) -> anyhow::Result<Value> {
    let packages: BTreeMap<&str, &Value> =
        list(&metadata["packages"]).filter_map(|it| Some((it["id"].as_str()?, it))).collect();
    let nodes: BTreeMap<&str, &Value> =
        list(&metadata["resolve"]["nodes"]).filter_map(|it| Some((it["id"].as_str()?, it))).collect();
    let root = packages
        .iter()
        .find(|(_, found)| found["name"] == package)
        .map(|(id, _)| *id)
        .with_context(|| format!("the workspace holds no package {package}"))?;

    let linked = |id: &str| -> BTreeSet<&str> {
        let deps = nodes.get(id).map(|node| &node["deps"]);
        let normal = deps.into_iter().flat_map(list).filter(|dep| {
            let library = dep["pkg"].as_str().and_then(|id| packages.get(id)).is_some_and(|found| !is_macro(found));
            library && list(&dep["dep_kinds"]).any(|kind| kind["kind"].is_null())
        });
        normal.filter_map(|dep| dep["pkg"].as_str()).collect()
    };
    let (mut reached, mut waiting) = (BTreeSet::from([root]), vec![root]);
    while let Some(id) = waiting.pop() {
        waiting.extend(linked(id).into_iter().filter(|next| reached.insert(next)));
    }

    let name = |id: &str| packages.get(id).map(|found| purl(found)).unwrap_or_default();
    let mut components: Vec<Value> = reached
        .iter()
        .filter(|id| **id != root)
        .filter_map(|id| packages.get(id))
        .map(|found| component("library", found))
        .collect();
    components.sort_by_key(|component| component["bom-ref"].to_string());
    let mut dependencies: Vec<Value> = reached
        .iter()
        .map(|id| json!({"ref": name(id), "dependsOn": linked(id).into_iter().map(name).collect::<BTreeSet<_>>()}))
        .collect();
    dependencies.sort_by_key(|entry| entry["ref"].to_string());
    let mut subject = component("application", packages.get(root).context("the root is a package")?);
    subject["properties"] = json!([{"name": "cargo:target", "value": target}]);
    Ok(json!({
        "bomFormat": "CycloneDX",
        "specVersion": "1.5",
        "version": 1,
        "metadata": {"component": subject},
        "components": components,
        "dependencies": dependencies,
    }))
}

/// Procedural macros run in the compiler and are not part of the program.
fn is_macro(package: &Value) -> bool {
    list(&package["targets"]).any(|target| list(&target["kind"]).any(|kind| kind == "proc-macro"))
}

fn component(kind: &str, package: &Value) -> Value {
    let purl = purl(package);
    let mut component = json!({
        "type": kind,
        "bom-ref": purl,
        "name": package["name"],
        "version": package["version"],
        "purl": purl,
    });
    if let Some(licence) = package["license"].as_str() {
        // An old notation for "or", which SPDX does not know.
        component["licenses"] = json!([{"expression": licence.replace('/', " OR ")}]);
    }
    component
}

fn purl(package: &Value) -> String {
    let text = |key: &str| package[key].as_str().unwrap_or_default().to_owned();
    format!("pkg:cargo/{}@{}", text("name"), text("version"))
}

fn list(value: &Value) -> impl Iterator<Item = &Value> {
    value.as_array().into_iter().flatten()
}

#[cfg(test)]
mod tests {
    use super::*;

    fn package(name: &str, licence: &str, kind: &str) -> Value {
        json!({"id": name, "name": name, "version": "1.0.0", "license": licence, "targets": [{"kind": [kind]}]})
    }

    fn dep(name: &str, kind: Value) -> Value {
        json!({"pkg": name, "dep_kinds": [{"kind": kind}]})
    }

    #[test]
    fn what_is_linked_is_listed_and_what_only_builds_or_tests_is_not() {
        let metadata = json!({
            "packages": [
                package("app", "Apache-2.0", "bin"), package("linked", "MIT/Apache-2.0", "lib"), package("deep", "MIT", "lib"),
                package("tests", "MIT", "lib"), package("builds", "MIT", "lib"), package("macros", "MIT", "proc-macro"),
            ],
            "resolve": {"nodes": [
                {"id": "app", "deps": [dep("linked", Value::Null), dep("tests", json!("dev")), dep("builds", json!("build")), dep("macros", Value::Null)]},
                {"id": "linked", "deps": [dep("deep", Value::Null)]},
                {"id": "deep", "deps": []},
            ]},
        });
        let bill = bill(&metadata, "app", "x").unwrap();
        let names: Vec<&str> = list(&bill["components"]).filter_map(|component| component["name"].as_str()).collect();
        assert_eq!(names, ["deep", "linked"]);
        assert_eq!(bill["components"][1]["licenses"][0]["expression"], "MIT OR Apache-2.0");
        assert_eq!(bill["metadata"]["component"]["purl"], "pkg:cargo/app@1.0.0");
        assert_eq!(
            bill["dependencies"][0],
            json!({"ref": "pkg:cargo/app@1.0.0", "dependsOn": ["pkg:cargo/linked@1.0.0"]})
        );
        assert!(super::bill(&metadata, "nobody", "x").is_err());
    }
}
