//! `plan` beside a cluster that runs: what it reads, and when it has no answer.

use std::io::Write as _;
use std::process::{Output, Stdio};

use serde_json::{Value, json};

use crate::kubernetes::{Api, run};
use crate::{CLUSTER, Site, succeeded, text};

/// A management cluster with the cluster of the file.
fn existing(site: &Site) -> Api {
    let documents: Vec<Value> = serde_saphyr::from_multiple(CLUSTER).unwrap();
    let objects = documents.into_iter().map(|mut object| {
        object["metadata"]["namespace"] = json!("default");
        object["apiVersion"] = json!("any/v1beta1");
        let resource = match object["kind"].as_str().unwrap() {
            "Cluster" => "clusters",
            "MaasCluster" => "maasclusters",
            "KubeadmControlPlane" => "kubeadmcontrolplanes",
            _ => "maasmachinetemplates",
        };
        (resource, object)
    });
    Api::start(site, &objects.collect::<Vec<_>>())
}

/// It exits with 2, prints nothing, and says why.
fn refused(output: &Output, why: &str) {
    assert_eq!((output.status.code(), text(&output.stdout).as_str()), (Some(2), ""), "{output:?}");
    assert!(text(&output.stderr).contains(why), "{why}: {}", text(&output.stderr));
}

#[test]
fn manifests_without_anything_to_plan_do_not_fit() {
    let site = Site::start();
    let _api = existing(&site);
    let write = |name: &str, text: &str| {
        let path = site.file(name);
        std::fs::write(&path, text).unwrap();
        path
    };
    let folder = site.file("folder");
    std::fs::create_dir_all(format!("{folder}/inner")).unwrap();
    std::fs::copy(site.file("cluster.yaml"), format!("{folder}/inner/cluster.yaml")).unwrap();
    let empty = write("empty.yaml", "# nothing\n---\n");
    let config = write("config.yaml", "apiVersion: v1\nkind: ConfigMap\nmetadata: {name: a}\n");
    refused(&run(&site, &["plan", "-f", &empty]), "holds no object");
    refused(&run(&site, &["plan", "-f", &folder]), "folders in it are not read");
    refused(&run(&site, &["plan", "-f", &config]), "only ConfigMap");
    refused(&run(&site, &["plan", "-f", &site.file("cluster.yaml"), "-f", &empty]), "holds no object");
    for input in ["", "\n---\n# clusterctl failed\n"] {
        let mut command = site.command(&["plan", "-f", "-"]);
        command.env("KUBECONFIG", site.file("kubeconfig"));
        command.stdin(Stdio::piped()).stdout(Stdio::piped()).stderr(Stdio::piped());
        let mut child = command.spawn().unwrap();
        child.stdin.take().unwrap().write_all(input.as_bytes()).unwrap();
        refused(&child.wait_with_output().unwrap(), "did the program that writes it fail?");
    }
    // Beside something that can be planned, other kinds are fine.
    succeeded(&run(&site, &["plan", "-f", &config, "-f", &site.file("cluster.yaml")]));
}

#[test]
fn what_clusterctl_writes_about_a_topology_is_read_without_the_originals() {
    let site = Site::start();
    let _api = existing(&site);
    let out = site.file("out");
    for folder in ["created", "modified"] {
        std::fs::create_dir_all(format!("{out}/{folder}")).unwrap();
    }
    let documents: Vec<&str> = CLUSTER.split("---").collect();
    let [_, _, control_plane, template] = documents.as_slice() else { panic!("{documents:?}") };
    let modified = control_plane.replace("replicas: 1", "replicas: 2").replace("name: cp}", "name: cp-2}");
    let name = format!("{out}/modified/KubeadmControlPlane_default_c1-cp");
    std::fs::write(format!("{name}.modified.yaml"), &modified).unwrap();
    std::fs::write(format!("{name}.original.yaml"), control_plane).unwrap();
    std::fs::write(format!("{name}.jsonpatch"), "[]").unwrap();
    let created =
        template.replace("name: cp}", "name: cp-2}").replace("8192", "1024").replace("minCPU: 4", "minCPU: 1");
    std::fs::write(format!("{out}/created/MaasMachineTemplate_default_cp-2.yaml"), created).unwrap();
    let plan = |folders: &[String]| -> Vec<Value> {
        let files = folders.iter().flat_map(|folder| ["-f", folder.as_str()]);
        let arguments: Vec<&str> = ["plan", "--json"].into_iter().chain(files).collect();
        let value: Value = serde_json::from_str(&succeeded(&run(&site, &arguments))).unwrap();
        value["steps"].as_array().unwrap().iter().map(|step| step["metal"]["hostname"].clone()).collect()
    };
    assert_eq!(plan(std::slice::from_ref(&out)), ["m2", "m1"], "two machines of the new template");
    assert_eq!(plan(&[format!("{out}/created"), format!("{out}/modified")]), ["m2", "m1"]);
}

#[test]
fn a_cluster_that_cannot_be_read_is_not_one_without_machines() {
    let site = Site::start();
    let api = existing(&site);
    let file = site.file("cluster.yaml");
    let plan = ["plan", "-f", &file];
    let with = |more: &[&str]| run(&site, &[&plan[..], more].concat());
    succeeded(&with(&[]));
    refused(&with(&["--context", "nowhere"]), "--context");
    refused(&with(&["--kubeconfig", &site.file("missing")]), "--kubeconfig");
    refused(&site.run(&["plan", "-f", &file, "--context", "c"]), "--context");
    for resource in ["machines", "machinedeployments", "maasmachines"] {
        *api.refused.lock().unwrap() = vec![resource];
        refused(&with(&[]), "you lack the permission to list");
    }
    *api.refused.lock().unwrap() = vec!["machinehealthchecks"];
    succeeded(&with(&[]));
    let lost: Value = serde_json::from_slice(&run(&site, &["plan", "--without", "default", "--json"]).stdout).unwrap();
    assert!(lost["notes"].to_string().contains("you lack the permission to list MachineHealthCheck"), "{lost:#}");
    // Without any kubeconfig there is no cluster, and a message says so.
    for nothing in ["/dev/null", &site.file("missing")] {
        let output = site.command(&plan).env("KUBECONFIG", nothing).output().unwrap();
        succeeded(&output);
        assert!(text(&output.stderr).contains("planning as if Kubernetes had no machines yet"), "{output:?}");
    }
    // One that names a cluster that does not answer, or that nobody can read, is an error.
    let config = std::fs::read_to_string(site.file("kubeconfig")).unwrap();
    let server: Value = serde_json::from_str(&config).unwrap();
    let server = server["clusters"][0]["cluster"]["server"].as_str().unwrap();
    for broken in [config.replace(server, "http://127.0.0.1:1"), "{".to_owned()] {
        std::fs::write(site.file("broken"), broken).unwrap();
        let output = site.command(&plan).env("KUBECONFIG", site.file("broken")).output().unwrap();
        refused(&output, "kubectl maas: ");
    }
}

#[test]
fn a_cluster_is_compared_with_what_runs_in_the_namespace_that_its_file_names() {
    let site = Site::start();
    let api = existing(&site);
    let file = site.file("prod.yaml");
    std::fs::write(&file, CLUSTER.replace("metadata: {name:", "metadata: {namespace: prod, name:")).unwrap();
    api.asked.lock().unwrap().clear();
    run(&site, &["plan", "-f", &file]);
    let asked = api.asked.lock().unwrap().clone();
    let read = |namespace: &str, resource: &str| {
        asked.iter().any(|path| path.ends_with(&format!("/namespaces/{namespace}/{resource}")))
    };
    for resource in ["clusters", "machines", "maasmachines", "kubeadmcontrolplanes", "machinehealthchecks"] {
        assert!(read("prod", resource) && read("default", resource), "{resource}: {asked:?}");
    }
    // In all namespaces they are read once.
    api.asked.lock().unwrap().clear();
    run(&site, &["plan", "-f", &file, "-A"]);
    assert!(!api.asked.lock().unwrap().iter().any(|path| path.contains("/namespaces/")));
}

#[test]
fn a_control_plane_is_compared_in_the_version_of_its_file() {
    let site = Site::start();
    let api = existing(&site);
    for version in ["v1beta1", "v1beta2"] {
        let group = "controlplane.cluster.x-k8s.io";
        let control_plane = format!("apiVersion: {group}/{version}\nkind: KubeadmControlPlane");
        std::fs::write(
            site.file("old.yaml"),
            CLUSTER.replace("kind: KubeadmControlPlane\n", &format!("{control_plane}\n")),
        )
        .unwrap();
        api.asked.lock().unwrap().clear();
        succeeded(&run(&site, &["plan", "-f", &site.file("old.yaml")]));
        let asked = api.asked.lock().unwrap();
        let asked: Vec<&String> = asked.iter().filter(|path| path.contains("kubeadmcontrolplanes")).collect();
        assert_eq!(asked, [&format!("/apis/{group}/{version}/namespaces/default/kubeadmcontrolplanes")]);
    }
}
