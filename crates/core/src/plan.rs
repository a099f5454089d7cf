//! What every decision answers with, whatever kind of object it is about.
//!
//! A pass observes, decides, performs and concludes. [`Plan`] is what it decides, [`Outcome`] what became of the one effect of it.

use std::collections::BTreeMap;
use std::time::Duration;

use jiff::SignedDuration;
use serde_json::{Map, Value};

/// How long a write that was sent may still take effect: the client's deadline, and some time for what MAAS does after that (S2).
pub const IN_FLIGHT: SignedDuration = SignedDuration::from_secs(150);

/// Everything that happens in one pass, in this order: the patch and the finalizer, the effect, the status, the events. `E` is what
/// can be done for this kind of object, `P` what can be written on it, `S` its status.
#[derive(Debug, Clone, PartialEq)]
#[must_use]
pub struct Plan<E, P, S> {
    /// The change of metadata and spec. Written before the effect; if it cannot be written, nothing else happens.
    pub patch: P,
    /// What becomes of the finalizer, in the same write.
    pub finalizer: Finalizer,
    /// The one thing to do outside of the object.
    pub effect: Option<E>,
    /// The whole status; `None` if nothing is to be said.
    pub status: Option<S>,
    /// What to tell.
    pub events: Vec<Event>,
    /// When to look again, whatever happens meanwhile.
    pub requeue: Requeue,
    /// What is going on, for the log.
    pub why: String,
}

impl<E, P: Patch, S> Plan<E, P, S> {
    /// Nothing happens.
    pub fn nothing(requeue: Requeue, why: impl Into<String>) -> Self {
        Self {
            patch: P::default(),
            finalizer: Finalizer::Keep,
            effect: None,
            status: None,
            events: Vec::new(),
            requeue,
            why: why.into(),
        }
    }

    /// Whether the object itself stays as it is, but for its status.
    pub fn leaves_object(&self) -> bool {
        self.finalizer == Finalizer::Keep && self.patch == P::default()
    }

    /// Whether nothing is written anywhere.
    pub fn is_idle(&self) -> bool {
        self.leaves_object() && self.effect.is_none() && self.status.is_none()
    }
}

/// A change of metadata and spec, but for finalizers.
pub trait Patch: Default + PartialEq {
    /// Annotations to write; `None` takes one away.
    fn annotations(&self) -> BTreeMap<&'static str, Option<String>>;

    /// Labels to write.
    fn labels(&self) -> BTreeMap<&'static str, String> {
        BTreeMap::new()
    }

    /// Fields of the spec to write.
    fn spec(&self) -> Map<String, Value>;
}

/// What becomes of the finalizer.
#[derive(Debug, Clone, Copy, Default, PartialEq, Eq)]
pub enum Finalizer {
    /// It stays as it is.
    #[default]
    Keep,
    /// It is added, before anything is made in MAAS.
    Add,
    /// It goes: nothing of ours is left in MAAS.
    Remove,
}

/// Something that happened, for people.
#[derive(Debug, Clone, PartialEq, Eq)]
pub struct Event {
    /// Somebody should look at it.
    pub warning: bool,
    /// One CamelCase word.
    pub reason: &'static str,
    /// A sentence.
    pub message: String,
}

impl Event {
    /// One that is good to know.
    pub fn normal(reason: &'static str, message: impl Into<String>) -> Self {
        Self { warning: false, reason, message: message.into() }
    }

    /// One that somebody should look at.
    pub fn warning(reason: &'static str, message: impl Into<String>) -> Self {
        Self { warning: true, reason, message: message.into() }
    }
}

/// When to look again. The sooner is the smaller.
#[derive(Debug, Clone, Copy, PartialEq, Eq, PartialOrd, Ord)]
pub enum Requeue {
    /// After this time, unless something changes before.
    After(Duration),
    /// When something changes.
    OnChange,
}

impl Requeue {
    /// At once: there is more to do.
    pub const NOW: Self = Self::After(Duration::ZERO);

    /// After so many seconds.
    pub const fn seconds(seconds: u64) -> Self {
        Self::After(Duration::from_secs(seconds))
    }
}

/// How an effect ended, as far as it is known.
#[derive(Debug, Clone, PartialEq, Eq)]
pub enum Outcome<A> {
    /// It was done, with this answer.
    Done(A),
    /// It was refused: nothing has changed. The sentence is that of whoever refused it.
    Refused(Refusal, String),
    /// Nobody knows whether it was done, or will be.
    Unknown(String),
}

impl<A> Outcome<A> {
    /// The same outcome of an effect whose answer is another one.
    pub fn map<B>(self, answer: impl FnOnce(A) -> B) -> Outcome<B> {
        match self {
            Self::Done(answered) => Outcome::Done(answer(answered)),
            Self::Refused(refusal, why) => Outcome::Refused(refusal, why),
            Self::Unknown(why) => Outcome::Unknown(why),
        }
    }
}

/// Why an effect was refused.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub enum Refusal {
    /// No machine fits, or it is taken.
    NoMatch,
    /// The account may not.
    Denied,
    /// The request itself is wrong.
    Invalid,
    /// VMs are on the machine.
    InUse,
    /// The VM host has no room.
    NoRoom,
    /// MAAS cannot work with the VM host.
    HostTrouble,
    /// Something of that name exists already.
    Exists,
    /// MAAS gave up in the middle: LXD may have the VM.
    HalfWay,
    /// Something else; it may pass.
    Passing,
}
