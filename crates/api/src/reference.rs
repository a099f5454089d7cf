//! The reference in `docs/reference`, made from the same tables and schemas that the code uses.

use std::fmt::Write as _;

use k8s_openapi::apiextensions_apiserver::pkg::apis::apiextensions::v1::{
    JSONSchemaProps, JSONSchemaPropsOrArray, JSONSchemaPropsOrBool,
};

use crate::{
    conditions,
    crd::{self, GenerateError},
    reasons::{self, Entry},
    rules::{self, Rule},
};

const HEADER: &str =
    "<!-- Generated from crates/api. Do not edit; the test that finds it stale tells how to make it. -->\n";

/// Name and text of each file in `docs/reference`.
pub fn files() -> Result<Vec<(&'static str, String)>, GenerateError> {
    Ok(vec![("fields.md", fields()?), ("conditions.md", conditions_and_reasons()), ("rules.md", all_rules())])
}

fn fields() -> Result<String, GenerateError> {
    let mut text = format!(
        "{HEADER}# Fields\n\nWhat `kubectl explain` tells, on one page. Required fields are marked with a star. Nothing has a default that is \
         stored: what is stored is what somebody said.\n"
    );
    for definition in crd::all()? {
        let names = &definition.spec.names;
        let short = names.short_names.iter().flatten().next().map_or("", String::as_str);
        let _ = write!(text, "\n## {} (`{short}`)\n", names.kind);
        let schema = definition.spec.versions.first().and_then(|version| version.schema.as_ref());
        if let Some(root) = schema.and_then(|schema| schema.open_api_v3_schema.as_ref()) {
            let _ = write!(text, "\n{}\n", root.description.as_deref().unwrap_or_default());
            text.push_str("\n| field | type | meaning |\n|---|---|---|\n");
            rows(root, "", &mut text);
        }
    }
    Ok(text)
}

fn rows(schema: &JSONSchemaProps, path: &str, text: &mut String) {
    for (name, field) in schema.properties.iter().flatten() {
        let required = schema.required.iter().flatten().any(|required| required == name);
        let path = if path.is_empty() { name.clone() } else { format!("{path}.{name}") };
        // A template holds what its kind holds; saying it once is enough.
        let embedded = path == "spec.template.spec";
        let star = if required { " \\*" } else { "" };
        let meaning = cell(field.description.as_deref().unwrap_or_default());
        let _ = writeln!(text, "| `{path}`{star} | {} | {meaning} |", type_of(field));
        if !embedded {
            rows(field, &path, text);
        }
        if let Some(JSONSchemaPropsOrArray::Schema(items)) = &field.items {
            rows(items, &format!("{path}[]"), text);
        }
    }
}

fn type_of(field: &JSONSchemaProps) -> String {
    if let Some(values) = &field.enum_ {
        let values: Vec<&str> = values.iter().filter_map(|value| value.0.as_str()).collect();
        return values.join(", ");
    }
    match (field.type_.as_deref(), &field.items, &field.additional_properties) {
        (Some("array"), Some(JSONSchemaPropsOrArray::Schema(items)), _) => format!("list of {}", type_of(items)),
        (Some("object"), _, Some(JSONSchemaPropsOrBool::Schema(values))) => format!("map to {}", type_of(values)),
        (Some(name), ..) => name.to_owned(),
        (None, ..) => "several forms".to_owned(),
    }
}

fn conditions_and_reasons() -> String {
    let mut text = format!("{HEADER}# Conditions and reasons\n\n## Conditions\n");
    table(&mut text, "condition", conditions::ALL);
    text.push_str("\n## Reasons\n");
    table(&mut text, "reason", reasons::ALL);
    text
}

fn table(text: &mut String, heading: &str, entries: &[Entry]) {
    let _ = write!(text, "\n| {heading} | it means | what to do |\n|---|---|---|\n");
    for entry in entries {
        let _ = writeln!(text, "| `{}` | {} | {} |", entry.name, cell(entry.meaning), cell(entry.action));
    }
}

fn all_rules() -> String {
    let mut text = format!(
        "{HEADER}# What the API server refuses\n\nBeside the types: these rules are in the CRDs and hold from Kubernetes 1.29 on. \
         Templates have those that do not compare with the stored object. The last column says why a rule accepts every \
         object that the Go provider could have stored, also when only its metadata is patched. From Kubernetes 1.30 on, \
         `config/policy` says the same about newly made objects that use only fields of the Go provider, and keeps \
         templates immutable.\n"
    );
    for (kind, rules) in [("MaasCluster", rules::cluster()), ("MaasMachine", rules::machine())] {
        let _ = write!(text, "\n## {kind}\n\n| at | what it says | stored objects pass because it |\n|---|---|---|\n");
        for Rule { at, message, why_stored_objects_pass, .. } in rules {
            let path: Vec<&str> = ["spec"].iter().chain(at).copied().collect();
            let _ = writeln!(text, "| `{}` | {} | {why_stored_objects_pass} |", path.join("."), cell(message));
        }
    }
    text
}

/// Text that does not end a table cell or start a tag.
fn cell(text: &str) -> String {
    text.replace('|', "\\|").replace('<', "&lt;").replace('\n', " ")
}

#[cfg(test)]
mod tests {
    use std::path::Path;

    use super::*;

    #[test]
    fn the_files_in_docs_reference_are_what_the_code_says() {
        let folder = Path::new(env!("CARGO_MANIFEST_DIR")).join("../../docs/reference");
        for (name, text) in files().unwrap() {
            let stored = std::fs::read_to_string(folder.join(name)).unwrap_or_default();
            assert!(
                stored == text,
                "docs/reference/{name} is stale: run `cargo run -p capmaas-api --bin crdgen -- config/crd docs/reference` and commit the result"
            );
        }
    }
}
