//! The watch and the leader Lease on a real API server.
#![allow(clippy::unwrap_used, clippy::expect_used, clippy::panic)]

use std::sync::Arc;
use std::time::Duration;

use capmaas_api::MaasCluster;
use capmaas_core::lease::Timing;
use capmaas_manager::health::Liveness;
use capmaas_manager::hosts;
use capmaas_manager::identity::{CredentialCopies as _, Credentials, KubeCredentialCopies};
use capmaas_manager::kubernetes::Key;
use capmaas_manager::lease::{Election, Fence, NotLeader};
use capmaas_manager::watch::{Selection, Watch};
use capmaas_testbed::{SharedTestbed, Testbed};
use futures::StreamExt as _;
use jiff::SignedDuration;
use k8s_openapi::api::coordination::v1::Lease;
use k8s_openapi::api::core::v1::{ConfigMap, Secret};
use kube::api::{Api, DeleteParams, ListParams, Patch, PatchParams, PostParams};
use kube::{Client, ResourceExt as _};
use serde_json::json;

static SERVER: SharedTestbed = SharedTestbed::new(Testbed::builder);

const PATIENCE: Duration = Duration::from_secs(60);

async fn client() -> Client {
    SERVER.get().await.unwrap().client().unwrap()
}

fn config_map(name: &str, value: &str) -> ConfigMap {
    serde_json::from_value(json!({
        "metadata": {"name": name, "labels": {"watched": "yes"}}, "data": {"value": value},
    }))
    .unwrap()
}

type Changes = futures::stream::BoxStream<'static, Arc<ConfigMap>>;

async fn next(changes: &mut Changes) -> (String, Option<String>) {
    let object = tokio::time::timeout(PATIENCE, changes.next()).await.expect("nothing was told").unwrap();
    assert!(object.metadata.managed_fields.is_none(), "pruned");
    (object.name_any(), object.data.as_ref().and_then(|data| data.get("value").cloned()))
}

fn told(name: &str, value: &str) -> (String, Option<String>) {
    (name.to_owned(), Some(value.to_owned()))
}

#[tokio::test]
async fn every_listener_is_told_of_what_is_there_and_of_every_change_and_deletion() {
    let client = client().await;
    let api: Api<ConfigMap> = Api::namespaced(client, "default");
    let create = async |name: &str| api.create(&PostParams::default(), &config_map(name, "1")).await.unwrap();
    create("watch-a").await;
    let liveness = Liveness::default();
    let selection = Selection::labels(Some("watched=yes".to_owned()));
    let watch = Watch::start("ConfigMap", api.clone(), (), selection, &liveness);
    let mut early: Changes = watch.subscribe().boxed();
    assert_eq!(next(&mut early).await, told("watch-a", "1"));
    watch.synced().await;
    // Several tasks may wait for the same thing.
    tokio::join!(watch.synced(), watch.synced(), watch.synced());

    create("watch-b").await;
    assert_eq!(next(&mut early).await, told("watch-b", "1"));
    let mut late: Changes = watch.subscribe().boxed();
    let mut there = vec![next(&mut late).await.0, next(&mut late).await.0];
    there.sort();
    assert_eq!(there, ["watch-a", "watch-b"]);

    let patch = Patch::Merge(json!({"data": {"value": "2"}}));
    api.patch("watch-a", &PatchParams::default(), &patch).await.unwrap();
    api.delete("watch-b", &DeleteParams::default()).await.unwrap();
    for listener in [&mut early, &mut late] {
        assert_eq!(next(listener).await, told("watch-a", "2"));
        assert_eq!(next(listener).await, told("watch-b", "1"));
    }
    assert_eq!(watch.store().state().len(), 1);
    liveness.answered();
    assert!(liveness.stalled().is_empty());
}

#[tokio::test]
async fn more_objects_than_a_page_are_all_there() {
    let client = client().await;
    let api: Api<ConfigMap> = Api::namespaced(client, "default");
    for n in 0..120 {
        let mut object = config_map(&format!("page-{n}"), "1");
        object.metadata.labels = Some([("paged".to_owned(), "yes".to_owned())].into());
        api.create(&PostParams::default(), &object).await.unwrap();
    }
    let selection = Selection::labels(Some("paged=yes".to_owned()));
    let watch = Watch::start("ConfigMap", api, (), selection, &Liveness::default());
    tokio::time::timeout(PATIENCE, watch.synced()).await.unwrap();
    assert_eq!(watch.store().state().len(), 120);
}

/// Short, but an API server that is busy for a few seconds does not cost the Lease.
fn brisk() -> Timing {
    Timing {
        lease: SignedDuration::from_secs(10),
        renew_deadline: SignedDuration::from_secs(8),
        retry: SignedDuration::from_millis(300),
    }
}

#[tokio::test]
async fn s23_of_two_managers_one_leads_and_the_other_follows_when_it_dies() {
    let client = client().await;
    let candidate = || Election::new(client.clone(), "default", "election", brisk());
    let (mut first, mut second) = (candidate(), candidate());
    first.win().await;
    assert!(first.fence().check().is_ok());
    let waited = tokio::time::timeout(Duration::from_secs(12), async {
        tokio::select! {
            () = second.win() => "the second leads",
            lost = first.keep() => panic!("{lost}"),
        }
    });
    assert!(waited.await.is_err(), "the Lease is renewed, so nobody takes it");
    assert_eq!(second.fence().check(), Err(NotLeader));

    // Died without a release: another one takes over once the Lease has expired, and the dead one's fence has closed
    // before that.
    let dead = first.fence();
    tokio::time::timeout(PATIENCE, second.win()).await.unwrap();
    assert_eq!(dead.check(), Err(NotLeader));
    // It notices as soon as it is back.
    assert_eq!(tokio::time::timeout(PATIENCE, first.keep()).await.unwrap(), NotLeader);
}

#[tokio::test]
async fn s23_a_lease_that_is_given_up_is_taken_before_it_has_run_out() {
    let client = client().await;
    let lasting = Timing { lease: SignedDuration::from_mins(10), ..brisk() };
    let candidate = || Election::new(client.clone(), "default", "given-up", lasting);
    let (mut first, mut second) = (candidate(), candidate());
    first.win().await;
    first.give_up().await;
    tokio::time::timeout(PATIENCE, second.win()).await.unwrap();
    let leases: Api<Lease> = Api::namespaced(client.clone(), "default");
    let spec = leases.get("given-up").await.unwrap().spec.unwrap();
    assert_eq!(spec.lease_transitions, Some(1));
}

#[tokio::test]
async fn s23_the_lease_of_a_running_go_provider_is_waited_for() {
    let client = client().await;
    // As client-go writes it.
    let held = json!({
        "metadata": {"name": "controller-leader-election-capmaas"},
        "spec": {
            "holderIdentity": "capmaas-controller-manager-0_8a1e", "leaseDurationSeconds": 15, "leaseTransitions": 0,
            "acquireTime": "2026-11-15T20:00:00.000000Z", "renewTime": "2026-11-15T20:00:02.123456Z",
        },
    });
    let leases: Api<Lease> = Api::namespaced(client.clone(), "default");
    leases.create(&PostParams::default(), &serde_json::from_value(held).unwrap()).await.unwrap();
    let mut ours = Election::new(client, "default", capmaas_core::lease::LEASE_NAME, Timing::default());
    let won = tokio::time::timeout(Duration::from_secs(5), ours.win()).await;
    assert!(won.is_err(), "its time stamps are old, but we have not seen it unchanged for long enough");
}

#[tokio::test]
async fn s13_kept_credentials_are_secrets_in_the_managers_namespace_that_survive_a_restart() {
    let client = client().await;
    let keeper = || KubeCredentialCopies::new(client.clone(), "default");
    let credentials = |key: &str| Credentials {
        endpoint: "http://maas/MAAS".to_owned(),
        key: key.to_owned().into(),
        authority: None,
        place: "a Secret".to_owned(),
    };
    let cluster = Key::new("team", "c1");
    let first = keeper();
    first.keep(&cluster, "cluster-1".to_owned(), &credentials("a:b:c")).await.unwrap();
    first.keep(&cluster, "cluster-1".to_owned(), &credentials("a:b:d")).await.unwrap();

    let again = keeper();
    let kept = again.kept(&cluster).await.unwrap().unwrap();
    assert_eq!(kept.fingerprint(), credentials("a:b:d").fingerprint());
    let by_cluster = again.kept_for_cluster(&Key::new("team", "cluster-1")).await.unwrap().unwrap();
    assert_eq!(by_cluster.fingerprint(), kept.fingerprint());
    assert!(again.kept(&Key::new("team", "c2")).await.unwrap().is_none());
    assert_eq!(again.all().await.unwrap().len(), 1);

    again.forget(&cluster).await.unwrap();
    again.forget(&cluster).await.unwrap();
    let secrets: Api<Secret> = Api::namespaced(client, "default");
    assert!(secrets.list(&ListParams::default()).await.unwrap().items.is_empty());
}

#[tokio::test]
async fn a_key_pair_of_hosts_goes_when_its_cluster_is_gone_and_not_while_nobody_can_tell() {
    let client = client().await;
    let secrets: Api<Secret> = Api::namespaced(client.clone(), "kube-public");
    let of = "infrastructure.cluster.x-k8s.io/maas-cluster";
    let label = json!({"infrastructure.cluster.x-k8s.io/host-keys": ""});
    for (name, cluster) in [("pair-of-c1", "kube-public/c1"), ("pair-of-gone", "kube-public/gone"), ("odd", "odd")] {
        let secret = json!({"metadata": {"name": name, "labels": label, "annotations": {of: cluster}}});
        secrets.create(&PostParams::default(), &serde_json::from_value(secret).unwrap()).await.unwrap();
    }
    let other = json!({"metadata": {"name": "other", "annotations": {of: "kube-public/gone"}}});
    secrets.create(&PostParams::default(), &serde_json::from_value(other).unwrap()).await.unwrap();
    let left = async || {
        let all = secrets.list(&ListParams::default()).await.unwrap().items;
        all.iter().map(kube::ResourceExt::name_any).collect::<Vec<_>>()
    };
    // The kinds are not served yet: that does not mean that the clusters are gone (S1).
    hosts::sweep(&client, "kube-public", &Fence::open()).await.unwrap();
    assert_eq!(left().await, ["odd", "other", "pair-of-c1", "pair-of-gone"]);

    let testbed = SERVER.get().await.unwrap();
    let crd =
        concat!(env!("CARGO_MANIFEST_DIR"), "/../../config/crd/infrastructure.cluster.x-k8s.io_maasclusters.yaml");
    testbed.apply_yaml(&std::fs::read_to_string(crd).unwrap()).await.unwrap();
    let clusters: Api<MaasCluster> = Api::namespaced(client.clone(), "kube-public");
    let cluster: MaasCluster = serde_json::from_value(json!({
        "apiVersion": "infrastructure.cluster.x-k8s.io/v1beta1", "kind": "MaasCluster",
        "metadata": {"name": "c1"}, "spec": {"dnsDomain": "maas"},
    }))
    .unwrap();
    clusters.create(&PostParams::default(), &cluster).await.unwrap();
    hosts::sweep(&client, "kube-public", &Fence::open()).await.unwrap();
    assert_eq!(left().await, ["odd", "other", "pair-of-c1"]);
}
