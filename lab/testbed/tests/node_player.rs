//! Pods of Deployments and DaemonSets run as processes, as their manifests specify.
#![allow(clippy::unwrap_used, clippy::expect_used, clippy::panic)]

use std::{
    collections::BTreeMap,
    io::{Read as _, Write as _},
    net::{Ipv4Addr, TcpListener, TcpStream},
    time::{Duration, Instant},
};

use capmaas_testbed::{KubernetesVersion, NodePlayer, NodePlayerOptions, Testbed, TestbedBuilder};
use k8s_openapi::api::core::v1::Pod;
use kube::{
    Api, ResourceExt as _,
    api::{DeleteParams, ListParams},
};

const PROBE: &str = env!("CARGO_BIN_EXE_testbed-probe");

fn builder() -> TestbedBuilder {
    Testbed::builder().kubernetes(KubernetesVersion::from_env().unwrap()).controller_manager(true)
}

/// Waits until the Pods of an app match and returns them.
async fn pods_when(testbed: &Testbed, app: &str, what: &str, wanted: impl Fn(&[Pod]) -> bool) -> Vec<Pod> {
    let pods: Api<Pod> = Api::namespaced(testbed.client().unwrap(), "probing");
    let deadline = Instant::now() + Duration::from_secs(60);
    loop {
        let found = pods.list(&ListParams::default().labels(&format!("app={app}"))).await.unwrap().items;
        if wanted(&found) {
            return found;
        }
        assert!(Instant::now() < deadline, "{app} is never {what}: {}", serde_json::to_string_pretty(&found).unwrap());
        tokio::time::sleep(Duration::from_millis(100)).await;
    }
}

fn is_ready(pod: &Pod) -> bool {
    let conditions = pod.status.iter().filter_map(|status| status.conditions.as_ref()).flatten();
    conditions.into_iter().any(|condition| condition.type_ == "Ready" && condition.status == "True")
}

fn waiting_reason(pod: &Pod) -> Option<String> {
    let container = pod.status.as_ref()?.container_statuses.as_ref()?.first()?;
    container.state.as_ref()?.waiting.as_ref()?.reason.clone()
}

fn restarts(pod: &Pod) -> i32 {
    pod.status.as_ref().and_then(|s| s.container_statuses.as_ref()?.first().map(|c| c.restart_count)).unwrap_or(0)
}

fn free_port() -> u16 {
    TcpListener::bind((Ipv4Addr::LOCALHOST, 0)).unwrap().local_addr().unwrap().port()
}

#[tokio::test]
async fn a_deployment_runs_with_the_environment_rights_probes_and_volumes_of_its_manifest() {
    let testbed = builder().start().await.unwrap();
    let port = free_port();
    let options = NodePlayerOptions::default().image("example.test/probe", PROBE).hook(move |plan| {
        // The manifest's port may be taken on this machine.
        plan.args[0] = format!("--port={port}");
        plan.moved_ports.insert(8081, port);
    });
    let player = NodePlayer::start(&testbed, options).unwrap();
    player.add_node("one").await.unwrap();
    testbed.apply_yaml(include_str!("manifests/probe.yaml")).await.unwrap();

    // The Secret that it refers to does not exist yet.
    let waits =
        |pods: &[Pod]| pods.len() == 1 && waiting_reason(&pods[0]).as_deref() == Some("CreateContainerConfigError");
    pods_when(&testbed, "probe", "waiting for its Secret", waits).await;
    testbed
        .apply_yaml(
            "{apiVersion: v1, kind: Secret, metadata: {name: later, namespace: probing}, stringData: {password: sesame}}",
        )
        .await
        .unwrap();

    let pods = pods_when(&testbed, "probe", "ready", |pods| pods.len() == 1 && is_ready(&pods[0])).await;
    let name = pods[0].name_any();
    let log = player.logs("probing", &name);
    for line in [
        "env GREETING=hello $(POD_NAME)\n",
        &format!("env POD_NAME={name}\n"),
        "env NODE_NAME=one\n",
        "env SHAPE=round\n",
        "env SET_COLOUR=blue\n",
        "env PASSWORD=sesame\n",
        "file /etc/probe/colour: blue\n",
        "file /etc/hostname: No such file",
        "user 65532\n",
        "configmaps in probing: listed\n",
        "secrets in probing: ApiError: secrets is forbidden: User \"system:serviceaccount:probing:probe\"",
    ] {
        assert!(log.to_lowercase().contains(&line.to_lowercase()), "{line:?} is not in:\n{log}");
    }
    assert!(!log.contains("env ABSENT="), "{log}");

    // A failing liveness probe restarts the process.
    let before = player.process_ids("probing", &name);
    let mut connection = TcpStream::connect((Ipv4Addr::LOCALHOST, port)).unwrap();
    connection.write_all(b"GET /sicken HTTP/1.1\r\n\r\n").unwrap();
    let _ = connection.read(&mut [0; 64]);
    let pods = pods_when(&testbed, "probe", "restarted", |pods| restarts(&pods[0]) == 1 && is_ready(&pods[0])).await;
    let last = pods[0].status.as_ref().unwrap().container_statuses.as_ref().unwrap()[0].last_state.clone();
    let message = last.unwrap().terminated.unwrap().message.unwrap();
    assert!(message.contains("failed liveness probe"), "{message}");
    assert_ne!(player.process_ids("probing", &name), before);

    // A deleted Pod gets SIGTERM; then its object is deleted and the Deployment creates another.
    let api: Api<Pod> = Api::namespaced(testbed.client().unwrap(), "probing");
    api.delete(&name, &DeleteParams::default()).await.unwrap();
    let replaced = |pods: &[Pod]| pods.len() == 1 && pods[0].name_any() != name && is_ready(&pods[0]);
    pods_when(&testbed, "probe", "replaced", replaced).await;
    assert!(player.logs("probing", &name).contains("asked to end"));

    player.stop().await;
    testbed.stop().await;
    assert!(TcpStream::connect((Ipv4Addr::LOCALHOST, port)).is_err(), "the program is still there");
}

#[tokio::test]
async fn a_daemon_set_runs_on_every_node_and_sees_only_the_paths_of_its_own() {
    let testbed = builder().start().await.unwrap();
    let ports = BTreeMap::from([("one".to_owned(), free_port()), ("two".to_owned(), free_port())]);
    let folder = testbed.sandbox().dir().join("identities");
    for node in ports.keys() {
        std::fs::create_dir_all(folder.join(node)).unwrap();
        std::fs::write(folder.join(node).join("identity"), format!("I am {node}")).unwrap();
    }
    let port_of = ports.clone();
    let options = NodePlayerOptions::default()
        .image("example.test/probe", PROBE)
        .hook(move |plan| {
            plan.args[0] = format!("--port={}", port_of[&plan.node]);
            plan.moved_ports.insert(8081, port_of[&plan.node]);
        })
        .host_paths(move |node| BTreeMap::from([("/var/lib/identity".to_owned(), folder.join(node))]));
    let player = NodePlayer::start(&testbed, options).unwrap();
    for node in ports.keys() {
        player.add_node(node).await.unwrap();
    }
    testbed.apply_yaml(include_str!("manifests/probe.yaml")).await.unwrap();
    let all_ready = |pods: &[Pod]| pods.len() == 2 && pods.iter().all(is_ready);
    for pod in pods_when(&testbed, "everywhere", "ready on both nodes", all_ready).await {
        let node = pod.spec.as_ref().unwrap().node_name.clone().unwrap();
        let log = player.logs("probing", &pod.name_any());
        assert!(log.contains(&format!("file /host/identity: I am {node}")), "{log}");
    }

    // When a process ends, it is restarted; when a node ends, its processes end.
    let on_one =
        |pods: &[Pod]| pods.iter().find(|pod| pod.spec.as_ref().unwrap().node_name.as_deref() == Some("one")).cloned();
    let pods = pods_when(&testbed, "everywhere", "ready", all_ready).await;
    let name = on_one(&pods).unwrap_or_else(|| panic!("no Pod on one: {pods:#?}")).name_any();
    let killed = player.process_ids("probing", &name);
    assert!(std::process::Command::new("kill").args(["-9", &killed[0].to_string()]).status().unwrap().success());
    let restarted = |pods: &[Pod]| on_one(pods).is_some_and(|pod| restarts(&pod) == 1) && all_ready(pods);
    pods_when(&testbed, "everywhere", "restarted", restarted).await;
    player.remove_node("two").await.unwrap();
    let gone = Instant::now() + Duration::from_secs(10);
    while TcpStream::connect((Ipv4Addr::LOCALHOST, ports["two"])).is_ok() {
        assert!(Instant::now() < gone, "the process of a removed node runs on");
        tokio::time::sleep(Duration::from_millis(100)).await;
    }
    drop(player);
    testbed.stop().await;
}

#[tokio::test]
async fn a_bare_pod_shows_what_became_of_it() {
    let testbed = builder().start().await.unwrap();
    let back_off = Duration::from_secs(60);
    let options = NodePlayerOptions::default().image("example.test/probe", PROBE).restart_back_off(back_off);
    let player = NodePlayer::start(&testbed, options).unwrap();
    player.add_node("one").await.unwrap();
    testbed.apply_yaml(include_str!("manifests/bare-pods.yaml")).await.unwrap();
    let phase = |pods: &[Pod]| pods.first()?.status.as_ref()?.phase.clone();

    // An image without a program, a Pod that fits no node.
    let no_image = |pods: &[Pod]| waiting_reason(&pods[0]).as_deref() == Some("ErrImagePull");
    pods_when(&testbed, "stranger", "without image", no_image).await;
    let unbound = pods_when(&testbed, "homeless", "pending", |pods| phase(pods).as_deref() == Some("Pending")).await;
    assert!(unbound[0].spec.as_ref().unwrap().node_name.is_none());

    // One that may fail, one that is restarted repeatedly, one whose init container fails.
    let failed = pods_when(&testbed, "once", "failed", |pods| phase(pods).as_deref() == Some("Failed")).await;
    let state = failed[0].status.as_ref().unwrap().container_statuses.as_ref().unwrap()[0].state.clone().unwrap();
    assert_eq!(state.terminated.unwrap().exit_code, 3);
    let looping =
        |pods: &[Pod]| waiting_reason(&pods[0]).as_deref() == Some("CrashLoopBackOff") && restarts(&pods[0]) == 2;
    pods_when(&testbed, "again", "backing off", looping).await;
    let unprepared = |pods: &[Pod]| {
        let init = pods[0].status.as_ref().and_then(|status| status.init_container_statuses.as_ref()?.first());
        init.is_some_and(|init| init.restart_count > 0) && phase(pods).as_deref() == Some("Pending")
    };
    pods_when(&testbed, "unprepared", "waiting for its preparation", unprepared).await;
    player.stop().await;
    testbed.stop().await;
}
