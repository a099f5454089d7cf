//! Garbage collection of key pairs.

use std::time::Duration;

use capmaas_api::MaasCluster;
use k8s_openapi::api::core::v1::Secret;
use kube::api::{DeleteParams, ListParams, PartialObjectMeta, Preconditions};
use kube::{Api, Client, ResourceExt as _};

use super::{PAIR_LABEL, PAIR_OF};
use crate::kubernetes::says_absent;
use crate::lease::Fence;

const SWEEP: Duration = Duration::from_secs(600);

/// Deletes the key pairs of MaasClusters that are gone. An owner reference cannot do that, because it cannot cross
/// namespaces.
pub(crate) async fn sweep_pairs(client: Client, home: &str, fence: Fence) {
    loop {
        tokio::time::sleep(SWEEP).await;
        if let Err(error) = sweep(&client, home, &fence).await {
            tracing::warn!(%error, "cannot delete unused key pairs of LXD hosts");
        }
    }
}

/// Deletes the pairs whose MaasCluster the API server reports as absent.
///
/// Crash safety: a deleted pair is gone, and a later MaasCluster of that name gets a new one.
pub async fn sweep(client: &Client, home: &str, fence: &Fence) -> kube::Result<()> {
    let secrets: Api<Secret> = Api::namespaced(client.clone(), home);
    // Metadata only: the keys are not needed for this.
    let pairs: Vec<PartialObjectMeta<Secret>> =
        secrets.list_metadata(&ListParams::default().labels(PAIR_LABEL)).await?.items;
    for pair in pairs {
        let of = pair.annotations().get(PAIR_OF).and_then(|of| of.split_once('/'));
        let Some((namespace, name)) = of else { continue };
        let clusters: Api<MaasCluster> = Api::namespaced(client.clone(), namespace);
        // Only if the API server says so: a manager limited to one namespace may not even read others.
        if says_absent(&clusters.get(name).await) && fence.check().is_ok() {
            let preconditions = Preconditions { uid: pair.uid(), resource_version: None };
            let params = DeleteParams { preconditions: Some(preconditions), ..DeleteParams::default() };
            secrets.delete(&pair.name_any(), &params).await?;
            tracing::info!(cluster = %format!("{namespace}/{name}"), "deleted the key pair of its LXD hosts");
        }
    }
    Ok(())
}
