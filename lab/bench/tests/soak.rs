//! A short soak, for the gate: failures for half a minute, and then everything agrees. The long one is `make soak`.
#![allow(clippy::unwrap_used, clippy::expect_used, clippy::panic)]

use std::path::Path;
use std::time::Duration;

use capmaas_bench::provider::our_manager;
use capmaas_bench::soak::{Plan, soak};

#[tokio::test(flavor = "multi_thread")]
async fn after_faults_outages_and_kills_maas_and_kubernetes_agree_exactly() {
    let _ = rustls::crypto::ring::default_provider().install_default();
    let plan = Plan {
        provider: our_manager().unwrap(),
        crds: Path::new(env!("CARGO_MANIFEST_DIR")).join("../../config/crd"),
        trouble: Duration::from_secs(30),
        seed: 1,
        machines: 10,
        // After a lost answer the manager waits 150 s before it sends anything else.
        patience: Duration::from_secs(400),
    };
    let tally = soak(&plan).await.unwrap();
    // A failure that did not happen proves nothing.
    assert!(tally.kills > 0 && tally.struck > 0 && tally.outages > 0, "{tally:?}");
    assert!(tally.created > tally.deleted && tally.deleted > 0, "{tally:?}");
}
