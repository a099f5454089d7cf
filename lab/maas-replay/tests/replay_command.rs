//! `maas-replay` as users and CI call it.
#![allow(clippy::unwrap_used, clippy::expect_used, clippy::panic)]

use std::fs;
use std::path::{Path, PathBuf};
use std::process::{Command, Output};

use maas_sim::{Config, Simulator, serve};

const PROGRAM: &str = env!("CARGO_BIN_EXE_maas-replay");

fn recordings() -> PathBuf {
    Path::new(env!("CARGO_MANIFEST_DIR")).join("tests/recordings")
}

fn replay(arguments: &[&str], folder: &Path) -> (Output, Vec<String>) {
    let output = Command::new(PROGRAM).args(arguments).arg(folder).env("NO_PROXY", "*").output().unwrap();
    let lines = String::from_utf8_lossy(&output.stdout).lines().map(str::to_owned).collect();
    (output, lines)
}

#[test]
fn every_exchange_gets_a_line_and_the_last_line_is_the_total() {
    let exceptions = recordings().join("exceptions.yaml");
    let (output, lines) = replay(&["--exceptions", exceptions.to_str().unwrap()], &recordings());
    assert!(output.status.success(), "{}", String::from_utf8_lossy(&output.stderr));
    let (total, exchanges) = lines.split_last().unwrap();
    assert!(exchanges.len() > 1000);
    assert!(exchanges.iter().all(|line| line.contains(": ")), "{exchanges:?}");
    let agreeing = exchanges.iter().filter(|line| line.ends_with(": agrees")).count();
    assert!(total.starts_with(&format!("{agreeing} of {} exchanges agree", exchanges.len())), "{total}");
    let known = exchanges.iter().filter(|line| line.contains("(known: ")).count();
    assert_eq!(known, exchanges.len() - agreeing, "every difference is a known one");
}

#[tokio::test(flavor = "multi_thread")]
async fn a_simulator_that_runs_elsewhere_can_be_driven_as_well() {
    let simulator = Simulator::new(Config::driven("a:b:c".parse().unwrap()));
    let (listener, address) = serve::listen("127.0.0.1:0".parse().unwrap()).await.unwrap();
    tokio::spawn(serve::serve(simulator, listener));
    let url = format!("http://{address}");
    let replayed = move || replay(&["--quiet", "--endpoint", &url, "--api-key", "a:b:c"], &recordings());
    let (output, lines) = tokio::task::spawn_blocking(replayed).await.unwrap();
    assert!(output.status.success(), "{lines:#?}\n{}", String::from_utf8_lossy(&output.stderr));
}

#[test]
fn what_differs_is_said_and_ends_in_an_error() {
    let folder = tempfile::tempdir().unwrap();
    let recording = r#"{"name": "001-teapot", "request": {"method": "GET", "path": "/MAAS/api/2.0/zones/"},
        "response": {"status": 418, "headers": {"Content-Type": "text/plain"}, "body": "short and stout"}}"#;
    fs::write(folder.path().join("001-teapot.json"), recording).unwrap();
    let (output, lines) = replay(&[], folder.path());
    assert!(!output.status.success());
    let said = "001-teapot: GET /MAAS/api/2.0/zones/: status: recorded 418 (short and stout), simulated 200";
    assert_eq!(lines, [said, "0 of 1 exchanges agree (0.0 %), 1 differ"]);
}

#[test]
fn an_arrangement_beside_the_recordings_is_taken_with_the_folder() {
    let folder = tempfile::tempdir().unwrap();
    let recording = r#"{"name": "001-release", "request": {"method": "POST", "path": "/MAAS/api/2.0/machines/abc123/",
        "query": {"op": "release"}, "as": "the owner"}, "response": {"status": 403, "headers":
        {"Content-Type": "text/plain; charset=utf-8"}, "body": ""}}"#;
    fs::write(folder.path().join("001-release.json"), recording).unwrap();
    let (without, lines) = replay(&[], folder.path());
    assert!(!without.status.success() && lines[0].contains("simulated 404"), "{lines:?}");
    let arrangement = "- before: 1\n  because: A machine that is locked had been set up.\n  callers: {the owner: alice}\n  state:\n    \
        - user alice exists, admin false\n    - bm05 (abc123) is Deployed, owner alice, locked true\n";
    fs::write(folder.path().join("lab.arrange.yaml"), arrangement).unwrap();
    let (with, lines) = replay(&[], folder.path());
    assert!(with.status.success(), "{lines:?}");
}

#[test]
fn an_arrangement_that_does_not_fit_is_reported_and_only_the_share_decides() {
    let folder = tempfile::tempdir().unwrap();
    let recording = r#"{"name": "001-missing", "request": {"method": "GET", "path": "/MAAS/api/2.0/machines/zzzzzz/"},
        "response": {"status": 404, "headers": {"Content-Type": "text/plain"},
        "body": "No Machine matches the given query."}}"#;
    fs::write(folder.path().join("001-missing.json"), recording).unwrap();
    let arrangement = "- before: 1\n  because: A deployment is said to end that never does.\n  state:\n    \
        - bm05 (abc123) is Deploying, owner admin\n    - bm05 (abc123) is Deployed, owner admin\n";
    fs::write(folder.path().join("lab.arrange.yaml"), arrangement).unwrap();
    let (output, lines) = replay(&[], folder.path());
    assert!(lines.iter().any(|line| line.contains("bm05")), "{lines:?}");
    assert_eq!(lines.last().map(String::as_str), Some("1 of 1 exchanges agree (100.0 %), 0 differ"));
    assert!(output.status.success(), "{}", String::from_utf8_lossy(&output.stderr));
}
