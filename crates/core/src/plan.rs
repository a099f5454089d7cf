//! The result types of every decision, whatever kind of object it is about.
//!
//! A pass observes, decides, performs and concludes. [`Plan`] is the decision, [`Outcome`] the result of its one effect.

use std::collections::BTreeMap;
use std::time::Duration;

use jiff::SignedDuration;
use serde_json::{Map, Value};

/// How long a write that was sent may still take effect: the client's deadline, plus some time for what MAAS does after that
/// (S2).
pub const IN_FLIGHT: SignedDuration = SignedDuration::from_secs(150);

/// Everything that happens in one pass, in this order: the patch and the finalizer, the effect, the status, the events. `E` is
/// the type of effects for this kind of object, `P` its patch, `S` its status.
#[derive(Debug, Clone, PartialEq)]
#[must_use]
pub struct Plan<E, P, S> {
    /// The change to metadata and spec. Written before the effect; if the write fails, nothing else happens.
    pub patch: P,
    /// Written together with the patch.
    pub finalizer: Finalizer,
    /// The one action outside of the object.
    pub effect: Option<E>,
    /// The whole status; `None` leaves it as it is.
    pub status: Option<S>,
    pub events: Vec<Event>,
    /// When to run the next pass, whatever happens meanwhile.
    pub requeue: Requeue,
    /// The reason for this plan, for the log.
    pub why: String,
}

impl<E, P: Patch, S> Plan<E, P, S> {
    /// A plan that changes nothing.
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

    /// Whether nothing but the status of the object changes.
    pub fn leaves_object(&self) -> bool {
        self.finalizer == Finalizer::Keep && self.patch == P::default()
    }

    /// Whether nothing is written anywhere.
    pub fn is_idle(&self) -> bool {
        self.leaves_object() && self.effect.is_none() && self.status.is_none()
    }
}

/// A change to metadata and spec, except finalizers.
pub trait Patch: Default + PartialEq {
    /// Annotations to write; `None` removes one.
    fn annotations(&self) -> BTreeMap<&'static str, Option<String>>;

    fn labels(&self) -> BTreeMap<&'static str, String> {
        BTreeMap::new()
    }

    fn spec(&self) -> Map<String, Value>;
}

#[derive(Debug, Clone, Copy, Default, PartialEq, Eq)]
pub enum Finalizer {
    #[default]
    Keep,
    /// Added before anything is created in MAAS.
    Add,
    /// Removed because nothing of ours is left in MAAS.
    Remove,
}

/// A Kubernetes event.
#[derive(Debug, Clone, PartialEq, Eq)]
pub struct Event {
    /// The type is `Warning`: a person should look at it.
    pub warning: bool,
    pub reason: &'static str,
    pub message: String,
}

impl Event {
    pub fn normal(reason: &'static str, message: impl Into<String>) -> Self {
        Self { warning: false, reason, message: message.into() }
    }

    pub fn warning(reason: &'static str, message: impl Into<String>) -> Self {
        Self { warning: true, reason, message: message.into() }
    }
}

/// When to run the next pass. Ordered: sooner is smaller.
#[derive(Debug, Clone, Copy, PartialEq, Eq, PartialOrd, Ord)]
pub enum Requeue {
    /// After this time, or earlier if something changes.
    After(Duration),
    OnChange,
}

impl Requeue {
    /// At once: there is more to do.
    pub const NOW: Self = Self::After(Duration::ZERO);

    pub const fn seconds(seconds: u64) -> Self {
        Self::After(Duration::from_secs(seconds))
    }
}

/// The result of an effect, as far as it is known.
#[derive(Debug, Clone, PartialEq, Eq)]
pub enum Outcome<A> {
    /// It succeeded, with this answer.
    Done(A),
    /// It was refused: nothing has changed. The message is from the server that refused it.
    Refused(Refusal, String),
    /// Whether it took effect, or still will, is not known.
    Unknown(String),
}

impl<A> Outcome<A> {
    pub fn map<B>(self, answer: impl FnOnce(A) -> B) -> Outcome<B> {
        match self {
            Self::Done(answered) => Outcome::Done(answer(answered)),
            Self::Refused(refusal, why) => Outcome::Refused(refusal, why),
            Self::Unknown(why) => Outcome::Unknown(why),
        }
    }
}

#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub enum Refusal {
    /// No machine fits, or the machine is taken.
    NoMatch,
    /// The account lacks the permission.
    Denied,
    Invalid,
    /// The machine hosts VMs.
    InUse,
    /// The VM host has not enough free resources.
    NoRoom,
    /// MAAS cannot work with the VM host.
    HostTrouble,
    /// An object of that name exists already.
    Exists,
    /// MAAS gave up in the middle: LXD may have the VM.
    HalfWay,
    /// Anything else; it may be transient.
    Passing,
}
