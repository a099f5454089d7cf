//! What `kubectl get` and `kubectl explain` tell.

use crate::server::{Server, documents, kubectl};

#[tokio::test]
async fn kubectl_get_tells_what_a_person_wants_first() {
    let server = Server::with_namespace("columns").await;
    let machine = documents("crates/api/tests/fixtures/documents/004-design.yaml").remove(0);
    server.create(&machine).await.unwrap();
    server.merge_status("MaasMachine", "control-plane-vm", &machine["status"]).await.unwrap();

    let narrow = kubectl(&["get", "maasm", "-n", "columns"]).await;
    let words: Vec<&str> = narrow.lines().next().unwrap().split_whitespace().collect();
    assert_eq!(words, ["NAME", "CLUSTER", "MODE", "STATE", "ZONE", "HOST", "READY", "PROVIDERID", "AGE"]);
    for told in ["lxd", "Deployed", "az-a", "lxd-host-1", "maas-lxd://az-a/y3b3x3"] {
        assert!(narrow.contains(told), "{narrow}");
    }

    let wide = kubectl(&["get", "maasmachines", "-n", "columns", "-o", "wide"]).await;
    for column in ["REASON", "MACHINE", "HOSTNAME", "IMAGE", "PAUSED"] {
        assert!(wide.contains(column), "{wide}");
    }
}

#[tokio::test]
async fn every_kind_has_its_short_name_and_is_in_the_category_of_cluster_api() {
    Server::with_namespace("names").await;
    let listed = kubectl(&["api-resources", "--categories=cluster-api", "--no-headers", "-o", "wide"]).await;
    for (plural, short) in [
        ("maasclusters", "maasc"),
        ("maasmachines", "maasm"),
        ("maasclustertemplates", "maasct"),
        ("maasmachinetemplates", "maasmt"),
    ] {
        let line = listed.lines().find(|line| line.split_whitespace().next() == Some(plural)).expect(plural);
        assert_eq!(line.split_whitespace().nth(1), Some(short), "{line}");
    }
}

#[tokio::test]
async fn kubectl_explain_tells_what_a_field_does() {
    Server::with_namespace("explain").await;
    let told = kubectl(&["explain", "maasmachine.spec.provisioningMode"]).await.replace('\n', " ");
    assert!(told.contains("bare-metal (a physical machine) or lxd"), "{told}");
    assert!(kubectl(&["explain", "maasclustertemplate"]).await.contains("ClusterClass"));
}
