//! The RBAC permissions in the manifests, as documented in docs/security.md.
#![allow(clippy::unwrap_used, clippy::expect_used, clippy::panic)]

use std::path::Path;

use serde_json::{Value, json};

fn documents(path: &str) -> Vec<Value> {
    let path = Path::new(env!("CARGO_MANIFEST_DIR")).join("../..").join(path);
    serde_saphyr::from_multiple(&std::fs::read_to_string(path).unwrap()).unwrap()
}

fn rules(kind: &str) -> Vec<Value> {
    let all = documents("config/rbac/manager_role.yaml");
    let role = all.iter().find(|object| object["kind"] == kind && object["metadata"]["name"] == "capmaas-manager");
    role.unwrap()["rules"].as_array().unwrap().clone()
}

fn about<'a>(rules: &'a [Value], resource: &str) -> Vec<&'a Value> {
    let names = |rule: &Value| rule["resources"].as_array().unwrap().contains(&json!(resource));
    rules.iter().filter(|rule| names(rule)).collect()
}

#[test]
fn s28_outside_of_its_namespace_the_manager_reads_secrets_by_name_and_makes_none() {
    let everywhere = rules("ClusterRole");
    let secrets = about(&everywhere, "secrets");
    assert_eq!(secrets.len(), 1);
    assert_eq!(secrets[0]["verbs"], json!(["get"]));
    for rule in &everywhere {
        let text = rule.to_string();
        assert!(!text.contains('*') && !text.contains("serviceaccounts") && !text.contains("impersonate"), "{text}");
        assert!(!text.contains("pods") && !text.contains("\"rbac"), "{text}");
    }
    assert_eq!(about(&rules("Role"), "secrets").len(), 1, "in its own namespace it keeps what clusters bring along");
}

#[test]
fn s28_every_annotation_that_the_manager_keeps_its_journal_in_is_under_the_name_that_the_policy_guards() {
    let policy = documents("config/policy/journals.yaml")[0].to_string();
    let journal = [
        capmaas_core::machine::JOURNAL_ANNOTATION,
        capmaas_core::machine::DEBTS_ANNOTATION,
        capmaas_core::credentials::IDENTITY_ANNOTATION,
        capmaas_core::hosts::leaving::ASKED_ANNOTATION,
        capmaas_api::names::MAINTENANCE_TAGGED_ANNOTATION,
    ];
    for name in journal {
        assert!(name.starts_with("infrastructure.cluster.x-k8s.io/") && !policy.contains(name), "{name}");
    }
    let for_people = [
        capmaas_core::machine::ABANDON_ANNOTATION,
        capmaas_core::machine::LEAVE_POWER_ANNOTATION,
        capmaas_api::names::MAINTENANCE_ANNOTATION,
    ];
    for name in for_people {
        assert!(policy.contains(&format!("'{name}'")), "{name} is for people to write");
    }
}

#[test]
fn s30_the_right_to_delete_machines_is_in_a_role_of_its_own() {
    for rule in rules("ClusterRole").iter().chain(&rules("Role")) {
        let deletes = rule["verbs"].as_array().unwrap().contains(&json!("delete"));
        assert!(!deletes || rule["resources"] == json!(["secrets"]), "{rule}");
    }
    let role = &documents("config/rbac/evacuation_role.yaml")[0];
    let expected = json!([{ "apiGroups": ["cluster.x-k8s.io"], "resources": ["machines"], "verbs": ["delete"] }]);
    assert_eq!(role["rules"], expected);
}
