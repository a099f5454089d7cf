//! The desired state of Cluster API objects as groups of machines.

use std::collections::{BTreeMap, BTreeSet};

use capmaas_api::capi::Reference;
use capmaas_api::names::CONTROL_PLANE_LABEL;
use capmaas_api::{MaasMachine, MaasMachineSpec, ProviderId};
use capmaas_core::forecast::{Group, HealthCheck, Member, Role};
use capmaas_core::intent::{self, Problem};
use capmaas_core::machine::Journal;
use serde_json::Value;

use super::changes::{self, Change};
use super::objects::Objects;
use super::scale;
use crate::{condition, text};

const DEPLOYMENT_LABEL: &str = "cluster.x-k8s.io/deployment-name";
const SET_LABEL: &str = "cluster.x-k8s.io/set-name";
const TOPOLOGY_NAME_LABEL: &str = "topology.cluster.x-k8s.io/deployment-name";
const PAUSED: &str = "cluster.x-k8s.io/paused";
const SKIP_REMEDIATION: &str = "cluster.x-k8s.io/skip-remediation";
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
    /// What topologies call groups, by the full names of these.
    pub topology_names: BTreeMap<String, String>,
    /// Why the health checks could not be read.
    pub checks_unread: Option<String>,
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
            let group = known.workers(deployment, DEPLOYMENT_LABEL);
            if let Some(name) = label(deployment, TOPOLOGY_NAME_LABEL) {
                desired.topology_names.insert(scale::full_name(&group), name.to_owned());
            }
            if known.follows(deployment).is_some() {
                desired.notes.push(format!(
                    "Cluster API upgrades {} in {} after the control plane; it is planned with the template that it has now",
                    group.name, group.cluster
                ));
            }
            desired.groups.push(group);
        }
        let alone = |set: &&Value| known.has(set) && !is_owned(set);
        for set in objects.of("MachineSet").filter(alone) {
            desired.groups.push(known.workers(set, SET_LABEL));
        }
    }
    let strays: Vec<Unplanned> = strays(objects).chain(alone(objects, &desired.groups)).collect();
    desired.unplanned.extend(strays);
    desired.checks = objects.of("MachineHealthCheck").map(|check| health_check(objects, check)).collect();
    desired.checks_unread.clone_from(&objects.checks_unread);
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

/// Machines of a file that nobody made from a template: what they ask for is not read.
fn alone<'a>(objects: &'a Objects, groups: &'a [Group]) -> impl Iterator<Item = Unplanned> + 'a {
    objects.of("Machine").filter(|machine| objects.is_given(machine)).filter_map(|machine| {
        let (namespace, name) = (text(machine, "/metadata/namespace"), text(machine, "/metadata/name"));
        let cluster = format!("{namespace}/{}", text(machine, "/spec/clusterName"));
        let mut mine = groups.iter().filter(|group| group.cluster == cluster);
        let is_member = mine.any(|group| group.members.iter().any(|member| member.name == name));
        let why = format!(
            "the Machine {name} is not planned: it belongs to no control plane, MachineDeployment or MachineSet"
        );
        (!is_member).then_some(Unplanned { cluster, why })
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
        let change = self.objects.before(object).map_or(Change::None, |has| changes::of_control_plane(object, has));
        // Those of other providers are not read from Kubernetes.
        if change == Change::Unknown || other.is_some() && !members.is_empty() {
            let why = format!(
                "{name}: what else {} changes about its machines is not planned",
                text(object, "/metadata/name")
            );
            desired.unplanned.push(Unplanned { cluster: name.clone(), why });
        }
        let is_replaced = |machine: &Value| change == Change::Replaces || changes::is_before_rollout(object, machine);
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
            members: self.members(&members, template, text(object, "/spec/version"), is_replaced),
        });
    }

    fn has_topology(&self) -> bool {
        self.cluster["spec"].get("topology").is_some_and(|topology| !topology.is_null())
    }

    /// What Cluster API has not yet made of the topology of a Cluster: its objects, or their new version.
    fn topology_to_come(&self, is_made: bool, control_plane: Option<&Value>) -> Option<String> {
        let version = text(self.cluster, "/spec/topology/version");
        let is_old = control_plane.is_some_and(|it| !version.is_empty() && text(it, "/spec/version") != version);
        let topology = |cluster: &Value| cluster["spec"]["topology"].clone();
        let is_new = |has: &Value| changes::differs("topology", &topology(self.cluster), Some(&topology(has)));
        let class = first(self.cluster, &["/spec/topology/classRef/name", "/spec/topology/class"]);
        let mut classes = self.objects.of("ClusterClass").map(|it| &it["metadata"]["name"]);
        let changes = is_old
            || self.objects.before(self.cluster).is_some_and(is_new)
            || class.is_some_and(|class| classes.any(|name| name == class));
        let mut deployments = self.objects.of("MachineDeployment").filter(|it| self.has(it));
        let is_made_by_clusterctl = control_plane.into_iter().any(|it| self.objects.is_given(it))
            || deployments.any(|it| self.objects.is_given(it));
        (self.has_topology() && (!is_made || changes && !is_made_by_clusterctl)).then(|| {
            format!(
                "{} has a topology, which Cluster API turns into objects: plan with what `clusterctl alpha topology plan \
                 --output-directory` writes, or once the cluster exists",
                full_name(self.cluster)
            )
        })
    }

    /// The version that a MachineDeployment of a topology gets after its control plane, which a file upgrades.
    fn follows(&self, deployment: &Value) -> Option<&str> {
        let reference: Reference = serde_json::from_value(self.cluster["spec"]["controlPlaneRef"].clone()).ok()?;
        let control_plane = self.objects.get(&reference.kind, self.namespace(), &reference.name)?;
        let version = text(control_plane, "/spec/version");
        let has = text(deployment, "/spec/template/spec/version");
        let is_upgraded = self.has_topology()
            && self.objects.is_given(control_plane)
            && !self.objects.is_given(deployment)
            && !changes::same_version(version, has);
        is_upgraded.then_some(version)
    }

    /// Whether Cluster API replaces a machine of a MachineDeployment or MachineSet because of its template or a time.
    fn is_replaced(&self, object: &Value, machine: &Value) -> bool {
        let set = label(machine, SET_LABEL).and_then(|set| self.objects.get("MachineSet", self.namespace(), set));
        let set = set.filter(|set| !self.objects.is_given(set));
        let was = set.or_else(|| self.objects.before(object));
        was.is_some_and(|was| changes::replaces(&object["spec"]["template"]["spec"], &was["spec"]["template"]["spec"]))
            || changes::is_before_rollout(object, set.unwrap_or(machine))
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
        let surge = strategy("maxSurge").map_or(1, |it| amount(&it, replicas, true));
        let unavailable = strategy("maxUnavailable").map_or(0, |it| amount(&it, replicas, false));
        let members: Vec<&Value> = self.machines.iter().copied().filter(|it| label(it, of) == Some(name)).collect();
        let version = self.follows(object).unwrap_or(text(object, "/spec/template/spec/version"));
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
            surge,
            // As Cluster API resolves it: with both at zero nothing could ever be replaced.
            unavailable: if surge == 0 { unavailable.max(1) } else { unavailable },
            rolls: of == DEPLOYMENT_LABEL && kind != Some("OnDelete"),
            members: self.members(&members, template, version, |machine| self.is_replaced(object, machine)),
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

    /// The machines of a group, and which of them a rollout replaces: `is_replaced` for other reasons than their template
    /// and version.
    fn members(
        &self,
        machines: &[&Value],
        template: Option<&Value>,
        version: &str,
        is_replaced: impl Fn(&Value) -> bool,
    ) -> Vec<Member> {
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
                    host: object.map(|it| text(it, "/status/lxdHost").to_owned()).filter(|host| !host.is_empty()),
                    outdated: from.is_some_and(|from| from != wanted)
                        || !version.is_empty() && !is.is_empty() && !changes::same_version(is, version)
                        || condition(machine, "UpToDate").is_some_and(|it| it["status"] == "False")
                        || is_replaced(machine),
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

/// Whether it has an annotation, with any value.
fn has_annotation(object: &Value, name: &str) -> bool {
    object["metadata"]["annotations"].get(name).is_some()
}

/// The machines that it replaces: none while it or its Cluster is paused.
fn health_check(objects: &Objects, check: &Value) -> HealthCheck {
    let (namespace, cluster) = (text(check, "/metadata/namespace"), text(check, "/spec/clusterName"));
    let wanted = check.pointer("/spec/selector/matchLabels").and_then(Value::as_object);
    let expressions = check.pointer("/spec/selector/matchExpressions").and_then(Value::as_array);
    let of = objects.get("Cluster", namespace, cluster);
    let is_paused = has_annotation(check, PAUSED) || of.is_some_and(|it| it["spec"]["paused"] == true);
    let fits = |machine: &&Value| {
        text(machine, "/metadata/namespace") == namespace
            && text(machine, "/spec/clusterName") == cluster
            && !is_paused
            && ![PAUSED, SKIP_REMEDIATION].iter().any(|it| has_annotation(machine, it))
            && wanted.into_iter().flatten().all(|(name, value)| label(machine, name) == value.as_str())
            && expressions.into_iter().flatten().all(|expression| meets(machine, expression))
    };
    let machines: BTreeSet<String> =
        objects.of("Machine").filter(fits).map(|it| text(it, "/metadata/name").to_owned()).collect();
    let most = first(check, &["/spec/remediation/triggerIf/unhealthyLessThanOrEqualTo", "/spec/maxUnhealthy"]);
    let most = most.map(|most| amount(most, machines.len(), false));
    // Where there is a range, Cluster API ignores the other.
    let range = first(check, &["/spec/remediation/triggerIf/unhealthyInRange", "/spec/unhealthyRange"]);
    let (least_unhealthy, most_unhealthy) = range.map_or((0, most), bounds);
    HealthCheck {
        name: text(check, "/metadata/name").to_owned(),
        cluster: format!("{namespace}/{cluster}"),
        least_unhealthy,
        most_unhealthy,
        machines,
    }
}

/// The bounds of a range such as "[1-3]". With one that cannot be read, Cluster API replaces nothing.
fn bounds(range: &Value) -> (usize, Option<usize>) {
    let text = range.as_str().and_then(|text| text.strip_prefix('[')?.strip_suffix(']'));
    let bounds = text.and_then(|text| text.split_once('-'));
    let read = bounds.and_then(|(least, most)| Some((least.parse().ok()?, Some(most.parse().ok()?))));
    read.unwrap_or((0, Some(0)))
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
