//! A machine as MAAS shows it: its states, and what they mean to us.

use crate::hosts::bridge::Network;

/// All 23 states, and whatever else MAAS may say.
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
    Unheard,
}

impl State {
    /// Every state, in the order of MAAS's numbers, and the unheard-of one.
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
        Self::Unheard,
    ];

    /// The state of MAAS's number.
    pub fn from_code(code: i64) -> Self {
        usize::try_from(code).ok().and_then(|code| Self::ALL.get(code).copied()).unwrap_or(Self::Unheard)
    }

    /// MAAS is giving the machine back, or has.
    pub fn is_leaving(self) -> bool {
        matches!(self, Self::Releasing | Self::DiskErasing | Self::Ready | Self::New)
    }

    /// MAAS gets to know the machine. Whoever has it do so owns the machine until it is Ready, and nobody does then.
    pub fn is_being_commissioned(self) -> bool {
        matches!(self, Self::New | Self::Commissioning | Self::Testing)
    }

    /// Something that MAAS did to the machine has failed.
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

    /// A VM that nobody owns can be removed in this state.
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

    /// MAAS releases a machine in this state when it is told to.
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
    /// Nobody can tell.
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
            assert_eq!(State::from_code(code), State::Unheard, "{code}");
        }
    }
}

/// A machine as MAAS shows it.
#[derive(Debug, Clone, PartialEq, Eq)]
pub struct Machine {
    /// Its system ID.
    pub id: String,
    pub state: State,
    /// Its state in MAAS's words.
    pub state_name: String,
    /// What MAAS last knew about its power.
    pub power: Power,
    /// Who has it.
    pub owner: Option<String>,
    /// The key that is stamped on it.
    pub stamp: Option<String>,
    /// The object that the stamp names.
    pub stamped_for: Option<String>,
    /// First part of its name.
    pub hostname: String,
    /// Its whole name.
    pub fqdn: String,
    pub addresses: Vec<String>,
    pub zone: String,
    /// It is protected from release.
    pub locked: bool,
    /// It is marked for maintenance by a tag.
    pub in_maintenance: bool,
    /// Swap is off already.
    pub swap_off: bool,
    /// Its interfaces.
    pub network: Network,
    pub vm_host: Option<i64>,
    pub tags: Vec<String>,
    /// The last thing that MAAS said about it.
    pub last_words: String,
    /// The VLAN that it boots from, if MAAS neither serves DHCP there nor passes it on.
    pub without_dhcp: Option<String>,
}

impl Machine {
    pub fn is_vm(&self) -> bool {
        self.vm_host.is_some()
    }

    /// What MAAS said last is what the machine itself reported after its deployment: cloud-init has failed.
    pub fn bootstrap_failed(&self) -> bool {
        self.last_words.starts_with("Node post-installation failure")
    }

    /// What MAAS said last is about its power: the image is not to blame.
    pub fn failed_for_want_of_power(&self) -> bool {
        ["power", "bmc"].iter().any(|word| self.last_words.to_lowercase().contains(word))
    }
}
