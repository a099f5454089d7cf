//! What asking for one object can answer.

/// The answer to a look-up. A question that was not answered is not an answer of "no" (safety rule S1).
#[derive(Debug, Clone, PartialEq, Eq)]
pub enum Lookup<T> {
    /// It is there.
    Found(T),
    /// Whoever must know says that it does not exist.
    Absent,
    /// Nobody could tell; the sentence says why.
    Unknown(String),
}

impl<T> Lookup<T> {
    /// What was found, if anything was. Where it matters why nothing was, match instead.
    pub fn found(&self) -> Option<&T> {
        match self {
            Self::Found(found) => Some(found),
            Self::Absent | Self::Unknown(_) => None,
        }
    }

    /// The same look-up of what was found.
    pub fn as_ref(&self) -> Lookup<&T> {
        match self {
            Self::Found(found) => Lookup::Found(found),
            Self::Absent => Lookup::Absent,
            Self::Unknown(why) => Lookup::Unknown(why.clone()),
        }
    }

    /// What follows from what was found.
    pub fn map<U>(self, follows: impl FnOnce(T) -> U) -> Lookup<U> {
        self.and_then(|found| Lookup::Found(follows(found)))
    }

    /// What asking on with what was found answers.
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
