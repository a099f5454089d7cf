//! The version of a release, and the Cluster API contract that it implements.
//!
//! clusterctl knows one contract for each minor series, and no contract is supported by every clusterctl: up to 1.10 it
//! accepts v1beta1 only, from 1.16 on v1beta2 only. So one build is released twice: under an odd minor number for
//! v1beta1 and under the even one after it for v1beta2. Program, CRDs and image are the same.

use std::fmt;
use std::str::FromStr;

use anyhow::ensure;

/// The contract between Cluster API and a provider.
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

    pub(crate) const fn as_str(self) -> &'static str {
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

/// The last minor number of the v1beta1 series of every major release before this one, the oldest first.
const EARLIER: &[(u32, u32)] = &[];

/// The version of a release of the v1beta1 series, for instance v0.1.0. The other series follows from it.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub(crate) struct Version {
    major: u32,
    minor: u32,
    patch: u32,
}

impl Version {
    /// The version of this build for a contract.
    pub(crate) fn of(self, contract: Contract) -> String {
        let minor = if contract == Contract::V1beta1 { self.minor } else { self.minor + 1 };
        format!("v{}.{minor}.{}", self.major, self.patch)
    }

    /// The version of this checkout, which is only in the workspace's Cargo.toml.
    pub(crate) fn current() -> anyhow::Result<Self> {
        concat!("v", env!("CARGO_PKG_VERSION")).parse().map_err(|sentence: String| anyhow::anyhow!(sentence))
    }

    /// `metadata.yaml`: every series up to this release and its contract.
    pub(crate) fn metadata(self) -> anyhow::Result<String> {
        self.metadata_after(EARLIER)
    }

    fn metadata_after(self, earlier: &[(u32, u32)]) -> anyhow::Result<String> {
        use std::fmt::Write as _;

        let majors: Vec<u32> = earlier.iter().map(|(major, _)| *major).collect();
        ensure!(
            majors == (0..self.major).collect::<Vec<_>>(),
            "clusterctl upgrades only between series that metadata.yaml lists: name the last minor number of every major \
             release before {} in EARLIER",
            self.major
        );
        let mut text = "apiVersion: clusterctl.cluster.x-k8s.io/v1alpha3\nkind: Metadata\nreleaseSeries:\n".to_owned();
        for (major, last) in earlier.iter().copied().chain([(self.major, self.minor)]) {
            for minor in (1..=last).step_by(2) {
                for (minor, contract) in [(minor, Contract::V1beta1), (minor + 1, Contract::V1beta2)] {
                    let _ = writeln!(text, "  - {{major: {major}, minor: {minor}, contract: {contract}}}");
                }
            }
        }
        Ok(text)
    }
}

impl fmt::Display for Version {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        f.write_str(&self.of(Contract::V1beta1))
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

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn one_build_makes_two_series() {
        let version: Version = "v0.3.7".parse().unwrap();
        assert_eq!(Contract::ALL.map(|contract| version.of(contract)), ["v0.3.7", "v0.4.7"]);
        let metadata = version.metadata_after(&[]).unwrap();
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
    fn a_new_major_release_lists_the_series_of_those_before_it() {
        let version: Version = "v1.1.0".parse().unwrap();
        let metadata = version.metadata_after(&[(0, 3)]).unwrap();
        for line in ["major: 0, minor: 1,", "major: 0, minor: 4,", "major: 1, minor: 2,"] {
            assert!(metadata.contains(line), "{metadata}");
        }
        let refused = version.metadata_after(&[]).unwrap_err().to_string();
        assert!(refused.contains("name the last minor number of every major release before 1"), "{refused}");
    }

    #[test]
    fn the_version_of_this_checkout_can_be_released() {
        assert_eq!(Version::current().unwrap().to_string(), format!("v{}", env!("CARGO_PKG_VERSION")));
    }
}
