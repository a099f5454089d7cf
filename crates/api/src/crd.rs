//! The CustomResourceDefinitions as they are shipped in `config/crd`.

use k8s_openapi::apiextensions_apiserver::pkg::apis::apiextensions::v1::{
    CustomResourceDefinition, CustomResourceDefinitionVersion, CustomResourceSubresourceStatus,
    CustomResourceSubresources, JSONSchemaProps, JSONSchemaPropsOrArray, JSONSchemaPropsOrBool, ValidationRule,
};
use kube::CustomResourceExt;

use crate::{
    MaasCluster, MaasClusterTemplate, MaasMachine, MaasMachineTemplate,
    rules::{self, Rule},
};

/// First lines of each generated file.
const HEADER: &str = "# Generated from crates/api by `make manifests`. Do not edit.\n";

/// A schema does not have a place that this module expects, so one of the two is out of date.
#[derive(Debug, thiserror::Error)]
#[error("the schema of {crd} has no field {path}; a field of crates/api was renamed without its rule")]
pub struct NoSuchField {
    crd: String,
    path: String,
}

/// All of them, each with the rules of [`rules`].
pub fn all() -> Result<Vec<CustomResourceDefinition>, NoSuchField> {
    let own = ["spec"];
    let template = ["spec", "template", "spec"];
    Ok(vec![
        finished(MaasCluster::crd(), &own, rules::cluster())?,
        finished(MaasMachine::crd(), &own, rules::machine())?,
        finished(MaasClusterTemplate::crd(), &template, without_transitions(rules::cluster()))?,
        finished(MaasMachineTemplate::crd(), &template, without_transitions(rules::machine()))?,
    ])
}

/// The file that a definition is shipped in.
pub fn file_name(crd: &CustomResourceDefinition) -> String {
    format!("{}_{}.yaml", crd.spec.group, crd.spec.names.plural)
}

/// The text of that file.
pub fn to_yaml(crd: &CustomResourceDefinition) -> Result<String, serde_saphyr::ser::Error> {
    Ok(format!("{HEADER}{}", serde_saphyr::to_string(crd)?))
}

fn without_transitions(rules: Vec<Rule>) -> Vec<Rule> {
    rules.into_iter().filter(|rule| !rule.is_transition()).collect()
}

fn finished(
    mut crd: CustomResourceDefinition,
    spec: &[&str],
    rules: Vec<Rule>,
) -> Result<CustomResourceDefinition, NoSuchField> {
    let name = crd.metadata.name.clone().unwrap_or_default();
    for version in &mut crd.spec.versions {
        // Also for templates, which have no status so far: their capacity is going to be written there.
        version.subresources = Some(CustomResourceSubresources {
            status: Some(CustomResourceSubresourceStatus(serde_json::json!({}))),
            ..CustomResourceSubresources::default()
        });
        let schema = root_schema(version);
        tidy(schema);
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
) -> Result<&'a mut JSONSchemaProps, NoSuchField> {
    for step in path {
        schema = schema
            .properties
            .as_mut()
            .and_then(|properties| properties.get_mut(*step))
            .ok_or_else(|| NoSuchField { crd: crd.to_owned(), path: path.join(".") })?;
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
