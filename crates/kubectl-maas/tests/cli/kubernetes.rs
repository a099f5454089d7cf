//! The program with a Kubernetes API server: watching, the page, maintenance and completion.

use std::io::{BufRead as _, BufReader, Read as _, Write as _};
use std::net::TcpStream;
use std::os::unix::fs::PermissionsExt as _;
use std::process::{Child, Command, Stdio};
use std::sync::{Arc, Mutex};
use std::time::{Duration, Instant};

use axum::Router;
use axum::http::{Method, StatusCode, Uri};
use axum::response::{IntoResponse as _, Response};
use serde_json::{Value, json};

use crate::{Site, succeeded, text};

/// Objects by their resource, such as `maasmachines`, and every request that is not a read.
#[derive(Clone, Default)]
pub(crate) struct Api {
    pub(crate) objects: Arc<Mutex<Vec<(&'static str, Value)>>>,
    changes: Arc<Mutex<Vec<String>>>,
    /// The resources that the user may not read.
    pub(crate) refused: Arc<Mutex<Vec<&'static str>>>,
    /// The paths of all requests.
    pub(crate) asked: Arc<Mutex<Vec<String>>>,
}

impl Api {
    /// Serves these objects, and writes the kubeconfig that leads there.
    pub(crate) fn start(site: &Site, objects: &[(&'static str, Value)]) -> Self {
        let api = Self::default();
        *api.objects.lock().unwrap() = objects.to_vec();
        let listener = site.runtime.block_on(tokio::net::TcpListener::bind("127.0.0.1:0")).unwrap();
        let server = format!("http://{}", listener.local_addr().unwrap());
        let config = json!({"apiVersion": "v1", "kind": "Config", "current-context": "c",
            "clusters": [{"name": "c", "cluster": {"server": server}}],
            "contexts": [{"name": "c", "context": {"cluster": "c", "user": "u"}}], "users": [{"name": "u", "user": {}}]});
        std::fs::write(site.file("kubeconfig"), config.to_string()).unwrap();
        let answering = api.clone();
        let router =
            Router::new().fallback(move |method: Method, uri: Uri| async move { answering.answer(&method, &uri) });
        site.runtime.spawn(async move { axum::serve(listener, router).await });
        api
    }

    fn answer(&self, method: &Method, uri: &Uri) -> Response {
        if method != Method::GET {
            self.changes.lock().unwrap().push(format!("{method} {}", uri.path()));
        }
        self.asked.lock().unwrap().push(uri.path().to_owned());
        let objects = self.objects.lock().unwrap();
        let last = uri.path().rsplit('/').next().unwrap_or_default();
        if self.refused.lock().unwrap().contains(&last) {
            let status = json!({"apiVersion": "v1", "kind": "Status", "metadata": {}, "status": "Failure",
                                "reason": "Forbidden", "message": format!("no {last}"), "code": 403});
            return (StatusCode::FORBIDDEN, axum::Json(status)).into_response();
        }
        if let Some((_, object)) = objects.iter().find(|(_, object)| object["metadata"]["name"] == last) {
            return axum::Json(object.clone()).into_response();
        }
        let items: Vec<&Value> = objects.iter().filter(|(of, _)| *of == last).map(|(_, object)| object).collect();
        if !last.ends_with('s') {
            return StatusCode::NOT_FOUND.into_response();
        }
        axum::Json(json!({"apiVersion": "v1", "kind": "List", "metadata": {}, "items": items})).into_response()
    }
}

pub(crate) fn machine(name: &str, cluster: &str, provider_id: &str) -> Value {
    json!({
        "apiVersion": "infrastructure.cluster.x-k8s.io/v1beta1", "kind": "MaasMachine",
        "metadata": {"name": name, "namespace": "default", "labels": {"cluster.x-k8s.io/cluster-name": cluster}},
        "spec": {"image": "jammy", "minCPU": 1, "minMemory": 1024, "providerID": provider_id},
        "status": {"machineState": "Deploying"},
    })
}

fn cluster(name: &str, hosts: bool) -> Value {
    let owner = json!([{"apiVersion": "cluster.x-k8s.io/v1beta1", "kind": "Cluster", "name": name, "uid": "u"}]);
    json!({
        "apiVersion": "infrastructure.cluster.x-k8s.io/v1beta1", "kind": "MaasCluster",
        "metadata": {"name": name, "namespace": "default", "ownerReferences": owner},
        "spec": {"dnsDomain": "maas", "lxdControlPlaneCluster": hosts},
    })
}

/// Ended when dropped.
struct Running(Child);

impl Drop for Running {
    fn drop(&mut self) {
        let _ = self.0.kill();
        let _ = self.0.wait();
    }
}

/// Starts a command that does not end by itself; the lines that it prints.
fn start(site: &Site, arguments: &[&str]) -> (Running, impl Iterator<Item = String> + use<>) {
    start_command(site, site.command(arguments))
}

fn start_command(site: &Site, mut command: Command) -> (Running, impl Iterator<Item = String> + use<>) {
    command.env("KUBECONFIG", site.file("kubeconfig")).stdout(Stdio::piped()).stderr(Stdio::null());
    let mut child = command.spawn().unwrap();
    let lines = BufReader::new(child.stdout.take().unwrap()).lines();
    (Running(child), lines.map_while(Result::ok))
}

pub(crate) fn run(site: &Site, arguments: &[&str]) -> std::process::Output {
    site.command(arguments).env("KUBECONFIG", site.file("kubeconfig")).output().unwrap()
}

/// The answer to one GET.
fn get(address: &str, path: &str, token: &str) -> String {
    let mut connection = TcpStream::connect(address).unwrap();
    let request =
        format!("GET {path} HTTP/1.1\r\nhost: {address}\r\nauthorization: Bearer {token}\r\nconnection: close\r\n\r\n");
    connection.write_all(request.as_bytes()).unwrap();
    let mut answer = String::new();
    connection.read_to_string(&mut answer).unwrap();
    answer
}

#[test]
fn watch_prints_again_when_something_changes_and_only_then() {
    let site = Site::start();
    let api = Api::start(&site, &[("maasmachines", machine("m-1", "c1", "maas://az1/abc"))]);
    let (running, mut lines) = start(&site, &["machines", "--watch"]);
    let mut next = || (lines.next().unwrap(), lines.next().unwrap());
    let (title, first) = next();
    assert!(title.starts_with("NAME") && first.contains("Deploying"), "{title}\n{first}");
    // Two polls later nothing has been printed again: the next table is the new one.
    std::thread::sleep(Duration::from_secs(5));
    api.objects.lock().unwrap()[0].1["status"]["machineState"] = json!("Deployed");
    let (title, second) = next();
    assert!(title.starts_with("NAME") && second.contains("Deployed"), "{title}\n{second}");
    drop(running);
    assert_eq!(lines.count(), 0);
}

#[test]
fn a_watch_tells_an_error_once_parts_yaml_and_ends_with_its_reader() {
    let site = Site::start();
    let api = Api::start(&site, &[("maasmachines", machine("m-1", "c1", "maas://az1/abc"))]);
    let mut command = site.command(&["machines", "--watch", "-o", "yaml"]);
    command.env("KUBECONFIG", site.file("kubeconfig")).stdout(Stdio::piped()).stderr(Stdio::piped());
    let mut running = Running(command.spawn().unwrap());
    let mut lines = BufReader::new(running.0.stdout.take().unwrap()).lines().map_while(Result::ok);
    let mut until = |wanted: &str| -> Vec<String> {
        let mut read = Vec::new();
        while !read.last().is_some_and(|line: &String| line.contains(wanted)) {
            read.push(lines.next().unwrap());
        }
        read
    };
    assert!(!until("zone:").iter().any(|line| line.contains("---")));
    api.refused.lock().unwrap().push("maasmachines");
    std::thread::sleep(Duration::from_secs(5));
    api.objects.lock().unwrap()[0].1["status"]["machineState"] = json!("Deployed");
    api.refused.lock().unwrap().clear();
    let second = until("zone:");
    assert!(second[0] == "---" && second.iter().any(|line| line.contains("Deployed")), "{second:?}");
    drop(lines);
    api.objects.lock().unwrap()[0].1["status"]["machineState"] = json!("Releasing");
    let begun = Instant::now();
    let ended = loop {
        if let Some(ended) = running.0.try_wait().unwrap() {
            break ended;
        }
        assert!(begun.elapsed() < Duration::from_secs(60), "it goes on although nobody reads");
        std::thread::sleep(Duration::from_millis(100));
    };
    let mut complaints = String::new();
    running.0.stderr.take().unwrap().read_to_string(&mut complaints).unwrap();
    assert!(ended.success(), "{complaints}");
    assert_eq!(complaints.matches("you lack the permission").count(), 1, "{complaints}");
}

#[test]
fn the_page_answers_on_every_loopback_address_and_only_reads() {
    let site = Site::start();
    let id = site.simulator.control().with_model(|model| model.db.machines.keys().next().cloned()).unwrap();
    let object = machine("m-1", "c1", &format!("maas://az1/{id}"));
    let api = Api::start(&site, &[("maasmachines", object)]);
    for address in ["127.0.0.2", "127.0.0.1"] {
        let (_running, mut lines) = start(&site, &["ui", "--no-browser", "--address", address]);
        let url = lines.next().unwrap();
        let (origin, token) = url.split_once("/?token=").unwrap();
        let listening = origin.strip_prefix("http://").unwrap();
        assert!(get(listening, &format!("/?token={token}"), "").starts_with("HTTP/1.1 200"), "{address}");
        let details = get(listening, "/machine?namespace=default&name=m-1", token);
        assert!(details.starts_with("HTTP/1.1 200") && details.contains("\"name\":\"m-1\""), "{details}");
    }
    let asked = |path: &str| site.simulator.control().ledger(None).iter().any(|entry| entry.path.contains(path));
    let begun = Instant::now();
    while !asked("events") || !asked("vm-hosts") {
        assert!(begun.elapsed() < Duration::from_secs(30), "MAAS was not read");
        std::thread::sleep(Duration::from_millis(100));
    }
    let ledger = site.simulator.control().ledger(None);
    let others: Vec<_> = ledger.iter().filter(|entry| entry.method != "GET").collect();
    assert!(others.is_empty(), "{others:?}");
    assert_eq!(*api.changes.lock().unwrap(), Vec::<String>::new());
}

#[test]
fn the_page_is_served_on_the_port_that_is_asked_for() {
    let site = Site::start();
    Api::start(&site, &[]);
    let port = std::net::TcpListener::bind("127.0.0.1:0").unwrap().local_addr().unwrap().port().to_string();
    let arguments = ["ui", "--no-browser", "--port", &port];
    let (_running, mut lines) = start(&site, &arguments);
    let url = lines.next().unwrap();
    assert!(url.starts_with(&format!("http://127.0.0.1:{port}/?token=")), "{url}");
    let token = url.rsplit('=').next().unwrap();
    assert!(get(&format!("127.0.0.1:{port}"), &format!("/?token={token}"), "").starts_with("HTTP/1.1 200"));
    let second = run(&site, &arguments);
    assert_eq!(second.status.code(), Some(1));
    assert!(text(&second.stderr).contains(&format!("cannot listen on port {port}; choose another")), "{second:?}");
}

#[test]
fn events_that_cannot_be_read_are_not_expired() {
    let site = Site::start();
    let mut object = machine("m-1", "c1", "maas-lxd://az1/abc");
    let condition = json!({"type": "LXDHostSelected", "status": "False", "reason": "InsufficientResources"});
    object["status"]["conditions"] = json!([condition]);
    let api = Api::start(&site, &[("maasmachines", object)]);
    let (_running, mut lines) = start(&site, &["ui", "--no-browser"]);
    let url = lines.next().unwrap();
    let (origin, token) = url.split_once("/?token=").unwrap();
    let details = || -> Value {
        let answer = get(origin.strip_prefix("http://").unwrap(), "/machine?namespace=default&name=m-1", token);
        serde_json::from_str(answer.split_once("\r\n\r\n").unwrap().1).unwrap()
    };
    let expired = details();
    assert_eq!((&expired["placementExpired"], &expired["eventsError"]), (&json!(true), &Value::Null));
    *api.refused.lock().unwrap() = vec!["events"];
    let unread = details();
    assert_eq!(unread["placementExpired"], false);
    assert!(unread["eventsError"].as_str().unwrap().contains("you lack the permission to list Event"), "{unread:#}");
}

#[test]
fn the_page_is_opened_in_a_browser_unless_told_not_to() {
    let site = Site::start();
    Api::start(&site, &[("maasmachines", machine("m-1", "c1", "maas://az1/abc"))]);
    let (programs, opened) = (site.folder.path().join("bin"), site.file("opened"));
    std::fs::create_dir(&programs).unwrap();
    for name in ["xdg-open", "open"] {
        let program = programs.join(name);
        std::fs::write(&program, "#!/bin/sh\ncat \"$1\" >>\"$OPENED\"\n").unwrap();
        std::fs::set_permissions(&program, std::fs::Permissions::from_mode(0o755)).unwrap();
    }
    let path = format!("{}:{}", programs.display(), std::env::var("PATH").unwrap());
    let ui = |arguments: &[&str]| {
        let mut command = site.command(arguments);
        // A killed program leaves its file there.
        command.env("PATH", &path).env("OPENED", &opened).env("TMPDIR", site.folder.path());
        let (running, mut lines) = start_command(&site, command);
        let url = lines.next().unwrap();
        let (origin, token) = url.split_once("/?token=").unwrap();
        // What it opens it opens before it answers.
        let answer = get(origin.strip_prefix("http://").unwrap(), &format!("/?token={token}"), "");
        assert!(answer.starts_with("HTTP/1.1 200"), "{answer}");
        (running, url)
    };
    let (_quiet, first) = ui(&["ui", "--no-browser"]);
    let (_running, second) = ui(&["ui"]);
    let begun = Instant::now();
    let page = loop {
        let page = std::fs::read_to_string(&opened).unwrap_or_default();
        if page.contains(&second) {
            break page;
        }
        assert!(begun.elapsed() < Duration::from_secs(60), "no browser was opened at {second}: {page}");
        std::thread::sleep(Duration::from_millis(50));
    };
    assert!(!page.contains(&first), "{page}");
}

#[test]
fn only_an_lxd_host_is_put_into_maintenance_and_the_others_are_named() {
    let site = Site::start();
    let objects = [
        ("maasmachines", machine("host-1", "hosts", "maas://az1/abc")),
        ("maasmachines", machine("worker-1", "c1", "maas://az1/def")),
        ("maasclusters", cluster("hosts", true)),
        ("maasclusters", cluster("c1", false)),
    ];
    let api = Api::start(&site, &objects);
    let refused = run(&site, &["maintenance", "start", "worker-1"]);
    assert_eq!(refused.status.code(), Some(1), "{refused:?}");
    let why = text(&refused.stderr);
    assert!(why.contains("default/worker-1 is not an LXD host") && why.contains("default/host-1"), "{why}");
    assert_eq!(*api.changes.lock().unwrap(), Vec::<String>::new());
    assert!(succeeded(&run(&site, &["maintenance", "start", "host-1"])).contains("is in maintenance"));
    assert_eq!(api.changes.lock().unwrap().len(), 1);
    // Whatever was written there can be removed.
    succeeded(&run(&site, &["maintenance", "stop", "worker-1"]));
}

#[test]
fn metal_that_maas_has_as_a_vm_host_is_put_into_maintenance() {
    let site = Site::start();
    let host = json!([
        {"machine": {"hostname": "h1", "status": "Deployed", "owner": "admin"}},
        {"lxd": {"address": "192.0.2.100:8443", "cores": 8, "memory": 16384, "host": "h1"}},
        {"vm_host": {"name": "h1", "power_address": "192.0.2.100:8443"}},
    ]);
    site.simulator.control().arrange(&serde_json::from_value::<Vec<_>>(host).unwrap()).unwrap();
    let hosts: Value = serde_json::from_str(&succeeded(&site.run(&["export", "--json"]))).unwrap();
    let id = hosts["vm_hosts"][0]["host"].as_str().unwrap().to_owned();
    let objects = [
        ("maasmachines", machine("by-hand", "c1", &format!("maas://az1/{id}"))),
        ("maasclusters", cluster("c1", false)),
    ];
    Api::start(&site, &objects);
    assert!(succeeded(&run(&site, &["maintenance", "start", "by-hand"])).contains("is in maintenance"));
}

#[test]
fn completion_offers_the_machines_that_can_be_hosts() {
    let site = Site::start();
    let objects = [
        ("maasmachines", machine("host-1", "hosts", "maas://az1/abc")),
        ("maasmachines", machine("vm-1", "c1", "maas-lxd://az1/def")),
    ];
    Api::start(&site, &objects);
    for word in ["start", "stop"] {
        assert_eq!(succeeded(&run(&site, &["__complete", "maintenance", word, ""])), "host-1\n:4\n");
    }
    assert_eq!(succeeded(&run(&site, &["__complete", "machines", "--context", ""])), "c\n:4\n");
    for (flag, files) in [("-f", ":0\n"), ("--inventory", ":0\n"), ("--kubeconfig", ":0\n"), ("--scale", ":4\n")] {
        assert_eq!(succeeded(&run(&site, &["__complete", "plan", flag, ""])), files, "{flag}");
    }
}
