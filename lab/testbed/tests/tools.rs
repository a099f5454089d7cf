//! The tools: built once for all, and a clear error message when they cannot be.
#![allow(clippy::unwrap_used, clippy::expect_used, clippy::panic)]

use std::{
    fs,
    os::unix::fs::PermissionsExt as _,
    path::Path,
    process::{Command, Output},
};

use capmaas_testbed::nodes::KUBERNETES;
use capmaas_testbed::tools::{LXD_PACKAGES, Supply, ToolSet};

/// `testbed tools` for the smallest set, with its own cache.
fn testbed_tools(cache: &Path, path: &str) -> Command {
    let mut command = Command::new(env!("CARGO_BIN_EXE_testbed"));
    command.args(["tools", "--set", &ToolSet::Etcd.to_string().replace(' ', "-")]);
    command.env("CAPMAAS_CACHE", cache).env("PATH", path);
    command
}

fn complaint(output: &Output) -> String {
    assert!(!output.status.success(), "it must fail");
    String::from_utf8_lossy(&output.stderr).into_owned()
}

#[test]
fn without_go_and_with_an_empty_cache_one_sentence_says_what_to_do() {
    let cache = tempfile::tempdir().unwrap();
    let said = complaint(&testbed_tools(cache.path(), "/nowhere").output().unwrap());
    assert_eq!(
        said.trim(),
        "testbed: go is not in PATH, which stopped building etcd v3.5.21 etcd: install Go 1.26 or newer, or point \
         CAPMAAS_CACHE at a cache that `testbed tools` filled"
    );
}

#[test]
fn an_unreachable_proxy_is_named() {
    let cache = tempfile::tempdir().unwrap();
    let output = testbed_tools(cache.path(), &std::env::var("PATH").unwrap())
        .env("GOPROXY", "http://127.0.0.1:9")
        .env("GOMODCACHE", cache.path().join("modules"))
        .env("GOTOOLCHAIN", "local")
        .output()
        .unwrap();
    let said = complaint(&output);
    assert!(said.contains("testbed: the Go module proxy (GOPROXY: http://127.0.0.1:9) cannot be reached"), "{said}");
}

#[test]
fn an_unknown_set_is_refused_and_the_known_ones_are_named() {
    let output = Command::new(env!("CARGO_BIN_EXE_testbed")).args(["tools", "--set", "etcd"]).output().unwrap();
    let said = complaint(&output);
    assert!(
        said.contains(
            "there is no set \"etcd\": choose from lxd-packages, test-packages, etcd-v3.5.21, kubernetes-v1.36.4"
        ),
        "{said}"
    );
}

#[test]
fn two_runs_at_once_build_once_and_an_interrupted_build_is_not_taken_for_a_finished_one() {
    let dir = tempfile::tempdir().unwrap();
    let (cache, bin, builds) = (dir.path().join("cache"), dir.path().join("bin"), dir.path().join("builds"));
    fs::create_dir_all(&bin).unwrap();
    // A fake go: records each build, takes some time, and writes the requested output.
    let go = format!(
        "#!/bin/sh\necho build >>{}\nsleep 1\nwhile [ \"$1\" != -o ]; do shift; done\necho built >\"$2\"\n",
        builds.display()
    );
    fs::write(bin.join("go"), go).unwrap();
    fs::set_permissions(bin.join("go"), fs::Permissions::from_mode(0o755)).unwrap();
    let set = cache.join("tools/etcd-v3.5.21");
    fs::create_dir_all(&set).unwrap();
    fs::write(set.join(".etcd.partial"), "half").unwrap();

    let path = format!("{}:{}", bin.display(), std::env::var("PATH").unwrap());
    let start = || testbed_tools(&cache, &path).stderr(std::process::Stdio::piped()).spawn().unwrap();
    let runs = [start(), start()].map(|run| run.wait_with_output().unwrap());
    let said = runs.map(|run| {
        let said = String::from_utf8_lossy(&run.stderr).into_owned();
        assert!(run.status.success(), "{said}");
        said
    });
    assert_eq!(fs::read_to_string(set.join("etcd")).unwrap(), "built\n");
    assert_eq!(fs::read_to_string(&builds).unwrap(), "build\n", "{said:?}");
    let shown = said.concat();
    assert!(shown.contains("building etcd v3.5.21 etcd: done in"), "{shown}");
    assert!(shown.contains("waiting for another run that prepares etcd v3.5.21"), "{shown}");
}

#[test]
fn without_lxd_one_sentence_says_what_to_install_and_nothing_stays() {
    // A PATH with everything but LXD.
    let bin = tempfile::tempdir().unwrap();
    for dir in ["/usr/sbin", "/usr/bin"] {
        for program in fs::read_dir(dir).unwrap().flatten() {
            let link = bin.path().join(program.file_name());
            if program.file_name() != "lxd" && !link.is_symlink() {
                std::os::unix::fs::symlink(program.path(), link).unwrap();
            }
        }
    }
    let root = tempfile::tempdir().unwrap();
    let mut command = Command::new(env!("CARGO_BIN_EXE_testbed"));
    let output = command.args(["up", "--lxd"]).env("PATH", bin.path()).env("TMPDIR", root.path()).output().unwrap();
    let said = complaint(&output);
    let expected = "testbed: lxd is not in PATH: run `testbed tools`, or install the Debian package lxd";
    assert!(said.trim().ends_with(expected), "{said}");
    assert_eq!(fs::read_dir(root.path().join("capmaas-testbed")).unwrap().count(), 0);
}

#[test]
fn only_the_debian_packages_that_are_absent_are_installed_after_an_update() {
    let dir = tempfile::tempdir().unwrap();
    let (bin, calls) = (dir.path().join("bin"), dir.path().join("calls"));
    fs::create_dir_all(&bin).unwrap();
    let installed: Vec<String> =
        LXD_PACKAGES.iter().filter(|name| **name != "ovmf").map(|name| format!("{name} installed")).collect();
    // A fake dpkg-query, which knows all packages but one, and a fake apt-get, which records its arguments.
    for (name, script) in [
        ("dpkg-query", format!("#!/bin/sh\nprintf '%s\\n' '{}' 'ovmf not-installed'\n", installed.join("' '"))),
        ("apt-get", format!("#!/bin/sh\necho \"$@\" >>{}\n", calls.display())),
    ] {
        fs::write(bin.join(name), script).unwrap();
        fs::set_permissions(bin.join(name), fs::Permissions::from_mode(0o755)).unwrap();
    }
    let output = Command::new(env!("CARGO_BIN_EXE_testbed"))
        .args(["tools", "--set", "lxd-packages"])
        .env("PATH", format!("{}:{}", bin.display(), std::env::var("PATH").unwrap()))
        .env("CAPMAAS_CACHE", dir.path())
        .output()
        .unwrap();
    assert!(output.status.success(), "{}", String::from_utf8_lossy(&output.stderr));
    assert_eq!(fs::read_to_string(calls).unwrap(), "update\ninstall --yes --no-install-recommends ovmf\n");
}

#[test]
fn the_demo_needs_three_of_the_tool_sets_and_the_image_of_nodes_which_the_gate_does_not() {
    let demo = Supply::of_demo();
    let sets = demo.iter().filter(|supply| matches!(supply, Supply::Set(_))).count();
    assert_eq!((sets, demo.contains(&Supply::TestPackages)), (3, false), "{demo:?}");
    let besides: Vec<&Supply> = demo.iter().filter(|supply| !Supply::of_gate().contains(supply)).collect();
    assert_eq!(
        besides,
        [&Supply::NodeImage(KUBERNETES)],
        "the gate boots no nodes; all else that the demo starts is brought for tests too"
    );
}

#[test]
fn what_is_there_is_not_brought_again_and_what_is_not_is_named_with_the_time_it_takes() {
    let cache = tempfile::tempdir().unwrap();
    let said = testbed_tools(cache.path(), "/nowhere").output().unwrap();
    let said = String::from_utf8(said.stdout).unwrap();
    assert_eq!(said, "etcd-v3.5.21 will be made ready, once: about 1 min on two free cores\n");
    let set = cache.path().join("tools/etcd-v3.5.21");
    fs::create_dir_all(&set).unwrap();
    fs::write(set.join("etcd"), "built").unwrap();
    let output = testbed_tools(cache.path(), "/nowhere").output().unwrap();
    assert!(output.status.success() && output.stdout.is_empty(), "{output:?}");
}
