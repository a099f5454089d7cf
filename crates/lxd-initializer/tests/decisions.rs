//! Decisions from facts: messages and effects.
#![allow(clippy::unwrap_used, clippy::expect_used, clippy::panic)]

mod support;

use std::{collections::BTreeMap, time::Duration};

use capmaas_core::registration::Call;
use jiff::SignedDuration;
use lxd_initializer::{
    decide::decide,
    effect::{Effect, EffectKind},
    names,
    observed::{
        BridgeFacts, Failure, Lookup, LxdFacts, MaasFacts, Maker, NodeFacts, Observed, PoolFacts, Probe, TrustFacts,
        VmHost,
    },
    plan::{State, Step},
};
use support::facts::{NOW, plan, print, right, settings, unregistered, with_host, with_server, write};

#[test]
fn a_node_that_is_right_is_ready_and_only_its_report_is_missing() {
    let first = plan(&right());
    assert_eq!((first.state, write(&first)), (State::Ready, None));
    let Some(Effect::Report(patch)) = first.effect else { panic!("{:?}", first.effect) };
    assert_eq!(patch.labels[names::LABEL_INITIALIZED].as_deref(), Some("true"));
    assert_eq!(patch.annotations[names::VM_HOST].as_deref(), Some("7"));
    let text = |map: BTreeMap<String, Option<String>>| map.into_iter().filter_map(|(k, v)| Some((k, v?))).collect();
    let node = NodeFacts { labels: text(patch.labels), annotations: text(patch.annotations), ..NodeFacts::default() };
    let second = plan(&Observed { node: Lookup::Found(node), ..right() });
    assert_eq!((second.state, second.effect), (State::Ready, None), "and then there is nothing to do");
}

#[test]
fn what_somebody_else_made_or_a_person_must_do_is_a_sentence_and_no_write() {
    let unknown = || Lookup::Unknown("timeout".to_owned());
    let cases: Vec<(Observed, State, Step, &str)> = vec![
        (
            with_server(|s| s.product = "incus".into()),
            State::Blocked,
            Step::Requirements,
            "not LXD: MAAS supports LXD only",
        ),
        (
            with_server(|s| s.trusted = false),
            State::Blocked,
            Step::Requirements,
            "does not trust this agent on its socket",
        ),
        (with_server(|s| s.clustered = true), State::Blocked, Step::Requirements, "member of a cluster"),
        (with_server(|s| s.trust_password = true), State::Blocked, Step::Requirements, "core.trust_password is set"),
        (
            with_server(|s| s.missing_extensions = vec!["projects".into()]),
            State::Blocked,
            Step::Requirements,
            "lacks what MAAS needs (projects)",
        ),
        (
            with_server(|s| s.virtual_machines = false),
            State::Blocked,
            Step::Requirements,
            "cannot run virtual machines",
        ),
        (
            with_server(|s| {
                s.pool = Lookup::Absent;
                s.storage_drivers = vec!["zfs".into()];
            }),
            State::Blocked,
            Step::Requirements,
            "cannot create a pool on dir here, only on zfs",
        ),
        (
            with_server(|s| s.pool = Lookup::Found(PoolFacts { driver: "zfs".into(), status: "Created".into() })),
            State::Blocked,
            Step::StoragePool,
            "is on zfs, not on dir",
        ),
        (
            with_server(|s| s.pool = Lookup::Found(PoolFacts { driver: "dir".into(), status: "Unavailable".into() })),
            State::Blocked,
            Step::StoragePool,
            "known to LXD but Unavailable",
        ),
        (
            with_server(|s| s.pool = Lookup::Found(PoolFacts { driver: "dir".into(), status: "Errored".into() })),
            State::Blocked,
            Step::StoragePool,
            "has status Errored",
        ),
        (
            with_server(|s| s.pool = Lookup::Found(PoolFacts { driver: "dir".into(), status: "Pending".into() })),
            State::Waiting,
            Step::StoragePool,
            "is being created",
        ),
        (with_server(|s| s.pool = unknown().into_any()), State::Waiting, Step::StoragePool, "cannot be read: timeout"),
        (
            with_server(|s| s.bridge = Lookup::Absent),
            State::Blocked,
            Step::Bridge,
            "never moves the node's own network interface",
        ),
        (
            with_server(|s| s.bridge = Lookup::Found(BridgeFacts { kind: "physical".into(), ports: vec![] })),
            State::Blocked,
            Step::Bridge,
            "type physical, not a bridge",
        ),
        (
            with_server(|s| s.bridge = Lookup::Found(BridgeFacts { kind: "bridge".into(), ports: vec![] })),
            State::Blocked,
            Step::Bridge,
            "no interface of this node as a port",
        ),
        (
            with_server(|s| s.project = Lookup::Found([("restricted".to_owned(), "true".to_owned())].into())),
            State::Blocked,
            Step::Project,
            "needs restricted.devices.nic=allow and restricted.virtual-machines.lowlevel=allow",
        ),
        (
            with_server(|s| {
                s.listener = Some("10.9.9.9:8443".into());
                s.listener_note = None;
            }),
            State::Blocked,
            Step::Listener,
            "does not cover the node's address 192.0.2.7",
        ),
        (
            with_server(|s| {
                s.listener = None;
                s.probe = Probe::Stranger;
            }),
            State::Blocked,
            Step::Listener,
            "another program listens on 192.0.2.7:8443",
        ),
        (
            Observed { own_certificate: unknown().into_any(), ..right() },
            State::Blocked,
            Step::Certificate,
            "cannot be used and is left alone",
        ),
        (
            with_server(|s| s.trust = Lookup::Found(TrustFacts { restricted: true, projects: vec!["other".into()] })),
            State::Blocked,
            Step::Trust,
            "but not for project \"maas\"",
        ),
        (
            with_server(|s| {
                s.probe = Probe::Closed;
                s.listener_note = None;
            }),
            State::Waiting,
            Step::Reachable,
            "nothing answers there",
        ),
        (
            with_server(|s| {
                s.probe = Probe::Stranger;
                s.listener_note = None;
            }),
            State::Blocked,
            Step::Reachable,
            "a program other than this LXD answers",
        ),
        (
            with_server(|s| s.probe = Probe::Untrusted),
            State::Waiting,
            Step::Reachable,
            "does not trust the certificate yet",
        ),
        (
            Observed { node: unknown().into_any(), api_key: Lookup::Absent, endpoint: Lookup::Absent, ..right() },
            State::Waiting,
            Step::Node,
            "not known whether this agent was asked to leave",
        ),
        (Observed { node: Lookup::Absent, ..right() }, State::Blocked, Step::Node, "there is no Node named \"n1\""),
        (
            Observed { api_key: Lookup::Absent, ..right() },
            State::Blocked,
            Step::Credentials,
            "MAAS_API_KEY (or Secret capmaas-system/maas-credentials, key apiKey) is missing",
        ),
        (
            Observed { endpoint: Lookup::Absent, ..right() },
            State::Blocked,
            Step::Credentials,
            "MAAS_ENDPOINT (or ConfigMap capmaas-system/capmaas-config, key maasEndpoint) is missing",
        ),
        (
            Observed { api_key: unknown().into_any(), ..right() },
            State::Waiting,
            Step::Credentials,
            "cannot be determined",
        ),
        (
            Observed { lxd: LxdFacts::NoSocket { tried: vec!["/a".into()] }, ..right() },
            State::Waiting,
            Step::Lxd,
            "no socket at /a",
        ),
        (
            Observed { lxd: LxdFacts::Away { why: "starting".into() }, ..right() },
            State::Waiting,
            Step::Lxd,
            "does not answer yet: starting",
        ),
        (
            Observed { maas: MaasFacts::Away("503".into()), ..right() },
            State::Waiting,
            Step::Registered,
            "MAAS does not answer: 503",
        ),
        (
            Observed { maas: MaasFacts::Denied("401".into()), ..right() },
            State::Blocked,
            Step::Registered,
            "refuses the API key",
        ),
        (Observed { maas: MaasFacts::NoVmHosts, ..right() }, State::Blocked, Step::Registered, "410 Gone"),
        (
            Observed { maas: MaasFacts::TooOld("3.0.1".into()), ..right() },
            State::Blocked,
            Step::Registered,
            "MAAS 3.0.1 accepts no key pair",
        ),
        (
            Observed { maas: MaasFacts::Unusable("a MAAS API key is three parts".into()), ..right() },
            State::Blocked,
            Step::Registered,
            "three parts",
        ),
        (unregistered(|s| s.instances = unknown().into_any()), State::Waiting, Step::Registered, "cannot be listed"),
        (
            with_host(|h| h.machine = Some("other".into())),
            State::Blocked,
            Step::Registered,
            "matched VM host n1 (7) to machine other",
        ),
        (with_host(|h| h.machine = None), State::Waiting, Step::Registered, "has not matched"),
    ];
    for (observed, state, step, words) in cases {
        let plan = plan(&observed);
        assert_eq!((plan.state, write(&plan)), (state, None), "{words}: {}", plan.message);
        assert!(plan.message.contains(words), "{:?} lacks {words:?}", plan.message);
        let failing = plan.conditions.iter().find(|condition| condition.status == "False").unwrap();
        assert_eq!(failing.step, step, "{words}");
    }
}

/// Converts the type of an unknown lookup.
trait IntoAny {
    fn into_any<T>(self) -> Lookup<T>;
}

impl IntoAny for Lookup<String> {
    fn into_any<T>(self) -> Lookup<T> {
        match self {
            Lookup::Unknown(why) => Lookup::Unknown(why),
            _ => Lookup::Absent,
        }
    }
}

#[test]
fn each_missing_piece_is_made_by_its_own_effect() {
    for (observed, effect) in [
        (with_server(|s| s.pool = Lookup::Absent), EffectKind::CreatePool),
        (with_server(|s| s.project = Lookup::Absent), EffectKind::CreateProject),
        (
            with_server(|s| {
                s.listener = None;
                s.probe = Probe::Closed;
            }),
            EffectKind::Listen,
        ),
        (shut_twice(), EffectKind::StopListening),
        (Observed { own_certificate: Lookup::Absent, ..right() }, EffectKind::MakeKey),
        (with_server(|s| s.trust = Lookup::Absent), EffectKind::Trust),
        (unregistered(|_| ()), EffectKind::Register),
        (with_host(|h| h.certificate = Some(print("lost").to_string())), EffectKind::Renew),
        (with_host(|h| h.address = "https://192.0.2.6:8443".into()), EffectKind::Renew),
        (with_host(|h| h.reached = false), EffectKind::Refresh),
        (with_host(|h| h.measured = false), EffectKind::Refresh),
    ] {
        let plan = plan(&observed);
        assert_eq!((plan.state, write(&plan)), (State::Working, Some(effect)), "{}", plan.message);
    }
}

/// LXD keeps an address of ours that it could not open, and two passes found nothing listening there.
fn shut_twice() -> Observed {
    let mut observed = with_server(|server| server.probe = Probe::Closed);
    observed.memory.shut = 2;
    observed
}

#[test]
fn an_lxd_that_is_just_starting_gets_a_second_look_before_its_listener_is_taken_back() {
    let mut observed = shut_twice();
    observed.memory.shut = 1;
    let plan = plan(&observed);
    assert_eq!((plan.state, write(&plan)), (State::Waiting, None));
}

#[test]
fn a_listener_that_lxd_said_it_opened_is_not_taken_back_because_a_firewall_is_in_the_way() {
    let mut observed = shut_twice();
    observed.memory.listens = true;
    let plan = plan(&observed);
    assert_eq!((plan.state, write(&plan)), (State::Waiting, None));
    assert!(plan.message.contains("firewall"), "{}", plan.message);
}

type ChangeHost = fn(&mut VmHost);

#[test]
fn a_vm_host_that_somebody_else_registered_for_this_machine_is_accepted_or_told_and_never_changed() {
    let foreign = |change: ChangeHost| {
        plan(&with_host(|host| {
            host.maker = Maker::Foreign { trusted: Lookup::Found(()) };
            host.certificate = Some(print("of maas").to_string());
            host.name = "other-name".into();
            host.address = "https://node.example:8443".into();
            host.project = "default".into();
            change(host);
        }))
    };
    let cases: [(ChangeHost, State, &str); 4] = [
        (|_| (), State::Ready, "this node is a VM host"),
        (|host| host.maker = Maker::Foreign { trusted: Lookup::Absent }, State::Blocked, "does not trust"),
        (
            |host| host.maker = Maker::Foreign { trusted: Lookup::Unknown("why".into()) },
            State::Waiting,
            "cannot be determined",
        ),
        (|host| host.reached = false, State::Waiting, "refresh it in MAAS"),
    ];
    for (change, state, words) in cases {
        let plan = foreign(change);
        assert_eq!((plan.state, write(&plan)), (state, None), "{}", plan.message);
        assert!(plan.message.contains(words), "{}", plan.message);
    }
}

#[test]
fn a_vm_host_of_ours_in_another_project_is_told_because_its_vms_were_not_counted() {
    let plan = plan(&with_host(|host| host.project = "old".into()));
    assert_eq!((plan.state, write(&plan)), (State::Blocked, None));
    assert!(plan.message.contains("LXD_PROJECT is \"maas\""), "{}", plan.message);
}

#[test]
fn s22_an_earlier_certificate_is_distrusted_once_maas_comes_with_the_new_one_and_not_before() {
    let distrust = Some(Effect::Distrust { fingerprint: print("before") });
    let with_earlier = || with_server(|server| server.earlier = Lookup::Found(vec![print("before")]));
    // Standalone: MAAS itself is asked.
    assert_eq!(plan(&with_earlier()).effect, distrust);
    let mut observed = with_earlier();
    observed.maas = MaasFacts::Away("timeout".into());
    assert_eq!(write(&plan(&observed)), None);

    // Managed: the manager reports, by fingerprint, which certificate MAAS uses.
    let managed = |told: Option<&str>| {
        let told = told.map(|told| (names::MAAS_CERTIFICATE.to_owned(), print(told).to_string()));
        let node = NodeFacts { annotations: told.into_iter().collect(), ..NodeFacts::default() };
        let (api_key, endpoint, maas) = (Lookup::Absent, Lookup::Absent, MaasFacts::NotAsked);
        let given_certificate = right().own_certificate;
        plan(&Observed { node: Lookup::Found(node), api_key, endpoint, maas, given_certificate, ..with_earlier() })
    };
    assert_eq!(managed(Some("own")).effect, distrust);
    for told in [None, Some("before"), Some("other")] {
        let plan = managed(told);
        assert_eq!((plan.state, write(&plan)), (State::Ready, None), "{told:?}");
        let Some(Effect::Report(patch)) = plan.effect else { panic!("{:?}", plan.effect) };
        let reported = patch.annotations[names::EARLIER].clone().unwrap();
        assert_eq!(reported, format!("[\"{}\"]", print("before")), "so that the manager tells");
    }
}

#[test]
fn s12_a_host_is_registered_only_while_its_project_is_empty() {
    let plan = plan(&unregistered(|server| server.instances = Lookup::Found(vec!["vm1".into()])));
    assert_eq!((plan.state, write(&plan)), (State::Blocked, None));
    assert!(plan.message.contains("would restart and commission them"), "{}", plan.message);
}

#[test]
fn s12_a_host_is_refreshed_or_renewed_only_while_maas_knows_every_vm() {
    for change in [|host: &mut VmHost| host.reached = false, |host: &mut VmHost| host.certificate = None] {
        for (strangers, state) in [
            (Lookup::Found(vec!["vm9".into()]), State::Blocked),
            (Lookup::Unknown("timeout".into()), State::Waiting),
            (Lookup::Absent, State::Waiting),
        ] {
            let plan = plan(&with_host(|host| {
                change(host);
                host.strangers = strangers;
            }));
            assert_eq!((plan.state, write(&plan)), (state, None), "{}", plan.message);
        }
    }
}

#[test]
fn maas_is_given_time_to_take_a_host_in() {
    let mut observed = with_host(|host| host.measured = false);
    observed.memory.refreshed = Some(NOW - SignedDuration::from_secs(5));
    assert_eq!((plan(&observed).state, write(&plan(&observed))), (State::Waiting, None));
    observed.memory.refreshed = Some(NOW - SignedDuration::from_secs(60));
    assert_eq!(write(&plan(&observed)), Some(EffectKind::Refresh));
}

#[test]
fn what_failed_is_said_and_tried_again_only_after_a_while() {
    let mut observed = with_server(|server| server.pool = Lookup::Absent);
    let failure = Failure { why: "mkfs is missing".into(), times: 1, retry: NOW + Duration::from_secs(15) };
    observed.memory.failures.insert(EffectKind::CreatePool, failure);
    let early = plan(&observed);
    assert_eq!((early.state, write(&early)), (State::Blocked, None));
    assert!(early.message.contains("creating the storage pool failed: mkfs is missing"), "{}", early.message);
    let later = decide(&settings(), &observed, NOW + Duration::from_secs(15));
    assert_eq!(write(&later), Some(EffectKind::CreatePool));
}

#[test]
fn a_node_that_cannot_be_told_is_not_ready_yet() {
    let mut observed = right();
    let failure = Failure { why: "forbidden".into(), times: 1, retry: NOW + Duration::from_secs(15) };
    observed.memory.failures.insert(EffectKind::Report, failure);
    let plan = plan(&observed);
    assert_eq!((plan.state, &plan.effect), (State::Waiting, &None));
    assert!(plan.message.contains("writing the report to the Node failed: forbidden"), "{}", plan.message);
}

#[test]
fn an_agent_with_the_maas_variables_does_its_work_without_kubernetes_and_says_so() {
    let unread = |observed: Observed| Observed { node: Lookup::Unknown("timeout".into()), ..observed };
    assert_eq!(write(&plan(&unread(unregistered(|_| ())))), Some(EffectKind::Register));
    assert_eq!(write(&plan(&unread(with_server(|server| server.pool = Lookup::Absent)))), Some(EffectKind::CreatePool));
    let done = plan(&unread(right()));
    assert_eq!((done.state, &done.effect), (State::Waiting, &None), "it goes on trying");
    assert!(done.message.contains("but its Node could not be read and labelled"), "{}", done.message);
    // The earlier request to leave still holds.
    let mut left = unread(unregistered(|_| ()));
    left.memory.left = true;
    assert_eq!((plan(&left).state, write(&plan(&left))), (State::Left, None));
    // Without an address the host cannot be registered.
    let mut nowhere = settings();
    nowhere.node_ip = None;
    assert!(decide(&nowhere, &unread(right()), NOW).message.contains("set NODE_IP"));
}

#[test]
fn zone_and_pool_are_those_of_the_settings_or_if_empty_those_of_the_machine() {
    let mut settings = settings();
    for (zone, pool, expected) in [("z", "p", ("z", "p")), ("", "", ("az1", "metal"))] {
        settings.zone = zone.into();
        settings.resource_pool = pool.into();
        let Some(Effect::OnHost(Call::Register(new))) = decide(&settings, &unregistered(|_| ()), NOW).effect else {
            panic!()
        };
        assert_eq!((new.place.zone.as_str(), new.place.pool.as_str()), expected);
    }
}

#[test]
fn s02_a_registration_whose_answer_is_lost_is_not_sent_again_while_it_may_still_land() {
    for (intent, state) in [
        (Lookup::Found(NOW - SignedDuration::from_secs(149)), State::Waiting),
        (Lookup::Unknown("/state/registration: it is a folder".into()), State::Waiting),
        (Lookup::Found(NOW - SignedDuration::from_secs(151)), State::Working),
    ] {
        let plan = plan(&Observed { intent, ..unregistered(|_| ()) });
        assert_eq!(plan.state, state, "{}", plan.message);
    }
}

#[test]
fn an_unknown_list_of_instances_is_taken_off_the_node_rather_than_left_to_mislead() {
    let mut node = NodeFacts::default();
    node.annotations.insert(names::INSTANCES.into(), "[]".into());
    let away = Observed { node: Lookup::Found(node), lxd: LxdFacts::Away { why: "restarting".into() }, ..right() };
    let Some(Effect::Report(patch)) = plan(&away).effect else { panic!() };
    assert_eq!(patch.annotations[names::INSTANCES], None);
    assert!(!patch.annotations.contains_key(names::ADDRESS), "what it is stays");
}
