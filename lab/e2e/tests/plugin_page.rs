//! `kubectl maas ui` and `kubectl maas plan` on real components: what the page shows in a real browser matches
//! Kubernetes and MAAS, it updates without a reload, nothing but the page gets an answer, and what was planned is what
//! happens.
#![allow(clippy::unwrap_used, clippy::expect_used, clippy::panic)]

use std::collections::{BTreeMap, BTreeSet};
use std::path::{Path, PathBuf};
use std::time::Duration;

use anyhow::ensure;
use capmaas_e2e::browser::Browser;
use capmaas_e2e::cluster::ClusterPlan;
use capmaas_e2e::lxd_hosts::vm;
use capmaas_e2e::maas::{MachineFacts, ZONES};
use capmaas_e2e::page::Page;
use capmaas_e2e::scene::Scene;
use capmaas_e2e::{eventually, eventually_within, install_crds};
use capmaas_testbed::{CapiVersion, Testbed};
use serde_json::{Value, json};
use tokio::io::{AsyncReadExt as _, AsyncWriteExt as _};
use tokio::process::Command;

/// Longer than a request whose answer was lost is waited for (S2).
const READY: Duration = Duration::from_secs(240);

/// Keys in WebDriver's encoding.
const ENTER: &str = "\u{E007}";
const ESCAPE: &str = "\u{E00C}";
const TAB: &str = "\u{E004}";

/// The folder for the book's pictures: CAPMAAS_PICTURES, or else a temporary one.
fn pictures() -> (PathBuf, Option<tempfile::TempDir>) {
    if let Some(folder) = std::env::var_os("CAPMAAS_PICTURES") {
        return (folder.into(), None);
    }
    let folder = tempfile::tempdir().unwrap();
    (folder.path().to_owned(), Some(folder))
}

fn strings(value: Value) -> Vec<String> {
    serde_json::from_value(value).unwrap()
}

#[tokio::test]
async fn the_page_shows_what_kubernetes_and_maas_say_and_the_plan_came_true() {
    let scene = Scene::start(CapiVersion::V1_14).await.unwrap();
    scene.maas.add_hosts(1).unwrap();
    // Metal that no machine of the cluster can use.
    let today = Command::new("date").args(["-u", "+capmaas-quarantine-%F"]).output().await.unwrap().stdout;
    let today = String::from_utf8(today).unwrap().trim().to_owned();
    let metal = json!([{"machine": {"hostname": "broken", "zone": "az1", "status": "Broken", "owner": "admin", "tags": ["storage"]}},
        {"machine": {"hostname": "failed-today", "zone": "az2", "cpu_count": 8, "memory": 16384, "tags": [today, "storage"]}},
        {"machine": {"hostname": "small", "zone": "az3", "cpu_count": 2, "memory": 4096, "tags": ["edge"]}}]);
    scene.maas.arrange(metal).unwrap();
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
    let before = scene.maas.mutations().len();
    let planned = answer(&scene, &["plan", "-f", file.path().to_str().unwrap()]).await;
    assert_eq!(planned["fits"], true, "{planned:#}");
    assert_eq!(scene.maas.mutations().len(), before, "a plan changes nothing");

    let page = Page::start(&scene.testbed, Some(&scene.maas.endpoint), &[]).await.unwrap();
    let browser = Browser::start().await.unwrap();
    browser.open(&page.url).await.unwrap();
    browser
        .until("a page without clusters", "return document.body.innerText.includes('No clusters here')")
        .await
        .unwrap();
    browser.run("window.opened = 'once'").await.unwrap();

    scene.testbed.apply_objects(objects).await.unwrap();
    scene.wait_running(&plan, &expected).await.unwrap();
    shows_ready(&scene, &browser, "5 of 5 ready").await;
    shows_the_machines(&scene, &plan, &browser).await;
    came_true(&scene, &planned);
    let (folder, _kept) = pictures();
    shows_a_life(&browser, &folder).await;
    shows_what_machines_wait_for(&scene, &plan, &browser, &folder).await;
    shows_hosts_and_metal(&scene, &browser, &folder).await;
    shows_events(&scene, &browser).await;
    assert_eq!(browser.run("return window.opened").await.unwrap(), "once", "the page was not loaded again");

    asks_only_itself(&browser, &page).await;
    // Details of a machine that was open when it was deleted are requested once more.
    let gone = |complaint: &String| complaint.contains("/machine?") && complaint.contains("404");
    let mut complaints = browser.complaints().await.unwrap();
    complaints.retain(|complaint| !gone(complaint));
    assert_eq!(complaints, Vec::<String>::new());
    assert_eq!(refuses_others(&page).await, Vec::<String>::new());
    other_sites_get_nothing(&browser, &page).await;

    // What would be lost: the quorum survives the loss of one zone of three, but not of two.
    let lost = answer(&scene, &["plan", "--without", "az1", "--without", "az2"]).await;
    assert_eq!(lost["impacts"][0]["fate"], "loses quorum", "{lost:#}");
    let lost = answer(&scene, &["plan", "--without", "az1"]).await;
    assert_ne!(lost["impacts"][0]["fate"], "loses quorum", "{lost:#}");

    drop(browser);
    scene.delete(&plan).await.unwrap();
    scene.stop().await;
}

/// The JSON output of the plugin.
async fn answer(scene: &Scene, arguments: &[&str]) -> Value {
    serde_json::from_str(&scene.plugin(&[arguments, &["--json"]].concat()).await.unwrap()).unwrap()
}

async fn shows_ready(scene: &Scene, browser: &Browser, count: &str) {
    let shown = eventually_within(READY, count, || async {
        let shown = browser.run("return document.querySelector('.count')?.textContent").await?;
        ensure!(shown == count, "the page shows {shown}");
        Ok(())
    });
    scene.explain(shown.await).await.unwrap();
}

/// Every MaasMachine has its tile, in its zone, on its host, with its state.
async fn shows_the_machines(scene: &Scene, plan: &ClusterPlan, browser: &Browser) {
    let script = "return [...document.querySelectorAll('.tile')].map(it => [it.dataset.machine, it.dataset.state, \
                  it.closest('.zone').dataset.zone, it.closest('.place').dataset.host].join(' ')).sort()";
    let shown = strings(browser.run(script).await.unwrap());
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

/// The VMs are on the hosts and the workers on the machines that the plan named, as many times as it named them.
fn came_true(scene: &Scene, planned: &Value) {
    let steps = planned["steps"].as_array().unwrap();
    let sorted = |mut names: Vec<String>| {
        names.sort();
        names
    };
    let named = |pointer: &str| {
        sorted(steps.iter().filter_map(|step| Some(step.pointer(pointer)?.as_str()?.to_owned())).collect())
    };
    assert_eq!(named("/vm/host"), sorted(scene.maas.vms().into_iter().map(|vm| vm.host).collect()));
    let hosts_and_vms: BTreeSet<String> = scene.maas.vms().into_iter().map(|vm| vm.system_id).collect();
    let metal = scene
        .maas
        .taken()
        .into_iter()
        .filter(|machine| !hosts_and_vms.contains(&machine.system_id) && !machine.hostname.starts_with("host-"))
        .map(|machine| machine.system_id)
        .collect();
    assert_eq!(named("/metal/systemID"), sorted(metal));
}

/// A machine's history, and why its host was chosen, opened by keyboard alone.
async fn shows_a_life(browser: &Browser, folder: &Path) {
    let on = "return document.activeElement.dataset.machine ?? document.activeElement.id";
    browser.press("j").await.unwrap();
    let first = browser.run(on).await.unwrap();
    browser.press("j").await.unwrap();
    assert_ne!(browser.run(on).await.unwrap(), first, "j goes on");
    browser.press("k").await.unwrap();
    assert_eq!(browser.run(on).await.unwrap(), first, "k goes back");
    browser.press(TAB).await.unwrap();
    let vm = "[...document.querySelectorAll('.tile')].find(it => it.textContent.includes('◆'))";
    assert!(browser.run(on).await.unwrap() != first, "so does Tab");
    browser.run(&format!("{vm}.focus()")).await.unwrap();
    browser.press(ENTER).await.unwrap();
    let steps = "const steps = [...document.querySelectorAll('.life li')].map(it => it.dataset.step); return steps.length ? steps : null";
    let steps = strings(browser.until("a life", steps).await.unwrap());
    let wanted = ["Requested", "Allocated", "Deploying", "Deployed", "Node ready"];
    let places: Vec<Option<usize>> = wanted.iter().map(|step| steps.iter().position(|it| it == step)).collect();
    assert!(places.iter().all(Option::is_some) && places.is_sorted(), "{steps:?}");
    let placement = "return [...document.querySelectorAll('.placement th')].map(it => it.textContent).sort()";
    let placement = strings(browser.run(placement).await.unwrap());
    assert_eq!(placement, ["host-az1-1", "host-az2-1", "host-az3-1"], "a verdict for each host");
    assert_eq!(browser.run(on).await.unwrap(), "close");
    is_readable(browser, "one machine").await;
    browser.screenshot(&folder.join("page-machine.png")).await.unwrap();
    browser.press(ESCAPE).await.unwrap();
    assert_eq!(browser.run("return document.getElementById('details').hidden").await.unwrap(), true);
    let back = format!("return document.activeElement === {vm}");
    assert_eq!(browser.run(&back).await.unwrap(), true, "whoever closes it is where he was");
}

/// A group that is larger than MAAS can serve: the plan shows how many are missing, as many wait, and the page shows
/// for what.
async fn shows_what_machines_wait_for(scene: &Scene, plan: &ClusterPlan, browser: &Browser, folder: &Path) {
    let deployment = scene.objects(plan, "MachineDeployment").unwrap().list().await.unwrap().remove(0);
    let name = deployment["metadata"]["name"].as_str().unwrap();
    let larger = answer(scene, &["plan", "--scale", &format!("{name}=14")]).await;
    assert_eq!((&larger["fits"], &larger["missing"][0]["count"]), (&json!(false), &json!(2)), "{larger:#}");
    scene.objects(plan, "MachineDeployment").unwrap().merge(name, json!({"spec": {"replicas": 14}})).await.unwrap();
    shows_ready(scene, browser, "15 of 17 ready").await;
    let script = "return [...document.querySelectorAll('.waits li')].map(it => [it.querySelector('button').dataset.machine, \
                  it.querySelector('span').textContent].join(' ')).sort()";
    eventually("what machines wait for", || async {
        let told = answer(scene, &["machines"]).await;
        let word = |machine: &Value, name: &str| machine[name].as_str().unwrap_or_default().to_owned();
        let of = |it: &Value| format!("{}/{} {}", word(it, "namespace"), word(it, "name"), word(it, "waitsFor"));
        let all = told.as_array().unwrap().iter().filter(|it| it["waitsFor"] != "nothing");
        let mut said: Vec<String> = all.map(of).collect();
        said.sort();
        let shown = strings(browser.run(script).await?);
        ensure!(said.len() == 2 && shown == said, "{shown:?} instead of {said:?}");
        ensure!(shown[0].contains("NoMachineAvailable"), "{shown:?}");
        Ok(())
    })
    .await
    .unwrap();
    is_readable(browser, "clusters").await;
    browser.screenshot(&folder.join("page-clusters.png")).await.unwrap();

    // An open one is updated as well, and the filter and the chips find it.
    browser.run("document.querySelector('.waits button').click()").await.unwrap();
    let says = |words: &str| format!("return document.getElementById('details').innerText.includes('{words}')");
    browser.until("what to do", &says("What to do:")).await.unwrap();
    scene.objects(plan, "MachineDeployment").unwrap().merge(name, json!({"spec": {"replicas": 12}})).await.unwrap();
    browser.until("its end", &says("there is no such MaasMachine")).await.unwrap();
    browser.press(ESCAPE).await.unwrap();
    shows_ready(scene, browser, "15 of 15 ready").await;
}

async fn shows_hosts_and_metal(scene: &Scene, browser: &Browser, folder: &Path) {
    browser.press("dd").await.unwrap();
    assert_eq!(browser.run("return document.documentElement.dataset.look").await.unwrap(), "dark");
    is_readable(browser, "clusters in the dark").await;
    browser.press("2").await.unwrap();
    scene.maas.arrange(json!([{"vm_host": {"name": "host-az2-1", "tags": ["maas-lxd-host-noschedule"]}}])).unwrap();
    let script = "const hosts = [...document.querySelectorAll('[data-host].card')].map(it => [it.dataset.host, \
                  ...[...it.querySelectorAll('.bar span:last-child')].map(bar => bar.textContent), \
                  it.querySelector('.says')?.textContent ?? 'ok', ...[...it.querySelectorAll('.tile')].map(vm => vm.dataset.machine)].join(' ')); \
                  return hosts.length ? hosts.sort() : null";
    let told = answer(scene, &["hosts"]).await;
    let machines = answer(scene, &["machines"]).await;
    let amount = |of: &Value| format!("{}/{}", of["used"], of["total"]);
    let mut said: Vec<String> = told
        .as_array()
        .unwrap()
        .iter()
        .map(|host| {
            let on_it = scene.maas.vms().into_iter().filter(|vm| host["name"] == vm.host);
            let named = |hostname: String| machines.as_array().unwrap().iter().find(|it| it["hostname"] == hostname);
            let vms: Vec<String> = on_it
                .filter_map(|vm| named(vm.hostname))
                .map(|it| format!("{}/{}", it["namespace"].as_str().unwrap(), it["name"].as_str().unwrap()))
                .collect();
            let bars = [amount(&host["cores"]), amount(&host["memoryGiB"]), amount(&host["diskGB"])];
            let words = [host["name"].as_str().unwrap(), &bars.join(" "), host["state"].as_str().unwrap()];
            format!("{} {}", words.join(" "), vms.join(" "))
        })
        .collect();
    said.sort();
    assert!(said[1].contains("takes no new VMs") && said[1].contains("default/"), "{said:?}");
    eventually("hosts as MAAS has them", || async {
        let shown: Vec<String> = serde_json::from_value(browser.run(script).await?).unwrap_or_default();
        ensure!(shown == said, "{shown:?} instead of {said:?}");
        Ok(())
    })
    .await
    .unwrap();
    is_readable(browser, "hosts in the dark").await;
    browser.screenshot(&folder.join("page-hosts.png")).await.unwrap();

    browser.press("3").await.unwrap();
    let vms: BTreeSet<String> = scene.maas.vms().into_iter().map(|vm| vm.system_id).collect();
    let metal: Vec<_> = scene.maas.machines().into_iter().filter(|it| !vms.contains(&it.system_id)).collect();
    let script = "const count = use => [...document.querySelectorAll(`[data-use=\"${use}\"]`)].reduce((sum, it) => sum + Number(it.textContent), 0); \
                  return [document.querySelectorAll('tr[data-row]').length, ...['free', 'ours', \"somebody's\", 'quarantined', 'broken', 'not ready'].map(count)]";
    let wanted = json!([metal.len(), 1, 12, 3, 1, 1, 0]);
    eventually("metal as MAAS has it", || async {
        let shown = browser.run(script).await?;
        ensure!(shown == wanted, "{shown} instead of {wanted}");
        Ok(())
    })
    .await
    .unwrap();
    shows_each_metal(&metal, browser).await;
    is_readable(browser, "metal in the dark").await;
    browser.screenshot(&folder.join("page-metal.png")).await.unwrap();
    browser.run("document.querySelector('[data-only=by][data-value=tag]').click()").await.unwrap();
    let storage = "const row = document.querySelector('[data-place=storage]'); return row && [...row.cells].map(it => it.textContent).join(' ').trim()";
    let counted = browser.until("metal by tag", storage).await.unwrap();
    assert_eq!(counted, "storage 0 0 0 1 1 0 2");
    browser.run("document.querySelector('[data-only=use][data-value=broken]').click()").await.unwrap();
    let rows = "return document.querySelectorAll('tr[data-row]').length === 1";
    browser.until("the one that is broken", rows).await.unwrap();
}

/// Every machine has its row with its state and zone, and the summary counts them by zone.
async fn shows_each_metal(metal: &[MachineFacts], browser: &Browser) {
    let mut said: Vec<String> =
        metal.iter().map(|it| format!("{} {}|{}|{}", it.hostname, it.system_id, it.status, it.zone)).collect();
    let in_zone = |zone: &str| metal.iter().filter(|it| it.zone == zone).count();
    let zones: BTreeMap<&str, usize> = metal.iter().map(|it| (it.zone.as_str(), in_zone(&it.zone))).collect();
    said.sort();
    let rows = "return [...document.querySelectorAll('tr[data-row]')].map(it => [0, 2, 3].map(cell => it.cells[cell].textContent).join('|')).sort()";
    let counts = "const zones = {}; for (const row of document.querySelectorAll('tr[data-place]')) { \
                  const zone = row.dataset.place.split(' ')[0]; zones[zone] = (zones[zone] ?? 0) + Number(row.cells[7].textContent); } return zones";
    eventually("each machine as MAAS has it", || async {
        let shown = strings(browser.run(rows).await?);
        ensure!(shown == said, "{shown:?} instead of {said:?}");
        let counted = browser.run(counts).await?;
        ensure!(counted == json!(zones), "{counted} instead of {zones:?}");
        Ok(())
    })
    .await
    .unwrap();
}

async fn shows_events(scene: &Scene, browser: &Browser) {
    browser.press("4").await.unwrap();
    let ours =
        |event: &&Value| event["regarding"]["apiVersion"].as_str().is_some_and(|it| it.contains("cluster.x-k8s.io/"));
    let row = |event: &Value| {
        let word = |pointer: &str| event.pointer(pointer).and_then(Value::as_str).unwrap_or_default().to_owned();
        let about = format!("{} {}/{}", word("/regarding/kind"), word("/regarding/namespace"), word("/regarding/name"));
        [word("/reason"), word("/note"), about]
    };
    let script = "return [...document.querySelectorAll('tr[data-row]')].map(it => \
                  [it.cells[1].firstElementChild.textContent, it.cells[2].textContent, it.cells[3].textContent])";
    // Events go on while they are read, and the page has the newest three hundred.
    eventually("events as Kubernetes has them", || async {
        let listed = scene.testbed.kubectl(["get", "events.events.k8s.io", "-n", "default", "-o", "json"]).await?;
        let listed: Value = serde_json::from_str(&listed)?;
        let mut said: Vec<[String; 3]> =
            listed["items"].as_array().into_iter().flatten().filter(ours).map(row).collect();
        let mut shown: Vec<[String; 3]> = serde_json::from_value(browser.run(script).await?)?;
        ensure!(said.len() > 5 && shown.len() == said.len().min(300), "{} of {}", shown.len(), said.len());
        said.sort();
        shown.sort();
        let foreign: Vec<_> = shown.iter().filter(|row| said.binary_search(row).is_err()).collect();
        ensure!(foreign.is_empty(), "Kubernetes has no {foreign:?}");
        ensure!(said.len() > 300 || shown == said, "{shown:?} instead of {said:?}");
        Ok(())
    })
    .await
    .unwrap();
    is_readable(browser, "events in the dark").await;
    browser.press("d").await.unwrap();
    browser.press("d").await.unwrap();
    is_readable(browser, "events in the light").await;
}

/// All text has the contrast that WCAG requires (AA: 4.5 to 1).
async fn is_readable(browser: &Browser, what: &str) {
    let script = "
        const numbers = colour => colour.match(/[\\d.]+/g).map(Number);
        const channel = it => (it /= 255) <= 0.03928 ? it / 12.92 : ((it + 0.055) / 1.055) ** 2.4;
        const light = colour => { const [r, g, b] = numbers(colour).map(channel); return 0.2126 * r + 0.7152 * g + 0.0722 * b; };
        const behind = it => { const [, , , opacity = 1] = numbers(getComputedStyle(it).backgroundColor);
            return opacity ? getComputedStyle(it).backgroundColor : behind(it.parentElement); };
        const texts = [...document.querySelectorAll('body *')].filter(it => it.checkVisibility() && !['SCRIPT', 'STYLE'].includes(it.nodeName) &&
            [...it.childNodes].some(child => child.nodeType === Node.TEXT_NODE && child.textContent.trim()));
        const faint = texts.map(it => { const [a, b] = [light(getComputedStyle(it).color), light(behind(it))].sort((one, other) => one - other);
            return [(b + 0.05) / (a + 0.05), it.textContent]; }).filter(([contrast]) => contrast < 4.5);
        return [texts.length, faint];";
    let found = browser.run(script).await.unwrap();
    assert!(found[0].as_u64().unwrap() > 20, "{what}: {found}");
    assert_eq!(found[1], json!([]), "{what} has text that is hard to read");
}

/// The page only sends requests to its own server, and every request has the token.
async fn asks_only_itself(browser: &Browser, page: &Page) {
    let requests = browser.traffic().await.unwrap().requests;
    let bearer = format!("Bearer {}", page.token());
    assert!(requests.len() >= 3, "{requests:?}");
    for request in requests {
        assert!(request.url.starts_with(page.origin()), "{}", request.url);
        let has_token = request.url == page.url || request.authorization.as_ref() == Some(&bearer);
        assert!(has_token, "{} carries no token", request.url);
    }
}

/// Requests that were answered but should not have been.
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
    wrong
}

/// A page of another origin in the same browser that knows the token still gets only refusals.
async fn other_sites_get_nothing(browser: &Browser, page: &Page) {
    let listener = tokio::net::TcpListener::bind("127.0.0.1:0").await.unwrap();
    let other = format!("http://{}/", listener.local_addr().unwrap());
    let serving = tokio::spawn(async move {
        loop {
            let (mut connection, _) = listener.accept().await.unwrap();
            let _ = connection.read(&mut [0; 4096]).await;
            let page = "HTTP/1.1 200 OK\r\ncontent-type: text/html\r\nconnection: close\r\n\r\n<title>evil</title>";
            let _ = connection.write_all(page.as_bytes()).await;
        }
    });
    browser.open(&other).await.unwrap();
    let _ = browser.traffic().await.unwrap();
    let attack = format!(
        "const [origin, token] = ['{}', '{}'];
        window.done = [];
        const note = (what, it) => it.then(() => window.done.push(what + ' got through'), () => window.done.push(what));
        note('fetch', fetch(origin + '/live', {{headers: {{Authorization: 'Bearer ' + token}}}}));
        note('simple fetch', fetch(origin + '/live'));
        fetch(origin + '/?token=' + token, {{mode: 'no-cors'}}).then(() => window.done.push('blind fetch'), () => window.done.push('blind fetch'));
        for (const tag of ['script', 'iframe', 'img']) {{
            const it = document.createElement(tag);
            it.onerror = it.onload = () => window.done.push(tag);
            it.src = origin + '/?token=' + token;
            document.documentElement.append(it);
        }}",
        page.origin(),
        page.token()
    );
    browser.run(&attack).await.unwrap();
    let done = browser.until("six attempts", "return window.done.length === 6 ? window.done : null").await.unwrap();
    assert!(!done.to_string().contains("got through"), "{done}");
    let answers = browser.traffic().await.unwrap().answers;
    let ours: Vec<_> = answers.iter().filter(|(url, _)| url.starts_with(page.origin())).collect();
    assert!(!ours.is_empty() && ours.iter().all(|(_, status)| *status == 403), "{ours:?}");
    let seen =
        browser.run("return document.querySelector('iframe').contentDocument?.body.textContent ?? ''").await.unwrap();
    assert_eq!(seen, "", "a frame of another origin shows nothing");
    serving.abort();
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
    let page = Page::start(&testbed, None, &[]).await.unwrap();
    let browser = Browser::start().await.unwrap();
    browser.open(&page.url).await.unwrap();
    let count = |number: usize| format!("return document.querySelectorAll('.tile').length === {number}");
    browser.until("a thousand tiles", &count(1000)).await.unwrap();
    let told = browser.run("return document.getElementById('trouble').textContent").await.unwrap();
    assert!(told.as_str().unwrap().contains("set MAAS_ENDPOINT and MAAS_API_KEY"), "{told}");
    // Redrawing everything is fast enough for a keystroke.
    let milliseconds = "const begun = performance.now(); redraw(); return performance.now() - begun";
    let milliseconds = browser.run(milliseconds).await.unwrap().as_f64().unwrap();
    println!("a thousand machines are drawn in {milliseconds:.0} ms");
    assert!(milliseconds < 1000.0, "{milliseconds} ms");
    is_readable(&browser, "a thousand machines").await;

    browser.press("/").await.unwrap();
    browser.press("m-0777").await.unwrap();
    browser.until("the one machine", &count(1)).await.unwrap();
    let objects = capmaas_e2e::Objects::of(&testbed, capmaas_e2e::INFRASTRUCTURE, "v1beta1", "MaasMachine").unwrap();
    // Text from others is shown as text, whatever it looks like.
    let markup = "<img src=x onerror=window.struck=1>";
    let condition = json!({"type": "MachineDeployed", "status": "False", "reason": "Deploying", "message": markup,
                           "severity": "Info", "lastTransitionTime": "2026-11-15T09:00:00Z"});
    let status = json!({"machineState": "Deployed", "conditions": [condition]});
    objects.apply_status("m-0777", status).await.unwrap();
    browser
        .until("its new state", "return document.querySelector('.tile').dataset.state === 'Deployed'")
        .await
        .unwrap();
    let shown = browser.run("return document.querySelector('.waits li span').textContent").await.unwrap();
    assert_eq!(shown, format!("Deploying: {markup}"));
    let became = browser.run("return [document.images.length, window.struck ?? null]").await.unwrap();
    assert_eq!(became, json!([0, null]), "no element and no script came of it");
    objects.delete("m-0777").await.unwrap();
    browser.until("its end", &count(0)).await.unwrap();
    drop(browser);
    testbed.stop().await;
}
