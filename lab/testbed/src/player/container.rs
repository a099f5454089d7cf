//! One container: its process, its probes, its restarts.

use std::{
    collections::BTreeMap,
    os::unix::process::ExitStatusExt as _,
    path::PathBuf,
    process::ExitStatus,
    sync::{Arc, Mutex, PoisonError},
    time::Duration,
};

use jiff::Timestamp;
use k8s_openapi::api::core::v1::{Container, Pod};
use tokio::{
    sync::{Notify, watch},
    task::JoinSet,
    time::sleep,
};

use super::{
    ContainerPlan, Context, environment,
    probe::Probers,
    root,
    status::{ContainerState, Ended, PodState, State},
};
use crate::process::{Process, tail};

const POLL: Duration = Duration::from_millis(50);
/// How soon a container that could not be configured is retried.
const CONFIGURE_AGAIN: Duration = Duration::from_secs(1);
const LONGEST_BACK_OFF: Duration = Duration::from_secs(300);
/// A container that ran this long restarts with the shortest back-off.
const LONG_ENOUGH: Duration = Duration::from_secs(600);

/// Shared by the tasks of a Pod.
pub(super) struct Shared {
    pub(super) context: Arc<Context>,
    pub(super) pod: Pod,
    /// The path of each volume on this machine, or why there is none yet.
    pub(super) volumes: Mutex<Result<BTreeMap<String, PathBuf>, String>>,
    pub(super) state: Mutex<PodState>,
    /// Notified when `state` changes.
    pub(super) changed: Notify,
}

/// Set once, to the time between SIGTERM and SIGKILL.
pub(super) type Stop = watch::Receiver<Option<Duration>>;

/// Why a process is not running any more.
enum End {
    Exited(ExitStatus),
    Unhealthy(ExitStatus, String),
    Stopped(ExitStatus),
}

/// Runs one container until it completes for good or the Pod stops. Returns whether it succeeded.
pub(super) async fn play(shared: Arc<Shared>, container: Container, is_init: bool, mut stop: Stop) -> bool {
    let me = Me { shared: &shared, container: &container, is_init };
    let mut back_off = Duration::ZERO;
    loop {
        let (process, probers) = match me.start().await {
            Ok(started) => started,
            Err((reason, message)) => {
                me.update(|state| state.state = State::Waiting { reason, message });
                tokio::select! {
                    () = sleep(CONFIGURE_AGAIN) => continue,
                    _ = stop_wanted(&mut stop) => return false,
                }
            }
        };
        let started = Timestamp::now();
        me.update(|state| {
            state.state = State::Running { since: started };
            state.process = Some(process.id());
        });
        let end = me.supervise(&process, &probers, &mut stop).await;
        let log = process.log();
        drop(process);
        let ended = ended(&end, started, &log);
        let (good, stopped) = (ended.exit_code == 0, matches!(end, End::Stopped(_)));
        let again = !stopped && me.restarts(good);
        let ran_long = Timestamp::now().duration_since(started).unsigned_abs() > LONG_ENOUGH;
        back_off = if ran_long { Duration::ZERO } else { back_off };
        // In one update: between two, the Pod would look as if it had failed for good, and be replaced.
        me.update(|state| {
            (state.ready, state.started, state.process) = (is_init && good, false, None);
            state.state = State::Terminated(ended.clone());
            if again {
                state.restarts += 1;
                state.last = Some(ended);
                let message = format!("back-off {} s restarting failed container", back_off.as_secs());
                state.state = State::Waiting { reason: "CrashLoopBackOff", message };
            }
        });
        if !again {
            return good;
        }
        // The first restart is immediate, as with a kubelet.
        tokio::select! {
            () = sleep(back_off) => {}
            _ = stop_wanted(&mut stop) => return false,
        }
        back_off = (back_off * 2).clamp(shared.context.restart_back_off, LONGEST_BACK_OFF);
    }
}

struct Me<'a> {
    shared: &'a Shared,
    container: &'a Container,
    is_init: bool,
}

impl Me<'_> {
    fn update(&self, change: impl FnOnce(&mut ContainerState)) {
        update(self.shared, &self.container.name, self.is_init, change);
    }

    fn restarts(&self, good: bool) -> bool {
        let policy = self.shared.pod.spec.as_ref().and_then(|spec| spec.restart_policy.as_deref());
        match policy {
            Some("Never") => false,
            Some("OnFailure") => !good,
            // An init container runs until it succeeds, whatever the restart policy.
            _ => !(self.is_init && good),
        }
    }

    /// Determines everything that the process needs and starts it, or returns why it has to wait.
    async fn start(&self) -> Result<(Process, Probers), (&'static str, String)> {
        let Shared { context, pod, volumes, .. } = self.shared;
        let image = self.container.image.as_deref().unwrap_or_default();
        let Some(program) = context.program_of(image) else {
            return Err(("ErrImagePull", format!("the node player was given no program for the image {image:?}")));
        };
        let volumes = volumes.lock().unwrap_or_else(PoisonError::into_inner).clone();
        // As with a kubelet: without its volumes, a Pod stays in ContainerCreating.
        let volumes = volumes.map_err(|why| ("ContainerCreating", why))?;
        let configured = async {
            let variables = environment::variables(&context.client, pod, self.container).await?;
            let expand = |text: &String| environment::expand(text, &variables);
            let mut command: Vec<String> = self.container.command.iter().flatten().map(expand).collect();
            // The image's program replaces the first word of the command; without a command it keeps its own name.
            let entry = if command.is_empty() {
                format!("/{}", program.file_name().unwrap_or_default().to_string_lossy())
            } else {
                let first = command.remove(0);
                if first.starts_with('/') { first } else { format!("/{first}") }
            };
            command.extend(self.container.args.iter().flatten().map(expand));
            let mut plan = ContainerPlan {
                namespace: pod.metadata.namespace.clone().unwrap_or_default(),
                pod: pod.metadata.name.clone().unwrap_or_default(),
                node: pod.spec.as_ref().and_then(|spec| spec.node_name.clone()).unwrap_or_default(),
                container: self.container.name.clone(),
                args: command,
                env: variables,
                moved_ports: BTreeMap::new(),
            };
            if let Some(hook) = &context.hook {
                hook(&mut plan);
            }
            let probers = Probers::of(self.container, &plan.moved_ports)?;
            let mounts = root::mounts(self.container, &volumes)?;
            Ok::<_, String>((plan, entry, probers, mounts))
        };
        let (plan, entry, probers, mounts) = configured.await.map_err(|why| ("CreateContainerConfigError", why))?;
        let root_dir = context.pod_dir(pod).join("roots").join(&self.container.name);
        std::fs::create_dir_all(&root_dir)
            .map_err(|e| ("CreateContainerError", format!("cannot make {}: {e}", root_dir.display())))?;
        let identity = root::Identity::of(pod, self.container);
        let resolv_conf = crate::resolver::of(&context.sandbox);
        let working_dir = self.container.working_dir.as_deref();
        let script = root::script(&root_dir, program, &entry, working_dir, &mounts, &identity, resolv_conf.as_deref());
        let mut command = context.sandbox.command("unshare");
        let marker = (crate::sandbox::MARKER, context.sandbox.id().to_owned());
        command
            .args(["--mount", "--propagation", "private", "sh", "-c", &script, &entry])
            .args(&plan.args)
            .env_clear()
            .envs([marker])
            .env("PATH", "/usr/local/sbin:/usr/local/bin:/usr/sbin:/usr/bin:/sbin:/bin")
            .env("HOSTNAME", &plan.pod)
            .env("KUBERNETES_SERVICE_HOST", context.api_server.ip().to_string())
            .env("KUBERNETES_SERVICE_PORT", context.api_server.port().to_string())
            .env("KUBERNETES_SERVICE_PORT_HTTPS", context.api_server.port().to_string())
            .envs(plan.env);
        let name = super::log_name(&plan.namespace, &plan.pod, &plan.container);
        let process = context.sandbox.spawn(&name, command).map_err(|e| ("RunContainerError", e.to_string()))?;
        Ok((process, probers))
    }

    /// Watches the process and runs its probes until it ends.
    async fn supervise(&self, process: &Process, probers: &Probers, stop: &mut Stop) -> End {
        let grace = self
            .shared
            .pod
            .spec
            .as_ref()
            .and_then(|spec| spec.termination_grace_period_seconds)
            .and_then(|seconds| u64::try_from(seconds).ok())
            .map_or(Duration::from_secs(30), Duration::from_secs);
        let unhealthy = self.probe(probers);
        tokio::pin!(unhealthy);
        loop {
            tokio::select! {
                () = sleep(POLL) => {
                    if let Some(status) = process.exited() {
                        return End::Exited(status);
                    }
                }
                why = &mut unhealthy => {
                    self.update(|state| state.ready = false);
                    return End::Unhealthy(stopped(process, grace).await, why);
                }
                grace = stop_wanted(stop) => return End::Stopped(stopped(process, grace).await),
            }
        }
    }

    /// Keeps `started` and `ready` in line with the probes. Returns the reason when the container has to be restarted.
    async fn probe(&self, probers: &Probers) -> String {
        if let Some(startup) = &probers.startup {
            let mut failed = None;
            startup
                .watch(|good, why| {
                    failed = (!good).then(|| format!("Container {} failed startup probe: {why}", self.container.name));
                    false
                })
                .await;
            if let Some(why) = failed {
                return why;
            }
        }
        self.update(|state| {
            state.started = true;
            state.ready = probers.readiness.is_none();
        });
        let readiness = async {
            if let Some(readiness) = &probers.readiness {
                readiness
                    .watch(|good, _| {
                        self.update(|state| state.ready = good);
                        true
                    })
                    .await;
            }
            std::future::pending::<()>().await;
        };
        let liveness = async {
            let mut failed = String::new();
            match &probers.liveness {
                Some(liveness) => {
                    liveness
                        .watch(|good, why| {
                            failed = format!("Container {} failed liveness probe: {why}", self.container.name);
                            good
                        })
                        .await;
                }
                None => std::future::pending().await,
            }
            failed
        };
        tokio::select! {
            () = readiness => String::new(),
            why = liveness => why,
        }
    }
}

/// Waits until the Pod has to stop, and returns the grace period. Zero when the node player itself ends.
async fn stop_wanted(stop: &mut Stop) -> Duration {
    stop.wait_for(Option::is_some).await.ok().and_then(|grace| *grace).unwrap_or_default()
}

async fn stopped(process: &Process, grace: Duration) -> ExitStatus {
    process.stop(grace).await;
    process.exited().unwrap_or_default()
}

/// Changes a container's state; the Pod's status is updated only if something did change.
fn update(shared: &Shared, name: &str, is_init: bool, change: impl FnOnce(&mut ContainerState)) {
    let mut pod = shared.state.lock().unwrap_or_else(PoisonError::into_inner);
    let containers = if is_init { &mut pod.init } else { &mut pod.main };
    if let Some(state) = containers.iter_mut().find(|state| state.name == name) {
        change(state);
    }
    drop(pod);
    shared.changed.notify_one();
}

fn ended(end: &End, started: Timestamp, log: &str) -> Ended {
    let (status, why) = match end {
        End::Exited(status) | End::Stopped(status) => (status, None),
        End::Unhealthy(status, why) => (status, Some(why)),
    };
    // 128 + the signal number, as a shell and a kubelet report it.
    let exit_code = status.code().or_else(|| status.signal().map(|signal| 128 + signal)).unwrap_or(255);
    let message = match (why, exit_code) {
        (Some(why), _) => why.clone(),
        (None, 0) => String::new(),
        (None, _) => tail(log),
    };
    let reason = if exit_code == 0 { "Completed" } else { "Error" };
    Ended { exit_code, reason, message, started, finished: Timestamp::now() }
}

/// Runs the init containers one after the other, then the others together.
pub(super) async fn play_all(shared: Arc<Shared>, stop: Stop) {
    let spec = shared.pod.spec.clone().unwrap_or_default();
    for container in spec.init_containers.into_iter().flatten() {
        if !play(shared.clone(), container, true, stop.clone()).await {
            return;
        }
    }
    let mut tasks = JoinSet::new();
    for container in spec.containers {
        tasks.spawn(play(shared.clone(), container, false, stop.clone()));
    }
    while tasks.join_next().await.is_some() {}
}
