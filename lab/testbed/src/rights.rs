//! Waits until aggregated permissions are in effect.

use std::time::{Duration, Instant};

use k8s_openapi::api::{
    authorization::v1::{ResourceAttributes, SubjectAccessReview, SubjectAccessReviewSpec},
    rbac::v1::ClusterRole,
};
use kube::{Api, Client, api::PostParams};
use serde_json::Value;

use crate::error::{Doing, Error, Result};

const WITHIN: Duration = Duration::from_secs(60);
const POLL: Duration = Duration::from_millis(100);

/// A role with an aggregation rule is empty until kube-controller-manager fills it, and a manager that starts before
/// that is forbidden everything. Waits until each such role of `objects` is filled and `user` has the permissions it
/// grants.
pub(crate) async fn wait_for_aggregation(client: &Client, objects: &[Value], user: &str) -> Result<()> {
    let roles: Api<ClusterRole> = Api::all(client.clone());
    let deadline = Instant::now() + WITHIN;
    for object in
        objects.iter().filter(|object| object["kind"] == "ClusterRole" && object["aggregationRule"].is_object())
    {
        let name = object["metadata"]["name"].as_str().unwrap_or_default();
        loop {
            let role = roles.get(name).await.doing(|| format!("read the ClusterRole {name}"))?;
            if let Some(sample) = sample_of(&role)
                && may(client, user, sample).await?
            {
                break;
            }
            if Instant::now() > deadline {
                return Err(Error::Timeout {
                    what: format!(
                        "the aggregated ClusterRole {name} reaches {user} (does kube-controller-manager run?)"
                    ),
                    seconds: WITHIN.as_secs(),
                });
            }
            tokio::time::sleep(POLL).await;
        }
    }
    Ok(())
}

/// One thing that the role allows; `None` while it is empty.
fn sample_of(cluster_role: &ClusterRole) -> Option<ResourceAttributes> {
    let rules = cluster_role.rules.as_deref()?;
    let rule = rules.iter().find(|rule| rule.resource_names.is_none() && rule.resources.is_some())?;
    Some(ResourceAttributes {
        group: rule.api_groups.as_deref()?.first().cloned(),
        resource: rule.resources.as_deref()?.first().map(|name| name.split('/').next().unwrap_or(name).to_owned()),
        subresource: rule.resources.as_deref()?.first()?.split_once('/').map(|(_, sub)| sub.to_owned()),
        verb: rule.verbs.first().cloned(),
        ..ResourceAttributes::default()
    })
}

async fn may(client: &Client, user: &str, attributes: ResourceAttributes) -> Result<bool> {
    let review = SubjectAccessReview {
        spec: SubjectAccessReviewSpec {
            user: Some(user.to_owned()),
            resource_attributes: Some(attributes),
            ..SubjectAccessReviewSpec::default()
        },
        ..SubjectAccessReview::default()
    };
    let answer = Api::<SubjectAccessReview>::all(client.clone())
        .create(&PostParams::default(), &review)
        .await
        .doing(|| format!("ask for the rights of {user}"))?;
    Ok(answer.status.is_some_and(|status| status.allowed))
}
