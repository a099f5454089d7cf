//! The shared API server with the definitions and, where it serves them, the policies.

use std::{
    path::{Path, PathBuf},
    time::Duration,
};

use capmaas_testbed::{KubernetesVersion, SharedTestbed, Testbed, TestbedBuilder};
use k8s_openapi::api::core::v1::Namespace;
use kube::{
    Api, Client, Error,
    api::{ApiResource, DynamicObject, ListParams, Patch, PatchParams, PostParams},
    core::{GroupVersionKind, Status},
};
use serde_json::{Value, json};
use tokio::sync::OnceCell;

static TESTBED: SharedTestbed = SharedTestbed::new(builder);
static PREPARED: OnceCell<bool> = OnceCell::const_new();

fn builder() -> TestbedBuilder {
    Testbed::builder().kubernetes(KubernetesVersion::from_env().expect("CAPMAAS_KUBERNETES"))
}

/// The API server and a namespace of the caller's own.
pub(crate) struct Server {
    pub(crate) client: Client,
    pub(crate) namespace: String,
    /// Whether it serves policies; then they are installed and in force.
    pub(crate) has_policies: bool,
}

impl Server {
    pub(crate) async fn with_namespace(name: &str) -> Self {
        let testbed = TESTBED.get().await.expect("the testbed starts");
        let client = testbed.client().expect("a client");
        let has_policies = *PREPARED.get_or_init(|| prepare(testbed)).await;
        let namespace: Namespace = serde_json::from_value(json!({"metadata": {"name": name}})).unwrap();
        Api::all(client.clone()).create(&PostParams::default(), &namespace).await.expect("a namespace");
        Self { client, namespace: name.to_owned(), has_policies }
    }

    /// A ServiceAccount of the namespace with these rules, as a client.
    pub(crate) async fn account(&self, name: &str, rules: &Value) -> Self {
        let testbed = TESTBED.get().await.expect("the testbed starts");
        let rbac = "rbac.authorization.k8s.io/v1";
        let metadata = json!({"name": name, "namespace": self.namespace});
        let objects = [
            json!({"apiVersion": "v1", "kind": "ServiceAccount", "metadata": metadata}),
            json!({"apiVersion": rbac, "kind": "Role", "metadata": metadata, "rules": rules}),
            json!({
                "apiVersion": rbac, "kind": "RoleBinding", "metadata": metadata,
                "roleRef": {"apiGroup": "rbac.authorization.k8s.io", "kind": "Role", "name": name},
                "subjects": [{"kind": "ServiceAccount", "name": name, "namespace": self.namespace}],
            }),
        ];
        for object in objects {
            testbed.apply_yaml(&object.to_string()).await.expect("an account with its rights");
        }
        let client = testbed.service_account_client(&self.namespace, name).await.expect("a client");
        let account = Self { client, namespace: self.namespace.clone(), has_policies: self.has_policies };
        // Rights arrive a moment after they were stored.
        eventually(async || account.api("MaasMachine").list(&ListParams::default()).await.is_ok()).await;
        account
    }

    pub(crate) fn api(&self, kind: &str) -> Api<DynamicObject> {
        Api::namespaced_with(self.client.clone(), &self.namespace, &api_resource(kind))
    }

    pub(crate) async fn create(&self, object: &Value) -> Result<Value, Error> {
        let created = self.api(kind_of(object)).create(&PostParams::default(), &dynamic(object)).await?;
        Ok(serde_json::to_value(created).unwrap())
    }

    /// What kubectl edit does, in short: merges `change` into the stored object.
    pub(crate) async fn merge(&self, kind: &str, name: &str, change: &Value) -> Result<Value, Error> {
        let merged = self.api(kind).patch(name, &PatchParams::default(), &Patch::Merge(change)).await?;
        Ok(serde_json::to_value(merged).unwrap())
    }

    pub(crate) async fn merge_status(&self, kind: &str, name: &str, status: &Value) -> Result<Value, Error> {
        let change = json!({ "status": status });
        let merged = self.api(kind).patch_status(name, &PatchParams::default(), &Patch::Merge(&change)).await?;
        Ok(serde_json::to_value(merged).unwrap())
    }
}

pub(crate) async fn kubectl(arguments: &[&str]) -> String {
    TESTBED.get().await.expect("the testbed starts").kubectl(arguments).await.expect("kubectl")
}

pub(crate) fn dynamic(object: &Value) -> DynamicObject {
    serde_json::from_value(object.clone()).expect("an object")
}

pub(crate) fn kind_of(object: &Value) -> &str {
    object["kind"].as_str().expect("a kind")
}

pub(crate) fn api_resource(kind: &str) -> ApiResource {
    let gvk = GroupVersionKind::gvk(capmaas_api::GROUP, capmaas_api::VERSION, kind);
    ApiResource::from_gvk_with_plural(&gvk, &format!("{}s", kind.to_lowercase()))
}

/// What the API server said when it refused; anything but a refusal fails the test.
pub(crate) fn refusal<T: std::fmt::Debug>(result: Result<T, Error>) -> Result<Status, String> {
    match result {
        Ok(accepted) => Err(format!("accepted: {accepted:?}")),
        Err(Error::Api(status)) if status.code == 422 || status.code == 403 => Ok(*status),
        Err(other) => Err(format!("neither accepted nor refused: {other:?}")),
    }
}

pub(crate) fn repository(path: &str) -> PathBuf {
    Path::new(env!("CARGO_MANIFEST_DIR")).join("../..").join(path)
}

pub(crate) fn read(path: &str) -> String {
    let path = repository(path);
    std::fs::read_to_string(&path).unwrap_or_else(|error| panic!("{}: {error}", path.display()))
}

pub(crate) fn documents(path: &str) -> Vec<Value> {
    let documents: Vec<Value> =
        serde_saphyr::from_multiple(&read(path)).unwrap_or_else(|error| panic!("{path}: {error}"));
    documents.into_iter().filter(|document| !document.is_null()).collect()
}

async fn prepare(testbed: &Testbed) -> bool {
    for entry in std::fs::read_dir(repository("config/crd")).expect("config/crd") {
        let path = entry.unwrap().path();
        if !path.ends_with("kustomization.yaml") {
            testbed.apply_yaml(&std::fs::read_to_string(&path).unwrap()).await.expect("the definitions are accepted");
        }
    }
    let client = testbed.client().expect("a client");
    let served = client.list_api_group_resources("admissionregistration.k8s.io/v1").await.expect("discovery");
    let has_policies = served.resources.iter().any(|resource| resource.name == "validatingadmissionpolicies");
    assert_eq!(has_policies, testbed.kubernetes() > KubernetesVersion::V1_29, "policies are served from 1.30 on");
    if has_policies {
        for policy in ["immutable-templates", "journals", "new-objects"] {
            testbed
                .apply_yaml(&read(&format!("config/policy/{policy}.yaml")))
                .await
                .expect("the policies are accepted");
        }
        in_force(&client).await;
    }
    has_policies
}

/// A policy is in force a moment after it was stored, each at its own time.
async fn in_force(client: &Client) {
    let probe = |kind: &str, spec: Value| {
        let metadata = json!({"name": "probe", "namespace": "default"});
        json!({"apiVersion": "infrastructure.cluster.x-k8s.io/v1beta1", "kind": kind, "metadata": metadata, "spec": spec})
    };
    let cluster = probe("MaasCluster", json!({"dnsDomain": "maas", "failureDomains": [""]}));
    let machine = probe("MaasMachine", json!({"image": "i", "minCPU": 0, "minMemory": 0, "lxd": {"enabled": true}}));
    for object in [cluster, machine] {
        let api: Api<DynamicObject> = Api::namespaced_with(client.clone(), "default", &api_resource(kind_of(&object)));
        let dry_run = PostParams { dry_run: true, ..PostParams::default() };
        eventually(async || api.create(&dry_run, &dynamic(&object)).await.is_err()).await;
    }

    let template =
        probe("MaasMachineTemplate", json!({"template": {"spec": {"image": "i", "minCPU": 1, "minMemory": 1}}}));
    let api: Api<DynamicObject> = Api::namespaced_with(client.clone(), "default", &api_resource(kind_of(&template)));
    api.create(&PostParams::default(), &dynamic(&template)).await.expect("a template");
    let change = json!({"spec": {"template": {"spec": {"minCPU": 2}}}});
    let dry_run = PatchParams { dry_run: true, ..PatchParams::default() };
    eventually(async || api.patch("probe", &dry_run, &Patch::Merge(&change)).await.is_err()).await;
}

pub(crate) async fn eventually(condition: impl AsyncFn() -> bool) {
    for _ in 0..300 {
        if condition().await {
            return;
        }
        tokio::time::sleep(Duration::from_millis(100)).await;
    }
    panic!("a policy did not come into force within 30 s");
}
