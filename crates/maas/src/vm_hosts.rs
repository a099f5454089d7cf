//! VM hosts: machines whose LXD MAAS uses.

use secrecy::SecretString;

use crate::Client;
use crate::call::Call;
use crate::compose::Compose;
use crate::error::{Error, Result};
use crate::machines::{MachineFilter, MachineReference};
use crate::pools::Pool;
use crate::tolerant::wire_type;
use crate::zones::Zone;

/// MAAS still calls them pods where it speaks of their absence.
const OBJECT: &[&str] = &["Pod", "VMHost", "VM host"];
/// Where MAAS looks for an LXD unless it is told.
const LXD_PORT: u16 = 8443;

wire_type! {
    /// A VM host.
    VmHost {
        required {
            /// The number.
            id: i64,
        }
        /// The name, which is not unique.
        name: Option<String>,
        /// `lxd` or `virsh`.
        #[serde(rename = "type")]
        kind: Option<String>,
        /// The version of its LXD; empty if MAAS has never reached it.
        version: Option<String>,
        /// What it can: `composable`, `over_commit`, … Empty if MAAS has never reached it.
        capabilities: Vec<String>,
        /// `amd64/generic`, …
        architectures: Vec<String>,
        /// Tags, which its VMs inherit.
        tags: Vec<String>,
        /// All it has. Zero in the answer to `create`, and filled some seconds later.
        total: Option<VmHostResources>,
        /// What VMs of all its projects use.
        used: Option<VmHostResources>,
        /// What is left; below zero with over-commit.
        available: Option<VmHostResources>,
        /// Where disks of VMs can lie.
        storage_pools: Vec<StoragePool>,
        /// Its zone.
        zone: Option<Zone>,
        /// Its pool, which its VMs get.
        pool: Option<Pool>,
        /// The machine it runs on.
        host: Option<MachineReference>,
        /// How often a core may be promised.
        cpu_over_commit_ratio: Option<f64>,
        /// How often a byte may be promised.
        memory_over_commit_ratio: Option<f64>,
    }
}

impl VmHost {
    /// Whether MAAS has reached it and can make VMs on it. From 3.1 on a host is stored even if its LXD is
    /// unreachable or does not trust MAAS: then [`refresh`](VmHosts::refresh) says why.
    pub fn is_reached(&self) -> bool {
        self.version.as_deref().is_some_and(|version| !version.is_empty())
            && self.capabilities.iter().any(|capability| capability == "composable")
    }

    /// Whether MAAS knows how much it has. Before that, every `compose` is refused.
    pub fn is_measured(&self) -> bool {
        let total = self.total.as_ref();
        [total.and_then(|total| total.cores), total.and_then(|total| total.memory)]
            .iter()
            .all(|amount| amount.is_some_and(|amount| amount > 0))
    }
}

wire_type! {
    /// What a VM host has, uses or has left.
    VmHostResources {
        /// Cores.
        cores: Option<i64>,
        /// MiB.
        memory: Option<i64>,
        /// Bytes.
        local_storage: Option<i64>,
    }
}

wire_type! {
    /// A storage pool of a VM host.
    StoragePool {
        /// The key.
        id: Option<String>,
        /// The name, as in LXD.
        name: Option<String>,
        /// `dir`, `zfs`, …
        #[serde(rename = "type")]
        kind: Option<String>,
        /// Bytes.
        total: Option<i64>,
        /// Bytes.
        used: Option<i64>,
        /// Bytes.
        available: Option<i64>,
        /// Whether disks lie here unless said otherwise.
        default: Option<bool>,
    }
}

wire_type! {
    /// How MAAS talks to a VM host. Needs an administrator.
    VmHostParameters {
        /// As it was given: `10.0.0.1:8443` and `https://10.0.0.1:8443` are two addresses to MAAS.
        power_address: Option<String>,
        /// The project of LXD.
        project: Option<String>,
        /// The certificate that LXD must trust, in PEM.
        certificate: Option<String>,
        /// Its private key, in PEM.
        key: Option<SecretString>,
        /// The trust password, as long as it was not used.
        password: Option<SecretString>,
    }
}

impl VmHostParameters {
    /// Where its LXD is, as `https://address:port`, however it was given: MAAS itself adds what is missing.
    pub fn url(&self) -> String {
        let given = self.power_address.as_deref().unwrap_or_default();
        let bare = given.trim_start_matches("https://").trim_end_matches('/');
        let has_port = bare
            .rsplit_once(':')
            .is_some_and(|(host, port)| port.parse::<u16>().is_ok() && (host.ends_with(']') || !host.contains(':')));
        if has_port || bare.is_empty() { format!("https://{bare}") } else { format!("https://{bare}:{LXD_PORT}") }
    }
}

wire_type! {
    /// A VM that was just made.
    Composed {
        required {
            /// Its key as a machine.
            system_id: String,
        }
    }
}

/// How MAAS shall prove itself to LXD.
#[derive(Debug, Clone, Default)]
pub enum VmHostAuth {
    /// MAAS makes a certificate; add it to LXD afterwards and refresh.
    #[default]
    Generated,
    /// With this pair, in PEM (from 3.1). The only way that makes a second registration an error and not a second
    /// host.
    Certificate {
        /// The certificate.
        certificate: String,
        /// Its private key.
        key: SecretString,
    },
    /// By a trust password, or a trust token of LXD.
    Password(SecretString),
}

/// A VM host to be. Registering makes MAAS power-cycle and commission every running VM in the project that it does
/// not know.
#[derive(Debug, Clone)]
pub struct NewVmHost {
    /// The name; MAAS does not keep it unique.
    pub name: String,
    /// `10.0.0.1:8443`. MAAS compares it letter by letter.
    pub power_address: String,
    /// The project of LXD.
    pub project: String,
    /// How MAAS proves itself.
    pub auth: VmHostAuth,
    /// The zone, by name.
    pub zone: Option<String>,
    /// The pool, by name.
    pub pool: Option<String>,
    /// Tags, which VMs inherit.
    pub tags: Vec<String>,
    /// How often a core may be promised.
    pub cpu_over_commit_ratio: Option<f64>,
    /// How often a byte may be promised.
    pub memory_over_commit_ratio: Option<f64>,
    /// The storage pool of disks that name none.
    pub default_storage_pool: Option<String>,
}

impl NewVmHost {
    /// A host with MAAS's defaults for everything else.
    pub fn new(
        name: impl Into<String>,
        power_address: impl Into<String>,
        project: impl Into<String>,
        auth: VmHostAuth,
    ) -> Self {
        Self {
            name: name.into(),
            power_address: power_address.into(),
            project: project.into(),
            auth,
            zone: None,
            pool: None,
            tags: Vec::new(),
            cpu_over_commit_ratio: None,
            memory_over_commit_ratio: None,
            default_storage_pool: None,
        }
    }
}

/// What to change about a VM host. What is None stays as it is.
#[derive(Debug, Clone, Default)]
pub struct VmHostUpdate {
    /// The name.
    pub name: Option<String>,
    /// The zone, by name.
    pub zone: Option<String>,
    /// The pool, by name.
    pub pool: Option<String>,
    /// Where it is now. MAAS tries it at once, and stores it even if nobody answers there.
    pub power_address: Option<String>,
    /// The certificate with which MAAS shall prove itself from now on, in PEM; stored even if LXD does not trust it.
    pub certificate: Option<String>,
    /// Its private key, in PEM.
    pub key: Option<SecretString>,
    /// How often a core may be promised.
    pub cpu_over_commit_ratio: Option<f64>,
    /// How often a byte may be promised.
    pub memory_over_commit_ratio: Option<f64>,
    /// The storage pool of disks that name none.
    pub default_storage_pool: Option<String>,
}

/// Calls about VM hosts; see [`Client::vm_hosts`]. All but the list need an administrator.
#[derive(Debug, Clone, Copy)]
pub struct VmHosts<'a> {
    client: &'a Client,
}

impl Client {
    /// VM hosts.
    pub fn vm_hosts(&self) -> VmHosts<'_> {
        VmHosts { client: self }
    }
}

impl VmHosts<'_> {
    /// All VM hosts. Costs MAAS some 37 ms a host.
    pub async fn list(&self) -> Result<Vec<VmHost>> {
        self.client.json(Call::get("vm_hosts.list", "vm-hosts/", &[])?).await
    }

    /// One VM host.
    pub async fn read(&self, id: i64) -> Result<VmHost> {
        self.client.json(Call::get("vm_hosts.read", "vm-hosts/{id}/", &[&id.to_string()])?.of(OBJECT)).await
    }

    /// How MAAS talks to a VM host.
    pub async fn parameters(&self, id: i64) -> Result<VmHostParameters> {
        let call = Call::get("vm_hosts.parameters", "vm-hosts/{id}/?op=parameters", &[&id.to_string()])?;
        self.client.json(call.of(OBJECT)).await
    }

    /// Registers a VM host. Success does not mean that MAAS reached it: see [`VmHost::is_reached`]. Never repeated:
    /// list first, because a second registration may make a second host.
    pub async fn create(&self, host: &NewVmHost) -> Result<VmHost> {
        const OPERATION: &str = "vm_hosts.create";
        let mut call = Call::post(OPERATION, "vm-hosts/", &[])?
            .field("type", "lxd")
            .field("name", &host.name)
            .field("power_address", &host.power_address)
            .field("project", &host.project)
            .maybe("zone", host.zone.as_ref())
            .maybe("pool", host.pool.as_ref())
            .maybe("cpu_over_commit_ratio", host.cpu_over_commit_ratio)
            .maybe("memory_over_commit_ratio", host.memory_over_commit_ratio)
            .maybe("default_storage_pool", host.default_storage_pool.as_ref());
        if !host.tags.is_empty() {
            call = call.field("tags", host.tags.join(","));
        }
        call = match &host.auth {
            VmHostAuth::Generated => call,
            // Not `power_pass`, as MAAS's documentation has it: that one is ignored.
            VmHostAuth::Password(password) => call.secret("password", password),
            VmHostAuth::Certificate { certificate, key } => {
                self.needs_certificates(OPERATION).await?;
                call.field("certificate", certificate).secret("key", key)
            }
        };
        self.client.json(call).await
    }

    /// MAAS 3.0 would ignore the pair and use its own.
    async fn needs_certificates(&self, operation: &'static str) -> Result<()> {
        let capabilities = self.client.capabilities().await?;
        if capabilities.vm_host_certificates {
            return Ok(());
        }
        let message = format!("a certificate of one's own needs MAAS 3.1, this is {}", capabilities.version);
        Err(Error::unsupported(operation, message))
    }

    /// Changes a VM host.
    pub async fn update(&self, id: i64, update: &VmHostUpdate) -> Result<VmHost> {
        const OPERATION: &str = "vm_hosts.update";
        if update.certificate.is_some() || update.key.is_some() {
            self.needs_certificates(OPERATION).await?;
        }
        let call = Call::put(OPERATION, "vm-hosts/{id}/", &[&id.to_string()])?
            .of(OBJECT)
            .maybe("name", update.name.as_ref())
            .maybe("zone", update.zone.as_ref())
            .maybe("pool", update.pool.as_ref())
            .maybe("power_address", update.power_address.as_ref())
            .maybe("cpu_over_commit_ratio", update.cpu_over_commit_ratio)
            .maybe("memory_over_commit_ratio", update.memory_over_commit_ratio)
            .maybe("default_storage_pool", update.default_storage_pool.as_ref());
        let call = call.maybe("certificate", update.certificate.as_ref());
        let call = match &update.key {
            Some(key) => call.secret("key", key),
            None => call,
        };
        self.client.json(call).await
    }

    /// Which of these instances of its project MAAS does not know as VMs of the host. [`refresh`](Self::refresh),
    /// [`update`](Self::update) and a second registration restart and commission them.
    pub async fn strangers(&self, id: i64, instances: &[String]) -> Result<Vec<String>> {
        if instances.is_empty() {
            return Ok(Vec::new());
        }
        let filter = MachineFilter { hostnames: instances.to_vec(), ..MachineFilter::default() };
        let known = self.client.machines().list(&filter).await?;
        let is_known = |name: &&String| {
            known.iter().any(|machine| {
                machine.hostname.as_ref() == Some(*name) && machine.pod.as_ref().is_some_and(|pod| pod.id == id)
            })
        };
        Ok(instances.iter().filter(|name| !is_known(name)).cloned().collect())
    }

    /// Has MAAS look at the host again. VMs of the project that MAAS does not know become machines, are
    /// power-cycled and commissioned; machines whose VM is gone are deleted.
    pub async fn refresh(&self, id: i64) -> Result<VmHost> {
        let call = Call::post("vm_hosts.refresh", "vm-hosts/{id}/?op=refresh", &[&id.to_string()])?;
        self.client.json(call.of(OBJECT)).await
    }

    /// Makes a VM. Never repeated: look by its host name whether a lost answer was a yes.
    pub async fn compose(&self, id: i64, compose: &Compose) -> Result<Composed> {
        let call = Call::post("vm_hosts.compose", "vm-hosts/{id}/?op=compose", &[&id.to_string()])?;
        self.client.json(compose.apply(call.of(OBJECT))?).await
    }

    /// Puts a tag on the host.
    pub async fn add_tag(&self, id: i64, tag: &str) -> Result<VmHost> {
        let call = Call::post("vm_hosts.add_tag", "vm-hosts/{id}/?op=add_tag", &[&id.to_string()])?;
        self.client.json(call.of(OBJECT).field("tag", tag)).await
    }

    /// Takes a tag from the host; one that it has not is fine.
    pub async fn remove_tag(&self, id: i64, tag: &str) -> Result<VmHost> {
        let call = Call::post("vm_hosts.remove_tag", "vm-hosts/{id}/?op=remove_tag", &[&id.to_string()])?;
        self.client.json(call.of(OBJECT).field("tag", tag)).await
    }

    /// Forgets a VM host. MAAS forgets its VMs as well, locked ones included; they go on running in LXD.
    pub async fn delete(&self, id: i64) -> Result<()> {
        self.client.empty(Call::delete("vm_hosts.delete", "vm-hosts/{id}/", &[&id.to_string()])?.of(OBJECT)).await
    }

    /// Forgets a VM host **and destroys its VMs**, up to a minute for each. MAAS swallows errors of that.
    pub async fn delete_and_decompose(&self, id: i64) -> Result<()> {
        let call = Call::delete("vm_hosts.delete_and_decompose", "vm-hosts/{id}/", &[&id.to_string()])?;
        self.client.empty(call.of(OBJECT).query("decompose", true)).await
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn addresses_that_mean_the_same_to_maas_are_the_same() {
        let url = |given: &str| {
            let answer = serde_json::json!({ "power_address": given });
            serde_json::from_value::<VmHostParameters>(answer).unwrap().url()
        };
        for given in
            ["192.0.2.1:8443", "https://192.0.2.1:8443", "https://192.0.2.1:8443/", "192.0.2.1", "https://192.0.2.1"]
        {
            assert_eq!(url(given), "https://192.0.2.1:8443", "{given}");
        }
        assert_eq!(url("[2001:db8::1]"), "https://[2001:db8::1]:8443");
        assert_eq!(url("https://[2001:db8::1]:9443"), "https://[2001:db8::1]:9443");
    }
}
