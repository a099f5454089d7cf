//! The quick start of the book, command by command as written.
#![allow(clippy::unwrap_used, clippy::expect_used, clippy::panic)]

use std::os::unix::fs::PermissionsExt as _;
use std::path::{Path, PathBuf};
use std::sync::Arc;

use anyhow::ensure;
use capmaas_e2e::cluster::ClusterPlan;
use capmaas_e2e::maas::{API_KEY, DOMAIN, Maas, image};
use capmaas_e2e::release::make_releases;
use capmaas_e2e::{eventually, manager_player, program, repository};
use capmaas_testbed::tools::ToolSet;
use capmaas_testbed::{CapiOptions, CapiVersion, Clusterctl, KubernetesVersion, Testbed};
use serde_json::Value;

/// The Kubernetes version in the page.
const VERSION: &str = "v1.36.4";

/// The shell blocks between a heading and the next one.
fn blocks(page: &str, heading: &str) -> Vec<String> {
    let section = page.split("\n## ").find(|section| section.starts_with(heading)).expect("the heading is there");
    let found = section.split("```sh\n").skip(1).filter_map(|rest| rest.split_once("\n```"));
    found.map(|(block, _)| block.to_owned()).collect()
}

/// A shell in a user's folder, with the programs that the page names. It uses the testbed's DNS server, so it resolves
/// no names outside this machine.
struct Shell {
    folder: PathBuf,
    resolv_conf: PathBuf,
    variables: Vec<(String, String)>,
}

impl Shell {
    async fn run(&self, script: &str) -> anyhow::Result<String> {
        let output = tokio::process::Command::new("unshare")
            .args(["--mount", "--propagation", "private", "sh", "-c"])
            .arg(r#"mount --bind "$0" /etc/resolv.conf && exec "$@""#)
            .arg(&self.resolv_conf)
            .args(["bash", "-euo", "pipefail", "-c", script])
            .current_dir(&self.folder)
            .envs(self.variables.iter().cloned())
            .output()
            .await?;
        let said = format!("{}{}", String::from_utf8_lossy(&output.stdout), String::from_utf8_lossy(&output.stderr));
        ensure!(output.status.success(), "{script}\nfailed:\n{said}");
        Ok(said)
    }
}

/// Installs a program under a name in the folder of the user's programs.
fn install(bin: &Path, name: &str, target: &Path) {
    std::os::unix::fs::symlink(target, bin.join(name)).unwrap();
}

/// clusterctl of a user without a network: in addition to the page's configuration, it knows where Cluster API's own
/// components are.
fn install_clusterctl(testbed: &Testbed, home: &Path, program: &Path) {
    let known = std::fs::read(testbed.sandbox().dir().join("clusterctl/clusterctl.yaml")).unwrap();
    let known: Value = serde_json::from_slice(&known).unwrap();
    let others = known["providers"].as_array().unwrap().iter().filter(|provider| provider["name"] != "maas");
    let others = others.map(|provider| format!("  - {provider}\n")).collect::<Vec<_>>().concat();
    let beside = home.join("beside.yaml");
    std::fs::write(&beside, format!("{others}cert-manager: {}\n", known["cert-manager"])).unwrap();
    let wrapper = format!(
        "#!/bin/bash\nif [[ -f clusterctl.yaml ]] && ! grep -q cert-manager clusterctl.yaml; then\n\
         cat '{}' >>clusterctl.yaml\nfi\nexec {} \"$@\"\n",
        beside.display(),
        program.display()
    );
    let path = home.join("bin/clusterctl");
    std::fs::write(&path, wrapper).unwrap();
    std::fs::set_permissions(&path, std::fs::Permissions::from_mode(0o755)).unwrap();
}

/// A user with the programs and variables that the page asks for.
async fn user(testbed: &Testbed, maas: &Maas, page: &str, port: u16) -> Shell {
    let home = testbed.sandbox().dir().join("user");
    let bin = home.join("bin");
    std::fs::create_dir_all(&bin).unwrap();
    let tools = |set: ToolSet| tokio::task::spawn_blocking(move || set.ensure());
    let kubernetes = tools(ToolSet::Kubernetes(KubernetesVersion::V1_36)).await.unwrap().unwrap();
    let cluster_api = tools(ToolSet::ClusterApi(CapiVersion::V1_14)).await.unwrap().unwrap();
    install(&bin, "kubectl", &kubernetes.program("kubectl"));
    install(&bin, "kubectl-maas", &program("kubectl-maas").unwrap());
    install_clusterctl(testbed, &home, &cluster_api.program("clusterctl"));

    // The user fills in the first block, which lists the variables.
    let values = [
        ("RELEASE", testbed.sandbox().dir().join("release").display().to_string()),
        ("MAAS_ENDPOINT", maas.endpoint.clone()),
        ("MAAS_API_KEY", API_KEY.to_owned()),
        ("MAAS_DNS_DOMAIN", DOMAIN.to_owned()),
    ];
    let first = &blocks(page, "In your own cluster")[0];
    let named: Vec<&str> = first.lines().filter_map(|line| line.strip_prefix("export ")?.split('=').next()).collect();
    assert_eq!(named, values.clone().map(|(name, _)| name));
    let more = [
        ("PATH", format!("{}:{}", bin.display(), std::env::var("PATH").unwrap())),
        ("HOME", home.display().to_string()),
        ("XDG_CONFIG_HOME", home.join("config").display().to_string()),
        ("KUBECONFIG", testbed.kubeconfig_path().display().to_string()),
        ("CLUSTERCTL_DISABLE_VERSIONCHECK", "true".to_owned()),
        ("GOPROXY", "off".to_owned()),
        // Template variables: images and the port of the simulated machines.
        ("API_SERVER_PORT", port.to_string()),
        ("CONTROL_PLANE_MACHINE_IMAGE", image(VERSION)),
        ("WORKER_MACHINE_IMAGE", image(VERSION)),
    ];
    let variables = values.into_iter().chain(more).map(|(name, value)| (name.to_owned(), value)).collect();
    Shell { folder: home, resolv_conf: testbed.sandbox().dir().join("resolv.conf"), variables }
}

#[tokio::test]
async fn the_quick_start_works_word_for_word() {
    let page = std::fs::read_to_string(repository().join("docs/quick-start.md")).unwrap();
    let maas = Arc::new(Maas::start().unwrap());
    let builder = Testbed::builder().controller_manager(true).name_server(maas.name_server);
    let mut testbed = builder.start().await.unwrap();
    let releases = make_releases(&testbed).await.unwrap();
    // A management cluster with Cluster API, as required by the page.
    let prepared = Clusterctl::prepare(&testbed, &releases[1]).await.unwrap();
    prepared.run(["init"]).await.unwrap();
    // clusterctl tests cert-manager in a namespace that it deletes. A second run during that deletion waits forever.
    testbed.kubectl(["wait", "--for=delete", "namespace/cert-manager-test", "--timeout=300s"]).await.unwrap();
    let core = CapiVersion::V1_14;
    testbed.start_cluster_api(&CapiOptions { features: &["ClusterTopology"], ..CapiOptions::new(core) }).await.unwrap();
    let expected = maas.expect_cluster(KubernetesVersion::V1_36).await.unwrap();
    // The simulated API server has its own certificate authority; kubeadm would create one.
    testbed.apply_objects(ClusterPlan::new(core, "c1").secrets(&expected)).await.unwrap();
    let shell = user(&testbed, &maas, &page, expected.port).await;

    let install = blocks(&page, "Install it");
    assert_eq!(install.len(), 2);
    shell.run(&install[0]).await.unwrap();
    // Meanwhile a node runs the Deployment.
    let (said, player) = tokio::join!(shell.run(&install[1]), manager_player(&testbed));
    let (said, player) = (said.unwrap(), player.unwrap());
    assert!(said.contains("[ ok ] Manager") && !said.contains("[FAIL]"), "{said}");

    let printed = shell.run(&blocks(&page, "Make a cluster")[0]).await;
    if printed.is_err() {
        let kinds = "clusters,machines,maasclusters,maasmachines,kubeadmcontrolplanes,machinedeployments";
        panic!("{printed:?}\n{}", testbed.kubectl(["get", "-A", kinds, "-o", "yaml"]).await.unwrap());
    }
    let printed = printed.unwrap();
    assert!(printed.contains("MaasCluster"), "clusterctl describes it: {printed}");
    assert!(printed.contains("c1-md-0-") && printed.contains("c1-control-plane-"), "both machines: {printed}");

    shell.run(&blocks(&page, "Remove it")[0]).await.unwrap();
    eventually("every machine free again", || async {
        ensure!(maas.taken().is_empty(), "{} are taken", maas.taken().len());
        Ok(())
    })
    .await
    .unwrap();
    let kinds = testbed.kubectl(["get", "crds", "-o", "name"]).await.unwrap();
    assert!(kinds.contains("maasmachines.infrastructure"), "the kinds, and with them everybody's objects, stay");
    player.stop().await;
    testbed.stop().await;
}
