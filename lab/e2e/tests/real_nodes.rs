//! Clusters whose machines really boot: cloud-init, kubeadm, kubelet and etcd are the real ones, on machines that a simulated MAAS deploys.
#![allow(clippy::unwrap_used, clippy::expect_used, clippy::panic)]

use std::collections::BTreeSet;
use std::sync::Mutex;
use std::time::{Duration, Instant};

use anyhow::{Context as _, ensure};
use capmaas_e2e::eventually_within;
use capmaas_e2e::real_nodes::RealScene;
use capmaas_testbed::nodes::BUSYBOX_IMAGE;
use maas_sim::control::MachineFault;
use serde_json::{Value, json};
use tokio::io::{AsyncReadExt as _, AsyncWriteExt as _};

const PATIENCE: Duration = Duration::from_secs(300);
const NODE_PORT: u16 = 30080;

/// Two Pods that tell their names, and a Service in front of them.
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
    let answer = tokio::time::timeout(Duration::from_secs(3), exchange).await??;
    let (_, body) = answer.split_once("\r\n\r\n").context("no answer")?;
    Ok(body.trim().to_owned())
}

fn address_of(node: &Value) -> String {
    let addresses = node["status"]["addresses"].as_array().unwrap();
    addresses.iter().find(|address| address["type"] == "InternalIP").unwrap()["address"].as_str().unwrap().to_owned()
}

/// Starts the workload and waits until every Node answers for both Pods.
async fn run_a_workload(real: &RealScene, cluster: &str) {
    let file = real.scene.testbed.sandbox().dir().join("web.json");
    std::fs::write(&file, web()).unwrap();
    real.kubectl(cluster, &["apply", "--filename", file.to_str().unwrap()]).await.unwrap();
    let nodes = real.nodes(cluster).await.unwrap();
    for node in &nodes {
        let (address, seen) = (address_of(node), Mutex::new(BTreeSet::new()));
        let what = format!("both Pods behind {address}");
        let outcome = eventually_within(PATIENCE, &what, || async {
            let answered = get(&address).await?;
            let mut seen = seen.lock().unwrap();
            seen.insert(answered);
            ensure!(seen.len() == 2, "only {seen:?} answered");
            Ok(())
        });
        real.scene.explain(outcome.await).await.unwrap();
        let seen = seen.into_inner().unwrap();
        assert!(seen.iter().all(|name| name.starts_with("web-")), "{seen:?}");
    }
}

/// A machine loses its power, and MAAS asks its BMC, as it does every few minutes.
fn pull_the_plug(real: &RealScene, hostname: &str) {
    let control = real.scene.maas.control();
    let id = control.with_model(|model| model.machine_named(hostname)).unwrap();
    control.hurt(Some(hostname), &MachineFault::LosePower, None).unwrap();
    control.with_model(|model| model.query_power(&id)).unwrap();
}

#[tokio::test]
async fn real_nodes_run_a_workload_survive_a_power_cut_and_leave_nothing_behind() {
    let real = RealScene::start().await.unwrap();
    let start = Instant::now();
    real.create("c1", 1, 1).await.unwrap();
    println!("both Nodes Ready after {} s", start.elapsed().as_secs());
    let nodes = real.nodes("c1").await.unwrap();
    for node in &nodes {
        assert_eq!(node["status"]["nodeInfo"]["kubeletVersion"], "v1.36.4");
        assert!(node["spec"]["providerID"].as_str().unwrap().starts_with("maas://az"), "{node}");
    }
    run_a_workload(&real, "c1").await;
    println!("the workload answers after {} s", start.elapsed().as_secs());

    // Somebody pulls the plug of the control plane. The manager turns it on again, and etcd and the API server come up from its disk.
    let control_plane = nodes
        .iter()
        .find(|node| node["metadata"]["labels"].get("node-role.kubernetes.io/control-plane").is_some())
        .and_then(|node| node["metadata"]["name"].as_str()?.split('.').next())
        .expect("no Node is a control plane")
        .to_owned();
    let cut = Instant::now();
    pull_the_plug(&real, &control_plane);
    let off = eventually_within(PATIENCE, "the control plane off", || async {
        ensure!(!real.host.running()?.contains(&control_plane), "{control_plane} still runs");
        Ok(())
    });
    off.await.unwrap();
    real.wait_ready("c1", 2).await.unwrap();
    run_a_workload(&real, "c1").await;
    println!("back {} s after the power cut", cut.elapsed().as_secs());

    real.delete("c1").await.unwrap();
    assert_eq!(real.scene.secrets_seen().await.unwrap(), Vec::<String>::new());
    real.stop().await;
}

#[tokio::test]
async fn what_cloud_init_reports_of_bad_user_data_is_in_the_condition_within_seconds() {
    let real = RealScene::start().await.unwrap();
    let mut objects = real.generate("c1", 1, 0).await.unwrap();
    let control_plane = objects.iter_mut().find(|object| object["kind"] == "KubeadmControlPlane").unwrap();
    // kubeadm is never come to.
    control_plane["spec"]["kubeadmConfigSpec"]["preKubeadmCommands"] = json!(["exit 3"]);
    real.scene.testbed.apply_objects(objects).await.unwrap();
    let reported = eventually_within(PATIENCE, "a report of cloud-init", || async {
        let said = real.scene.maas.control().with_model(|model| {
            model.db.machines.values().find_map(|machine| {
                machine.status_message.clone().filter(|said| said.starts_with("Node post-installation failure"))
            })
        });
        said.context("MAAS has heard of no failure")
    });
    let reported = real.scene.explain(reported.await).await.unwrap();
    let heard = Instant::now();
    let machines = real.maas_machines().unwrap();
    let said = eventually_within(PATIENCE, "a condition that quotes it", || async {
        let machine = machines.list().await?.pop().context("there is no MaasMachine")?;
        let conditions = machine["status"]["conditions"].as_array().cloned().unwrap_or_default();
        let said = conditions.into_iter().find(|condition| condition["reason"] == "BootstrapFailed");
        said.with_context(|| format!("{}", machine["status"]["conditions"]))
    });
    let said = real.scene.explain(said.await).await.unwrap();
    let after = heard.elapsed();
    println!("{said} {} s after MAAS heard of it", after.as_secs_f32());
    assert!(said["message"].as_str().unwrap().contains("'cloudinit' running "), "{said} instead of {reported}");
    assert!(after < Duration::from_secs(30), "it took {after:?}");
    real.delete("c1").await.unwrap();
    real.stop().await;
}
