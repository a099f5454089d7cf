//! Machines that boot: the hardware receives orders, machines call the metadata API, and MAAS learns from it how a
//! deployment went.
#![allow(clippy::unwrap_used, clippy::expect_used, clippy::panic)]

mod common;

use std::sync::{Arc, Mutex};
use std::time::Duration;

use axum::body::Body;
use base64::Engine as _;
use common::{ADMIN, ALICE, Answer, arrange, authorization, get, post, raw, system_id, with_vm_host};
use futures::future::BoxFuture;
use maas_sim::hardware::{Action, BootHook, Hardware, Order};
use maas_sim::{Config, Simulator};

/// Records its orders, and refuses deployments that it is configured to refuse.
#[derive(Default)]
struct Rack {
    orders: Mutex<Vec<Order>>,
    refuses: bool,
}

impl Rack {
    fn actions(&self) -> Vec<Action> {
        self.orders.lock().unwrap().iter().map(|order| order.action).collect()
    }

    fn last(&self) -> Order {
        self.orders.lock().unwrap().last().cloned().unwrap()
    }
}

struct Cables(Arc<Rack>);

impl Hardware for Cables {
    fn carry_out(&self, order: Order) -> BoxFuture<'static, Result<(), String>> {
        let refused = self.0.refuses && order.action == Action::Deploy;
        self.0.orders.lock().unwrap().push(order);
        Box::pin(async move { if refused { Err("there is no such image".to_owned()) } else { Ok(()) } })
    }
}

fn lab(rack: &Arc<Rack>) -> Simulator {
    let config = Config::driven(ADMIN.parse().unwrap());
    let simulator = Simulator::with_hardware(config, Arc::new(Cables(Arc::clone(rack))));
    arrange(
        &simulator,
        r#"[{"user": {"name": "alice", "key": "alc:alt:als"}},
            {"subnet": {"cidr": "10.0.0.0/24", "gateway_ip": "10.0.0.254", "dns_servers": ["10.0.0.1"], "dhcp": true}},
            {"ip_range": {"start_ip": "10.0.0.200", "end_ip": "10.0.0.250"}},
            {"machine": {"hostname": "bm01"}}, {"machine": {"hostname": "bm02"}}]"#,
    );
    simulator
}

/// Advances the clock, and lets the hardware carry out its orders meanwhile.
async fn wait(simulator: &Simulator, seconds: f64) {
    simulator.control().advance(seconds);
    simulator.tick().await;
    tokio::time::sleep(Duration::from_millis(20)).await;
}

async fn deploy(simulator: &Simulator, id: &str, user_data: &str) {
    let encoded = base64::prelude::BASE64_STANDARD.encode(user_data);
    let path = format!("machines/{id}/?op=deploy");
    let answer = post(simulator, ALICE, &path, &[("user_data", &encoded), ("distro_series", "jammy")]).await;
    assert_eq!(answer.status, 200, "{}", answer.text);
    wait(simulator, 5.0).await;
}

fn key(order: &Order) -> String {
    let key = &order.credentials.as_ref().expect("a deployment has credentials").0;
    format!("{}:{}:{}", key.consumer, key.token, key.secret)
}

async fn ask(simulator: &Simulator, key: &str, nonce: u64, path: &str) -> Answer {
    let request = http::Request::get(format!("/MAAS/metadata/{path}"))
        .header("host", "maas.example:5240")
        .header("authorization", authorization(key, nonce))
        .body(Body::empty());
    raw(simulator, request.unwrap()).await
}

async fn report(simulator: &Simulator, key: &str, id: &str, name: &str, event: &str, result: &str) -> Answer {
    let body = format!(
        r#"{{"name": "{name}", "event_type": "{event}", "origin": "cloudinit", "result": "{result}",
             "description": "running {name} with frequency once-per-instance", "timestamp": 1.5}}"#
    );
    let request = http::Request::post(format!("/MAAS/metadata/status/{id}"))
        .header("authorization", authorization(key, 0))
        .body(Body::from(body));
    raw(simulator, request.unwrap()).await
}

async fn status(simulator: &Simulator, id: &str) -> String {
    let machine = get(simulator, ALICE, &format!("machines/{id}/")).await.json();
    machine["status_name"].as_str().unwrap().to_owned()
}

#[tokio::test]
async fn a_machine_is_deployed_when_it_fetches_its_user_data() {
    let rack = Arc::new(Rack::default());
    let sim = lab(&rack);
    let id = system_id(&sim, "bm01");
    deploy(&sim, &id, "#cloud-config\nruncmd: [true]\n").await;
    let order = rack.last();
    assert_eq!((order.action, order.hostname.as_str(), order.fqdn.as_str()), (Action::Deploy, "bm01", "bm01.maas"));
    let link = order.link.clone().expect("it has its AUTO address");
    assert_eq!((link.address.to_string().as_str(), link.prefix), ("10.0.0.251", 24));
    assert_eq!(link.gateway.unwrap().to_string(), "10.0.0.254");
    let machine = get(&sim, ALICE, &format!("machines/{id}/")).await.json();
    assert_eq!(machine["boot_interface"]["mac_address"].as_str(), order.mac.as_deref());
    wait(&sim, 600.0).await;
    assert_eq!(status(&sim, &id).await, "Deploying", "the clock alone deploys nothing");

    let key = key(&order);
    assert_eq!(ask(&sim, &key, 1, "2012-03-01/meta-data/instance-id").await.text, id);
    assert_eq!(ask(&sim, &key, 2, "2012-03-01/meta-data/local-hostname").await.text, "bm01.maas");
    assert_eq!(ask(&sim, &key, 3, "2012-03-01/meta-data/public-keys").await.text, "");
    let vendor = ask(&sim, &key, 4, "2012-03-01/meta-data/vendor-data").await;
    assert!(vendor.status == 200 && vendor.text.starts_with("cloud-init:"), "{}", vendor.text);
    assert_eq!(status(&sim, &id).await, "Deploying");
    let data = ask(&sim, &key, 5, "2012-03-01/user-data").await;
    assert_eq!((data.status, data.text.as_str()), (200, "#cloud-config\nruncmd: [true]\n"));
    assert_eq!(status(&sim, &id).await, "Deployed");
}

#[tokio::test]
async fn only_the_key_of_the_last_deployment_opens_the_metadata() {
    let rack = Arc::new(Rack::default());
    let sim = lab(&rack);
    let id = system_id(&sim, "bm01");
    deploy(&sim, &id, "one").await;
    let first = key(&rack.last());
    assert_eq!(ask(&sim, &first, 1, "2012-03-01/user-data").await.text, "one");
    assert_eq!(ask(&sim, &first, 1, "2012-03-01/user-data").await.status, 401, "a nonce is used once");
    let forged = format!("{first}x");
    assert_eq!(ask(&sim, &forged, 2, "2012-03-01/user-data").await.status, 401);
    assert_eq!(ask(&sim, ALICE, 3, "2012-03-01/user-data").await.status, 403);
    let anonymous = http::Request::get("/MAAS/metadata/2012-03-01/user-data").body(Body::empty()).unwrap();
    assert_eq!(raw(&sim, anonymous).await.status, 401);
    post(&sim, ALICE, &format!("machines/{id}/?op=release"), &[]).await;
    wait(&sim, 10.0).await;
    deploy(&sim, &id, "two").await;
    assert_eq!(ask(&sim, &first, 4, "2012-03-01/user-data").await.status, 401);
    assert_eq!(ask(&sim, &key(&rack.last()), 5, "2012-03-01/user-data").await.text, "two");
}

#[tokio::test]
async fn a_report_of_failure_fails_a_deployment_and_is_an_event_afterwards() {
    let rack = Arc::new(Rack::default());
    let sim = lab(&rack);
    let (one, two) = (system_id(&sim, "bm01"), system_id(&sim, "bm02"));
    deploy(&sim, &one, "x").await;
    let answer = report(&sim, &key(&rack.last()), &one, "cmd-install", "finish", "FAIL").await;
    assert_eq!(answer.status, 204);
    assert_eq!(status(&sim, &one).await, "Deploying", "MAAS looks at reports now and then");
    wait(&sim, 60.0).await;
    assert_eq!(status(&sim, &one).await, "Failed deployment");

    deploy(&sim, &two, "x").await;
    let key = key(&rack.last());
    ask(&sim, &key, 1, "2012-03-01/user-data").await;
    report(&sim, &key, &two, "modules-final/config-scripts-user", "finish", "FAIL").await;
    report(&sim, &key, &two, "modules-final", "finish", "FAIL").await;
    wait(&sim, 60.0).await;
    let machine = get(&sim, ALICE, &format!("machines/{two}/")).await.json();
    assert_eq!(machine["status_name"], "Deployed");
    let said = machine["status_message"].as_str().unwrap();
    assert_eq!(
        said,
        "Node post-installation failure - 'cloudinit' running modules-final with frequency once-per-instance"
    );
}

#[tokio::test]
async fn a_machine_that_never_asks_fails_by_the_time_limit() {
    let rack = Arc::new(Rack::default());
    let sim = lab(&rack);
    let id = system_id(&sim, "bm01");
    deploy(&sim, &id, "x").await;
    wait(&sim, 1801.0).await;
    assert_eq!(status(&sim, &id).await, "Failed deployment");
}

#[tokio::test]
async fn hardware_that_cannot_be_installed_fails_the_deployment() {
    let rack = Arc::new(Rack { refuses: true, ..Rack::default() });
    let sim = lab(&rack);
    let id = system_id(&sim, "bm01");
    deploy(&sim, &id, "x").await;
    wait(&sim, 60.0).await;
    assert_eq!(status(&sim, &id).await, "Failed deployment");
    let events = get(&sim, ADMIN, &format!("events/?op=query&level=ERROR&id={id}")).await.text;
    assert!(events.contains("'curtin' there is no such image"), "{events}");
}

#[tokio::test]
async fn power_erase_and_release_reach_the_hardware_in_order() {
    let rack = Arc::new(Rack::default());
    let sim = lab(&rack);
    let id = system_id(&sim, "bm01");
    deploy(&sim, &id, "x").await;
    ask(&sim, &key(&rack.last()), 1, "2012-03-01/user-data").await;
    sim.control().hurt(Some("bm01"), &maas_sim::control::MachineFault::LosePower, None).unwrap();
    wait(&sim, 1.0).await;
    post(&sim, ALICE, &format!("machines/{id}/?op=power_on"), &[]).await;
    wait(&sim, 5.0).await;
    post(&sim, ALICE, &format!("machines/{id}/?op=release"), &[("erase", "true")]).await;
    wait(&sim, 60.0).await;
    assert_eq!(status(&sim, &id).await, "Ready");
    let wanted = [Action::Deploy, Action::PowerOff, Action::PowerOn, Action::Erase, Action::PowerOff, Action::Release];
    assert_eq!(rack.actions(), wanted);
}

#[tokio::test]
async fn a_vm_boots_as_metal_does_and_is_given_back_when_it_is_deleted() {
    let rack = Arc::new(Rack::default());
    let sim = lab(&rack);
    with_vm_host(&sim);
    let vm = post(&sim, ADMIN, "machines/?op=allocate", &[("pod", "host-a"), ("cpu_count", "2")]).await;
    assert_eq!(vm.status, 200, "{}", vm.text);
    let (id, hostname) = (vm.json()["system_id"].clone(), vm.json()["hostname"].clone());
    let id = id.as_str().unwrap();
    wait(&sim, 120.0).await;
    let encoded = base64::prelude::BASE64_STANDARD.encode("of a VM");
    let path = format!("machines/{id}/?op=deploy");
    assert_eq!(post(&sim, ADMIN, &path, &[("user_data", &encoded)]).await.status, 200);
    wait(&sim, 5.0).await;
    let order = rack.last();
    assert_eq!((order.action, order.hostname.as_str()), (Action::Deploy, hostname.as_str().unwrap()));
    assert_eq!(ask(&sim, &key(&order), 1, "2012-03-01/user-data").await.text, "of a VM");
    assert_eq!(get(&sim, ADMIN, &format!("machines/{id}/")).await.json()["status_name"], "Deployed");
    assert_eq!(common::send(&sim, ADMIN, "DELETE", &format!("machines/{id}/"), &[]).await.status, 204);
    wait(&sim, 5.0).await;
    assert_eq!((rack.last().action, rack.last().system_id.as_str()), (Action::Release, id));
}

#[tokio::test]
async fn a_boot_hook_gets_the_action_and_the_machine_as_json() {
    let dir = tempfile::tempdir().unwrap();
    let (hook, log) = (dir.path().join("hook"), dir.path().join("log"));
    let script = format!(
        "#!/bin/sh\n[ $1 = erase ] && {{ echo 'no disk here' >&2; exit 3; }}\n(echo $1; cat) >{}\n",
        log.display()
    );
    std::fs::write(&hook, script).unwrap();
    std::process::Command::new("chmod").arg("+x").arg(&hook).status().unwrap();
    let rack = Arc::new(Rack::default());
    let sim = lab(&rack);
    let id = system_id(&sim, "bm01");
    deploy(&sim, &id, "x").await;
    let order = rack.last();
    let hook = BootHook::new(hook.to_str().unwrap());
    hook.carry_out(order.clone()).await.unwrap();
    let said = std::fs::read_to_string(&log).unwrap();
    let (action, json) = said.split_once('\n').unwrap();
    let json: serde_json::Value = serde_json::from_str(json).unwrap();
    assert_eq!((action, &json["system_id"]), ("deploy", &id.as_str().into()));
    assert_eq!(json["link"]["address"], "10.0.0.251");
    assert_eq!(json["credentials"]["token_key"], order.credentials.clone().unwrap().0.token.as_str());
    let refused = hook.carry_out(Order { action: Action::Erase, ..order.clone() }).await.unwrap_err();
    assert_eq!(refused, "the boot hook failed (exit status: 3): no disk here");
    let missing = BootHook::new("/nowhere/hook").carry_out(order).await.unwrap_err();
    assert!(missing.starts_with("the boot hook /nowhere/hook cannot be run: "), "{missing}");
}
