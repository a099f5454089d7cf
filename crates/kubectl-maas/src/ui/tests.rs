#![allow(clippy::unwrap_used, clippy::panic)]

use std::slice::from_ref;

use axum::body::Body;
use axum::http::Request;
use futures::StreamExt as _;
use jiff::Timestamp;
use serde_json::{Value, json};
use tower::ServiceExt as _;

use super::*;

#[test]
fn the_page_names_no_other_host_and_runs_nothing_but_its_own_script() {
    for (name, text) in [("page", PAGE), ("style", STYLE), ("script", SCRIPT)] {
        let foreign = ["http://", "https://", "url(", "@import", "eval(", "new Function", " onclick="];
        // Ways to make markup of text.
        let markup = ["innerHTML", "outerHTML", "insertAdjacentHTML", "document.write", "DOMParser", "srcdoc"];
        let more = ["createContextualFragment", "setHTML", "parseHTML", "javascript:"];
        for word in foreign.iter().chain(&markup).chain(&more) {
            assert!(!text.contains(word), "{name} has {word}");
        }
    }
    assert_eq!(PAGE.matches("{{nonce}}").count(), 2);
}

const MARKUP: &str = "<img src=x onerror=alert(1)></script><script>alert(2)</script>";

/// A MaasMachine and an event with markup wherever text can be.
fn of_kubernetes() -> [Value; 2] {
    let condition = json!({"type": MARKUP, "status": "False", "reason": MARKUP, "message": MARKUP});
    let machine = json!({
        "apiVersion": "infrastructure.cluster.x-k8s.io/v1beta1", "kind": "MaasMachine",
        "metadata": {"name": MARKUP, "namespace": MARKUP, "labels": {"cluster.x-k8s.io/cluster-name": MARKUP}},
        "spec": {"image": MARKUP}, "status": {"hostname": MARKUP, "machineState": MARKUP, "conditions": [condition]},
    });
    let event = json!({
        "apiVersion": "events.k8s.io/v1", "kind": "Event", "metadata": {"name": "e", "uid": MARKUP},
        "reason": MARKUP, "note": MARKUP, "type": MARKUP,
        "regarding": {"apiVersion": "cluster.x-k8s.io/v1beta2", "kind": MARKUP, "name": MARKUP, "namespace": MARKUP},
    });
    [machine, event]
}

/// The page's server above a Kubernetes that has these two objects, and the token.
fn server() -> (Router, String) {
    let [machine, event] = of_kubernetes();
    let board = Board::default();
    board.replace(&["machine", "event"], objects::of_kubernetes(&[], &[], from_ref(&machine), from_ref(&event)));
    let host = json!({"id": 1, "name": MARKUP, "tags": [MARKUP], "zone": {"name": MARKUP}});
    let metal = json!({"system_id": "abc", "hostname": MARKUP, "tag_names": [MARKUP], "owner": MARKUP});
    let (host, metal) = (serde_json::from_value(host).unwrap(), serde_json::from_value(metal).unwrap());
    board.replace(&["host", "metal"], objects::of_maas(&[host], &[metal], Timestamp::UNIX_EPOCH));
    let kubernetes = tower::service_fn(move |request: Request<kube::client::Body>| {
        let list = json!({"apiVersion": "v1", "kind": "List", "metadata": {}, "items": [event]});
        let answer = if request.uri().path().ends_with("/events") { &list } else { &machine };
        let response = Response::new(kube::client::Body::from(answer.to_string().into_bytes()));
        async move { Ok::<_, Infallible>(response) }
    });
    let cluster = Cluster::of(kube::Client::new(kubernetes, "default"));
    let guard = Guard::new("127.0.0.1:8080".parse().unwrap());
    let token = guard.url().rsplit('=').next().unwrap().to_owned();
    let sources = Arc::new(Sources { cluster, maas: None, all_namespaces: true });
    (router(Served { board, sources }, guard), token)
}

/// The type of an answer and the beginning of its body.
async fn answer(path: &str) -> (String, String) {
    let (router, token) = server();
    let request =
        Request::get(path).header("host", "127.0.0.1:8080").header("authorization", format!("Bearer {token}"));
    let response = router.oneshot(request.body(Body::empty()).unwrap()).await.unwrap();
    assert_eq!(response.headers()["x-content-type-options"], "nosniff", "the type is not guessed");
    let kind = response.headers()[header::CONTENT_TYPE].to_str().unwrap().to_owned();
    let first = response.into_body().into_data_stream().next().await.unwrap().unwrap();
    (kind, String::from_utf8(first.to_vec()).unwrap())
}

#[tokio::test]
async fn markup_of_kubernetes_and_maas_is_sent_as_data_and_never_within_the_page() {
    let (kind, page) = answer("/").await;
    assert_eq!(kind, "text/html; charset=utf-8");
    assert!(!page.contains("onerror"), "the page contains nothing of what it shows");
    assert_eq!((page.matches("<script").count(), page.matches("</script").count()), (1, 1));

    let (kind, live) = answer("/live").await;
    assert_eq!(kind, "text/event-stream");
    let told: Value = serde_json::from_str(live.strip_prefix("data: ").unwrap().trim_end()).unwrap();
    let machine = &told["set"][format!("machine/{MARKUP}/{MARKUP}")];
    assert_eq!((&machine["hostname"], &machine["state"]), (&json!(MARKUP), &json!(MARKUP)), "{told:#}");
    assert_eq!(told["set"]["host/1"]["name"], MARKUP);
    assert_eq!(told["set"]["metal/abc"]["tags"], json!([MARKUP]));
    assert_eq!(told["set"][format!("event/{MARKUP}")]["note"], MARKUP);

    let (kind, details) = answer("/machine?namespace=n&name=m").await;
    assert_eq!(kind, "application/json");
    let told: Value = serde_json::from_str(&details).unwrap();
    assert_eq!((&told["conditions"][0]["message"], &told["events"][0]["note"]), (&json!(MARKUP), &json!(MARKUP)));
}

#[test]
fn the_browser_opens_the_page_through_a_file_that_nobody_else_reads() {
    use std::os::unix::fs::PermissionsExt as _;
    let url = Guard::new("127.0.0.1:8080".parse().unwrap()).url();
    let file = opening(&url).unwrap();
    let text = std::fs::read_to_string(file.path()).unwrap();
    assert!(text.contains(&format!("0;url={url}\"")) && text.contains(&format!("href=\"{url}\"")), "{text}");
    assert!(file.path().extension().is_some_and(|it| it == "html"), "a browser is chosen by it");
    assert_eq!(file.as_file().metadata().unwrap().permissions().mode() & 0o077, 0);
    let path = file.path().to_owned();
    drop(file);
    assert!(!path.exists(), "the token does not stay on disk");
}
