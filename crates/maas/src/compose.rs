//! Parameters of a new VM.

use crate::call::Call;
use crate::error::{Error, Result};

/// The VM to compose on a VM host.
#[derive(Debug, Clone, Default)]
pub struct Compose {
    /// The name. Unique in MAAS, so it identifies the VM; without one MAAS generates it.
    pub hostname: Option<String>,
    /// Cores (1).
    pub cores: Option<u32>,
    /// MiB, at least 1024 (2048).
    pub memory_mib: Option<u32>,
    /// Disks; the first is the root disk (8 GB).
    pub disks: Vec<ComposeDisk>,
    /// Interfaces; without any MAAS chooses one with DHCP.
    pub interfaces: Vec<ComposeInterface>,
    /// The zone, **by id**. Without it the VM gets the default zone, not that of its host.
    pub zone: Option<i64>,
    /// The pool, **by id**. Without it the VM gets that of its host.
    pub pool: Option<i64>,
    /// The domain, **by id**.
    pub domain: Option<i64>,
    /// `amd64/generic`
    pub architecture: Option<String>,
    /// Become Ready at once. Without commissioning anyone may allocate the VM from this moment on.
    pub skip_commissioning: bool,
}

/// A disk of a new VM.
#[derive(Debug, Clone)]
pub struct ComposeDisk {
    /// Its label.
    pub label: String,
    /// Size in GB (10⁹ bytes).
    pub gigabytes: u32,
    /// The storage pool. MAAS ignores one that does not exist.
    pub pool: Option<String>,
}

/// An interface of a new VM.
#[derive(Debug, Clone)]
pub struct ComposeInterface {
    /// Its name.
    pub name: String,
    /// What it must be connected to, for example `("subnet_cidr", "10.0.0.0/24")` and `("ip", "10.0.0.9")`.
    pub constraints: Vec<(String, String)>,
}

impl Compose {
    pub(crate) fn apply(&self, call: Call) -> Result<Call> {
        let fit = |what: &str, text: &str| {
            if text.is_empty() || text.contains([',', ';', '(', ')', '=']) || (what != "value" && text.contains(':')) {
                let message = format!("{text:?} cannot be part of a constraint");
                return Err(Error::refused("vm_hosts.compose", message));
            }
            Ok(())
        };
        let mut storage = Vec::new();
        for disk in &self.disks {
            fit("label", &disk.label)?;
            let pool = match &disk.pool {
                Some(pool) => {
                    fit("pool", pool)?;
                    format!("({pool})")
                }
                None => String::new(),
            };
            storage.push(format!("{}:{}{pool}", disk.label, disk.gigabytes));
        }
        let mut interfaces = Vec::new();
        for interface in &self.interfaces {
            fit("name", &interface.name)?;
            for (key, value) in &interface.constraints {
                fit("key", key)?;
                fit("value", value)?;
            }
            let constraints: Vec<_> =
                interface.constraints.iter().map(|(key, value)| format!("{key}={value}")).collect();
            interfaces.push(format!("{}:{}", interface.name, constraints.join(",")));
        }
        let some = |joined: String| Some(joined).filter(|joined| !joined.is_empty());
        Ok(call
            .maybe("hostname", self.hostname.as_ref())
            .maybe("cores", self.cores)
            .maybe("memory", self.memory_mib)
            .maybe("storage", some(storage.join(",")))
            .maybe("interfaces", some(interfaces.join(";")))
            .maybe("zone", self.zone)
            .maybe("pool", self.pool)
            .maybe("domain", self.domain)
            .maybe("architecture", self.architecture.as_ref())
            .flag("skip_commissioning", self.skip_commissioning))
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    fn body(compose: &Compose) -> Result<String> {
        let call = compose.apply(Call::post("vm_hosts.compose", "vm-hosts/", &[])?)?;
        Ok(form_urlencoded::parse(&call.body())
            .map(|(key, value)| format!("{key} {value}"))
            .collect::<Vec<_>>()
            .join("|"))
    }

    #[test]
    fn disks_and_interfaces_are_worded_as_maas_reads_them() {
        let compose = Compose {
            hostname: Some("vm-1".to_owned()),
            cores: Some(2),
            disks: vec![
                ComposeDisk { label: "root".to_owned(), gigabytes: 60, pool: Some("fast".to_owned()) },
                ComposeDisk { label: "data".to_owned(), gigabytes: 8, pool: None },
            ],
            interfaces: vec![ComposeInterface {
                name: "eth0".to_owned(),
                constraints: vec![
                    ("subnet_cidr".to_owned(), "fd00::/64".to_owned()),
                    ("ip".to_owned(), "10.0.0.9".to_owned()),
                ],
            }],
            zone: Some(3),
            skip_commissioning: true,
            ..Compose::default()
        };
        assert_eq!(
            body(&compose).unwrap(),
            "hostname vm-1|cores 2|storage root:60(fast),data:8|interfaces eth0:subnet_cidr=fd00::/64,ip=10.0.0.9|\
             zone 3|skip_commissioning true"
        );
    }

    #[test]
    fn a_label_cannot_smuggle_in_another_constraint() {
        for label in ["", "a:1,b", "a(b)", "a;b"] {
            let disk = ComposeDisk { label: label.to_owned(), gigabytes: 1, pool: None };
            assert!(body(&Compose { disks: vec![disk], ..Compose::default() }).is_err(), "{label:?}");
        }
    }
}
