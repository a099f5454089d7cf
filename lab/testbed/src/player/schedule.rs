//! Selects a Pod's node: the part of a scheduler that matters for our manifests.

use std::collections::BTreeMap;

use k8s_openapi::api::core::v1::{Node, NodeSelectorRequirement, NodeSelectorTerm, Pod, Taint, Toleration};

/// The name of the node for a Pod, or why there is none. `load` is the number of Pods per node.
pub(super) fn choose_node(pod: &Pod, nodes: &[Node], load: &BTreeMap<String, usize>) -> Result<String, String> {
    let name = |node: &Node| node.metadata.name.clone().unwrap_or_default();
    nodes
        .iter()
        .filter(|node| fits(pod, node))
        .map(name)
        .min_by_key(|name| (load.get(name).copied().unwrap_or(0), name.clone()))
        .ok_or_else(|| {
            format!(
                "0/{} nodes are available: none matches the Pod's node selector, affinity and tolerations",
                nodes.len()
            )
        })
}

fn fits(pod: &Pod, node: &Node) -> bool {
    let Some(spec) = &pod.spec else { return false };
    let labels = node.metadata.labels.as_ref();
    let has_label = |(key, value): (&String, &String)| labels.is_some_and(|labels| labels.get(key) == Some(value));
    let selected = spec.node_selector.iter().flatten().all(has_label);
    let required = spec
        .affinity
        .as_ref()
        .and_then(|affinity| affinity.node_affinity.as_ref())
        .and_then(|affinity| affinity.required_during_scheduling_ignored_during_execution.as_ref());
    let wanted = required.is_none_or(|selector| selector.node_selector_terms.iter().any(|term| matches(term, node)));
    let taints = node.spec.iter().filter_map(|spec| spec.taints.as_ref()).flatten();
    let tolerations = spec.tolerations.as_deref().unwrap_or_default();
    let tolerated = taints
        .filter(|taint| taint.effect != "PreferNoSchedule")
        .all(|taint| tolerations.iter().any(|t| tolerates(t, taint)));
    let cordoned = node.spec.as_ref().and_then(|spec| spec.unschedulable).unwrap_or(false);
    selected && wanted && tolerated && !cordoned
}

fn matches(term: &NodeSelectorTerm, node: &Node) -> bool {
    let label = |key: &str| node.metadata.labels.as_ref().and_then(|labels| labels.get(key)).map(String::as_str);
    let field = |key: &str| (key == "metadata.name").then_some(node.metadata.name.as_deref()).flatten();
    let expressions = term.match_expressions.as_deref().unwrap_or_default();
    let fields = term.match_fields.as_deref().unwrap_or_default();
    // A term without requirements matches nothing.
    (!expressions.is_empty() || !fields.is_empty())
        && expressions.iter().all(|rule| holds(rule, label(&rule.key)))
        && fields.iter().all(|rule| holds(rule, field(&rule.key)))
}

fn holds(rule: &NodeSelectorRequirement, actual: Option<&str>) -> bool {
    let listed = |value| rule.values.iter().flatten().any(|wanted| wanted == value);
    match rule.operator.as_str() {
        "In" => actual.is_some_and(listed),
        "NotIn" => !actual.is_some_and(listed),
        "Exists" => actual.is_some(),
        "DoesNotExist" => actual.is_none(),
        // Gt and Lt are not supported: nothing here compares numbers.
        _ => false,
    }
}

fn tolerates(toleration: &Toleration, taint: &Taint) -> bool {
    let effect = toleration.effect.as_deref().is_none_or(|effect| effect.is_empty() || effect == taint.effect);
    let key = toleration.key.as_deref().unwrap_or_default();
    let exists = toleration.operator.as_deref() == Some("Exists");
    let value = exists || toleration.value.as_deref().unwrap_or_default() == taint.value.as_deref().unwrap_or_default();
    effect && value && (key == taint.key || (key.is_empty() && exists))
}

#[cfg(test)]
mod tests {
    use serde_json::{Value, json};

    use super::*;

    fn node(name: &str, spec: &Value) -> Node {
        serde_json::from_value(json!({"metadata": {"name": name, "labels": {"zone": name}}, "spec": spec})).unwrap()
    }

    fn pod(spec: Value) -> Pod {
        let mut spec = spec;
        spec["containers"] = json!([]);
        serde_json::from_value(json!({"spec": spec})).unwrap()
    }

    fn choose(spec: Value, nodes: &[Node]) -> Result<String, String> {
        choose_node(&pod(spec), nodes, &BTreeMap::new())
    }

    fn affinity(term: &Value) -> Value {
        json!({"affinity": {"nodeAffinity":
            {"requiredDuringSchedulingIgnoredDuringExecution": {"nodeSelectorTerms": [term]}}}})
    }

    #[test]
    fn a_pod_of_a_daemon_set_goes_to_the_node_that_it_names() {
        let nodes = [node("a", &json!({})), node("b", &json!({}))];
        let by_name = json!({"matchFields": [{"key": "metadata.name", "operator": "In", "values": ["b"]}]});
        assert_eq!(choose(affinity(&by_name), &nodes).unwrap(), "b");
    }

    #[test]
    fn labels_select_the_node() {
        let nodes = [node("a", &json!({})), node("b", &json!({}))];
        assert_eq!(choose(json!({"nodeSelector": {"zone": "b"}}), &nodes).unwrap(), "b");
        let not_a = json!({"matchExpressions": [{"key": "zone", "operator": "NotIn", "values": ["a"]}]});
        assert_eq!(choose(affinity(&not_a), &nodes).unwrap(), "b");
        assert!(choose(json!({"nodeSelector": {"zone": "c"}}), &nodes).unwrap_err().starts_with("0/2 nodes"));
    }

    #[test]
    fn a_taint_keeps_away_who_does_not_tolerate_it() {
        let key = "node-role.kubernetes.io/control-plane";
        let nodes = [node("a", &json!({"taints": [{"key": key, "effect": "NoSchedule"}]}))];
        assert!(choose(json!({}), &nodes).is_err());
        assert!(choose(json!({"tolerations": [{"key": key, "operator": "Exists"}]}), &nodes).is_ok());
        assert!(choose(json!({"tolerations": [{"operator": "Exists"}]}), &nodes).is_ok());
        assert!(choose(json!({"tolerations": [{"key": key, "effect": "NoExecute"}]}), &nodes).is_err());
    }

    #[test]
    fn the_emptier_node_comes_first() {
        let nodes = [node("a", &json!({})), node("b", &json!({}))];
        let load = BTreeMap::from([("a".to_owned(), 1)]);
        assert_eq!(choose_node(&pod(json!({})), &nodes, &load).unwrap(), "b");
    }
}
