//! The port to MAAS, in standalone mode only.

use anyhow::{Context, anyhow};
use capmaas_core::registration::{self, Call};
use jiff::Timestamp;
use maas_client::{ErrorKind, MachineFilter};
use secrecy::{ExposeSecret, SecretString};

use crate::{
    agent::Agent,
    alive, decide, intent, keys,
    observe::trusted,
    observed::{Lookup, LxdFacts, MaasFacts, MaasView, Machine, Maker, NodeFacts, Observed, Place, VmHost},
    registering::{self, Claim, KeyPair, SEND, Wanted},
    settings::Settings,
};

/// A client that is kept as long as its credentials stay the same.
pub(crate) struct MaasConnection {
    endpoint: String,
    key: SecretString,
    client: maas_client::Client,
    /// MAAS's answer when everything was right, and when: MAAS is slow, and many nodes ask. Never the basis of a write.
    seen: Option<(Timestamp, MaasFacts)>,
    /// Whether the facts of this pass come from that cache.
    from_memory: bool,
}

impl Agent {
    /// The credentials: from environment or flag, otherwise from the cluster.
    pub(crate) async fn credentials(&self) -> (Lookup<SecretString>, Lookup<String>) {
        let key = match &self.given.api_key {
            Some(key) => Lookup::Found(key.clone()),
            None => self.cluster.api_key().await,
        };
        let endpoint = match &self.given.endpoint {
            Some(endpoint) => Lookup::Found(endpoint.clone()),
            None => self.cluster.endpoint().await,
        };
        (key, endpoint)
    }

    fn connection(&mut self, key: &SecretString, endpoint: &str) -> Result<&mut MaasConnection, String> {
        let same = |connection: &MaasConnection| {
            connection.endpoint == endpoint && connection.key.expose_secret() == key.expose_secret()
        };
        let connection = if let Some(connection) = self.maas.take().filter(same) {
            connection
        } else {
            let mut builder = maas_client::Client::builder(endpoint, key.expose_secret());
            if let Some(file) = &self.settings.maas_ca_file {
                let pem = std::fs::read(file).map_err(|error| format!("MAAS_CA_FILE {}: {error}", file.display()))?;
                builder = builder.certificate_authority(pem);
            }
            let client = builder.build().map_err(|error| error.to_string())?;
            MaasConnection { endpoint: endpoint.to_owned(), key: key.clone(), client, seen: None, from_memory: false }
        };
        Ok(self.maas.insert(connection))
    }

    pub(crate) async fn observe_maas(
        &mut self,
        key: &SecretString,
        endpoint: &str,
        lxd: &lxd_client::Client,
        observed: &Observed,
    ) -> MaasFacts {
        let settings = self.settings.clone();
        let (LxdFacts::Here(server), Some(node)) = (&observed.lxd, decide::node_for_work(observed)) else {
            return MaasFacts::NotAsked;
        };
        let connection = match self.connection(key, endpoint) {
            Ok(connection) => connection,
            Err(why) => return MaasFacts::Unusable(why),
        };
        let now = Timestamp::now();
        if let Some((at, facts)) = &connection.seen
            && now.duration_since(*at).unsigned_abs() < settings.maas_watch
        {
            connection.from_memory = true;
            return facts.clone();
        }
        connection.seen = None;
        connection.from_memory = false;
        let instances = server.instances.clone();
        match read(&connection.client, &settings, node, lxd, instances).await {
            Ok(facts) => {
                if is_right(&facts) {
                    connection.seen = Some((now, facts.clone()));
                }
                facts
            }
            Err(error) => judge(&error),
        }
    }

    pub(crate) fn client(&self) -> anyhow::Result<maas_client::Client> {
        self.maas.as_ref().map(|connection| connection.client.clone()).context("MAAS was not queried yet")
    }

    /// Whether the facts about MAAS were read in an earlier pass.
    pub(crate) fn maas_is_from_memory(&self) -> bool {
        self.maas.as_ref().is_some_and(|connection| connection.from_memory)
    }

    /// Drops the cached facts, because something is about to change in MAAS.
    pub(crate) fn forget(&mut self) {
        if let Some(connection) = &mut self.maas {
            connection.seen = None;
        }
    }

    fn pair(&self) -> anyhow::Result<KeyPair> {
        let identity = match keys::load(&self.settings.state_dir) {
            Lookup::Found(identity) => identity,
            Lookup::Absent => return Err(anyhow!("the key pair no longer exists")),
            Lookup::Unknown(why) => return Err(anyhow!(why)),
        };
        let key = identity.key_pem().expose_secret().to_owned().into();
        Ok(KeyPair { certificate: identity.certificate_pem().to_owned(), key })
    }

    /// MAAS may answer 200 without having reached LXD: the next pass checks.
    pub(crate) async fn call_maas(&mut self, call: &Call) -> anyhow::Result<()> {
        self.forget();
        let pair = self.pair()?;
        // The limit counts from the intent.
        let (client, now) = (self.client()?.sending_within(SEND), Timestamp::now());
        let folder = &self.settings.state_dir;
        if let Call::Register(_) = call {
            alive::unmark(folder)?;
            intent::store(folder, now).context("the registration cannot be recorded, so it is not sent")?;
        }
        let answer = registering::perform(&client, call, pair).await;
        let after = registration::conclude(call, registering::outcome(&answer));
        if after.refreshed {
            self.memory.refreshed = Some(now);
        }
        if let (Call::Register(_), true) = (call, after.forget_intent) {
            // If it cannot be removed, it merely expires.
            let _ = intent::forget(folder);
        }
        answer.map(drop).map_err(|error| anyhow!(registering::failure(call, &error)))
    }
}

fn is_right(facts: &MaasFacts) -> bool {
    let MaasFacts::Here(view) = facts else { return false };
    view.host.found().is_some_and(|host| host.works() && host.machine.is_some())
}

fn judge(error: &maas_client::Error) -> MaasFacts {
    let text = error.to_string();
    match error.kind() {
        ErrorKind::Denied => MaasFacts::Denied(text),
        ErrorKind::Gone => MaasFacts::NoVmHosts,
        ErrorKind::WrongEndpoint => MaasFacts::Unusable(text),
        _ => MaasFacts::Away(text),
    }
}

type Answer<T> = Result<T, maas_client::Error>;

async fn read(
    maas: &maas_client::Client,
    settings: &Settings,
    node: &NodeFacts,
    lxd: &lxd_client::Client,
    instances: Lookup<Vec<String>>,
) -> Answer<MaasFacts> {
    let capabilities = maas.capabilities().await?;
    if !capabilities.vm_host_certificates {
        return Ok(MaasFacts::TooOld(capabilities.version.to_string()));
    }
    // Other users see only some of the machines and none of the keys: what they do not see is not absent (S1).
    let user = maas.whoami().await?;
    if user.is_superuser == Some(false) {
        return Ok(MaasFacts::Denied(format!("user {:?} is not an administrator", user.username)));
    }
    let machine = this_machine(maas, settings, node).await?;
    let host = match &machine {
        Lookup::Found(machine) => this_host(maas, settings, machine, lxd, instances).await?,
        Lookup::Absent | Lookup::Unknown(_) => Lookup::Unknown("this node's machine is not known".into()),
    };
    Ok(MaasFacts::Here(Box::new(MaasView { machine, host })))
}

/// The machine of this node: by the provider ID if the Node has one, otherwise by name and address together.
async fn this_machine(maas: &maas_client::Client, settings: &Settings, node: &NodeFacts) -> Answer<Lookup<Machine>> {
    let fact = |machine: &maas_client::Machine| Machine {
        system_id: machine.system_id.clone(),
        place: Place {
            zone: machine.zone.as_ref().map(|zone| zone.name.clone()).unwrap_or_default(),
            pool: machine.pool.as_ref().map(|pool| pool.name.clone()).unwrap_or_default(),
        },
    };
    if let Some(id) = &node.system_id {
        return match maas.machines().read(id).await {
            Ok(machine) => Ok(Lookup::Found(fact(&machine))),
            Err(error) if error.is_not_found() => Ok(Lookup::Absent),
            Err(error) => Err(error),
        };
    }
    let short = settings.node_name.split('.').next().unwrap_or(&settings.node_name);
    let named = maas.machines().list(&MachineFilter::hostname(short)).await?;
    let address = settings.node_ip.or(node.internal_ip).map(|ip| ip.to_string());
    let here: Vec<_> = named
        .iter()
        .filter(|machine| address.as_ref().is_some_and(|address| machine.ip_addresses.contains(address)))
        .collect();
    Ok(match here.as_slice() {
        [machine] => Lookup::Found(fact(machine)),
        [] => Lookup::Absent,
        _ => Lookup::Unknown(format!("MAAS shows {} machines named {short} with this node's address", here.len())),
    })
}

/// The VM host of this node. Whether LXD trusts the certificate of somebody else's is asked of LXD itself.
async fn this_host(
    maas: &maas_client::Client,
    settings: &Settings,
    machine: &Machine,
    lxd: &lxd_client::Client,
    instances: Lookup<Vec<String>>,
) -> Answer<Lookup<VmHost>> {
    let all = maas.vm_hosts().list().await?;
    let is_ours = |claim: &Claim<'_>| keys::is_own(claim.certificate, &settings.node_name);
    let (node, project) = (&settings.node_name, &settings.project);
    let wanted = Wanted { machine: &machine.system_id, node, project, instances };
    let mut found = registering::find(maas, &all, &wanted, &is_ours).await?;
    if let Lookup::Found(VmHost { certificate, maker: Maker::Foreign { trusted: known }, .. }) = &mut found {
        *known = match certificate.as_ref().and_then(|print| print.parse().ok()) {
            Some(print) => trusted(lxd, print).await.map(drop),
            None => Lookup::Absent,
        };
    }
    Ok(found)
}

#[cfg(test)]
mod tests {
    use std::sync::Arc;

    use capmaas_core::registration::New;
    use clap::Parser;

    use super::*;
    use crate::{
        cluster::KubeCluster,
        effect::{Effect, EffectKind},
        health::Status,
        settings::{Arguments, GivenCredentials},
    };

    #[tokio::test]
    async fn s26_a_refused_registration_quotes_maas_names_the_vm_host_and_is_backed_off() {
        let state = tempfile::tempdir().unwrap();
        keys::make(state.path(), "n2").unwrap();
        let folder = format!("--state-dir={}", state.path().display());
        let arguments = Arguments::try_parse_from(["lxd-initializer", "--node-name=n2", &folder]).unwrap();
        let settings = arguments.settle().unwrap().0;
        let cluster = Arc::new(KubeCluster::new(&settings));
        let mut agent = Agent::new(settings, GivenCredentials::default(), cluster, Arc::new(Status::default()));
        let transport = maas_client::transport::answering(|_| {
            let text = "Pod host-a with type and parameters already exist.";
            http::Response::builder().status(400).header("content-type", "text/plain").body(text.into()).unwrap()
        });
        let client = maas_client::Client::builder("http://maas.test/MAAS", "a:b:c").transport(transport).build();
        let (endpoint, key, client) = (String::new(), SecretString::default(), client.unwrap());
        agent.maas = Some(MaasConnection { endpoint, key, client, seen: None, from_memory: false });
        let new = New {
            name: "n2".into(),
            address: "https://10.0.0.7:8443".into(),
            project: "maas".into(),
            place: Place::default(),
            certificate: "f00d".into(),
        };
        let why = agent.attempt(&Effect::OnHost(Call::Register(Box::new(new)))).await.unwrap_err();
        for words in ["VM host n2 at https://10.0.0.7:8443", "Pod host-a with type and parameters", "remove it in MAAS"]
        {
            assert!(why.contains(words), "{words:?} is not in {why}");
        }
        let failure = &agent.memory.failures[&EffectKind::Register];
        assert!(failure.why == why && failure.retry > Timestamp::now());
        assert_eq!(intent::read(state.path()), Lookup::Absent, "a refused request is not in flight");
    }
}
