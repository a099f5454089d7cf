//! Templates do not change, except in the thoughts of Cluster API's topology controller.

use kube::{
    Error,
    api::{DynamicObject, Patch, PatchParams},
};
use serde_json::{Value, json};

use crate::server::{Server, refusal};

const SENTENCE: &str = "spec.template.spec cannot change, because templates are immutable; make a template with another name and point the KubeadmControlPlane, MachineDeployment or ClusterClass at it";

struct Change {
    kind: &'static str,
    before: Value,
    after: Value,
}

fn changes() -> [Change; 2] {
    [
        Change {
            kind: "MaasMachineTemplate",
            before: json!({"image": "ubuntu/jammy", "minCPU": 2, "minMemory": 2048, "tags": ["a"]}),
            after: json!({"image": "ubuntu/noble", "minCPU": 2, "minMemory": 2048, "tags": ["a"]}),
        },
        Change {
            kind: "MaasClusterTemplate",
            before: json!({"dnsDomain": "maas"}),
            after: json!({"dnsDomain": "other"}),
        },
    ]
}

fn template(kind: &str, spec: &Value, annotations: &Value) -> Value {
    json!({
        "apiVersion": "infrastructure.cluster.x-k8s.io/v1beta1", "kind": kind,
        "metadata": {"name": "t", "annotations": annotations},
        "spec": {"template": {"spec": spec}},
    })
}

async fn apply(server: &Server, kind: &str, object: &Value, dry_run: bool) -> Result<DynamicObject, Error> {
    let parameters = PatchParams { dry_run, ..PatchParams::apply("capi-topology").force() };
    server.api(kind).patch("t", &parameters, &Patch::Apply(object)).await
}

#[tokio::test]
async fn a_template_changes_only_in_a_dry_run_of_the_topology_controller() {
    let server = Server::with_namespace("templates").await;
    for Change { kind, before, after } in changes() {
        let (none, topology) = (json!({}), json!({"topology.cluster.x-k8s.io/dry-run": ""}));
        apply(&server, kind, &template(kind, &before, &none), false).await.unwrap();

        let dry = apply(&server, kind, &template(kind, &after, &topology), true).await.expect("the topology's dry run");
        assert_eq!(dry.data["spec"]["template"]["spec"], after);

        if server.has_policies {
            for (annotations, dry_run) in [(&none, false), (&none, true), (&topology, false)] {
                let status =
                    refusal(apply(&server, kind, &template(kind, &after, annotations), dry_run).await).unwrap();
                assert!(status.message.contains(SENTENCE), "{}", status.message);
            }
            let stored = server.api(kind).get("t").await.unwrap();
            assert_eq!(stored.data["spec"]["template"]["spec"], before);
        }
    }
}

#[tokio::test]
async fn the_metadata_of_a_template_and_of_what_it_makes_may_change() {
    let server = Server::with_namespace("template-metadata").await;
    for Change { kind, before, .. } in changes() {
        server.create(&template(kind, &before, &json!({}))).await.unwrap();
        let change = json!({
            "metadata": {
                "labels": {"a": "b"},
                "ownerReferences": [{"apiVersion": "cluster.x-k8s.io/v1beta2", "kind": "Cluster", "name": "c", "uid": "7a0f1d26-5077-4253-9f86-aba4c8c99e9e"}],
            },
            "spec": {"template": {"metadata": {"labels": {"rack": "7"}}}},
        });
        let stored = server.merge(kind, "t", &change).await.unwrap();
        assert_eq!(stored["spec"]["template"]["metadata"]["labels"]["rack"], "7");
    }
}
