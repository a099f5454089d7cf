//! Properties of decisions that hold for arbitrary facts.
#![allow(clippy::unwrap_used, clippy::expect_used, clippy::panic)]

mod support;

use std::collections::BTreeMap;

use lxd_initializer::{
    decide::{Mode, decide, mode},
    effect::EffectKind,
    names,
    observed::{
        BridgeFacts, Certificate, Lookup, LxdFacts, MaasFacts, Maker, Memory, NodeFacts, Observed, PoolFacts, Probe,
        ServerFacts, TrustFacts, VmHost,
    },
    plan::{State, Step},
    requirements::project_config,
};
use proptest::prelude::*;
use support::facts::{NOW, host, plan, print, server, settings, view, write};

fn lookups<T: Clone + std::fmt::Debug + 'static>(
    found: impl Strategy<Value = T> + 'static,
) -> BoxedStrategy<Lookup<T>> {
    prop_oneof![
        4 => found.prop_map(Lookup::Found),
        1 => Just(Lookup::Absent),
        1 => Just(Lookup::Unknown("why".to_owned())),
    ]
    .boxed()
}

fn probes() -> impl Strategy<Value = Probe> {
    prop_oneof![
        1 => Just(Probe::NotTried),
        1 => Just(Probe::Closed),
        1 => Just(Probe::Stranger),
        4 => Just(Probe::Trusted),
        1 => Just(Probe::Untrusted),
        1 => Just(Probe::Unclear("why".into())),
    ]
}

fn servers() -> impl Strategy<Value = ServerFacts> {
    let names = || prop::sample::select(vec!["Created", "Created", "Created", "Pending", "Unavailable"]);
    let listeners = || {
        prop::sample::select(vec![None, Some("192.0.2.7:8443"), Some("[::]:8443"), Some("10.0.0.1:8443"), Some("?")])
    };
    let flags = (
        prop::bool::weighted(0.95),
        prop::bool::weighted(0.05),
        prop::bool::weighted(0.05),
        prop::bool::weighted(0.95),
    );
    let things = (
        lookups(
            (prop::sample::select(vec!["dir", "dir", "zfs"]), names())
                .prop_map(|(driver, status)| PoolFacts { driver: driver.into(), status: status.into() }),
        ),
        lookups(prop::collection::vec("eth[0-9]", 0..2).prop_map(|ports| BridgeFacts { kind: "bridge".into(), ports })),
        lookups(prop::bool::ANY.prop_map(|ours| if ours { project_config() } else { BTreeMap::new() })),
        lookups(prop::collection::vec("vm[0-9]", 0..2)),
        lookups((any::<bool>(), prop::bool::weighted(0.8)).prop_map(|(restricted, ours)| TrustFacts {
            restricted,
            projects: vec![if ours { "maas".into() } else { "x".into() }],
        })),
        lookups(prop::collection::vec(Just(print("before")), 0..2)),
    );
    (flags, things, listeners(), listeners(), probes()).prop_map(
        |(
            (trusted, clustered, password, vms),
            (pool, bridge, project, instances, trust, earlier),
            listener,
            note,
            probe,
        )| {
            ServerFacts {
                trusted,
                clustered,
                trust_password: password,
                virtual_machines: vms,
                pool,
                bridge,
                project,
                instances,
                trust,
                earlier,
                probe,
                listener: listener.map(str::to_owned),
                listener_note: note.map(str::to_owned),
                ..server()
            }
        },
    )
}

fn hosts() -> impl Strategy<Value = VmHost> {
    (
        prop::sample::select(vec![None, Some("abc123"), Some("abc123"), Some("other")]),
        prop::sample::select(vec!["own", "own", "other"]),
        prop_oneof![2 => Just(Maker::Ours), 1 => lookups(Just(())).prop_map(|trusted| Maker::Foreign { trusted })],
        any::<(bool, bool)>(),
        lookups(prop::collection::vec("vm[0-9]", 0..2)),
    )
        .prop_map(|(machine, certificate, maker, (reached, measured), strangers)| VmHost {
            machine: machine.map(str::to_owned),
            certificate: Some(print(certificate).to_string()),
            maker,
            reached,
            measured,
            strangers,
            ..host()
        })
}

prop_compose! {
    fn observations()(
        lxd in prop_oneof![
            8 => servers().prop_map(|server| LxdFacts::Here(Box::new(server))),
            1 => Just(LxdFacts::Away { why: "why".into() }),
            1 => Just(LxdFacts::NoSocket { tried: vec![] }),
        ],
        leave in prop::sample::select(vec![None, None, None, Some("true"), Some("false"), Some("")]),
        node in lookups(Just(NodeFacts::default())),
        api_key in lookups(Just(())),
        endpoint in lookups(Just("http://maas".to_owned())),
        own in lookups(Just(Certificate { fingerprint: print("own"), pem: "pem".into() })),
        given in lookups(Just(Certificate { fingerprint: print("given"), pem: "pem".into() })),
        maas in prop_oneof![
            6 => lookups(hosts()).prop_map(view),
            1 => Just(MaasFacts::Away("why".into())),
            1 => Just(MaasFacts::NoVmHosts),
            1 => Just(MaasFacts::NotAsked),
        ],
        listens in any::<bool>(),
        shut in 0..3_u32,
        left in any::<bool>(),
        intent in prop_oneof![2 => Just(Lookup::Absent), 1 => lookups(Just(NOW))],
    ) -> Observed {
        let node = match (node, leave) {
            (Lookup::Found(mut node), Some(leave)) => {
                node.annotations.insert(names::LEAVE.into(), leave.into());
                Lookup::Found(node)
            }
            (node, _) => node,
        };
        let memory = Memory { listens, shut, left, ..Memory::default() };
        Observed { node, api_key, endpoint, given_certificate: given, own_certificate: own, lxd, maas, intent, memory }
    }
}

proptest! {
    #![proptest_config(ProptestConfig::with_cases(400))]

    #[test]
    fn any_facts_lead_to_a_plan_that_is_whole(observed in observations()) {
        let plan = plan(&observed);
        prop_assert_eq!(plan.conditions.len(), Step::ALL.len());
        prop_assert!(!plan.message.is_empty());
        prop_assert_eq!(&plan, &decide(&settings(), &observed, NOW), "the same facts, the same plan");
        // All steps before the first that does not hold do hold, and none after it is evaluated.
        let statuses: Vec<_> = plan.conditions.iter().map(|condition| condition.status).collect();
        let holding = statuses.iter().take_while(|status| **status == "True").count();
        prop_assert!(statuses[holding..].iter().skip(1).all(|status| *status == "Unknown"));
        let told = observed.node.found().is_some();
        prop_assert_eq!(plan.state == State::Ready, holding == Step::ALL.len() && told);
        prop_assert_eq!(plan.state == State::Working, write(&plan).is_some());
    }

    #[test]
    fn nothing_is_written_to_lxd_or_maas_by_an_agent_that_may_have_been_told_to_leave(observed in observations()) {
        let stays = match &observed.node {
            Lookup::Found(node) => {
                node.annotations.get(names::LEAVE).is_none_or(|leave| leave.is_empty() || leave == "false")
            }
            // An agent that registers the host itself needs no Kubernetes for that.
            Lookup::Unknown(_) => mode(&observed) == Some(Mode::Standalone) && !observed.memory.left,
            Lookup::Absent => false,
        };
        prop_assert!(stays || write(&plan(&observed)).is_none());
    }

    #[test]
    fn s12_any_call_that_makes_maas_look_at_the_project_finds_no_stranger_there(observed in observations()) {
        let LxdFacts::Here(server) = &observed.lxd else { return Ok(()) };
        let host = match &observed.maas { MaasFacts::Here(view) => view.host.found(), _ => None };
        match write(&plan(&observed)) {
            Some(EffectKind::Register) => {
                prop_assert_eq!(&server.instances, &Lookup::Found(vec![]));
                prop_assert_eq!(&observed.intent, &Lookup::Absent, "S2: none may be in flight");
            }
            Some(EffectKind::Renew | EffectKind::Refresh) => prop_assert_eq!(&host.unwrap().strangers, &Lookup::Found(vec![])),
            _ => {}
        }
    }

    #[test]
    fn s22_in_managed_mode_no_key_is_made_and_maas_is_never_written_to(observed in observations()) {
        if mode(&observed) != Some(Mode::Standalone) {
            let kind = write(&plan(&observed));
            prop_assert!(!matches!(
                kind,
                Some(EffectKind::MakeKey | EffectKind::Register | EffectKind::Renew | EffectKind::Refresh)
            ), "{:?}", kind);
        }
    }

    #[test]
    fn s01_something_is_made_only_where_its_absence_was_seen(observed in observations()) {
        let LxdFacts::Here(server) = &observed.lxd else { return Ok(()) };
        match write(&plan(&observed)) {
            Some(EffectKind::CreatePool) => prop_assert_eq!(&server.pool, &Lookup::Absent),
            Some(EffectKind::CreateProject) => prop_assert_eq!(&server.project, &Lookup::Absent),
            Some(EffectKind::Trust) => prop_assert_eq!(&server.trust, &Lookup::Absent),
            Some(EffectKind::MakeKey) => prop_assert_eq!(&observed.own_certificate, &Lookup::Absent),
            Some(EffectKind::StopListening) => prop_assert_eq!(&server.listener, &server.listener_note),
            _ => {}
        }
    }
}
