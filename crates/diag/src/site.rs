//! This node from the outside: its LXD over the network with the key pair of `lxd-test`, and MAAS's view of it.

use std::net::{IpAddr, SocketAddr};

use anyhow::{anyhow, bail};
use clap::Parser;
use jiff::Timestamp;
use lxd_client::Identity;
use lxd_initializer::{
    decide::decide,
    keys,
    observed::{
        BridgeFacts, Certificate, Lookup, LxdFacts, MaasFacts, MaasView, Machine, Memory, NodeFacts, Observed, Place,
        PoolFacts, Probe, ServerFacts, TrustFacts, VmHost,
    },
    plan::Plan,
    registering::{self, Claim, Wanted},
    requirements,
    settings::{Arguments, Settings},
};
use maas_client::{Client, MachineFilter};

use crate::{
    Checklist,
    kept::{Kept, LxdHost},
    options::MaasOptions,
    read_maas,
};

/// This node, reached and identified.
pub(crate) struct Site {
    pub(crate) maas: Client,
    pub(crate) lxd: lxd_client::Client,
    pub(crate) lxd_version: String,
    pub(crate) identity: Identity,
    pub(crate) certificate: Certificate,
    pub(crate) settings: Settings,
    pub(crate) address: SocketAddr,
    pub(crate) machine: Machine,
}

impl Site {
    /// Finds key pair, LXD and machine. `None` if something is wrong, which is then on the list.
    pub(crate) async fn open(maas: Client, ip: IpAddr, options: &MaasOptions, list: &mut Checklist) -> Option<Self> {
        let kept = Kept::new(options.key_dir.as_deref());
        let (identity, certificate, host) = match credentials(&kept, ip, options) {
            Ok(found) => found,
            Err(error) => {
                let mend = "run sudo ./lxd-test-linux on this node first, as this user (or give --key-dir)";
                list.failed("Key pair", format!("{error:#}"), mend);
                return None;
            }
        };
        list.good("Key pair", format!("{} contains {}", kept.key_file().display(), certificate.fingerprint));
        let (lxd, lxd_version) = reach(&host, &identity, list).await?;
        let machine = match machine(&maas, &host.node, ip).await {
            Ok(machine) => machine,
            Err(error) => {
                read_maas::failed(list, "Machine", &error);
                return None;
            }
        };
        let (machine, name) = match machine {
            Lookup::Found(found) => found,
            Lookup::Absent => {
                let found = format!("MAAS knows no machine with address {ip}, so it cannot know where the VMs run");
                list.failed(
                    "Machine",
                    found,
                    "give the address that MAAS shows for this node; only nodes of MAAS can be hosts",
                );
                return None;
            }
            Lookup::Unknown(why) => {
                list.failed("Machine", why, "give an address that only this node has");
                return None;
            }
        };
        let Machine { system_id, place: Place { zone, pool } } = &machine;
        list.good("Machine", format!("this node is machine {name} ({system_id}), zone {zone}, pool {pool}"));
        let settings = match settings(&host, &name, ip, &kept, options) {
            Ok(settings) => settings,
            Err(error) => {
                list.failed("Options", format!("{error:#}"), "see --help");
                return None;
            }
        };
        Some(Self { maas, lxd, lxd_version, identity, certificate, settings, address: host.address, machine })
    }

    /// The instances in the project now.
    pub(crate) async fn instances(&self) -> Result<Vec<String>, lxd_client::Error> {
        let instances = self.lxd.instances(&self.settings.project).await?;
        Ok(instances.into_iter().map(|instance| instance.name).collect())
    }

    /// The library's decision about this node's registration, and the VM host if there is one.
    ///
    /// Pool, bridge and project are checked by `lxd-test`, and cannot be seen with a certificate that is restricted to
    /// a project: they are assumed to be as that program left them.
    pub(crate) async fn decide(&self) -> Result<(Plan, Option<VmHost>), maas_client::Error> {
        let instances = match self.instances().await {
            Ok(instances) => Lookup::Found(instances),
            Err(error) => Lookup::Unknown(error.to_string()),
        };
        let host = self.vm_host(instances.clone()).await?;
        let server = ServerFacts {
            product: "lxd".into(),
            version: self.lxd_version.clone(),
            trusted: true,
            clustered: false,
            missing_extensions: Vec::new(),
            virtual_machines: true,
            storage_drivers: vec![self.settings.pool.driver.clone()],
            trust_password: false,
            listener: Some(self.address.to_string()),
            listener_note: None,
            fingerprint: None,
            pool: Lookup::Found(PoolFacts { driver: self.settings.pool.driver.clone(), status: "Created".into() }),
            bridge: Lookup::Found(BridgeFacts { kind: "bridge".into(), ports: vec!["port".into()] }),
            project: Lookup::Found(requirements::project_config()),
            instances,
            profiles: Lookup::Absent,
            trust: Lookup::Found(TrustFacts { restricted: true, projects: vec![self.settings.project.clone()] }),
            earlier: Lookup::Absent,
            probe: Probe::Trusted,
        };
        let node = NodeFacts {
            internal_ip: Some(self.address.ip()),
            system_id: Some(self.machine.system_id.clone()),
            ..NodeFacts::default()
        };
        let view = MaasView { machine: Lookup::Found(self.machine.clone()), host: host.clone() };
        let observed = Observed {
            node: Lookup::Found(node),
            api_key: Lookup::Found(()),
            endpoint: Lookup::Found(self.maas.endpoint().to_string()),
            given_certificate: Lookup::Absent,
            own_certificate: Lookup::Found(self.certificate.clone()),
            lxd: LxdFacts::Here(Box::new(server)),
            maas: MaasFacts::Here(Box::new(view)),
            intent: Lookup::Absent,
            memory: Memory::default(),
        };
        Ok((decide(&self.settings, &observed, Timestamp::now()), host.found().cloned()))
    }

    /// The VM host of this node. It is ours if it has our key, by this run or by an interrupted one.
    async fn vm_host(&self, instances: Lookup<Vec<String>>) -> Result<Lookup<VmHost>, maas_client::Error> {
        let all = self.maas.vm_hosts().list().await?;
        let own = self.certificate.fingerprint.to_string();
        let is_ours = |claim: &Claim<'_>| claim.fingerprint == Some(own.as_str());
        let Settings { node_name: node, project, .. } = &self.settings;
        let wanted = Wanted { machine: &self.machine.system_id, node, project, instances };
        registering::find(&self.maas, &all, &wanted, &is_ours).await
    }
}

fn credentials(kept: &Kept, ip: IpAddr, options: &MaasOptions) -> anyhow::Result<(Identity, Certificate, LxdHost)> {
    let identity = match kept.identity() {
        Lookup::Found(identity) => identity,
        Lookup::Absent => bail!("there is no key pair at {}", kept.key_file().display()),
        Lookup::Unknown(why) => bail!(why),
    };
    let Lookup::Found(certificate) = keys::fact(&identity) else { bail!("the certificate cannot be read") };
    let mut host = kept
        .host()?
        .ok_or_else(|| anyhow!("lxd-test has not succeeded yet: {} has no record", kept.dir().display()))?;
    if let Some(project) = &options.lxd_project
        && *project != host.project
    {
        bail!("lxd-test prepared project {:?}, not {project:?}: the certificate is bound to it", host.project);
    }
    if host.address.ip() != ip {
        // The machine may have several addresses; the pinned certificate shows which of them is LXD's.
        host.address.set_ip(ip);
    }
    Ok((identity, certificate, host))
}

/// The VM host has the machine's name in MAAS; the node's own hostname may be anything.
fn settings(host: &LxdHost, name: &str, ip: IpAddr, kept: &Kept, options: &MaasOptions) -> anyhow::Result<Settings> {
    let words = [
        "lxd-initializer".to_owned(),
        format!("--node-name={name}"),
        format!("--node-ip={ip}"),
        format!("--lxd-port={}", host.address.port()),
        format!("--lxd-project={}", host.project),
        format!("--zone={}", options.zone),
        format!("--resource-pool={}", options.resource_pool),
        format!("--state-dir={}", kept.dir().display()),
    ];
    Ok(Arguments::try_parse_from(words)?.settle()?.0)
}

/// Connects to LXD as MAAS will: over TLS, with the certificate, in the project.
async fn reach(host: &LxdHost, identity: &Identity, list: &mut Checklist) -> Option<(lxd_client::Client, String)> {
    const SUBJECT: &str = "LXD";
    let at = host.address;
    let lxd = match lxd_client::Client::tls(&format!("https://{at}"), host.fingerprint, Some(identity)) {
        Ok(lxd) => lxd,
        Err(error) => {
            list.failed(SUBJECT, error.to_string(), "run sudo ./lxd-test-linux again");
            return None;
        }
    };
    match lxd.server_in_project(&host.project).await {
        Ok(server) if server.is_trusted() => {
            let version = server.environment.server_version;
            list.good(SUBJECT, format!("{version} answers on {at} and trusts the certificate"));
            Some((lxd, version))
        }
        Ok(_) => {
            let found = format!("LXD answers on {at} but does not trust the certificate");
            list.failed(SUBJECT, found, "run sudo ./lxd-test-linux again; lxc config trust list shows whom LXD trusts");
            None
        }
        Err(error) => {
            let mend = "check whether LXD runs and listens on that address (lxc config get core.https_address), for a \
                        firewall, and whether --node-ip is this node; then run sudo ./lxd-test-linux again";
            let cause = std::error::Error::source(&error).map(|cause| format!(": {cause}")).unwrap_or_default();
            list.failed(SUBJECT, format!("LXD on {at}: {error}{cause}"), mend);
            None
        }
    }
}

/// The machine with this address and its name in MAAS: by the node's name first, since a list of all can take half a
/// minute.
async fn machine(maas: &Client, node: &str, ip: IpAddr) -> Result<Lookup<(Machine, String)>, maas_client::Error> {
    let short = node.split('.').next().unwrap_or(node);
    let ip = ip.to_string();
    for filter in [MachineFilter::hostname(short), MachineFilter::default()] {
        let machines = maas.machines().list(&filter).await?;
        let here: Vec<_> = machines.iter().filter(|machine| machine.ip_addresses.contains(&ip)).collect();
        match here.as_slice() {
            [] => {}
            [machine] => {
                let name = machine.hostname.clone().unwrap_or_else(|| machine.system_id.clone());
                let machine = Machine {
                    system_id: machine.system_id.clone(),
                    place: Place {
                        zone: machine.zone.as_ref().map(|zone| zone.name.clone()).unwrap_or_default(),
                        pool: machine.pool.as_ref().map(|pool| pool.name.clone()).unwrap_or_default(),
                    },
                };
                return Ok(Lookup::Found((machine, name)));
            }
            several => return Ok(Lookup::Unknown(format!("MAAS shows {} machines with address {ip}", several.len()))),
        }
    }
    Ok(Lookup::Absent)
}
