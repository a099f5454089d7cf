//! What users do with a cluster of real nodes, and what happens to its machines.

use std::collections::BTreeSet;
use std::future::Future;
use std::sync::Mutex;
use std::time::{Duration, Instant};

use anyhow::{Context as _, anyhow, ensure};
use capmaas_testbed::nodes::BUSYBOX_IMAGE;
use maas_sim::control::MachineFault;
use serde_json::{Value, json};
use tokio::io::{AsyncReadExt as _, AsyncWriteExt as _};

use crate::eventually_within;
use crate::real_nodes::{RealScene, is_ready};

const PATIENCE: Duration = Duration::from_secs(300);
const ANSWER_PATIENCE: Duration = Duration::from_secs(3);
const ASK_EVERY: Duration = Duration::from_millis(500);
const NODE_PORT: u16 = 30080;
const CONTROL_PLANE: &str = "node-role.kubernetes.io/control-plane";

impl RealScene {
    /// Starts two Pods behind a Service and waits until every Node reaches both. Returns the names of the Pods.
    pub async fn run_a_workload(&self, cluster: &str) -> anyhow::Result<BTreeSet<String>> {
        let file = self.scene.testbed.sandbox().dir().join("web.json");
        std::fs::write(&file, web())?;
        let file = file.display().to_string();
        // An API server that has just started again may be too slow for the first attempts.
        let nodes = eventually_within(PATIENCE, "an API server that takes the workload", || async {
            self.kubectl(cluster, &["apply", "--filename", &file]).await?;
            self.nodes(cluster).await
        });
        let nodes = self.scene.explain(nodes.await).await?;
        let seen = Mutex::new(BTreeSet::new());
        for node in nodes {
            let address = address_of(&node)?;
            let here = Mutex::new(BTreeSet::new());
            let what = format!("both Pods behind {address}");
            let outcome = eventually_within(PATIENCE, &what, || async {
                let name = get(&address).await?;
                ensure!(name.starts_with("web-"), "{name:?} is no Pod of ours");
                let mut here = here.lock().map_err(|_| anyhow!("another look failed"))?;
                here.insert(name);
                ensure!(here.len() == 2, "only {here:?} answered");
                seen.lock().map_err(|_| anyhow!("another look failed"))?.extend(here.iter().cloned());
                Ok(())
            });
            self.scene.explain(outcome.await).await?;
        }
        seen.into_inner().map_err(|_| anyhow!("a look failed"))
    }

    /// The names of a cluster's control-plane Nodes, or of the others.
    pub async fn names(&self, cluster: &str, control_planes: bool) -> anyhow::Result<BTreeSet<String>> {
        let nodes = self.nodes(cluster).await?;
        let wanted = nodes.iter().filter(|node| is_control_plane(node) == control_planes);
        Ok(wanted.filter_map(|node| node["metadata"]["name"].as_str().map(str::to_owned)).collect())
    }

    /// The host name of one of a cluster's control-plane machines.
    pub async fn control_plane(&self, cluster: &str) -> anyhow::Result<String> {
        let names = self.names(cluster, true).await?;
        let first = names.first().and_then(|name| name.split('.').next());
        Ok(first.context("no Node is a control plane")?.to_owned())
    }

    /// Cuts the power of a machine and makes MAAS query its BMC, as it does every few minutes. Returns once the machine
    /// has been off, whether or not it runs again.
    pub async fn cut_power(&self, hostname: &str) -> anyhow::Result<()> {
        let before = self.boot_time(hostname).await;
        let control = self.scene.maas.control();
        let id = control.with_model(|model| model.machine_named(hostname)).map_err(|error| anyhow!(error))?;
        control.hurt(Some(hostname), &MachineFault::LosePower, None).map_err(|error| anyhow!(error))?;
        control.with_model(|model| model.query_power(&id)).map_err(|error| anyhow!("{error:?}"))?;
        eventually_within(PATIENCE, &format!("{hostname} off"), || async {
            ensure!(self.boot_time(hostname).await != before, "{hostname} still runs");
            Ok(())
        })
        .await
    }

    /// Queries a cluster's API server repeatedly while `during` runs. Returns the longest time without an answer.
    pub async fn longest_silence(&self, cluster: &str, during: impl Future<Output = ()>) -> Duration {
        let (mut longest, mut last) = (Duration::ZERO, Instant::now());
        let asking = async {
            loop {
                if self.kubectl(cluster, &["get", "--raw", "/readyz"]).await.is_ok() {
                    longest = longest.max(last.elapsed());
                    last = Instant::now();
                }
                tokio::time::sleep(ASK_EVERY).await;
            }
        };
        tokio::select! {
            () = during => {}
            _ = asking => {}
        }
        longest.max(last.elapsed())
    }

    /// Reads a cluster's Nodes repeatedly while `during` runs. Returns the lowest number of Ready control planes; `None`
    /// without any answer.
    pub async fn fewest_control_planes(&self, cluster: &str, during: impl Future<Output = ()>) -> Option<usize> {
        let mut fewest: Option<usize> = None;
        let asking = async {
            loop {
                if let Ok(nodes) = self.nodes(cluster).await {
                    let ready = nodes.iter().filter(|node| is_control_plane(node) && is_ready(node)).count();
                    fewest = Some(fewest.map_or(ready, |before| before.min(ready)));
                }
                tokio::time::sleep(ASK_EVERY).await;
            }
        };
        tokio::select! {
            () = during => {}
            _ = asking => {}
        }
        fewest
    }

    /// When a machine booted; `None` while it is off.
    async fn boot_time(&self, hostname: &str) -> Option<String> {
        self.host.run(hostname, &["stat", "--format=%Y", "/proc/1"]).await.ok()
    }

    /// The versions of a cluster's kubelets.
    pub async fn kubelets(&self, cluster: &str) -> anyhow::Result<Vec<String>> {
        let nodes = self.nodes(cluster).await?;
        let version =
            |node: &Value| node["status"]["nodeInfo"]["kubeletVersion"].as_str().unwrap_or_default().to_owned();
        Ok(nodes.iter().map(version).collect())
    }

    /// Waits until the members of etcd are exactly this many control-plane Nodes.
    pub async fn wait_members(&self, cluster: &str, wanted: usize) -> anyhow::Result<()> {
        let what = format!("{wanted} members of etcd");
        let outcome = eventually_within(PATIENCE, &what, || async {
            let nodes = self.names(cluster, true).await?;
            let members = self.etcd_members(&self.control_plane(cluster).await?).await?;
            ensure!(members == nodes && nodes.len() == wanted, "Nodes {nodes:?}, members {members:?}");
            Ok(())
        });
        self.scene.explain(outcome.await).await
    }

    /// The names of the etcd members, as reported by the member on this machine.
    pub async fn etcd_members(&self, hostname: &str) -> anyhow::Result<BTreeSet<String>> {
        let pki = "/etc/kubernetes/pki/etcd";
        let (ca, certificate, key) =
            (format!("{pki}/ca.crt"), format!("{pki}/healthcheck-client.crt"), format!("{pki}/healthcheck-client.key"));
        let url = "https://127.0.0.1:2379/v3/cluster/member/list";
        let curl = ["curl", "-sS", "--cacert", &ca, "--cert", &certificate, "--key", &key, "--data", "{}", url];
        let answer: Value = serde_json::from_str(&self.host.run(hostname, &curl).await?)?;
        let members = answer["members"].as_array().with_context(|| format!("etcd answered {answer}"))?;
        Ok(members.iter().filter_map(|member| member["name"].as_str().map(str::to_owned)).collect())
    }
}

fn is_control_plane(node: &Value) -> bool {
    node["metadata"]["labels"].get(CONTROL_PLANE).is_some()
}

/// Two Pods that serve their names, and a Service in front of them.
fn web() -> String {
    let labels = json!({"app": "web"});
    let container = json!({
        "name": "web",
        "image": BUSYBOX_IMAGE,
        "imagePullPolicy": "Never",
        "command": ["/bin/sh", "-c", "hostname >/tmp/index.html; exec httpd -f -p 8080 -h /tmp"],
        "readinessProbe": {"httpGet": {"path": "/", "port": 8080}, "periodSeconds": 1},
    });
    let pod = json!({"terminationGracePeriodSeconds": 1, "containers": [container]});
    let deployment = json!({
        "apiVersion": "apps/v1", "kind": "Deployment", "metadata": {"name": "web"},
        "spec": {"replicas": 2, "selector": {"matchLabels": labels},
                 "template": {"metadata": {"labels": labels}, "spec": pod}},
    });
    let service = json!({
        "apiVersion": "v1", "kind": "Service", "metadata": {"name": "web"},
        "spec": {"type": "NodePort", "selector": labels,
                 "ports": [{"port": 80, "targetPort": 8080, "nodePort": NODE_PORT}]},
    });
    json!({"apiVersion": "v1", "kind": "List", "items": [deployment, service]}).to_string()
}

async fn get(address: &str) -> anyhow::Result<String> {
    let exchange = async {
        let mut stream = tokio::net::TcpStream::connect((address, NODE_PORT)).await?;
        stream.write_all(b"GET / HTTP/1.0\r\n\r\n").await?;
        let mut answer = String::new();
        stream.read_to_string(&mut answer).await?;
        Ok::<_, std::io::Error>(answer)
    };
    let answer = tokio::time::timeout(ANSWER_PATIENCE, exchange).await??;
    let (_, body) = answer.split_once("\r\n\r\n").context("no answer")?;
    Ok(body.trim().to_owned())
}

fn address_of(node: &Value) -> anyhow::Result<String> {
    let addresses = node["status"]["addresses"].as_array().cloned().unwrap_or_default();
    let internal = addresses.iter().find(|address| address["type"] == "InternalIP");
    Ok(internal.and_then(|address| address["address"].as_str()).context("a Node has no address")?.to_owned())
}
