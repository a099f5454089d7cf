//! All reads of a pass, and no write. What could not be read is `Unknown`, with the reason.

use std::{io, net::SocketAddr, os::unix::fs::FileTypeExt, path::PathBuf, time::Duration};

use jiff::Timestamp;
use lxd_client::{Client, Deadlines, Error, ErrorKind, Fingerprint, Identity, Server};
use tokio::net::{TcpStream, UnixStream};

use crate::{
    agent::Agent,
    alive, decide, intent, issued, keys, names,
    observed::{
        BridgeFacts, Certificate, Lookup, LxdFacts, MaasFacts, NodeFacts, Observed, PoolFacts, Probe, ServerFacts,
        TrustFacts,
    },
    plan::Step,
    requirements,
    settings::Settings,
};

/// The port of the local LXD answers immediately or not at all.
const PROBE_TIMEOUT: Duration = Duration::from_secs(5);

impl Agent {
    /// Observes everything that matters now.
    pub(crate) async fn observe(&mut self) -> Observed {
        let credentials = self.credentials().await;
        let own = keys::load(&self.settings.state_dir);
        let mut observed = Observed {
            node: self.cluster.node().await,
            api_key: credentials.0.as_ref().map(|_| ()),
            endpoint: credentials.1.clone(),
            given_certificate: Lookup::Absent,
            own_certificate: own.as_ref().and_then(keys::fact),
            lxd: LxdFacts::NoSocket { tried: Vec::new() },
            maas: MaasFacts::NotAsked,
            intent: Lookup::Absent,
            memory: self.memory.clone(),
        };
        match &observed.node {
            Lookup::Found(node) => self.memory.left = decide::asked_to_leave(node),
            Lookup::Unknown(_) => self.memory.left |= alive::is_unregistered(&self.settings.state_dir),
            Lookup::Absent => {}
        }
        observed.memory = self.memory.clone();
        if decide::mode(&observed) == Some(decide::Mode::Managed) {
            observed.given_certificate = self.cluster.given_certificate().await;
        }
        let (lxd, facts) = self.observe_lxd().await;
        observed.lxd = facts;
        if let (Some(lxd), LxdFacts::Here(server)) = (&lxd, &mut observed.lxd) {
            fill(&self.settings, lxd, server).await;
        }
        let certificate = match decide::certificate(&observed) {
            Lookup::Found(certificate) => Some(certificate.clone()),
            _ => None,
        };
        let node = decide::node_for_work(&observed).cloned();
        if let (Some(lxd), LxdFacts::Here(server)) = (&lxd, &mut observed.lxd) {
            if let Some(certificate) = certificate {
                server.trust = trusted(lxd, certificate.fingerprint).await;
                server.earlier = earlier(&self.settings, lxd, &certificate).await;
            } else {
                server.trust = Lookup::Unknown("there is no certificate yet".into());
            }
            if let Some(node) = &node {
                server.probe = probe_tls(&self.settings, node, server, own.found()).await;
            }
        }
        let shut = matches!(&observed.lxd, LxdFacts::Here(server)
            if server.listener.is_some() && matches!(server.probe, Probe::Closed | Probe::Stranger | Probe::Unclear(_)));
        self.memory.shut = if shut { self.memory.shut.saturating_add(1) } else { 0 };
        observed.memory = self.memory.clone();
        // MAAS is slow, and many nodes ask: only if nothing else is in the way.
        let turn = decide::decide(&self.settings, &observed, Timestamp::now()).first_open() == Some(Step::Registered);
        if let (true, Lookup::Found(key), Lookup::Found(endpoint), Some(lxd)) =
            (turn, &credentials.0, &credentials.1, &lxd)
        {
            observed.intent = intent::read(&self.settings.state_dir);
            observed.maas = self.observe_maas(key, endpoint, lxd, &observed).await;
        }
        observed
    }

    /// The local LXD through the first existing socket.
    async fn observe_lxd(&self) -> (Option<Client>, LxdFacts) {
        let tried = || self.settings.sockets.iter().map(|socket| socket.display().to_string()).collect();
        let Some(socket) = find_socket(&self.settings.sockets).await else {
            return (None, LxdFacts::NoSocket { tried: tried() });
        };
        let answer = match self.lxd(&socket) {
            Ok(lxd) => lxd.server().await.map(|server| (lxd, server)),
            Err(error) => Err(error),
        };
        match answer {
            Ok((lxd, server)) => (Some(lxd), LxdFacts::Here(Box::new(basics(&server)))),
            Err(error) => (None, LxdFacts::Away { why: format!("{} ({})", with_cause(&error), socket.display()) }),
        }
    }

    /// A client of the local LXD.
    pub(crate) fn lxd(&self, socket: &std::path::Path) -> Result<Client, Error> {
        let client = Client::unix(socket)?;
        Ok(match &self.lxd_hook {
            Some(hook) => client.map_transport(|transport| hook(transport)),
            None => client,
        })
    }
}

/// The first socket with a listener, otherwise the first one at all: a crashed daemon leaves its socket behind.
pub(crate) async fn find_socket(places: &[PathBuf]) -> Option<PathBuf> {
    let is_socket = |path: &&PathBuf| std::fs::metadata(path).is_ok_and(|metadata| metadata.file_type().is_socket());
    let there: Vec<&PathBuf> = places.iter().filter(is_socket).collect();
    for socket in &there {
        if matches!(tokio::time::timeout(PROBE_TIMEOUT, UnixStream::connect(socket)).await, Ok(Ok(_))) {
            return Some((*socket).clone());
        }
    }
    there.first().map(|socket| (*socket).clone())
}

fn basics(server: &Server) -> ServerFacts {
    let environment = &server.environment;
    ServerFacts {
        product: environment.server.clone(),
        version: environment.server_version.clone(),
        trusted: server.is_trusted(),
        clustered: environment.server_clustered,
        missing_extensions: requirements::EXTENSIONS
            .into_iter()
            .filter(|name| !server.has_extension(name))
            .map(str::to_owned)
            .collect(),
        virtual_machines: server.supports_virtual_machines(),
        storage_drivers: environment.storage_supported_drivers.iter().map(|driver| driver.name.clone()).collect(),
        trust_password: server.setting("core.trust_password").is_some_and(|set| set != "false"),
        listener: server.setting("core.https_address").map(str::to_owned),
        listener_note: server.setting(names::LISTENER_NOTE).map(str::to_owned),
        fingerprint: environment.certificate_fingerprint.parse().ok(),
        pool: Lookup::Unknown("not read".into()),
        bridge: Lookup::Unknown("not read".into()),
        project: Lookup::Unknown("not read".into()),
        instances: Lookup::Unknown("not read".into()),
        profiles: Lookup::Unknown("not read".into()),
        trust: Lookup::Unknown("not read".into()),
        earlier: Lookup::Unknown("not read".into()),
        probe: Probe::NotTried,
    }
}

async fn fill(settings: &Settings, lxd: &Client, server: &mut ServerFacts) {
    server.pool = lookup(lxd.storage_pool(&settings.pool.name).await, |pool| PoolFacts {
        driver: pool.driver,
        status: pool.status,
    });
    server.bridge = bridge(lxd, &settings.bridge).await;
    server.project = match lxd.project(&settings.project).await {
        Ok(Some(project)) => {
            project.config.map_or_else(|| Lookup::Unknown("its configuration is hidden".into()), Lookup::Found)
        }
        Ok(None) => Lookup::Absent,
        Err(error) => Lookup::Unknown(with_cause(&error)),
    };
    // LXD returns an empty list for a project that does not exist, so the project itself is read first.
    (server.instances, server.profiles) = match server.project {
        Lookup::Found(_) => (
            sorted(lxd.instances(&settings.project).await, |instance| instance.name),
            sorted(lxd.profiles(&settings.project).await, |profile| profile.name),
        ),
        Lookup::Absent => (Lookup::Absent, Lookup::Absent),
        Lookup::Unknown(_) => {
            let why = || Lookup::Unknown("the project cannot be read".into());
            (why(), why())
        }
    };
}

fn sorted<T>(answer: Result<Vec<T>, Error>, name: impl Fn(T) -> String) -> Lookup<Vec<String>> {
    match answer {
        Ok(found) => {
            let mut names: Vec<String> = found.into_iter().map(name).collect();
            names.sort();
            Lookup::Found(names)
        }
        Err(error) => Lookup::Unknown(with_cause(&error)),
    }
}

async fn bridge(lxd: &Client, name: &str) -> Lookup<BridgeFacts> {
    let network = match lxd.network(name).await {
        Ok(Some(network)) => network,
        Ok(None) => return Lookup::Absent,
        Err(error) => return Lookup::Unknown(with_cause(&error)),
    };
    match lxd.network_state(name).await {
        Ok(state) => {
            let ports = state.and_then(|state| state.bridge).map(|bridge| bridge.upper_devices).unwrap_or_default();
            // LXD calls the NICs of instances tap… and veth…; they do not connect to the outside of the node.
            let leads_out = |port: &String| !port.starts_with("tap") && !port.starts_with("veth");
            Lookup::Found(BridgeFacts { kind: network.kind, ports: ports.into_iter().filter(leads_out).collect() })
        }
        Err(error) => Lookup::Unknown(with_cause(&error)),
    }
}

/// A certificate in LXD's trust store.
pub(crate) async fn trusted(lxd: &Client, print: Fingerprint) -> Lookup<TrustFacts> {
    lookup(lxd.certificate(print).await, |found| TrustFacts { restricted: found.restricted, projects: found.projects })
}

/// Certificates that were trusted here before this one, under our name and for our project only.
async fn earlier(settings: &Settings, lxd: &Client, now: &Certificate) -> Lookup<Vec<Fingerprint>> {
    let all = match lxd.certificates().await {
        Ok(all) => all,
        Err(error) => return Lookup::Unknown(with_cause(&error)),
    };
    let ours = all.iter().filter(|found| {
        found.name == names::trust_name(&settings.node_name)
            && found.kind == "client"
            && found.restricted
            && found.projects == [settings.project.clone()]
            && issued::is_successor(&now.pem, &found.certificate)
    });
    let prints = ours.filter_map(|found| Fingerprint::of_pem(&found.certificate).ok());
    Lookup::Found(prints.filter(|print| *print != now.fingerprint).collect())
}

async fn probe_tls(settings: &Settings, node: &NodeFacts, server: &ServerFacts, identity: Option<&Identity>) -> Probe {
    let Some(at) = decide::address(settings, node, server) else { return Probe::NotTried };
    let (Some(_), Some(print)) = (&server.listener, server.fingerprint) else { return probe_tcp(at).await };
    let deadlines = Deadlines { read: PROBE_TIMEOUT, write: PROBE_TIMEOUT };
    let answer = match Client::tls(&format!("https://{at}"), print, identity) {
        Ok(client) => client.with_deadlines(deadlines).server_in_project(&settings.project).await,
        Err(error) => return Probe::Unclear(error.to_string()),
    };
    match answer {
        Ok(seen) if seen.is_trusted() => Probe::Trusted,
        Ok(_) => Probe::Untrusted,
        Err(error) => match error.kind() {
            ErrorKind::WrongServer { .. } => Probe::Stranger,
            ErrorKind::Denied(_) => Probe::Untrusted,
            // A program that does not speak TLS counts as no connection too.
            ErrorKind::NotConnected => probe_tcp(at).await,
            _ => Probe::Unclear(with_cause(&error)),
        },
    }
}

/// Whether anything listens there.
async fn probe_tcp(at: SocketAddr) -> Probe {
    match tokio::time::timeout(PROBE_TIMEOUT, TcpStream::connect(at)).await {
        Ok(Ok(_)) => Probe::Stranger,
        Ok(Err(error)) if error.kind() == io::ErrorKind::ConnectionRefused => Probe::Closed,
        Ok(Err(error)) => Probe::Unclear(error.to_string()),
        Err(_) => Probe::Unclear("no answer within 5 s".into()),
    }
}

fn lookup<T, F>(answer: Result<Option<T>, Error>, read: impl FnOnce(T) -> F) -> Lookup<F> {
    match answer {
        Ok(Some(found)) => Lookup::Found(read(found)),
        Ok(None) => Lookup::Absent,
        Err(error) => Lookup::Unknown(with_cause(&error)),
    }
}

/// An error together with its cause, since "LXD is not running there" alone explains little.
pub(crate) fn with_cause(error: &Error) -> String {
    match std::error::Error::source(error) {
        Some(cause) => format!("{error}: {cause}"),
        None => error.to_string(),
    }
}
