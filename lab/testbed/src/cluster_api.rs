//! Cluster API's managers as processes: their own manifests and ServiceAccounts, certificates made here.

use std::{sync::Arc, time::Duration};

use base64::{Engine as _, prelude::BASE64_STANDARD};
use kube::Client;
use serde_json::{Value, json};

use crate::{
    apply,
    error::{Error, Result, create_dir, read_file},
    http_get, kubeconfig,
    pki::CertificateAuthority,
    ports::{LOOPBACK, free_ports},
    process::Process,
    resolver, rights,
    sandbox::Sandbox,
    testbed::service_account_token,
    tools::{ToolSet, Tools},
    versions::CapiVersion,
};

const READY_WITHIN: Duration = Duration::from_secs(90);
const ATTEMPTS: usize = 5;
/// Objects in the manifests that are not applied: nothing here issues certificates, resolves Services or runs
/// Deployments.
const LEFT_OUT: [&str; 4] = ["Certificate", "Issuer", "Service", "Deployment"];

/// One of Cluster API's managers.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub enum CapiProvider {
    /// Cluster, Machine, MachineDeployment and so on.
    Core,
    /// KubeadmConfig.
    Bootstrap,
    /// KubeadmControlPlane.
    ControlPlane,
}

impl CapiProvider {
    /// All of them.
    pub const ALL: [Self; 3] = [Self::Core, Self::Bootstrap, Self::ControlPlane];

    /// The name of its program and of its log.
    pub const fn as_str(self) -> &'static str {
        match self {
            Self::Core => "core",
            Self::Bootstrap => "bootstrap",
            Self::ControlPlane => "control-plane",
        }
    }
}

/// Which managers to start, and how.
#[derive(Clone, Debug)]
pub struct CapiOptions {
    pub version: CapiVersion,
    /// Which managers; all by default.
    pub providers: Vec<CapiProvider>,
    /// Feature gates that are off by default, such as `ClusterTopology`.
    pub features: &'static [&'static str],
}

impl CapiOptions {
    /// All managers of a version, with default feature gates.
    pub fn new(version: CapiVersion) -> Self {
        Self { version, providers: CapiProvider::ALL.to_vec(), features: &[] }
    }
}

/// The API server that the managers use.
pub(crate) struct Target<'a> {
    pub(crate) client: Client,
    pub(crate) server: String,
    pub(crate) ca: &'a CertificateAuthority,
}

/// Running managers.
#[derive(Debug)]
pub(crate) struct ClusterApi {
    managers: Vec<Process>,
}

/// A manager whose objects are applied but which is not started yet.
struct Prepared {
    provider: CapiProvider,
    components: Vec<Value>,
    namespace: String,
    service_account: String,
}

impl ClusterApi {
    pub(crate) async fn start(sandbox: &Arc<Sandbox>, target: &Target<'_>, options: &CapiOptions) -> Result<Self> {
        let tools = ToolSet::ClusterApi(options.version).ensure_async().await?;
        let mut prepared = Vec::new();
        for &provider in &options.providers {
            prepared.push(prepare(provider, &tools)?);
        }
        // Apply all CRDs before the first manager starts: managers watch each other's kinds.
        let mut ports = Vec::new();
        for manager in &prepared {
            let [webhook, health, metrics] = free_ports()?;
            manager.apply(target, webhook).await?;
            ports.push([webhook, health, metrics]);
        }
        let mut managers = Vec::new();
        for (manager, ports) in prepared.iter().zip(&ports) {
            rights::wait_for_aggregation(&target.client, &manager.components, &manager.user()).await?;
            managers.push(manager.launch(sandbox, target, options, &tools, *ports).await?);
        }
        for ((manager, process), ports) in prepared.iter().zip(&mut managers).zip(ports) {
            manager.wait_ready(sandbox, target, options, &tools, process, ports).await?;
        }
        Ok(Self { managers })
    }

    pub(crate) fn processes(&self) -> impl Iterator<Item = &Process> {
        self.managers.iter()
    }
}

fn prepare(provider: CapiProvider, tools: &Tools) -> Result<Prepared> {
    let path = tools.components_json(provider.as_str());
    let what = || path.display().to_string();
    let components: Vec<Value> = serde_json::from_str(&read_file(&path)?).map_err(|e| Error::invalid(what(), e))?;
    let deployment = components
        .iter()
        .find(|object| object["kind"] == "Deployment")
        .ok_or_else(|| Error::invalid(what(), "holds no Deployment"))?;
    let text = |value: &Value| value.as_str().unwrap_or_default().to_owned();
    Ok(Prepared {
        provider,
        namespace: text(&deployment["metadata"]["namespace"]),
        service_account: text(&deployment["spec"]["template"]["spec"]["serviceAccountName"]),
        components,
    })
}

impl Prepared {
    /// The manager's user name at the API server.
    fn user(&self) -> String {
        format!("system:serviceaccount:{}:{}", self.namespace, self.service_account)
    }

    async fn apply(&self, target: &Target<'_>, webhook_port: u16) -> Result<()> {
        let ca_bundle = BASE64_STANDARD.encode(target.ca.certificate_pem());
        let objects: Vec<Value> = self
            .components
            .iter()
            .filter(|object| !LEFT_OUT.contains(&object["kind"].as_str().unwrap_or_default()))
            .cloned()
            .map(|mut object| {
                point_webhooks_at(&mut object, webhook_port, &ca_bundle);
                object
            })
            .collect();
        release_services(&target.client, &objects).await?;
        apply::apply(&target.client, objects).await
    }

    async fn launch(
        &self,
        sandbox: &Sandbox,
        target: &Target<'_>,
        options: &CapiOptions,
        tools: &Tools,
        [webhook, health, metrics]: [u16; 3],
    ) -> Result<Process> {
        let name = self.provider.as_str();
        let dir = sandbox.dir().join("cluster-api").join(name);
        create_dir(&dir)?;
        target.ca.write_serving_certificate(&dir, name, vec!["127.0.0.1".into()])?;
        let token = service_account_token(&target.client, &self.namespace, &self.service_account).await?;
        let kubeconfig = dir.join("kubeconfig");
        kubeconfig::write(&kubeconfig, &target.server, target.ca.certificate_pem(), &token)?;
        let mut command = resolver::command(sandbox, &tools.program(name));
        command
            .env("POD_NAMESPACE", &self.namespace)
            .env("POD_NAME", format!("{name}-testbed"))
            .arg(format!("--kubeconfig={}", kubeconfig.display()))
            .arg(format!("--webhook-port={webhook}"))
            .arg(format!("--webhook-cert-dir={}", dir.display()))
            .arg(format!("--health-addr=127.0.0.1:{health}"))
            .arg("--leader-elect=false");
        if options.version == CapiVersion::V1_5 {
            command.arg(format!("--metrics-bind-addr=127.0.0.1:{metrics}"));
        } else {
            command.arg(format!("--diagnostics-address=127.0.0.1:{metrics}")).arg("--insecure-diagnostics=true");
        }
        // The bootstrap manager does not know them in every version.
        if !options.features.is_empty() && self.provider != CapiProvider::Bootstrap {
            let gates: Vec<String> = options.features.iter().map(|feature| format!("{feature}=true")).collect();
            command.arg(format!("--feature-gates={}", gates.join(",")));
        }
        sandbox.spawn(name, command)
    }

    /// Waits for the manager. One that lost a port to another process is restarted on other ports.
    async fn wait_ready(
        &self,
        sandbox: &Sandbox,
        target: &Target<'_>,
        options: &CapiOptions,
        tools: &Tools,
        process: &mut Process,
        mut ports: [u16; 3],
    ) -> Result<()> {
        for attempt in 1.. {
            let health = (LOOPBACK, ports[1]).into();
            let ready = || async move { http_get::status(health, "/readyz", &[]).await.is_ok_and(|code| code == 200) };
            match process.wait_until(READY_WITHIN, ready).await {
                Err(_) if process.lost_its_port() && attempt < ATTEMPTS => {
                    ports = free_ports()?;
                    self.apply(target, ports[0]).await?;
                    *process = self.launch(sandbox, target, options, tools, ports).await?;
                }
                outcome => return outcome,
            }
        }
        Ok(())
    }
}

/// Removes the Service references that an earlier installation, for instance by clusterctl, set in existing objects.
/// Apply alone would leave them next to our URLs, because another field manager owns them, and the two are mutually
/// exclusive.
async fn release_services(client: &Client, objects: &[Value]) -> Result<()> {
    for object in objects {
        let patch = if object["webhooks"].is_array() {
            json!({"webhooks": object["webhooks"]})
        } else if object.pointer("/spec/conversion/webhook/clientConfig").is_some() {
            let mut conversion = object["spec"]["conversion"].clone();
            conversion["webhook"]["clientConfig"]["service"] = Value::Null;
            json!({"spec": {"conversion": conversion}})
        } else {
            continue;
        };
        apply::merge_if_there(client, object, &patch).await?;
    }
    Ok(())
}

/// Points a CRD's conversion webhook and every admission webhook at a port of this machine.
fn point_webhooks_at(object: &mut Value, port: u16, ca_bundle: &str) {
    let rewrite = |client_config: &mut Value| {
        if let Some(service) = client_config.get("service") {
            let path = service["path"].as_str().unwrap_or("/");
            *client_config = json!({"url": format!("https://127.0.0.1:{port}{path}"), "caBundle": ca_bundle});
        }
    };
    if let Some(client_config) = object.pointer_mut("/spec/conversion/webhook/clientConfig") {
        rewrite(client_config);
    }
    for webhook in object.get_mut("webhooks").and_then(Value::as_array_mut).into_iter().flatten() {
        if let Some(client_config) = webhook.get_mut("clientConfig") {
            rewrite(client_config);
        }
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn services_become_urls_of_this_machine() {
        let service = json!({"service": {"name": "s", "namespace": "n", "path": "/convert"}});
        let mut object = json!({
            "spec": {"conversion": {"webhook": {"clientConfig": service}}},
            "webhooks": [{"clientConfig": service}, {"clientConfig": {"url": "https://elsewhere"}}],
        });
        point_webhooks_at(&mut object, 9443, "Y2E=");
        let expected = json!({"url": "https://127.0.0.1:9443/convert", "caBundle": "Y2E="});
        assert_eq!(object["spec"]["conversion"]["webhook"]["clientConfig"], expected);
        assert_eq!(object["webhooks"][0]["clientConfig"], expected);
        assert_eq!(object["webhooks"][1]["clientConfig"]["url"], "https://elsewhere");
    }
}
