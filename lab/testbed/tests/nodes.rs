//! Machines that really boot: their disks, their power, and that nothing of them outlives the process that started
//! them.
#![allow(clippy::unwrap_used, clippy::expect_used, clippy::panic)]

use std::{
    fs,
    io::{BufRead as _, BufReader},
    path::{Path, PathBuf},
    process::{Command, Stdio},
    thread::sleep,
    time::{Duration, Instant},
};

use capmaas_testbed::nodes::{KUBERNETES, Machine, NodeHost, NodeImage};

fn printed(program: &str, arguments: &[&str]) -> String {
    String::from_utf8_lossy(&Command::new(program).args(arguments).output().unwrap().stdout).into_owned()
}

/// What exists of the machines of a host, by its folder: processes, cgroups, interfaces, loop devices, files.
fn parts_of(dir: &Path) -> Vec<String> {
    let id = dir.file_name().unwrap().to_str().unwrap();
    let marker = format!("CAPMAAS_TESTBED={id}");
    let mut parts = Vec::new();
    for process in fs::read_dir("/proc").unwrap().flatten() {
        let environment = fs::read(process.path().join("environ")).unwrap_or_default();
        if environment.split(|byte| *byte == 0).any(|variable| variable == marker.as_bytes()) {
            parts.push(format!("process {}", process.file_name().display()));
        }
    }
    let named = |what: &str, lines: String, part: &str| -> Vec<String> {
        lines.lines().filter(|line| line.contains(part)).map(|line| format!("{what} {line}")).collect()
    };
    let groups = printed("find", &["/sys/fs/cgroup", "-type", "d", "-name", &format!("lxc.*{id}*")]);
    parts.extend(named("control group", groups, id));
    parts.extend(named("interface", printed("ip", &["-oneline", "link"]), id));
    parts.extend(named("namespace", printed("ip", &["netns"]), id));
    parts.extend(named("loop device", printed("losetup", &["--list"]), dir.to_str().unwrap()));
    parts.extend(named("mount", fs::read_to_string("/proc/self/mountinfo").unwrap(), dir.to_str().unwrap()));
    if dir.exists() {
        parts.push(format!("folder {}", dir.display()));
    }
    parts
}

#[test]
fn kill_9_of_the_owner_leaves_nothing_of_its_machines_behind() {
    let mut owner =
        Command::new(env!("CARGO_BIN_EXE_testbed")).args(["up", "--node"]).stdout(Stdio::piped()).spawn().unwrap();
    let lines = BufReader::new(owner.stdout.take().unwrap()).lines().map_while(Result::ok);
    let named: Option<PathBuf> =
        lines.into_iter().find_map(|line| line.strip_prefix("export NODES_DIR=").map(Into::into));
    let dir = named.expect("the machine was not started").parent().unwrap().to_owned();
    let parts = parts_of(&dir);
    for kind in ["process", "control group", "interface", "namespace", "loop device", "folder"] {
        assert!(parts.iter().any(|part| part.starts_with(kind)), "there is no {kind}: {parts:#?}");
    }
    owner.kill().unwrap();
    owner.wait().unwrap();
    let deadline = Instant::now() + Duration::from_secs(60);
    loop {
        let left = parts_of(&dir);
        if left.is_empty() {
            return;
        }
        assert!(Instant::now() < deadline, "left behind: {left:#?}");
        sleep(Duration::from_millis(200));
    }
}

#[tokio::test]
async fn a_disk_outlasts_a_power_cut_and_not_a_deployment() {
    let image = tokio::task::spawn_blocking(|| NodeImage::ensure(KUBERNETES)).await.unwrap().unwrap();
    let host = NodeHost::start(&image).await.unwrap();
    let machine = Machine {
        name: "m1".to_owned(),
        kubernetes: KUBERNETES,
        mac: "00:16:3e:00:00:03".to_owned(),
        files: vec![("/etc/installer/left".to_owned(), "this\n".to_owned())],
    };
    host.deploy(machine.clone()).await.unwrap();
    assert_eq!(host.run("m1", &["cat", "/etc/installer/left"]).await.unwrap(), "this\n");
    assert_eq!(host.run("m1", &["cat", "/sys/class/net/eth0/address"]).await.unwrap().trim(), machine.mac);
    host.run("m1", &["sh", "-c", "echo kept >/var/note && sync"]).await.unwrap();

    host.power_off("m1").await.unwrap();
    host.power_off("m1").await.unwrap();
    assert_eq!((host.running().unwrap(), host.installed().unwrap()), (vec![], vec!["m1".to_owned()]));
    host.power_on("m1").await.unwrap();
    host.power_on("m1").await.unwrap();
    assert_eq!(host.run("m1", &["cat", "/var/note"]).await.unwrap(), "kept\n");

    host.deploy(machine).await.unwrap();
    let gone = host.run("m1", &["cat", "/var/note"]).await.unwrap_err().to_string();
    assert!(gone.contains("No such file"), "{gone}");
    host.erase("m1").await.unwrap();
    host.erase("m1").await.unwrap();
    assert_eq!(host.installed().unwrap(), Vec::<String>::new());
    let nobody = host.power_on("m1").await.unwrap_err().to_string();
    assert!(nobody.contains("not found"), "{nobody}");
}
