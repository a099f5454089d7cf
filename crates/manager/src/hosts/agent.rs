//! The agent as applied to a workload cluster: the same manifest that users get, with image and settings filled in.

use capmaas_core::hosts::DesiredHosts;
use capmaas_core::hosts::observed::Agent;
use lxd_initializer::{manifest, names};
use serde_json::{Value, json};
use sha2::{Digest as _, Sha256};

use super::APPLIED_ANNOTATION;
use crate::kubernetes::WorkloadRef;

/// The agent's namespace in every workload cluster.
const NAMESPACE: &str = "capmaas-system";
const NAME: &str = "lxd-initializer";

pub(super) fn daemon_set() -> WorkloadRef {
    WorkloadRef {
        api_version: "apps/v1".into(),
        kind: "DaemonSet".into(),
        namespace: Some(NAMESPACE.into()),
        name: NAME.into(),
    }
}

/// The ConfigMap with the certificate that LXD has to trust.
pub(super) fn trust() -> WorkloadRef {
    WorkloadRef {
        api_version: "v1".into(),
        kind: "ConfigMap".into(),
        namespace: Some(NAMESPACE.into()),
        name: names::TRUST_CONFIG_MAP.into(),
    }
}

/// The certificate in that ConfigMap.
pub(super) fn trusted(config_map: &Value) -> Option<String> {
    config_map["data"][names::TRUST_KEY_FOR_ALL].as_str().map(str::to_owned)
}

/// That ConfigMap. It contains the certificate and nothing else (S22).
pub(super) fn trust_manifest(certificate: &str) -> Value {
    json!({
        "apiVersion": "v1", "kind": "ConfigMap",
        "metadata": { "name": names::TRUST_CONFIG_MAP, "namespace": NAMESPACE, "labels": { "app": NAME } },
        "data": { names::TRUST_KEY_FOR_ALL: certificate },
    })
}

/// The version of this manifest: a changed text is rolled out.
pub(super) fn version() -> String {
    let digest = Sha256::digest(manifest::DAEMON_SET.as_bytes());
    digest.iter().take(6).fold(String::new(), |text, byte| text + &format!("{byte:02x}"))
}

pub(super) fn facts(daemon_set: &Value) -> Agent {
    let number = |value: &Value| value.as_i64().unwrap_or_default();
    let status = &daemon_set["status"];
    Agent {
        applied: daemon_set["metadata"]["annotations"][APPLIED_ANNOTATION].as_str().map(str::to_owned),
        observed: number(&status["observedGeneration"]) >= number(&daemon_set["metadata"]["generation"]),
        desired: number(&status["desiredNumberScheduled"]),
        updated: number(&status["updatedNumberScheduled"]),
        missing: Vec::new(),
    }
}

/// The agent's objects other than its DaemonSet.
pub(super) fn parts() -> Result<Vec<WorkloadRef>, String> {
    let all = [documents(manifest::DAEMON_SET)?, policy()?].concat();
    Ok(all.iter().filter_map(WorkloadRef::of).filter(|part| part.kind != "DaemonSet").collect())
}

/// Everything to apply, in order: the DaemonSet, which carries the annotation, comes last.
pub(super) fn manifests(image: &str, desired: &DesiredHosts, note: &str) -> Result<Vec<Value>, String> {
    let mut objects = documents(manifest::DAEMON_SET)?;
    let text = |text: &Option<String>| text.clone().unwrap_or_default();
    let settings = [
        ("STORAGE_BACKEND", desired.storage_backend.clone()),
        ("STORAGE_SIZE", desired.storage_size.clone()),
        ("NETWORK_BRIDGE", desired.bridge.name.clone()),
        ("ZONE", text(&desired.zone)),
        ("RESOURCE_POOL", text(&desired.pool)),
    ];
    let broken = || "the manifest of the agent is not valid".to_owned();
    let daemon_set = objects.iter_mut().find(|object| object["kind"] == "DaemonSet").ok_or_else(broken)?;
    daemon_set["metadata"]["annotations"] = json!({ APPLIED_ANNOTATION: note });
    let container = &mut daemon_set["spec"]["template"]["spec"]["containers"][0];
    container["image"] = json!(image);
    for (name, value) in settings {
        let variables = container["env"].as_array_mut().ok_or_else(broken)?;
        let variable = variables.iter_mut().find(|variable| variable["name"] == name).ok_or_else(broken)?;
        variable["value"] = json!(value);
    }
    objects.sort_by_key(|object| object["kind"] == "DaemonSet");
    Ok(objects)
}

/// The policy that limits the agent to its own Node, for API servers that can serve it.
pub(super) fn policy() -> Result<Vec<Value>, String> {
    documents(manifest::NODE_PATCH_POLICY)
}

fn documents(yaml: &str) -> Result<Vec<Value>, String> {
    let documents: Vec<Value> =
        serde_saphyr::from_multiple(yaml).map_err(|error| format!("the manifest of the agent: {error}"))?;
    Ok(documents.into_iter().filter(|document| !document.is_null()).collect())
}

#[cfg(test)]
mod tests {
    use capmaas_core::hosts::bridge::DesiredBridge;

    use super::*;

    fn desired() -> DesiredHosts {
        DesiredHosts {
            storage_backend: "btrfs".into(),
            storage_size: "80GiB".into(),
            bridge: DesiredBridge { name: "br7".into(), parent: None, make: true },
            zone: Some("az1".into()),
            pool: None,
        }
    }

    #[test]
    fn the_manifest_is_filled_in_and_the_daemon_set_comes_last() {
        let objects = manifests("registry.example/agent:v1", &desired(), "the note").unwrap();
        let daemon_set = objects.last().unwrap();
        assert_eq!(WorkloadRef::of(daemon_set), Some(super::daemon_set()));
        assert_eq!(facts(daemon_set).applied.as_deref(), Some("the note"));
        let container = &daemon_set["spec"]["template"]["spec"]["containers"][0];
        assert_eq!(container["image"], "registry.example/agent:v1");
        let value = |name: &str| {
            let variables = container["env"].as_array().unwrap();
            variables.iter().find(|variable| variable["name"] == name).unwrap()["value"].as_str().map(str::to_owned)
        };
        assert_eq!(value("STORAGE_BACKEND").as_deref(), Some("btrfs"));
        assert_eq!(value("STORAGE_SIZE").as_deref(), Some("80GiB"));
        assert_eq!(value("NETWORK_BRIDGE").as_deref(), Some("br7"));
        assert_eq!((value("ZONE").as_deref(), value("RESOURCE_POOL").as_deref()), (Some("az1"), Some("")));
        assert!(!objects.iter().any(|object| object.to_string().contains("${")), "nothing is left to be replaced");
        assert!(objects.iter().all(|object| WorkloadRef::of(object).is_some()));
        assert_eq!(policy().unwrap().len(), 2);
        let parts = parts().unwrap();
        assert_eq!(parts.len(), objects.len() - 1 + 2, "all but the DaemonSet, and what limits the agent");
        assert!(parts.iter().any(|part| part.kind == "ClusterRole"), "{parts:?}");
    }

    #[test]
    fn s22_the_agent_is_applied_in_managed_mode_without_any_maas_credentials() {
        for object in manifests("i", &desired(), "n").unwrap() {
            assert_ne!(object["kind"], "Secret");
            for name in ["MAAS_API_KEY", "MAAS_ENDPOINT"] {
                assert!(!object.to_string().contains(name), "{object}");
            }
        }
    }

    #[test]
    fn a_daemon_set_without_our_note_is_a_persons() {
        let object = json!({ "metadata": { "generation": 2 }, "status": { "observedGeneration": 1 } });
        assert_eq!(facts(&object), Agent::default());
    }
}
