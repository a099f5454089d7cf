//! The simulator is compared with recorded exchanges of a real MAAS 3.4.10 and a real 3.7.3.
#![allow(clippy::unwrap_used, clippy::expect_used, clippy::panic)]

use std::collections::BTreeSet;
use std::path::{Path, PathBuf};

use maas_replay::arrangement::Arrangements;
use maas_replay::exceptions::Exceptions;
use maas_replay::recording::read_folder;
use maas_replay::{own_simulator, recorded_version, replay};
use maas_sim::version::{Change, Evidence};

fn recordings(folder: &str) -> PathBuf {
    Path::new(env!("CARGO_MANIFEST_DIR")).join("tests").join(folder)
}

#[tokio::test]
async fn at_least_99_of_100_exchanges_with_maas_3_4_agree_and_each_exception_has_a_reason() {
    agree("recordings", "3.4.10", 1000).await;
}

#[tokio::test]
async fn at_least_99_of_100_exchanges_with_maas_3_7_agree_and_each_exception_has_a_reason() {
    agree("recordings-3.7.3", "3.7.3", 500).await;
}

async fn agree(folder: &str, version: &str, at_least: usize) {
    let folder = recordings(folder);
    let mut recorded = read_folder(&folder).unwrap();
    let arrangements = Arrangements::beside(&folder).unwrap();
    let exceptions = Exceptions::read(&folder.join("exceptions.yaml")).unwrap();
    assert_eq!(recorded_version(&recorded).unwrap().to_string(), version);
    let (target, key) = own_simulator(recorded_version(&recorded).unwrap());
    let report = replay(&mut recorded, &arrangements, &target, &key, |_| {}).await.unwrap();

    println!("{}", report.total());
    assert!(report.refused.is_empty(), "{}", report.refused.join("\n"));
    assert!(report.forced.is_empty(), "set by force and not said so:\n{}", report.forced.join("\n"));
    assert!(report.unforced.is_empty(), "said to be set by force:\n{}", report.unforced.join("\n"));
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
    assert!(report.agreeing() * 100 >= report.outcomes.len() * 99, "{}", report.total());
    assert!(report.outcomes.len() > at_least, "only {} recordings are there", report.outcomes.len());
}

/// One table lists which release does what, with the evidence.
#[test]
fn every_difference_between_releases_has_a_recording_or_was_only_read_in_source() {
    let names: BTreeSet<String> = ["recordings", "recordings-3.7.3"]
        .iter()
        .flat_map(|folder| read_folder(&recordings(folder)).unwrap())
        .map(|recording| recording.name)
        .collect();
    for change in Change::ALL {
        let (since, evidence) = change.since();
        assert!((1..=8).contains(&since), "{change:?}");
        if let Evidence::Recorded(cited) = evidence {
            assert!(!cited.is_empty(), "{change:?} cites nothing");
            for name in cited {
                assert!(names.contains(*name), "{change:?} cites {name}, which is not among the recordings");
            }
        }
    }
    let source: Vec<_> = Change::ALL.iter().filter(|change| change.since().1 == Evidence::Source).collect();
    assert!(source.len() <= 6, "more and more is not recorded: {source:?}");
}

#[test]
fn a_file_of_lines_reads_as_the_files_do() {
    let files = tempfile::tempdir().unwrap();
    let lines = tempfile::tempdir().unwrap();
    let recording = |number: &str| {
        format!(
            r#"{{"name": "{number}-x", "request": {{"method": "POST", "path": "/MAAS/api/2.0/machines/?op=allocate",
            "body": {{"zone": "b", "arch": "a"}}, "content_type": "application/x-www-form-urlencoded"}},
            "response": {{"status": 200, "headers": {{"Content-Type": "application/json"}}, "body": {{"id": 1}}}}}}"#
        )
        .replace('\n', " ")
    };
    let numbers = ["002", "001", "900"];
    for number in numbers {
        std::fs::write(files.path().join(format!("{number}-x.json")), recording(number)).unwrap();
    }
    std::fs::write(files.path().join("describe.json"), "{}").unwrap();
    std::fs::write(lines.path().join("all.jsonl"), numbers.map(recording).join("\n")).unwrap();
    let (files, lines) = (read_folder(files.path()).unwrap(), read_folder(lines.path()).unwrap());
    assert_eq!(files.iter().map(|recording| recording.name.as_str()).collect::<Vec<_>>(), ["001-x", "002-x", "900-x"]);
    for (file, line) in files.iter().zip(&lines) {
        assert_eq!(file.name, line.name);
        assert_eq!(file.request.body, line.request.body, "the order of the fields is kept");
        assert_eq!(file.response.body, line.response.body);
    }
}

#[test]
fn a_line_that_is_no_recording_is_named_with_its_number() {
    let folder = tempfile::tempdir().unwrap();
    std::fs::write(folder.path().join("all.jsonl"), "\n{\"name\": \"1-x\"}\n").unwrap();
    let error = read_folder(folder.path()).unwrap_err().to_string();
    assert!(error.contains("all.jsonl line 2"), "{error}");
}
