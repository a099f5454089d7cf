//! What can go wrong with an LXD VM, in the six kinds that users know.

use std::fmt;

use crate::reasons;

/// The kind of failure. Each is also the reason of a condition.
#[derive(Clone, Copy, Debug, PartialEq, Eq, Hash, PartialOrd, Ord)]
pub enum LxdErrorKind {
    /// The host does not answer, is off, or is being taken out of use.
    HostUnavailable,
    /// No host has the cores, memory or disk.
    InsufficientResources,
    /// The LXD profile that is asked for does not exist.
    ProfileNotFound,
    /// The LXD project that is asked for does not exist.
    ProjectNotFound,
    /// MAAS could not compose the VM.
    VmCreationFailed,
    /// The VM is there, but its operating system was not deployed.
    VmDeploymentFailed,
}

impl LxdErrorKind {
    /// Every kind.
    pub const ALL: [Self; 6] = [
        Self::HostUnavailable,
        Self::InsufficientResources,
        Self::ProfileNotFound,
        Self::ProjectNotFound,
        Self::VmCreationFailed,
        Self::VmDeploymentFailed,
    ];

    /// The reason that a condition gives for it, which is also its name.
    pub fn reason(self) -> &'static str {
        match self {
            Self::HostUnavailable => reasons::HOST_UNAVAILABLE,
            Self::InsufficientResources => reasons::INSUFFICIENT_RESOURCES,
            Self::ProfileNotFound => reasons::PROFILE_NOT_FOUND,
            Self::ProjectNotFound => reasons::PROJECT_NOT_FOUND,
            Self::VmCreationFailed => reasons::VM_CREATION_FAILED,
            Self::VmDeploymentFailed => reasons::VM_DEPLOYMENT_FAILED,
        }
    }

    /// Whether it may pass by itself or on another host; the others wait for a person.
    pub fn is_retryable(self) -> bool {
        !matches!(self, Self::ProfileNotFound | Self::ProjectNotFound)
    }
}

impl fmt::Display for LxdErrorKind {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        f.write_str(self.reason())
    }
}

/// A failure around an LXD VM.
#[derive(Clone, Debug, PartialEq, thiserror::Error)]
#[error("LXD {kind}: {message}")]
pub struct LxdError {
    /// What kind of failure it is.
    pub kind: LxdErrorKind,
    /// What went wrong, for people; without secrets, since it ends up in conditions.
    pub message: String,
    /// The host concerned: its name or system ID in MAAS.
    pub host: Option<String>,
}

impl LxdError {
    /// A failure that concerns no particular host.
    pub fn new(kind: LxdErrorKind, message: impl Into<String>) -> Self {
        Self { kind, message: message.into(), host: None }
    }

    /// The same, of this host.
    #[must_use]
    pub fn on_host(mut self, host: impl Into<String>) -> Self {
        self.host = Some(host.into());
        self
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn it_prints_kind_and_message() {
        let error = LxdError::new(LxdErrorKind::InsufficientResources, "no host has 64 cores").on_host("lxd-host-1");
        assert_eq!(error.to_string(), "LXD InsufficientResources: no host has 64 cores");
        assert_eq!(error.host.as_deref(), Some("lxd-host-1"));
    }

    #[test]
    fn the_six_kinds_are_documented_reasons() {
        let names = LxdErrorKind::ALL.map(LxdErrorKind::reason);
        assert_eq!(
            names,
            [
                "HostUnavailable",
                "InsufficientResources",
                "ProfileNotFound",
                "ProjectNotFound",
                "VMCreationFailed",
                "VMDeploymentFailed"
            ]
        );
        assert!(names.iter().all(|name| reasons::ALL.iter().any(|entry| entry.name == *name)));
    }
}
