//! Which MAAS credentials apply, and whether they are still the recorded identity's (safety rule S5).
//!
//! No secret is passed here: a place only shows what it has.

use std::fmt;

use crate::Lookup;

/// Annotation on a MaasCluster (and on a MaasMachine) with the [`Name`] of the MAAS identity that its machines were created with.
/// An annotation, because status does not survive `clusterctl move`.
pub const IDENTITY_ANNOTATION: &str = "infrastructure.cluster.x-k8s.io/maas-identity";

/// One place where credentials may be stored.
#[derive(Debug, Clone, PartialEq, Eq)]
pub struct Place {
    /// How messages refer to the place.
    pub name: String,
    /// Where the MAAS endpoint would be, and whether it is there.
    pub endpoint: Part,
    /// Where the API key would be, and whether it is there.
    pub key: Part,
}

/// One half of a pair of credentials.
#[derive(Debug, Clone, PartialEq, Eq)]
pub struct Part {
    /// Where it is looked for, for messages.
    pub place: String,
    pub found: Lookup<()>,
}

/// Which of several places applies.
#[derive(Debug, Clone, PartialEq, Eq)]
pub enum Choice {
    /// The place with this index.
    Use(usize),
    /// No place has anything. The message states what is awaited.
    Nothing(String),
    /// The first place that has something is not complete. The message states what is missing.
    Incomplete(String),
    /// A place that may come first could not be read. The message states why.
    Unknown(String),
}

/// The first place that has anything decides, alone.
///
/// Halves of two places are never combined (`go17`: two sources in one reconcile may be two MAAS servers), and a place that is
/// incomplete or cannot be read is not skipped: while somebody writes a Secret and a ConfigMap one after the other, the manager
/// would work with another identity for a moment.
pub fn choose(places: &[Place]) -> Choice {
    for (index, place) in places.iter().enumerate() {
        match (&place.endpoint.found, &place.key.found) {
            (Lookup::Found(()), Lookup::Found(())) => return Choice::Use(index),
            (Lookup::Unknown(why), _) | (_, Lookup::Unknown(why)) => {
                return Choice::Unknown(format!("cannot determine which MAAS credentials apply: {why}"));
            }
            (Lookup::Found(()), Lookup::Absent) => {
                return Choice::Incomplete(half(place, &place.endpoint, &place.key));
            }
            (Lookup::Absent, Lookup::Found(())) => {
                return Choice::Incomplete(half(place, &place.key, &place.endpoint));
            }
            (Lookup::Absent, Lookup::Absent) => {}
        }
    }
    let names: Vec<&str> = places.iter().map(|place| place.name.as_str()).collect();
    Choice::Nothing(format!("waiting for MAAS credentials: there are none in {}", names.join(", nor in ")))
}

fn half(place: &Place, there: &Part, missing: &Part) -> String {
    format!(
        "the MAAS credentials in {} are not complete: {} is set, {} is not; add it, or remove the other",
        place.name, there.place, missing.place
    )
}

/// The name of an identity: which MAAS, and as which user. Holds no secret; a new API key of the same user is the same identity.
#[derive(Debug, Clone, PartialEq, Eq, Hash)]
pub struct Name {
    /// The URL of MAAS, in its one normal form.
    pub endpoint: String,
    /// The user that the API key belongs to.
    pub user: String,
}

impl fmt::Display for Name {
    /// An endpoint has no fragment and a MAAS user no `#`, so this parses in one way only.
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        write!(f, "{}#{}", self.endpoint, self.user)
    }
}

impl Name {
    /// The endpoint and the user in the text of a name; `None` if it does not parse.
    pub fn parts(text: &str) -> Option<(&str, &str)> {
        text.rsplit_once('#')
    }
}

/// How the current identity compares with the recorded one.
#[derive(Debug, Clone, PartialEq, Eq)]
#[must_use]
pub enum Standing {
    /// None is recorded: nothing was created yet, or the object is from another provider. Record the name before the first
    /// effect.
    First,
    Same,
    /// Another one: nothing may be allocated, and no absence believed, until a machine of ours was seen through it. Then the
    /// recorded identity is replaced.
    Changed {
        /// The recorded identity.
        recorded: String,
    },
}

impl Standing {
    /// Compares with the value of [`IDENTITY_ANNOTATION`].
    pub fn of(name: &Name, recorded: Option<&str>) -> Self {
        match recorded {
            None | Some("") => Self::First,
            Some(recorded) if recorded == name.to_string() => Self::Same,
            Some(recorded) => Self::Changed { recorded: recorded.to_owned() },
        }
    }

    /// Whether MAAS's report that a machine does not exist may be believed.
    pub fn may_believe_absence(&self) -> bool {
        !matches!(self, Self::Changed { .. })
    }

    /// The message for people, if something is wrong.
    pub fn problem(&self, name: &Name) -> Option<String> {
        match self {
            Self::First | Self::Same => None,
            Self::Changed { recorded } => Some(format!(
                "the machines were created as {recorded}; the credentials are now those of {name}: nothing is \
                 allocated and nothing is considered gone until one of the machines has been seen"
            )),
        }
    }
}

#[cfg(test)]
mod tests {
    use super::*;
    use proptest::prelude::*;

    fn part(place: &str, found: Lookup<()>) -> Part {
        Part { place: place.to_owned(), found }
    }

    fn place(name: &str, endpoint: Lookup<()>, key: Lookup<()>) -> Place {
        Place {
            name: name.to_owned(),
            endpoint: part(&format!("the endpoint of {name}"), endpoint),
            key: part(&format!("the key of {name}"), key),
        }
    }

    const THERE: Lookup<()> = Lookup::Found(());

    #[test]
    fn the_first_complete_place_counts() {
        let first = place("a", Lookup::Absent, Lookup::Absent);
        assert_eq!(choose(&[first.clone(), place("b", THERE, THERE), place("c", THERE, THERE)]), Choice::Use(1));
        let Choice::Nothing(sentence) = choose(&[first, place("b", Lookup::Absent, Lookup::Absent)]) else { panic!() };
        assert_eq!(sentence, "waiting for MAAS credentials: there are none in a, nor in b");
    }

    #[test]
    fn go17_halves_of_two_places_are_never_put_together() {
        let half = place("a", Lookup::Absent, THERE);
        let Choice::Incomplete(sentence) = choose(&[half, place("b", THERE, THERE)]) else { panic!() };
        assert!(sentence.contains("the key of a is set, the endpoint of a is not"), "{sentence}");
    }

    #[test]
    fn s01_a_place_that_cannot_be_read_is_not_passed_over() {
        let hidden = place("a", Lookup::Unknown("forbidden".into()), Lookup::Absent);
        assert!(
            matches!(choose(&[hidden, place("b", THERE, THERE)]), Choice::Unknown(why) if why.contains("forbidden"))
        );
    }

    #[test]
    fn s05_another_user_or_endpoint_is_a_change_and_another_key_is_none() {
        let name = |endpoint: &str, user: &str| Name { endpoint: endpoint.into(), user: user.into() };
        let now = name("http://maas.example:5240/MAAS", "alice");
        let recorded = now.to_string();
        assert_eq!(Standing::of(&now, None), Standing::First);
        assert_eq!(Standing::of(&now, Some(&recorded)), Standing::Same);
        for other in [name("http://maas.example:5240/MAAS", "bob"), name("https://maas.example/MAAS", "alice")] {
            let standing = Standing::of(&other, Some(&recorded));
            assert!(!standing.may_believe_absence());
            assert!(standing.problem(&other).unwrap().contains(&recorded));
        }
    }

    fn any_lookup() -> impl Strategy<Value = Lookup<()>> {
        prop_oneof![Just(THERE), Just(Lookup::Absent), Just(Lookup::Unknown("away".to_owned()))]
    }

    proptest! {
        #[test]
        fn what_is_chosen_is_complete_and_everything_before_it_is_known_to_be_empty(
            halves in proptest::collection::vec((any_lookup(), any_lookup()), 0..5)
        ) {
            let places: Vec<Place> = halves.into_iter().map(|(endpoint, key)| place("p", endpoint, key)).collect();
            let empty = |place: &Place| place.endpoint.found == Lookup::Absent && place.key.found == Lookup::Absent;
            match choose(&places) {
                Choice::Use(index) => {
                    prop_assert!(places[index].endpoint.found == THERE && places[index].key.found == THERE);
                    prop_assert!(places[..index].iter().all(empty));
                }
                Choice::Nothing(_) => prop_assert!(places.iter().all(empty)),
                Choice::Incomplete(_) | Choice::Unknown(_) => prop_assert!(!places.iter().all(empty)),
            }
        }
    }
}
