//! The real program and the real LXD, killed with -9 at any moment, again and again.
#![allow(clippy::unwrap_used, clippy::expect_used, clippy::panic)]

mod support;

use std::time::{Duration, Instant};

use capmaas_testbed::{Process, Testbed};
use k8s_openapi::api::core::v1::Node;
use kube::{Api, ResourceExt, api::PostParams};
use lxd_initializer::{manifest, names};
use serde_json::json;
use support::{
    lxd::RealLxd,
    sim::{Maas, key},
};

#[tokio::test]
async fn agent_and_lxd_killed_at_any_moment_end_in_one_of_everything() {
    let _ = rustls::crypto::ring::default_provider().install_default();
    let testbed = Testbed::builder().controller_manager(false).start().await.unwrap();
    let mut lxd = RealLxd::start().await;
    let maas = Maas::start("3.4", &lxd).await;
    let state = tempfile::tempdir().unwrap();

    testbed.apply_yaml(manifest::DAEMON_SET).await.unwrap();
    let nodes: Api<Node> = Api::all(testbed.client().unwrap());
    let node = serde_json::from_value(json!({"metadata": {"name": "n1"}})).unwrap();
    nodes.create(&PostParams::default(), &node).await.unwrap();
    let kubeconfig = testbed.service_account_kubeconfig("capmaas-system", "lxd-initializer").await.unwrap();
    let start = |lxd: &RealLxd| -> Process {
        let mut command = testbed.sandbox().command(env!("CARGO_BIN_EXE_lxd-initializer"));
        command
            .env("KUBECONFIG", &kubeconfig)
            .env("NODE_NAME", "n1")
            .env("NODE_IP", lxd.ip.to_string())
            .env("STORAGE_BACKEND", "dir")
            .env("NETWORK_BRIDGE", &lxd.bridge)
            .env("LXD_SOCKET", lxd.socket())
            .env("STATE_DIR", state.path())
            .env("MAAS_API_KEY", key())
            .env("MAAS_ENDPOINT", &maas.endpoint)
            .env("HEALTH_ADDRESS", "127.0.0.1:0")
            .env("WATCH_SECONDS", "1");
        testbed.sandbox().spawn("agent", command).unwrap()
    };

    // From before its first read to well into its work; every third time LXD is killed as well.
    for round in 0..24_u64 {
        let agent = start(&lxd);
        tokio::time::sleep(Duration::from_millis(40 + 37 * round)).await;
        if round % 3 == 2 {
            lxd.kill();
        }
        drop(agent);
        if round % 3 == 2 {
            lxd.launch().await;
        }
    }
    let agent = start(&lxd);
    // One that was killed between the intent to register and the request is waited for, because it may still land (S2).
    let deadline = Instant::now() + Duration::from_secs(300);
    let mut helped = false;
    loop {
        let node = nodes.get("n1").await.unwrap();
        let initialized = node.labels().get(names::LABEL_INITIALIZED).map(String::as_str) == Some("true");
        let said = node.annotations().get(names::STATE).map(String::as_str).unwrap_or_default();
        if initialized && said == "Ready" {
            break;
        }
        let message = node.annotations().get(names::MESSAGE).cloned().unwrap_or_default();
        // LXD died while it created the pool. The agent deletes nothing; a person follows its message, and it
        // continues.
        if said == "Blocked" && message.contains("lxc storage delete default") && !helped {
            let nothing: Option<&serde_json::Value> = None;
            lxd.client().mutate(http::Method::DELETE, "/1.0/storage-pools/default", nothing).await.unwrap();
            helped = true;
        }
        assert!(Instant::now() < deadline, "{said}: {message}");
        tokio::time::sleep(Duration::from_millis(200)).await;
    }
    drop(agent);
    maas.only_host();
    let local = lxd.client();
    assert_eq!(local.storage_pools().await.unwrap().len(), 1);
    assert_eq!(local.certificates().await.unwrap().len(), 1);
    assert_eq!(local.projects().await.unwrap().len(), 2, "default and maas");
    let kept =
        std::fs::read_dir(state.path()).unwrap().filter(|entry| entry.as_ref().unwrap().file_name() == "client.pem");
    assert_eq!(kept.count(), 1);
    testbed.stop().await;
}
