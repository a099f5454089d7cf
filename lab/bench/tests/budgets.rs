//! The requests to a MAAS that is as slow as a real one, compared with their budgets.
#![allow(clippy::unwrap_used, clippy::expect_used, clippy::panic)]

use std::path::Path;

use capmaas_bench::budgets::{Budget, markdown, measure};
use capmaas_bench::provider::our_manager;

#[tokio::test(flavor = "multi_thread")]
async fn maas_is_asked_no_more_than_its_budget_allows() {
    let _ = rustls::crypto::ring::default_provider().install_default();
    let crds = Path::new(env!("CARGO_MANIFEST_DIR")).join("../../config/crd");
    let budgets = measure(&our_manager().unwrap(), &crds).await.unwrap();
    println!("{}", markdown(&budgets));
    let broken: Vec<&Budget> = budgets.iter().filter(|budget| !budget.is_kept()).collect();
    assert!(broken.is_empty(), "{broken:#?}");
}
