//! Faults between the client and MAAS, and of MAAS itself.

use http::Method;
use maas_client::{Allocate, Effect, ErrorKind, MachineFilter};
use serde_json::{Value, json};

use crate::world::World;

async fn fault(world: &World, rule: Value) {
    world.control(Method::POST, "faults", &rule).await;
}

fn wanted() -> Allocate {
    Allocate { agent_name: Some("ns/m1".to_owned()), ..Allocate::metal() }
}

pub async fn an_allocation_whose_answer_is_lost_is_found_by_its_key(version: &str) {
    for (rule, kind) in [
        (json!({"match": {"kind": "allocate"}, "when": "after", "do": "reset"}), ErrorKind::Unreachable),
        (
            json!({"match": {"kind": "allocate"}, "when": "after", "do": "status", "status": 502, "content_type": "text/html",
                   "body": "<html><head><title>502 Bad Gateway</title></head></html>"}),
            ErrorKind::ServerTrouble,
        ),
        (json!({"match": {"kind": "allocate"}, "when": "after", "do": "hang"}), ErrorKind::Unreachable),
        (json!({"match": {"kind": "allocate"}, "when": "after", "do": "kill"}), ErrorKind::ServerTrouble),
    ] {
        let world = World::new(version).await;
        fault(&world, rule.clone()).await;
        let error = world.client.machines().allocate(&wanted()).await.unwrap_err();
        assert_eq!((error.kind(), error.effect()), (kind, Effect::Unknown), "{rule}: {error}");
        let ours = world.client.machines().list(&MachineFilter::agent_name("ns/m1")).await.unwrap();
        assert_eq!(ours.len(), 1, "{rule}");
    }
    // The same before the effect: the error looks the same, and only a look-up by the idempotency key distinguishes the
    // two.
    let world = World::new(version).await;
    fault(&world, json!({"match": {"kind": "allocate"}, "when": "before", "do": "reset"})).await;
    let error = world.client.machines().allocate(&wanted()).await.unwrap_err();
    assert_eq!((error.kind(), error.effect()), (ErrorKind::Unreachable, Effect::Unknown));
    assert!(world.client.machines().list(&MachineFilter::agent_name("ns/m1")).await.unwrap().is_empty());
}

pub async fn an_effect_may_come_after_the_client_has_given_up(version: &str) {
    let world = World::new(version).await;
    fault(&world, json!({"match": {"kind": "allocate"}, "do": "late", "seconds": 300.0})).await;
    let error = world.client.machines().allocate(&wanted()).await.unwrap_err();
    assert_eq!((error.kind(), error.effect()), (ErrorKind::Unreachable, Effect::Unknown), "{error}");
    let ours = MachineFilter::agent_name("ns/m1");
    assert!(world.client.machines().list(&ours).await.unwrap().is_empty(), "in flight is not absent");
    world.arrange(json!([{"advance": {"seconds": 301}}])).await;
    assert_eq!(world.client.machines().list(&ours).await.unwrap().len(), 1);
}

pub async fn what_stands_between_is_told_apart_from_maas(version: &str) {
    let world = World::new(version).await;
    let bm01 = world.id("bm01").await;
    let page = |status: u16| {
        json!({"do": "status", "status": status, "content_type": "text/html",
               "body": "<html><head><title>proxy</title></head></html>"})
    };
    for (rule, kind) in [
        (page(404), ErrorKind::NotUnderstood),
        (page(429), ErrorKind::Throttled),
        (page(409), ErrorKind::Conflict),
        (page(504), ErrorKind::ServerTrouble),
        (json!({"do": "status", "status": 410, "body": "Gone"}), ErrorKind::Gone),
        (json!({"do": "status", "status": 404, "body": "Not Found"}), ErrorKind::NotUnderstood),
        (
            json!({"do": "status", "status": 200, "content_type": "text/html", "body": "Log in"}),
            ErrorKind::NotUnderstood,
        ),
        (json!({"do": "truncate"}), ErrorKind::Unreachable),
    ] {
        let mut rule = rule;
        rule["match"] = json!({"path": format!("machines/{bm01}")});
        fault(&world, rule.clone()).await;
        let error = world.client.machines().read(&bm01).await.unwrap_err();
        assert_eq!(error.kind(), kind, "{rule}: {error}");
        assert!(world.client.machines().read(&bm01).await.is_ok(), "struck once");
    }
}
