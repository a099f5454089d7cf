//! Machines that return, VMs that are half created, networks without DHCP, sizes that no machine has.

use super::super::*;
use super::fixture::*;
use crate::Lookup;
use crate::maas;
use crate::plan::{Finalizer, Refusal};

fn message(plan: &Plan) -> String {
    condition(plan, "MachineDeployed").message.clone().unwrap_or_default()
}

#[test]
fn s17_a_machine_that_failed_and_is_handed_out_again_counts_and_is_given_back() {
    let failure = Failure { machine: ID.into(), image: "ubuntu/jammy".into(), power: false };
    let mut journal = Journal { failed: vec![failure], ..journal() };
    for attempt in 2..=3 {
        let asked = decide(&fresh().with_journal(&journal), now());
        assert_eq!(effect(&asked), "allocate");
        let again = maas::Machine { stamp: None, ..metal(State::Allocated) };
        let found = decide(&fresh().with_journal(&asked.patch.journal.unwrap()).under_key(vec![again.clone()]), now());
        let taken = found.patch.journal.unwrap();
        assert_eq!((taken.failed.len(), taken.machine().unwrap().as_str()), (attempt, ID));
        let observed = fresh().with_journal(&taken).seeing(again.clone()).under_key(vec![again]);
        assert_eq!(effect(&decide(&observed, now())), "stamp", "only the mark is left of us if the release fails");
        let marked = metal(State::Allocated);
        let plan = decide(&observed.seeing(marked.clone()).under_key(vec![marked]), now());
        assert_eq!(effect(&plan), "release", "it is not deployed once more");
        let released = Journal { in_flight: None, ..plan.patch.journal.unwrap() };
        let mut ready = fresh().with_journal(&released).seeing(foreign(State::Ready, None));
        ready.power = Some(Power::Off);
        journal = decide(&ready, now()).patch.journal.unwrap();
    }
    let plan = decide(&fresh().with_journal(&journal), now());
    assert_eq!((effect(&plan), reason(&plan)), ("", "AttemptsExhausted"), "the image is not blamed");
    let words = message(&plan);
    assert!(words.contains("abc123, which MAAS allocated 3 times") && words.contains("delete the Machine"), "{words}");
}

#[test]
fn s17_of_two_machines_that_maas_handed_out_the_one_that_has_not_failed_is_used() {
    let failure = Failure { machine: ID.into(), image: "ubuntu/jammy".into(), power: false };
    let journal = Journal { failed: vec![failure], ..journal() };
    let good = maas::Machine { id: "zzz999".into(), stamp: None, ..metal(State::Allocated) };
    let bad = maas::Machine { stamp: None, ..metal(State::Allocated) };
    let journal = decide(&fresh().with_journal(&journal).under_key(vec![bad, good]), now()).patch.journal.unwrap();
    assert_eq!((journal.machine().unwrap().as_str(), journal.failed.len()), ("zzz999", 1));
}

#[test]
fn s04_a_surplus_machine_that_an_earlier_user_took_holds_nothing_up_and_is_released_if_we_may() {
    let surplus =
        maas::Machine { id: "zzz999".into(), stamp: None, owner: Some("alice".into()), ..metal(State::Allocated) };
    let journal = Journal { surplus: vec!["zzz999".into()], earlier_users: vec!["alice".into()], ..with_machine() };
    let seeing = |metal: maas::Machine| {
        let mut observed = fresh().with_journal(&journal).seeing(metal.clone()).under_key(vec![metal, surplus.clone()]);
        observed.surplus = vec![Surplus { id: "zzz999".into(), seen: Lookup::Found(surplus.clone()), power: None }];
        observed
    };
    // MAAS lets only the owner stamp a machine, and refuses us forever.
    assert_eq!(effect(&decide(&seeing(metal(State::Allocated)), now())), "deploy");
    let begun = journal.clone().noting(|it| it.deploy_began = Some(now()));
    let plan = decide(&seeing(metal(State::Deploying)).with_journal(&begun), now());
    assert_eq!(plan.effect.as_ref().and_then(Effect::machine), Some("zzz999"));
    assert_eq!(effect(&plan), "release", "while nothing else is to be done");
    let mut leaving = seeing(metal(State::Deployed)).under_key(vec![surplus.clone()]).deleting();
    leaving.in_journal = Lookup::Absent;
    let plan = decide(&leaving, now());
    assert_eq!((effect(&plan), plan.finalizer), ("release", Finalizer::Keep));
    let words = message(&plan);
    assert!(words.contains("by alice") && words.contains("if we may not do that, release it in MAAS"), "{words}");
}

#[test]
fn s12_a_vm_that_maas_gave_up_half_way_is_asked_for_once_more_by_its_name_before_it_is_left() {
    let observed = fresh_vm().with_journal(&vm_record(Some(place())));
    let half_way = |observed: &Observed| {
        let plan = decide(observed, now());
        assert_eq!(effect(&plan), "compose");
        let compose = plan.effect.clone().unwrap();
        conclude(observed, &plan, &compose, &Outcome::Refused(Refusal::HalfWay, "it broke".into()), now())
    };
    let first = half_way(&observed);
    let journal = first.journal.unwrap();
    let vm = journal.vm.clone().unwrap();
    assert!(matches!(vm.stage, VmStage::Unanswered(_)) && journal.in_flight.is_none());
    assert_eq!(vm.name, vm_record(None).vm.unwrap().name, "the name under which LXD may have it");
    // If it is deleted now, an event reports where to look.
    let plan = decide(&observed.clone().with_journal(&journal).deleting(), now());
    assert!(plan.events.iter().any(|event| event.message.contains("check whether LXD on host7 has a VM")));
    // The second time: another host, and an event as well.
    let second = half_way(&observed.with_journal(&journal));
    let journal = second.journal.unwrap();
    assert_eq!((journal.place(), journal.vm.as_ref().unwrap().avoids(now()).count()), (None, 1));
    assert!(second.events.iter().any(|event| event.message.contains("if its LXD has")), "{:?}", second.events);
}

#[test]
fn s17_a_machine_that_boots_where_there_is_no_dhcp_is_told_so_and_no_image_is_blamed() {
    let dark = |state| maas::Machine { without_dhcp: Some("VLAN untagged of fabric-0".into()), ..metal(state) };
    let begun = with_machine().noting(|it| it.deploy_began = Some(now()));
    let deploying = fresh().with_journal(&begun).seeing(dark(State::Deploying));
    assert!(!message(&decide(&deploying, later(590))).contains("DHCP"), "nothing is wrong yet");
    let words = message(&decide(&deploying, later(600)));
    assert!(
        words.contains("abc123 boots from VLAN untagged of fabric-0") && words.contains("turn it on there"),
        "{words}"
    );
    let plan = decide(&fresh().with_journal(&begun).seeing(dark(State::FailedDeployment)), later(1800));
    assert!(message(&plan).contains("where MAAS neither serves nor relays DHCP"), "{}", message(&plan));
    assert!(plan.patch.journal.unwrap().failed[0].power, "no image fails where nothing boots");
    // Another server may provide addresses.
    assert_eq!(effect(&decide(&fresh().with_journal(&with_machine()).seeing(dark(State::Allocated)), now())), "deploy");
}

#[test]
fn a_machine_in_a_zone_with_a_blank_in_its_name_is_of_use() {
    let metal = maas::Machine { zone: "rack 1".into(), ..metal(State::Deployed) };
    let plan = decide(&fresh().with_journal(&with_machine()).seeing(metal), now());
    assert_eq!(plan.patch.spec.provider_id.as_deref(), Some("maas://rack%201/abc123"));
    assert_eq!(plan.status.unwrap().failure_domain.as_deref(), Some("rack 1"));
}

#[test]
fn a_size_that_no_machine_has_is_refused_in_words_until_a_machine_is_on_record() {
    for mode in [capmaas_api::ProvisioningMode::BareMetal, capmaas_api::ProvisioningMode::Lxd] {
        let mut observed = fresh();
        observed.object.spec.provisioning_mode = Some(mode.clone());
        observed.object.spec.min_memory = 8 << 30;
        let plan = decide(&observed, now());
        assert_eq!((effect(&plan), reason(&plan)), ("", "UnreadableSpec"), "{mode:?}");
        assert_eq!(
            message(&plan),
            "spec.minMemory is 8589934592, which no machine has; it is a number of MB, so 8 GiB are 8192"
        );
        observed.object.spec.min_memory = 4096;
        observed.object.spec.min_cpu = 1 << 32;
        assert!(message(&decide(&observed, now())).starts_with("spec.minCPU is 4294967296"), "{mode:?}");
    }
    let mut stored = fresh().with_journal(&with_machine()).seeing(metal(State::Deployed)).provisioned();
    stored.object.spec.min_memory = 8 << 30;
    assert_eq!(reason(&decide(&stored, now())), "MachineDeployed", "s24");
}
