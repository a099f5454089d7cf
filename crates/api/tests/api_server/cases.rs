//! The cases in `tests/cases`: what each rule and policy refuses, with which sentence, and what they let through.

use std::collections::BTreeSet;

use capmaas_api::rules;
use futures::{StreamExt, stream};
use serde::Deserialize;
use serde_json::{Value, json};

use crate::server::{Server, read, refusal};

#[derive(Clone, Debug, Deserialize)]
#[serde(deny_unknown_fields)]
struct Case {
    spec: Value,
    then: Option<Value>,
    refuses: Option<String>,
    #[serde(default)]
    policy: bool,
}

fn cases(name: &str) -> Vec<Case> {
    serde_saphyr::from_str(&read(&format!("crates/api/tests/cases/{name}.yaml"))).unwrap()
}

fn merged(mut base: Value, change: &Value) -> Value {
    match (base.as_object_mut(), change) {
        (Some(fields), Value::Object(changes)) => {
            for (name, value) in changes {
                let merged = merged(fields.remove(name).unwrap_or(Value::Null), value);
                fields.insert(name.clone(), merged);
            }
            base
        }
        _ => change.clone(),
    }
}

/// `None` if it went as the case says.
async fn fault(server: &Server, kind: &str, name: String, base: &Value, case: &Case) -> Option<String> {
    let wrap = |spec: Value| if kind.ends_with("Template") { json!({"template": {"spec": spec}}) } else { spec };
    let object = json!({
        "apiVersion": "infrastructure.cluster.x-k8s.io/v1beta1", "kind": kind, "metadata": {"name": name},
        "spec": wrap(merged(base.clone(), &case.spec)),
    });
    let mut outcome = server.create(&object).await;
    if let Some(change) = &case.then {
        if let Err(error) = outcome {
            return Some(format!("{kind} {case:?}: the object to change was refused: {error}"));
        }
        outcome = server.merge(kind, &name, &json!({ "spec": wrap(change.clone()) })).await;
    }
    match &case.refuses {
        None => outcome.err().map(|error| format!("{kind} {case:?}: {error}")),
        Some(sentence) => match refusal(outcome) {
            Ok(status) if status.message.contains(sentence) => None,
            Ok(status) => Some(format!("{kind} {case:?}: other words: {}", status.message)),
            Err(outcome) => Some(format!("{kind} {case:?}: {outcome}")),
        },
    }
}

async fn faults(server: &Server, kind: &str, base: Value, cases: &[Case]) -> Vec<String> {
    stream::iter(cases.iter().enumerate())
        .map(|(number, case)| fault(server, kind, format!("{}-{number}", kind.to_lowercase()), &base, case))
        .buffer_unordered(8)
        .filter_map(async |fault| fault)
        .collect()
        .await
}

async fn all_cases_hold(kind: &str, file: &str, base: Value) {
    let server = Server::with_namespace(&format!("cases-{file}")).await;
    let asked: Vec<Case> = cases(file).into_iter().filter(|case| server.has_policies || !case.policy).collect();
    let mut faults_found = faults(&server, kind, base.clone(), &asked).await;
    // Templates get the rules that do not compare, and the policies.
    let at_creation: Vec<Case> = asked.into_iter().filter(|case| case.then.is_none()).map(in_template).collect();
    faults_found.extend(faults(&server, &format!("{kind}Template"), base, &at_creation).await);
    assert!(faults_found.is_empty(), "{}", faults_found.join("\n"));
}

/// The API server's own words name the path, which is a longer one in a template.
fn in_template(mut case: Case) -> Case {
    case.refuses = case.refuses.map(|sentence| match sentence.strip_prefix("spec.") {
        Some(rest) => format!("spec.template.spec.{rest}"),
        None => sentence,
    });
    case
}

#[tokio::test]
async fn a_machine_and_its_template_are_refused_with_the_sentence_of_each_rule_and_accepted_otherwise() {
    all_cases_hold("MaasMachine", "machine", json!({"image": "ubuntu/jammy", "minCPU": 2, "minMemory": 2048})).await;
}

#[tokio::test]
async fn a_cluster_and_its_template_are_refused_with_the_sentence_of_each_rule_and_accepted_otherwise() {
    all_cases_hold("MaasCluster", "cluster", json!({"dnsDomain": "maas"})).await;
}

#[tokio::test]
async fn a_person_is_told_that_the_spec_is_missing() {
    let server = Server::with_namespace("no-spec").await;
    for kind in ["MaasMachine", "MaasCluster", "MaasMachineTemplate", "MaasClusterTemplate"] {
        let object =
            json!({"apiVersion": "infrastructure.cluster.x-k8s.io/v1beta1", "kind": kind, "metadata": {"name": "x"}});
        let outcome = server.create(&object).await;
        if server.has_policies {
            let status = refusal(outcome).unwrap();
            assert!(status.message.contains("spec is missing; say at least"), "{}", status.message);
        } else {
            outcome.expect("without policies it is accepted (S24)");
        }
    }
}

#[test]
fn there_is_a_case_for_each_rule() {
    for (file, rules) in [("machine", rules::machine()), ("cluster", rules::cluster())] {
        for comparing in [false, true] {
            // A sentence may belong to two rules: one for what is there, one for what changes.
            let told: BTreeSet<String> = cases(file)
                .into_iter()
                .filter(|case| case.then.is_some() == comparing && !case.policy)
                .filter_map(|case| case.refuses)
                .collect();
            for rule in rules.iter().filter(|rule| rule.is_transition() == comparing) {
                assert!(
                    told.iter().any(|told| rule.message.starts_with(told.as_str())),
                    "no case for: {}",
                    rule.message
                );
            }
        }
    }
}

#[test]
fn the_policy_for_new_objects_uses_the_sentences_of_the_rules_and_has_a_case_for_each() {
    let policy = read("config/policy/new-objects.yaml");
    let sentences: BTreeSet<&str> =
        policy.lines().filter_map(|line| line.trim().strip_prefix("message: \"")?.strip_suffix('"')).collect();
    let (missing, sentences): (BTreeSet<&str>, BTreeSet<&str>) =
        sentences.into_iter().partition(|sentence| sentence.starts_with("spec is missing; "));
    assert!(missing.len() == 2 && !sentences.is_empty());
    let known: BTreeSet<&str> = rules::machine().iter().chain(&rules::cluster()).map(|rule| rule.message).collect();
    assert!(sentences.is_subset(&known), "{:?}", sentences.difference(&known));
    let asked: Vec<String> = ["machine", "cluster"]
        .into_iter()
        .flat_map(cases)
        .filter(|case| case.policy)
        .filter_map(|case| case.refuses)
        .collect();
    for sentence in sentences {
        assert!(asked.iter().any(|asked| sentence.starts_with(asked.as_str())), "no case for: {sentence}");
    }
}
