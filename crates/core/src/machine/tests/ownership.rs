//! Whose journal an object carries, and whose machine MAAS shows (S7, S25).

use super::super::*;
use super::fixture::*;
use crate::maas;
use crate::origin::WrittenFor;
use crate::plan::Finalizer;

fn written_for(name: &str, uid: &str) -> WrittenFor {
    WrittenFor { namespace: "n".into(), name: name.into(), uid: uid.into() }
}

/// The journal of another object, with a machine.
fn copied() -> Journal {
    Journal { written_for: Some(written_for("original", "uid-0")), key: "capmaas-uid-0".into(), ..with_machine() }
}

/// The journal of an object of the same name, before a move or a restore.
fn renewed() -> Journal {
    Journal { written_for: Some(written_for("m", "uid-0")), key: "capmaas-uid-0".into(), ..with_machine() }
}

/// The Machine that owns the object has another one as its infrastructure.
fn named_by_no_machine(mut observed: Observed) -> Observed {
    if let Lookup::Found(machine) = &mut observed.machine {
        machine.spec.value.infrastructure_ref.as_mut().unwrap().name = "another".into();
    }
    observed
}

fn stamped(state: State, key: &str) -> maas::Machine {
    maas::Machine { stamp: Some(key.into()), ..metal(state) }
}

#[test]
fn s25_a_copy_says_whose_it_is_and_gets_no_finalizer() {
    let mut observed = fresh().with_journal(&copied()).seeing(stamped(State::Deployed, "capmaas-uid-0")).provisioned();
    observed.object.metadata.finalizers = None;
    let plan = decide(&observed, now());
    assert_eq!((reason(&plan), effect(&plan), plan.finalizer), ("CopiedJournal", "", Finalizer::Keep));
    let words = condition(&plan, "MachineDeployed").message.clone().unwrap();
    assert!(words.contains("n/original (UID uid-0)") && words.contains("Delete it"), "{words}");
    assert_eq!((plan.patch.journal, plan.patch.identity), (None, None));
    assert!(!may_be_served(&observed), "MAAS need not be asked");
}

#[test]
fn s25_a_copy_goes_at_once_and_releases_nothing() {
    let observed = fresh().with_journal(&copied()).seeing(stamped(State::Deployed, "capmaas-uid-0")).deleting();
    let plan = decide(&observed, now());
    assert_eq!((effect(&plan), plan.finalizer), ("", Finalizer::Remove));
    assert!(plan.events[0].message.contains("nothing was released"), "{:?}", plan.events);
}

#[test]
fn s25_without_a_word_in_the_journal_the_uid_in_the_key_tells() {
    let journal = Journal { written_for: None, ..with_machine() };
    let observed = fresh().with_journal(&journal).seeing(metal(State::Deployed)).provisioned();
    let plan = decide(&observed, now());
    assert_eq!(reason(&plan), "MachineDeployed");
    assert_eq!(plan.patch.journal.unwrap().written_for, Some(written_for("m", "uid-1")), "from now on it says so");
    assert_eq!(plan.effect, None);
    // The same journal on another object, while the original exists.
    let mut copy = fresh().with_journal(&Journal { key: "capmaas-uid-0".into(), ..journal });
    copy.held_elsewhere.original = Some("n/original".into());
    assert_eq!(reason(&decide(&copy, now())), "CopiedJournal");
}

#[test]
fn s25_a_moved_object_goes_on_once_its_machine_proves_it() {
    for journal in [renewed(), Journal { written_for: None, ..renewed() }] {
        let observed = fresh().with_journal(&journal).seeing(stamped(State::Deployed, "capmaas-uid-0")).provisioned();
        let plan = decide(&named_by_no_machine(observed.clone()), now());
        assert_eq!((reason(&plan), effect(&plan)), ("UnprovenJournal", ""));
        assert_eq!(plan.patch.journal, None);
        let plan = decide(&observed, now());
        assert_eq!((reason(&plan), effect(&plan)), ("MachineDeployed", ""));
        let rewritten = plan.patch.journal.unwrap();
        assert_eq!(rewritten.written_for, Some(written_for("m", "uid-1")));
        assert_eq!(rewritten.key, "capmaas-uid-0", "the key is never computed again (S3)");
    }
}

#[test]
fn s25_a_moved_object_is_released_with_proof_and_kept_without() {
    let mut observed = fresh().with_journal(&renewed()).seeing(stamped(State::Deployed, "capmaas-uid-0")).deleting();
    assert_eq!(effect(&decide(&observed, now())), "release");
    observed.machine = Lookup::Absent;
    let plan = decide(&observed, now());
    assert_eq!((reason(&plan), effect(&plan), plan.finalizer), ("UnprovenJournal", "", Finalizer::Keep));
    let words = condition(&plan, "MachineDeployed").message.clone().unwrap();
    assert!(words.contains(&format!("{ABANDON_ANNOTATION}: {ID}")), "{words}");
    let plan = decide(&observed.clone().with_annotation(ABANDON_ANNOTATION, ID), now());
    assert_eq!((effect(&plan), plan.finalizer), ("", Finalizer::Remove));
    observed.machine = Lookup::Unknown("away".into());
    assert_eq!(decide(&observed, now()).finalizer, Finalizer::Keep);
}

#[test]
fn s25_a_forged_journal_gets_nothing_that_maas_says_is_anothers() {
    // It claims to be its own, with the key and the machine of another one that was moved, so that no UID matches.
    let forged = Journal { key: "capmaas-uid-0".into(), ..with_machine() };
    let theirs = maas::Machine { stamped_for: Some("n/victim".into()), ..stamped(State::Deployed, "capmaas-uid-0") };
    let mut observed = fresh().with_journal(&forged).seeing(theirs.clone()).under_key(vec![theirs.clone()]);
    observed.held_elsewhere.contested = true;
    observed.held_elsewhere.machines.insert(ID.into());
    assert_eq!(effect(&decide(&observed.clone().provisioned(), now())), "");
    let plan = decide(&observed.clone().deleting(), now());
    assert_eq!((effect(&plan), plan.finalizer), ("", Finalizer::Remove), "it goes, and nothing is released");
    // Not stamped yet: nobody can tell which of the two it belongs to.
    let allocated = maas::Machine { stamp: None, stamped_for: None, ..metal(State::Allocated) };
    let observed = observed.seeing(allocated.clone()).under_key(vec![allocated]);
    assert_eq!(effect(&decide(&observed.clone(), now())), "");
    let plan = decide(&observed.clone().deleting(), now());
    assert_eq!((effect(&plan), plan.finalizer), ("", Finalizer::Keep));
    // Nor is another one requested, because it may be the answer to our own request.
    let observed = observed.with_journal(&Journal { allocation: None, ..forged });
    assert_eq!(effect(&decide(&observed, now())), "");
    assert_eq!(decide(&observed.deleting(), now()).finalizer, Finalizer::Keep);
}

#[test]
fn s06_a_machine_that_is_not_adopted_because_another_object_names_it_tells_which() {
    let adopted = Journal { allocation: Some(Allocation { adopted: true, ..Allocation::of(ID) }), ..journal() };
    let bare = maas::Machine { stamp: None, stamped_for: None, ..metal(State::Deployed) };
    let mut observed = fresh().with_journal(&adopted).seeing(bare).under_key(Vec::new()).provisioned();
    assert_eq!(effect(&decide(&observed, now())), "stamp");
    observed.held_elsewhere.machines.insert(ID.into());
    observed.held_elsewhere.holders.insert(ID.into(), "tenant/forged".into());
    let plan = decide(&observed, now());
    assert_eq!((effect(&plan), reason(&plan)), ("", "NotOurMachine"));
    assert!(format!("{:?}", plan.status).contains("the MaasMachine tenant/forged names it too"), "{plan:?}");
}

#[test]
fn s25_what_others_claim_changes_nothing_about_a_machine_that_is_stamped_for_us() {
    let mut observed = fresh().with_journal(&with_machine()).seeing(metal(State::Deployed)).provisioned();
    observed.held_elsewhere.machines.insert(ID.into());
    observed.held_elsewhere.contested = true;
    assert_eq!(reason(&decide(&observed, now())), "MachineDeployed");
    assert_eq!(effect(&decide(&observed.deleting(), now())), "release");
}

#[test]
fn s07_a_machine_of_another_user_under_our_key_is_not_ours() {
    let bobs = foreign(State::Allocated, Some("bob"));
    let observed = fresh().with_journal(&journal()).under_key(vec![bobs.clone()]);
    let plan = decide(&observed, now());
    assert_eq!(effect(&plan), "allocate", "another one is asked for");
    assert!(plan.events.iter().any(|event| event.warning && event.message.contains("to bob")), "{:?}", plan.events);
    // It is not the answer to an allocation of ours (S2).
    let sent = journal().sending(Write::Allocate, later(-20));
    let observed = observed.with_journal(&sent);
    assert_eq!(effect(&decide(&observed, now())), "");
    // Nor is it released with the object.
    let plan = decide(&fresh().with_journal(&journal()).under_key(vec![bobs]).deleting(), now());
    assert_eq!((effect(&plan), plan.finalizer), ("", Finalizer::Remove));
}

#[test]
fn s07_a_machine_of_another_user_gets_no_bootstrap_data_though_it_is_stamped() {
    let bobs = maas::Machine { owner: Some("bob".into()), ..metal(State::Allocated) };
    let plan = decide(&fresh().with_journal(&with_machine()).seeing(bobs), now());
    assert_eq!((reason(&plan), effect(&plan)), ("NotOurMachine", ""));
}

#[test]
fn s05_what_an_earlier_user_of_the_object_allocated_stays_ours() {
    let earlier = foreign(State::Allocated, Some("earlier"));
    let observed = fresh().with_journal(&journal()).under_key(vec![earlier.clone()]);
    let observed = observed.with_annotation("infrastructure.cluster.x-k8s.io/maas-identity", "http://maas#earlier");
    let plan = decide(&observed, now());
    let journal = plan.patch.journal.unwrap();
    assert_eq!(journal.machine().unwrap(), ID);
    assert_eq!(
        (plan.patch.identity.as_deref(), journal.earlier_users.as_slice()),
        (Some("http://maas#admin"), &["earlier".to_owned()][..])
    );
    // The annotation names the new user from now on; the journal still has the earlier one.
    let observed = fresh().with_journal(&journal).seeing(earlier.clone()).under_key(vec![earlier]);
    assert_eq!(effect(&decide(&observed, now())), "deploy");
}

#[test]
fn s05_a_machine_made_in_another_maas_is_not_gone_because_this_one_does_not_know_it() {
    let identity = "infrastructure.cluster.x-k8s.io/maas-identity";
    let lost = journal().sending(Write::Allocate, later(-4000));
    for journal in [with_machine(), lost] {
        let mut observed = fresh().with_journal(&journal).with_annotation(identity, "http://elsewhere#admin");
        observed.in_journal = Lookup::Absent;
        let plan = decide(&observed, now());
        assert_eq!((effect(&plan), plan.patch.identity.as_deref()), ("", None), "{journal:?}");
        assert_eq!(decide(&observed.deleting(), now()).finalizer, Finalizer::Keep);
    }
    // Seen here with our stamp: the same MAAS at another address.
    let observed = fresh().with_journal(&with_machine()).seeing(metal(State::Deployed)).provisioned();
    let plan = decide(&observed.with_annotation(identity, "http://elsewhere#admin"), now());
    assert_eq!((reason(&plan), plan.patch.identity.as_deref()), ("MachineDeployed", Some("http://maas#admin")));
}
