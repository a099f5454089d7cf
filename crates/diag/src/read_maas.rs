//! Reads from MAAS that change nothing: who we are, where VMs may be placed, which VM hosts there are.

use maas_client::{Client, VmHost};

use crate::{Checklist, options::MaasOptions};

/// No more than this are read individually: each costs MAAS some time.
const READ_AT_MOST: usize = 20;

/// IDs that MAAS wants where people use names.
#[derive(Debug, Clone, Copy)]
pub(crate) struct Places {
    pub(crate) zone: i64,
    pub(crate) pool: i64,
}

/// A failed call as a line, with MAAS's own message and what to do about it.
pub(crate) fn failed(list: &mut Checklist, subject: &'static str, error: &maas_client::Error) {
    list.failed(subject, error.to_string(), error.advice());
}

/// Checks endpoint, key, user, zone and pool. `None` if something is wrong, which is then on the list.
pub(crate) async fn greet(maas: &Client, options: &MaasOptions, list: &mut Checklist) -> Option<Places> {
    let capabilities = match maas.capabilities().await {
        Ok(capabilities) => capabilities,
        Err(error) => {
            failed(list, "MAAS", &error);
            return None;
        }
    };
    let way = if options.maas_endpoint.trim_start().starts_with("http:") {
        "; over plain http, so the key can be intercepted"
    } else {
        ""
    };
    list.good("MAAS", format!("version {} answers at {}{way}", capabilities.version, maas.endpoint()));
    match maas.whoami().await {
        Ok(user) if user.is_superuser == Some(true) => {
            list.good("API key", format!("belongs to administrator {}", user.username));
        }
        Ok(user) => list.failed(
            "API key",
            format!("belongs to {}, who is not an administrator", user.username),
            "VM hosts need the key of an administrator: take one from that user's page in MAAS, under API keys",
        ),
        Err(error) => {
            failed(list, "API key", &error);
            return None;
        }
    }
    if !capabilities.vm_host_certificates {
        list.failed(
            "Version",
            format!("MAAS {} accepts no key pair for a VM host", capabilities.version),
            "update MAAS to 3.1 or newer",
        );
    }
    let zone = zone(maas, &options.zone, list).await;
    let pool = pool(maas, &options.resource_pool, list).await;
    match (list.is_good(), zone, pool) {
        (true, Some(zone), Some(pool)) => Some(Places { zone, pool }),
        _ => None,
    }
}

async fn zone(maas: &Client, name: &str, list: &mut Checklist) -> Option<i64> {
    let zones = match maas.zones().list().await {
        Ok(zones) => zones,
        Err(error) => {
            failed(list, "Zone", &error);
            return None;
        }
    };
    let found = zones.iter().find(|zone| zone.name == name).and_then(|zone| zone.id);
    let names: Vec<_> = zones.iter().map(|zone| zone.name.as_str()).collect();
    report_place(list, "Zone", name, found, &names, "--zone")
}

async fn pool(maas: &Client, name: &str, list: &mut Checklist) -> Option<i64> {
    let pools = match maas.pools().list().await {
        Ok(pools) => pools,
        Err(error) => {
            failed(list, "Resource pool", &error);
            return None;
        }
    };
    let found = pools.iter().find(|pool| pool.name == name).and_then(|pool| pool.id);
    let names: Vec<_> = pools.iter().map(|pool| pool.name.as_str()).collect();
    report_place(list, "Resource pool", name, found, &names, "--resource-pool")
}

fn report_place(
    list: &mut Checklist,
    subject: &'static str,
    name: &str,
    found: Option<i64>,
    names: &[&str],
    flag: &str,
) -> Option<i64> {
    match found {
        Some(_) => list.good(subject, format!("{name:?} exists")),
        None => list.failed(
            subject,
            format!("MAAS has none named {name:?}, only {}", names.join(", ")),
            format!("create it in MAAS, or choose {flag}"),
        ),
    }
    found
}

/// Lists the VM hosts and reads each. A broken one is reported, but is not a fault of this node.
pub(crate) async fn vm_hosts(maas: &Client, list: &mut Checklist) -> bool {
    const SUBJECT: &str = "VM hosts";
    let hosts = match maas.vm_hosts().list().await {
        Ok(hosts) => hosts,
        Err(error) => {
            failed(list, SUBJECT, &error);
            return false;
        }
    };
    list.good(SUBJECT, format!("MAAS has {}", hosts.len()));
    for host in hosts.iter().take(READ_AT_MOST) {
        match maas.vm_hosts().read(host.id).await {
            Ok(host) => list.good("VM host", describe(&host)),
            // Removed between the two calls.
            Err(error) if error.is_not_found() => {}
            Err(error) => {
                failed(list, "VM host", &error);
                return false;
            }
        }
    }
    if hosts.len() > READ_AT_MOST {
        list.good("VM host", format!("{} more were not read one by one", hosts.len() - READ_AT_MOST));
    }
    true
}

/// A host in one line.
pub(crate) fn describe(host: &VmHost) -> String {
    let name = host.name.as_deref().unwrap_or("?");
    let zone = host.zone.as_ref().map_or("?", |zone| zone.name.as_str());
    let pool = host.pool.as_ref().map_or("?", |pool| pool.name.as_str());
    let place = format!("{name} ({}), zone {zone}, pool {pool}", host.id);
    if !host.is_reached() {
        return format!("{place}: MAAS has never reached its LXD");
    }
    let amount = |of: Option<&maas_client::VmHostResources>| {
        let cores = of.and_then(|of| of.cores).unwrap_or_default();
        let memory = of.and_then(|of| of.memory).unwrap_or_default();
        format!("{cores} cores and {memory} MiB")
    };
    format!(
        "{place}: LXD {}, {} free of {}",
        host.version.as_deref().unwrap_or_default(),
        amount(host.available.as_ref()),
        amount(host.total.as_ref())
    )
}
