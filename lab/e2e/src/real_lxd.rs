//! Machines of the simulated MAAS with a real LXD each, and the agents that run on them.

use std::collections::BTreeMap;
use std::path::PathBuf;
use std::sync::Arc;

use anyhow::Context as _;
use capmaas_testbed::{LxdNode, NodePlayerOptions};
use serde_json::{Value, json};

use crate::maas::Maas;
use crate::{free_port, program};

/// The image that the manager is configured to roll out.
pub const AGENT_IMAGE: &str = "registry.example/team/lxd-initializer:v1";
/// The tag of the machines that have LXD.
pub const TAG: &str = "has-lxd";

/// Real LXD daemons, keyed by the name of the machine that each is on.
pub struct LxdHosts {
    nodes: BTreeMap<String, LxdNode>,
}

impl LxdHosts {
    /// Starts one for each of these machines. MAAS then knows the machines by the NICs that LXD shows.
    pub async fn start(maas: &Maas, machines: &[&str]) -> anyhow::Result<Self> {
        let mut nodes = BTreeMap::new();
        let mut statements = Vec::new();
        for machine in machines {
            let node = LxdNode::start().await?;
            statements.push(json!({"interface": {"machine": machine, "name": "eth0", "mac": node.mac()?}}));
            statements.push(json!({"machine": {"hostname": machine, "tags": [TAG]}}));
            nodes.insert((*machine).to_owned(), node);
        }
        maas.arrange(Value::Array(statements))?;
        Ok(Self { nodes })
    }

    /// What their nodes run: the agent, each connected to the LXD of its machine.
    pub fn agents(&self, maas: &Arc<Maas>) -> anyhow::Result<NodePlayerOptions> {
        let found = self.nodes.iter().map(|(machine, node)| (machine.clone(), node.bridge().to_owned()));
        let (bridges, maas): (BTreeMap<String, String>, _) = (found.collect(), Arc::clone(maas));
        let dirs: BTreeMap<String, PathBuf> =
            self.nodes.iter().map(|(machine, node)| (machine.clone(), node.daemon().dir())).collect();
        let state = tempfile::tempdir().context("make a folder for the agents")?;
        let options =
            NodePlayerOptions::default().image("registry.example/team/lxd-initializer", program("lxd-initializer")?);
        let options = options.hook(move |plan| {
            // All nodes share this machine: its ports, its kernel without zfs, and one network.
            let port = free_port().unwrap_or(8081);
            plan.moved_ports.insert(8081, port);
            plan.env.push(("HEALTH_ADDRESS".into(), format!("127.0.0.1:{port}")));
            plan.env.push(("WATCH_SECONDS".into(), "1".into()));
            let machine = maas.machines().into_iter().find(|machine| machine.hostname == plan.node);
            let address = machine.and_then(|machine| machine.addresses.first().copied());
            for (key, value) in &mut plan.env {
                match (key.as_str(), address, bridges.get(&plan.node)) {
                    ("NETWORK_BRIDGE", _, Some(bridge)) => value.clone_from(bridge),
                    ("NODE_IP", Some(address), _) => *value = address.to_string(),
                    _ => {}
                }
            }
        });
        Ok(options.host_paths(move |node| {
            let own = |name: &str| {
                let path = state.path().join(node).join(name);
                let _ = std::fs::create_dir_all(&path);
                path
            };
            let lxd = dirs.get(node).cloned().unwrap_or_else(|| own("lxd"));
            BTreeMap::from([
                ("/var/snap".to_owned(), own("snap")),
                ("/var/lib/lxd".to_owned(), lxd),
                ("/var/lib/lxd-initializer".to_owned(), own("state")),
            ])
        }))
    }

    /// The VMs in MAAS's LXD project, keyed by machine.
    pub fn vms(&self) -> anyhow::Result<BTreeMap<String, Vec<String>>> {
        let mut all = BTreeMap::new();
        for (machine, node) in &self.nodes {
            let listed = node.daemon().run_in_network(["lxc", "list", "--project", "maas", "--format", "json"])?;
            let listed: Vec<Value> = serde_json::from_str(&listed)?;
            let names = listed.iter().filter_map(|vm| vm["name"].as_str()).map(str::to_owned);
            all.insert(machine.clone(), names.collect());
        }
        Ok(all)
    }
}
