//! Which addresses are published.

use capmaas_api::conditions;

use super::super::decide;
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
