//! Kubernetes objects, read and changed with the permissions of the plugin's user.

use std::path::PathBuf;

use anyhow::{Context as _, anyhow};
use clap::Args;
use kube::api::{Api, ApiResource, DynamicObject, ListParams, Patch, PatchParams};
use kube::config::{KubeConfigOptions, Kubeconfig, KubeconfigError};
use kube::core::GroupVersionKind;
use kube::{Client, Config};
use serde_json::Value;

const INFRASTRUCTURE: &str = "infrastructure.cluster.x-k8s.io";

/// Which cluster, as kubectl's flags of the same names say it.
#[derive(Debug, Clone, Default, Args)]
pub struct Access {
    /// Namespace; by default the kubeconfig's.
    #[arg(short, long, global = true)]
    pub namespace: Option<String>,
    /// The context of the kubeconfig; by default its current one.
    #[arg(long, global = true)]
    pub context: Option<String>,
    /// The kubeconfig; by default KUBECONFIG, or ~/.kube/config.
    #[arg(long, value_name = "FILE", global = true)]
    pub kubeconfig: Option<PathBuf>,
}

impl Access {
    /// Whether nothing leads to a cluster: none is named, no kubeconfig is there or it is empty, and this is no pod.
    pub fn leads_nowhere(&self) -> bool {
        let named = self.context.is_some() || self.kubeconfig.is_some();
        let is_pod = std::env::var_os("KUBERNETES_SERVICE_HOST").is_some();
        let is_absent = match Kubeconfig::read() {
            Ok(file) => file.clusters.is_empty() && file.contexts.is_empty(),
            Err(KubeconfigError::FindPath) => true,
            Err(KubeconfigError::ReadConfig(error, _)) => error.kind() == std::io::ErrorKind::NotFound,
            Err(_) => false,
        };
        !named && !is_pod && is_absent
    }

    /// The names of the contexts of the kubeconfig.
    pub fn contexts(&self) -> Vec<String> {
        let file = self.kubeconfig.as_ref().map_or_else(Kubeconfig::read, Kubeconfig::read_from);
        file.map(|file| file.contexts.into_iter().map(|context| context.name).collect()).unwrap_or_default()
    }
}

pub struct Cluster {
    client: Client,
    namespace: String,
    server: String,
}

impl Cluster {
    /// Connects as kubectl would.
    pub async fn connect(access: &Access) -> anyhow::Result<Self> {
        let options = KubeConfigOptions { context: access.context.clone(), ..KubeConfigOptions::default() };
        let config = match &access.kubeconfig {
            Some(path) => match Kubeconfig::read_from(path) {
                Ok(file) => Config::from_custom_kubeconfig(file, &options).await.map_err(anyhow::Error::new),
                Err(error) => Err(error.into()),
            }
            .with_context(|| format!("--kubeconfig {}", path.display()))?,
            None if access.context.is_some() => Config::from_kubeconfig(&options).await.context("--context")?,
            None => Config::infer().await.context("there is no usable kubeconfig: check KUBECONFIG")?,
        };
        let namespace = access.namespace.clone().unwrap_or_else(|| config.default_namespace.clone());
        let server = config.cluster_url.to_string().trim_end_matches('/').to_owned();
        Ok(Self { client: Client::try_from(config)?, namespace, server })
    }

    /// A cluster behind another client than one of a kubeconfig.
    #[cfg(test)]
    pub(crate) fn of(client: Client) -> Self {
        Self { client, namespace: "default".to_owned(), server: String::new() }
    }

    /// The URL of its API server.
    pub fn server(&self) -> &str {
        &self.server
    }

    fn api(&self, group: &str, version: &str, kind: &str, namespace: Option<&str>) -> Api<DynamicObject> {
        let resource = ApiResource::from_gvk(&GroupVersionKind::gvk(group, version, kind));
        match namespace {
            Some(namespace) => Api::namespaced_with(self.client.clone(), namespace, &resource),
            None => Api::all_with(self.client.clone(), &resource),
        }
    }

    /// Objects of one of our kinds, in the namespace or in all.
    pub async fn ours(&self, kind: &str, all: bool) -> anyhow::Result<Vec<Value>> {
        let namespace = (!all).then_some(self.namespace.as_str());
        let found = self.api(INFRASTRUCTURE, "v1beta1", kind, namespace).list(&ListParams::default()).await;
        with_kind(
            found.map_err(|error| with_hint("list", kind, namespace, error))?.items,
            &format!("{INFRASTRUCTURE}/v1beta1"),
            kind,
        )
    }

    pub fn namespace(&self) -> &str {
        &self.namespace
    }

    /// Objects of a kind of Cluster API in a served version, the preferred one if that is served. A kind that is not
    /// served has no objects.
    pub async fn any_version(
        &self,
        group: &str,
        kind: &str,
        all: bool,
        preferred: Option<&str>,
    ) -> anyhow::Result<Vec<Value>> {
        let namespace = (!all).then_some(self.namespace.as_str());
        let known = capmaas_api::capi::VERSIONS;
        let preferred = known.into_iter().filter(|version| Some(*version) == preferred);
        for version in preferred.chain(known) {
            match self.api(group, version, kind, namespace).list(&ListParams::default()).await {
                Ok(found) => return with_kind(found.items, &format!("{group}/{version}"), kind),
                Err(kube::Error::Api(status)) if is_absent(&status) => {}
                Err(error) => return Err(with_hint("list", kind, namespace, error)),
            }
        }
        Ok(Vec::new())
    }

    /// One object of a kind of Cluster API, in the preferred served version.
    pub async fn one_of_any_version(&self, group: &str, kind: &str, name: &str) -> anyhow::Result<Option<Value>> {
        let namespace = Some(self.namespace.as_str());
        for version in capmaas_api::capi::VERSIONS {
            match self.api(group, version, kind, namespace).get(name).await {
                Ok(found) => return Ok(Some(serde_json::to_value(found)?)),
                Err(kube::Error::Api(status)) if is_absent(&status) => {}
                Err(error) => return Err(with_hint("get", kind, namespace, error)),
            }
        }
        Ok(None)
    }

    pub async fn machine(&self, name: &str) -> anyhow::Result<Value> {
        let namespace = Some(self.namespace.as_str());
        let found = self.api(INFRASTRUCTURE, "v1beta1", "MaasMachine", namespace).get(name).await;
        Ok(serde_json::to_value(found.map_err(|error| with_hint("get", "MaasMachine", namespace, error))?)?)
    }

    /// Changes an object of one of our kinds by a merge patch.
    pub async fn patch(&self, kind: &str, name: &str, patch: &Value) -> anyhow::Result<()> {
        let namespace = Some(self.namespace.as_str());
        let api = self.api(INFRASTRUCTURE, "v1beta1", kind, namespace);
        let patched = api.patch(name, &PatchParams::default(), &Patch::Merge(patch)).await;
        patched.map(drop).map_err(|error| with_hint("patch", kind, namespace, error))
    }

    /// The events about one object, the oldest first.
    pub async fn events(&self, name: &str) -> anyhow::Result<Vec<Value>> {
        let namespace = Some(self.namespace.as_str());
        let about = ListParams::default().fields(&format!("regarding.name={name}"));
        let found = self.api("events.k8s.io", "v1", "Event", namespace).list(&about).await;
        let mut events = values(found.map_err(|error| with_hint("list", "Event", namespace, error))?.items)?;
        events.sort_by_key(|event| event["eventTime"].to_string());
        Ok(events)
    }

    /// All events, in the namespace or in all.
    pub async fn all_events(&self, all: bool) -> anyhow::Result<Vec<Value>> {
        let namespace = (!all).then_some(self.namespace.as_str());
        let found = self.api("events.k8s.io", "v1", "Event", namespace).list(&ListParams::default()).await;
        values(found.map_err(|error| with_hint("list", "Event", namespace, error))?.items)
    }

    /// The same cluster with another namespace.
    #[must_use]
    pub fn within(&self, namespace: &str) -> Self {
        Self { client: self.client.clone(), namespace: namespace.to_owned(), server: self.server.clone() }
    }

    pub async fn namespaces(&self) -> anyhow::Result<Vec<Value>> {
        let found = self.api("", "v1", "Namespace", None).list(&ListParams::default()).await;
        values(found.map_err(|error| with_hint("list", "Namespace", None, error))?.items)
    }

    /// The scope of the lookup, for messages.
    pub fn place(&self, all: bool) -> String {
        place((!all).then_some(self.namespace.as_str()))
    }

    /// The manager's Deployment, if installed.
    pub async fn manager(&self, namespace: &str) -> anyhow::Result<Option<Value>> {
        let api = self.api("apps", "v1", "Deployment", Some(namespace));
        let found = api.get_opt("capmaas-controller-manager").await;
        let found = found.map_err(|error| with_hint("get", "Deployment", Some(namespace), error))?;
        Ok(found.map(serde_json::to_value).transpose()?)
    }
}

/// The items of a list, each with the version and the kind, which a list may omit.
fn with_kind(objects: Vec<DynamicObject>, version: &str, kind: &str) -> anyhow::Result<Vec<Value>> {
    let mut all = values(objects)?;
    for object in &mut all {
        object["apiVersion"] = version.into();
        object["kind"] = kind.into();
    }
    Ok(all)
}

fn values(objects: Vec<DynamicObject>) -> anyhow::Result<Vec<Value>> {
    objects.into_iter().map(|object| Ok(serde_json::to_value(object)?)).collect()
}

/// Whether the API server has no such object, or no such kind: then its answer is not a Status, and only the code shows
/// it.
fn is_absent(status: &kube::core::Status) -> bool {
    status.is_not_found() || status.code == 404
}

fn place(namespace: Option<&str>) -> String {
    namespace.map_or_else(|| "all namespaces".to_owned(), |name| format!("namespace {name}"))
}

/// The error with the missing permission or kind.
fn with_hint(verb: &str, kind: &str, namespace: Option<&str>, error: kube::Error) -> anyhow::Error {
    let place = place(namespace);
    match &error {
        kube::Error::Api(status) if status.is_forbidden() => {
            anyhow!(
                "you lack the permission to {verb} {kind} in {place}: request it, or choose another namespace with -n"
            )
        }
        kube::Error::Api(status) if is_absent(status) && verb == "list" => {
            anyhow!("the API server does not know the kind {kind}: capmaas is not installed here")
        }
        kube::Error::Api(status) if is_absent(status) => anyhow!("there is no such {kind} in {place}"),
        _ => anyhow::Error::new(error).context(format!("{verb} {kind} in {place}")),
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn a_kind_that_is_not_served_is_told_although_the_answer_is_no_status() {
        let plain = kube::core::Status { code: 404, reason: "Failed to parse error data".into(), ..Default::default() };
        let error = with_hint("list", "MaasMachine", None, kube::Error::Api(Box::new(plain)));
        assert!(error.to_string().contains("capmaas is not installed here"), "{error}");
    }
}
