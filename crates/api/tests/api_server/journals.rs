//! Who may write the manager's journal (S28), and that its annotations are what the policy says.

use kube::api::PostParams;
use serde_json::{Value, json};

use crate::server::{Server, dynamic, eventually, read, refusal};

const RECORD: &str = "infrastructure.cluster.x-k8s.io/maas-record";

fn object(kind: &str, name: &str, annotations: &Value) -> Value {
    let spec = match kind {
        "MaasMachine" => json!({"image": "ubuntu/noble", "minCPU": 1, "minMemory": 1024}),
        _ => json!({"dnsDomain": "maas"}),
    };
    let metadata = json!({"name": name, "annotations": annotations});
    json!({"apiVersion": "infrastructure.cluster.x-k8s.io/v1beta1", "kind": kind, "metadata": metadata, "spec": spec})
}

/// What Cluster API's controllers have: every resource of the group, with the ordinary verbs.
fn ordinary() -> Value {
    let verbs = ["get", "list", "watch", "create", "update", "patch", "delete"];
    json!([{"apiGroups": ["infrastructure.cluster.x-k8s.io"], "resources": ["*"], "verbs": verbs}])
}

/// The rules that a shipped ClusterRole gives.
fn shipped(path: &str, name: &str) -> Value {
    let documents = crate::server::documents(path);
    let role = documents.iter().find(|object| object["kind"] == "ClusterRole" && object["metadata"]["name"] == name);
    role.unwrap_or_else(|| panic!("{name} is not in {path}"))["rules"].clone()
}

fn and(rules: &Value, more: &Value) -> Value {
    json!([rules.as_array().unwrap().as_slice(), more.as_array().unwrap().as_slice()].concat())
}

/// The policy is in force a moment after it was stored.
async fn in_force(tenant: &Server) {
    let probe = object("MaasMachine", "probe", &json!({RECORD: "{}"}));
    let dry_run = PostParams { dry_run: true, ..PostParams::default() };
    eventually(async || tenant.api("MaasMachine").create(&dry_run, &dynamic(&probe)).await.is_err()).await;
}

#[tokio::test]
async fn s28_who_only_has_the_ordinary_verbs_writes_no_journal_and_everything_else() {
    let server = Server::with_namespace("journals").await;
    if !server.has_policies {
        return;
    }
    let tenant = server.account("tenant", &ordinary()).await;
    in_force(&tenant).await;
    let refused = |result| {
        let status = refusal(result).unwrap();
        assert!(status.message.contains("the manager's journal and not yours to write"), "{}", status.message);
    };
    for kind in ["MaasMachine", "MaasCluster"] {
        refused(tenant.create(&object(kind, "forged", &json!({RECORD: "{}"}))).await);
        refused(tenant.create(&object(kind, "forged", &json!({"maas.spectrocloud.com/vm-name": "web"}))).await);
        let own = json!({"example.com/a": "b", "infrastructure.cluster.x-k8s.io/abandon-machine": "abc123",
                         "infrastructure.cluster.x-k8s.io/leave-power": ""});
        tenant.create(&object(kind, "own", &own)).await.unwrap();
        let annotate = |name: &str, value: Value| json!({"metadata": {"annotations": {name: value}}});
        refused(tenant.merge(kind, "own", &annotate(RECORD, json!("{}"))).await);

        // What the manager has written meanwhile is neither changed nor removed, and does not stand in the way of other changes.
        server.merge(kind, "own", &annotate(RECORD, json!("{}"))).await.unwrap();
        refused(tenant.merge(kind, "own", &annotate(RECORD, Value::Null)).await);
        refused(tenant.merge(kind, "own", &annotate(RECORD, json!("{ }"))).await);
        refused(tenant.merge(kind, "own", &json!({"metadata": {"annotations": null}})).await);
        tenant.merge(kind, "own", &annotate("example.com/a", json!("c"))).await.unwrap();
        tenant
            .merge(kind, "own", &json!({"metadata": {"labels": {"a": "b"}, "finalizers": ["example.com/f"]}}))
            .await
            .unwrap();
        tenant.merge(kind, "own", &json!({"metadata": {"finalizers": null}})).await.unwrap();
        tenant.api(kind).delete("own", &kube::api::DeleteParams::default()).await.unwrap();
    }
}

#[tokio::test]
async fn s28_the_manager_and_named_accounts_write_the_journal() {
    let server = Server::with_namespace("journal-writers").await;
    let manager = shipped("config/rbac/manager_role.yaml", "capmaas-manager");
    let writer = shipped("config/rbac/journal_writer_role.yaml", "capmaas-journal-writer");
    let manager = server.account("manager", &manager).await;
    let backup = server.account("backup", &and(&ordinary(), &writer)).await;
    for kind in ["MaasMachine", "MaasCluster"] {
        backup.create(&object(kind, "restored", &json!({RECORD: "{}"}))).await.unwrap();
        let change = json!({"metadata": {"annotations": {RECORD: "{ }"}}});
        manager.merge(kind, "restored", &change).await.unwrap();
        backup.merge(kind, "restored", &json!({"metadata": {"annotations": {RECORD: null}}})).await.unwrap();
    }
}

#[test]
fn s28_the_policy_leaves_to_people_only_what_people_say() {
    let policy = read("config/policy/journals.yaml");
    assert_eq!(policy.matches("'infrastructure.cluster.x-k8s.io/abandon-machine'").count(), 1);
    assert_eq!(policy.matches("'infrastructure.cluster.x-k8s.io/leave-power'").count(), 1);
    let journal = [
        capmaas_api::names::ENDPOINT_SOURCE_ANNOTATION,
        capmaas_api::names::DNS_NAME_ANNOTATION,
        capmaas_api::names::DNS_RECORD_ANNOTATION,
        capmaas_api::names::DNS_ASKED_ANNOTATION,
        capmaas_api::names::DNS_OWED_ANNOTATION,
    ];
    for name in journal {
        assert!(name.starts_with("infrastructure.cluster.x-k8s.io/") && !policy.contains(name), "{name}");
    }
    assert!(policy.contains(capmaas_api::names::VM_NAME_ANNOTATION));
}
