//! Bare metal stays bare metal, a VM stays a VM, and only what is provably ours is removed (S27).

use capmaas_api::ProvisioningMode;
use capmaas_api::names::VM_NAME_ANNOTATION;

use super::super::*;
use super::fixture::*;
use crate::Lookup;
use crate::maas;
use crate::plan::Finalizer;

fn turned(mut observed: Observed, mode: ProvisioningMode) -> Observed {
    observed.object.spec.provisioning_mode = Some(mode);
    observed
}

fn message(plan: &Plan) -> String {
    condition(plan, "MachineDeployed").message.clone().unwrap_or_default()
}

#[test]
fn s27_metal_that_the_spec_calls_a_vm_afterwards_is_given_back_and_never_removed() {
    let failure = Failure { machine: ID.into(), image: "ubuntu/jammy".into(), power: false };
    let failed = Journal { failed: vec![failure], ..released() };
    for state in State::ALL {
        for power in [None, Some(Power::On), Some(Power::Off), Some(Power::Unknown)] {
            for seen in [metal(state), foreign(state, None), foreign(state, Some("admin"))] {
                for deleting in [false, true] {
                    let mut observed = fresh().with_journal(&failed).seeing(seen.clone());
                    observed.power = power;
                    observed.vm.by_name = Lookup::Found(vec![seen.clone()]);
                    let observed = turned(observed, ProvisioningMode::Lxd);
                    let plan = decide(&if deleting { observed.deleting() } else { observed }, now());
                    assert_ne!(effect(&plan), "delete_vm", "{state:?} {power:?}");
                    assert!(plan.patch.journal.is_none_or(|journal| journal.vm.is_none()), "{state:?} {power:?}");
                }
            }
        }
    }
}

#[test]
fn s27_whoever_changes_the_mode_is_told_that_it_changes_nothing() {
    let waiting = turned(fresh().with_journal(&journal()), ProvisioningMode::Lxd);
    let plan = decide(&waiting, now());
    assert_eq!(effect(&plan), "allocate", "it goes on as metal");
    assert!(message(&plan).contains("the spec asks for a VM now, but this machine was created as bare metal"));
    assert_eq!(plan.status.unwrap().provisioning_mode, Some(ProvisioningMode::BareMetal));

    let vm = turned(fresh_vm().with_journal(&vm_record(Some(place()))), ProvisioningMode::BareMetal);
    let plan = decide(&vm, now());
    assert_eq!(effect(&plan), "compose", "it goes on as a VM");
    assert!(message(&plan).contains("the spec asks for bare metal now, but this machine was created as a VM"));
    let leaving = turned(fresh_vm().with_journal(&vm_on_record()).seeing(vm_ready()), ProvisioningMode::BareMetal);
    let mut leaving = leaving.deleting();
    leaving.power = Some(Power::Off);
    assert_eq!(effect(&decide(&leaving, now())), "delete_vm", "it leaves as a VM too");
}

fn vm_ready() -> maas::Machine {
    unowned_vm(State::Ready)
}

#[test]
fn s27_a_vm_is_ours_by_a_name_that_we_made_up_on_the_host_where_we_were_making_it() {
    let vm = vm_record(Some(place())).vm.unwrap();
    assert!(vm_ready().is_made_for(&vm, KEY));
    assert!(!vm_ready().is_made_for(&vm, "capmaas-another-uid"), "the name belongs to another key");
    assert!(!maas::Machine { vm_host: Some(99), ..vm_ready() }.is_made_for(&vm, KEY), "on another host");
    assert!(!maas::Machine { vm_host: None, ..vm_ready() }.is_made_for(&vm, KEY), "no VM");
    let placeless = VmJournal { stage: VmStage::Unplaced, ..vm.clone() };
    assert!(!vm_ready().is_made_for(&placeless, KEY), "nobody was making one");
    let database = VmJournal { name: "database".into(), ..vm.clone() };
    assert!(!maas::Machine { hostname: "database".into(), ..vm_ready() }.is_made_for(&database, KEY), "anybody's name");
    let next = vm_on_record().without_vm().vm.unwrap();
    let second = VmJournal { stage: VmStage::Placed(place()), ..next.clone() };
    assert!(maas::Machine { hostname: next.name, ..vm_ready() }.is_made_for(&second, KEY), "the second try");
}

fn database(owner: Option<&str>, state: State) -> maas::Machine {
    maas::Machine { hostname: "database".into(), stamp: None, owner: owner.map(str::to_owned), ..vm(state) }
}

/// An object with the Go provider's annotation that it was creating this VM.
fn noted(journal: Option<&Journal>, found: maas::Machine) -> Observed {
    let mut observed = fresh_vm().with_annotation(VM_NAME_ANNOTATION, "database");
    observed.vm.by_name = Lookup::Found(vec![found]);
    match journal {
        Some(journal) => observed.with_journal(journal),
        None => observed,
    }
}

#[test]
fn s27_a_vm_that_nobody_has_is_neither_removed_nor_taken_for_an_annotation() {
    let found = || database(None, State::Ready);
    let journal = decide(&noted(None, found()).deleting(), now()).patch.journal.unwrap();
    assert_eq!(journal.vm.as_ref().unwrap().name, "database");
    let plan = decide(&noted(Some(&journal), found()).deleting(), now());
    assert_eq!((effect(&plan), plan.finalizer), ("", Finalizer::Remove));
    let told = &plan.events.iter().find(|event| event.warning).unwrap().message;
    assert!(told.contains("delete it in MAAS if it was"), "{told}");
    // Nor if the journal claims that it is the one: people can write that as well.
    let forged = Journal { allocation: released().allocation, ..journal.clone() };
    let mut observed = noted(Some(&forged), found()).seeing(found()).deleting();
    observed.power = Some(Power::Off);
    assert_eq!(effect(&decide(&observed, now())), "");
    let plan = decide(&noted(Some(&journal), found()), now());
    assert_eq!((effect(&plan), plan.patch.journal.unwrap().allocation), ("", None));
    assert!(plan.events.iter().any(|event| event.warning), "{:?}", plan.events);
}

#[test]
fn s24_a_vm_that_the_go_provider_took_is_taken_over_by_its_mark_and_removed_under_it() {
    let journal = decide(&noted(None, database(Some("admin"), State::Allocated)), now()).patch.journal.unwrap();
    let plan = decide(&noted(Some(&journal), database(Some("admin"), State::Allocated)), now());
    let adopted = plan.patch.journal.unwrap();
    assert!(adopted.is_adopted() && adopted.has_machine(ID));
    let seen = |metal: maas::Machine| noted(Some(&adopted), metal.clone()).seeing(metal);
    assert_eq!(effect(&decide(&seen(database(Some("admin"), State::Allocated)), now())), "stamp");
    let theirs = decide(&seen(database(Some("bob"), State::Allocated)), now());
    assert_eq!((effect(&theirs), theirs.patch.journal.unwrap().allocation), ("", None));
    // A release would remove the stamp, and nothing else proves that it is ours.
    let marked = maas::Machine { stamp: Some(KEY.into()), ..database(Some("admin"), State::Deployed) };
    let mut leaving = seen(marked.clone()).under_key(vec![marked]).deleting();
    leaving.power = Some(Power::On);
    assert_eq!(effect(&decide(&leaving, now())), "delete_vm");
    leaving.power = Some(Power::Unknown);
    assert_eq!(effect(&decide(&leaving, now())), "", "its host does not answer");
}

#[test]
fn s27_a_vm_that_somebody_renamed_or_moved_is_removed_under_its_mark() {
    for marked in [
        maas::Machine { hostname: "renamed".into(), ..vm(State::Deployed) },
        maas::Machine { vm_host: Some(99), ..vm(State::Deployed) },
    ] {
        let mut observed = fresh_vm()
            .with_journal(&vm_on_record())
            .seeing(marked.clone())
            .under_key(vec![marked])
            .provisioned()
            .deleting();
        observed.power = Some(Power::On);
        assert_eq!(effect(&decide(&observed, now())), "delete_vm");
    }
    let mut as_made = fresh_vm().with_journal(&vm_on_record()).seeing(vm(State::Deployed)).provisioned().deleting();
    as_made.power = Some(Power::On);
    assert_eq!(effect(&decide(&as_made, now())), "release");
}
