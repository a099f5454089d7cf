//! Shared by all scenarios: installing capmaas as a user would, a MAAS whose machines boot, clusters as users write
//! them, and waiting for conditions.

pub mod browser;
pub mod capi_specs;
pub mod cluster;
mod disturb;
pub mod go_provider;
pub mod lxd_hosts;
pub mod maas;
mod maas_version;
pub mod maintenance;
pub mod manager;
pub mod page;
pub mod real_lxd;
pub mod real_nodes;
pub mod real_workload;
pub mod recorder;
pub mod rehearsal;
pub mod release;
pub mod runtime_extension;
pub mod scene;
pub mod tenants;

use std::ffi::OsStr;
use std::path::{Path, PathBuf};
use std::time::{Duration, Instant};

use anyhow::{Context as _, bail};
use capmaas_testbed::tools::ToolSet;
use capmaas_testbed::{KubernetesVersion, NodePlayer, NodePlayerOptions, Testbed};
use kube::Api;
use kube::api::{ApiResource, DeleteParams, DynamicObject, ListParams, Patch, PatchParams};
use kube::core::GroupVersionKind;
use serde_json::{Value, json};

/// The API group of our kinds.
pub const INFRASTRUCTURE: &str = "infrastructure.cluster.x-k8s.io";

/// The prefix of our manager's image in our manifests.
pub const MANAGER_IMAGE: &str = "capmaas/manager:";
/// A registry that a user may mirror the images to.
pub const REGISTRY: &str = "registry.example/";

/// The default timeout, sized for a busy machine.
const PATIENCE: Duration = Duration::from_secs(120);
const POLL: Duration = Duration::from_millis(200);

/// The root of the checkout.
pub fn repository() -> PathBuf {
    Path::new(env!("CARGO_MANIFEST_DIR")).join("../..")
}

/// Installs the CRDs, and the admission policy where the API server supports it, with the script that `make install`
/// runs.
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

/// Installs everything that the provider needs in a cluster, from the shipped manifests.
pub async fn install(testbed: &Testbed) -> anyhow::Result<()> {
    install_crds(testbed).await?;
    let manifests = testbed.kubectl([OsStr::new("kustomize"), repository().join("config/default").as_os_str()]).await?;
    Ok(testbed.apply_yaml(&manifests).await?)
}

/// A node player with one node that runs the manager's Deployment. Returns when its Pod is Ready.
pub async fn manager_player(testbed: &Testbed) -> anyhow::Result<NodePlayer> {
    let manager = program("capmaas-manager")?;
    let images = NodePlayerOptions::default()
        .image(format!("registry.invalid/{MANAGER_IMAGE}"), &manager)
        .image(format!("{REGISTRY}{MANAGER_IMAGE}"), &manager);
    let options = images.hook(|plan| {
        // Many testbeds and several managers share this machine, so the manifest's ports may be taken. If no port is
        // free, the program reports that itself.
        let (health, metrics) = (free_port().unwrap_or(9440), free_port().unwrap_or(8443));
        plan.args.retain(|arg| !arg.starts_with("--health-addr") && !arg.starts_with("--diagnostics-address"));
        plan.args.push(format!("--health-addr=127.0.0.1:{health}"));
        plan.args.push(format!("--diagnostics-address=127.0.0.1:{metrics}"));
        plan.moved_ports.insert(9440, health);
        plan.env.retain(|(key, _)| key != "LXD_INITIALIZER_IMAGE");
        plan.env.push(("LXD_INITIALIZER_IMAGE".into(), real_lxd::AGENT_IMAGE.into()));
    });
    let player = NodePlayer::start(testbed, options)?;
    player.add_node("node-1").await?;
    let deployment = "deployment/capmaas-controller-manager";
    let wait = ["wait", "-n", "capmaas-system", "--for=condition=Available", "--timeout=120s", deployment];
    testbed.kubectl(wait).await?;
    Ok(player)
}

/// A program of this workspace, from the build directory of the running program.
pub fn program(name: &str) -> anyhow::Result<PathBuf> {
    let running = std::env::current_exe().context("find the running program")?;
    // Tests run from target/<profile>/deps, programs from target/<profile>.
    let found = running.ancestors().skip(1).take(2).map(|folder| folder.join(name)).find(|path| path.is_file());
    found.with_context(|| format!("{name} is not built: run cargo build --workspace --bins first, as make test does"))
}

fn free_port() -> anyhow::Result<u16> {
    Ok(std::net::TcpListener::bind("127.0.0.1:0")?.local_addr()?.port())
}

/// The message with which the API server refused a request.
pub fn refusal<T>(result: anyhow::Result<T>) -> anyhow::Result<String> {
    match result {
        Ok(_) => bail!("the API server accepted what it should refuse"),
        Err(error) => match error.downcast_ref::<kube::Error>() {
            Some(kube::Error::Api(status)) => Ok(status.message.clone()),
            _ => Err(error),
        },
    }
}

/// Calls `look` until it succeeds, and fails with its last error after a timeout.
pub async fn eventually<T, F>(what: &str, look: impl FnMut() -> F) -> anyhow::Result<T>
where
    F: Future<Output = anyhow::Result<T>>,
{
    eventually_within(PATIENCE, what, look).await
}

/// As [`eventually`], with a timeout of `patience`.
pub async fn eventually_within<T, F>(patience: Duration, what: &str, mut look: impl FnMut() -> F) -> anyhow::Result<T>
where
    F: Future<Output = anyhow::Result<T>>,
{
    let start = Instant::now();
    loop {
        let error = match look().await {
            Ok(answer) => return Ok(answer),
            Err(error) => error,
        };
        if start.elapsed() > patience {
            return Err(error).with_context(|| format!("waited {} s for: {what}", patience.as_secs()));
        }
        tokio::time::sleep(POLL).await;
    }
}

/// Untyped objects of one kind in one namespace: a test writes what a user would write.
pub struct Objects {
    api: Api<DynamicObject>,
    resource: ApiResource,
}

impl Objects {
    /// The objects of `kind` in `group/version`, in the namespace `default`.
    pub fn of(testbed: &Testbed, group: &str, version: &str, kind: &str) -> anyhow::Result<Self> {
        Self::within(testbed, "default", group, version, kind)
    }

    /// The objects of `kind` in `group/version`, in a namespace.
    pub fn within(testbed: &Testbed, namespace: &str, group: &str, version: &str, kind: &str) -> anyhow::Result<Self> {
        let resource = ApiResource::from_gvk(&GroupVersionKind::gvk(group, version, kind));
        Ok(Self { api: Api::namespaced_with(testbed.client()?, namespace, &resource), resource })
    }

    pub async fn list(&self) -> anyhow::Result<Vec<Value>> {
        let found = self.api.list(&ListParams::default()).await?;
        found.items.into_iter().map(|object| Ok(serde_json::to_value(object)?)).collect()
    }

    /// Deletes an object. One that is already gone is not an error.
    pub async fn delete(&self, name: &str) -> anyhow::Result<()> {
        match self.api.delete(name, &DeleteParams::default()).await {
            Err(kube::Error::Api(refused)) if refused.is_not_found() => Ok(()),
            answer => Ok(answer.map(drop)?),
        }
    }

    /// The whole object as JSON.
    pub async fn get(&self, name: &str) -> anyhow::Result<Value> {
        Ok(serde_json::to_value(self.api.get(name).await?)?)
    }

    /// Server-side apply of `fields`, with a field manager of its own.
    pub async fn apply(&self, name: &str, fields: Value) -> anyhow::Result<()> {
        let params = PatchParams::apply("hand").force();
        self.api.patch(name, &params, &Patch::Apply(self.body(name, fields))).await?;
        Ok(())
    }

    /// Server-side apply of `status`, with a field manager of its own.
    pub async fn apply_status(&self, name: &str, status: Value) -> anyhow::Result<()> {
        let params = PatchParams::apply("hand").force();
        let body = self.body(name, json!({ "status": status }));
        self.api.patch_status(name, &params, &Patch::Apply(body)).await?;
        Ok(())
    }

    /// Changes only these fields.
    pub async fn merge(&self, name: &str, fields: Value) -> anyhow::Result<()> {
        self.api.patch(name, &PatchParams::default(), &Patch::Merge(fields)).await?;
        Ok(())
    }

    /// Waits until a condition has this status.
    pub async fn wait_for_condition(&self, name: &str, type_: &str, status: &str) -> anyhow::Result<()> {
        eventually(&format!("{} {name} with {type_} = {status}", self.resource.kind), || async {
            let object = self.get(name).await?;
            let conditions = object["status"]["conditions"].as_array().cloned().unwrap_or_default();
            match conditions.iter().find(|condition| condition["type"] == type_) {
                Some(condition) if condition["status"] == status => Ok(()),
                _ => bail!("the conditions are {}", json!(conditions)),
            }
        })
        .await
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
