//! Facts of a node in the desired state, to be modified by each test.

use clap::Parser;
use jiff::Timestamp;
use lxd_client::Fingerprint;
use lxd_initializer::{
    decide::decide,
    effect::{Effect, EffectKind},
    observed::{
        BridgeFacts, Certificate, Lookup, LxdFacts, MaasFacts, MaasView, Machine, Maker, Memory, NodeFacts, Observed,
        Place, PoolFacts, Probe, ServerFacts, TrustFacts, VmHost,
    },
    plan::Plan,
    requirements::project_config,
    settings::{Arguments, Settings},
};

pub(crate) const NOW: Timestamp = Timestamp::UNIX_EPOCH;

pub(crate) fn settings() -> Settings {
    let arguments = ["lxd-initializer", "--node-name=n1", "--storage-backend=dir", "--node-ip=192.0.2.7"];
    Arguments::try_parse_from(arguments).unwrap().settle().unwrap().0
}

pub(crate) fn print(text: &str) -> Fingerprint {
    Fingerprint::of_der(text.as_bytes())
}

pub(crate) fn server() -> ServerFacts {
    ServerFacts {
        product: "lxd".into(),
        version: "5.21.3".into(),
        trusted: true,
        clustered: false,
        missing_extensions: vec![],
        virtual_machines: true,
        storage_drivers: vec!["dir".into()],
        trust_password: false,
        listener: Some("192.0.2.7:8443".into()),
        listener_note: Some("192.0.2.7:8443".into()),
        fingerprint: Some(print("server")),
        pool: Lookup::Found(PoolFacts { driver: "dir".into(), status: "Created".into() }),
        bridge: Lookup::Found(BridgeFacts { kind: "bridge".into(), ports: vec!["eth0".into()] }),
        project: Lookup::Found(project_config()),
        instances: Lookup::Found(vec![]),
        profiles: Lookup::Found(vec!["default".into()]),
        trust: Lookup::Found(TrustFacts { restricted: true, projects: vec!["maas".into()] }),
        earlier: Lookup::Found(vec![]),
        probe: Probe::Trusted,
    }
}

pub(crate) fn host() -> VmHost {
    VmHost {
        id: 7,
        name: "n1".into(),
        machine: Some("abc123".into()),
        address: "https://192.0.2.7:8443".into(),
        project: "maas".into(),
        certificate: Some(print("own").to_string()),
        maker: Maker::Ours,
        reached: true,
        measured: true,
        place: Place { zone: "az1".into(), pool: "metal".into() },
        strangers: Lookup::Found(vec![]),
    }
}

pub(crate) fn view(host: Lookup<VmHost>) -> MaasFacts {
    let place = Place { zone: "az1".into(), pool: "metal".into() };
    let machine = Machine { system_id: "abc123".into(), place };
    MaasFacts::Here(Box::new(MaasView { machine: Lookup::Found(machine), host }))
}

/// A node in the desired state, in standalone mode, except for its report.
pub(crate) fn right() -> Observed {
    Observed {
        node: Lookup::Found(NodeFacts::default()),
        api_key: Lookup::Found(()),
        endpoint: Lookup::Found("http://maas".into()),
        given_certificate: Lookup::Absent,
        own_certificate: Lookup::Found(Certificate { fingerprint: print("own"), pem: "pem".into() }),
        lxd: LxdFacts::Here(Box::new(server())),
        maas: view(Lookup::Found(host())),
        intent: Lookup::Absent,
        memory: Memory::default(),
    }
}

pub(crate) fn with_server(change: impl FnOnce(&mut ServerFacts)) -> Observed {
    let mut observed = right();
    if let LxdFacts::Here(server) = &mut observed.lxd {
        change(server);
    }
    observed
}

pub(crate) fn with_host(change: impl FnOnce(&mut VmHost)) -> Observed {
    let mut changed = host();
    change(&mut changed);
    Observed { maas: view(Lookup::Found(changed)), ..right() }
}

pub(crate) fn unregistered(change: impl FnOnce(&mut ServerFacts)) -> Observed {
    Observed { maas: view(Lookup::Absent), ..with_server(change) }
}

pub(crate) fn plan(observed: &Observed) -> Plan {
    decide(&settings(), observed, NOW)
}

/// The write to LXD, MAAS or the host, if any; a report on the Node does not count.
pub(crate) fn write(plan: &Plan) -> Option<EffectKind> {
    plan.effect.as_ref().map(Effect::kind).filter(|kind| *kind != EffectKind::Report)
}
