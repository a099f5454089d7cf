//! The states of a machine.

use std::fmt;

use serde::{Deserialize, Deserializer};

macro_rules! statuses {
    ($( $(#[$meta:meta])* $variant:ident = $code:literal, $name:literal, $filter:literal; )+) => {
        /// The state of a machine: the 23 that every MAAS from 3.0 to 3.8 has, and room for what may come.
        #[derive(Debug, Clone, Copy, PartialEq, Eq, Hash, PartialOrd, Ord)]
        pub enum MachineStatus {
            $( $(#[$meta])* $variant, )+
            /// A number that this client does not know. Nothing may be concluded from it.
            Unknown(i64),
        }

        impl MachineStatus {
            /// All states that this client knows.
            pub const ALL: [Self; 23] = [$(Self::$variant),+];

            /// The state of a number.
            pub fn from_code(code: i64) -> Self {
                match code { $( $code => Self::$variant, )+ other => Self::Unknown(other) }
            }

            /// The number of the state.
            pub fn code(self) -> i64 {
                match self { $( Self::$variant => $code, )+ Self::Unknown(code) => code }
            }

            /// The state of a name as MAAS shows it (`status_name`, events).
            pub fn from_name(name: &str) -> Option<Self> {
                match name { $( $name => Some(Self::$variant), )+ _ => None }
            }

            /// The name as MAAS shows it.
            pub fn name(self) -> &'static str {
                match self { $( Self::$variant => $name, )+ Self::Unknown(_) => "Unknown" }
            }

            /// The word that the filter of the machine list takes; None for what this client does not know.
            pub(crate) fn filter(self) -> Option<&'static str> {
                match self { $( Self::$variant => Some($filter), )+ Self::Unknown(_) => None }
            }
        }
    };
}

statuses! {
    /// Known, and nothing more.
    New = 0, "New", "new";
    /// Its hardware is being looked at.
    Commissioning = 1, "Commissioning", "commissioning";
    /// Its hardware could not be looked at.
    FailedCommissioning = 2, "Failed commissioning", "failed_commissioning";
    /// Gone, says somebody.
    Missing = 3, "Missing", "missing";
    /// Free for anybody to allocate.
    Ready = 4, "Ready", "ready";
    /// Kept for somebody.
    Reserved = 5, "Reserved", "reserved";
    /// Its user data was fetched. Not that it ran.
    Deployed = 6, "Deployed", "deployed";
    /// Out of service.
    Retired = 7, "Retired", "retired";
    /// Marked as broken. No quarantine: anybody may release it if nobody owns it.
    Broken = 8, "Broken", "broken";
    /// An operating system is being installed.
    Deploying = 9, "Deploying", "deploying";
    /// Somebody's.
    Allocated = 10, "Allocated", "allocated";
    /// The installation failed or took too long.
    FailedDeployment = 11, "Failed deployment", "failed_deployment";
    /// Being powered off.
    Releasing = 12, "Releasing", "releasing";
    /// Could not be powered off. (The odd one out among the names.)
    ReleasingFailed = 13, "Releasing failed", "releasing_failed";
    /// Disks are being erased.
    DiskErasing = 14, "Disk erasing", "disk_erasing";
    /// Disks could not be erased.
    FailedDiskErasing = 15, "Failed disk erasing", "failed_disk_erasing";
    /// Booted for repair.
    RescueMode = 16, "Rescue mode", "rescue_mode";
    /// Booting for repair.
    EnteringRescueMode = 17, "Entering rescue mode", "entering_rescue_mode";
    /// Could not be booted for repair.
    FailedEnteringRescueMode = 18, "Failed to enter rescue mode", "failed_entering_rescue_mode";
    /// Leaving repair.
    ExitingRescueMode = 19, "Exiting rescue mode", "exiting_rescue_mode";
    /// Could not leave repair.
    FailedExitingRescueMode = 20, "Failed to exit rescue mode", "failed_exiting_rescue_mode";
    /// Its hardware is being tested.
    Testing = 21, "Testing", "testing";
    /// Its hardware failed the tests.
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

/// Whether a machine is on.
#[derive(Debug, Clone, PartialEq, Eq, Hash)]
pub enum PowerState {
    /// On.
    On,
    /// Off.
    Off,
    /// The power driver could not tell. Not off.
    Unknown,
    /// The power driver failed. Not off.
    Error,
    /// A word that this client does not know. Not off.
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
