//! A machine in MAAS: its states, and what they mean to us.

use crate::Lookup;
use crate::hosts::bridge::Network;

/// All 23 states, and one for anything else that MAAS may report.
#[derive(Debug, Clone, Copy, PartialEq, Eq, Hash, PartialOrd, Ord)]
pub enum State {
    New,
    Commissioning,
    FailedCommissioning,
    Missing,
    Ready,
    Reserved,
    Deployed,
    Retired,
    Broken,
    Deploying,
    Allocated,
    FailedDeployment,
    Releasing,
    ReleasingFailed,
    DiskErasing,
    FailedDiskErasing,
    RescueMode,
    EnteringRescueMode,
    FailedEnteringRescueMode,
    ExitingRescueMode,
    FailedExitingRescueMode,
    Testing,
    FailedTesting,
    /// A state that this version does not know, or none at all.
    Unknown,
}

impl State {
    /// Every state in the order of MAAS's codes, then the unknown one.
    pub const ALL: [Self; 24] = [
        Self::New,
        Self::Commissioning,
        Self::FailedCommissioning,
        Self::Missing,
        Self::Ready,
        Self::Reserved,
        Self::Deployed,
        Self::Retired,
        Self::Broken,
        Self::Deploying,
        Self::Allocated,
        Self::FailedDeployment,
        Self::Releasing,
        Self::ReleasingFailed,
        Self::DiskErasing,
        Self::FailedDiskErasing,
        Self::RescueMode,
        Self::EnteringRescueMode,
        Self::FailedEnteringRescueMode,
        Self::ExitingRescueMode,
        Self::FailedExitingRescueMode,
        Self::Testing,
        Self::FailedTesting,
        Self::Unknown,
    ];

    /// The state for a code of MAAS.
    pub fn from_code(code: i64) -> Self {
        usize::try_from(code).ok().and_then(|code| Self::ALL.get(code).copied()).unwrap_or(Self::Unknown)
    }

    /// MAAS is releasing the machine, or has released it.
    pub fn is_leaving(self) -> bool {
        matches!(self, Self::Releasing | Self::DiskErasing | Self::Ready | Self::New)
    }

    /// MAAS is commissioning the machine. The user who requested that owns the machine until it is Ready; then nobody does.
    pub fn is_being_commissioned(self) -> bool {
        matches!(self, Self::New | Self::Commissioning | Self::Testing)
    }

    /// An operation of MAAS on the machine has failed.
    pub fn is_failed(self) -> bool {
        matches!(
            self,
            Self::FailedCommissioning
                | Self::Broken
                | Self::FailedDeployment
                | Self::ReleasingFailed
                | Self::FailedDiskErasing
                | Self::FailedEnteringRescueMode
                | Self::FailedExitingRescueMode
                | Self::FailedTesting
        )
    }

    /// A VM that nobody owns can be deleted in this state.
    pub fn is_removable(self) -> bool {
        matches!(
            self,
            Self::New
                | Self::Commissioning
                | Self::FailedCommissioning
                | Self::Testing
                | Self::FailedTesting
                | Self::Missing
                | Self::Ready
        )
    }

    /// MAAS accepts a release in this state.
    pub fn is_releasable(self) -> bool {
        matches!(
            self,
            Self::Allocated
                | Self::Reserved
                | Self::Broken
                | Self::Deploying
                | Self::Deployed
                | Self::FailedDeployment
                | Self::FailedDiskErasing
                | Self::ReleasingFailed
        )
    }
}

/// Whether a machine is on, as far as anybody can tell. Unknown is not off (S20).
#[derive(Debug, Clone, Copy, PartialEq, Eq, Hash)]
pub enum Power {
    On,
    Off,
    Unknown,
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn s08_every_number_has_its_state_and_others_are_unheard_of() {
        assert_eq!(State::from_code(4), State::Ready);
        assert_eq!(State::from_code(6), State::Deployed);
        assert_eq!(State::from_code(9), State::Deploying);
        assert_eq!(State::from_code(22), State::FailedTesting);
        for code in [-1, 23, 24, i64::MAX] {
            assert_eq!(State::from_code(code), State::Unknown, "{code}");
        }
    }
}

#[derive(Debug, Clone, PartialEq, Eq)]
pub struct Machine {
    /// Its system ID.
    pub id: String,
    pub state: State,
    /// Its state, as MAAS names it.
    pub state_name: String,
    /// Its power, as MAAS last saw it.
    pub power: Power,
    pub owner: Option<String>,
    /// The idempotency key that it is stamped with.
    pub stamp: Option<String>,
    /// The object that the stamp names.
    pub stamped_for: Option<String>,
    /// The host name without the domain.
    pub hostname: String,
    /// The fully qualified name.
    pub fqdn: String,
    pub addresses: Vec<String>,
    pub zone: String,
    /// MAAS protects it from release.
    pub locked: bool,
    /// A tag marks it, or the VM host on it, for maintenance. Whether a VM host is tagged is read only where that matters; `Unknown`
    /// if that could not be read.
    pub in_maintenance: Lookup<bool>,
    /// Swap is off already.
    pub swap_off: bool,
    pub network: Network,
    pub vm_host: Option<i64>,
    pub tags: Vec<String>,
    /// The last message of MAAS about it.
    pub last_message: String,
    /// The VLAN that it boots from, if MAAS neither serves nor relays DHCP there.
    pub without_dhcp: Option<String>,
}

impl Machine {
    pub fn is_vm(&self) -> bool {
        self.vm_host.is_some()
    }

    /// Its state, for people; of one that failed, with MAAS's reason.
    pub fn state_shown(&self) -> String {
        let why = Some(&self.last_message).filter(|why| self.state.is_failed() && !why.is_empty());
        let why = why.map(|why| format!(" ({why})")).unwrap_or_default();
        format!("{} in MAAS{why}", self.state_name)
    }

    /// The last message of MAAS is what the machine itself reported after its deployment: cloud-init has failed.
    pub fn bootstrap_failed(&self) -> bool {
        self.last_message.starts_with("Node post-installation failure")
    }

    /// The last message of MAAS is about its power: the image is not to blame.
    pub fn failed_for_power(&self) -> bool {
        ["power", "bmc"].iter().any(|word| self.last_message.to_lowercase().contains(word))
    }
}
