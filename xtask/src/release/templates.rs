//! The cluster templates: assembled from parts for one contract.

use std::path::Path;

use anyhow::{Context as _, bail, ensure};

use super::version::Contract;
use super::{read, write};

const FLAVORS: [&str; 5] = ["", "-hcp", "-lxd", "-mixed", "-clusterclass"];
const CLUSTER_CLASS: &str = "clusterclass-maas.yaml";
/// The maximum nesting of parts: deeper nesting is a cycle.
const DEEPEST: usize = 6;

/// Writes the templates of every flavor and the ClusterClass, from their sources (`templates/src`).
pub(crate) fn write_templates(folder: &Path, sources: &Path, contract: Contract) -> anyhow::Result<()> {
    for flavor in FLAVORS {
        let name = format!("cluster-template{flavor}.yaml");
        write(&folder.join(&name), template(sources, &name, contract)?)?;
    }
    write(&folder.join(CLUSTER_CLASS), template(sources, CLUSTER_CLASS, contract)?)
}

/// One template with its parts inserted and only the lines of a contract.
fn template(folder: &Path, name: &str, contract: Contract) -> anyhow::Result<String> {
    let text = expand(folder, name, &[], 0)?;
    let mut lines = String::with_capacity(text.len());
    for line in text.lines() {
        let marked = Contract::ALL.into_iter().find_map(|it| Some((it, line.strip_suffix(&format!(" # {it}"))?)));
        match marked {
            Some((other, _)) if other != contract => continue,
            Some((_, rest)) => lines.push_str(rest),
            None => lines.push_str(line),
        }
        lines.push('\n');
    }
    let lines = lines.replace("@CONTRACT@", contract.as_str());
    if let Some(line) = lines.lines().find(|line| is_unfinished(line)) {
        bail!("nothing was put in the place of {:?} in {name}", line.trim());
    }
    Ok(lines)
}

/// Whether a line still contains `@WORD@`. "$@" of a shell script does not count.
fn is_unfinished(line: &str) -> bool {
    let words = line.split('@').skip(1);
    words.clone().zip(words.skip(1)).any(|(word, _)| !word.is_empty() && word.chars().all(|c| c.is_ascii_uppercase()))
        || line.trim_start().starts_with("@parts/")
}

fn expand(folder: &Path, name: &str, values: &[(&str, &str)], depth: usize) -> anyhow::Result<String> {
    ensure!(depth < DEEPEST, "the parts of the templates include each other in a circle at {name}");
    let mut text = read(&folder.join(name))?;
    for (key, value) in values {
        text = text.replace(&format!("@{key}@"), value);
    }
    let mut all = String::with_capacity(text.len());
    for line in text.lines() {
        let content = line.trim_start();
        let Some(include) = content.strip_prefix('@').filter(|rest| rest.starts_with("parts/")) else {
            all.push_str(line);
            all.push('\n');
            continue;
        };
        let indent = &line[..line.len() - content.len()];
        let mut words = include.split_whitespace();
        let part = words.next().unwrap_or_default();
        let values: Option<Vec<(&str, &str)>> = words.map(|word| word.split_once('=')).collect();
        let values = values.with_context(|| format!("{line:?} in {name} holds something that is not KEY=value"))?;
        for line in expand(folder, part, &values, depth + 1)?.lines() {
            if !line.is_empty() {
                all.push_str(indent);
                all.push_str(line);
            }
            all.push('\n');
        }
    }
    Ok(all)
}

#[cfg(test)]
mod tests {
    use super::*;

    fn sources() -> std::path::PathBuf {
        crate::root().join("templates/src")
    }

    #[test]
    fn every_template_is_finished_for_both_contracts() {
        let folder = tempfile::tempdir().unwrap();
        for contract in Contract::ALL {
            write_templates(folder.path(), &sources(), contract).unwrap();
            let mut files = 0;
            for file in std::fs::read_dir(folder.path()).unwrap() {
                let text = std::fs::read_to_string(file.unwrap().path()).unwrap();
                files += 1;
                assert!(text.contains(&format!("apiVersion: cluster.x-k8s.io/{contract}")), "{text}");
                assert!(!text.contains("# v1beta"), "{text}");
                let parsed: Result<Vec<serde_json::Value>, _> = serde_saphyr::from_multiple(&text);
                assert!(parsed.is_ok_and(|objects| objects.iter().all(|object| object["kind"].is_string())), "{text}");
            }
            assert_eq!(files, 6);
        }
    }

    #[test]
    fn clusterctl_finds_nothing_to_fill_in_in_the_script_and_cloud_init_neither() {
        let script = std::fs::read_to_string(sources().join("parts/prepare-node.sh")).unwrap();
        for sign in ["${", "{{", "{%", "{#"] {
            assert!(!script.contains(sign), "{sign}");
        }
        let class = template(&sources(), CLUSTER_CLASS, Contract::V1beta2).unwrap();
        assert!(!class.contains("${"), "a ClusterClass takes no variables of clusterctl");
        let path = sources().join("parts/prepare-node.sh");
        let checked = std::process::Command::new("bash").arg("-n").arg(path).output().unwrap();
        assert!(checked.status.success(), "{checked:?}");
    }

    #[test]
    fn a_part_that_is_missing_or_unfinished_is_told() {
        let folder = tempfile::tempdir().unwrap();
        std::fs::write(folder.path().join("a.yaml"), "x: @MISSING@\n").unwrap();
        assert!(template(folder.path(), "a.yaml", Contract::V1beta1).unwrap_err().to_string().contains("@MISSING@"));
        std::fs::write(folder.path().join("b.yaml"), "@parts/none.yaml\n").unwrap();
        assert!(template(folder.path(), "b.yaml", Contract::V1beta1).is_err());
    }
}
