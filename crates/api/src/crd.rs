//! The CustomResourceDefinitions as they are shipped in `config/crd`.

use k8s_openapi::apiextensions_apiserver::pkg::apis::apiextensions::v1::{
    CustomResourceColumnDefinition, CustomResourceDefinition, CustomResourceDefinitionVersion,
    CustomResourceSubresourceStatus, CustomResourceSubresources, JSONSchemaProps, JSONSchemaPropsOrArray,
    JSONSchemaPropsOrBool, ValidationRule,
};
use kube::CustomResourceExt;

use crate::{
    MaasCluster, MaasClusterTemplate, MaasMachine, MaasMachineTemplate, columns,
    rules::{self, Rule},
};

/// First lines of each generated file.
const HEADER: &str = "# Generated from crates/api by `make manifests`. Do not edit.\n";

/// Why the definitions could not be made.
#[derive(Debug, thiserror::Error)]
pub enum GenerateError {
    /// A schema does not have a field that a rule stands at, so one of the two is out of date.
    #[error("the schema of {crd} has no field {path}; a field of crates/api was renamed without its rule")]
    NoSuchField {
        /// Name of the definition.
        crd: String,
        /// Path of the field.
        path: String,
    },
    /// A definition could not be written as YAML.
    #[error("a definition cannot be written as YAML: {0}")]
    Yaml(#[from] serde_saphyr::ser::Error),
}

/// All of them, each with the rules of [`rules`].
pub fn all() -> Result<Vec<CustomResourceDefinition>, GenerateError> {
    let own = ["spec"];
    let template = ["spec", "template", "spec"];
    Ok(vec![
        finished(MaasCluster::crd(), columns::cluster(), &own, rules::cluster())?,
        finished(MaasMachine::crd(), columns::machine(), &own, rules::machine())?,
        finished(
            MaasClusterTemplate::crd(),
            columns::cluster_template(),
            &template,
            without_transitions(rules::cluster()),
        )?,
        finished(
            MaasMachineTemplate::crd(),
            columns::machine_template(),
            &template,
            without_transitions(rules::machine()),
        )?,
    ])
}

/// Name and text of each file in `config/crd`: the definitions, and the list of them that kustomize wants.
pub fn files() -> Result<Vec<(String, String)>, GenerateError> {
    let mut files = Vec::new();
    let mut list = format!("{HEADER}resources:\n");
    for crd in all()? {
        let name = format!("{}_{}.yaml", crd.spec.group, crd.spec.names.plural);
        list.extend(["  - ", &name, "\n"]);
        files.push((name, format!("{HEADER}{}", serde_saphyr::to_string(&crd)?)));
    }
    files.push(("kustomization.yaml".to_owned(), list));
    Ok(files)
}

fn without_transitions(rules: Vec<Rule>) -> Vec<Rule> {
    rules.into_iter().filter(|rule| !rule.is_transition()).collect()
}

fn finished(
    mut crd: CustomResourceDefinition,
    columns: Vec<CustomResourceColumnDefinition>,
    spec: &[&str],
    rules: Vec<Rule>,
) -> Result<CustomResourceDefinition, GenerateError> {
    let name = crd.metadata.name.clone().unwrap_or_default();
    for version in &mut crd.spec.versions {
        version.additional_printer_columns = Some(columns.clone());
        // Also for templates, which have no status so far: their capacity is going to be written there.
        version.subresources = Some(CustomResourceSubresources {
            status: Some(CustomResourceSubresourceStatus(serde_json::json!({}))),
            ..CustomResourceSubresources::default()
        });
        let schema = root_schema(version);
        tidy(schema);
        // S24: an object without a spec passed the Go provider's schema, and must be possible to delete.
        schema.required = None;
        for rule in &rules {
            let path: Vec<&str> = spec.iter().chain(rule.at).copied().collect();
            let place = at(schema, &path, &name)?;
            place.x_kubernetes_validations.get_or_insert_default().push(validation(rule));
        }
        if let Ok(static_ip) = at(schema, &[spec, &["staticIP"]].concat(), &name) {
            static_ip.any_of = Some(address_or_object());
        }
    }
    Ok(crd)
}

fn root_schema(version: &mut CustomResourceDefinitionVersion) -> &mut JSONSchemaProps {
    version.schema.get_or_insert_default().open_api_v3_schema.get_or_insert_default()
}

fn at<'a>(
    mut schema: &'a mut JSONSchemaProps,
    path: &[&str],
    crd: &str,
) -> Result<&'a mut JSONSchemaProps, GenerateError> {
    for step in path {
        schema = schema
            .properties
            .as_mut()
            .and_then(|properties| properties.get_mut(*step))
            .ok_or_else(|| GenerateError::NoSuchField { crd: crd.to_owned(), path: path.join(".") })?;
    }
    Ok(schema)
}

fn validation(rule: &Rule) -> ValidationRule {
    ValidationRule {
        rule: rule.expression.clone(),
        message: Some(rule.message.to_owned()),
        ..ValidationRule::default()
    }
}

/// For a field without a type, which CEL cannot see: a text must be an address. The last branch fails for every text
/// that says something and for nothing else, since a format also fails for an object.
fn address_or_object() -> Vec<JSONSchemaProps> {
    let format = |name: &str| JSONSchemaProps { format: Some(name.to_owned()), ..JSONSchemaProps::default() };
    vec![format("ipv4"), format("ipv6"), JSONSchemaProps { max_length: Some(0), ..JSONSchemaProps::default() }]
}

/// What is derived from Rust types says more than we mean:
/// - `nullable` lets null through, which then fails elsewhere; without it the API server drops null;
/// - a default would be stored, and nobody could tell any more whether a person had said it;
/// - the number formats are Rust's, and newer API servers warn about them;
/// - descriptions are broken where the source is.
fn tidy(schema: &mut JSONSchemaProps) {
    schema.nullable = None;
    schema.default = None;
    schema.format = schema.format.take().filter(|format| format == "date-time");
    schema.description = schema.description.take().map(|text| unwrap_lines(&text));
    if let Some(values) = &mut schema.enum_ {
        values.retain(|value| !value.0.is_null());
    }
    for property in schema.properties.iter_mut().flat_map(|properties| properties.values_mut()) {
        tidy(property);
    }
    match &mut schema.items {
        Some(JSONSchemaPropsOrArray::Schema(items)) => tidy(items),
        Some(JSONSchemaPropsOrArray::Schemas(items)) => items.iter_mut().for_each(tidy),
        None => {}
    }
    if let Some(JSONSchemaPropsOrBool::Schema(values)) = &mut schema.additional_properties {
        tidy(values);
    }
}

fn unwrap_lines(text: &str) -> String {
    text.split("\n\n").map(|paragraph| paragraph.replace('\n', " ")).collect::<Vec<_>>().join("\n\n")
}

#[cfg(test)]
mod tests {
    use std::{collections::BTreeMap, path::Path};

    use super::*;

    #[test]
    fn the_files_in_config_crd_are_what_the_code_says() {
        let folder = Path::new(env!("CARGO_MANIFEST_DIR")).join("../../config/crd");
        let stored: BTreeMap<String, String> = std::fs::read_dir(&folder)
            .unwrap()
            .map(|entry| entry.unwrap().path())
            .map(|path| {
                (path.file_name().unwrap().to_string_lossy().into_owned(), std::fs::read_to_string(&path).unwrap())
            })
            .collect();
        let generated: BTreeMap<String, String> = files().unwrap().into_iter().collect();
        assert!(stored == generated, "config/crd is stale: run `make manifests` and commit the result");
    }

    #[test]
    fn the_files_read_back_as_the_same_definitions() {
        let written = files().unwrap();
        for (crd, (name, text)) in all().unwrap().into_iter().zip(written) {
            let read: CustomResourceDefinition = serde_saphyr::from_str(&text).unwrap();
            assert_eq!(read, crd, "{name}");
        }
    }

    #[test]
    fn templates_have_no_rule_that_a_dry_run_of_the_topology_controller_could_break() {
        for (name, text) in files().unwrap().into_iter().filter(|(name, _)| name.ends_with("templates.yaml")) {
            assert!(text.contains("x-kubernetes-validations") && !text.contains("oldSelf"), "{name}");
        }
    }

    #[test]
    fn every_field_has_a_description_and_no_default_and_nothing_is_nullable() {
        fn check(schema: &JSONSchemaProps, path: &str) {
            for (name, property) in schema.properties.iter().flatten() {
                let path = format!("{path}.{name}");
                assert!(
                    property.description.as_ref().is_some_and(|text| text.ends_with('.') || text.ends_with('…')),
                    "{path}"
                );
                assert!(property.default.is_none() && property.nullable.is_none(), "{path}");
                check(property, &path);
            }
            if let Some(JSONSchemaPropsOrArray::Schema(items)) = &schema.items {
                check(items, &format!("{path}[]"));
            }
        }
        for mut crd in all().unwrap() {
            let kind = crd.spec.names.kind.clone();
            let schema = root_schema(&mut crd.spec.versions[0]);
            assert!(schema.description.as_ref().is_some_and(|text| text.starts_with(&kind)), "{kind}");
            check(schema, &kind);
        }
    }

    #[test]
    fn names_are_as_cluster_api_derives_them_and_both_contracts_are_labelled() {
        let names: Vec<String> = all().unwrap().iter().map(|crd| crd.metadata.name.clone().unwrap()).collect();
        assert_eq!(
            names,
            ["maasclusters", "maasmachines", "maasclustertemplates", "maasmachinetemplates"]
                .map(|plural| format!("{plural}.infrastructure.cluster.x-k8s.io"))
        );
        for crd in all().unwrap() {
            let labels = crd.metadata.labels.clone().unwrap();
            assert_eq!(labels["cluster.x-k8s.io/v1beta1"], "v1beta1");
            assert_eq!(labels["cluster.x-k8s.io/v1beta2"], "v1beta1");
            assert_eq!(labels["cluster.x-k8s.io/provider"], "infrastructure-maas");
            assert_eq!(crd.spec.names.categories, Some(vec!["cluster-api".to_owned()]));
            assert_eq!(crd.spec.scope, "Namespaced");
            assert!(crd.spec.versions.len() == 1 && crd.spec.versions[0].served && crd.spec.versions[0].storage);
        }
    }

    #[test]
    fn go31_every_kind_has_columns_rules_and_what_cluster_class_needs() {
        for mut crd in all().unwrap() {
            let kind = crd.spec.names.kind.clone();
            let version = &mut crd.spec.versions[0];
            assert!(version.additional_printer_columns.as_ref().is_some_and(|columns| columns.len() >= 2), "{kind}");
            assert!(version.subresources.as_ref().is_some_and(|subresources| subresources.status.is_some()), "{kind}");
            assert!(serde_json::to_string(&version.schema).unwrap().contains("x-kubernetes-validations"), "{kind}");
            if kind.ends_with("Template") {
                let schema = root_schema(version);
                at(schema, &["spec", "template", "metadata", "labels"], &kind).unwrap();
            }
        }
    }
}
