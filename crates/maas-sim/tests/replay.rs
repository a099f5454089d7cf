//! The simulator is held against recorded exchanges with a real MAAS 3.4.10.
#![allow(clippy::unwrap_used, clippy::expect_used, clippy::panic)]

use std::collections::BTreeSet;
use std::path::{Path, PathBuf};

use maas_sim::replay::arrangement::Arrangements;
use maas_sim::replay::compact::compact;
use maas_sim::replay::exceptions::Exceptions;
use maas_sim::replay::recording::read_folder;
use maas_sim::replay::{own_simulator, recorded_version, replay};

fn recordings() -> PathBuf {
    Path::new(env!("CARGO_MANIFEST_DIR")).join("tests/recordings")
}

#[tokio::test]
async fn at_least_95_of_100_recorded_exchanges_agree_and_each_exception_has_a_reason() {
    let folder = recordings();
    let mut recorded = read_folder(&folder).unwrap();
    let arrangements = Arrangements::beside(&folder).unwrap();
    let exceptions = Exceptions::read(&folder.join("exceptions.yaml")).unwrap();
    let (target, key) = own_simulator(recorded_version(&recorded).unwrap());
    let report = replay(&mut recorded, &arrangements, &target, &key, |_| {}).await.unwrap();

    println!("{}", report.total());
    assert!(report.refused.is_empty(), "{}", report.refused.join("\n"));
    let surprises: Vec<_> = report
        .surprises(&exceptions)
        .map(|outcome| {
            format!(
                "{}: {}",
                outcome.name,
                outcome.differences.iter().map(ToString::to_string).collect::<Vec<_>>().join("; ")
            )
        })
        .collect();
    assert!(surprises.is_empty(), "these differ and are not listed in exceptions.yaml:\n{}", surprises.join("\n"));
    let idle: BTreeSet<_> = report.idle_exceptions(&exceptions).collect();
    assert!(idle.is_empty(), "these are listed in exceptions.yaml, but agree or do not exist: {idle:?}");
    assert!(report.suffices(), "{}", report.total());
    assert!(report.outcomes.len() > 1000, "only {} recordings are there", report.outcomes.len());
}

#[test]
fn the_compact_form_of_a_folder_reads_as_the_folder_does() {
    let original = tempfile::tempdir().unwrap();
    let out = tempfile::tempdir().unwrap();
    let body = r#"{"zone": {"name": "default", "description": "a zone that is long enough to be shared", "id": 1}}"#;
    for number in ["001", "002", "900"] {
        let text = format!(
            r#"{{"name": "{number}-x", "request": {{"method": "POST", "path": "/MAAS/api/2.0/machines/?op=allocate",
            "body": {{"zone": "b", "arch": "a"}}, "content_type": "application/x-www-form-urlencoded"}},
            "response": {{"status": 200, "headers": {{"Content-Type": "application/json", "Vary": "Cookie"}}, "body": {body}}}, "seconds": 0.5}}"#
        );
        std::fs::write(original.path().join(format!("{number}-x.json")), text).unwrap();
    }
    std::fs::write(original.path().join("describe.json"), "{}").unwrap();
    let written = compact(original.path(), out.path(), &["900".parse().unwrap()]).unwrap();
    assert_eq!(written.values().copied().collect::<Vec<_>>(), [2, 1]);
    let before = read_folder(original.path()).unwrap();
    let after = read_folder(out.path()).unwrap();
    assert_eq!(before.len(), 3);
    for (before, after) in before.iter().zip(&after) {
        assert_eq!(before.name, after.name);
        assert_eq!(before.response.body, after.response.body);
        assert_eq!(before.request.query, after.request.query);
        assert_eq!(before.request.body, after.request.body, "the order of the fields is kept");
        assert_eq!(after.response.headers.keys().collect::<Vec<_>>(), ["content-type"]);
    }
}
