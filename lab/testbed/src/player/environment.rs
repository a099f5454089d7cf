//! The environment, command and arguments of a container, determined as a kubelet does.

use std::collections::BTreeMap;

use k8s_openapi::api::core::v1::{ConfigMap, Container, EnvVar, EnvVarSource, Pod, Secret};
use kube::{Api, Client};

/// Why a container cannot be configured yet, worded for its status.
pub(super) type Unconfigured = String;

/// The variables of a container, in order. Later ones override earlier ones and may refer to them.
pub(super) async fn variables(
    client: &Client,
    pod: &Pod,
    container: &Container,
) -> Result<Vec<(String, String)>, Unconfigured> {
    let sources = Sources { client, namespace: pod.metadata.namespace.as_deref().unwrap_or("default"), pod };
    let mut variables = Variables::default();
    for from in container.env_from.iter().flatten() {
        let prefix = from.prefix.as_deref().unwrap_or_default();
        let mut all = BTreeMap::new();
        if let Some(reference) = &from.config_map_ref {
            all.extend(sources.config_map(&reference.name, reference.optional).await?.unwrap_or_default());
        }
        if let Some(reference) = &from.secret_ref {
            all.extend(sources.secret(&reference.name, reference.optional).await?.unwrap_or_default());
        }
        for (name, value) in all {
            variables.set(format!("{prefix}{name}"), value);
        }
    }
    for variable in container.env.iter().flatten() {
        if let Some(value) = sources.value(variable, &variables).await? {
            variables.set(variable.name.clone(), value);
        }
    }
    Ok(variables.0)
}

#[derive(Default)]
struct Variables(Vec<(String, String)>);

impl Variables {
    fn set(&mut self, name: String, value: String) {
        self.0.retain(|(known, _)| *known != name);
        self.0.push((name, value));
    }
}

/// Replaces `$(NAME)` with its value; `$$` is a dollar sign, an unknown name stays as it is.
pub(super) fn expand(text: &str, variables: &[(String, String)]) -> String {
    let mut result = String::with_capacity(text.len());
    let mut rest = text;
    while let Some(at) = rest.find('$') {
        result.push_str(&rest[..at]);
        rest = &rest[at..];
        if let Some(after) = rest.strip_prefix("$$") {
            result.push('$');
            rest = after;
        } else if let Some((name, after)) = rest.strip_prefix("$(").and_then(|inner| inner.split_once(')')) {
            match variables.iter().rev().find(|(known, _)| known == name) {
                Some((_, value)) => result.push_str(value),
                None => result.push_str(&rest[..name.len() + 3]),
            }
            rest = after;
        } else {
            result.push('$');
            rest = &rest[1..];
        }
    }
    result.push_str(rest);
    result
}

struct Sources<'a> {
    client: &'a Client,
    namespace: &'a str,
    pod: &'a Pod,
}

impl Sources<'_> {
    async fn value(&self, variable: &EnvVar, so_far: &Variables) -> Result<Option<String>, Unconfigured> {
        match &variable.value_from {
            None => Ok(Some(expand(variable.value.as_deref().unwrap_or_default(), &so_far.0))),
            Some(source) => self.sourced(source).await,
        }
    }

    async fn sourced(&self, source: &EnvVarSource) -> Result<Option<String>, Unconfigured> {
        if let Some(field) = &source.field_ref {
            return field_value(self.pod, &field.field_path).map(Some);
        }
        let (kind, name, key, optional, found) = if let Some(reference) = &source.secret_key_ref {
            let found = self.secret(&reference.name, reference.optional).await?;
            ("secret", &reference.name, &reference.key, reference.optional, found)
        } else if let Some(reference) = &source.config_map_key_ref {
            let found = self.config_map(&reference.name, reference.optional).await?;
            ("configmap", &reference.name, &reference.key, reference.optional, found)
        } else {
            return Err("the node player knows no such source of a variable (resourceFieldRef?)".into());
        };
        match found.and_then(|mut data| data.remove(key)) {
            Some(value) => Ok(Some(value)),
            None if optional == Some(true) => Ok(None),
            None => Err(format!("couldn't find key {key} in {kind} {}/{name}", self.namespace)),
        }
    }

    async fn config_map(
        &self,
        name: &str,
        optional: Option<bool>,
    ) -> Result<Option<BTreeMap<String, String>>, Unconfigured> {
        let api: Api<ConfigMap> = Api::namespaced(self.client.clone(), self.namespace);
        match api.get_opt(name).await {
            Ok(Some(found)) => Ok(Some(found.data.unwrap_or_default())),
            Ok(None) if optional == Some(true) => Ok(None),
            Ok(None) => Err(format!("configmap {name:?} not found")),
            Err(error) => Err(format!("cannot read configmap {name:?}: {error}")),
        }
    }

    async fn secret(
        &self,
        name: &str,
        optional: Option<bool>,
    ) -> Result<Option<BTreeMap<String, String>>, Unconfigured> {
        let api: Api<Secret> = Api::namespaced(self.client.clone(), self.namespace);
        match api.get_opt(name).await {
            Ok(Some(found)) => {
                let text = |bytes: Vec<u8>| String::from_utf8_lossy(&bytes).into_owned();
                Ok(Some(found.data.unwrap_or_default().into_iter().map(|(key, value)| (key, text(value.0))).collect()))
            }
            Ok(None) if optional == Some(true) => Ok(None),
            Ok(None) => Err(format!("secret {name:?} not found")),
            Err(error) => Err(format!("cannot read secret {name:?}: {error}")),
        }
    }
}

/// A field of the Pod, as the downward API names it.
pub(super) fn field_value(pod: &Pod, path: &str) -> Result<String, Unconfigured> {
    let (meta, spec, status) = (&pod.metadata, pod.spec.as_ref(), pod.status.as_ref());
    let keyed = |map: Option<&BTreeMap<String, String>>, prefix: &str| {
        let key = path.strip_prefix(prefix)?.strip_suffix("']")?;
        Some(map.and_then(|map| map.get(key)).cloned().unwrap_or_default())
    };
    let value = match path {
        "metadata.name" => meta.name.clone(),
        "metadata.namespace" => meta.namespace.clone(),
        "metadata.uid" => meta.uid.clone(),
        "metadata.labels" => Some(lines(meta.labels.as_ref())),
        "metadata.annotations" => Some(lines(meta.annotations.as_ref())),
        "spec.nodeName" => spec.and_then(|spec| spec.node_name.clone()),
        "spec.serviceAccountName" => spec.and_then(|spec| spec.service_account_name.clone()),
        "status.hostIP" | "status.hostIPs" => {
            Some(status.and_then(|status| status.host_ip.clone()).unwrap_or_else(|| crate::ports::LOOPBACK.to_string()))
        }
        "status.podIP" | "status.podIPs" => {
            Some(status.and_then(|status| status.pod_ip.clone()).unwrap_or_else(|| crate::ports::LOOPBACK.to_string()))
        }
        _ => keyed(meta.labels.as_ref(), "metadata.labels['")
            .or_else(|| keyed(meta.annotations.as_ref(), "metadata.annotations['")),
    };
    value.ok_or_else(|| format!("the node player knows no field {path:?} of a Pod"))
}

fn lines(map: Option<&BTreeMap<String, String>>) -> String {
    let lines: Vec<String> = map.into_iter().flatten().map(|(key, value)| format!("{key}={value:?}")).collect();
    lines.join("\n")
}

#[cfg(test)]
mod tests {
    use serde_json::json;

    use super::*;

    #[test]
    fn references_to_variables_are_expanded_as_kubernetes_does() {
        let variables = [("A".to_owned(), "1".to_owned())];
        for (text, expected) in [
            ("$(A)", "1"),
            ("x$(A)y$(A)", "x1y1"),
            ("$$(A)", "$(A)"),
            ("$(B)", "$(B)"),
            ("$A", "$A"),
            ("$(A", "$(A"),
            ("5$", "5$"),
        ] {
            assert_eq!(expand(text, &variables), expected, "{text}");
        }
    }

    #[test]
    fn fields_of_the_pod_are_found_by_their_path() {
        let pod: Pod = serde_json::from_value(json!({
            "metadata": {"name": "p", "labels": {"a/b": "c"}}, "spec": {"nodeName": "n", "containers": []},
        }))
        .unwrap();
        assert_eq!(field_value(&pod, "spec.nodeName").unwrap(), "n");
        assert_eq!(field_value(&pod, "metadata.labels['a/b']").unwrap(), "c");
        assert_eq!(field_value(&pod, "status.podIP").unwrap(), "127.0.0.1");
        assert!(field_value(&pod, "spec.hostname").is_err());
    }
}
