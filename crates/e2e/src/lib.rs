//! What the scenarios share: installing capmaas as a user would, and waiting for what must become true.

use std::path::{Path, PathBuf};
use std::time::{Duration, Instant};

use anyhow::{Context as _, bail};
use capmaas_testbed::tools::ToolSet;
use capmaas_testbed::{KubernetesVersion, Testbed};
use kube::Api;
use kube::api::{ApiResource, DynamicObject, Patch, PatchParams};
use kube::core::GroupVersionKind;
use serde_json::{Value, json};

/// How long anything that must happen may take on a busy machine.
const PATIENCE: Duration = Duration::from_secs(120);
const POLL: Duration = Duration::from_millis(200);

/// The root of the checkout.
pub fn repository() -> PathBuf {
    Path::new(env!("CARGO_MANIFEST_DIR")).join("../..")
}

/// Installs the CRDs, and the policy where it is served, with the script that `make install` runs.
pub async fn install_crds(testbed: &Testbed) -> anyhow::Result<String> {
    let newest = ToolSet::Kubernetes(KubernetesVersion::V1_36);
    let kubectl = tokio::task::spawn_blocking(move || newest.ensure()).await??.program("kubectl");
    let folder = kubectl.parent().context("kubectl is in no folder")?.to_owned();
    let path = format!("{}:{}", folder.display(), std::env::var("PATH").unwrap_or_default());
    let output = tokio::process::Command::new(repository().join("hack/install-crds"))
        .env("PATH", path)
        .env("KUBECONFIG", testbed.kubeconfig_path())
        .output()
        .await
        .context("start hack/install-crds")?;
    let printed = format!("{}{}", String::from_utf8_lossy(&output.stdout), String::from_utf8_lossy(&output.stderr));
    if !output.status.success() {
        bail!("hack/install-crds failed: {printed}");
    }
    Ok(printed)
}

/// Asks until `look` answers, and fails with what it last said instead.
pub async fn eventually<T, F>(what: &str, mut look: impl FnMut() -> F) -> anyhow::Result<T>
where
    F: Future<Output = anyhow::Result<T>>,
{
    let start = Instant::now();
    loop {
        let error = match look().await {
            Ok(answer) => return Ok(answer),
            Err(error) => error,
        };
        if start.elapsed() > PATIENCE {
            return Err(error).with_context(|| format!("waited {} s for: {what}", PATIENCE.as_secs()));
        }
        tokio::time::sleep(POLL).await;
    }
}

/// Objects of one kind in the namespace `default`, without types: a test writes what a person would write.
pub struct Objects {
    api: Api<DynamicObject>,
    resource: ApiResource,
}

impl Objects {
    /// The objects of `kind` in `group/version`.
    pub fn of(testbed: &Testbed, group: &str, version: &str, kind: &str) -> anyhow::Result<Self> {
        let resource = ApiResource::from_gvk(&GroupVersionKind::gvk(group, version, kind));
        Ok(Self { api: Api::namespaced_with(testbed.client()?, "default", &resource), resource })
    }

    /// The whole object as JSON.
    pub async fn get(&self, name: &str) -> anyhow::Result<Value> {
        Ok(serde_json::to_value(self.api.get(name).await?)?)
    }

    /// Server-side apply of `fields`, as a controller of its own.
    pub async fn apply(&self, name: &str, fields: Value) -> anyhow::Result<()> {
        let params = PatchParams::apply("hand").force();
        self.api.patch(name, &params, &Patch::Apply(self.body(name, fields))).await?;
        Ok(())
    }

    /// Server-side apply of `status`, as a controller of its own.
    pub async fn apply_status(&self, name: &str, status: Value) -> anyhow::Result<()> {
        let params = PatchParams::apply("hand").force();
        let body = self.body(name, json!({ "status": status }));
        self.api.patch_status(name, &params, &Patch::Apply(body)).await?;
        Ok(())
    }

    /// Waits until the value at a JSON pointer is `wanted`.
    pub async fn wait(&self, name: &str, pointer: &str, wanted: Value) -> anyhow::Result<()> {
        let what = format!("{} {name} with {pointer} = {wanted}", self.resource.kind);
        eventually(&what, || async {
            let object = self.get(name).await?;
            let found = object.pointer(pointer).unwrap_or(&Value::Null);
            if *found != wanted {
                bail!("{pointer} is {found}; status: {}", object["status"]);
            }
            Ok(())
        })
        .await
    }

    fn body(&self, name: &str, mut fields: Value) -> Value {
        fields["apiVersion"] = json!(self.resource.api_version);
        fields["kind"] = json!(self.resource.kind);
        if !fields["metadata"].is_object() {
            fields["metadata"] = json!({});
        }
        fields["metadata"]["name"] = json!(name);
        fields
    }
}
