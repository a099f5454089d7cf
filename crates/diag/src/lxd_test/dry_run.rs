//! `--dry-run`: one real observation, and then the library's own decisions, each applied to the facts as if it had been
//! carried out.

use std::sync::Arc;

use bytes::Bytes;
use http::{Method, Request};
use jiff::Timestamp;
use lxd_client::{BoxError, Transport};
use lxd_initializer::{
    agent::{Agent, LxdHook},
    decide::decide,
    effect::Effect,
    keys,
    observed::{Lookup, LxdFacts, Observed, PoolFacts, Probe, TrustFacts},
    plan::{Plan, Step},
    settings::{GivenCredentials, Settings},
};
use tower::{ServiceExt, util::BoxCloneSyncService};

use super::{KEY_PAIR, node, steps};
use crate::{Checklist, kept::Kept};

pub(super) async fn run(mut settings: Settings, kept: &Kept, list: &mut Checklist) {
    // If there is no key pair yet, a temporary one represents it.
    let nowhere = tempfile::tempdir();
    let mut identity = kept.identity();
    let mut new_key = None;
    match (&identity, &nowhere) {
        (Lookup::Found(_), _) => list.good(KEY_PAIR, format!("{} exists", kept.key_file().display())),
        (Lookup::Absent, Ok(folder)) => {
            settings.state_dir = folder.path().to_path_buf();
            if let Err(error) = keys::make(folder.path(), &settings.node_name) {
                list.failed(KEY_PAIR, format!("{error:#}"), "check whether the disk is full or read-only");
                return;
            }
            identity = keys::load(folder.path());
            new_key = super::certificate(&identity).found().map(|certificate| certificate.fingerprint.to_string());
            list.would(KEY_PAIR, format!("would create {}", kept.key_file().display()));
        }
        (Lookup::Absent, Err(error)) => {
            list.failed(KEY_PAIR, error.to_string(), "check whether the disk is full or read-only");
            return;
        }
        (Lookup::Unknown(why), _) => {
            list.failed(KEY_PAIR, why.clone(), "remove the file, and a new one is created");
            return;
        }
    }
    let cluster = Arc::new(node::ThisNode::new(identity, node::address(&settings).await));
    let mut agent = Agent::new(settings.clone(), GivenCredentials::default(), cluster, Arc::default())
        .with_lxd_hook(reading_only());
    let mut observed = agent.pass().await.observed;
    let mut would = Vec::new();
    // More than there are effects on LXD; each happens at most once.
    for _ in 0..8 {
        let plan = decide(&settings, &observed, Timestamp::now());
        let Some(effect) = plan.effect.clone().filter(|effect| imagine(&mut observed, effect)) else {
            return report(&plan, &would, new_key.is_some(), list);
        };
        // The fingerprint of the temporary key pair would not be found anywhere.
        let message = match &new_key {
            Some(print) => plan.message.replace(print, "of the new key pair"),
            None => plan.message,
        };
        would.push((steps::step_of(effect.kind()), message));
    }
    list.failed("Plan", "the steps do not end", "report this as a bug");
}

fn report(plan: &Plan, would: &[(Option<Step>, String)], new_key: bool, list: &mut Checklist) {
    let mut plan = plan.clone();
    for (step, message) in would {
        list.would("Step", steps::in_flags(message));
        plan.conditions.retain(|condition| Some(condition.step) != *step);
    }
    for condition in &mut plan.conditions {
        if condition.status == "True" && rests_on(condition.step, would, new_key) {
            condition.status = "Unknown";
            "is checked once that is done".clone_into(&mut condition.message);
        }
    }
    steps::report(&plan, &[], list);
}

/// Whether a step holds only hypothetically: an LXD that does not listen yet cannot have answered, and a certificate
/// that does not exist yet cannot have been checked.
fn rests_on(step: Step, would: &[(Option<Step>, String)], new_key: bool) -> bool {
    match step {
        Step::Certificate => new_key,
        Step::Reachable => would.iter().any(|(step, _)| matches!(step, Some(Step::Listener | Step::Trust))),
        _ => false,
    }
}

/// Applies an effect to the facts; returns whether it is an effect on LXD.
fn imagine(observed: &mut Observed, effect: &Effect) -> bool {
    let LxdFacts::Here(server) = &mut observed.lxd else { return false };
    match effect {
        Effect::CreatePool(pool) => {
            server.pool = Lookup::Found(PoolFacts { driver: pool.driver.clone(), status: "Created".into() });
        }
        Effect::CreateProject { config, .. } => server.project = Lookup::Found(config.clone()),
        Effect::Listen { address } => {
            server.listener = Some(address.clone());
            server.probe = Probe::Untrusted;
        }
        Effect::StopListening => server.listener = None,
        Effect::Trust { project, .. } => {
            server.trust = Lookup::Found(TrustFacts { restricted: true, projects: vec![project.clone()] });
            server.probe = Probe::Trusted;
        }
        Effect::Distrust { fingerprint } => {
            if let Lookup::Found(earlier) = &mut server.earlier {
                earlier.retain(|print| print != fingerprint);
            }
        }
        Effect::MakeKey | Effect::OnHost(_) | Effect::Report(_) => {
            return false;
        }
    }
    true
}

/// Blocks all requests that are not reads.
fn reading_only() -> LxdHook {
    Arc::new(|inner: Transport| {
        BoxCloneSyncService::new(tower::service_fn(move |request: Request<Bytes>| {
            let inner = inner.clone();
            async move {
                if request.method() == Method::GET {
                    inner.oneshot(request).await
                } else {
                    Err(BoxError::from("this is a dry run"))
                }
            }
        }))
    })
}
