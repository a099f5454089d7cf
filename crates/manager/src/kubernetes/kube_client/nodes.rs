//! The Nodes of a workload cluster.

use k8s_openapi::api::core::v1;
use kube::api::ListParams;
use kube::{Api, ResourceExt as _};

use super::{Error, ErrorKind, Key, Node, PAGE, Result, within};

/// Kubernetes supports half as many Nodes. A server that always has another page would be read for ever.
const PAGES: u32 = 200;

pub(super) async fn all_nodes(nodes: &Api<v1::Node>, cluster: &Key) -> Result<Vec<Node>> {
    let doing = || format!("list the Nodes of the cluster {cluster}");
    let mut page = ListParams::default().limit(PAGE);
    let mut found = Vec::new();
    for _ in 0..PAGES {
        let list = within(doing(), nodes.list(&page)).await?;
        found.extend(list.items.into_iter().map(node_of));
        match list.metadata.continue_.filter(|token| !token.is_empty()) {
            Some(token) => page = page.continue_token(&token),
            None => return Ok(found),
        }
    }
    let why = format!("the list has no end: more than {PAGES} pages of {PAGE} Nodes");
    Err(Error::new(ErrorKind::Unavailable, doing(), why))
}

pub(super) fn node_of(node: v1::Node) -> Node {
    Node {
        name: node.name_any(),
        resource_version: node.resource_version().unwrap_or_default(),
        annotations: node.metadata.annotations.unwrap_or_default(),
        labels: node.metadata.labels.unwrap_or_default(),
        provider_id: node.spec.and_then(|spec| spec.provider_id).filter(|id| !id.is_empty()),
        addresses: node
            .status
            .and_then(|status| status.addresses)
            .into_iter()
            .flatten()
            .map(|address| address.address)
            .collect(),
    }
}

#[cfg(test)]
mod tests {
    use std::convert::Infallible;
    use std::sync::Arc;
    use std::sync::atomic::{AtomicU32, Ordering};

    use http::{Request, Response};
    use kube::client::{Body, ClientBuilder};

    use super::*;
    use crate::kubernetes::workload::limited;

    /// What a list of Nodes says if the server answers every request like this, and how often it was asked.
    async fn listed(answer: String) -> (Result<Vec<Node>>, u32) {
        let asked = Arc::new(AtomicU32::new(0));
        let count = asked.clone();
        let server = tower::service_fn(move |_: Request<Body>| {
            count.fetch_add(1, Ordering::Relaxed);
            let answer = Response::new(Body::from(answer.clone().into_bytes()));
            async move { Ok::<_, Infallible>(answer) }
        });
        let client = limited(ClientBuilder::new(server, "default")).build();
        (all_nodes(&Api::all(client), &Key::new("team", "c1")).await, asked.load(Ordering::Relaxed))
    }

    fn list(metadata: &str, items: &str) -> String {
        format!(r#"{{"kind": "NodeList", "apiVersion": "v1", "metadata": {metadata}, "items": [{items}]}}"#)
    }

    #[tokio::test]
    async fn s29_an_answer_of_a_workload_cluster_that_is_too_large_is_an_error_in_words() {
        let long = list(&format!(r#"{{"selfLink": "{}"}}"#, "a".repeat(9 << 20)), "");
        let heavy = list("{}", &vec![r#"{"metadata":{}}"#; 20_000].join(","));
        for (answer, words) in [(long, "longer than 8 MiB"), (heavy, "more than 32 MiB of memory")] {
            let why = listed(answer).await.0.unwrap_err().to_string();
            assert!(why.contains(words) && why.contains("the Nodes of the cluster team/c1"), "{why}");
        }
        let images = vec![r#"{"names": ["registry/a@sha256:0", "registry/a:1"], "sizeBytes": 1}"#; 50].join(",");
        let fields = vec![r#""f:a": {}"#; 150].join(",");
        let fields = format!(r#"[{{"manager": "kubelet", "fieldsV1": {{{fields}}}}}]"#);
        let node = format!(
            r#"{{"metadata": {{"name": "n", "managedFields": {fields}}}, "status": {{"images": [{images}]}}}}"#
        );
        let genuine = listed(list("{}", &vec![node; 50].join(","))).await.0.unwrap();
        assert_eq!(genuine.len(), 50, "a page as large as they come");
    }

    #[tokio::test]
    async fn s29_a_list_of_nodes_without_an_end_is_given_up() {
        let (nodes, asked) = listed(list(r#"{"continue": "more"}"#, r#"{"metadata": {"name": "n"}}"#)).await;
        let why = nodes.unwrap_err().to_string();
        assert!(why.contains("the list has no end") && why.contains("cluster team/c1"), "{why}");
        assert_eq!(asked, PAGES);
    }
}
