//! `kubectl maas ui` and `kubectl maas plan` on real parts: what the page shows in a real browser is what Kubernetes and MAAS say, it goes
//! on without being loaded again, nobody but the page gets an answer, and what was planned is what happens.
#![allow(clippy::unwrap_used, clippy::expect_used, clippy::panic)]

use std::collections::BTreeSet;
use std::path::PathBuf;

use anyhow::ensure;
use capmaas_e2e::browser::Browser;
use capmaas_e2e::cluster::ClusterPlan;
use capmaas_e2e::lxd_hosts::vm;
use capmaas_e2e::maas::{API_KEY, ZONES};
use capmaas_e2e::scene::Scene;
use capmaas_e2e::{install_crds, program};
use capmaas_testbed::{CapiVersion, Testbed};
use serde_json::{Value, json};
use tokio::io::{AsyncBufReadExt as _, BufReader};
use tokio::process::{Child, Command};

/// A running `kubectl maas ui` and its address.
struct Page {
    _process: Child,
    url: String,
}

impl Page {
    async fn start(testbed: &Testbed, maas: Option<&str>) -> Self {
        let mut command = Command::new(program("kubectl-maas").unwrap());
        command.args(["ui", "--no-browser"]).env("KUBECONFIG", testbed.kubeconfig_path());
        command.env_remove("MAAS_ENDPOINT").env_remove("MAAS_API_KEY");
        if let Some(endpoint) = maas {
            command.env("MAAS_ENDPOINT", endpoint).env("MAAS_API_KEY", API_KEY);
        }
        let mut process = command.stdout(std::process::Stdio::piped()).kill_on_drop(true).spawn().unwrap();
        let mut lines = BufReader::new(process.stdout.take().unwrap()).lines();
        let url = lines.next_line().await.unwrap().expect("it prints its address");
        assert!(url.starts_with("http://127.0.0.1:"), "{url}");
        Self { _process: process, url }
    }

    fn origin(&self) -> &str {
        self.url.split_once("/?").unwrap().0
    }

    fn token(&self) -> &str {
        self.url.split_once("token=").unwrap().1
    }
}

/// Where pictures for the book go: CAPMAAS_PICTURES, else nowhere that lasts.
fn pictures() -> (PathBuf, Option<tempfile::TempDir>) {
    if let Some(folder) = std::env::var_os("CAPMAAS_PICTURES") {
        return (folder.into(), None);
    }
    let folder = tempfile::tempdir().unwrap();
    (folder.path().to_owned(), Some(folder))
}

#[tokio::test]
async fn the_page_shows_what_kubernetes_and_maas_say_and_the_plan_came_true() {
    let scene = Scene::start(CapiVersion::V1_14).await.unwrap();
    scene.maas.add_hosts(1).unwrap();
    let plan = ClusterPlan {
        control_planes: 3,
        workers: 2,
        infrastructure: json!({"failureDomains": ZONES}),
        machine: vm(),
        worker: Some(json!({"minCPU": 4, "minMemory": 8192})),
        ..ClusterPlan::new(scene.core, "c1")
    };
    let expected = scene.expect_cluster().await.unwrap();
    let objects = plan.objects(&expected);
    let file = tempfile::NamedTempFile::new().unwrap();
    let text: Vec<String> = objects.iter().map(Value::to_string).collect();
    std::fs::write(file.path(), text.join("\n---\n")).unwrap();
    let before = scene.maas.effective("allocate");
    let planned = scene.plugin(&["plan", "-f", file.path().to_str().unwrap(), "--json"]).await.unwrap();
    let planned: Value = serde_json::from_str(&planned).unwrap();
    assert_eq!(planned["fits"], true, "{planned:#}");
    assert_eq!(scene.maas.effective("allocate") + scene.maas.effective("compose"), before, "a plan changes nothing");

    let page = Page::start(&scene.testbed, Some(&scene.maas.endpoint)).await;
    let browser = Browser::start().await.unwrap();
    browser.open(&page.url).await.unwrap();
    browser
        .until("a page without clusters", "return document.body.innerText.includes('No clusters here')")
        .await
        .unwrap();
    browser.run("window.opened = 'once'").await.unwrap();

    scene.testbed.apply_objects(objects).await.unwrap();
    scene.wait_running(&plan, &expected).await.unwrap();
    browser
        .until("five ready machines", "return document.querySelector('.count')?.textContent === '5 of 5 ready'")
        .await
        .unwrap();
    assert_eq!(browser.run("return window.opened").await.unwrap(), "once", "the page was not loaded again");
    shows_the_machines(&scene, &plan, &browser).await;
    came_true(&scene, &planned);
    let (folder, _kept) = pictures();
    browser.screenshot(&folder.join("page-clusters.png")).await.unwrap();
    shows_a_life(&browser, &folder).await;
    shows_hosts_and_metal(&scene, &browser, &folder).await;
    shows_events(&scene, &browser).await;

    let answers_only_the_page = refuses_others(&page).await;
    assert_eq!(answers_only_the_page, Vec::<String>::new());
    // The browser's own first page is none of ours, and asks nobody.
    let over_the_network = |url: &String| url.starts_with("http") || url.starts_with("ws");
    for url in browser.requested().await.unwrap().into_iter().filter(over_the_network) {
        assert!(url.starts_with(page.origin()), "{url}");
    }
    assert_eq!(browser.complaints().await.unwrap(), Vec::<String>::new());

    // What would die: one zone of three is survived as a quorum, two are not.
    let lost = scene.plugin(&["plan", "--without", "az1", "--without", "az2", "--json"]).await.unwrap();
    let lost: Value = serde_json::from_str(&lost).unwrap();
    assert_eq!(lost["impacts"][0]["fate"], "loses quorum", "{lost:#}");
    let larger = scene.plugin(&["plan", "--scale", "c1-md=40", "--json"]).await.unwrap();
    let larger: Value = serde_json::from_str(&larger).unwrap();
    assert_eq!(larger["fits"], false, "{larger:#}");

    drop(browser);
    scene.delete(&plan).await.unwrap();
    scene.stop().await;
}

/// Every MaasMachine has its tile, in its zone, on its host, in its state.
async fn shows_the_machines(scene: &Scene, plan: &ClusterPlan, browser: &Browser) {
    let script = "return [...document.querySelectorAll('.tile')].map(it => [it.dataset.machine, it.dataset.state, \
                  it.closest('.zone').dataset.zone, it.closest('.place').dataset.host].join(' ')).sort()";
    let shown: Vec<String> = serde_json::from_value(browser.run(script).await.unwrap()).unwrap();
    let mut said = Vec::new();
    for object in scene.objects(plan, "MaasMachine").unwrap().list().await.unwrap() {
        let word = |pointer: &str| object.pointer(pointer).and_then(Value::as_str).unwrap_or_default().to_owned();
        let name = format!("{}/{}", word("/metadata/namespace"), word("/metadata/name"));
        said.push(
            [name, word("/status/machineState"), word("/status/failureDomain"), word("/status/lxdHost")].join(" "),
        );
    }
    said.sort();
    assert_eq!(shown, said);
}

/// The VMs are on the hosts and the workers on the machines that the plan named.
fn came_true(scene: &Scene, planned: &Value) {
    let steps = planned["steps"].as_array().unwrap();
    let named = |pointer: &str| -> BTreeSet<String> {
        steps.iter().filter_map(|step| Some(step.pointer(pointer)?.as_str()?.to_owned())).collect()
    };
    let hosts: BTreeSet<String> = scene.maas.vms().into_iter().map(|vm| vm.host).collect();
    assert_eq!(named("/vm/host"), hosts);
    let hosts_and_vms: BTreeSet<String> = scene.maas.vms().into_iter().map(|vm| vm.system_id).collect();
    let metal: BTreeSet<String> = scene
        .maas
        .taken()
        .into_iter()
        .filter(|machine| !hosts_and_vms.contains(&machine.system_id) && !machine.hostname.starts_with("host-"))
        .map(|machine| machine.system_id)
        .collect();
    assert_eq!(named("/metal/systemID"), metal);
}

/// A machine's life, and why its host was chosen, opened by keyboard alone.
async fn shows_a_life(browser: &Browser, folder: &std::path::Path) {
    browser
        .run("[...document.querySelectorAll('.tile')].find(it => it.textContent.includes('◆')).focus()")
        .await
        .unwrap();
    // Enter, as WebDriver spells it.
    browser.press("\u{E007}").await.unwrap();
    let steps = "const steps = [...document.querySelectorAll('.life li')].map(it => it.dataset.step); return steps.length ? steps : null";
    let steps: Vec<String> = serde_json::from_value(browser.until("a life", steps).await.unwrap()).unwrap();
    let wanted = ["Asked for", "Allocated", "Deploying", "Deployed", "Node ready"];
    let places: Vec<Option<usize>> = wanted.iter().map(|step| steps.iter().position(|it| it == step)).collect();
    assert!(places.iter().all(Option::is_some) && places.is_sorted(), "{steps:?}");
    let placement = browser.run("return document.querySelector('.placement').textContent").await.unwrap();
    assert_eq!(placement.as_str().unwrap().lines().count(), 3, "a line for each host: {placement}");
    browser.screenshot(&folder.join("page-machine.png")).await.unwrap();
    browser.press("\u{E00C}").await.unwrap();
    assert_eq!(browser.run("return document.getElementById('details').hidden").await.unwrap(), true);
}

async fn shows_hosts_and_metal(scene: &Scene, browser: &Browser, folder: &std::path::Path) {
    browser.press("d").await.unwrap();
    browser.press("d").await.unwrap();
    assert_eq!(browser.run("return document.documentElement.dataset.look").await.unwrap(), "dark");
    browser.press("2").await.unwrap();
    let script = "const hosts = [...document.querySelectorAll('[data-host].card')].map(it => [it.dataset.host, \
                  ...[...it.querySelectorAll('.bar span:last-child')].map(bar => bar.textContent)].join(' ')); return hosts.length ? hosts.sort() : null";
    // MAAS is asked less often than Kubernetes.
    let told: Value = serde_json::from_str(&scene.plugin(&["hosts", "--json"]).await.unwrap()).unwrap();
    let amount = |of: &Value| format!("{}/{}", of["used"], of["total"]);
    let mut said: Vec<String> = told
        .as_array()
        .unwrap()
        .iter()
        .map(|host| {
            let bars = [amount(&host["cores"]), amount(&host["memoryGiB"]), amount(&host["diskGB"])];
            format!("{} {}", host["name"].as_str().unwrap(), bars.join(" "))
        })
        .collect();
    said.sort();
    capmaas_e2e::eventually("hosts as MAAS has them", || async {
        let shown: Vec<String> = serde_json::from_value(browser.run(script).await?).unwrap_or_default();
        ensure!(shown == said, "{shown:?} instead of {said:?}");
        Ok(())
    })
    .await
    .unwrap();
    browser.screenshot(&folder.join("page-hosts.png")).await.unwrap();

    browser.press("3").await.unwrap();
    let vms: BTreeSet<String> = scene.maas.vms().into_iter().map(|vm| vm.system_id).collect();
    let metal: Vec<_> = scene.maas.machines().into_iter().filter(|it| !vms.contains(&it.system_id)).collect();
    let free = metal.iter().filter(|it| it.status == "Ready" && it.owner.is_none()).count();
    let script = "const count = use => [...document.querySelectorAll(`[data-use=\"${use}\"]`)].reduce((sum, it) => sum + Number(it.textContent), 0); \
                  return [document.querySelectorAll('tr[data-row]').length, count('free'), count('ours')]";
    let wanted = json!([metal.len(), free, 2]);
    capmaas_e2e::eventually("metal as MAAS has it", || async {
        let shown = browser.run(script).await?;
        ensure!(shown == wanted, "{shown} instead of {wanted}");
        Ok(())
    })
    .await
    .unwrap();
    browser.screenshot(&folder.join("page-metal.png")).await.unwrap();
}

async fn shows_events(scene: &Scene, browser: &Browser) {
    browser.press("4").await.unwrap();
    let listed = scene.testbed.kubectl(["get", "events.events.k8s.io", "-n", "default", "-o", "json"]).await.unwrap();
    let listed: Value = serde_json::from_str(&listed).unwrap();
    let ours =
        |event: &&Value| event["regarding"]["apiVersion"].as_str().is_some_and(|it| it.contains("cluster.x-k8s.io/"));
    let count = listed["items"].as_array().unwrap().iter().filter(ours).count().min(300);
    assert!(count > 5);
    let script = format!("return document.querySelectorAll('tr[data-row]').length >= {count}");
    browser.until("all events", &script).await.unwrap();
}

/// Requests that got an answer and should not have.
async fn refuses_others(page: &Page) -> Vec<String> {
    let client = reqwest::Client::builder().no_proxy().build().unwrap();
    let (live, bearer) = (format!("{}/live", page.origin()), format!("Bearer {}", page.token()));
    let with = |headers: &[(&'static str, &str)]| {
        let request = client.get(&live).header("authorization", &bearer);
        headers.iter().fold(request, |request, (name, value)| request.header(*name, *value))
    };
    let requests = [
        ("no token", client.get(&live), 401),
        ("a wrong token", client.get(format!("{}/?token={}", page.origin(), "0".repeat(64))), 401),
        ("the token in the address of data", client.get(format!("{live}?token={}", page.token())), 401),
        ("another host", with(&[("host", "rebound.example")]), 421),
        ("another site", with(&[("origin", "http://evil.example")]), 403),
        ("another site, as browsers tell", with(&[("sec-fetch-site", "cross-site")]), 403),
        ("a change", client.post(&live).header("authorization", &bearer), 405),
        ("what is not there", client.get(format!("{}/etc", page.origin())).header("authorization", &bearer), 404),
    ];
    let mut wrong = Vec::new();
    for (what, request, status) in requests {
        let answer = request.send().await.unwrap();
        if answer.status().as_u16() != status {
            wrong.push(format!("{what}: {}", answer.status()));
        }
        assert!(answer.headers().get("access-control-allow-origin").is_none());
    }
    let outside = Command::new(program("kubectl-maas").unwrap())
        .args(["ui", "--no-browser", "--address", "0.0.0.0"])
        .env("KUBECONFIG", "/dev/null")
        .output()
        .await
        .unwrap();
    if outside.status.success() {
        wrong.push("it listens on all addresses".into());
    }
    wrong
}

#[tokio::test]
async fn a_thousand_machines_are_shown_and_a_change_of_one_is_seen() {
    let testbed = Testbed::builder().start().await.unwrap();
    install_crds(&testbed).await.unwrap();
    let machine = |index: usize| {
        json!({
            "apiVersion": "infrastructure.cluster.x-k8s.io/v1beta1", "kind": "MaasMachine",
            "metadata": {"name": format!("m-{index:04}"), "namespace": "default",
                         "labels": {"cluster.x-k8s.io/cluster-name": format!("c{}", index % 10)}},
            "spec": {"image": "ubuntu/jammy", "minCPU": 4, "minMemory": 8192, "failureDomain": ZONES[index % 3]},
        })
    };
    testbed.apply_objects((0..1000).map(machine).collect()).await.unwrap();
    let page = Page::start(&testbed, None).await;
    let browser = Browser::start().await.unwrap();
    browser.open(&page.url).await.unwrap();
    let count = |number: usize| format!("return document.querySelectorAll('.tile').length === {number}");
    browser.until("a thousand tiles", &count(1000)).await.unwrap();
    let told = browser.run("return document.getElementById('trouble').textContent").await.unwrap();
    assert!(told.as_str().unwrap().contains("set MAAS_ENDPOINT and MAAS_API_KEY"), "{told}");
    // Drawing everything anew takes no longer than a person waits for a key.
    let milliseconds = "const begun = performance.now(); DRAW.clusters(); return performance.now() - begun";
    let milliseconds = browser.run(milliseconds).await.unwrap().as_f64().unwrap();
    println!("a thousand machines are drawn in {milliseconds:.0} ms");
    assert!(milliseconds < 1000.0, "{milliseconds} ms");

    browser.press("/").await.unwrap();
    browser.press("m-0777").await.unwrap();
    browser.until("the one machine", &count(1)).await.unwrap();
    let objects = capmaas_e2e::Objects::of(&testbed, capmaas_e2e::INFRASTRUCTURE, "v1beta1", "MaasMachine").unwrap();
    objects.apply_status("m-0777", json!({"machineState": "Deployed"})).await.unwrap();
    browser
        .until("its new state", "return document.querySelector('.tile').dataset.state === 'Deployed'")
        .await
        .unwrap();
    objects.delete("m-0777").await.unwrap();
    browser.until("its end", &count(0)).await.unwrap();
    drop(browser);
    testbed.stop().await;
}
