//! The version of MAAS and its capabilities.

use std::fmt;
use std::str::FromStr;
use std::sync::{Mutex, PoisonError};
use std::time::Duration;

use tokio::time::Instant;

use crate::Client;
use crate::call::Call;
use crate::error::{Effect, Error, ErrorKind, Result};
use crate::tolerant::wire_type;

wire_type! {
    /// What MAAS reports about itself. Needs no authentication.
    VersionInfo {
        required {
            /// For example `3.4.10`.
            version: String,
        }
        /// The build.
        subversion: Option<String>,
        /// A list that has not changed for years: use the version instead.
        capabilities: Vec<String>,
    }
}

/// A MAAS version.
#[derive(Debug, Clone, Copy, PartialEq, Eq, PartialOrd, Ord, Hash)]
pub struct Version {
    /// 3 in 3.4.10.
    pub major: u32,
    /// 4 in 3.4.10.
    pub minor: u32,
    /// 10 in 3.4.10.
    pub patch: u32,
}

/// The text is not a version.
#[derive(Debug, Clone, Copy, PartialEq, Eq, thiserror::Error)]
#[error("a MAAS version starts with two numbers, as in 3.4.10")]
pub struct VersionError;

impl Version {
    /// A version by its numbers.
    pub const fn new(major: u32, minor: u32, patch: u32) -> Self {
        Self { major, minor, patch }
    }
}

impl FromStr for Version {
    type Err = VersionError;

    /// Parses `3.4.10`, `3.5.0~rc1`, `3.8.0-17000-g.0123abc` and `3.4`.
    fn from_str(text: &str) -> Result<Self, VersionError> {
        let number = |part: Option<&str>| {
            let part = part.unwrap_or("");
            let digits = part.find(|c: char| !c.is_ascii_digit()).unwrap_or(part.len());
            part[..digits].parse::<u32>()
        };
        let mut parts = text.trim().split('.');
        let major = number(parts.next()).map_err(|_| VersionError)?;
        let minor = number(parts.next()).map_err(|_| VersionError)?;
        Ok(Self { major, minor, patch: number(parts.next()).unwrap_or(0) })
    }
}

impl fmt::Display for Version {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        write!(f, "{}.{}.{}", self.major, self.minor, self.patch)
    }
}

/// The capabilities of a MAAS version that differ between 3.0 and 3.8.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
#[non_exhaustive]
pub struct Capabilities {
    /// The version itself.
    pub version: Version,
    /// 3.1: a VM host may be given a certificate and key; an unreachable host is stored anyway.
    pub vm_host_certificates: bool,
    /// 3.2: machines may report their hardware after deployment.
    pub hardware_sync: bool,
    /// 3.3: machines can be listed by owner, by several statuses, and by absent tags. Before, an unknown filter is an
    /// error.
    pub machine_filters: bool,
    /// Until 3.2, even an allocation of one named machine may compose a VM when that machine is taken.
    pub allocate_by_id_may_compose: bool,
    /// 3.3: a machine shows whether it was deployed into memory, and which machine hosts it.
    pub ephemeral_deploy_shown: bool,
    /// 3.5: a machine shows why it failed.
    pub error_description: bool,
    /// 3.6: kernel crash dumps.
    pub kernel_crash_dump: bool,
}

impl Capabilities {
    /// The capabilities of this version.
    pub fn of(version: Version) -> Self {
        let from = |major, minor| version >= Version::new(major, minor, 0);
        Self {
            version,
            vm_host_certificates: from(3, 1),
            hardware_sync: from(3, 2),
            machine_filters: from(3, 3),
            allocate_by_id_may_compose: !from(3, 3),
            ephemeral_deploy_shown: from(3, 3),
            error_description: from(3, 5),
            kernel_crash_dump: from(3, 6),
        }
    }
}

/// The version, cached for a while: MAAS may be upgraded at any time.
#[derive(Debug, Default)]
pub(crate) struct KnownVersion {
    known: Mutex<Option<(Instant, Capabilities)>>,
}

const REMEMBER: Duration = Duration::from_secs(600);

impl KnownVersion {
    fn get(&self) -> Option<Capabilities> {
        let known = self.known.lock().unwrap_or_else(PoisonError::into_inner);
        known.filter(|(since, _)| since.elapsed() < REMEMBER).map(|(_, capabilities)| capabilities)
    }

    fn set(&self, capabilities: Capabilities) {
        *self.known.lock().unwrap_or_else(PoisonError::into_inner) = Some((Instant::now(), capabilities));
    }
}

impl Client {
    /// Reads the version of MAAS.
    pub async fn version(&self) -> Result<VersionInfo> {
        self.json(Call::get("version.read", "version/", &[])?).await
    }

    /// The capabilities of this MAAS. Read once, and again after ten minutes.
    pub async fn capabilities(&self) -> Result<Capabilities> {
        if let Some(known) = self.known_version().get() {
            return Ok(known);
        }
        let info = self.version().await?;
        let version = info.version.parse().map_err(|error: VersionError| {
            Error::new(ErrorKind::NotUnderstood, "version.read", Effect::None, error.to_string()).with_source(error)
        })?;
        let capabilities = Capabilities::of(version);
        self.known_version().set(capabilities);
        Ok(capabilities)
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn versions_are_read_as_maas_prints_them() {
        for (text, expected) in [
            ("3.4.10", Version::new(3, 4, 10)),
            ("3.5.0~rc1", Version::new(3, 5, 0)),
            ("3.8.0-17000-g.0123abc", Version::new(3, 8, 0)),
            ("3.4", Version::new(3, 4, 0)),
            ("3.10.1", Version::new(3, 10, 1)),
            ("4.0.0~alpha1", Version::new(4, 0, 0)),
        ] {
            assert_eq!(text.parse(), Ok(expected), "{text}");
        }
        for text in ["", "3", "x.y", "latest", "99999999999.1"] {
            assert_eq!(text.parse::<Version>(), Err(VersionError), "{text}");
        }
    }

    #[test]
    fn a_newer_version_can_all_that_an_older_one_can() {
        let oldest = Capabilities::of(Version::new(3, 0, 1));
        assert!(!oldest.vm_host_certificates && !oldest.machine_filters && oldest.allocate_by_id_may_compose);
        let middle = Capabilities::of(Version::new(3, 4, 10));
        assert!(middle.vm_host_certificates && middle.hardware_sync && middle.machine_filters);
        assert!(!middle.error_description && !middle.kernel_crash_dump && !middle.allocate_by_id_may_compose);
        let newest = Capabilities::of(Version::new(3, 10, 0));
        assert!(newest.error_description && newest.kernel_crash_dump);
    }
}
