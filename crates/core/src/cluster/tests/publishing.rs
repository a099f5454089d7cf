//! Which addresses are published.

use capmaas_api::conditions;

use super::super::decide;
use super::super::plan::Effect;
use super::*;

#[test]
fn a_control_plane_without_a_fitting_address_is_named_and_the_record_keeps_what_it_had() {
    let record = ["10.0.0.1", "10.0.0.2"];
    let lost_its_link = settled(&record, vec![up("m1", &["10.0.0.1"]), up("m2", &[])]);
    let mut not_preferred = settled(&record, vec![up("m1", &["10.0.0.1"]), up("m2", &["192.168.0.2"])]);
    not_preferred.preferred = Lookup::Found("10.0.0.0/24".into());
    for observed in [lost_its_link, not_preferred] {
        let plan = decide(&observed, now());
        assert_eq!(plan.effect, None);
        let status = plan.status.unwrap();
        let message = condition(&status, conditions::LOAD_BALANCER_READY).message.clone().unwrap();
        assert!(message.starts_with("not published") && message.ends_with(": m2"), "{message}");
    }
}

#[test]
fn s18_an_entry_without_an_address_stays_only_for_a_machine_of_ours_that_is_up() {
    let bare = || Machine { system_id: Some("bare".into()), stamp: Stamp::Own(BTreeSet::new()), ..up("m2", &[]) };
    let is_written = |machine: Machine, holders: &[&str]| {
        let mut observed = settled(&["10.0.0.1"], vec![up("m1", &["10.0.0.1"]), machine]);
        let dangling = vec![holders.iter().map(|id| (*id).to_owned()).collect()];
        observed.record = Lookup::Found(Record { dangling, ..record(7, &["10.0.0.1"]) });
        let effect = decide(&observed, now()).effect;
        assert!(matches!(effect, None | Some(Effect::UpdateDnsRecord { .. })), "{effect:?}");
        effect.is_some()
    };
    assert!(!is_written(bare(), &["bare"]));
    assert!(!is_written(Machine { stamp: Stamp::Unknown("MAAS is away".into()), ..bare() }, &["bare"]));
    for machine in [
        leaving(bare()),
        Machine { powered: false, ..bare() },
        Machine { state: Some("Ready".into()), ..bare() },
        Machine { control_plane: false, ..bare() },
        Machine { stamp: Stamp::Missing, ..bare() },
        Machine { stamp: Stamp::OwnedBy("alice".into()), ..bare() },
        Machine { stamp: Stamp::Anothers, ..bare() },
    ] {
        assert!(is_written(machine.clone(), &["bare"]), "{machine:?}");
    }
    assert!(is_written(bare(), &["other"]) && is_written(bare(), &[]));
}
