//! VMs on hosts that died.

use std::collections::BTreeMap;

use super::super::*;
use super::fixture::*;
use crate::Lookup;

fn debt() -> Debt {
    let vm = vm(State::Deployed);
    Debt { machine: vm.id, name: vm.hostname, host: "host7".into(), key: KEY.into() }
}

fn of(metal: Metal, power: Option<Power>) -> Payment {
    pay(&debt(), &Lookup::Found(metal), power, "admin")
}

#[test]
fn s16_a_debt_is_paid_by_release_and_removal_once_the_host_answers() {
    assert_eq!(of(vm(State::Deployed), Some(Power::On)), Payment::Release);
    assert_eq!(of(vm(State::ReleasingFailed), Some(Power::Off)), Payment::Release);
    assert!(matches!(of(vm(State::Releasing), Some(Power::Off)), Payment::Wait(_)));
    assert_eq!(of(unowned_vm(State::Ready), Some(Power::Off)), Payment::Remove);
    assert!(matches!(pay(&debt(), &Lookup::Absent, None, "admin"), Payment::Paid(_)));
}

#[test]
fn s16_nothing_is_done_while_the_host_does_not_answer_or_maas_was_not_asked() {
    for state in State::ALL {
        for power in [None, Some(Power::Unknown)] {
            let next = of(vm(state), power);
            assert!(matches!(next, Payment::Wait(_)), "{state:?}: {next:?}");
        }
    }
    assert!(matches!(pay(&debt(), &Lookup::Unknown("away".into()), None, "admin"), Payment::Wait(_)));
}

#[test]
fn s10_a_vm_that_somebody_else_has_meanwhile_is_not_touched() {
    for state in State::ALL {
        let theirs = Metal { owner: Some("bob".into()), ..unowned_vm(state) };
        assert!(matches!(of(theirs, Some(Power::On)), Payment::Paid(_)), "{state:?}");
        let another = Metal { stamp: Some("another-key".into()), ..vm(state) };
        assert!(matches!(of(another, Some(Power::On)), Payment::Paid(_)), "{state:?}");
    }
}

#[test]
fn s01_debts_that_cannot_be_read_are_not_none() {
    let annotations = |text: &str| BTreeMap::from([(DEBTS_ANNOTATION.to_owned(), text.to_owned())]);
    assert!(debts(Some(&annotations("{"))).is_err());
    assert_eq!(debts(None), Ok(Vec::new()));
    let text = serde_json::to_string(&[debt()]).unwrap();
    assert_eq!(debts(Some(&annotations(&text))), Ok(vec![debt()]));
}
