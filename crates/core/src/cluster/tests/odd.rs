//! Domains that no DNS can have, addresses of two families, times from a fast clock.

use capmaas_api::conditions;
use capmaas_api::names::DNS_ASKED_ANNOTATION;

use super::super::addresses::published;
use super::super::{decide, endpoint};
use super::*;
use crate::backoff::Trouble;
use crate::plan::Finalizer;

#[test]
fn a_domain_that_no_dns_can_have_is_told_in_words_and_maas_is_not_asked_about_it() {
    for domain in ["münchen.example", "My Domain", "a..b", ""] {
        let mut observed = settled(&[], vec![]);
        (observed.object.journal.name, observed.object.journal.record, observed.object.journal.asked) =
            (None, None, None);
        observed.object.spec.control_plane_endpoint = None;
        observed.object.spec.dns_domain = domain.into();
        observed.candidate = Lookup::Unknown("nobody asked".into());
        let plan = decide(&observed, now());
        let status = plan.status.unwrap();
        let condition = condition(&status, conditions::LOAD_BALANCER_READY);
        assert_eq!(condition.reason.as_deref(), Some("LoadBalancerFailed"), "{domain}");
        let message = condition.message.clone().unwrap();
        assert!(
            message.contains(&format!("{domain:?} is not a DNS domain")) && message.contains("such as maas"),
            "{message}"
        );
    }
    for domain in ["maas", "k8s.example.com", "maas.", "with_underscore.lan", "UPPER.lan"] {
        assert_eq!(endpoint::not_a_domain(domain), None, "{domain}");
    }
}

#[test]
fn of_two_families_the_first_ipv4_address_is_published_and_what_is_published_stays() {
    let both = ["fd00::7", "10.0.0.7", "10.0.0.8"];
    let given = |record: &[&str]| published(&settled(record, vec![up("m", &both)])).wanted.given(&ips(record));
    assert_eq!(given(&[]), ips(&["10.0.0.7"]));
    assert_eq!(given(&["10.0.0.8"]), ips(&["10.0.0.8"]), "another order of MAAS changes nothing");
    assert_eq!(given(&["fd00::7"]), ips(&["fd00::7"]));
    let only = published(&settled(&[], vec![up("m", &["fd00::9"])])).wanted.given(&ips(&[]));
    assert_eq!(only, ips(&["fd00::9"]));
}

#[test]
fn s02_a_record_that_a_clock_ahead_asked_for_is_waited_for_no_longer_than_any_other() {
    let mut observed = settled(&[], Vec::new());
    observed.object.deleting = true;
    observed.record = Lookup::Absent;
    observed.object.journal.record = None;
    observed.object.journal.asked = Some(later(60 * 60 * 24 * 365));
    let plan = decide(&observed, now());
    assert_eq!(plan.finalizer, Finalizer::Keep);
    assert_eq!(plan.patch.annotations.get(DNS_ASKED_ANNOTATION), Some(&Some(now().to_string())));
    observed.object.journal.asked = Some(now());
    assert_eq!(decide(&observed, later(100)).finalizer, Finalizer::Keep);
    assert_eq!(decide(&observed, later(3600)).finalizer, Finalizer::Remove);
}

#[test]
fn a_try_that_a_clock_ahead_put_off_is_not_put_off_until_then() {
    let mut observed = settled(&["10.0.0.9"], vec![up("m", &["10.0.0.7"])]);
    let effect = decide(&observed, now()).effect.unwrap();
    let put_off = |seconds| vec![(effect.clone(), Trouble { message: "denied".into(), retry_at: later(seconds) })];
    observed.troubles = put_off(300);
    assert!(decide(&observed, now()).effect.is_none());
    observed.troubles = put_off(60 * 60 * 24);
    assert!(decide(&observed, now()).effect.is_some());
}
