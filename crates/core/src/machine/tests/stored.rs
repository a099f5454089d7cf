//! Journals as earlier releases stored them: each keeps its meaning, so that an upgrade with running machines changes nothing in
//! MAAS (S24).

use serde::Deserialize;
use serde_json::Value;

use super::super::*;
use super::fixture::*;
use crate::Lookup;

#[derive(Deserialize)]
#[serde(deny_unknown_fields)]
struct Stored {
    name: String,
    journal: Value,
    /// The state of the machine in MAAS, or `nothing`.
    sees: String,
    #[serde(default)]
    vm: bool,
    /// Nobody owns the VM.
    #[serde(default)]
    nobodys: bool,
    #[serde(default)]
    provisioned: bool,
    #[serde(default)]
    deleting: bool,
    #[serde(default)]
    power: Option<String>,
    /// The expected effect and reason.
    #[serde(default)]
    effect: String,
    reason: String,
}

impl Stored {
    fn all() -> Vec<Self> {
        serde_json::from_str(include_str!("stored.json")).unwrap()
    }

    fn observed(&self) -> Observed {
        let mut observed = if self.vm { fresh_vm() } else { fresh() };
        observed = observed.with_annotation(JOURNAL_ANNOTATION, &self.journal.to_string());
        let state = State::ALL.into_iter().find(|state| format!("{state:?}") == self.sees);
        if let Some(state) = state {
            observed = observed.seeing(match (self.vm, self.nobodys) {
                (true, true) => unowned_vm(state),
                (true, false) => vm(state),
                (false, _) => metal(state),
            });
        } else {
            assert_eq!(self.sees, "nothing", "{}", self.name);
        }
        observed.power = self.power.as_deref().map(|power| if power == "off" { Power::Off } else { Power::On });
        observed.as_host = if self.journal.get("leaving").is_some() { as_host(true) } else { AsHost::NoHost };
        observed.vm.placement = Lookup::Unknown("nobody looked".into());
        if self.provisioned {
            observed = observed.provisioned();
        }
        if self.deleting {
            observed = observed.deleting();
        }
        observed
    }
}

#[test]
fn s24_a_stored_journal_is_written_again_as_it_was() {
    for stored in Stored::all() {
        let journal = stored.observed().journal.unwrap().expect("a journal");
        assert_eq!(serde_json::from_str::<Value>(&journal.text()).unwrap(), stored.journal, "{}", stored.name);
    }
}

#[test]
fn s24_a_stored_journal_is_carried_on_as_the_release_that_stored_it_would() {
    for stored in Stored::all() {
        let plan = decide(&stored.observed(), now());
        assert_eq!((effect(&plan), reason(&plan)), (stored.effect.as_str(), stored.reason.as_str()), "{}", stored.name);
    }
}

#[test]
fn s01_a_stored_journal_of_which_one_value_is_damaged_is_not_read_as_less() {
    for stored in Stored::all() {
        for (field, value) in stored.journal.as_object().unwrap() {
            if value.is_null() {
                continue;
            }
            let mut damaged = stored.journal.clone();
            // No field of a journal is such a list.
            damaged[field] = serde_json::json!([[]]);
            let observed = fresh().with_annotation(JOURNAL_ANNOTATION, &damaged.to_string());
            assert!(observed.journal.is_err(), "{}: {field}", stored.name);
        }
    }
}

#[test]
fn s24_what_is_owed_is_read_as_it_was_stored() {
    let text = r#"[{"machine":"old123","name":"m-50c45a43","host":"host7","key":"capmaas-uid-1"}]"#;
    let annotations = BTreeMap::from([(DEBTS_ANNOTATION.to_owned(), text.to_owned())]);
    let owed = debts(Some(&annotations)).unwrap();
    assert_eq!((owed[0].machine.as_str(), owed[0].key.as_str()), ("old123", KEY));
    assert_eq!(serde_json::to_string(&owed).unwrap(), text);
}

#[test]
fn s24_that_a_machine_was_asked_to_become_a_host_is_read_as_it_was_stored() {
    let asked = "infrastructure.cluster.x-k8s.io/lxd-host-asked-at";
    let observed = fresh().with_journal(&with_machine()).seeing(metal(State::Deployed)).deleting();
    for (at, done) in [("2026-11-15T11:59:30Z", ""), ("2026-11-15T11:50:00Z", "release")] {
        assert_eq!(effect(&decide(&observed.clone().with_annotation(asked, at), now())), done, "{at}");
    }
}
