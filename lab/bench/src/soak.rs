//! A long run: machines are created and deleted while MAAS fails and the provider is killed. At the end MAAS and
//! Kubernetes agree exactly, and nothing is left when everything is deleted.

use std::collections::{BTreeMap, BTreeSet};
use std::path::PathBuf;
use std::time::{Duration, Instant};

use anyhow::{Context as _, bail, ensure};
use capmaas_testbed::Testbed;
use kube::ResourceExt as _;
use maas_sim::faults::{FaultRule, ServerState};
use maas_sim::ledger::{Effect, Entry};
use maas_sim::model::Status;
use rand::rngs::StdRng;
use rand::seq::IndexedRandom as _;
use rand::{RngExt as _, SeedableRng as _};
use serde_json::json;

use crate::capi::{ClusterApi, Kind};
use crate::kinds::install_kinds;
use crate::maas::{Latency, Maas, Speed, Stock};
use crate::provider::{Provider, Running};
use crate::tell;

/// What to run.
#[derive(Clone, Debug)]
pub struct Plan {
    /// The provider's command line.
    pub provider: String,
    /// The folder with its CRDs.
    pub crds: PathBuf,
    /// How long to inject failures.
    pub trouble: Duration,
    /// The seed of all random choices.
    pub seed: u64,
    /// The maximum number of machines.
    pub machines: usize,
    /// How long everything may take to converge afterwards.
    pub patience: Duration,
}

/// What happened, counted.
#[derive(Clone, Debug, Default)]
pub struct Tally {
    pub created: usize,
    /// Machines that were deleted while failures were injected.
    pub deleted: usize,
    /// How often the provider was killed.
    pub kills: usize,
    /// Requests that faults affected.
    pub struck: usize,
    /// How often MAAS was down.
    pub outages: usize,
    /// Machines at the end, each exactly once.
    pub agreed: usize,
}

impl Tally {
    fn has_some_of_each(&self) -> bool {
        self.deleted > 0 && self.kills > 0 && self.outages > 0 && self.created > self.deleted
    }
}

/// Requests that faults apply to.
const TARGETS: [&str; 6] = ["allocate", "deploy", "release", "set_workload_annotations", "update", "read"];
/// The approximate duration of one failure step.
const STEP: Duration = Duration::from_millis(400);

pub async fn soak(plan: &Plan) -> anyhow::Result<Tally> {
    let stock = Stock {
        machines: plan.machines * 2,
        vms: 0,
        deploy_seconds: 60.0,
        speed: Speed::Driven,
        latency: Latency::None,
    };
    let maas = Maas::start(stock)?;
    let testbed = Testbed::builder().name_server(maas.name_server).start().await?;
    install_kinds(&testbed, &plan.crds).await?;
    let provider = Provider::prepare(&testbed, &plan.provider, &maas.endpoint).await?;
    let core = ClusterApi::start(&testbed)?;
    let mut soak = Soak {
        plan,
        maas: &maas,
        testbed: &testbed,
        core: &core,
        running: provider.start(&testbed)?,
        provider,
        dice: StdRng::seed_from_u64(plan.seed),
        alive: Vec::new(),
        leaving: Vec::new(),
        tally: Tally::default(),
    };
    let outcome = soak.go().await;
    let outcome = outcome.with_context(|| {
        let log = testbed.log("provider");
        let end: Vec<&str> = log.lines().rev().take(20).collect();
        let end: Vec<&str> = end.into_iter().rev().collect();
        format!("seed {}; the provider's log ends with:\n{}", plan.seed, end.join("\n"))
    });
    let tally = soak.tally.clone();
    soak.running.stop().await;
    drop(core);
    testbed.stop().await;
    outcome.map(|()| tally)
}

struct Soak<'a> {
    plan: &'a Plan,
    maas: &'a Maas,
    testbed: &'a Testbed,
    core: &'a ClusterApi,
    provider: Provider,
    running: Running,
    dice: StdRng,
    alive: Vec<String>,
    leaving: Vec<String>,
    tally: Tally,
}

impl Soak<'_> {
    async fn go(&mut self) -> anyhow::Result<()> {
        self.core.create_cluster(self.plan.patience).await?;
        self.core.initialize_control_plane().await?;
        let (began, mut told) = (Instant::now(), Instant::now());
        // A failure that did not happen proves nothing, so a short run continues until each kind has happened.
        while began.elapsed() < self.plan.trouble || !self.tally.has_some_of_each() {
            ensure!(began.elapsed() < self.plan.trouble + self.plan.patience, "not enough happened: {:?}", self.tally);
            self.step().await?;
            if told.elapsed() > Duration::from_secs(60) {
                told = Instant::now();
                let Tally { created, deleted, kills, outages, .. } = self.tally;
                tell(&format!("{created} created, {deleted} deleted, {kills} kills, {outages} outages"));
            }
            let pause = self.dice.random_range(0.5..1.5);
            tokio::time::sleep(STEP.mul_f64(pause)).await;
        }
        tell("the trouble ends; everything comes in order");
        self.maas.control().remove_fault(None);
        self.maas.control().set_server(ServerState::Up);
        self.core.wait_machines(self.plan.patience, "it is gone", &self.leaving, |life| life.gone.is_some()).await?;
        let running = |life: &crate::capi::Life| life.provisioned.is_some();
        self.core.wait_machines(self.plan.patience, "it is provisioned", &self.alive, running).await?;
        self.core.forget_machines(&self.leaving).await?;
        self.agree().await?;
        tell("everything is deleted");
        self.core.delete_machines(&self.alive).await?;
        self.core.wait_machines(self.plan.patience, "it is gone", &self.alive, |life| life.gone.is_some()).await?;
        self.core.forget_machines(&self.alive).await?;
        self.core.delete_cluster(self.plan.patience).await?;
        let (owned, records) = (self.maas.owned(), self.maas.records());
        ensure!(owned.is_empty() && records == 0, "left in MAAS: {owned:?} and {records} DNS records");
        let ledger = self.maas.control().ledger(None);
        self.tally.struck = ledger.iter().filter(|entry| !entry.faults.is_empty()).count();
        let held = held(&ledger)?;
        ensure!(held.is_empty(), "by its ledger MAAS has not got back {held:?}");
        Ok(())
    }

    async fn step(&mut self) -> anyhow::Result<()> {
        self.running.check()?;
        match self.dice.random_range(0..100) {
            0..35 if self.alive.len() < self.plan.machines => {
                let name = format!("soak-{:05}", self.tally.created);
                self.tally.created += 1;
                self.core.create_machines(std::slice::from_ref(&name), &Kind::Metal.spec()).await?;
                self.alive.push(name);
            }
            35..65 if !self.alive.is_empty() => {
                let name = self.alive.swap_remove(self.dice.random_range(0..self.alive.len()));
                self.tally.deleted += 1;
                self.core.delete_machines(std::slice::from_ref(&name)).await?;
                self.leaving.push(name);
            }
            65..88 => {
                let rule = self.fault()?;
                self.maas.control().add_fault(rule);
            }
            88..92 => {
                self.tally.outages += 1;
                let state = *[ServerState::Down, ServerState::DatabaseDown]
                    .choose(&mut self.dice)
                    .unwrap_or(&ServerState::Down);
                self.maas.control().set_server(state);
                tokio::time::sleep(STEP * self.dice.random_range(1..6)).await;
                self.maas.control().set_server(ServerState::Up);
            }
            92..96 => {
                self.tally.kills += 1;
                let again = self.provider.start(self.testbed)?;
                // The new one starts while the old one dies: the closest possible overlap.
                std::mem::replace(&mut self.running, again).kill();
            }
            _ => {}
        }
        Ok(())
    }

    /// A fault for the next request of some kind, before or after its effect.
    fn fault(&mut self) -> anyhow::Result<FaultRule> {
        let kind = TARGETS.choose(&mut self.dice).copied().unwrap_or("read");
        let when = if self.dice.random_bool(0.5) { "before" } else { "after" };
        let mut rule = match self.dice.random_range(0..5) {
            0 => json!({"do": "reset"}),
            1 => json!({"do": "status", "status": 503, "retry_after": 1}),
            2 => json!({"do": "status", "status": 502, "content_type": "text/html"}),
            3 => json!({"do": "truncate"}),
            _ => json!({"do": "slow", "seconds": 1.0}),
        };
        rule["match"] = json!({"kind": kind, "user": "bench"});
        rule["when"] = json!(when);
        rule["times"] = json!(self.dice.random_range(1..3));
        Ok(serde_json::from_value(rule)?)
    }

    /// The machines in MAAS, those allocated by its ledger, and those in the objects are the same.
    async fn agree(&mut self) -> anyhow::Result<()> {
        let ledger = self.maas.control().ledger(None);
        let by_ledger = held(&ledger)?;
        let mut by_object = BTreeMap::new();
        for object in self.core.machines().await? {
            let id = object.data["spec"]["providerID"].as_str().unwrap_or_default();
            by_object.insert(object.name_any(), id.rsplit('/').next().unwrap_or_default().to_owned());
        }
        let asked_for: BTreeSet<&String> = self.alive.iter().collect();
        let there: BTreeSet<&String> = by_object.keys().collect();
        ensure!(asked_for == there, "asked for were {asked_for:?}, there are {there:?}");
        let owned = self.maas.owned();
        let surplus = owned.iter().filter(|(id, _)| by_object.values().all(|held| held != *id));
        let stories: Vec<String> =
            surplus.map(|(id, state)| format!("{id} is {state} and no object's:{}", story(&ledger, id))).collect();
        self.tally.agreed = agreed(&owned, &by_ledger, &by_object).with_context(|| stories.join("\n"))?;
        Ok(())
    }
}

/// What happened to a machine, from the ledger.
fn story(ledger: &[Entry], id: &str) -> String {
    let about = |entry: &&Entry| {
        entry.machine.as_deref() == Some(id) || entry.effects.iter().any(|effect| effect.about() == Some(id))
    };
    let line = |entry: &Entry| {
        let Entry { number, at, kind, status, effects, faults, .. } = entry;
        format!("\n  {number} {at} {kind} {status:?} {effects:?} {faults:?}")
    };
    ledger.iter().filter(about).map(line).collect()
}

/// The number of machines, if MAAS, its ledger and the objects have the same ones, each with one object and Deployed.
fn agreed(
    in_maas: &BTreeMap<String, String>,
    by_ledger: &BTreeSet<String>,
    by_object: &BTreeMap<String, String>,
) -> anyhow::Result<usize> {
    let held: BTreeSet<&String> = by_object.values().collect();
    ensure!(held.len() == by_object.len(), "two objects hold one machine: {by_object:?}");
    let given: BTreeSet<&String> = in_maas.keys().collect();
    ensure!(given == held, "MAAS has given {given:?}, the objects hold {by_object:?}");
    let written: BTreeSet<&String> = by_ledger.iter().collect();
    ensure!(written == held, "by its ledger MAAS has given {written:?}, the objects hold {by_object:?}");
    let other: Vec<_> = in_maas.iter().filter(|(_, state)| *state != "Deployed").collect();
    ensure!(other.is_empty(), "not Deployed: {other:?}");
    Ok(held.len())
}

/// The machines that were allocated and not released, by the effects of requests. A machine that is allocated twice, or
/// deployed twice for one user, is an error.
fn held(ledger: &[Entry]) -> anyhow::Result<BTreeSet<String>> {
    if ledger.first().is_some_and(|entry| entry.number != 1) {
        bail!("the ledger of MAAS was too short for this run: it begins with request {}", ledger[0].number);
    }
    let mut held = BTreeMap::new();
    for entry in ledger {
        for effect in &entry.effects {
            match effect {
                Effect::Allocated { machine, .. } => {
                    ensure!(held.insert(machine.clone(), 0).is_none(), "{machine} was given away twice");
                }
                Effect::Status { machine, to: Status::Deploying, .. } => {
                    let nobodys = || format!("{machine} was deployed and is nobody's");
                    let deployments = held.get_mut(machine).with_context(nobodys)?;
                    *deployments += 1;
                    ensure!(*deployments == 1, "{machine} was deployed twice for one object");
                }
                Effect::Status { machine, to: Status::Releasing | Status::Ready, .. } => {
                    held.remove(machine);
                }
                _ => {}
            }
        }
    }
    Ok(held.into_keys().collect())
}

#[cfg(test)]
mod tests {
    use super::*;

    fn given(machine: &str) -> Effect {
        Effect::Allocated { machine: machine.to_owned(), user: "bench".to_owned() }
    }

    fn became(machine: &str, from: Status, to: Status) -> Effect {
        Effect::Status { machine: machine.to_owned(), from, to }
    }

    fn ledger(effects: &[Effect]) -> Vec<Entry> {
        let entry = |(number, effect): (usize, &Effect)| Entry {
            number: u64::try_from(number).unwrap() + 1,
            at: jiff::Timestamp::UNIX_EPOCH,
            user: "bench".into(),
            method: "POST".into(),
            path: String::new(),
            query: String::new(),
            kind: String::new(),
            machine: None,
            status: Some(200),
            effects: vec![effect.clone()],
            faults: Vec::new(),
        };
        effects.iter().enumerate().map(entry).collect()
    }

    #[test]
    fn what_is_given_and_not_taken_back_is_held() {
        let done = [
            given("a"),
            became("a", Status::Allocated, Status::Deploying),
            given("b"),
            became("b", Status::Allocated, Status::Releasing),
        ];
        assert_eq!(held(&ledger(&done)).unwrap(), BTreeSet::from(["a".to_owned()]));
    }

    #[test]
    fn a_second_gift_or_deployment_is_told() {
        let twice = held(&ledger(&[given("a"), given("a")])).unwrap_err();
        assert!(twice.to_string().contains("given away twice"), "{twice}");
        let again = [
            given("a"),
            became("a", Status::Allocated, Status::Deploying),
            became("a", Status::FailedDeployment, Status::Deploying),
        ];
        assert!(held(&ledger(&again)).unwrap_err().to_string().contains("deployed twice"));
    }
    fn named(pairs: &[(&str, &str)]) -> BTreeMap<String, String> {
        pairs.iter().map(|(key, value)| ((*key).to_owned(), (*value).to_owned())).collect()
    }

    #[test]
    fn one_machine_too_many_or_too_few_on_any_side_is_told() {
        let (maas, objects) = (named(&[("a", "Deployed"), ("b", "Deployed")]), named(&[("x", "a"), ("y", "b")]));
        let both = BTreeSet::from(["a".to_owned(), "b".to_owned()]);
        let one = BTreeSet::from(["a".to_owned()]);
        assert_eq!(agreed(&maas, &both, &objects).unwrap(), 2);
        let wrong = [
            agreed(&named(&[("a", "Deployed")]), &both, &objects),
            agreed(&named(&[("a", "Deployed"), ("b", "Allocated")]), &both, &objects),
            agreed(&maas, &one, &objects),
            agreed(&maas, &both, &named(&[("x", "a")])),
            agreed(&maas, &both, &named(&[("x", "a"), ("y", "b"), ("z", "b")])),
            agreed(&maas, &both, &named(&[("x", "a"), ("y", "")])),
        ];
        assert!(wrong.iter().all(Result::is_err), "{wrong:?}");
    }
}
