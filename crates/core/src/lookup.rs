//! The result of reading one object.

/// The result of a lookup. A failed read does not mean that the object is absent (safety rule S1).
#[derive(Debug, Clone, PartialEq, Eq)]
pub enum Lookup<T> {
    Found(T),
    /// The authoritative source reports that it does not exist.
    Absent,
    /// Nobody could tell; the message states why.
    Unknown(String),
}

impl<T> Lookup<T> {
    /// The value, if there is one. Where it matters why there is none, match instead.
    pub fn found(&self) -> Option<&T> {
        match self {
            Self::Found(found) => Some(found),
            Self::Absent | Self::Unknown(_) => None,
        }
    }

    pub fn as_ref(&self) -> Lookup<&T> {
        match self {
            Self::Found(found) => Lookup::Found(found),
            Self::Absent => Lookup::Absent,
            Self::Unknown(why) => Lookup::Unknown(why.clone()),
        }
    }

    pub fn map<U>(self, follows: impl FnOnce(T) -> U) -> Lookup<U> {
        self.and_then(|found| Lookup::Found(follows(found)))
    }

    pub fn and_then<U>(self, ask: impl FnOnce(T) -> Lookup<U>) -> Lookup<U> {
        match self {
            Self::Found(found) => ask(found),
            Self::Absent => Lookup::Absent,
            Self::Unknown(why) => Lookup::Unknown(why),
        }
    }
}

impl<T, E: std::fmt::Display> From<Result<Option<T>, E>> for Lookup<T> {
    fn from(answer: Result<Option<T>, E>) -> Self {
        match answer {
            Ok(Some(found)) => Self::Found(found),
            Ok(None) => Self::Absent,
            Err(error) => Self::Unknown(error.to_string()),
        }
    }
}
