//! Faults: rules that make requests fail before or after their effect, and the state of the whole server.

use serde::{Deserialize, Serialize};

use crate::model::rng::decide;

/// When a fault applies.
#[derive(Clone, Copy, Debug, Default, PartialEq, Eq, Serialize, Deserialize)]
#[serde(rename_all = "snake_case")]
pub enum When {
    /// Nothing has happened yet.
    #[default]
    Before,
    /// The effect has happened; only the answer is affected.
    After,
}

/// What a fault does.
#[derive(Clone, Debug, PartialEq, Serialize, Deserialize)]
#[serde(tag = "do", rename_all = "snake_case")]
pub enum Fault {
    /// Answers with this status.
    Status {
        status: u16,
        #[serde(default)]
        body: String,
        /// Content type; plain text if absent.
        #[serde(default)]
        content_type: Option<String>,
        /// `Retry-After`, in seconds.
        #[serde(default)]
        retry_after: Option<u32>,
    },
    /// Closes the connection without an answer.
    Reset,
    /// Delays the answer for a long time, if the client still waits.
    Hang {
        /// How long; an hour if absent.
        #[serde(default)]
        seconds: Option<f64>,
    },
    /// Delays a correct answer.
    Slow {
        /// The additional delay.
        seconds: f64,
    },
    /// Truncates the answer.
    Truncate {
        /// How many bytes; half if absent.
        #[serde(default)]
        bytes: Option<usize>,
    },
    /// The client gets no answer, and the effect happens later by the simulator's clock.
    Late {
        /// The delay of the effect.
        seconds: f64,
    },
    /// The region is killed. With `before`, its changes in LXD persist but its transaction does not; with `after`, the
    /// transaction persists but the work that should follow does not. Then it is down for a while.
    Kill {
        /// How long it is down, by the simulator's clock.
        #[serde(default)]
        down_seconds: f64,
    },
}

/// Which requests a fault applies to. All given fields must match.
#[derive(Clone, Debug, Default, Serialize, Deserialize)]
#[serde(default, deny_unknown_fields)]
pub struct Selector {
    /// "machines.allocate", or only "allocate".
    pub kind: Option<String>,
    /// A substring of the path.
    pub path: Option<String>,
    pub method: Option<String>,
    /// A machine by system id or host name.
    pub machine: Option<String>,
    /// A user by name.
    pub user: Option<String>,
}

#[derive(Clone, Debug, Serialize, Deserialize)]
pub struct FaultRule {
    /// Its id, for removing it again.
    #[serde(default)]
    pub id: u64,
    /// Which requests.
    #[serde(default, rename = "match")]
    pub selector: Selector,
    /// Before or after the effect.
    #[serde(default)]
    pub when: When,
    /// What happens.
    #[serde(flatten)]
    pub fault: Fault,
    /// How many requests it affects; one if absent, all if 0.
    #[serde(default)]
    pub times: Option<u32>,
    /// How many matching requests to skip first.
    #[serde(default)]
    pub skip: u32,
    /// Probability for each matching request, decided by the seed.
    #[serde(default)]
    pub probability: Option<f64>,
    /// Matching requests so far.
    #[serde(default)]
    pub seen: u32,
    /// Affected requests so far.
    #[serde(default)]
    pub struck: u32,
}

/// The properties of a request that a rule checks.
#[derive(Clone, Debug, Default)]
pub struct Subject {
    pub kind: String,
    pub path: String,
    pub method: String,
    /// System id and host name.
    pub machine: Option<(String, String)>,
    pub user: String,
}

impl Selector {
    /// Whether a request matches.
    pub fn fits(&self, subject: &Subject) -> bool {
        let kind = |wanted: &str| {
            subject.kind == wanted || subject.kind.rsplit_once('.').is_some_and(|(_, action)| action == wanted)
        };
        let machine =
            |wanted: &str| subject.machine.as_ref().is_some_and(|(id, hostname)| id == wanted || hostname == wanted);
        self.kind.as_deref().is_none_or(kind)
            && self.path.as_deref().is_none_or(|part| subject.path.contains(part))
            && self.method.as_deref().is_none_or(|method| subject.method.eq_ignore_ascii_case(method))
            && self.machine.as_deref().is_none_or(machine)
            && self.user.as_deref().is_none_or(|user| subject.user == user)
    }
}

#[derive(Debug, Default)]
pub struct Faults {
    rules: Vec<FaultRule>,
    last_id: u64,
}

impl Faults {
    /// Adds a rule. Returns its id.
    pub fn add(&mut self, mut rule: FaultRule) -> u64 {
        self.last_id += 1;
        rule.id = self.last_id;
        self.rules.push(rule);
        self.last_id
    }

    /// Removes a rule, or all.
    pub fn remove(&mut self, id: Option<u64>) {
        self.rules.retain(|rule| id.is_some_and(|id| rule.id != id));
    }

    pub fn rules(&self) -> &[FaultRule] {
        &self.rules
    }

    /// The faults that apply to a request, in the order of the rules. A rule with a probability decides by seed, kind,
    /// machine and attempt only.
    pub fn strike(&mut self, seed: u64, subject: &Subject) -> Vec<(When, Fault)> {
        let mut struck = Vec::new();
        for rule in &mut self.rules {
            if !rule.selector.fits(subject) {
                continue;
            }
            rule.seen += 1;
            let limit = rule.times.unwrap_or(1);
            if rule.seen <= rule.skip || (limit > 0 && rule.struck >= limit) {
                continue;
            }
            if let Some(chance) = rule.probability {
                let machine = subject.machine.as_ref().map_or("", |(id, _)| id.as_str());
                let attempt = rule.seen.to_string();
                let dice = decide(seed, &[&subject.kind, machine, &attempt]);
                #[allow(clippy::cast_precision_loss)]
                if dice as f64 / u64::MAX as f64 >= chance {
                    continue;
                }
            }
            rule.struck += 1;
            struck.push((rule.when, rule.fault.clone()));
        }
        struck
    }
}

/// The state of the whole server.
#[derive(Clone, Copy, Debug, Default, PartialEq, Eq, Serialize, Deserialize)]
#[serde(rename_all = "snake_case")]
pub enum ServerState {
    /// It answers normally.
    #[default]
    Up,
    /// Its web server answers 502.
    Down,
    /// It accepts requests and never answers.
    Silent,
    /// Its database is unavailable: 500 for everything.
    DatabaseDown,
}

#[cfg(test)]
mod tests {
    use super::*;

    fn rule(json: &str) -> FaultRule {
        serde_json::from_str(json).unwrap()
    }

    #[test]
    fn a_rule_strikes_once_unless_it_says_otherwise() {
        let mut faults = Faults::default();
        faults.add(rule(r#"{"match": {"kind": "allocate"}, "when": "after", "do": "reset"}"#));
        let subject = Subject { kind: "machines.allocate".to_owned(), ..Subject::default() };
        assert_eq!(faults.strike(1, &subject), [(When::After, Fault::Reset)]);
        assert!(faults.strike(1, &subject).is_empty());
    }

    #[test]
    fn chances_come_from_the_seed_and_not_from_what_happened_before() {
        let outcome = |seed: u64| -> Vec<bool> {
            let mut faults = Faults::default();
            faults.add(rule(r#"{"do": "status", "status": 503, "probability": 0.5, "times": 0}"#));
            let subject = Subject { kind: "machine.deploy".to_owned(), ..Subject::default() };
            (0..64).map(|_| !faults.strike(seed, &subject).is_empty()).collect()
        };
        assert_eq!(outcome(7), outcome(7));
        assert_ne!(outcome(7), outcome(8));
        let hits = outcome(7).iter().filter(|hit| **hit).count();
        assert!((16..48).contains(&hits), "{hits} of 64");
    }
}
