//! The 23 statuses of a machine and the transitions between them.

use serde::Serialize;

macro_rules! statuses {
    ($($variant:ident = $id:literal, $name:literal, $filter:literal;)*) => {
        /// The status of a machine. The numbers are MAAS's and the same from 3.0 to 3.8.
        #[derive(Clone, Copy, Debug, PartialEq, Eq, PartialOrd, Ord, Hash, Serialize)]
        pub enum Status { $(#[doc = $name] $variant = $id,)* }

        impl Status {
            /// All statuses, by number.
            pub const ALL: &'static [Status] = &[$(Status::$variant,)*];

            /// `status_name` in the JSON.
            pub fn name(self) -> &'static str {
                match self { $(Status::$variant => $name,)* }
            }

            /// The value of the list filter `status=`.
            pub fn filter_word(self) -> &'static str {
                match self { $(Status::$variant => $filter,)* }
            }
        }
    };
}

statuses! {
    New = 0, "New", "new";
    Commissioning = 1, "Commissioning", "commissioning";
    FailedCommissioning = 2, "Failed commissioning", "failed_commissioning";
    Missing = 3, "Missing", "missing";
    Ready = 4, "Ready", "ready";
    Reserved = 5, "Reserved", "reserved";
    Deployed = 6, "Deployed", "deployed";
    Retired = 7, "Retired", "retired";
    Broken = 8, "Broken", "broken";
    Deploying = 9, "Deploying", "deploying";
    Allocated = 10, "Allocated", "allocated";
    FailedDeployment = 11, "Failed deployment", "failed_deployment";
    Releasing = 12, "Releasing", "releasing";
    ReleasingFailed = 13, "Releasing failed", "failed_releasing";
    DiskErasing = 14, "Disk erasing", "disk_erasing";
    FailedDiskErasing = 15, "Failed disk erasing", "failed_disk_erasing";
    RescueMode = 16, "Rescue mode", "rescue_mode";
    EnteringRescueMode = 17, "Entering rescue mode", "entering_rescue_mode";
    FailedEnteringRescueMode = 18, "Failed to enter rescue mode", "failed_entering_rescue_mode";
    ExitingRescueMode = 19, "Exiting rescue mode", "exiting_rescue_mode";
    FailedExitingRescueMode = 20, "Failed to exit rescue mode", "failed_exiting_rescue_mode";
    Testing = 21, "Testing", "testing";
    FailedTesting = 22, "Failed testing", "failed_testing";
}

impl Status {
    /// The number in the JSON.
    pub fn id(self) -> u8 {
        self as u8
    }

    /// By the name in the JSON or in the filter, or by number.
    pub fn parse(text: &str) -> Option<Status> {
        let wanted = text.trim();
        Self::ALL.iter().copied().find(|status| {
            status.name().eq_ignore_ascii_case(wanted)
                || status.filter_word().eq_ignore_ascii_case(wanted)
                || wanted.parse() == Ok(status.id())
        })
    }

    /// Whether MAAS's state machine allows this transition.
    // One row per status, as in MAAS's own table, even where two rows are the same.
    #[allow(clippy::match_same_arms)]
    pub fn may_become(self, next: Status) -> bool {
        use Status as S;
        let allowed: &[Status] = match self {
            S::New => &[
                S::Commissioning,
                S::Testing,
                S::Ready,
                S::Broken,
                S::EnteringRescueMode,
                S::Missing,
                S::Retired,
                S::Deployed,
            ],
            S::Commissioning => {
                &[S::FailedCommissioning, S::Ready, S::New, S::Testing, S::Broken, S::Missing, S::Retired]
            }
            S::FailedCommissioning => {
                &[S::Commissioning, S::Testing, S::Broken, S::EnteringRescueMode, S::Missing, S::Retired, S::New]
            }
            S::Ready => &[
                S::Commissioning,
                S::Allocated,
                S::Reserved,
                S::Testing,
                S::Broken,
                S::EnteringRescueMode,
                S::Missing,
                S::Retired,
                S::Deployed,
            ],
            S::Allocated => &[
                S::Deploying,
                S::Ready,
                S::Releasing,
                S::DiskErasing,
                S::Broken,
                S::Testing,
                S::EnteringRescueMode,
                S::Missing,
                S::Retired,
                S::Deployed,
            ],
            S::Deploying => &[
                S::Deployed,
                S::FailedDeployment,
                S::Allocated,
                S::Ready,
                S::Releasing,
                S::DiskErasing,
                S::Broken,
                S::Missing,
            ],
            S::Deployed => &[
                S::Releasing,
                S::DiskErasing,
                S::Ready,
                S::Allocated,
                S::Broken,
                S::Testing,
                S::EnteringRescueMode,
                S::Missing,
            ],
            S::FailedDeployment => &[
                S::Releasing,
                S::DiskErasing,
                S::Ready,
                S::Allocated,
                S::Broken,
                S::Testing,
                S::EnteringRescueMode,
                S::Missing,
            ],
            S::Releasing => &[
                S::Ready,
                S::New,
                S::ReleasingFailed,
                S::Allocated,
                S::Deployed,
                S::FailedDeployment,
                S::FailedDiskErasing,
                S::Broken,
                S::Missing,
            ],
            S::ReleasingFailed => &[S::Releasing, S::DiskErasing, S::Ready, S::Broken, S::Testing],
            S::DiskErasing => &[S::Ready, S::Releasing, S::FailedDiskErasing, S::Broken],
            S::FailedDiskErasing => {
                &[S::DiskErasing, S::Releasing, S::Ready, S::Allocated, S::Broken, S::Testing, S::EnteringRescueMode]
            }
            S::Broken => &[
                S::Commissioning,
                S::Ready,
                S::Releasing,
                S::DiskErasing,
                S::Deployed,
                S::Testing,
                S::EnteringRescueMode,
                S::New,
            ],
            S::Testing => return !matches!(next, S::Deploying | S::Releasing | S::DiskErasing | S::Testing),
            S::FailedTesting => &[
                S::Commissioning,
                S::Testing,
                S::Ready,
                S::Broken,
                S::EnteringRescueMode,
                S::Missing,
                S::Retired,
                S::Deployed,
            ],
            S::EnteringRescueMode => &[S::RescueMode, S::FailedEnteringRescueMode],
            S::RescueMode => &[S::ExitingRescueMode, S::EnteringRescueMode],
            S::FailedEnteringRescueMode | S::FailedExitingRescueMode => &[S::EnteringRescueMode, S::ExitingRescueMode],
            // Back to the previous status of the machine.
            S::ExitingRescueMode => return next == S::FailedExitingRescueMode || !next.is_rescue(),
            S::Reserved => &[S::Allocated, S::Ready, S::Releasing, S::Broken, S::Missing, S::Retired],
            S::Missing => &[S::New, S::Ready, S::Commissioning, S::Broken],
            S::Retired => &[S::Ready, S::New, S::Missing, S::Broken],
        };
        allowed.contains(&next)
    }

    fn is_rescue(self) -> bool {
        matches!(
            self,
            Status::RescueMode
                | Status::EnteringRescueMode
                | Status::FailedEnteringRescueMode
                | Status::ExitingRescueMode
                | Status::FailedExitingRescueMode
        )
    }

    /// Whether a machine with this status counts as owned.
    pub fn is_allocated(self) -> bool {
        use Status as S;
        matches!(
            self,
            S::Allocated
                | S::Deploying
                | S::Deployed
                | S::FailedDeployment
                | S::Releasing
                | S::ReleasingFailed
                | S::DiskErasing
                | S::FailedDiskErasing
                | S::RescueMode
                | S::EnteringRescueMode
                | S::FailedEnteringRescueMode
                | S::ExitingRescueMode
                | S::FailedExitingRescueMode
                | S::Testing
                | S::FailedTesting
        )
    }

    /// Whether `op=release` has an effect in this status.
    pub fn is_releasable(self) -> bool {
        use Status as S;
        matches!(
            self,
            S::Allocated
                | S::Reserved
                | S::Broken
                | S::Deploying
                | S::Deployed
                | S::FailedDeployment
                | S::FailedDiskErasing
                | S::ReleasingFailed
        )
    }

    /// The status that follows when the work of this one fails.
    pub fn failed(self) -> Option<Status> {
        use Status as S;
        Some(match self {
            S::Commissioning => S::FailedCommissioning,
            S::Deploying => S::FailedDeployment,
            S::Releasing => S::ReleasingFailed,
            S::DiskErasing => S::FailedDiskErasing,
            S::EnteringRescueMode => S::FailedEnteringRescueMode,
            S::ExitingRescueMode => S::FailedExitingRescueMode,
            S::Testing => S::FailedTesting,
            _ => return None,
        })
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn there_are_23_states_with_their_numbers_in_order() {
        assert_eq!(Status::ALL.len(), 23);
        for (number, status) in Status::ALL.iter().enumerate() {
            assert_eq!(usize::from(status.id()), number);
            assert_eq!(Status::parse(status.name()), Some(*status));
            assert_eq!(Status::parse(status.filter_word()), Some(*status));
        }
    }

    #[test]
    fn a_failed_deployment_is_not_deployed_again_without_a_release() {
        assert!(!Status::FailedDeployment.may_become(Status::Deploying));
        assert!(Status::FailedDeployment.may_become(Status::Releasing));
    }

    #[test]
    fn every_failure_is_a_legal_way() {
        for status in Status::ALL {
            if let Some(failed) = status.failed() {
                assert!(status.may_become(failed), "{status:?} to {failed:?}");
            }
        }
    }
}
