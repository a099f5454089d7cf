//! The agent of one node: observe, decide, apply, repeat.

use std::{fs::File, sync::Arc, time::Duration};

use jiff::{SignedDuration, Timestamp};
use lxd_client::Transport;
use rand::RngExt;
use tokio::sync::watch;

use crate::{
    alive,
    cluster::Cluster,
    decide::decide,
    effect::{Effect, EffectKind},
    health::Status,
    maas::MaasConnection,
    observed::{Failure, Memory, Observed},
    plan::{Plan, State, Step},
    settings::{GivenCredentials, Settings},
};

/// Wraps every connection to the local LXD, for tests that count or disturb requests.
pub type LxdHook = Arc<dyn Fn(Transport) -> Transport + Send + Sync>;

/// The agent of one node.
pub struct Agent {
    pub(crate) settings: Settings,
    pub(crate) given: GivenCredentials,
    pub(crate) cluster: Arc<dyn Cluster>,
    pub(crate) memory: Memory,
    pub(crate) maas: Option<MaasConnection>,
    pub(crate) lxd_hook: Option<LxdHook>,
    status: Arc<Status>,
    said: Option<(State, String, Timestamp)>,
}

/// The result of one pass.
#[derive(Debug)]
pub struct Pass {
    pub observed: Observed,
    pub plan: Plan,
    /// The result of the effect, if there was one.
    pub result: Option<Result<(), String>>,
}

impl Agent {
    pub fn new(settings: Settings, given: GivenCredentials, cluster: Arc<dyn Cluster>, status: Arc<Status>) -> Self {
        Self { settings, given, cluster, memory: Memory::default(), maas: None, lxd_hook: None, status, said: None }
    }

    /// The same agent with every connection to the local LXD wrapped.
    #[must_use]
    pub fn with_lxd_hook(mut self, hook: LxdHook) -> Self {
        self.lxd_hook = Some(hook);
        self
    }

    /// Observes, decides, and performs at most one write.
    pub async fn pass(&mut self) -> Pass {
        let mut observed = self.observe().await;
        let mut plan = decide(&self.settings, &observed, Timestamp::now());
        // A write to MAAS depends on fresh data from MAAS, above all on which VMs it knows (S12).
        let to_maas = plan.effect.as_ref().is_some_and(|effect| effect.kind().is_to_maas());
        if to_maas && self.maas_is_from_memory() {
            self.forget();
            observed = self.observe().await;
            plan = decide(&self.settings, &observed, Timestamp::now());
        }
        self.log(&plan);
        let result = match &plan.effect {
            Some(effect) => Some(self.attempt(effect).await),
            None => None,
        };
        self.status.passed(&plan, &observed);
        Pass { observed, plan, result }
    }

    pub(crate) async fn attempt(&mut self, effect: &Effect) -> Result<(), String> {
        let kind = effect.kind();
        self.status.wrote(kind);
        match self.apply(effect).await {
            Ok(()) => {
                self.memory.failures.remove(&kind);
                if kind != EffectKind::Report {
                    tracing::info!("done: {}", kind.words());
                }
                Ok(())
            }
            Err(error) => {
                let why = format!("{error:#}");
                let times = self.memory.failures.get(&kind).map_or(1, |failure| failure.times.saturating_add(1));
                let retry = Timestamp::now().saturating_add(wait_after(times)).unwrap_or(Timestamp::MAX);
                tracing::warn!("{} failed: {why}", kind.words());
                self.status.failed(kind);
                self.memory.failures.insert(kind, Failure { why: why.clone(), times, retry });
                Err(why)
            }
        }
    }

    /// Logs changes, and repeats an unchanged state after a while, so that a truncated log still shows it.
    fn log(&mut self, plan: &Plan) {
        const REMIND: SignedDuration = SignedDuration::from_mins(10);
        let now = Timestamp::now();
        let news = match &self.said {
            Some((state, message, at)) => {
                *state != plan.state || *message != plan.message || now.duration_since(*at) > REMIND
            }
            None => true,
        };
        if news {
            let (state, message) = (plan.state.as_str(), plan.message.as_str());
            if plan.state == State::Blocked {
                tracing::warn!(state, "{message}");
            } else {
                tracing::info!(state, "{message}");
            }
            self.said = Some((plan.state, plan.message.clone(), now));
        }
    }

    /// Takes the lock next to the key pair that shows that this agent runs. Waits while the host is being unregistered,
    /// because anything observed before that ends would be outdated. An agent that cannot take the lock works
    /// nevertheless.
    async fn announced(&self, stop: &mut watch::Receiver<bool>) -> Option<File> {
        let folder = &self.settings.state_dir;
        while !*stop.borrow() {
            match alive::hold(folder) {
                Ok(Some(lock)) => return Some(lock),
                Ok(None) => tokio::select! {
                    () = tokio::time::sleep(Duration::from_secs(1)) => {}
                    () = stopped(stop) => return None,
                },
                Err(error) => {
                    tracing::warn!("cannot write the lock file of this agent in {}: {error}", folder.display());
                    return None;
                }
            }
        }
        None
    }

    /// Runs until told to stop.
    pub async fn run(mut self, mut stop: watch::Receiver<bool>) {
        let _alive = self.announced(&mut stop).await;
        while !*stop.borrow() {
            // A pass may be interrupted at any point: the next one, in this process or the next, observes what was
            // done.
            let pass = tokio::select! {
                pass = self.pass() => pass,
                () = stopped(&mut stop) => break,
            };
            let pause = jittered(pause(&self.settings, &pass));
            tokio::select! {
                () = tokio::time::sleep(pause) => {}
                () = stopped(&mut stop) => break,
            }
        }
        tracing::info!("stopped");
    }
}

async fn stopped(stop: &mut watch::Receiver<bool>) {
    // A dropped sender can no longer signal; that counts as a stop too.
    let _ = stop.wait_for(|stop| *stop).await;
}

/// 15 s, 30 s, … up to 8 min.
fn wait_after(times: u32) -> SignedDuration {
    SignedDuration::from_secs(15 << times.saturating_sub(1).min(5))
}

fn pause(settings: &Settings, pass: &Pass) -> Duration {
    match (&pass.result, pass.plan.state) {
        (Some(Ok(())), _) => Duration::from_millis(200),
        // The failure has to be reported on the Node.
        (Some(Err(_)), _) => Duration::from_secs(1),
        // Each read costs MAAS some tenths of a second.
        (None, State::Waiting) if pass.plan.first_open() == Some(Step::Registered) => {
            settings.watch.min(Duration::from_secs(30))
        }
        (None, State::Working | State::Waiting) => settings.watch.min(Duration::from_secs(10)),
        (None, State::Ready | State::Blocked | State::Left) => settings.watch,
    }
}

/// Plus or minus a fifth, so that the nodes of a cluster do not poll in lockstep.
fn jittered(pause: Duration) -> Duration {
    pause.mul_f64(rand::rng().random_range(0.8..1.2))
}
