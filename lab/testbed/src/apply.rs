//! Server-side apply of whole manifests.

use std::{
    collections::HashMap,
    time::{Duration, Instant},
};

use kube::{
    Api, Client,
    api::{ApiResource, DynamicObject, Patch, PatchParams},
    core::GroupVersionKind,
    discovery::{self, Scope},
};
use serde_json::Value;

use crate::error::{Doing, Error, Result};

const FIELD_MANAGER: &str = "capmaas-testbed";
/// The timeout for a new kind to be served.
const SERVED_WITHIN: Duration = Duration::from_secs(30);
const POLL: Duration = Duration::from_millis(50);

/// The objects of a YAML stream; lists are expanded into their items.
pub fn parse_yaml(yaml: &str) -> Result<Vec<Value>> {
    let documents: Vec<Value> = serde_saphyr::from_multiple(yaml).map_err(|e| Error::invalid("a manifest", e))?;
    let mut objects = Vec::with_capacity(documents.len());
    for mut document in documents {
        if document.is_null() {
            continue;
        }
        let is_list = document["kind"].as_str().is_some_and(|kind| kind.ends_with("List"));
        match document.get_mut("items").and_then(Value::as_array_mut) {
            Some(items) if is_list => objects.append(items),
            _ => objects.push(document),
        }
    }
    Ok(objects)
}

/// Applies objects in an order that works: namespaces and CRDs before what uses them, webhooks last.
pub(crate) async fn apply(client: &Client, mut objects: Vec<Value>) -> Result<()> {
    if let Some(object) = objects.iter().find(|object| !object["apiVersion"].is_string() || !object["kind"].is_string())
    {
        return Err(Error::invalid("an object of a manifest", format!("lacks apiVersion or kind: {object}")));
    }
    objects.sort_by_key(rank);
    let mut kinds = HashMap::new();
    let mut awaited = Vec::new();
    for object in &objects {
        if kind_of(object) != "CustomResourceDefinition" {
            established(std::mem::take(&mut awaited)).await?;
        }
        let applied = apply_one(client, &mut kinds, object).await?;
        if kind_of(object) == "CustomResourceDefinition" {
            awaited.push(applied);
        }
    }
    established(awaited).await
}

fn kind_of(object: &Value) -> &str {
    object["kind"].as_str().unwrap_or_default()
}

fn rank(object: &Value) -> u8 {
    match kind_of(object) {
        "Namespace" => 0,
        "CustomResourceDefinition" => 1,
        "ServiceAccount" => 2,
        "ClusterRole" | "Role" => 3,
        "ClusterRoleBinding" | "RoleBinding" => 4,
        "ConfigMap" | "Secret" => 5,
        "MutatingWebhookConfiguration" | "ValidatingWebhookConfiguration" => 9,
        _ => 6,
    }
}

type Kinds = HashMap<GroupVersionKind, (ApiResource, Scope)>;

async fn apply_one(client: &Client, kinds: &mut Kinds, object: &Value) -> Result<(String, Api<DynamicObject>)> {
    let gvk = gvk_of(object);
    if !kinds.contains_key(&gvk) {
        kinds.insert(gvk.clone(), served(client, &gvk).await?);
    }
    let (name, api) = api_of(client, object, &kinds[&gvk])?;
    api.patch(&name, &PatchParams::apply(FIELD_MANAGER).force(), &Patch::Apply(object))
        .await
        .doing(|| format!("apply {} {name}", gvk.kind))?;
    Ok((name, api))
}

/// Merge-patches an object if it exists.
pub(crate) async fn merge_if_there(client: &Client, object: &Value, patch: &Value) -> Result<()> {
    let gvk = gvk_of(object);
    let (name, api) = api_of(client, object, &served(client, &gvk).await?)?;
    match api.patch(&name, &PatchParams::default(), &Patch::Merge(patch)).await {
        Err(kube::Error::Api(status)) if status.is_not_found() => Ok(()),
        answer => answer.map(drop).doing(|| format!("change {} {name}", gvk.kind)),
    }
}

fn gvk_of(object: &Value) -> GroupVersionKind {
    let api_version = object["apiVersion"].as_str().unwrap_or_default();
    let (group, version) = api_version.split_once('/').unwrap_or(("", api_version));
    GroupVersionKind::gvk(group, version, kind_of(object))
}

fn api_of(client: &Client, object: &Value, kind: &(ApiResource, Scope)) -> Result<(String, Api<DynamicObject>)> {
    let Some(name) = object["metadata"]["name"].as_str() else {
        return Err(Error::invalid("an object of a manifest", format!("lacks metadata.name: {object}")));
    };
    let (resource, scope) = kind;
    let api = match scope {
        Scope::Cluster => Api::all_with(client.clone(), resource),
        Scope::Namespaced => {
            let namespace = object["metadata"]["namespace"].as_str().unwrap_or("default");
            Api::namespaced_with(client.clone(), namespace, resource)
        }
    };
    Ok((name.to_owned(), api))
}

/// Discovers one kind. A kind whose CRD was just accepted may take a moment.
async fn served(client: &Client, gvk: &GroupVersionKind) -> Result<(ApiResource, Scope)> {
    let deadline = Instant::now() + SERVED_WITHIN;
    loop {
        match discovery::pinned_kind(client, gvk).await {
            Ok((resource, capabilities)) => return Ok((resource, capabilities.scope)),
            Err(error) if Instant::now() > deadline => {
                return Err(error).doing(|| format!("find the kind {} on the API server", gvk.kind));
            }
            Err(_) => tokio::time::sleep(POLL).await,
        }
    }
}

async fn established(definitions: Vec<(String, Api<DynamicObject>)>) -> Result<()> {
    let deadline = Instant::now() + SERVED_WITHIN;
    for (name, api) in definitions {
        loop {
            let definition = api.get(&name).await.doing(|| format!("read the definition {name}"))?;
            let conditions = definition.data["status"]["conditions"].as_array().cloned().unwrap_or_default();
            if conditions.iter().any(|c| c["type"] == "Established" && c["status"] == "True") {
                break;
            }
            if Instant::now() > deadline {
                return Err(Error::Timeout {
                    what: format!("the definition {name} is established: {}", Value::from(conditions)),
                    seconds: SERVED_WITHIN.as_secs(),
                });
            }
            tokio::time::sleep(POLL).await;
        }
    }
    Ok(())
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn a_stream_of_documents_and_lists_becomes_single_objects() {
        let yaml = "---\nkind: A\n---\n# nothing\n---\nkind: List\nitems: [{kind: B}, {kind: C}]\n";
        let kinds: Vec<_> = parse_yaml(yaml).unwrap().iter().map(|o| kind_of(o).to_owned()).collect();
        assert_eq!(kinds, ["A", "B", "C"]);
    }

    #[test]
    fn a_string_that_looks_like_another_type_stays_a_string() {
        let objects = parse_yaml("metadata: {labels: {a: \"true\", b: '1'}}\nspec: {on: yes, n: 1}\n").unwrap();
        assert_eq!(objects[0]["metadata"]["labels"]["a"], "true");
        assert_eq!(objects[0]["metadata"]["labels"]["b"], "1");
        assert_eq!(objects[0]["spec"]["n"], 1);
    }
}
