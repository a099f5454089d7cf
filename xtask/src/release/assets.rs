//! The files that clusterctl looks for in a release.
//!
//! clusterctl knows one contract for each minor series, and no contract is understood by every clusterctl: up to 1.10 it takes
//! v1beta1 only, from 1.16 on v1beta2 only. So one build is released twice: under an odd minor number for v1beta1 and under the
//! even one after it for v1beta2. Program, CRDs and image are the same.

use std::fmt;
use std::path::Path;
use std::str::FromStr;

use anyhow::{Context as _, bail, ensure};

use super::{read, write};

/// What the manifests call the manager's image, up to the tag.
const MANAGER_IMAGE: &str = "capmaas/manager:";
/// The same of the node agent's.
const AGENT_IMAGE: &str = "capmaas/lxd-initializer:";
const FLAVORS: [&str; 5] = ["", "-hcp", "-lxd", "-mixed", "-clusterclass"];
const CLUSTER_CLASS: &str = "clusterclass-maas.yaml";
/// Parts within parts within a template: more of them than this is a circle.
const DEEPEST: usize = 6;

/// What Cluster API and a provider agreed upon.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub(crate) enum Contract {
    /// Cluster API 1.5 to 1.15.
    V1beta1,
    /// Cluster API 1.11 and later.
    V1beta2,
}

impl Contract {
    /// Both, the older first.
    pub(crate) const ALL: [Self; 2] = [Self::V1beta1, Self::V1beta2];

    const fn as_str(self) -> &'static str {
        match self {
            Self::V1beta1 => "v1beta1",
            Self::V1beta2 => "v1beta2",
        }
    }
}

impl fmt::Display for Contract {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        f.write_str(self.as_str())
    }
}

impl FromStr for Contract {
    type Err = String;

    fn from_str(text: &str) -> Result<Self, String> {
        let found = Self::ALL.into_iter().find(|contract| contract.as_str() == text);
        found.ok_or_else(|| format!("{text:?} is no contract: write v1beta1 or v1beta2"))
    }
}

/// The number of a release of the v1beta1 series, for instance v0.1.0. The other series follows from it.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub(crate) struct Version {
    major: u32,
    minor: u32,
    patch: u32,
}

impl Version {
    /// What this build is called for a contract.
    pub(crate) fn of(self, contract: Contract) -> String {
        let minor = if contract == Contract::V1beta1 { self.minor } else { self.minor + 1 };
        format!("v{}.{minor}.{}", self.major, self.patch)
    }

    /// `metadata.yaml`: every series up to this release and its contract.
    pub(crate) fn metadata(self) -> String {
        use std::fmt::Write as _;

        let mut text = "apiVersion: clusterctl.cluster.x-k8s.io/v1alpha3\nkind: Metadata\nreleaseSeries:\n".to_owned();
        for minor in (1..=self.minor).step_by(2) {
            for (minor, contract) in [(minor, Contract::V1beta1), (minor + 1, Contract::V1beta2)] {
                let _ = writeln!(text, "  - {{major: {}, minor: {minor}, contract: {contract}}}", self.major);
            }
        }
        text
    }
}

impl FromStr for Version {
    type Err = String;

    fn from_str(text: &str) -> Result<Self, String> {
        let numbers =
            text.strip_prefix('v').map(|rest| rest.split('.').map(str::parse).collect::<Result<Vec<u32>, _>>());
        match numbers {
            Some(Ok(numbers)) if numbers.len() == 3 && numbers[1] % 2 == 1 => {
                Ok(Self { major: numbers[0], minor: numbers[1], patch: numbers[2] })
            }
            _ => Err(format!(
                "{text:?} is no release: write v0.1.0 or the like, with an odd number in the middle (contract v1beta1); the \
                 even one after it (contract v1beta2) is made beside it"
            )),
        }
    }
}

/// Writes the release of one contract into `<out>/<version>/`.
///
/// `components` are the rendered manifests; `image` is the manager's, with registry and tag.
pub(crate) fn write_release(
    out: &Path,
    templates: &Path,
    version: Version,
    contract: Contract,
    components: &str,
    image: &str,
) -> anyhow::Result<()> {
    let folder = out.join(version.of(contract));
    write(&folder.join("infrastructure-components.yaml"), with_image(components, image)?)?;
    write(&folder.join("metadata.yaml"), version.metadata())?;
    write_templates(&folder, templates, contract)
}

/// Writes the templates of every flavor and the ClusterClass.
pub(crate) fn write_templates(folder: &Path, templates: &Path, contract: Contract) -> anyhow::Result<()> {
    for flavor in FLAVORS {
        let name = format!("cluster-template{flavor}.yaml");
        write(&folder.join(&name), template(templates, &name, contract)?)?;
    }
    write(&folder.join(CLUSTER_CLASS), template(templates, CLUSTER_CLASS, contract)?)
}

/// clusterctl refuses an image that does not say in which registry it is, and so does this.
fn with_image(components: &str, image: &str) -> anyhow::Result<String> {
    let (registry, rest) = image.split_once('/').unwrap_or_default();
    let names_registry = registry.contains(['.', ':']) || registry == "localhost";
    ensure!(
        names_registry && rest.contains(':'),
        "the image {image:?} does not say where it is: give REGISTRY=<host>/<path> and TAG=<tag>"
    );
    ensure!(!components.contains("${"), "the manifests hold something that clusterctl would fill in");
    // The agent is beside the manager. clusterctl overrides images of Deployments only, and this is none: so it is a variable.
    let (place, tag) =
        image.rsplit_once("manager:").with_context(|| format!("the image {image:?} is not called manager"))?;
    let agent = format!("${{LXD_INITIALIZER_IMAGE:={place}lxd-initializer:{tag}}}");
    let text = replace_once(components, "image: ", MANAGER_IMAGE, image)?;
    replace_once(&text, "value: ", AGENT_IMAGE, &agent)
}

/// Puts something in the place of the one value after `key` that starts with `old`.
fn replace_once(text: &str, key: &str, old: &str, new: &str) -> anyhow::Result<String> {
    let mut replaced = 0;
    let lines = text.lines().map(|line| match line.split_once(key) {
        Some((before, name)) if name.starts_with(old) => {
            replaced += 1;
            format!("{before}{key}{new}\n")
        }
        _ => format!("{line}\n"),
    });
    let text: String = lines.collect();
    ensure!(replaced == 1, "the manifests name the image {old} {replaced} times instead of once");
    Ok(text)
}

/// One template with its parts put in and only the lines of a contract.
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

/// Whether a line still holds `@WORD@`. "$@" of a shell script is none.
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

    fn templates() -> std::path::PathBuf {
        Path::new(env!("CARGO_MANIFEST_DIR")).join("../templates")
    }

    #[test]
    fn one_build_makes_two_series() {
        let version: Version = "v0.3.7".parse().unwrap();
        assert_eq!(Contract::ALL.map(|contract| version.of(contract)), ["v0.3.7", "v0.4.7"]);
        let metadata = version.metadata();
        for line in [
            "minor: 1, contract: v1beta1",
            "minor: 2, contract: v1beta2",
            "minor: 3, contract: v1beta1",
            "minor: 4, contract: v1beta2",
        ] {
            assert!(metadata.contains(line), "{metadata}");
        }
        for bad in ["0.1.0", "v0.2.0", "v0.1", "v0.x.0"] {
            assert!(bad.parse::<Version>().is_err(), "{bad}");
        }
    }

    #[test]
    fn an_image_without_a_registry_is_refused_as_clusterctl_would() {
        let components =
            "kind: Deployment\n        image: capmaas/manager:v0.1.0\n  value: capmaas/lxd-initializer:v0.1.0\n";
        let image = "registry.example/capmaas/manager:v1";
        let made = with_image(components, image).unwrap();
        assert!(made.contains("        image: registry.example/capmaas/manager:v1\n"), "{made}");
        let agent = "  value: ${LXD_INITIALIZER_IMAGE:=registry.example/capmaas/lxd-initializer:v1}\n";
        assert!(made.contains(agent), "{made}");
        for bad in ["capmaas/manager:v1", "manager", "registry.example/capmaas/manager"] {
            assert!(with_image(components, bad).unwrap_err().to_string().contains("does not say where it is"), "{bad}");
        }
        assert!(with_image("kind: Namespace\n", image).is_err(), "nothing to replace");
    }

    #[test]
    fn every_template_is_finished_for_both_contracts() {
        let folder = tempfile::tempdir().unwrap();
        for contract in Contract::ALL {
            write_templates(folder.path(), &templates(), contract).unwrap();
            let mut files = 0;
            for file in std::fs::read_dir(folder.path()).unwrap() {
                let text = std::fs::read_to_string(file.unwrap().path()).unwrap();
                files += 1;
                assert!(text.contains(&format!("apiVersion: cluster.x-k8s.io/{contract}")), "{text}");
                assert!(!text.contains("# v1beta"), "{text}");
            }
            assert_eq!(files, 6);
        }
    }

    #[test]
    fn clusterctl_finds_nothing_to_fill_in_in_the_script_and_cloud_init_neither() {
        let script = std::fs::read_to_string(templates().join("parts/prepare-node.sh")).unwrap();
        for sign in ["${", "{{", "{%", "{#"] {
            assert!(!script.contains(sign), "{sign}");
        }
        let class = template(&templates(), CLUSTER_CLASS, Contract::V1beta2).unwrap();
        assert!(!class.contains("${"), "a ClusterClass takes no variables of clusterctl");
        let path = templates().join("parts/prepare-node.sh");
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
