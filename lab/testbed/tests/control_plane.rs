//! etcd, kube-apiserver and kube-controller-manager start, answer and stop.
#![allow(clippy::unwrap_used, clippy::expect_used, clippy::panic)]

use capmaas_testbed::{KubernetesVersion, SharedTestbed, Testbed};
use k8s_openapi::api::core::v1::{ConfigMap, Namespace};
use kube::{
    Api,
    api::{ListParams, PostParams},
};

#[tokio::test]
async fn two_testbeds_run_side_by_side_and_share_nothing() {
    let version = KubernetesVersion::from_env().unwrap();
    let (one, two) =
        tokio::join!(Testbed::builder().kubernetes(version).start(), Testbed::builder().kubernetes(version).start());
    let (one, two) = (one.unwrap(), two.unwrap());
    let served = one.client().unwrap().apiserver_version().await.unwrap();
    assert_eq!(served.git_version, version.as_str());

    one.check().unwrap();
    one.apply_yaml("{apiVersion: v1, kind: Namespace, metadata: {name: only-in-one}}").await.unwrap();
    let in_one: Api<Namespace> = Api::all(one.client().unwrap());
    let in_two: Api<Namespace> = Api::all(two.client().unwrap());
    assert!(in_one.get_opt("only-in-one").await.unwrap().is_some());
    assert!(in_two.get_opt("only-in-one").await.unwrap().is_none());

    let folders = [one.sandbox().dir().to_owned(), two.sandbox().dir().to_owned()];
    one.stop().await;
    drop(two);
    for folder in folders {
        assert!(!folder.exists(), "{} is left behind", folder.display());
    }
}

/// Each test has a runtime of its own; the testbed outlives them all.
static SHARED: SharedTestbed = SharedTestbed::new(|| {
    Testbed::builder().kubernetes(KubernetesVersion::from_env().unwrap()).controller_manager(true)
});

#[tokio::test]
async fn a_manifest_may_hold_a_kind_and_an_object_of_it() {
    let testbed = SHARED.get().await.unwrap();
    testbed.apply_yaml(include_str!("manifests/widget.yaml")).await.unwrap();
    let printed = testbed.kubectl(["get", "widgets", "-o", "name"]).await.unwrap();
    assert_eq!(printed.trim(), "widget.example.test/first");
    let refused = testbed.kubectl(["get", "gadgets"]).await.unwrap_err().to_string();
    assert!(refused.contains("the server doesn't have a resource type"), "{refused}");
}

#[tokio::test]
async fn a_service_account_has_only_the_rights_that_it_was_given() {
    let testbed = SHARED.get().await.unwrap();
    testbed.apply_yaml(include_str!("manifests/reader.yaml")).await.unwrap();
    let client = testbed.service_account_client("reading", "reader").await.unwrap();
    let config_maps: Api<ConfigMap> = Api::namespaced(client.clone(), "reading");
    // The controller manager publishes the certificate authority in each namespace.
    let names: Vec<_> = config_maps.list(&ListParams::default()).await.unwrap().items;
    assert!(names.iter().all(|c| c.metadata.name.is_some()));
    let refused = config_maps.create(&PostParams::default(), &ConfigMap::default()).await.unwrap_err();
    assert!(matches!(&refused, kube::Error::Api(status) if status.is_forbidden()), "{refused}");
}

#[tokio::test]
async fn an_api_server_may_stand_where_a_machine_is_expected_and_a_dead_one_is_told() {
    // Every address of 127.0.0.0/8 is local: a second testbed can be the workload cluster of a machine of the first.
    let address: std::net::IpAddr = "127.20.0.7".parse().unwrap();
    let port = std::net::TcpListener::bind((address, 0)).unwrap().local_addr().unwrap().port();
    let version = KubernetesVersion::from_env().unwrap();
    let builder = Testbed::builder().kubernetes(version).listen(address, port).certificate_name("node.maas");
    let testbed = builder.start().await.unwrap();
    assert_eq!(testbed.api_server(), (address, port).into());
    testbed.kubectl(["get", "namespaces"]).await.unwrap();
    let named = [format!("--server=https://{address}:{port}"), "--tls-server-name=node.maas".into(), "version".into()];
    testbed.kubectl(named).await.unwrap();

    let api_server = testbed.processes().find(|process| process.name() == "kube-apiserver").unwrap();
    api_server.kill();
    let told = testbed.check().unwrap_err().to_string();
    assert!(told.starts_with("kube-apiserver ended (signal: 9 (SIGKILL)). The end of its log:\n"), "{told}");
}
