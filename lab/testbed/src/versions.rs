//! The versions that are tested against.

use std::str::FromStr;

use crate::error::{Error, Result};

/// The environment variable that selects the Kubernetes version of tests that do not require one.
pub const KUBERNETES_VARIABLE: &str = "CAPMAAS_KUBERNETES";

/// A Kubernetes version that the testbed can start.
#[derive(Clone, Copy, Debug, PartialEq, Eq, Hash, PartialOrd, Ord, Default)]
pub enum KubernetesVersion {
    /// The oldest supported version. It does not serve ValidatingAdmissionPolicy.
    V1_29,
    /// The version that booting nodes are upgraded from. Used for nothing else.
    V1_36_3,
    /// What we develop against.
    #[default]
    V1_36,
}

impl KubernetesVersion {
    /// All versions for a test's API server, oldest first.
    pub const ALL: [Self; 2] = [Self::V1_29, Self::V1_36];

    /// The exact version, as Kubernetes writes it.
    pub const fn as_str(self) -> &'static str {
        match self {
            Self::V1_29 => "v1.29.15",
            Self::V1_36_3 => "v1.36.3",
            Self::V1_36 => "v1.36.4",
        }
    }

    /// The version in `CAPMAAS_KUBERNETES`, or the default. A version that the testbed cannot start is an error.
    pub fn from_env() -> Result<Self> {
        match std::env::var(KUBERNETES_VARIABLE) {
            Ok(text) if !text.is_empty() => text.parse(),
            _ => Ok(Self::default()),
        }
    }
}

/// A Cluster API version that the testbed can start.
#[derive(Clone, Copy, Debug, PartialEq, Eq, Hash, PartialOrd, Ord, Default)]
pub enum CapiVersion {
    /// The oldest supported version.
    V1_5,
    /// The last that only implements the old contract (v1beta1).
    V1_10,
    /// What we develop against.
    #[default]
    V1_14,
}

impl CapiVersion {
    pub const ALL: [Self; 3] = [Self::V1_5, Self::V1_10, Self::V1_14];

    /// The exact version, as Cluster API writes it.
    pub const fn as_str(self) -> &'static str {
        match self {
            Self::V1_5 => "v1.5.0",
            Self::V1_10 => "v1.10.10",
            Self::V1_14 => "v1.14.0",
        }
    }
}

macro_rules! version_text {
    ($kind:ty, $name:literal) => {
        impl std::fmt::Display for $kind {
            fn fmt(&self, f: &mut std::fmt::Formatter<'_>) -> std::fmt::Result {
                f.write_str(self.as_str())
            }
        }

        /// Accepts `v1.2.3`, `1.2.3`, `v1.2` and `1.2`.
        impl FromStr for $kind {
            type Err = Error;

            fn from_str(text: &str) -> Result<Self> {
                let wanted = text.strip_prefix('v').unwrap_or(text);
                let known = |version: &Self| {
                    let full = &version.as_str()[1..];
                    full == wanted || full.rsplit_once('.').is_some_and(|(minor, _)| minor == wanted)
                };
                Self::ALL.into_iter().find(known).ok_or_else(|| {
                    let all = Self::ALL.map(Self::as_str).join(", ");
                    Error::invalid(format!("{} version {text:?}", $name), format!("choose one of {all}"))
                })
            }
        }
    };
}

version_text!(KubernetesVersion, "Kubernetes");
version_text!(CapiVersion, "Cluster API");

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn a_version_is_named_in_full_or_by_its_minor() {
        for text in ["v1.29.15", "1.29.15", "v1.29", "1.29"] {
            assert_eq!(text.parse::<KubernetesVersion>().unwrap(), KubernetesVersion::V1_29);
        }
        assert_eq!("1.5".parse::<CapiVersion>().unwrap(), CapiVersion::V1_5);
    }

    #[test]
    fn an_unknown_version_is_refused_and_the_known_ones_are_named() {
        let error = "v1.28.0".parse::<KubernetesVersion>().unwrap_err().to_string();
        assert_eq!(error, r#"Kubernetes version "v1.28.0": choose one of v1.29.15, v1.36.4"#);
    }
}
