//! The shipped manifest on a real API server with two simulated nodes, one of which has a real LXD.

use std::{
    collections::BTreeMap,
    net::TcpListener,
    process::Command,
    sync::atomic::{AtomicU16, Ordering},
    time::{Duration, Instant},
};

use capmaas_testbed::{KubernetesVersion, NodePlayer, NodePlayerOptions, Testbed};
use k8s_openapi::api::core::v1::{Node, Pod};
use kube::{Api, ResourceExt, api::ListParams};
use lxd_initializer::manifest;

use super::lxd::RealLxd;

const PROGRAM: &str = env!("CARGO_BIN_EXE_lxd-initializer");

pub(crate) struct Scene {
    pub(crate) testbed: Testbed,
    pub(crate) player: NodePlayer,
    pub(crate) lxd: RealLxd,
    pub(crate) folder: tempfile::TempDir,
}

/// A free port that the kernel does not assign to an outgoing connection before it is used.
fn free_port() -> u16 {
    static NEXT: AtomicU16 = AtomicU16::new(0);
    let first = 10_000 + u16::try_from(std::process::id() % 20_000).unwrap();
    let candidates = std::iter::repeat_with(|| first + NEXT.fetch_add(1, Ordering::SeqCst)).take(200);
    candidates.into_iter().find(|port| TcpListener::bind(("127.0.0.1", *port)).is_ok()).expect("no free port")
}

/// A cluster with a node that has LXD (`n1`) and one that has none (`n2`).
pub(crate) async fn scene(version: KubernetesVersion) -> Scene {
    let _ = rustls::crypto::ring::default_provider().install_default();
    let testbed = Testbed::builder().kubernetes(version).controller_manager(true).start().await.unwrap();
    let (lxd, folder) = (RealLxd::start().await, tempfile::tempdir().unwrap());
    let ports = BTreeMap::from([("n1".to_owned(), free_port()), ("n2".to_owned(), free_port())]);
    let (bridge, ip) = (lxd.bridge.clone(), lxd.ip.to_string());
    let (lxd_dir, state) = (lxd.dir(), folder.path().to_owned());
    let options = NodePlayerOptions::default()
        .image("registry.example/team/lxd-initializer", PROGRAM)
        .hook(move |plan| {
            // This machine is not a MAAS node: its LXD has neither zfs nor br0, and Pods share its ports.
            let port = ports[&plan.node];
            plan.moved_ports.insert(8081, port);
            plan.env.push(("HEALTH_ADDRESS".into(), format!("127.0.0.1:{port}")));
            plan.env.push(("WATCH_SECONDS".into(), "1".into()));
            for (key, value) in &mut plan.env {
                match key.as_str() {
                    "STORAGE_BACKEND" => *value = "dir".into(),
                    "NETWORK_BRIDGE" => value.clone_from(&bridge),
                    "NODE_IP" => value.clone_from(&ip),
                    _ => {}
                }
            }
        })
        .host_paths(move |node| {
            let own = |name: &str| {
                let path = state.join(node).join(name);
                std::fs::create_dir_all(&path).unwrap();
                path
            };
            let lxd = if node == "n1" { lxd_dir.clone() } else { own("lxd") };
            BTreeMap::from([
                ("/var/snap".to_owned(), own("snap")),
                ("/var/lib/lxd".to_owned(), lxd),
                ("/var/lib/lxd-initializer".to_owned(), own("state")),
            ])
        });
    let player = NodePlayer::start(&testbed, options).unwrap();
    for node in ["n1", "n2"] {
        player.add_node(node).await.unwrap();
    }
    Scene { testbed, player, lxd, folder }
}

impl Scene {
    /// The documented steps: copy, `sed`, `kubectl apply`.
    pub(crate) async fn apply_manifest(&self) {
        let file = self.folder.path().join("lxd-initializer-daemonset.yaml");
        std::fs::write(&file, manifest::DAEMON_SET).unwrap();
        for script in [r"s/${REGISTRY}/registry.example\/team/g", "s/${TAG}/v1/g"] {
            assert!(Command::new("sed").args(["-i", script]).arg(&file).status().unwrap().success());
        }
        self.testbed.kubectl(["apply", "-f", file.to_str().unwrap()]).await.unwrap();
    }

    pub(crate) async fn pod(&self, node: &str) -> Option<Pod> {
        let pods: Api<Pod> = Api::namespaced(self.testbed.client().unwrap(), "capmaas-system");
        let all = pods.list(&ListParams::default().labels("app=lxd-initializer")).await.unwrap();
        all.into_iter().find(|pod| pod.spec.as_ref().and_then(|spec| spec.node_name.as_deref()) == Some(node))
    }

    pub(crate) async fn log(&self, node: &str) -> String {
        match self.pod(node).await {
            Some(pod) => self.player.logs("capmaas-system", &pod.name_any()),
            None => String::new(),
        }
    }

    pub(crate) async fn until_logged(&self, node: &str, words: &str) {
        let deadline = Instant::now() + Duration::from_secs(90);
        while !self.log(node).await.contains(words) {
            assert!(Instant::now() < deadline, "{words:?} is never logged on {node}:\n{}", self.log(node).await);
            tokio::time::sleep(Duration::from_millis(200)).await;
        }
    }

    pub(crate) async fn node(&self, name: &str) -> Node {
        Api::<Node>::all(self.testbed.client().unwrap()).get(name).await.unwrap()
    }

    pub(crate) async fn until_ready(&self, node: &str) {
        let deadline = Instant::now() + Duration::from_secs(90);
        loop {
            let pod = self.pod(node).await;
            let ready = pod.and_then(|pod| pod.status?.conditions).into_iter().flatten();
            if ready.into_iter().any(|condition| condition.type_ == "Ready" && condition.status == "True") {
                return;
            }
            assert!(Instant::now() < deadline, "the Pod on {node} is never ready:\n{}", self.log(node).await);
            tokio::time::sleep(Duration::from_millis(200)).await;
        }
    }
}
