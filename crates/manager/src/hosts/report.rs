//! Reads the report that the agent writes on its Node.

use std::collections::BTreeMap;

use capmaas_core::hosts::observed::Report;
use lxd_initializer::names;
use serde_json::Value;

/// The report on a Node; `None` before the first one. A part that cannot be read is unknown.
pub fn of(annotations: &BTreeMap<String, String>) -> Option<Report> {
    let text = |name: &str| annotations.get(name).filter(|text| !text.is_empty()).cloned();
    let list = |name: &str| text(name).and_then(|text| serde_json::from_str(&text).ok());
    Some(Report {
        state: text(names::STATE)?,
        message: text(names::MESSAGE).unwrap_or_default(),
        open: text(names::CONDITIONS).and_then(|text| first_open(&text)),
        standalone: text(names::MODE).is_some_and(|mode| mode == "standalone"),
        address: text(names::ADDRESS),
        certificate: text(names::CERTIFICATE),
        earlier: list(names::EARLIER).unwrap_or_default(),
        told: text(names::MAAS_CERTIFICATE),
        project: text(names::PROJECT),
        instances: list(names::INSTANCES),
        profiles: list(names::PROFILES),
    })
}

/// The first step that is not fulfilled.
fn first_open(conditions: &str) -> Option<String> {
    let conditions: Vec<Value> = serde_json::from_str(conditions).ok()?;
    let open = conditions.iter().find(|condition| condition["status"] == "False")?;
    open["type"].as_str().map(str::to_owned)
}

/// Whether the Node asks its agent to stop.
pub fn is_asked_to_leave(annotations: &BTreeMap<String, String>) -> bool {
    annotations.get(names::LEAVE).is_some_and(|told| !told.is_empty() && told != "false")
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn a_report_is_read_and_what_is_not_there_is_not_known() {
        let said = [
            (names::STATE, "Blocked"),
            (names::MESSAGE, "there is no bridge"),
            (names::CONDITIONS, r#"[{"type":"Lxd","status":"True"},{"type":"Bridge","status":"False"}]"#),
            (names::MODE, "managed"),
            (names::INSTANCES, r#"["web"]"#),
            (names::PROFILES, r#"["default"]"#),
        ];
        let annotations = said.map(|(name, value)| (name.to_owned(), value.to_owned())).into();
        let report = of(&annotations).unwrap();
        assert_eq!((report.state.as_str(), report.open.as_deref()), ("Blocked", Some("Bridge")));
        assert_eq!((report.standalone, report.instances), (false, Some(vec!["web".to_owned()])));
        assert_eq!(report.profiles, Some(vec!["default".to_owned()]));
        assert_eq!((report.address, report.certificate), (None, None));
    }

    #[test]
    fn s12_a_list_of_instances_that_cannot_be_read_is_not_an_empty_one() {
        for text in ["", "null", "{}", "[1]", "web"] {
            let annotations = BTreeMap::from([
                (names::STATE.to_owned(), "Ready".to_owned()),
                (names::INSTANCES.to_owned(), text.to_owned()),
            ]);
            assert_eq!(of(&annotations).unwrap().instances, None, "{text}");
        }
        assert_eq!(of(&BTreeMap::new()), None);
    }
}
