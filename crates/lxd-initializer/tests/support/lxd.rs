//! A node with a real LXD daemon, and a client of it.

use std::{net::IpAddr, path::PathBuf};

use capmaas_testbed::LxdNode;
use http::Method;
use lxd_client::Client;
use serde_json::json;

pub(crate) struct RealLxd {
    node: LxdNode,
    pub(crate) ip: IpAddr,
    pub(crate) bridge: String,
}

impl RealLxd {
    pub(crate) async fn start() -> Self {
        let node = LxdNode::start().await.unwrap();
        Self { ip: node.ip(), bridge: node.bridge().to_owned(), node }
    }

    pub(crate) fn dir(&self) -> PathBuf {
        self.node.daemon().dir()
    }

    pub(crate) fn socket(&self) -> PathBuf {
        self.node.daemon().socket()
    }

    pub(crate) fn address(&self) -> String {
        self.node.address()
    }

    /// The MAC address of the node's NIC.
    pub(crate) fn mac(&self) -> String {
        self.node.mac().unwrap()
    }

    pub(crate) fn client(&self) -> Client {
        Client::unix(self.socket()).unwrap()
    }

    /// kill -9.
    pub(crate) fn kill(&mut self) {
        self.node.daemon_mut().kill();
    }

    /// Starts it again with the content of its directory.
    pub(crate) async fn launch(&mut self) {
        self.node.daemon_mut().restart().await.unwrap();
    }

    /// Unmounts the pools of a daemon that was killed, as a reboot would.
    pub(crate) fn unmount_pools(&self) {
        self.node.unmount_pools().unwrap();
    }

    /// Creates an empty VM, as MAAS composes one.
    pub(crate) async fn make_vm(&self, project: &str, name: &str) {
        let vm = json!({
            "name": name, "type": "virtual-machine", "source": {"type": "none"}, "profiles": [],
            "config": {
                "limits.cpu": "1", "limits.memory": "1073741824", "limits.memory.hugepages": "false",
                "security.secureboot": "false",
            },
            "devices": {
                "root": {"type": "disk", "path": "/", "pool": "default", "size": "100000000"},
                "eth0": {"type": "nic", "name": "eth0", "nictype": "bridged", "parent": self.bridge},
            },
        });
        let path = format!("/1.0/instances?project={project}");
        self.client().mutate(Method::POST, &path, Some(&vm)).await.unwrap();
    }

    /// Sets one key of the server's configuration.
    pub(crate) async fn configure(&self, key: &str, value: &str) {
        self.client().mutate(Method::PATCH, "/1.0", Some(&json!({"config": {key: value}}))).await.unwrap();
    }
}
