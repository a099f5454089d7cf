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
