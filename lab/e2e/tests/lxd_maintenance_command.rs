//! `kubectl maas maintenance` on real components: a host with machines of a control plane and of a MachineDeployment is
//! evacuated, and all reports about it agree.
#![allow(clippy::unwrap_used, clippy::expect_used, clippy::panic)]

use std::collections::{BTreeMap, BTreeSet};

use anyhow::{Context as _, ensure};
use capmaas_e2e::cluster::ClusterPlan;
use capmaas_e2e::eventually;
use capmaas_e2e::maintenance::{
    ANNOTATION, TAG, guest, host_cluster, machines, object_of, on_host, said, wait_left, wait_said,
};
use capmaas_e2e::page::Page;
use capmaas_e2e::recorder::Recorder;
use capmaas_e2e::scene::Scene;
use capmaas_testbed::CapiVersion;
use serde_json::{Value, json};

/// A host with machines of both the control plane and the workers.
async fn host_of_both(scene: &Scene, plan: &ClusterPlan) -> String {
    let all = machines(scene, plan).await.unwrap();
    let hosts = |leads: bool| -> BTreeSet<String> {
        let is_leading = |it: &&Value| it["metadata"]["labels"].get("cluster.x-k8s.io/control-plane").is_some();
        let these = all.iter().filter(|it| is_leading(it) == leads);
        these.filter_map(|it| it["status"]["lxdHost"].as_str().map(str::to_owned)).collect()
    };
    hosts(true).intersection(&hosts(false)).next().expect("no host has both").clone()
}

/// The JSON output of the plugin.
async fn answer(scene: &Scene, arguments: &[&str]) -> anyhow::Result<Value> {
    Ok(serde_json::from_str(&scene.plugin(&[arguments, &["--json"]].concat()).await?)?)
}

/// The commands report what the objects and MAAS show, and what a user can do.
async fn the_commands_tell(scene: &Scene, hosts: &ClusterPlan, (host, object): (&str, &str)) {
    let (_, message) = said(scene, hosts, "MaasMachine", object).await.unwrap();
    let told = answer(scene, &["maintenance", "status", "-A"]).await.unwrap();
    let wanted = json!({"namespace": "hosts", "name": object, "maintenance": "new fans", "state": "EvacuationWaiting",
                        "message": message});
    assert_eq!(told["hosts"], json!([wanted]), "{told:#}");
    assert_eq!(told["clusters"][0]["name"], "c1", "{told:#}");
    let status = scene.plugin(&["maintenance", "status", "-A"]).await.unwrap();
    let row = status.lines().find(|line| line.starts_with(&format!("hosts/{object} "))).unwrap();
    assert!(row.contains(host) && row.contains("EvacuationWaiting") && row.ends_with("new fans"), "{status}");
    assert!(status.contains("set maxUnavailable of its rolling update to 1"), "{status}");

    let shown = scene.plugin(&["hosts"]).await.unwrap();
    let row = shown.lines().find(|line| line.starts_with(&format!("{host} "))).unwrap();
    assert!(row.contains(&format!("in maintenance, so it takes no new VMs, 1 VM left (tag {TAG})")), "{shown}");
    let explained = scene.plugin(&["explain", object, "-n", "hosts"]).await.unwrap();
    assert!(message.lines().all(|line| explained.contains(line)), "{explained}");
    assert!(explained.contains("what to do: Follow the message"), "{explained}");
    let metrics = scene.metrics().await.unwrap();
    assert!(metrics.contains("capmaas_evacuation_vms{state=\"Budget\"} 1\n"), "{metrics}");
    assert!(metrics.contains("capmaas_evacuation_machines_deleted_total 1\n"), "{metrics}");
}

/// The page shows the maintenance of the host, what is left there and who owns it, in agreement with the objects and
/// MAAS.
async fn the_page_tells(
    scene: &Scene,
    page: &Page,
    (hosts, guest): (&ClusterPlan, &ClusterPlan),
    (host, object): (&str, &str),
) -> anyhow::Result<()> {
    let shown = page.shown().await?;
    let of = |key: String| shown.get(&key).cloned().with_context(|| format!("{key} is not shown"));
    for (plan, kind, name) in [(hosts, "machine", object), (guest, "cluster", guest.name.as_str())] {
        let on_page = of(format!("{kind}/{}/{name}", plan.namespace))?["evacuating"].clone();
        let (_, message) =
            said(scene, plan, if kind == "machine" { "MaasMachine" } else { "MaasCluster" }, name).await?;
        ensure!(on_page == json!(message), "{kind} {name}: {on_page} instead of {message}");
    }
    let card = of(format!("host/{}", scene.maas.host_id(host)?))?;
    let told = answer(scene, &["hosts"]).await?;
    let told = told.as_array().into_iter().flatten().find(|it| it["name"] == host).context("it is not told")?;
    for field in ["state", "closedBy", "vmsLeft"] {
        ensure!(card[field] == told[field], "{field}: {} instead of {}", card[field], told[field]);
    }
    let names =
        |value: &Value| value.as_array().into_iter().flatten().map(|vm| vm["hostname"].clone()).collect::<Vec<_>>();
    let left: Vec<Value> =
        scene.maas.vms().into_iter().filter(|vm| vm.host == host).map(|vm| json!(vm.hostname)).collect();
    ensure!(names(&card["vms"]) == left && card["vmsLeft"] == left.len(), "{card} instead of {left:?}");
    Ok(())
}

/// Nothing is left of a host's maintenance.
async fn is_over(scene: &Scene, hosts: &ClusterPlan, (host, object): (&str, &str)) -> anyhow::Result<()> {
    let tags = scene.maas.host_tags(host)?;
    ensure!(!tags.contains(&TAG.to_owned()), "the VM host has the tags {tags:?}");
    let annotations = scene.objects(hosts, "MaasMachine")?.get(object).await?["metadata"]["annotations"].to_string();
    ensure!(!annotations.contains(ANNOTATION), "{annotations}");
    let (reason, _) = said(scene, hosts, "MaasMachine", object).await?;
    ensure!(reason == "NotEvacuating", "it says {reason}");
    Ok(())
}

#[tokio::test]
async fn s30_s31_a_command_empties_a_host_as_max_unavailable_allows_and_everything_tells_of_it() {
    let scene = Scene::start(CapiVersion::V1_14).await.unwrap();
    let (hosts, _) = host_cluster(&scene, 1, 2).await.unwrap();
    let mut plan = ClusterPlan { workers: 3, ..guest(&scene, "c1", 3).await.unwrap() };
    let expected = scene.create(&plan).await.unwrap();
    scene.wait_running(&plan, &expected).await.unwrap();
    let host = host_of_both(&scene, &plan).await;
    let object = object_of(&scene, &hosts, &host).await.unwrap();
    let on_it = on_host(&scene, &plan, &host).await.unwrap();
    assert_eq!(on_it.len(), 2, "{on_it:?}");
    let page = Page::start(&scene.testbed, Some(&scene.maas.endpoint), &["-A"]).await.unwrap();

    let recorder = Recorder::start(&scene, &[&plan]).unwrap();
    let arguments = ["maintenance", "start", &host, "--reason", "new fans", "-n", "hosts"];
    let told = scene.plugin(&arguments).await.unwrap();
    assert!(told.starts_with(&format!("hosts/{object} is in maintenance: ")), "{told}");
    // The control-plane machine is deleted. A MachineDeployment must not be missing any machine unless it allows that.
    wait_said(&scene, &hosts, ("MaasMachine", &object), ("EvacuationWaiting", "1 VM left")).await.unwrap();
    let (_, message) = said(&scene, &hosts, "MaasMachine", &object).await.unwrap();
    assert!(message.contains("MachineDeployment c1-md may not lack a machine"), "{message}");
    the_commands_tell(&scene, &hosts, (&host, &object)).await;
    let same =
        eventually("the page tells the same", || the_page_tells(&scene, &page, (&hosts, &plan), (&host, &object)));
    scene.explain(same.await).await.unwrap();

    let strategy = json!({"type": "RollingUpdate", "rollingUpdate": {"maxUnavailable": 1}});
    let deployments = scene.objects(&plan, "MachineDeployment").unwrap();
    deployments.merge("c1-md", json!({"spec": {"rollout": {"strategy": strategy}}})).await.unwrap();
    wait_left(&scene, &plan, &host).await.unwrap();
    wait_said(&scene, &hosts, ("MaasMachine", &object), ("Evacuated", "(new fans) and is empty")).await.unwrap();
    scene.wait_running(&plan, &expected).await.unwrap();
    let most = BTreeMap::from([("c1".to_owned(), 1), ("c1 workers".to_owned(), 1)]);
    assert_eq!(recorder.end().await.unwrap(), most, "what was missing at the same time");
    let shown = scene.plugin(&["hosts"]).await.unwrap();
    assert!(shown.contains("so it takes no new VMs, empty"), "{shown}");
    let events = scene.testbed.kubectl(["get", "events.events.k8s.io", "-n", "c1", "-o", "json"]).await.unwrap();
    for machine in &on_it {
        let words = format!("the Machine c1/{machine} is deleted, because the LXD host {host} is being evacuated");
        assert!(events.contains(&words), "{words}: {events}");
    }

    let told = scene.plugin(&["maintenance", "stop", &object, "-n", "hosts"]).await.unwrap();
    assert!(told.contains("is not in maintenance any more"), "{told}");
    let over = eventually("the maintenance is over", || is_over(&scene, &hosts, (&host, &object)));
    scene.explain(over.await).await.unwrap();
    // It accepts VMs again, and is the emptiest of all.
    plan.workers = 4;
    deployments.merge("c1-md", json!({"spec": {"replicas": 4}})).await.unwrap();
    scene.wait_running(&plan, &expected).await.unwrap();
    assert_eq!(on_host(&scene, &plan, &host).await.unwrap().len(), 1);
    assert_eq!(scene.secrets_seen().await.unwrap(), Vec::<String>::new());

    scene.objects(&plan, "Cluster").unwrap().delete("c1").await.unwrap();
    scene.wait_gone(&plan).await.unwrap();
    scene.delete(&hosts).await.unwrap();
    scene.stop().await;
}
