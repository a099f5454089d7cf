//! The shipped manifest on a real API server with the real DaemonSet controller: the commands of the documents in their order,
//! and the real program under its own ServiceAccount.
#![allow(clippy::unwrap_used, clippy::expect_used, clippy::panic)]

mod support;

use std::{
    collections::BTreeMap,
    net::TcpListener,
    process::Command,
    time::{Duration, Instant},
};

use capmaas_testbed::{NodePlayer, NodePlayerOptions, Testbed};
use k8s_openapi::api::core::v1::{Node, Pod};
use kube::{
    Api, ResourceExt,
    api::{ListParams, Patch, PatchParams},
};
use lxd_initializer::{manifest, names};
use serde_json::json;
use support::{
    lxd::RealLxd,
    maas::{CANARY, PlayedMaas},
};

const PROGRAM: &str = env!("CARGO_BIN_EXE_lxd-initializer");

struct Scene {
    testbed: Testbed,
    player: NodePlayer,
    lxd: RealLxd,
    folder: tempfile::TempDir,
}

fn free_port() -> u16 {
    TcpListener::bind("127.0.0.1:0").unwrap().local_addr().unwrap().port()
}

/// A cluster with a node that has LXD (`n1`) and one that has none (`n2`).
async fn scene() -> Scene {
    let _ = rustls::crypto::ring::default_provider().install_default();
    let testbed = Testbed::builder().controller_manager(true).start().await.unwrap();
    let (lxd, folder) = (RealLxd::start().await, tempfile::tempdir().unwrap());
    let ports = BTreeMap::from([("n1".to_owned(), free_port()), ("n2".to_owned(), free_port())]);
    let (bridge, ip) = (lxd.bridge.clone(), lxd.ip.to_string());
    let (lxd_dir, state) = (lxd.dir(), folder.path().to_owned());
    let options = NodePlayerOptions::default()
        .image("registry.example/team/lxd-initializer", PROGRAM)
        .hook(move |plan| {
            // This machine is no node of MAAS: its LXD has neither zfs nor br0, and Pods share its ports.
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
    /// What the documents say: copy, `sed`, `kubectl apply`.
    async fn apply_manifest(&self) {
        let file = self.folder.path().join("lxd-initializer-daemonset.yaml");
        std::fs::write(&file, manifest::DAEMON_SET).unwrap();
        for script in [r"s/${REGISTRY}/registry.example\/team/g", "s/${TAG}/v1/g"] {
            assert!(Command::new("sed").args(["-i", script]).arg(&file).status().unwrap().success());
        }
        self.testbed.kubectl(["apply", "-f", file.to_str().unwrap()]).await.unwrap();
    }

    async fn pod(&self, node: &str) -> Option<Pod> {
        let pods: Api<Pod> = Api::namespaced(self.testbed.client().unwrap(), "capmaas-system");
        let all = pods.list(&ListParams::default().labels("app=lxd-initializer")).await.unwrap();
        all.into_iter().find(|pod| pod.spec.as_ref().and_then(|spec| spec.node_name.as_deref()) == Some(node))
    }

    async fn log(&self, node: &str) -> String {
        match self.pod(node).await {
            Some(pod) => self.player.logs("capmaas-system", &pod.name_any()),
            None => String::new(),
        }
    }

    async fn until_logged(&self, node: &str, words: &str) {
        let deadline = Instant::now() + Duration::from_secs(90);
        while !self.log(node).await.contains(words) {
            assert!(Instant::now() < deadline, "{words:?} is never logged on {node}:\n{}", self.log(node).await);
            tokio::time::sleep(Duration::from_millis(200)).await;
        }
    }

    async fn node(&self, name: &str) -> Node {
        Api::<Node>::all(self.testbed.client().unwrap()).get(name).await.unwrap()
    }

    async fn until_ready(&self, node: &str) {
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

#[tokio::test]
async fn the_commands_of_the_documents_make_a_node_a_vm_host() {
    let scene = scene().await;
    let maas = PlayedMaas::start(&scene.lxd.ip.to_string()).await;
    let pin = scene.lxd.client().server().await.unwrap().environment.certificate_fingerprint.parse().unwrap();
    maas.with(|model| model.lxds.insert(scene.lxd.address(), pin));

    scene.apply_manifest().await;
    let policy = scene.folder.path().join("policy.yaml");
    std::fs::write(&policy, manifest::NODE_PATCH_POLICY).unwrap();
    scene.testbed.kubectl(["apply", "-f", policy.to_str().unwrap()]).await.unwrap();
    scene.until_logged("n1", "waiting for Secret capmaas-system/maas-credentials and ConfigMap").await;
    scene.until_logged("n2", "there is no LXD on this node").await;

    let key = format!("--from-literal=apiKey={}", PlayedMaas::key());
    let endpoint = format!("--from-literal=maasEndpoint={}", maas.endpoint);
    let secret = ["create", "secret", "generic", "maas-credentials", "--namespace", "capmaas-system", &key];
    scene.testbed.kubectl(secret).await.unwrap();
    let map = ["create", "configmap", "capmaas-config", "--namespace", "capmaas-system", &endpoint];
    scene.testbed.kubectl(map).await.unwrap();

    scene.until_ready("n1").await;
    let node = scene.node("n1").await;
    assert_eq!(node.labels().get(names::LABEL_INITIALIZED).map(String::as_str), Some("true"));
    assert_eq!(node.annotations()[names::STATE], "Ready");
    assert_eq!(node.annotations()[names::ADDRESS], scene.lxd.address());
    assert_eq!(maas.with(|model| model.hosts.len()), 1);
    let other = scene.node("n2").await;
    assert_eq!(other.labels().get(names::LABEL_INITIALIZED), None);
    assert_eq!(other.annotations()[names::STATE], "Waiting");

    // What the agent's ServiceAccount may not do, even with its rights to Nodes.
    let agent = scene.testbed.service_account_client("capmaas-system", "lxd-initializer").await.unwrap();
    let nodes: Api<Node> = Api::all(agent.clone());
    let patch = json!({"metadata": {"labels": {names::LABEL_INITIALIZED: "true"}}});
    let refused = nodes.patch("n2", &PatchParams::default(), &Patch::Merge(&patch)).await.unwrap_err();
    assert!(refused.to_string().contains("may change only the Node that it runs on"), "{refused}");
    assert!(nodes.list(&ListParams::default()).await.is_err(), "nor list them");
    let pods: Api<Pod> = Api::namespaced(agent, "capmaas-system");
    assert!(pods.list(&ListParams::default()).await.is_err());

    // SIGTERM ends it in order, and nothing that it wrote holds a secret.
    let pod = scene.pod("n1").await.unwrap().name_any();
    scene.testbed.kubectl(["delete", "pod", &pod, "--namespace", "capmaas-system"]).await.unwrap();
    let log = scene.player.logs("capmaas-system", &pod);
    assert!(log.contains("SIGTERM: stopping") && log.contains("stopped"), "{log}");
    scene.until_ready("n1").await;
    let told = format!("{log}{}{}{node:?}", scene.log("n1").await, scene.log("n2").await);
    assert!(!told.contains(CANARY) && !told.contains("PRIVATE KEY"));
    assert_eq!(maas.with(|model| model.writes.len()), 1, "one registration, also after the restart");
    scene.player.stop().await;
    scene.testbed.stop().await;
}
