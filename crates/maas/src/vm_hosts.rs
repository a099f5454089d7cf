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

/// In its 404 messages MAAS still calls them pods.
const OBJECT: &[&str] = &["Pod", "VMHost", "VM host"];
/// MAAS's default port for LXD.
const LXD_PORT: u16 = 8443;

wire_type! {
    /// A VM host.
    VmHost {
        required {
            /// The id.
            id: i64,
        }
        /// The name, which is not unique.
        name: Option<String>,
        /// `lxd` or `virsh`.
        #[serde(rename = "type")]
        kind: Option<String>,
        /// The version of its LXD; empty if MAAS has never reached it.
        version: Option<String>,
        /// Its capabilities: `composable`, `over_commit`, … Empty if MAAS has never reached it.
        capabilities: Vec<String>,
        /// `amd64/generic`, …
        architectures: Vec<String>,
        /// Tags, which its VMs inherit.
        tags: Vec<String>,
        /// Its total resources. Zero in the answer to `create`, and filled some seconds later.
        total: Option<VmHostResources>,
        /// What the VMs of all its projects use.
        used: Option<VmHostResources>,
        /// What is free; negative with over-commit.
        available: Option<VmHostResources>,
        /// Its storage pools for VM disks.
        storage_pools: Vec<StoragePool>,
        /// Its zone.
        zone: Option<Zone>,
        /// Its pool, which its VMs get.
        pool: Option<Pool>,
        /// The machine it runs on.
        host: Option<MachineReference>,
        /// The over-commit ratio of cores.
        cpu_over_commit_ratio: Option<f64>,
        /// The over-commit ratio of memory.
        memory_over_commit_ratio: Option<f64>,
    }
}

impl VmHost {
    /// Whether MAAS has reached it and can compose VMs on it. From 3.1 on a host is stored even if its LXD is
    /// unreachable or does not trust MAAS; the error of [`refresh`](VmHosts::refresh) then explains why.
    pub fn is_reached(&self) -> bool {
        self.version.as_deref().is_some_and(|version| !version.is_empty())
            && self.capabilities.iter().any(|capability| capability == "composable")
    }

    /// Whether MAAS knows its resources. Before that, every `compose` is refused.
    pub fn is_measured(&self) -> bool {
        let total = self.total.as_ref();
        [total.and_then(|total| total.cores), total.and_then(|total| total.memory)]
            .iter()
            .all(|amount| amount.is_some_and(|amount| amount > 0))
    }
}

wire_type! {
    /// What a VM host has, uses or has free.
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
        /// The id.
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
        /// Whether it is the default for disks.
        default: Option<bool>,
    }
}

wire_type! {
    /// How MAAS connects to a VM host. Needs an administrator.
    VmHostParameters {
        /// As it was given: to MAAS, `10.0.0.1:8443` and `https://10.0.0.1:8443` are two addresses.
        power_address: Option<String>,
        /// The LXD project.
        project: Option<String>,
        /// The certificate that LXD must trust, in PEM.
        certificate: Option<String>,
        /// Its private key, in PEM.
        key: Option<SecretString>,
        /// The trust password, until it is used.
        password: Option<SecretString>,
    }
}

impl VmHostParameters {
    /// The URL of its LXD, as `https://address:port`, however the address was given: MAAS itself adds what is missing.
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
    /// A newly composed VM.
    Composed {
        required {
            /// Its id as a machine.
            system_id: String,
        }
    }
}

/// How MAAS authenticates to LXD.
#[derive(Debug, Clone, Default)]
pub enum VmHostAuth {
    /// MAAS generates a certificate; add it to LXD afterwards and refresh.
    #[default]
    Generated,
    /// With this pair, in PEM (from 3.1). Only with this, a second registration is an error instead of a second host.
    Certificate {
        /// The certificate.
        certificate: String,
        /// Its private key.
        key: SecretString,
    },
    /// With a trust password or trust token of LXD.
    Password(SecretString),
}

/// A new VM host. On registration, MAAS power-cycles and commissions every running VM in the project that it does not
/// know.
#[derive(Debug, Clone)]
pub struct NewVmHost {
    /// The name; MAAS does not enforce that it is unique.
    pub name: String,
    /// `10.0.0.1:8443`. MAAS compares it character by character.
    pub power_address: String,
    /// The LXD project.
    pub project: String,
    /// How MAAS authenticates.
    pub auth: VmHostAuth,
    /// The zone, by name.
    pub zone: Option<String>,
    /// The pool, by name.
    pub pool: Option<String>,
    /// Tags, which VMs inherit.
    pub tags: Vec<String>,
    /// The over-commit ratio of cores.
    pub cpu_over_commit_ratio: Option<f64>,
    /// The over-commit ratio of memory.
    pub memory_over_commit_ratio: Option<f64>,
    /// The default storage pool for disks.
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

/// What to change about a VM host. None leaves a field unchanged.
#[derive(Debug, Clone, Default)]
pub struct VmHostUpdate {
    /// The name.
    pub name: Option<String>,
    /// The zone, by name.
    pub zone: Option<String>,
    /// The pool, by name.
    pub pool: Option<String>,
    /// The new address. MAAS connects to it at once, and stores it even if nothing answers there.
    pub power_address: Option<String>,
    /// The new certificate with which MAAS authenticates, in PEM; stored even if LXD does not trust it.
    pub certificate: Option<String>,
    /// Its private key, in PEM.
    pub key: Option<SecretString>,
    /// The over-commit ratio of cores.
    pub cpu_over_commit_ratio: Option<f64>,
    /// The over-commit ratio of memory.
    pub memory_over_commit_ratio: Option<f64>,
    /// The default storage pool for disks.
    pub default_storage_pool: Option<String>,
}

/// Calls about VM hosts; see [`Client::vm_hosts`]. All except the list need an administrator.
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
    /// All VM hosts. Takes MAAS some 37 ms per host.
    pub async fn list(&self) -> Result<Vec<VmHost>> {
        self.client.json(Call::get("vm_hosts.list", "vm-hosts/", &[])?).await
    }

    /// One VM host.
    pub async fn read(&self, id: i64) -> Result<VmHost> {
        self.client.json(Call::get("vm_hosts.read", "vm-hosts/{id}/", &[&id.to_string()])?.of(OBJECT)).await
    }

    /// How MAAS connects to a VM host.
    pub async fn parameters(&self, id: i64) -> Result<VmHostParameters> {
        let call = Call::get("vm_hosts.parameters", "vm-hosts/{id}/?op=parameters", &[&id.to_string()])?;
        self.client.json(call.of(OBJECT)).await
    }

    /// Registers a VM host. Success does not mean that MAAS reached it: see [`VmHost::is_reached`]. Never retried: list
    /// first, because a second registration may create a second host.
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
            // Not `power_pass`, as in MAAS's documentation: that field is ignored.
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

    /// Makes MAAS refresh the host. VMs of the project that MAAS does not know become machines, are power-cycled and
    /// commissioned; machines whose VM no longer exists are deleted.
    pub async fn refresh(&self, id: i64) -> Result<VmHost> {
        let call = Call::post("vm_hosts.refresh", "vm-hosts/{id}/?op=refresh", &[&id.to_string()])?;
        self.client.json(call.of(OBJECT)).await
    }

    /// Composes a VM. Never retried: if the answer is lost, look the VM up by its host name.
    pub async fn compose(&self, id: i64, compose: &Compose) -> Result<Composed> {
        let call = Call::post("vm_hosts.compose", "vm-hosts/{id}/?op=compose", &[&id.to_string()])?;
        self.client.json(compose.apply(call.of(OBJECT))?).await
    }

    /// Adds a tag to the host.
    pub async fn add_tag(&self, id: i64, tag: &str) -> Result<VmHost> {
        let call = Call::post("vm_hosts.add_tag", "vm-hosts/{id}/?op=add_tag", &[&id.to_string()])?;
        self.client.json(call.of(OBJECT).field("tag", tag)).await
    }

    /// Removes a tag from the host; a missing one is not an error.
    pub async fn remove_tag(&self, id: i64, tag: &str) -> Result<VmHost> {
        let call = Call::post("vm_hosts.remove_tag", "vm-hosts/{id}/?op=remove_tag", &[&id.to_string()])?;
        self.client.json(call.of(OBJECT).field("tag", tag)).await
    }

    /// Unregisters a VM host. MAAS also removes its VMs, including locked ones; they keep running in LXD.
    pub async fn delete(&self, id: i64) -> Result<()> {
        self.client.empty(Call::delete("vm_hosts.delete", "vm-hosts/{id}/", &[&id.to_string()])?.of(OBJECT)).await
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
