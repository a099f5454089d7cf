//! However the owner of a testbed ends, nothing of the testbed stays: no process, mount, network namespace or folder.
#![allow(clippy::unwrap_used, clippy::expect_used, clippy::panic)]

use std::{
    fs,
    io::{BufRead as _, BufReader},
    path::{Path, PathBuf},
    process::{Child, Command, Stdio},
    thread::sleep,
    time::{Duration, Instant},
};

/// What still exists of the testbed in `dir`.
fn left_of(dir: &Path) -> Vec<String> {
    let id = dir.file_name().unwrap().to_str().unwrap();
    let marker = format!("CAPMAAS_TESTBED={id}");
    let mut left = Vec::new();
    for process in fs::read_dir("/proc").unwrap().flatten() {
        let environment = fs::read(process.path().join("environ")).unwrap_or_default();
        if environment.split(|byte| *byte == 0).any(|variable| variable == marker.as_bytes()) {
            let command = fs::read_to_string(process.path().join("comm")).unwrap_or_default();
            left.push(format!("process {} {}", process.file_name().display(), command.trim()));
        }
    }
    let mounts = fs::read_to_string("/proc/self/mountinfo").unwrap();
    left.extend(mounts.lines().filter(|line| line.contains(dir.to_str().unwrap())).map(|line| format!("mount {line}")));
    let namespaces = fs::read_dir("/run/netns").into_iter().flatten().flatten();
    left.extend(namespaces.map(|n| n.path().display().to_string()).filter(|path| path.contains(id)));
    if dir.exists() {
        left.push(format!("folder {}", dir.display()));
    }
    left
}

/// Starts the command and returns it with the folders of its cluster and its LXD.
fn start_owner() -> (Child, Vec<PathBuf>) {
    let mut owner =
        Command::new(env!("CARGO_BIN_EXE_testbed")).args(["up", "--lxd"]).stdout(Stdio::piped()).spawn().unwrap();
    let mut folders: Vec<PathBuf> = Vec::new();
    for line in BufReader::new(owner.stdout.take().unwrap()).lines() {
        let line = line.unwrap();
        if let Some((_, path)) = line.strip_prefix("export ").and_then(|rest| rest.split_once('=')) {
            folders.push(Path::new(path).parent().unwrap().to_owned());
        } else if line.starts_with('#') {
            break;
        }
    }
    assert_eq!(folders.len(), 2, "the cluster and LXD are up");
    for folder in &folders {
        assert!(left_of(folder).iter().any(|what| what.starts_with("process")), "{} has no process", folder.display());
    }
    (owner, folders)
}

#[test]
fn kill_9_of_the_owner_leaves_nothing_behind() {
    let (mut owner, folders) = start_owner();
    owner.kill().unwrap();
    owner.wait().unwrap();
    let deadline = Instant::now() + Duration::from_secs(30);
    loop {
        let left: Vec<String> = folders.iter().flat_map(|folder| left_of(folder)).collect();
        if left.is_empty() {
            return;
        }
        assert!(Instant::now() < deadline, "left behind: {left:#?}");
        sleep(Duration::from_millis(100));
    }
}

#[test]
fn what_a_killed_guard_left_behind_is_cleared_away_on_request() {
    let (mut owner, folders) = start_owner();
    let guards = fs::read_dir("/proc").unwrap().flatten().filter(|process| {
        let words = fs::read_to_string(process.path().join("cmdline")).unwrap_or_default();
        words.contains("capmaas-testbed-guard") && folders.iter().any(|folder| words.contains(folder.to_str().unwrap()))
    });
    for guard in guards.map(|process| process.file_name()).collect::<Vec<_>>() {
        assert!(Command::new("kill").arg("-9").arg(guard).status().unwrap().success());
    }
    owner.kill().unwrap();
    owner.wait().unwrap();
    assert!(folders.iter().all(|folder| !left_of(folder).is_empty()), "there is nothing to clear away");
    assert!(Command::new(env!("CARGO_BIN_EXE_testbed")).arg("clean").status().unwrap().success());
    let left: Vec<String> = folders.iter().flat_map(|folder| left_of(folder)).collect();
    assert!(left.is_empty(), "left behind: {left:#?}");
}
