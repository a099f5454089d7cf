//! A MAAS whose machines really boot, and clusters of them: no kubelet is simulated here.

use std::future::Future;
use std::net::{IpAddr, SocketAddr};
use std::path::PathBuf;
use std::pin::Pin;
use std::process::Command;
use std::sync::Arc;
use std::time::Duration;

use anyhow::{Context as _, ensure};
use base64::{Engine as _, prelude::BASE64_STANDARD};
use capmaas_testbed::nodes::{
    KUBERNETES, Machine, NETWORK_PLUGIN, NodeHost, NodeImage, OLDER_KUBERNETES, has_cgroup_1,
};
use capmaas_testbed::tools::ToolSet;
use capmaas_testbed::{Clusterctl, KubernetesVersion, parse_yaml};
use maas_sim::hardware::{Action, Hardware, Order};
use serde_json::{Value, json};
use tokio::sync::{Mutex, MutexGuard};

use crate::maas::{DOMAIN, Maas, Network, image};
use crate::release::{NEW_CONTRACT, release_of};
use crate::scene::Scene;
use crate::{Objects, eventually_within};

/// The port of MAAS, which the machines are configured with.
const MAAS_PORT: u16 = 5240;
/// A machine boots from its image and joins within two minutes on a busy computer; several do so one after the other.
const NODES_PATIENCE: Duration = Duration::from_secs(600);
/// kubeadm's default timeout for the first API call is one minute, which may be too short on a busy computer.
const API_CALL_SECONDS: u32 = 300;
const ZONE: &str = "topology.kubernetes.io/zone";

pub async fn start_host() -> anyhow::Result<NodeHost> {
    let image = tokio::task::spawn_blocking(|| NodeImage::ensure(KUBERNETES)).await??;
    Ok(NodeHost::start(&image).await?)
}

/// A MAAS with these machines.
pub fn start_maas(host: &NodeHost) -> anyhow::Result<Maas> {
    let endpoint = SocketAddr::new(IpAddr::V4(host.address()), MAAS_PORT);
    Maas::start_with(Network {
        cidr: host.cidr(),
        gateway: Some(host.address()),
        // AUTO links get the addresses after it.
        dynamic: (host.member(2), host.member(19)),
        listen: endpoint,
        name_server: IpAddr::V4(host.address()),
        hardware: Some(Arc::new(Rack { host: host.clone(), endpoint })),
    })
}

/// The machines of a MAAS, as it powers them on and off.
struct Rack {
    host: NodeHost,
    endpoint: SocketAddr,
}

impl Hardware for Rack {
    fn carry_out(&self, order: Order) -> Pin<Box<dyn Future<Output = Result<(), String>> + Send>> {
        let (host, endpoint) = (self.host.clone(), self.endpoint);
        Box::pin(async move { carry_out(&host, endpoint, &order).await.map_err(|error| format!("{error:#}")) })
    }
}

async fn carry_out(host: &NodeHost, endpoint: SocketAddr, order: &Order) -> anyhow::Result<()> {
    let name = &order.hostname;
    match order.action {
        Action::PowerOn => host.power_on(name).await?,
        Action::PowerOff => host.power_off(name).await?,
        Action::PowerCycle => {
            host.power_off(name).await?;
            host.power_on(name).await?;
        }
        Action::Deploy => host.deploy(installed(endpoint, order)?).await?,
        Action::Erase | Action::Release => host.erase(name).await?,
    }
    Ok(())
}

/// What MAAS's installer, curtin, writes to a machine: its network, its name, and how cloud-init finds MAAS.
fn installed(endpoint: SocketAddr, order: &Order) -> anyhow::Result<Machine> {
    let known = [KUBERNETES, OLDER_KUBERNETES].into_iter().find(|it| image(it.as_str()).ends_with(&order.series));
    let kubernetes = known.with_context(|| format!("there is no image {}", order.series))?;
    let link = order.link.as_ref().context("it has no address")?;
    let mac = order.mac.clone().context("it has no network card")?;
    let credentials = serde_json::to_value(order.credentials.as_ref().context("it has no credentials")?)?;
    let with = |more: Value| {
        let mut all = credentials.clone();
        for (key, value) in more.as_object().into_iter().flatten() {
            all[key] = value.clone();
        }
        all
    };
    let metadata = format!("http://{endpoint}/MAAS/metadata/");
    let subnet = json!({
        "type": "static",
        "address": format!("{}/{}", link.address, link.prefix),
        "gateway": link.gateway,
        "dns_nameservers": link.name_servers,
    });
    let card = json!({"type": "physical", "name": "eth0", "mac_address": mac, "subnets": [subnet]});
    let reporting = with(json!({"type": "webhook", "endpoint": format!("{metadata}status/{}", order.system_id)}));
    let name_servers: Vec<String> = link.name_servers.iter().map(|server| format!("nameserver {server}\n")).collect();
    // JSON is YAML.
    let cloud = |name: &str, config: Value| (format!("/etc/cloud/cloud.cfg.d/{name}"), format!("{config}\n"));
    let files = vec![
        // Also read by a shell script that only knows this form.
        ("/etc/cloud/cloud.cfg.d/90_dpkg.cfg".to_owned(), "datasource_list: [ MAAS ]\n".to_owned()),
        cloud("90_dpkg_maas.cfg", json!({"datasource": {"MAAS": with(json!({"metadata_url": metadata}))}})),
        cloud("90_dpkg_local_cloud_config.cfg", json!({"manage_etc_hosts": true, "reporting": {"maas": reporting}})),
        cloud("50-curtin-networking.cfg", json!({"network": {"version": 1, "config": [card]}})),
        ("/etc/hostname".to_owned(), format!("{}\n", order.hostname)),
        ("/etc/resolv.conf".to_owned(), name_servers.concat()),
    ];
    Ok(Machine { name: order.hostname.clone(), kubernetes, mac, files })
}

/// A flavor of our templates, and its variables.
#[derive(Clone, Debug)]
pub struct Flavor {
    /// Its name; empty for metal.
    pub name: &'static str,
    pub kubernetes: KubernetesVersion,
    pub image: String,
}

impl Default for Flavor {
    fn default() -> Self {
        Self { name: "", kubernetes: KUBERNETES, image: image(KUBERNETES.as_str()) }
    }
}

/// A management cluster installed by clusterctl, with machines that boot.
pub struct RealScene {
    pub scene: Scene,
    pub clusterctl: Clusterctl,
    pub host: NodeHost,
    _alone: MutexGuard<'static, ()>,
}

/// Only one scene runs at a time, with all CPUs; two at once would only slow each other down.
static ALONE: Mutex<()> = Mutex::const_new(());

impl RealScene {
    pub async fn start() -> anyhow::Result<Self> {
        let alone = ALONE.lock().await;
        let host = start_host().await?;
        let maas = Arc::new(start_maas(&host)?);
        let (scene, clusterctl) = Scene::start_by_clusterctl(maas).await?;
        Ok(Self { scene, clusterctl, host, _alone: alone })
    }

    /// Moves all objects to another management cluster for the same machines. Returns the previous one.
    pub async fn move_to(&mut self, (scene, clusterctl): (Scene, Clusterctl)) -> anyhow::Result<(Scene, Clusterctl)> {
        let kubeconfig = scene.testbed.kubeconfig_path().display().to_string();
        self.clusterctl.run(["move", "--to-kubeconfig", &kubeconfig]).await?;
        Ok((std::mem::replace(&mut self.scene, scene), std::mem::replace(&mut self.clusterctl, clusterctl)))
    }

    /// Patches a Cluster API object in the management cluster.
    pub async fn patch(&self, object: &str, patch: Value) -> anyhow::Result<()> {
        self.scene.testbed.kubectl(["patch", object, "--type", "merge", "--patch", &patch.to_string()]).await?;
        Ok(())
    }

    /// Adds the image with the older Kubernetes version to MAAS and the machines.
    pub async fn add_older_image(&self) -> anyhow::Result<()> {
        let older = tokio::task::spawn_blocking(|| NodeImage::ensure(OLDER_KUBERNETES)).await??;
        self.host.add_image(&older).await?;
        self.scene.maas.arrange(json!([{"image": {"name": image(OLDER_KUBERNETES.as_str())}}]))
    }

    /// The objects of a cluster, as clusterctl generates them from the metal template, for nodes that are containers on
    /// this computer.
    pub async fn generate(&self, name: &str, control_planes: u32, workers: u32) -> anyhow::Result<Vec<Value>> {
        self.generate_of(&Flavor::default(), name, control_planes, workers).await
    }

    /// As [`Self::generate`], for another flavor.
    pub async fn generate_of(
        &self,
        flavor: &Flavor,
        name: &str,
        control_planes: u32,
        workers: u32,
    ) -> anyhow::Result<Vec<Value>> {
        let mut command = self.clusterctl.command();
        let provider = format!("maas:{}", release_of(NEW_CONTRACT)?);
        command.args(["generate", "cluster", name, "--infrastructure", &provider, "--flavor", flavor.name]);
        command.args(["--kubernetes-version", flavor.kubernetes.as_str()]);
        command.args(["--control-plane-machine-count", &control_planes.to_string()]);
        command.args(["--worker-machine-count", &workers.to_string()]);
        command.env("MAAS_DNS_DOMAIN", DOMAIN).env("IMAGE_HAS_KUBERNETES", "true");
        for role in ["CONTROL_PLANE", "WORKER", "LXD_WORKER"] {
            // As small as the VMs, of which a host in a scenario runs several.
            for (what, value) in
                [("IMAGE", flavor.image.as_str()), ("MINCPU", "2"), ("MINMEMORY", "2048"), ("DISK", "10")]
            {
                command.env(format!("{role}_MACHINE_{what}"), value);
            }
        }
        let output = tokio::task::spawn_blocking(move || command.output()).await??;
        ensure!(output.status.success(), "no cluster: {}", String::from_utf8_lossy(&output.stderr));
        let mut objects = parse_yaml(&String::from_utf8(output.stdout)?)?;
        objects.iter_mut().for_each(suit_this_computer);
        Ok(objects)
    }

    /// Applies the objects of a cluster, installs its network plugin as soon as its API server answers, and waits until
    /// this many Nodes are Ready with MAAS provider IDs.
    pub async fn bring_up(&self, name: &str, objects: Vec<Value>, nodes: usize) -> anyhow::Result<()> {
        self.scene.testbed.apply_objects(objects).await?;
        self.give_network(name).await?;
        self.wait_ready(name, nodes).await
    }

    /// Brings up a metal cluster.
    pub async fn create(&self, name: &str, control_planes: u32, workers: u32) -> anyhow::Result<()> {
        let objects = self.generate(name, control_planes, workers).await?;
        self.bring_up(name, objects, usize::try_from(control_planes + workers)?).await
    }

    /// Applies the network plugin, which is the user's choice, as soon as the API server answers.
    pub async fn give_network(&self, name: &str) -> anyhow::Result<()> {
        let file = self.scene.testbed.sandbox().dir().join("network.yaml");
        std::fs::write(&file, NETWORK_PLUGIN)?;
        let file = file.display().to_string();
        let what = format!("an API server of {name} that answers");
        let applied = eventually_within(NODES_PATIENCE, &what, || async {
            self.kubectl(name, &["apply", "--filename", &file]).await
        });
        self.scene.explain(applied.await).await.map(drop)
    }

    /// Waits until exactly this many Nodes are Ready, each with the provider ID of a MaasMachine and labelled with the
    /// zone of its machine in MAAS.
    pub async fn wait_ready(&self, name: &str, wanted: usize) -> anyhow::Result<()> {
        let machines = self.maas_machines()?;
        let what = format!("{wanted} Ready Nodes in {name}");
        let outcome = eventually_within(NODES_PATIENCE, &what, || async {
            let mut ids = Vec::new();
            for machine in machines.list().await? {
                if machine["metadata"]["labels"]["cluster.x-k8s.io/cluster-name"] == name {
                    ids.push(machine["spec"]["providerID"].as_str().context("a MaasMachine has no ID")?.to_owned());
                }
            }
            let nodes = self.nodes(name).await?;
            let ready: Vec<&Value> = nodes.iter().filter(|node| is_ready(node)).collect();
            ensure!(
                ready.len() == wanted && nodes.len() == wanted,
                "{} of {} Nodes are Ready",
                ready.len(),
                nodes.len()
            );
            let mut on_nodes: Vec<String> =
                nodes.iter().filter_map(|node| node["spec"]["providerID"].as_str().map(str::to_owned)).collect();
            ids.sort();
            on_nodes.sort();
            ensure!(ids == on_nodes, "MaasMachines have {ids:?}, Nodes {on_nodes:?}");
            nodes.iter().try_for_each(|node| self.has_zone(node))
        });
        self.scene.explain(outcome.await).await
    }

    /// Whether a Node is labelled with the zone of its machine in MAAS.
    fn has_zone(&self, node: &Value) -> anyhow::Result<()> {
        let id = node["spec"]["providerID"].as_str().unwrap_or_default();
        let machine = self.scene.maas.machines().into_iter().find(|it| id.ends_with(&format!("/{}", it.system_id)));
        let (label, zone) =
            (&node["metadata"]["labels"][ZONE], machine.with_context(|| format!("{id:?} is none"))?.zone);
        ensure!(
            *label == zone.as_str(),
            "{} is labelled with zone {label}, {id} is in {zone}",
            node["metadata"]["name"]
        );
        Ok(())
    }

    /// The MaasMachines of all clusters.
    pub fn maas_machines(&self) -> anyhow::Result<Objects> {
        Objects::of(&self.scene.testbed, crate::INFRASTRUCTURE, "v1beta1", "MaasMachine")
    }

    /// The Nodes of a cluster, read from its own API server.
    pub async fn nodes(&self, name: &str) -> anyhow::Result<Vec<Value>> {
        let listed: Value = serde_json::from_str(&self.kubectl(name, &["get", "nodes", "--output", "json"]).await?)?;
        Ok(listed["items"].as_array().cloned().unwrap_or_default())
    }

    /// Runs kubectl against a cluster, with the kubeconfig that Cluster API generated.
    pub async fn kubectl(&self, name: &str, arguments: &[&str]) -> anyhow::Result<String> {
        let kubeconfig = self.kubeconfig(name).await?;
        let kubectl =
            tokio::task::spawn_blocking(|| ToolSet::Kubernetes(KUBERNETES).ensure()).await??.program("kubectl");
        let mut command: Command = self.scene.testbed.command(&kubectl);
        command.arg("--kubeconfig").arg(kubeconfig).arg("--request-timeout=10s").args(arguments);
        let output = tokio::task::spawn_blocking(move || command.output()).await??;
        ensure!(output.status.success(), "kubectl {arguments:?}: {}", String::from_utf8_lossy(&output.stderr).trim());
        Ok(String::from_utf8(output.stdout)?)
    }

    pub async fn kubeconfig(&self, name: &str) -> anyhow::Result<PathBuf> {
        let secrets = Objects::of(&self.scene.testbed, "", "v1", "Secret")?;
        let secret = secrets.get(&format!("{name}-kubeconfig")).await?;
        let encoded = secret["data"]["value"].as_str().context("the kubeconfig is empty")?;
        let path = self.scene.testbed.sandbox().dir().join(format!("{name}.kubeconfig"));
        std::fs::write(&path, BASE64_STANDARD.decode(encoded)?)?;
        Ok(path)
    }

    /// Deletes a cluster and waits until nothing is left of it: in Kubernetes, in MAAS, on the disks of machines.
    pub async fn delete(&self, name: &str) -> anyhow::Result<()> {
        let plan = crate::cluster::ClusterPlan::new(self.scene.core, name);
        self.scene.delete(&plan).await?;
        eventually_within(NODES_PATIENCE, "empty disks", || async {
            let left = self.host.installed()?;
            ensure!(left.is_empty(), "there is still something on the disks of {left:?}");
            Ok(())
        })
        .await
    }

    /// Stops everything.
    pub async fn stop(self) {
        self.scene.stop().await;
    }
}

pub(crate) fn is_ready(node: &Value) -> bool {
    let conditions = node["status"]["conditions"].as_array();
    let ready = |condition: &Value| condition["type"] == "Ready" && condition["status"] == "True";
    conditions.is_some_and(|conditions| conditions.iter().any(ready))
}

/// kubeadm refuses cgroup v1 by default, and its timeouts are too short for a slow computer.
fn suit_this_computer(object: &mut Value) {
    let spec = match object["kind"].as_str() {
        Some("KubeadmControlPlane") => &mut object["spec"]["kubeadmConfigSpec"],
        Some("KubeadmControlPlaneTemplate") => &mut object["spec"]["template"]["spec"]["kubeadmConfigSpec"],
        Some("KubeadmConfigTemplate") => &mut object["spec"]["template"]["spec"],
        _ => return,
    };
    for configuration in ["initConfiguration", "joinConfiguration"] {
        if let Some(configuration) = spec.get_mut(configuration) {
            if has_cgroup_1() {
                configuration["nodeRegistration"]["ignorePreflightErrors"] = json!(["SystemVerification"]);
            }
            configuration["timeouts"] = json!({"kubernetesAPICallSeconds": API_CALL_SECONDS});
        }
    }
}
