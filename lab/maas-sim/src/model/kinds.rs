//! Small enumerations of MAAS's database.

/// Why an address is in use; the numbers are MAAS's.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub enum AllocType {
    Auto = 0,
    Sticky = 1,
    UserReserved = 4,
    Dhcp = 5,
    Discovered = 6,
}

impl AllocType {
    /// `alloc_type_name` in the JSON.
    pub fn name(self) -> &'static str {
        match self {
            AllocType::Auto => "Automatic",
            AllocType::Sticky => "Sticky",
            AllocType::UserReserved => "User reserved",
            AllocType::Dhcp => "DHCP",
            AllocType::Discovered => "Observed",
        }
    }
}

/// The power state that MAAS assumes.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub enum PowerState {
    On,
    Off,
    Unknown,
    Error,
}

impl PowerState {
    /// The name in the JSON.
    pub fn word(self) -> &'static str {
        match self {
            PowerState::On => "on",
            PowerState::Off => "off",
            PowerState::Unknown => "unknown",
            PowerState::Error => "error",
        }
    }

    pub fn parse(word: &str) -> Option<Self> {
        [Self::On, Self::Off, Self::Unknown, Self::Error].into_iter().find(|state| state.word() == word)
    }
}

/// The status of a script set; the numbers are MAAS's.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub enum ScriptStatus {
    Unknown = -1,
    Pending = 0,
    Passed = 2,
    Failed = 3,
}

impl ScriptStatus {
    /// The name in the JSON.
    pub fn name(self) -> &'static str {
        match self {
            ScriptStatus::Unknown => "Unknown",
            ScriptStatus::Pending => "Pending",
            ScriptStatus::Passed => "Passed",
            ScriptStatus::Failed => "Failed",
        }
    }
}

/// Kinds of interfaces.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub enum InterfaceKind {
    Physical,
    Bridge,
    Bond,
    Vlan,
}

impl InterfaceKind {
    /// The name in the JSON.
    pub fn word(self) -> &'static str {
        match self {
            InterfaceKind::Physical => "physical",
            InterfaceKind::Bridge => "bridge",
            InterfaceKind::Bond => "bond",
            InterfaceKind::Vlan => "vlan",
        }
    }

    pub fn parse(word: &str) -> Option<Self> {
        [Self::Physical, Self::Bridge, Self::Bond, Self::Vlan].into_iter().find(|kind| kind.word() == word)
    }
}

/// Event levels, in order of severity.
#[derive(Clone, Copy, Debug, PartialEq, Eq, PartialOrd, Ord)]
pub enum Level {
    Audit = 0,
    Debug = 10,
    Info = 20,
    Warning = 30,
    Error = 40,
    Critical = 50,
}

impl Level {
    /// The name in the JSON.
    pub fn word(self) -> &'static str {
        match self {
            Level::Audit => "AUDIT",
            Level::Debug => "DEBUG",
            Level::Info => "INFO",
            Level::Warning => "WARNING",
            Level::Error => "ERROR",
            Level::Critical => "CRITICAL",
        }
    }

    pub fn parse(word: &str) -> Option<Self> {
        [Self::Audit, Self::Debug, Self::Info, Self::Warning, Self::Error, Self::Critical]
            .into_iter()
            .find(|level| level.word() == word)
    }
}
