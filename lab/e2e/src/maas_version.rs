//! The MAAS version that scenarios run against.

use anyhow::{Context as _, bail};
use maas_sim::config::Version;
use serde_json::Value;

/// Selects the MAAS version that scenarios run against, such as "3.7".
const MAAS_VERSION: &str = "CAPMAAS_MAAS_VERSION";

/// The simulated MAAS version: the one named in the environment, or the simulator's default.
pub(crate) fn wanted() -> anyhow::Result<Version> {
    std::env::var(MAAS_VERSION).map_or_else(|_| Ok(Version::default()), |text| version_of(&text))
}

fn version_of(text: &str) -> anyhow::Result<Version> {
    text.parse().with_context(|| format!("{MAAS_VERSION} is {text:?}, which names no MAAS"))
}

/// Whether a MAAS that reports this version is the requested one, such as 3.7.3 for 3.7.
fn is_version(reported: &str, asked: &str) -> bool {
    reported.strip_prefix(asked).is_some_and(|rest| rest.is_empty() || rest.starts_with('.'))
}

/// Fails unless MAAS reports the version that the environment asks for: a ring of scenarios against another version
/// would prove nothing.
pub(crate) async fn check(endpoint: &str) -> anyhow::Result<()> {
    let Ok(asked) = std::env::var(MAAS_VERSION) else { return Ok(()) };
    let client = reqwest::Client::builder().no_proxy().build()?;
    let answer = client.get(format!("{endpoint}/api/2.0/version/")).send().await?.error_for_status()?;
    let answer: Value = serde_json::from_slice(&answer.bytes().await?)?;
    let reported = answer["version"].as_str().unwrap_or_default();
    if !is_version(reported, &asked) {
        bail!("{MAAS_VERSION} asks for MAAS {asked}, and MAAS {reported:?} answers");
    }
    Ok(())
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn a_version_that_no_maas_has_is_refused_by_its_name() {
        assert!(version_of("3.7").is_ok() && version_of("3.4.10").is_ok());
        for text in ["", "latest", "2.9", "3.99"] {
            let error = version_of(text).unwrap_err().to_string();
            assert!(error.contains(MAAS_VERSION) && error.contains(text), "{error}");
        }
    }

    #[test]
    fn a_maas_is_of_the_version_asked_for_or_it_is_not() {
        assert!(is_version("3.7.3", "3.7") && is_version("3.4.10", "3.4.10"));
        assert!(!is_version("3.4.10", "3.7") && !is_version("3.4.10", "3.4.1") && !is_version("", "3.7"));
    }
}
