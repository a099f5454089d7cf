//! Release notes: the section of one release in CHANGELOG.md.

use anyhow::ensure;

use super::version::{Contract, Version};

/// The section of a release, without its heading.
pub(crate) fn notes(changelog: &str, version: Version) -> anyhow::Result<String> {
    let headline = format!("## {} / {}", version.of(Contract::V1beta1), version.of(Contract::V1beta2));
    let lines = changelog.lines().skip_while(|line| *line != headline).skip(1);
    let section: Vec<&str> = lines.take_while(|line| !line.starts_with("## ")).collect();
    let text = section.join("\n").trim().to_owned();
    ensure!(!text.is_empty(), "CHANGELOG.md says nothing under {headline:?}: write there what is new");
    Ok(format!("# {version} and {}\n\n{text}\n", version.of(Contract::V1beta2)))
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn the_notes_are_the_section_of_the_release_and_a_missing_one_is_told() {
        let changelog = "# Changelog\n\n## v0.3.0 / v0.4.0\n\nNew.\n\n- a\n\n## v0.1.0 / v0.2.0\n\nFirst.\n";
        assert_eq!(notes(changelog, "v0.3.0".parse().unwrap()).unwrap(), "# v0.3.0 and v0.4.0\n\nNew.\n\n- a\n");
        let refused = notes(changelog, "v0.5.0".parse().unwrap()).unwrap_err().to_string();
        assert!(refused.contains("says nothing under \"## v0.5.0 / v0.6.0\""), "{refused}");
    }

    #[test]
    fn this_checkout_has_notes() {
        let changelog = super::super::root_text("CHANGELOG.md").unwrap();
        assert!(notes(&changelog, Version::current().unwrap()).is_ok());
    }
}
