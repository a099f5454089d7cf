//! Machine statuses.

use std::fmt;

use serde::{Deserialize, Deserializer};

macro_rules! statuses {
    ($( $(#[$meta:meta])* $variant:ident = $code:literal, $name:literal, $filter:literal; )+) => {
        /// The status of a machine: the 23 that every MAAS from 3.0 to 3.8 has, plus unknown ones.
        #[derive(Debug, Clone, Copy, PartialEq, Eq, Hash, PartialOrd, Ord)]
        pub enum MachineStatus {
            $( $(#[$meta])* $variant, )+
            /// A number that this client does not know. Nothing may be concluded from it.
            Unknown(i64),
        }

        impl MachineStatus {
            /// All statuses that this client knows.
            pub const ALL: [Self; 23] = [$(Self::$variant),+];

            /// The status with this code.
            pub fn from_code(code: i64) -> Self {
                match code { $( $code => Self::$variant, )+ other => Self::Unknown(other) }
            }

            /// The code of the status.
            pub fn code(self) -> i64 {
                match self { $( Self::$variant => $code, )+ Self::Unknown(code) => code }
            }

            /// The status with this name, as MAAS shows it (`status_name`, events).
            pub fn from_name(name: &str) -> Option<Self> {
                match name { $( $name => Some(Self::$variant), )+ _ => None }
            }

            /// The name as MAAS shows it.
            pub fn name(self) -> &'static str {
                match self { $( Self::$variant => $name, )+ Self::Unknown(_) => "Unknown" }
            }

            /// The name in the filter of the machine list; None for an unknown status.
            pub(crate) fn filter(self) -> Option<&'static str> {
                match self { $( Self::$variant => Some($filter), )+ Self::Unknown(_) => None }
            }
        }
    };
}

statuses! {
    /// Enlisted, not yet commissioned.
    New = 0, "New", "new";
    /// Its hardware is being inventoried.
    Commissioning = 1, "Commissioning", "commissioning";
    /// Commissioning failed.
    FailedCommissioning = 2, "Failed commissioning", "failed_commissioning";
    /// Marked as missing.
    Missing = 3, "Missing", "missing";
    /// Free for anyone to allocate.
    Ready = 4, "Ready", "ready";
    /// Reserved for someone.
    Reserved = 5, "Reserved", "reserved";
    /// It has fetched its user data, but may not have run it.
    Deployed = 6, "Deployed", "deployed";
    /// Out of service.
    Retired = 7, "Retired", "retired";
    /// Marked as broken. This is no quarantine: anyone may release it if it has no owner.
    Broken = 8, "Broken", "broken";
    /// An operating system is being installed.
    Deploying = 9, "Deploying", "deploying";
    /// Owned by a user.
    Allocated = 10, "Allocated", "allocated";
    /// The installation failed or timed out.
    FailedDeployment = 11, "Failed deployment", "failed_deployment";
    /// Being powered off.
    Releasing = 12, "Releasing", "releasing";
    /// Could not be powered off. (Its name does not follow the pattern of the others.)
    ReleasingFailed = 13, "Releasing failed", "releasing_failed";
    /// Disks are being erased.
    DiskErasing = 14, "Disk erasing", "disk_erasing";
    /// Disks could not be erased.
    FailedDiskErasing = 15, "Failed disk erasing", "failed_disk_erasing";
    /// Booted into rescue mode.
    RescueMode = 16, "Rescue mode", "rescue_mode";
    /// Booting into rescue mode.
    EnteringRescueMode = 17, "Entering rescue mode", "entering_rescue_mode";
    /// Could not be booted into rescue mode.
    FailedEnteringRescueMode = 18, "Failed to enter rescue mode", "failed_entering_rescue_mode";
    /// Leaving rescue mode.
    ExitingRescueMode = 19, "Exiting rescue mode", "exiting_rescue_mode";
    /// Could not leave rescue mode.
    FailedExitingRescueMode = 20, "Failed to exit rescue mode", "failed_exiting_rescue_mode";
    /// Its hardware is being tested.
    Testing = 21, "Testing", "testing";
    /// The hardware tests failed.
    FailedTesting = 22, "Failed testing", "failed_testing";
}

impl<'de> Deserialize<'de> for MachineStatus {
    fn deserialize<D: Deserializer<'de>>(deserializer: D) -> Result<Self, D::Error> {
        i64::deserialize(deserializer).map(Self::from_code)
    }
}

impl fmt::Display for MachineStatus {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        match self {
            Self::Unknown(code) => write!(f, "unknown state {code}"),
            known => f.write_str(known.name()),
        }
    }
}

/// The power state of a machine.
#[derive(Debug, Clone, PartialEq, Eq, Hash)]
pub enum PowerState {
    /// On.
    On,
    /// Off.
    Off,
    /// The power driver could not determine it. Not off.
    Unknown,
    /// The power driver failed. Not off.
    Error,
    /// A value that this client does not know. Not off.
    Other(String),
}

impl<'de> Deserialize<'de> for PowerState {
    fn deserialize<D: Deserializer<'de>>(deserializer: D) -> Result<Self, D::Error> {
        Ok(match String::deserialize(deserializer)?.as_str() {
            "on" => Self::On,
            "off" => Self::Off,
            "unknown" => Self::Unknown,
            "error" => Self::Error,
            other => Self::Other(other.to_owned()),
        })
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn every_number_from_0_to_22_is_a_state_and_names_lead_back() {
        for code in 0..=22 {
            let status = MachineStatus::from_code(code);
            assert_eq!((status.code(), MachineStatus::from_name(status.name())), (code, Some(status)));
            assert_eq!(MachineStatus::ALL[usize::try_from(code).unwrap()], status);
        }
    }

    #[test]
    fn a_number_from_the_future_is_kept() {
        assert_eq!(MachineStatus::from_code(23), MachineStatus::Unknown(23));
        assert_eq!(MachineStatus::Unknown(-7).to_string(), "unknown state -7");
    }

    #[test]
    fn only_the_word_off_is_off() {
        for word in ["on", "unknown", "error", "OFF", "", "soft-off"] {
            assert_ne!(serde_json::from_value::<PowerState>(word.into()).unwrap(), PowerState::Off, "{word}");
        }
    }
}
