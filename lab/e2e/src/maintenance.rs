//! Evacuation of LXD hosts while clusters run on them: hosts that are our own machines, the clusters on them, and the
//! reported status of both.

use std::collections::BTreeSet;
use std::time::{Duration, Instant};

use anyhow::{Context as _, ensure};
use k8s_openapi::api::core::v1::Node;
use kube::api::{Api, Patch, PatchParams};
use serde_json::{Value, json};

use crate::cluster::ClusterPlan;
use crate::eventually_within;
use crate::lxd_hosts::vm;
use crate::maas::Expected;
use crate::scene::Scene;

/// The timeout of one evacuation step: replacing a control-plane machine takes about a minute, and hosts have several.
pub const PATIENCE: Duration = Duration::from_secs(600);
/// The tag of a machine or VM host in maintenance.
pub const TAG: &str = "maas-lxd-host-maintenance";
/// The annotation of a MaasMachine in maintenance.
pub const ANNOTATION: &str = "infrastructure.cluster.x-k8s.io/lxd-host-maintenance";
/// The annotation that excludes a Machine from evacuation.
pub const HOLD: &str = "infrastructure.cluster.x-k8s.io/hold-evacuation";
/// A deletion hook: the deletion of a Machine with this annotation does not proceed until it is removed.
pub const HOOK: &str = "pre-drain.delete.hook.machine.cluster.x-k8s.io/scenario";
const CLUSTER: &str = "cluster.x-k8s.io/cluster-name";
/// The manager that takes over first waits for the Lease, and then needs time to work before it is killed again.
pub const KILL_EVERY: Duration = Duration::from_secs(45);

/// A cluster of control-plane VMs in a namespace of its own.
pub async fn guest(scene: &Scene, name: &str, control_planes: u32) -> anyhow::Result<ClusterPlan> {
    let plan = alone(scene, name).await?;
    Ok(ClusterPlan { control_planes, machine: vm(), ..plan })
}

/// A metal cluster in a namespace of its own, all of whose machines are LXD hosts.
pub async fn host_cluster(scene: &Scene, control_planes: u32, workers: u32) -> anyhow::Result<(ClusterPlan, Expected)> {
    let plan = ClusterPlan { control_planes, workers, ..alone(scene, "hosts").await? };
    let expected = scene.create(&plan).await?;
    scene.wait_running(&plan, &expected).await?;
    let hosts = become_hosts(scene, &plan, &expected).await?;
    ensure!(hosts == control_planes + workers, "{hosts} machines are hosts");
    Ok((plan, expected))
}

async fn alone(scene: &Scene, name: &str) -> anyhow::Result<ClusterPlan> {
    scene.testbed.kubectl(["create", "namespace", name]).await?;
    Ok(ClusterPlan { namespace: name.to_owned(), ..ClusterPlan::new(scene.core, name) })
}

/// Makes every ready machine of the cluster an LXD host, as its agent would: registers it as a VM host in MAAS and
/// annotates its Node with the agent's report of no instances. Returns the number of hosts.
pub async fn become_hosts(scene: &Scene, plan: &ClusterPlan, expected: &Expected) -> anyhow::Result<u32> {
    let nodes: Api<Node> = Api::all(scene.maas.workload(expected.port).await?);
    let mut hosts = 0;
    for machine in machines(scene, plan).await? {
        if machine["status"]["ready"] != true || !machine["metadata"]["deletionTimestamp"].is_null() {
            continue;
        }
        let name = machine["status"]["hostname"].as_str().context("it has no name")?;
        if scene.maas.host_id(name).is_err() {
            let zone = machine["status"]["failureDomain"].as_str().context("it has no zone")?;
            scene.maas.make_host(name, zone, "default")?;
        }
        let report = json!({"lxdhost.cluster.com/state": "Left", "lxdhost.cluster.com/instances": "[]"});
        let patch = json!({"metadata": {"annotations": report}});
        nodes.patch(name, &PatchParams::default(), &Patch::Merge(&patch)).await?;
        hosts += 1;
    }
    Ok(hosts)
}

pub async fn machines(scene: &Scene, plan: &ClusterPlan) -> anyhow::Result<Vec<Value>> {
    let mut all = scene.objects(plan, "MaasMachine")?.list().await?;
    all.retain(|machine| machine["metadata"]["labels"][CLUSTER] == plan.name);
    Ok(all)
}

/// Whether none of these MaasMachines is left, the cluster has all its machines, and all VMs are on them. Until then the
/// agents of new machines make them hosts, but not before the next old one is being deleted: VMs have to wait for them.
pub async fn are_replaced(
    scene: &Scene,
    plan: &ClusterPlan,
    expected: &Expected,
    old: &BTreeSet<String>,
) -> anyhow::Result<()> {
    let mut owners = scene.objects(plan, "Machine")?.list().await?;
    owners.retain(|it| {
        it.pointer("/spec/infrastructureRef/name").and_then(Value::as_str).is_some_and(|it| old.contains(it))
    });
    if owners.is_empty() || owners.iter().any(|machine| !machine["metadata"]["deletionTimestamp"].is_null()) {
        become_hosts(scene, plan, expected).await?;
    }
    let all = machines(scene, plan).await?;
    let names = texts(&all, "/metadata/name");
    ensure!(names.len() == usize::try_from(plan.control_planes + plan.workers)? && names.is_disjoint(old), "{names:?}");
    let (hosts, used): (_, BTreeSet<String>) =
        (texts(&all, "/status/hostname"), scene.maas.vms().into_iter().map(|vm| vm.host).collect());
    ensure!(used.is_subset(&hosts), "VMs are on {used:?}, the hosts are {hosts:?}");
    Ok(())
}

/// The texts at a path in all objects.
pub fn texts(all: &[Value], pointer: &str) -> BTreeSet<String> {
    all.iter().filter_map(|object| object.pointer(pointer)?.as_str().map(str::to_owned)).collect()
}

/// The name of the MaasMachine of one of our hosts, by its name in MAAS.
pub async fn object_of(scene: &Scene, hosts: &ClusterPlan, host: &str) -> anyhow::Result<String> {
    let all = machines(scene, hosts).await?;
    let found = all.iter().find(|machine| machine["status"]["hostname"] == host);
    let found = found.with_context(|| format!("no machine of {} is {host}", hosts.name))?;
    Ok(found["metadata"]["name"].as_str().unwrap_or_default().to_owned())
}

/// The hosts that the machines of a cluster are on.
pub async fn hosts_of(scene: &Scene, plan: &ClusterPlan) -> anyhow::Result<BTreeSet<String>> {
    let all = machines(scene, plan).await?;
    Ok(all.iter().filter_map(|machine| machine["status"]["lxdHost"].as_str().map(str::to_owned)).collect())
}

/// The Machines of a cluster whose VMs are on a host.
pub async fn on_host(scene: &Scene, plan: &ClusterPlan, host: &str) -> anyhow::Result<Vec<String>> {
    let all = machines(scene, plan).await?;
    let there = all.iter().filter(|machine| machine["status"]["lxdHost"] == host);
    let owners = there.filter_map(|machine| machine["metadata"]["ownerReferences"].as_array()).flatten();
    let machines = owners.filter(|owner| owner["kind"] == "Machine").filter_map(|owner| owner["name"].as_str());
    Ok(machines.map(str::to_owned).collect())
}

/// Sets or removes an annotation of an object.
pub async fn annotate(
    scene: &Scene,
    plan: &ClusterPlan,
    kind: &str,
    name: &str,
    (annotation, value): (&str, Option<&str>),
) -> anyhow::Result<()> {
    let patch = json!({"metadata": {"annotations": {annotation: value}}});
    scene.objects(plan, kind)?.merge(name, patch).await
}

/// The reason and message of an object's evacuation condition.
pub async fn said(scene: &Scene, plan: &ClusterPlan, kind: &str, name: &str) -> anyhow::Result<(String, String)> {
    let object = scene.objects(plan, kind)?.get(name).await?;
    let conditions = object["status"]["conditions"].as_array().cloned().unwrap_or_default();
    let condition = conditions.into_iter().find(|it| it["type"] == "Evacuating").unwrap_or(Value::Null);
    let text = |value: &Value| value.as_str().unwrap_or_default().to_owned();
    Ok((text(&condition["reason"]), text(&condition["message"])))
}

/// Waits until an object's evacuation condition has this reason and its message contains this text.
pub async fn wait_said(
    scene: &Scene,
    plan: &ClusterPlan,
    (kind, name): (&str, &str),
    (reason, words): (&str, &str),
) -> anyhow::Result<()> {
    let what = format!("{kind} {name} says {reason}: {words}");
    let told = eventually_within(PATIENCE, &what, || async {
        let said = said(scene, plan, kind, name).await?;
        ensure!(said.0 == reason && said.1.contains(words), "{said:?}");
        Ok(())
    });
    scene.explain(told.await).await
}

/// Whether a Machine is being deleted.
pub async fn is_going(scene: &Scene, plan: &ClusterPlan, machine: &str) -> anyhow::Result<bool> {
    let object = scene.objects(plan, "Machine")?.get(machine).await?;
    Ok(!object["metadata"]["deletionTimestamp"].is_null())
}

/// Waits until a Machine is being deleted.
pub async fn wait_going(scene: &Scene, plan: &ClusterPlan, machine: &str) -> anyhow::Result<()> {
    let what = format!("the Machine {machine} is being deleted");
    let goes = eventually_within(PATIENCE, &what, || async {
        ensure!(is_going(scene, plan, machine).await?, "it is not");
        Ok(())
    });
    scene.explain(goes.await).await
}

/// Waits until the manager has made this many more passes over all hosts, while there are hosts to evacuate.
pub async fn wait_looks(scene: &Scene, more: u64) -> anyhow::Result<()> {
    let before = looks(scene).await?;
    let looked = eventually_within(PATIENCE, "the manager looks at hosts", || async {
        let now = looks(scene).await?;
        ensure!(now >= before + more, "{before} looks before, {now} now");
        Ok(())
    });
    scene.explain(looked.await).await
}

/// The number of passes that the manager has made over all hosts since it started.
async fn looks(scene: &Scene) -> anyhow::Result<u64> {
    let metrics = scene.metrics().await?;
    let name = "capmaas_reconciles_total{controller=\"evacuation\",result=\"ok\"} ";
    let count = metrics.lines().find_map(|line| line.strip_prefix(name)).context("it has not looked yet")?;
    Ok(count.parse()?)
}

/// Waits until no VM of a cluster is on a host and the cluster has all its machines again.
pub async fn wait_left(scene: &Scene, plan: &ClusterPlan, host: &str) -> anyhow::Result<()> {
    let what = format!("no machine of {} on {host}", plan.name);
    let left = eventually_within(PATIENCE, &what, || async { has_left(plan, &machines(scene, plan).await?, host) });
    scene.explain(left.await).await
}

/// As [`wait_left`], while the manager is killed as soon as a machine is deleted, and once more when it leads again.
pub async fn wait_left_while_killed(scene: &Scene, plan: &ClusterPlan, host: &str) -> anyhow::Result<()> {
    let mut kills: Vec<Instant> = Vec::new();
    let start = Instant::now();
    loop {
        let own = machines(scene, plan).await?;
        let due = match kills.as_slice() {
            [] => own.iter().any(|it| !it["metadata"]["deletionTimestamp"].is_null()),
            [first] => first.elapsed() > KILL_EVERY,
            _ => false,
        };
        if due {
            scene.kill_manager().await?;
            kills.push(Instant::now());
        }
        match has_left(plan, &own, host) {
            Ok(()) => break,
            error if start.elapsed() > PATIENCE => return scene.explain(error).await,
            Err(_) => tokio::time::sleep(Duration::from_millis(200)).await,
        }
    }
    ensure!(!kills.is_empty(), "the manager was never killed");
    Ok(())
}

fn has_left(plan: &ClusterPlan, own: &[Value], host: &str) -> anyhow::Result<()> {
    let there = own.iter().filter(|it| it["status"]["lxdHost"] == host).count();
    let well = own.iter().filter(|it| it["status"]["ready"] == true).count();
    let wanted = usize::try_from(plan.control_planes + plan.workers)?;
    ensure!(there == 0 && well == wanted && own.len() == wanted, "{there} left, {well} well of {}", own.len());
    Ok(())
}
