//! What the status says while MAAS takes long.

use capmaas_api::{ConditionStatus, Severity, conditions, reasons};

use super::super::observed::Refusal;
use super::super::plan::Effect;
use super::super::{decide, while_doing, while_reading};
use super::*;
use crate::conditions::Verdict;

fn stored(observed: &mut Observed, verdicts: impl IntoIterator<Item = Verdict>) {
    let generation = observed.object.generation;
    let settle = |verdict: Verdict| verdict.settle(&[], generation, now());
    observed.object.status.conditions = verdicts.into_iter().filter_map(settle).collect();
}

fn waiting(type_: &'static str, reason: &'static str) -> Verdict {
    Verdict::fault(type_, Severity::Info, reason, "what was told before")
}

/// MAAS has not been read yet.
fn unread(mut observed: Observed) -> Observed {
    observed.identity = Err(Refusal { reason: reasons::MAAS_UNAVAILABLE, message: "MAAS was not queried".into() });
    observed.record = Lookup::Unknown("MAAS was not queried".into());
    observed
}

fn message<'a>(status: &'a MaasClusterStatus, type_: &str) -> &'a str {
    condition(status, type_).message.as_deref().unwrap_or_default()
}

#[test]
fn an_owner_that_is_there_is_not_waited_for_while_maas_is_read() {
    let mut observed = unread(fresh());
    stored(&mut observed, [waiting(conditions::READY, reasons::WAITING_FOR_OWNER)]);
    let status = while_reading(&observed, later(1)).unwrap();
    assert_eq!(ready_reason(&status), reasons::WAIT_FOR_DNS_NAME);
    assert!(message(&status, conditions::READY).ends_with("MAAS is being read, to choose a name for the API server"));
    observed.object.status = status;
    assert_eq!(while_reading(&observed, later(2)), None, "it is told once");
    observed.object.custom_endpoint = true;
    stored(&mut observed, [waiting(conditions::READY, reasons::WAITING_FOR_OWNER)]);
    let status = while_reading(&observed, later(1)).unwrap();
    assert_eq!(
        (message(&status, conditions::READY), ready_reason(&status)),
        ("MAAS is being read", reasons::NOT_READY)
    );
    observed.owner = Lookup::Absent;
    assert_eq!(while_reading(&observed, later(1)), None);
}

#[test]
fn what_maas_showed_stays_while_it_is_read_again() {
    let mut observed = settled(&["10.0.0.1"], vec![up("m1", &["10.0.0.1"])]);
    observed.api_server = ApiServer::Answers;
    observed.object.status = decide(&observed, now()).status.unwrap();
    assert_eq!(ready_reason(&observed.object.status), reasons::READY);
    assert_eq!(while_reading(&observed, later(1)), None);
    assert_eq!(while_reading(&unread(observed), later(1)), None);
}

#[test]
fn s01_a_read_that_failed_is_reported_where_it_was_only_waited_for() {
    let mut observed = settled(&[], vec![]);
    observed.record = Lookup::Unknown("503".into());
    stored(&mut observed, [waiting(conditions::LOAD_BALANCER_READY, reasons::WAIT_FOR_DNS_NAME)]);
    let status = decide(&observed, later(1)).status.unwrap();
    assert_eq!(message(&status, conditions::LOAD_BALANCER_READY), "503");
    assert_eq!(reason(&status, conditions::LOAD_BALANCER_READY), reasons::MAAS_UNAVAILABLE);
    observed.object.status = status;
    assert_eq!(while_reading(&unread(observed), later(2)), None, "it is not told again before every attempt");
}

#[test]
fn what_an_effect_is_waited_for_is_told_and_what_holds_meanwhile_stays() {
    let mut observed = settled(&[], vec![up("m1", &["10.0.0.1"])]);
    let update = Effect::UpdateDnsRecord { id: 7, addresses: ips(&["10.0.0.1"]) };
    let of = |effect: &Effect, observed: &Observed| while_doing(observed, effect, later(1)).unwrap();
    stored(
        &mut observed,
        [
            Verdict::new(conditions::LOAD_BALANCER_READY, ConditionStatus::True, reasons::LOAD_BALANCER_READY, "old"),
            waiting(conditions::API_SERVER_AVAILABLE, reasons::API_SERVER_NOT_READY),
        ],
    );
    let status = of(&update, &observed);
    assert_eq!(condition(&status, conditions::LOAD_BALANCER_READY).message, None);
    assert_eq!(
        message(&status, conditions::READY),
        format!("APIServerAvailable: it is probed once {NAME} resolves to a control plane machine")
    );
    let failed = Verdict {
        severity: Severity::Warning,
        ..waiting(conditions::LOAD_BALANCER_READY, reasons::LOAD_BALANCER_FAILED)
    };
    stored(&mut observed, [failed]);
    assert_eq!(message(&of(&update, &observed), conditions::LOAD_BALANCER_READY), "what was told before");
    let create = Effect::CreateDnsRecord { name: NAME.into(), addresses: ips(&[]) };
    assert_eq!(reason(&of(&create, &observed), conditions::LOAD_BALANCER_READY), reasons::WAIT_FOR_DNS_NAME);
}

#[test]
fn a_deletion_tells_what_it_waits_for_before_and_after_its_last_machine() {
    let mut observed = unread(settled(&[], vec![]));
    observed.object.deleting = true;
    let reading = "MAAS is being read, to see what has to be deleted there";
    let said = |observed: &Observed| {
        while_reading(observed, later(1)).and_then(|status| condition(&status, conditions::DELETING).message.clone())
    };
    assert_eq!(said(&observed).as_deref(), Some(reading));
    stored(&mut observed, [waiting(conditions::DELETING, reasons::MACHINES_REMAIN)]);
    assert_eq!(said(&observed).as_deref(), Some(reading));
    let status = while_doing(&observed, &Effect::DeleteDnsRecord { id: 7 }, later(1)).unwrap();
    assert_eq!(message(&status, conditions::DELETING), format!("waiting for MAAS to delete the DNS record {NAME}"));
    observed.machines = Lookup::Found(vec![leaving(up("m1", &[]))]);
    let update = Effect::UpdateDnsRecord { id: 7, addresses: ips(&[]) };
    for status in [while_reading(&observed, later(1)), while_doing(&observed, &update, later(1))] {
        let told = status.map(|status| message(&status, conditions::DELETING).to_owned());
        assert!(told.is_none_or(|told| told == "what was told before"));
    }
}
