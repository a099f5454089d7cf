//! The release files that clusterctl uses.

use std::path::Path;

use anyhow::{Context as _, ensure};

use super::templates::write_templates;
use super::version::{Contract, Version};
use super::write;

/// The manager's image in the manifests. The host cannot exist, so that it is never pulled by mistake.
pub(crate) const MANAGER_IMAGE: &str = "registry.invalid/capmaas/manager:unset";
/// The node agent's image in the manifests.
pub(crate) const AGENT_IMAGE: &str = "registry.invalid/capmaas/lxd-initializer:unset";

/// Writes the release of one contract into `<out>/infrastructure-maas/<version>/`, in clusterctl's folder layout.
///
/// `components` are the rendered manifests; `image` is the manager's, with registry and tag.
pub(crate) fn write_release(
    out: &Path,
    sources: &Path,
    version: Version,
    contract: Contract,
    components: &str,
    image: &str,
) -> anyhow::Result<()> {
    let folder = out.join("infrastructure-maas").join(version.of(contract));
    write(&folder.join("infrastructure-components.yaml"), with_image(components, image)?)?;
    write(&folder.join("metadata.yaml"), version.metadata()?)?;
    write_templates(&folder, sources, contract)
}

/// clusterctl refuses an image without a registry, and so does this.
fn with_image(components: &str, image: &str) -> anyhow::Result<String> {
    let (registry, rest) = image.split_once('/').unwrap_or_default();
    let names_registry = registry.contains(['.', ':']) || registry == "localhost";
    ensure!(
        names_registry && rest.contains(':'),
        "the image {image:?} does not say where it is: give REGISTRY=<host>/<path> and TAG=<tag>"
    );
    ensure!(!components.contains("${"), "the manifests hold something that clusterctl would fill in");
    // The agent's image is next to the manager's. clusterctl only overrides images of Deployments, and this is not one,
    // so it is a variable.
    let (place, tag) =
        image.rsplit_once("manager:").with_context(|| format!("the image {image:?} is not called manager"))?;
    let agent = format!("${{LXD_INITIALIZER_IMAGE:={place}lxd-initializer:{tag}}}");
    replace_once(&replace_once(components, MANAGER_IMAGE, image)?, AGENT_IMAGE, &agent)
}

fn replace_once(text: &str, old: &str, new: &str) -> anyhow::Result<String> {
    let count = text.matches(old).count();
    ensure!(count == 1, "the manifests name the image {old} {count} times instead of once");
    Ok(text.replace(old, new))
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn an_image_without_a_registry_is_refused_as_clusterctl_would() {
        let components = format!("kind: Deployment\n        image: {MANAGER_IMAGE}\n  value: {AGENT_IMAGE}\n");
        let image = "registry.example/capmaas/manager:v1";
        let made = with_image(&components, image).unwrap();
        assert!(made.contains("        image: registry.example/capmaas/manager:v1\n"), "{made}");
        let agent = "  value: ${LXD_INITIALIZER_IMAGE:=registry.example/capmaas/lxd-initializer:v1}\n";
        assert!(made.contains(agent), "{made}");
        for bad in ["capmaas/manager:v1", "manager", "registry.example/capmaas/manager"] {
            assert!(
                with_image(&components, bad).unwrap_err().to_string().contains("does not say where it is"),
                "{bad}"
            );
        }
        assert!(with_image("kind: Namespace\n", image).is_err(), "nothing to replace");
    }
}
