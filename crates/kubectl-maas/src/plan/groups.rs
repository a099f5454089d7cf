//! The desired state of Cluster API objects as groups of machines.

use std::collections::BTreeSet;

use anyhow::bail;
use capmaas_api::capi::Reference;
use capmaas_api::names::CONTROL_PLANE_LABEL;
use capmaas_api::{MaasMachine, MaasMachineSpec, ProviderId};
use capmaas_core::forecast::{Group, HealthCheck, Member, Role};
use capmaas_core::intent::{self, Problem};
use capmaas_core::machine::Journal;
use serde_json::Value;

use super::objects::Objects;
use crate::{condition, text};

const DEPLOYMENT_LABEL: &str = "cluster.x-k8s.io/deployment-name";
const SET_LABEL: &str = "cluster.x-k8s.io/set-name";
const CLONED_FROM: &str = "cluster.x-k8s.io/cloned-from-name";

/// The groups of all clusters, and notes about them.
#[derive(Debug, Default)]
pub struct Desired {
    /// The control plane of each cluster before its workers.
    pub groups: Vec<Group>,
    /// The health checks of the machines.
    pub checks: Vec<HealthCheck>,
    /// What is planned differently than one might expect.
    pub notes: Vec<String>,
    /// What is not planned, so that the answer is unknown.
    pub unplanned: Vec<Unplanned>,
}

/// Machines that a plan does not cover.
#[derive(Debug, Clone, PartialEq, Eq)]
pub struct Unplanned {
    /// Namespace and name of their Cluster.
    pub cluster: String,
    pub why: String,
}

/// Reads groups from objects.
pub fn desired(objects: &Objects) -> Desired {
    let mut desired = Desired::default();
    // One that is being deleted gets no more machines.
    for cluster in objects.of("Cluster").filter(|it| it["metadata"].get("deletionTimestamp").is_none()) {
        let known = Known { objects, cluster, machines: machines_of(objects, cluster) };
        known.control_plane(&mut desired);
        for deployment in objects.of("MachineDeployment").filter(|it| known.has(it)) {
            desired.groups.push(known.workers(deployment, DEPLOYMENT_LABEL));
        }
        let alone = |set: &&Value| known.has(set) && !is_owned(set);
        for set in objects.of("MachineSet").filter(alone) {
            desired.groups.push(known.workers(set, SET_LABEL));
        }
    }
    desired.unplanned.extend(strays(objects));
    desired.checks = objects.of("MachineHealthCheck").map(|check| health_check(objects, check)).collect();
    desired
}

/// Workers whose Cluster is not there, and workers of a kind that cannot be planned.
fn strays(objects: &Objects) -> impl Iterator<Item = Unplanned> {
    let of = |kind: &'static str| objects.of(kind).map(move |object| (kind, object));
    of("MachineDeployment").chain(of("MachineSet")).chain(of("MachinePool")).filter_map(|(kind, object)| {
        let (namespace, cluster) = (text(object, "/metadata/namespace"), text(object, "/spec/clusterName"));
        let name = text(object, "/metadata/name");
        let why = if kind == "MachinePool" {
            format!("the MachinePool {name} is not planned: this provider makes single machines only")
        } else if objects.get("Cluster", namespace, cluster).is_none() && !is_owned(object) {
            format!("the {kind} {name} is not planned: its Cluster {cluster} is neither in the file nor in Kubernetes")
        } else {
            return None;
        };
        Some(Unplanned { cluster: format!("{namespace}/{cluster}"), why })
    })
}

/// Namespace and name of a cluster.
fn full_name(cluster: &Value) -> String {
    format!("{}/{}", text(cluster, "/metadata/namespace"), text(cluster, "/metadata/name"))
}

fn machines_of<'a>(objects: &'a Objects, cluster: &Value) -> Vec<&'a Value> {
    let (namespace, name) = (text(cluster, "/metadata/namespace"), text(cluster, "/metadata/name"));
    let mine = |machine: &&Value| {
        text(machine, "/metadata/namespace") == namespace && text(machine, "/spec/clusterName") == name
    };
    let mut machines: Vec<&Value> = objects.of("Machine").filter(mine).collect();
    machines.sort_by_key(|machine| (text(machine, "/metadata/creationTimestamp"), text(machine, "/metadata/name")));
    machines
}

fn is_owned(set: &Value) -> bool {
    set["metadata"]["ownerReferences"].as_array().is_some_and(|owners| !owners.is_empty())
}

fn label<'a>(object: &'a Value, name: &str) -> Option<&'a str> {
    object["metadata"]["labels"].get(name)?.as_str()
}

/// A cluster and its objects.
struct Known<'a> {
    objects: &'a Objects,
    cluster: &'a Value,
    machines: Vec<&'a Value>,
}

impl Known<'_> {
    fn namespace(&self) -> &str {
        text(self.cluster, "/metadata/namespace")
    }

    fn has(&self, object: &Value) -> bool {
        text(object, "/metadata/namespace") == self.namespace()
            && text(object, "/spec/clusterName") == text(self.cluster, "/metadata/name")
    }

    fn control_plane(&self, desired: &mut Desired) {
        let reference: Option<Reference> = serde_json::from_value(self.cluster["spec"]["controlPlaneRef"].clone()).ok();
        let reference = reference.filter(|reference| !reference.name.is_empty());
        let object = reference.as_ref().and_then(|it| self.objects.get(&it.kind, self.namespace(), &it.name));
        let members: Vec<&Value> =
            self.machines.iter().copied().filter(|it| label(it, CONTROL_PLANE_LABEL).is_some()).collect();
        let other = reference.as_ref().map(|it| it.kind.as_str()).filter(|kind| *kind != "KubeadmControlPlane");
        // One of another kind without a template for machines is hosted elsewhere.
        let object = object.filter(|it| other.is_none() || template(it).is_some());
        let name = full_name(self.cluster);
        if let Some(why) = self.topology_to_come(reference.is_some(), object) {
            desired.unplanned.push(Unplanned { cluster: name.clone(), why });
        }
        let Some(object) = object else {
            match other {
                Some(_) if members.is_empty() => desired.notes.push(format!(
                    "{name}: its control plane has no machines that are known here, so only its workers are planned"
                )),
                Some(kind) => {
                    let why = format!("{name}: its control plane, a {kind}, is not planned");
                    desired.unplanned.push(Unplanned { cluster: name, why });
                }
                None if reference.is_none() && self.has_topology() => {}
                None => {
                    let why = format!("{name}: its control plane is neither in the file nor in Kubernetes");
                    desired.unplanned.push(Unplanned { cluster: name, why });
                }
            }
            return;
        };
        let template = template(object);
        let surge = first(
            object,
            &["/spec/rollout/strategy/rollingUpdate/maxSurge", "/spec/rolloutStrategy/rollingUpdate/maxSurge"],
        );
        let replicas = number(object.pointer("/spec/replicas")).unwrap_or(1);
        let surge = surge.map_or(1, |surge| amount(surge, replicas, true));
        desired.groups.push(Group {
            cluster: name,
            name: text(object, "/metadata/name").to_owned(),
            role: Role::ControlPlane,
            replicas,
            intent: self.intent(template),
            failure_domain: None,
            failure_domains: self.failure_domains(),
            surge,
            unavailable: usize::from(surge == 0),
            rolls: true,
            members: self.members(&members, template, text(object, "/spec/version")),
        });
    }

    fn has_topology(&self) -> bool {
        self.cluster["spec"].get("topology").is_some_and(|topology| !topology.is_null())
    }

    /// What Cluster API has not yet made of the topology of a Cluster: its objects, or their new version.
    fn topology_to_come(&self, is_made: bool, control_plane: Option<&Value>) -> Option<String> {
        let version = text(self.cluster, "/spec/topology/version");
        let is_old = control_plane.is_some_and(|it| !version.is_empty() && text(it, "/spec/version") != version);
        (self.has_topology() && (!is_made || is_old)).then(|| {
            format!(
                "{} has a topology, which Cluster API turns into objects: plan with what `clusterctl alpha topology plan \
                 --output-directory` writes, or once the cluster exists",
                full_name(self.cluster)
            )
        })
    }

    /// A MachineDeployment or MachineSet.
    fn workers(&self, object: &Value, of: &str) -> Group {
        let name = text(object, "/metadata/name");
        let template = object.pointer("/spec/template/spec/infrastructureRef");
        let replicas = number(object.pointer("/spec/replicas")).unwrap_or(1);
        let strategy = |field: &str| {
            let paths = ["/spec/rollout/strategy/rollingUpdate/", "/spec/strategy/rollingUpdate/"]
                .map(|path| format!("{path}{field}"));
            first(object, &paths.each_ref().map(String::as_str)).cloned()
        };
        let members: Vec<&Value> = self.machines.iter().copied().filter(|it| label(it, of) == Some(name)).collect();
        let kind = first(object, &["/spec/rollout/strategy/type", "/spec/strategy/type"]).and_then(Value::as_str);
        Group {
            cluster: full_name(self.cluster),
            name: name.to_owned(),
            role: Role::Workers,
            replicas,
            intent: self.intent(template),
            failure_domain: Some(text(object, "/spec/template/spec/failureDomain"))
                .filter(|zone| !zone.is_empty())
                .map(str::to_owned),
            failure_domains: Vec::new(),
            surge: strategy("maxSurge").map_or(1, |it| amount(&it, replicas, true)),
            unavailable: strategy("maxUnavailable").map_or(0, |it| amount(&it, replicas, false)),
            rolls: of == DEPLOYMENT_LABEL && kind != Some("OnDelete"),
            members: self.members(&members, template, text(object, "/spec/template/spec/version")),
        }
    }

    /// What a template requests.
    fn intent(&self, template: Option<&Value>) -> Result<intent::Intent, Problem> {
        let unknown = |message: String| Problem { reason: "TemplateNotFound", message };
        let name = template.map(|it| text(it, "/name")).unwrap_or_default();
        let kind = template.map(|it| text(it, "/kind")).unwrap_or_default();
        if kind != "MaasMachineTemplate" {
            return Err(unknown(format!(
                "its machines are made from {kind:?} {name:?}, which is not a kind of this provider"
            )));
        }
        let Some(object) = self.objects.get(kind, self.namespace(), name) else {
            return Err(unknown(format!("the MaasMachineTemplate {name} is neither in the file nor in Kubernetes")));
        };
        let spec: MaasMachineSpec = serde_json::from_value(object["spec"]["template"]["spec"].clone())
            .map_err(|error| unknown(format!("the MaasMachineTemplate {name} cannot be read: {error}")))?;
        intent::resolve(&spec, false)
    }

    /// The zones over which the control plane is spread: those that the MaasCluster names, otherwise those in its
    /// status.
    fn failure_domains(&self) -> Vec<String> {
        let reference: Option<Reference> =
            serde_json::from_value(self.cluster["spec"]["infrastructureRef"].clone()).ok();
        let name = reference.map(|reference| reference.name).unwrap_or_default();
        let Some(infrastructure) = self.objects.get("MaasCluster", self.namespace(), &name) else { return Vec::new() };
        let names = |list: &Value| -> Vec<String> {
            list.as_array().into_iter().flatten().filter_map(|it| Some(it.as_str()?.to_owned())).collect()
        };
        let spec = names(&infrastructure["spec"]["failureDomains"]);
        if !spec.is_empty() {
            return spec;
        }
        match &infrastructure["status"]["failureDomains"] {
            Value::Object(map) => map.keys().cloned().collect(),
            Value::Array(list) => list.iter().map(|it| text(it, "/name").to_owned()).collect(),
            _ => Vec::new(),
        }
    }

    fn members(&self, machines: &[&Value], template: Option<&Value>, version: &str) -> Vec<Member> {
        let wanted = template.map(|it| text(it, "/name")).unwrap_or_default();
        machines
            .iter()
            .map(|machine| {
                let name = text(machine, "/spec/infrastructureRef/name");
                let object = self.objects.get("MaasMachine", self.namespace(), name);
                let from = object.and_then(|it| it["metadata"]["annotations"].get(CLONED_FROM)).and_then(Value::as_str);
                let is = text(machine, "/spec/version");
                Member {
                    name: text(machine, "/metadata/name").to_owned(),
                    machine: object.and_then(system_id),
                    zone: zone(machine, object),
                    outdated: from.is_some_and(|from| from != wanted)
                        || !version.is_empty() && !is.is_empty() && is != version,
                    leaving: machine["metadata"].get("deletionTimestamp").is_some(),
                    unhealthy: is_unhealthy(machine),
                }
            })
            .collect()
    }
}

/// The template of a control plane's machines.
fn template(control_plane: &Value) -> Option<&Value> {
    first(control_plane, &["/spec/machineTemplate/spec/infrastructureRef", "/spec/machineTemplate/infrastructureRef"])
}

/// Whether Cluster API reports that a Machine does not work. A node that does not answer is reported as Unknown.
fn is_unhealthy(machine: &Value) -> bool {
    let reported =
        ["NodeHealthy", "HealthCheckSucceeded", "EtcdMemberHealthy"].iter().filter_map(|it| condition(machine, it));
    reported.into_iter().any(|it| it["status"] != "True")
}

/// The machine in MAAS that an object holds: from its journal, or from its provider ID. A copy holds nothing (S25).
pub fn system_id(object: &Value) -> Option<String> {
    let typed: MaasMachine = serde_json::from_value(object.clone()).ok()?;
    let journal = Journal::read(typed.metadata.annotations.as_ref()).ok().flatten();
    match journal {
        Some(journal) if journal.is_anothers(&typed.metadata) => None,
        Some(Journal { allocation: Some(allocation), .. }) => Some(allocation.machine),
        _ => Some(typed.spec.provider_id()?.parse::<ProviderId>().ok()?.system_id()?.to_owned()),
    }
}

fn zone(machine: &Value, object: Option<&Value>) -> Option<String> {
    let of_object = object.map(|it| [text(it, "/status/failureDomain"), text(it, "/spec/failureDomain")]);
    let all = of_object.into_iter().flatten().chain([text(machine, "/spec/failureDomain")]);
    all.into_iter().find(|zone| !zone.is_empty()).map(str::to_owned)
}

fn health_check(objects: &Objects, check: &Value) -> HealthCheck {
    let (namespace, cluster) = (text(check, "/metadata/namespace"), text(check, "/spec/clusterName"));
    let wanted = check.pointer("/spec/selector/matchLabels").and_then(Value::as_object);
    let expressions = check.pointer("/spec/selector/matchExpressions").and_then(Value::as_array);
    let fits = |machine: &&Value| {
        text(machine, "/metadata/namespace") == namespace
            && text(machine, "/spec/clusterName") == cluster
            && wanted.into_iter().flatten().all(|(name, value)| label(machine, name) == value.as_str())
            && expressions.into_iter().flatten().all(|expression| meets(machine, expression))
    };
    let machines: BTreeSet<String> =
        objects.of("Machine").filter(fits).map(|it| text(it, "/metadata/name").to_owned()).collect();
    let most = first(check, &["/spec/remediation/triggerIf/unhealthyLessThanOrEqualTo", "/spec/maxUnhealthy"]);
    HealthCheck {
        name: text(check, "/metadata/name").to_owned(),
        cluster: format!("{namespace}/{cluster}"),
        most_unhealthy: most.map(|most| amount(most, machines.len(), false)),
        machines,
    }
}

/// Whether a machine matches one expression of a label selector. An unknown expression does not match.
fn meets(machine: &Value, expression: &Value) -> bool {
    let has = label(machine, text(expression, "/key"));
    let among = |value: &str| expression["values"].as_array().into_iter().flatten().any(|it| it == value);
    match text(expression, "/operator") {
        "In" => has.is_some_and(among),
        "NotIn" => !has.is_some_and(among),
        "Exists" => has.is_some(),
        "DoesNotExist" => has.is_none(),
        _ => false,
    }
}

fn first<'a>(object: &'a Value, pointers: &[&str]) -> Option<&'a Value> {
    pointers.iter().find_map(|pointer| object.pointer(pointer)).filter(|value| !value.is_null())
}

fn number(value: Option<&Value>) -> Option<usize> {
    usize::try_from(value?.as_u64()?).ok()
}

/// A number, or a percentage of `whole` such as "40%".
fn amount(value: &Value, whole: usize, up: bool) -> usize {
    if let Some(number) = number(Some(value)) {
        return number;
    }
    let percent = value.as_str().and_then(|text| text.strip_suffix('%')).and_then(|text| text.parse::<usize>().ok());
    percent.map_or(0, |percent| if up { (whole * percent).div_ceil(100) } else { whole * percent / 100 })
}

/// Changes the replicas of a group: `md-0=5`, or `cluster/md-0=5` if several clusters have a group of that name.
pub(super) fn scale(groups: &mut [Group], scaling: &str) -> anyhow::Result<()> {
    let Some((name, count)) = scaling.split_once('=') else {
        bail!("--scale {scaling}: write GROUP=REPLICAS, such as md-0=5")
    };
    let Ok(count) = count.parse::<usize>() else { bail!("--scale {scaling}: {count:?} is not a number of machines") };
    let is = |group: &&mut Group| {
        let short = group.cluster.split_once('/').map_or("", |(_, name)| name);
        group.name == name
            || format!("{}/{}", group.cluster, group.name) == name
            || format!("{short}/{}", group.name) == name
    };
    let names: Vec<String> = groups.iter().map(|group| format!("{}/{}", group.cluster, group.name)).collect();
    let mut found: Vec<&mut Group> = groups.iter_mut().filter(is).collect();
    match found.as_mut_slice() {
        [group] => group.replicas = count,
        [] => bail!("--scale {scaling}: there is no group {name}; there are {}", names.join(", ")),
        _ => bail!("--scale {scaling}: several clusters have a group {name}; write CLUSTER/{name}={count}"),
    }
    Ok(())
}
