//! One Pod on a node: its volumes, containers and status, and its termination.

use std::{
    collections::BTreeMap,
    sync::{Arc, Mutex, PoisonError},
    time::Duration,
};

use jiff::Timestamp;
use k8s_openapi::api::core::v1::Pod;
use kube::{
    Api,
    api::{DeleteParams, Patch, PatchParams, Preconditions},
};
use serde_json::{Value, json};
use tokio::{
    sync::{Notify, watch},
    time::sleep,
};

use super::{
    Context,
    container::{self, Shared},
    status::{ContainerState, PodState},
    volumes::Volumes,
};
use crate::ports::LOOPBACK;

/// A kubelet takes up to a minute; tests cannot wait that long.
const REFRESH_VOLUMES: Duration = Duration::from_secs(2);
const RETRY: Duration = Duration::from_millis(500);

/// The desired state of a Pod that runs here.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub(super) enum Wanted {
    Run,
    /// Deleted, with the grace period of its processes.
    Stop(Duration),
    /// The object is deleted: nothing waits for the processes any more.
    Gone,
}

/// Runs a Pod until it is deleted.
pub(super) async fn play(context: Arc<Context>, pod: Pod, mut wanted: watch::Receiver<Wanted>) {
    if matches!(*wanted.borrow(), Wanted::Stop(_)) {
        // Deleted before it was ever started here.
        return remove(&context, &pod).await;
    }
    let state = |containers: &[k8s_openapi::api::core::v1::Container]| {
        containers.iter().map(|c| ContainerState::new(&c.name, c.image.as_deref().unwrap_or_default())).collect()
    };
    let spec = pod.spec.clone().unwrap_or_default();
    let node = spec.node_name.clone().unwrap_or_default();
    let mut volumes = Volumes::new(
        context.client.clone(),
        context.pod_dir(&pod).join("volumes"),
        context.node_dir(&node),
        context.host_paths.as_ref().map_or_else(BTreeMap::new, |paths| paths(&node)),
    );
    let made = volumes.materialise(&pod).await;
    let shared = Arc::new(Shared {
        state: Mutex::new(PodState {
            since: Timestamp::now(),
            node_address: LOOPBACK.to_string(),
            init: state(spec.init_containers.as_deref().unwrap_or_default()),
            main: state(&spec.containers),
        }),
        context: context.clone(),
        volumes: Mutex::new(made),
        changed: Notify::new(),
        pod: pod.clone(),
    });
    context.register(&shared);
    shared.changed.notify_one();

    let (stop, stopped) = watch::channel(None);
    let mut containers = tokio::spawn(container::play_all(shared.clone(), stopped));
    let mut running = true;
    let mut writer = StatusWriter { shared: &shared, last: Value::Null };
    let mut refresh = tokio::time::interval(REFRESH_VOLUMES);
    // The first tick would be immediate, and the volumes were just created.
    refresh.reset();
    let end = loop {
        tokio::select! {
            () = shared.changed.notified() => writer.write().await,
            _ = &mut containers, if running => running = false,
            _ = refresh.tick() => {
                let made = volumes.materialise(&pod).await;
                *shared.volumes.lock().unwrap_or_else(PoisonError::into_inner) = made;
            }
            end = end_wanted(&mut wanted) => break end,
        }
    };
    let grace = if let Wanted::Stop(grace) = end { grace } else { Duration::ZERO };
    let _ = stop.send(Some(grace));
    if running {
        let _ = (&mut containers).await;
    }
    // A Pod that is deleted or whose node is off has no status to report.
    if end != Wanted::Gone {
        writer.write().await;
        remove(&context, &pod).await;
    }
    context.forget(&shared);
    let _ = std::fs::remove_dir_all(context.pod_dir(&pod));
}

/// Waits until the Pod has to stop.
async fn end_wanted(wanted: &mut watch::Receiver<Wanted>) -> Wanted {
    wanted.wait_for(|wanted| *wanted != Wanted::Run).await.map_or(Wanted::Gone, |wanted| *wanted)
}

struct StatusWriter<'a> {
    shared: &'a Shared,
    last: Value,
}

impl StatusWriter<'_> {
    async fn write(&mut self) {
        let state = self.shared.state.lock().unwrap_or_else(PoisonError::into_inner).clone();
        let status = state.to_json(&self.last, Timestamp::now());
        if status == self.last {
            return;
        }
        // The uid ensures that no later Pod of the same name is patched.
        let patch = json!({"metadata": {"uid": self.shared.pod.metadata.uid}, "status": status});
        let Shared { context, pod, .. } = self.shared;
        let written = api(context, pod).patch_status(name(pod), &PatchParams::default(), &Patch::Merge(&patch)).await;
        match written {
            Ok(_) => self.last = status,
            Err(kube::Error::Api(refused)) if refused.is_not_found() || refused.is_conflict() => {}
            Err(error) => {
                tracing::warn!(pod = name(pod), %error, "the status of a Pod could not be written");
                sleep(RETRY).await;
                self.shared.changed.notify_one();
            }
        }
    }
}

/// Reports to the API server that nothing of the Pod runs any more, so that the object is deleted.
async fn remove(context: &Context, pod: &Pod) {
    let params = DeleteParams {
        grace_period_seconds: Some(0),
        preconditions: Some(Preconditions { uid: pod.metadata.uid.clone(), resource_version: None }),
        ..DeleteParams::default()
    };
    for _ in 0..10 {
        match api(context, pod).delete(name(pod), &params).await {
            Ok(_) => return,
            Err(kube::Error::Api(refused)) if refused.is_not_found() || refused.is_conflict() => return,
            Err(error) => tracing::warn!(pod = name(pod), %error, "a Pod that has ended could not be removed"),
        }
        sleep(RETRY).await;
    }
}

fn name(pod: &Pod) -> &str {
    pod.metadata.name.as_deref().unwrap_or_default()
}

fn api(context: &Context, pod: &Pod) -> Api<Pod> {
    Api::namespaced(context.client.clone(), pod.metadata.namespace.as_deref().unwrap_or("default"))
}
