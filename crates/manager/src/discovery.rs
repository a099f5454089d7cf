//! Which kinds the API server serves. While some are missing, the manager waits and reports that instead of crashing.

use std::time::Duration;

use capmaas_api::capi::{self, best_version};
use k8s_openapi::apimachinery::pkg::apis::meta::v1::APIGroupList;
use kube::Client;

use crate::health::{Liveness, Readiness};

/// The discovery interval while something is missing.
const ASK_AGAIN: Duration = Duration::from_secs(2);
/// How often to check whether Cluster API was upgraded while we run.
const LOOK_AGAIN: Duration = Duration::from_secs(30);
const OUR_RESOURCES: [&str; 2] = ["maasclusters", "maasmachines"];

/// Waits until our kinds and Cluster API's are served, and returns the version in which the latter are read.
pub async fn wait_for_kinds(client: &Client, readiness: &Readiness) -> &'static str {
    let mut said = String::new();
    loop {
        let sentence = match served_version(client).await {
            Ok(version) => {
                readiness.has("kinds");
                return version;
            }
            Err(sentence) => sentence,
        };
        if sentence != said {
            tracing::warn!("{sentence}");
            said.clone_from(&sentence);
        }
        readiness.waits_for("kinds", sentence);
        tokio::time::sleep(ASK_AGAIN).await;
    }
}

/// Waits until the preferred version of Cluster API's kinds differs from `version`. A server that does not answer, or
/// serves none for a moment, does not count as a change. Every answer is a sign of life.
pub async fn wait_for_another_version(client: &Client, version: &str, liveness: &Liveness) -> &'static str {
    loop {
        if let Ok(groups) = client.list_api_groups().await {
            liveness.answered();
            if let Some(now) = core_version(&groups).filter(|now| *now != version) {
                return now;
            }
        }
        tokio::time::sleep(LOOK_AGAIN).await;
    }
}

/// One discovery: the version of Cluster API's kinds, or a message about what is missing.
async fn served_version(client: &Client) -> Result<&'static str, String> {
    let groups =
        client.list_api_groups().await.map_err(|error| format!("waiting for the API server to answer: {error}"))?;
    let version = core_version(&groups).ok_or_else(|| {
        format!(
            "waiting for Cluster API: the API server serves no supported version of {}; install Cluster API with clusterctl init",
            capi::GROUP
        )
    })?;
    let ours = format!("{}/{}", capmaas_api::GROUP, capmaas_api::VERSION);
    // The group of an infrastructure provider does not exist until its first CRD is installed: that is "not yet", not
    // an error.
    let served: Vec<String> = match client.list_api_group_resources(&ours).await {
        Ok(list) => list.resources.into_iter().map(|resource| resource.name).collect(),
        Err(kube::Error::Api(status)) if status.is_not_found() => Vec::new(),
        Err(error) => return Err(format!("waiting for the API server to answer: {error}")),
    };
    let missing: Vec<&str> = OUR_RESOURCES.into_iter().filter(|name| !served.iter().any(|s| s == name)).collect();
    if missing.is_empty() {
        Ok(version)
    } else {
        Err(format!("waiting for the CRDs of {}: install them with make install", missing.join(" and ")))
    }
}

/// The newest served version that we can read: new cores serve v1beta2 without conversion, old ones serve v1beta1 only.
fn core_version(groups: &APIGroupList) -> Option<&'static str> {
    let group = groups.groups.iter().find(|group| group.name == capi::GROUP)?;
    best_version(group.versions.iter().map(|served| served.version.as_str()))
}

#[cfg(test)]
mod tests {
    use super::*;
    use k8s_openapi::apimachinery::pkg::apis::meta::v1::{APIGroup, GroupVersionForDiscovery};

    fn groups(versions: &[&str]) -> APIGroupList {
        let versions = versions
            .iter()
            .map(|version| GroupVersionForDiscovery {
                group_version: format!("{}/{version}", capi::GROUP),
                version: (*version).to_owned(),
            })
            .collect();
        let group = APIGroup { name: capi::GROUP.to_owned(), versions, ..APIGroup::default() };
        APIGroupList { groups: vec![group] }
    }

    #[test]
    fn the_newest_served_version_of_cluster_api_is_read() {
        let version = |served: &[&str]| core_version(&groups(served));
        assert_eq!(version(&["v1beta1", "v1beta2"]), Some("v1beta2"));
        assert_eq!(version(&["v1alpha4", "v1beta1"]), Some("v1beta1"));
        assert_eq!(version(&["v1beta9"]), None);
        assert_eq!(core_version(&APIGroupList::default()), None);
    }
}
