//! A real LXD runs here, with VM support, several at once.
#![allow(clippy::unwrap_used, clippy::expect_used, clippy::panic)]

use std::{
    net::{Ipv4Addr, TcpListener, TcpStream},
    path::Path,
    process::Command,
};

use capmaas_testbed::{LxdDaemon, LxdOptions};

/// Runs LXD's own command-line client on a daemon.
fn lxc(daemon: &LxdDaemon, args: &[&str]) -> String {
    let mut command = daemon.sandbox().command("lxc");
    command.args(args).env("LXD_DIR", daemon.dir()).env("LXD_CONF", daemon.sandbox().dir().join("lxc"));
    let output = command.output().unwrap();
    assert!(output.status.success(), "{}", String::from_utf8_lossy(&output.stderr));
    String::from_utf8(output.stdout).unwrap()
}

#[tokio::test]
async fn two_daemons_run_side_by_side_and_report_vm_support() {
    let (one, two) = tokio::join!(LxdDaemon::start(LxdOptions::default()), LxdDaemon::start(LxdOptions::default()));
    let (one, two) = (one.unwrap(), two.unwrap());
    for daemon in [&one, &two] {
        let server = daemon.server().await.unwrap();
        assert_eq!(server["auth"], "trusted");
        let drivers = server["environment"]["driver"].as_str().unwrap();
        assert!(drivers.contains("qemu"), "{drivers}");
        assert!(server["environment"]["server_version"].as_str().unwrap().starts_with("5.0."), "{server}");
    }

    // A bridge in the network of one is neither in the other's nor in the machine's.
    one.run_in_network(["ip", "link", "add", "br-only-one", "type", "bridge"]).unwrap();
    assert!(one.run_in_network(["ip", "link", "show", "br-only-one"]).is_ok());
    assert!(two.run_in_network(["ip", "link", "show", "br-only-one"]).is_err());
    assert!(!Path::new("/sys/class/net/br-only-one").exists());

    let left = [one.sandbox().dir().to_owned(), two.sandbox().dir().to_owned()];
    let namespaces = [one.network_namespace().unwrap(), two.network_namespace().unwrap()];
    one.stop().await;
    drop(two);
    for folder in left {
        assert!(!folder.exists(), "{} is left behind", folder.display());
    }
    let there = String::from_utf8(Command::new("ip").args(["netns", "list"]).output().unwrap().stdout).unwrap();
    assert!(namespaces.iter().all(|name| !there.contains(name)), "{there}");
}

#[tokio::test]
async fn a_daemon_comes_back_with_what_it_had_after_a_crash() {
    let mut daemon = LxdDaemon::start(LxdOptions::default()).await.unwrap();
    lxc(&daemon, &["storage", "create", "fast", "btrfs", "size=200MiB"]);
    daemon.kill();
    assert!(daemon.server().await.is_err());
    daemon.restart().await.unwrap();
    assert!(lxc(&daemon, &["storage", "list", "--format", "csv"]).contains("fast"));
    let folder = daemon.sandbox().dir().to_owned();
    drop(daemon);
    assert!(!folder.exists());
    let loops = String::from_utf8(Command::new("losetup").arg("-a").output().unwrap().stdout).unwrap();
    assert!(!loops.contains(folder.to_str().unwrap()), "{loops}");
}

#[tokio::test]
async fn a_daemon_can_be_told_to_have_no_vm_support() {
    let options = LxdOptions { virtual_machines: false, ..LxdOptions::default() };
    let daemon = LxdDaemon::start(options).await.unwrap();
    let server = daemon.server().await.unwrap();
    assert_eq!(server["environment"]["driver"], "lxc");
    daemon.stop().await;
}

#[tokio::test]
async fn a_daemon_on_the_machines_network_can_be_reached_over_it() {
    let options = LxdOptions { host_network: true, ..LxdOptions::default() };
    let daemon = LxdDaemon::start(options).await.unwrap();
    let port = TcpListener::bind((Ipv4Addr::LOCALHOST, 0)).unwrap().local_addr().unwrap().port();
    lxc(&daemon, &["config", "set", "core.https_address", &format!("127.0.0.1:{port}")]);
    assert!(TcpStream::connect((Ipv4Addr::LOCALHOST, port)).is_ok());
    daemon.stop().await;
    assert!(TcpStream::connect((Ipv4Addr::LOCALHOST, port)).is_err());
}
