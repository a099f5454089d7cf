//! `kubectl maas maintenance`: puts LXD hosts into maintenance, takes them out again, and shows what is left on them
//! and why.

use std::fmt::Write as _;

use anyhow::{anyhow, bail};
use capmaas_api::names::{CLUSTER_NAME_LABEL, MAINTENANCE_ANNOTATION};
use capmaas_core::hosts::desired;
use capmaas_core::placement::MAINTENANCE_TAG;
use clap::Subcommand;
use maas_client::{Client, VmHost};
use serde_json::{Value, json};

use crate::cluster::Cluster;
use crate::table::table;
use crate::text;

/// The message if there is nothing to show.
pub const NONE: &str = "No LXD host is in maintenance or being deleted.";

/// What to do about maintenance.
#[derive(Debug, Subcommand)]
pub enum Maintenance {
    /// No new VMs come to a host, and those on it are replaced elsewhere, one by one.
    Start {
        /// The host: its MaasMachine, its name in MAAS, or its system ID.
        host: String,
        /// Why, for people.
        #[arg(long, default_value = "")]
        reason: String,
    },
    /// A host takes VMs again.
    Stop {
        /// The host.
        host: String,
    },
    /// Hosts that are in maintenance or leave, what is left on them, and why each VM waits.
    Status {
        /// Print again whenever something changes.
        #[arg(short, long)]
        watch: bool,
    },
}

/// The MaasMachine that the user's word identifies. VMs are not hosts.
pub fn find<'a>(machines: &'a [Value], host: &str) -> anyhow::Result<&'a Value> {
    let means = |machine: &&Value| {
        let names =
            [text(machine, "/metadata/name"), text(machine, "/status/hostname"), text(machine, "/spec/systemID")];
        is_metal(machine) && (names.contains(&host) || id_in_maas(machine) == host)
    };
    match machines.iter().filter(means).collect::<Vec<_>>().as_slice() {
        [one] => Ok(one),
        [] => Err(anyhow!(
            "no MaasMachine here is the LXD host {host}; look in another namespace with -n or -A. A host that Cluster API \
             does not manage is put into maintenance in MAAS, by the tag {MAINTENANCE_TAG} on its machine"
        )),
        several => {
            let names: Vec<String> = several.iter().map(|machine| named(machine)).collect();
            bail!("{host} is ambiguous: {}; choose one with -n", names.join(", "))
        }
    }
}

/// A VM is never a host.
pub fn is_metal(machine: &Value) -> bool {
    !text(machine, "/spec/providerID").starts_with("maas-lxd:")
}

fn id_in_maas(machine: &Value) -> &str {
    text(machine, "/spec/providerID").rsplit('/').next().unwrap_or_default()
}

/// Whether a machine is an LXD host: its cluster makes its machines hosts, or MAAS has a VM host on it.
fn is_host(machine: &Value, clusters: &[Value], vm_hosts: &[VmHost]) -> bool {
    let name = machine["metadata"]["labels"][CLUSTER_NAME_LABEL].as_str();
    let is_mine = |cluster: &&Value| {
        let owners = cluster["metadata"]["ownerReferences"].as_array().into_iter().flatten();
        let mut of = owners.filter(|owner| owner["kind"] == "Cluster").map(|owner| text(owner, "/name"));
        text(cluster, "/metadata/namespace") == text(machine, "/metadata/namespace") && of.any(|it| Some(it) == name)
    };
    let makes_hosts = |cluster: &Value| {
        // A spec that cannot be resolved asks for hosts, and says elsewhere what is wrong.
        let spec = serde_json::from_value(cluster["spec"].clone());
        spec.is_ok_and(|spec| !matches!(desired(&spec), Ok(None)))
    };
    let id = id_in_maas(machine);
    is_metal(machine) && clusters.iter().filter(is_mine).any(makes_hosts)
        || !id.is_empty() && vm_hosts.iter().filter_map(|host| host.host.as_ref()).any(|it| it.system_id == id)
}

fn named(machine: &Value) -> String {
    format!("{}/{}", text(machine, "/metadata/namespace"), text(machine, "/metadata/name"))
}

/// Starts or ends the maintenance of a host, and returns a message about what follows. MAAS is asked
/// only about a machine that Kubernetes does not show to be a host.
pub async fn set(
    cluster: &Cluster,
    maas: Option<&Client>,
    all: bool,
    host: &str,
    reason: Option<&str>,
) -> anyhow::Result<String> {
    let machines = cluster.ours("MaasMachine", all).await?;
    let machine = find(&machines, host)?;
    if reason.is_some() {
        let clusters = cluster.ours("MaasCluster", all).await?;
        let vm_hosts = match maas {
            Some(maas) if !is_host(machine, &clusters, &[]) => maas.vm_hosts().list().await?,
            _ => Vec::new(),
        };
        check(machine, &machines, &clusters, &vm_hosts)?;
    }
    let (namespace, name) = (text(machine, "/metadata/namespace"), text(machine, "/metadata/name"));
    let patch = json!({ "metadata": { "annotations": { MAINTENANCE_ANNOTATION: reason } } });
    cluster.within(namespace).patch("MaasMachine", name, &patch).await?;
    Ok(match reason {
        Some(_) => format!(
            "{namespace}/{name} is in maintenance: it takes no new VMs, and those on it are replaced elsewhere. See kubectl maas \
             maintenance status -n {namespace}\n"
        ),
        None => format!("{namespace}/{name} is not in maintenance any more\n"),
    })
}

/// The error if a machine is not a host names those that are.
fn check(machine: &Value, machines: &[Value], clusters: &[Value], vm_hosts: &[VmHost]) -> anyhow::Result<()> {
    if is_host(machine, clusters, vm_hosts) {
        return Ok(());
    }
    let hosts: Vec<String> = machines.iter().filter(|it| is_host(it, clusters, vm_hosts)).map(named).collect();
    let hosts =
        if hosts.is_empty() { "there are none here".to_owned() } else { format!("there are {}", hosts.join(", ")) };
    bail!(
        "{} is not an LXD host, as far as Kubernetes shows and MAAS, if MAAS_ENDPOINT and MAAS_API_KEY are set; {hosts}",
        named(machine)
    )
}

/// The reason and the message of an object's `Evacuating` condition, unless it is not affected.
fn said(object: &Value) -> Option<(&str, &str)> {
    let conditions = object["status"]["conditions"].as_array()?;
    let condition = conditions.iter().find(|condition| condition["type"] == "Evacuating")?;
    let reason = text(condition, "/reason");
    (reason != "NotEvacuating").then(|| (reason, text(condition, "/message")))
}

/// Hosts that are in maintenance or being deleted, by their annotation or their condition.
fn concerned(machines: &[Value]) -> impl Iterator<Item = &Value> {
    machines.iter().filter(|machine| {
        !machine["metadata"]["annotations"][MAINTENANCE_ANNOTATION].is_null() || said(machine).is_some()
    })
}

/// Hosts with the VMs that are left on them, then clusters with VMs on such hosts.
pub fn render(machines: &[Value], clusters: &[Value]) -> String {
    let rows: Vec<Vec<String>> = concerned(machines)
        .map(|machine| {
            let reason = machine["metadata"]["annotations"][MAINTENANCE_ANNOTATION].as_str();
            let state = said(machine).map_or("Starting", |(reason, _)| reason);
            vec![
                named(machine),
                text(machine, "/status/hostname").to_owned(),
                state.to_owned(),
                reason.unwrap_or("").to_owned(),
            ]
        })
        .collect();
    if rows.is_empty() && clusters.iter().all(|cluster| said(cluster).is_none()) {
        return String::new();
    }
    let mut out = table(&["HOST", "NAME IN MAAS", "STATE", "REASON"], &rows);
    for machine in concerned(machines) {
        if let Some((_, message)) = said(machine) {
            let _ = write!(out, "\n{}\n{}", named(machine), lines(message));
        }
    }
    for cluster in clusters {
        if let Some((_, message)) = said(cluster) {
            let _ = write!(out, "\ncluster {}\n{}", named(cluster), lines(message));
        }
    }
    out
}

/// A message with one VM per line.
fn lines(message: &str) -> String {
    let (head, vms) = message.split_once('\n').unwrap_or((message, ""));
    vms.lines().fold(format!("  {}\n", head.trim_end_matches(':')), |out, vm| format!("{out}    {vm}\n"))
}

/// The same for programs.
pub fn to_json(machines: &[Value], clusters: &[Value]) -> Value {
    let one = |object: &Value| {
        let (reason, message) = said(object).unwrap_or_default();
        json!({
            "namespace": text(object, "/metadata/namespace"), "name": text(object, "/metadata/name"),
            "maintenance": object["metadata"]["annotations"][MAINTENANCE_ANNOTATION], "state": reason, "message": message,
        })
    };
    let clusters = clusters.iter().filter(|cluster| said(cluster).is_some());
    json!({ "hosts": concerned(machines).map(one).collect::<Vec<_>>(), "clusters": clusters.map(one).collect::<Vec<_>>() })
}

#[cfg(test)]
mod tests {
    use super::*;

    fn machine(name: &str, provider_id: &str, condition: Value) -> Value {
        json!({
            "metadata": { "name": name, "namespace": "hosts", "annotations": { MAINTENANCE_ANNOTATION: "fans" } },
            "spec": { "providerID": provider_id }, "status": { "hostname": format!("{name}.maas"), "conditions": [condition] },
        })
    }

    #[test]
    fn a_host_is_found_by_any_of_its_names_and_a_vm_is_none() {
        let metal = machine("h1", "maas://az1/abc123", json!({}));
        let vm = machine("vm", "maas-lxd://az1/def456", json!({}));
        let all = [metal, vm];
        for word in ["h1", "h1.maas", "abc123"] {
            assert_eq!(find(&all, word).unwrap()["metadata"]["name"], "h1");
        }
        assert!(find(&all, "def456").unwrap_err().to_string().contains(MAINTENANCE_TAG));
        let twice = [all[0].clone(), all[0].clone()];
        assert!(find(&twice, "h1").unwrap_err().to_string().contains("hosts/h1, hosts/h1"));
    }

    #[test]
    fn status_shows_each_vm_in_a_line_with_what_it_waits_for() {
        let said = |message: &str| json!({ "type": "Evacuating", "status": "True", "reason": "EvacuationWaiting", "message": message });
        let host = machine(
            "h1",
            "maas://az1/abc123",
            said("the LXD host h1 is being removed; 2 VMs left:\na waits for x; then for y\nb is held"),
        );
        let cluster = json!({ "metadata": { "name": "c1", "namespace": "team" }, "status": { "conditions": [said("1 VM on LXD hosts that are being evacuated:\na waits")] } });
        let (hosts, clusters) = ([host], [cluster]);
        let shown = render(&hosts, &clusters);
        assert!(shown.contains("EvacuationWaiting   fans"), "{shown}");
        assert!(
            shown.contains(
                "  the LXD host h1 is being removed; 2 VMs left\n    a waits for x; then for y\n    b is held\n"
            ),
            "{shown}"
        );
        assert!(shown.contains("cluster team/c1\n"), "{shown}");
        assert_eq!(to_json(&hosts, &clusters)["clusters"][0]["name"], "c1");
        assert_eq!(render(&[], &[]), "");
    }
}
