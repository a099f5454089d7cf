//! This node from the outside: its LXD over the network with the key pair of `lxd-test`, and MAAS's view of it.

use std::{
    net::{IpAddr, SocketAddr},
    path::PathBuf,
};

use anyhow::{anyhow, bail};
use capmaas_core::registration::{Facts, Lxd, Wanted};
use jiff::Timestamp;
use lxd_client::Identity;
use lxd_initializer::{
    intent, keys,
    observed::{Certificate, Lookup, Machine, Place, VmHost},
    registering::{self, Claim},
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
    pub(crate) identity: Identity,
    pub(crate) certificate: Certificate,
    pub(crate) node: String,
    /// The LXD project that `lxd-test` prepared.
    pub(crate) project: String,
    pub(crate) address: SocketAddr,
    pub(crate) machine: Machine,
    wanted: Wanted,
    /// The directory with the intent to register this node.
    pub(crate) intents: PathBuf,
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
        let lxd = reach(&host, &identity, list).await?;
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
        let given = |text: &String| Some(text.clone()).filter(|text| !text.is_empty());
        let wanted = Wanted { zone: given(&options.zone), pool: given(&options.resource_pool), keep_place: false };
        Some(Self {
            maas,
            lxd,
            identity,
            certificate,
            // The VM host has the machine's name in MAAS; the node's own hostname may be anything.
            node: name,
            project: host.project,
            address: host.address,
            machine,
            wanted,
            intents: kept.intent_dir(),
        })
    }

    /// The instances in the project now.
    pub(crate) async fn instances(&self) -> Result<Vec<String>, lxd_client::Error> {
        let instances = self.lxd.instances(&self.project).await?;
        Ok(instances.into_iter().map(|instance| instance.name).collect())
    }

    /// Everything that the decision about this node's registration depends on. Pool, bridge and project were checked by
    /// `lxd-test`, and cannot be seen with a certificate that is restricted to a project.
    pub(crate) async fn facts(&self, refreshed: Option<Timestamp>) -> Result<Facts, maas_client::Error> {
        let instances = match self.instances().await {
            Ok(instances) => Lookup::Found(instances),
            Err(error) => Lookup::Unknown(error.to_string()),
        };
        let certificate = self.certificate.fingerprint.to_string();
        Ok(Facts {
            machine: Lookup::Found(self.machine.clone()),
            node: self.node.clone(),
            vm_host: self.vm_host(instances.clone()).await?,
            lxd: Lookup::Found(Lxd {
                address: format!("https://{}", self.address),
                project: self.project.clone(),
                instances,
            }),
            wanted: self.wanted.clone(),
            intent: intent::read(&self.intents),
            certificate: Lookup::Found(certificate),
            refreshed,
        })
    }

    /// The VM host of this node. It is ours if it has our key, by this run or by an interrupted one.
    async fn vm_host(&self, instances: Lookup<Vec<String>>) -> Result<Lookup<VmHost>, maas_client::Error> {
        let all = self.maas.vm_hosts().list().await?;
        let own = self.certificate.fingerprint.to_string();
        let is_ours = |claim: &Claim<'_>| claim.fingerprint == Some(own.as_str());
        let (node, project) = (&self.node, &self.project);
        let wanted = registering::Wanted { machine: &self.machine.system_id, node, project, instances };
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

/// Connects to LXD as MAAS will: over TLS, with the certificate, in the project.
async fn reach(host: &LxdHost, identity: &Identity, list: &mut Checklist) -> Option<lxd_client::Client> {
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
            Some(lxd)
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
