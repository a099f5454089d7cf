//! Properties that hold for every observation.

use proptest::prelude::*;

use super::super::*;
use super::arbitrary::any_observed;
use super::fixture::*;
use crate::Lookup;
use crate::maas;
use crate::plan::Finalizer;

fn ours(observed: &Observed, id: &str) -> bool {
    let journal = Journal::read(observed.object.metadata.annotations.as_ref()).ok().flatten().unwrap_or_else(journal);
    let marked = |metal: &maas::Machine| metal.id == id && observed.is_ours(&journal, metal);
    let stamped = |surplus: &Surplus| matches!(&surplus.seen, Lookup::Found(metal) if marked(metal));
    matches!(&observed.in_journal, Lookup::Found(metal) if marked(metal))
        || observed.surplus.iter().any(stamped)
        || matches!(&observed.by_key, Lookup::Found(found) if found.iter().any(marked))
}

/// Nothing shows that the write in flight has landed.
fn listed_none(observed: &Observed) -> bool {
    let none = |lookup: &Lookup<Vec<maas::Machine>>| !matches!(lookup, Lookup::Found(found) if !found.is_empty());
    none(&observed.by_key) && none(&observed.vm.by_name) && !matches!(observed.in_journal, Lookup::Found(_))
}

proptest! {
    #![proptest_config(ProptestConfig::with_cases(768))]

    #[test]
    fn the_decision_is_total_and_depends_on_nothing_else(observed in any_observed()) {
        prop_assert_eq!(decide(&observed, now()), decide(&observed, now()));
    }

    #[test]
    fn deletion_never_deploys_and_never_asks_for_a_new_machine(observed in any_observed()) {
        let plan = decide(&observed.deleting(), now());
        let begins = matches!(
            plan.effect,
            Some(
                Effect::Deploy { .. }
                    | Effect::Allocate { .. }
                    | Effect::PowerOn { .. }
                    | Effect::Compose { .. }
                    | Effect::Take { .. }
            )
        );
        prop_assert!(!begins, "{:?}", plan.effect);
    }

    #[test]
    fn s07_what_is_done_to_a_machine_is_done_to_one_that_carries_our_mark(observed in any_observed()) {
        let plan = decide(&observed, now());
        if let Some(effect) = &plan.effect
            && let Some(id) = effect.machine()
            && !matches!(
                effect,
                Effect::Stamp { .. } | Effect::Reclaim { .. } | Effect::Take { .. } | Effect::DeleteVm { .. }
            )
        {
            prop_assert!(ours(&observed, id), "{:?}", effect);
        }
    }

    #[test]
    fn s10_a_vm_is_removed_only_while_nobody_else_has_it_and_its_host_answers(observed in any_observed()) {
        let plan = decide(&observed, now());
        if let Some(Effect::DeleteVm { machine }) = &plan.effect {
            let Lookup::Found(metal) = &observed.in_journal else { panic!("it was not looked at") };
            prop_assert_eq!(&metal.id, machine);
            prop_assert!(metal.is_vm() && !metal.locked, "s27");
            let marked = metal.stamp.as_deref() == Some(KEY);
            let free = metal.owner.as_deref().is_none_or(|owner| owner == "admin" || owner == "new");
            prop_assert!(marked || free && metal.state.is_removable());
            let journal = Journal::read(observed.object.metadata.annotations.as_ref()).unwrap().unwrap();
            prop_assert!(marked || journal.vm.is_some_and(|vm| metal.is_made_for(&vm, KEY)), "s27");
            prop_assert!(matches!(observed.power, Some(Power::On | Power::Off)));
            // Stamped for us and in our journal, it is ours whatever others claim (S6).
            prop_assert!(marked || !observed.held_elsewhere.machines.contains(machine));
        }
    }

    #[test]
    fn s12_a_host_is_refreshed_only_where_every_other_vm_is_known(observed in any_observed()) {
        if let Some(Effect::RefreshHost { .. }) = decide(&observed, now()).effect {
            let known = matches!(&observed.vm.host, Lookup::Found(host) if host.others_known == Lookup::Found(true));
            prop_assert!(known);
        }
    }

    #[test]
    fn s14_the_finalizer_goes_only_when_nothing_of_ours_is_known_to_be_left(observed in any_observed()) {
        let plan = decide(&observed, now());
        if plan.finalizer == Finalizer::Remove {
            prop_assert!(observed.object.metadata.deletion_timestamp.is_some());
            prop_assert_eq!(plan.effect, None, "a debt is written down before the finalizer goes");
            let journal = Journal::read(observed.object.metadata.annotations.as_ref()).unwrap();
            let given_up = journal.as_ref().is_some_and(|journal| ownership::is_given_up(&observed, journal));
            if let Some(journal) = journal.filter(|_| !given_up) {
                // Queried before the release was sent, the key is not queried again.
                let asked = matches!(observed.by_key, Lookup::Found(_) | Lookup::Absent);
                prop_assert!(asked || is_sent_back(&journal, &observed.in_journal));
                let under_way = journal.in_flight.filter(|sent| sent.may_still_land(now())).map(|sent| sent.write);
                prop_assert!(under_way != Some(Write::Allocate));
                // A machine in the journal is the VM that was created: it was found by its name.
                let composing = under_way == Some(Write::Compose) && journal.allocation.is_none();
                prop_assert!(!composing || !listed_none(&observed));
                if journal.allocation.is_some() {
                    prop_assert!(!matches!(observed.in_journal, Lookup::Unknown(_)));
                }
                for surplus in observed.surplus.iter().filter(|surplus| journal.surplus.contains(&surplus.id)) {
                    prop_assert!(!matches!(surplus.seen, Lookup::Unknown(_)), "s04");
                    let on = matches!(&surplus.seen, Lookup::Found(metal) if metal.state == State::Ready);
                    prop_assert!(!on || surplus.power == Some(Power::Off) || observed.held_elsewhere.machines.contains(&surplus.id));
                }
                if journal.vm.is_some() && matches!(observed.in_journal, Lookup::Absent) {
                    prop_assert!(!matches!(observed.vm.by_name, Lookup::Unknown(_)));
                }
            } else {
                prop_assert!(given_up || observed.object.spec.provider_id().is_none());
            }
        }
    }

    #[test]
    fn s09_a_provisioned_machine_that_nobody_deletes_is_neither_released_nor_replaced(observed in any_observed()) {
        let mut observed = observed.provisioned();
        observed.object.metadata.deletion_timestamp = None;
        let plan = decide(&observed, now());
        // A surplus machine is another machine, and was never in use (S4).
        let about_surplus = plan.effect.as_ref().and_then(Effect::machine) == Some("other");
        let destroys = !about_surplus && matches!(plan.effect, Some(Effect::Release { .. } | Effect::Allocate { .. } | Effect::Reclaim { .. } | Effect::Deploy { .. } | Effect::DeleteVm { .. } | Effect::Compose { .. } | Effect::Take { .. }));
        prop_assert!(!destroys, "{:?}", plan.effect);
    }

    #[test]
    fn s02_nothing_is_sent_twice_while_the_first_may_still_land(observed in any_observed()) {
        let journal = Journal::read(observed.object.metadata.annotations.as_ref()).unwrap();
        let plan = decide(&observed, now());
        let unseen = matches!(&observed.by_key, Lookup::Found(found) if found.is_empty());
        if let Some(sent) = journal.and_then(|journal| journal.in_flight)
            && sent.may_still_land(now()) && sent.write == Write::Allocate && unseen
        {
            prop_assert!(!matches!(plan.effect, Some(Effect::Allocate { .. })), "{:?}", plan.effect);
        }
    }

    #[test]
    fn s25_whatever_is_seen_a_copy_touches_nothing(observed in any_observed(), by_key in any::<bool>()) {
        let mut journal = Journal::read(observed.object.metadata.annotations.as_ref()).unwrap().unwrap_or_else(journal);
        let mut observed = observed;
        if by_key {
            journal.key = "capmaas-uid-of-another".into();
            observed.held_elsewhere.original = Some("n/original".into());
        } else {
            journal.written_for.as_mut().unwrap().name = "original".into();
        }
        let plan = decide(&observed.with_journal(&journal), now());
        prop_assert_eq!((plan.effect, plan.patch), (None, Patch::default()));
        prop_assert!(plan.finalizer != Finalizer::Add);
    }

    #[test]
    fn s15_paused_means_nothing(observed in any_observed()) {
        let plan = decide(&observed.with_annotation("cluster.x-k8s.io/paused", ""), now());
        prop_assert_eq!((plan.effect, plan.patch.journal, plan.finalizer), (None, None, Finalizer::Keep));
    }

    #[test]
    fn every_write_that_must_not_be_repeated_is_remembered_before_it_is_sent(observed in any_observed()) {
        let plan = decide(&observed, now());
        let expected = match &plan.effect {
            Some(Effect::Allocate { .. } | Effect::Reclaim { .. } | Effect::Take { .. }) => Some(Write::Allocate),
            Some(Effect::Compose { .. }) => Some(Write::Compose),
            Some(Effect::Deploy { .. }) => Some(Write::Deploy),
            Some(Effect::Release { .. }) => Some(Write::Release),
            _ => None,
        };
        if expected.is_some() {
            let stored = plan.patch.journal.and_then(|journal| journal.in_flight);
            prop_assert_eq!(stored.map(|sent| (sent.write, sent.at)), expected.map(|write| (write, now())));
        }
    }

    #[test]
    fn saying_it_twice_changes_nothing(observed in any_observed()) {
        let plan = decide(&observed, now());
        if plan.effect.is_none() && plan.patch.journal.is_none() && plan.patch.spec == SpecPatch::default() {
            let mut again = observed;
            again.object.status = plan.status.clone().or(again.object.status);
            let second = decide(&again, now());
            prop_assert_eq!(second.status, plan.status);
        }
    }
}
