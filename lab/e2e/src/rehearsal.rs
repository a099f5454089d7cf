//! A rehearsal: a MAAS made from the exported inventory of another one, and a cluster with the size and the machines
//! that the given manifests ask for.

use anyhow::{Context as _, bail};
use capmaas_testbed::CapiVersion;
use kubectl_maas::plan::Objects;
use maas_sim::model::inventory::Inventory;
use serde_json::{Value, json};

use crate::cluster::ClusterPlan;
use crate::maas::Maas;

/// Simulated machines use addresses of this computer, so the networks of the inventory cannot be reproduced.
const NETWORKS: [&str; 4] = ["fabrics", "vlans", "subnets", "ip_ranges"];

/// Fields of a machine that name one of these networks; with them it would wait for ever.
const NAMED_NETWORKS: [&str; 3] = ["/staticIP", "/lxdConfig/network", "/lxd/vmConfig/network"];

impl Maas {
    /// Starts a MAAS with the inventory that `kubectl maas export` wrote.
    pub fn rehearsal(inventory: &str) -> anyhow::Result<Self> {
        let mut lists: Value = serde_saphyr::from_str(inventory).context("the inventory is no YAML")?;
        let all = lists.as_object_mut().context("the inventory has no lists")?;
        for network in NETWORKS {
            all.remove(network);
        }
        for machine in all.get_mut("machines").and_then(Value::as_array_mut).into_iter().flatten() {
            machine.as_object_mut().map(|machine| machine.remove("interfaces"));
        }
        let inventory = Inventory::parse(&lists.to_string())?;
        let maas = Self::start()?;
        let own: Vec<Value> =
            maas.machines().iter().map(|machine| json!({"absent": {"machine": machine.hostname}})).collect();
        maas.arrange(json!(own))?;
        maas.control().load(&inventory)?;
        Ok(maas)
    }
}

impl ClusterPlan {
    /// The first cluster of some manifests, with its replica counts, zones and machines. How its nodes are set up is
    /// defined by the testbed.
    pub fn like(manifests: &str, core: CapiVersion) -> anyhow::Result<Self> {
        let objects = Objects::parse(manifests, "default")?;
        let mut clusters = objects.of("Cluster");
        let cluster = clusters.next().context("there is no Cluster in the file")?;
        if clusters.next().is_some() {
            bail!("a rehearsal has one Cluster; leave one in the file");
        }
        let word = |object: &Value, pointer: &str| -> String {
            object.pointer(pointer).and_then(Value::as_str).unwrap_or_default().to_owned()
        };
        let namespace = word(cluster, "/metadata/namespace");
        let control_plane =
            objects.of("KubeadmControlPlane").next().context("there is no KubeadmControlPlane in the file")?;
        let template = |object: &Value, pointers: [&str; 2]| -> anyhow::Result<Value> {
            let name = pointers.map(|pointer| word(object, pointer)).into_iter().find(|name| !name.is_empty());
            let name = name.context("a group names no template")?;
            let found = objects.get("MaasMachineTemplate", &namespace, &name);
            let mut spec: Value =
                found.with_context(|| format!("there is no MaasMachineTemplate {name}"))?["spec"]["template"]["spec"]
                    .clone();
            for pointer in NAMED_NETWORKS {
                if spec.pointer(pointer).is_some_and(|value| !value.is_null()) {
                    let field = pointer.replace('/', ".");
                    bail!(
                        "spec{field} of the MaasMachineTemplate {name} names a network, and a rehearsal has other networks \
                         than your data centre; remove it from the file"
                    );
                }
            }
            // The testbed's images contain the simulated kubelet.
            spec.as_object_mut().map(|spec| spec.remove("image"));
            Ok(spec)
        };
        let machine = template(
            control_plane,
            ["/spec/machineTemplate/spec/infrastructureRef/name", "/spec/machineTemplate/infrastructureRef/name"],
        )?;
        let deployments: Vec<&Value> = objects.of("MachineDeployment").collect();
        if deployments.len() > 1 {
            bail!("a rehearsal has one MachineDeployment at most; leave one in the file");
        }
        let reference = "/spec/template/spec/infrastructureRef/name";
        let worker = deployments.first().map(|deployment| template(deployment, [reference, reference])).transpose()?;
        let zone = deployments.first().map(|deployment| word(deployment, "/spec/template/spec/failureDomain"));
        let count = |object: Option<&&Value>| -> anyhow::Result<u32> {
            let replicas = object.and_then(|object| object.pointer("/spec/replicas")).and_then(Value::as_u64);
            Ok(u32::try_from(replicas.unwrap_or(u64::from(object.is_some())))?)
        };
        let infrastructure = objects.of("MaasCluster").next().map(|object| object["spec"]["failureDomains"].clone());
        Ok(Self {
            control_planes: count(Some(&control_plane))?,
            workers: count(deployments.first())?,
            infrastructure: json!({"failureDomains": infrastructure.filter(Value::is_array).unwrap_or(json!([]))}),
            machine,
            worker,
            failure_domain: zone.filter(|zone| !zone.is_empty()),
            ..Self::new(core, &word(cluster, "/metadata/name"))
        })
    }
}

#[cfg(test)]
mod tests {
    use capmaas_testbed::CapiVersion::V1_14;

    use super::*;

    const MANIFESTS: &str = r"
kind: Cluster
metadata: {name: c1}
---
kind: MaasCluster
metadata: {name: c1}
spec: {dnsDomain: maas, failureDomains: [az1, az2]}
---
kind: KubeadmControlPlane
metadata: {name: c1-cp}
spec: {replicas: 3, machineTemplate: {spec: {infrastructureRef: {name: cp}}}}
---
kind: MaasMachineTemplate
metadata: {name: cp}
spec: {template: {spec: {image: jammy, minCPU: 4}}}
---
kind: MaasMachineTemplate
metadata: {name: md}
spec: {template: {spec: {image: jammy, tags: [storage]}}}
";
    const WORKERS: &str = r"---
kind: MachineDeployment
metadata: {name: c1-md}
spec: {replicas: 5, template: {spec: {failureDomain: az3, infrastructureRef: {name: md}}}}
";

    #[test]
    fn a_cluster_has_the_numbers_zones_and_machines_of_the_manifests() {
        let plan = ClusterPlan::like(&format!("{MANIFESTS}{WORKERS}"), V1_14).unwrap();
        assert_eq!((plan.name.as_str(), plan.control_planes, plan.workers), ("c1", 3, 5));
        assert_eq!(plan.infrastructure, json!({"failureDomains": ["az1", "az2"]}));
        assert_eq!((&plan.machine, &plan.worker), (&json!({"minCPU": 4}), &Some(json!({"tags": ["storage"]}))));
        assert_eq!(plan.failure_domain.as_deref(), Some("az3"));
        let anywhere =
            format!("{MANIFESTS}{}", WORKERS.replace("failureDomain: az3, ", "").replace("replicas: 5, ", ""));
        let plan = ClusterPlan::like(&anywhere, V1_14).unwrap();
        assert_eq!((plan.workers, plan.failure_domain), (1, None), "as Kubernetes defaults them");
        let plan = ClusterPlan::like(MANIFESTS, V1_14).unwrap();
        assert_eq!((plan.workers, plan.worker, plan.failure_domain), (0, None, None));
    }

    #[test]
    fn a_second_cluster_and_networks_of_the_data_centre_are_refused() {
        let refused = |manifests: &str| ClusterPlan::like(manifests, V1_14).err().unwrap().to_string();
        let second = refused(&format!("{MANIFESTS}---\nkind: Cluster\nmetadata: {{name: c2}}\n"));
        assert!(second.contains("a rehearsal has one Cluster"), "{second}");
        for (fields, named) in [
            ("lxdConfig: {network: {devices: [storage]}}", "spec.lxdConfig.network of the MaasMachineTemplate md"),
            ("lxd: {vmConfig: {network: storage}}", "spec.lxd.vmConfig.network"),
            ("staticIP: 192.0.2.1", "spec.staticIP"),
        ] {
            let told = refused(&format!("{}{WORKERS}", MANIFESTS.replace("tags: [storage]", fields)));
            assert!(told.contains(named), "{told}");
        }
    }

    #[test]
    fn a_second_machine_deployment_is_refused() {
        let second = WORKERS.replace("c1-md", "c1-other");
        let refused = ClusterPlan::like(&format!("{MANIFESTS}{WORKERS}{second}"), V1_14).err().unwrap();
        assert!(refused.to_string().contains("one MachineDeployment at most"), "{refused}");
    }
}
