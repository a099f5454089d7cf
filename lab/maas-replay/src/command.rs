//! The program's implementation, shared with its tests.

use std::io::Write;
use std::path::{Path, PathBuf};

use anyhow::{Context as _, bail};

use crate::arrangement::Arrangements;
use crate::exceptions::Exceptions;
use crate::recording::{Position, Recording, read_folder};
use crate::request::Key;
use crate::run::{Outcome, Replay, ReplayError};
use crate::target::Target;
use maas_sim::config::{ApiKey, Config};
use maas_sim::version::Version;

/// The administrator's key in the replay's own simulator.
const ADMIN: [&str; 3] = ["consumeradmin", "tokenadmin", "secretadmin"];
/// The percentage of exchanges that must agree.
const REQUIRED: usize = 95;

/// The arguments of the program.
#[derive(Clone, Debug, clap::Args)]
pub struct ReplayArgs {
    /// Folder of recordings: one exchange a file (*.json) or a line (*.jsonl)
    pub folder: PathBuf,
    /// Below each exchange that differs, show the simulator's whole answer
    #[arg(long)]
    pub verbose: bool,
    /// Say nothing of exchanges that agree
    #[arg(long)]
    pub quiet: bool,
    /// Exchanges that are known not to agree, with their reasons (YAML)
    #[arg(long, value_name = "FILE")]
    pub exceptions: Option<PathBuf>,
    /// Further arrangement files, besides those in the folder
    #[arg(long, value_name = "DIR")]
    pub arrangements: Option<PathBuf>,
    /// Which MAAS answers; by default the one that was recorded
    #[arg(long, conflicts_with = "endpoint")]
    pub maas_version: Option<Version>,
    /// A running simulator, such as http://127.0.0.1:5240, instead of one of the replay's own
    #[arg(long, requires = "api_key")]
    pub endpoint: Option<String>,
    /// The administrator's key at the endpoint
    #[arg(long, value_name = "C:T:S", env = "MAAS_SIM_API_KEY", hide_env_values = true)]
    pub api_key: Option<ApiKey>,
    /// Tell where lists agree in form but have another length than recorded
    #[arg(long)]
    pub drift: bool,
    /// Report only the exchanges from this number on (all are replayed)
    #[arg(long, value_name = "NUMBER", default_value = "0")]
    pub from: Position,
}

/// The result of a replay.
#[derive(Debug)]
pub struct Report {
    /// Every exchange, in order.
    pub outcomes: Vec<Outcome>,
    /// Statements of arrangements that the simulator refused.
    pub refused: Vec<String>,
    /// Machines in a transitional status that did not reach the stated status by themselves, although their entry does
    /// not declare that (`forces`).
    pub forced: Vec<String>,
    /// Machines that did reach it by themselves, although the entry declares that they do not.
    pub unforced: Vec<String>,
}

impl Report {
    /// How many exchanges agree.
    pub fn agreeing(&self) -> usize {
        self.outcomes.iter().filter(|outcome| outcome.agrees()).count()
    }

    /// Whether enough exchanges agree.
    pub fn suffices(&self) -> bool {
        self.agreeing() * 100 >= self.outcomes.len() * REQUIRED
    }

    /// Exchanges that differ and are not exceptions.
    pub fn surprises<'a>(&'a self, exceptions: &'a Exceptions) -> impl Iterator<Item = &'a Outcome> {
        self.outcomes.iter().filter(|outcome| !outcome.agrees() && exceptions.reason(&outcome.name).is_none())
    }

    /// Exceptions that agree, or whose recording does not exist: they must be removed.
    pub fn idle_exceptions<'a>(&'a self, exceptions: &'a Exceptions) -> impl Iterator<Item = &'a str> {
        exceptions
            .names()
            .filter(|name| !self.outcomes.iter().any(|outcome| outcome.name == *name && !outcome.agrees()))
    }

    /// The result in one sentence.
    pub fn total(&self) -> String {
        let (agreeing, all) = (self.agreeing(), self.outcomes.len());
        let share = (agreeing * 1000).checked_div(all).unwrap_or(0);
        format!("{agreeing} of {all} exchanges agree ({}.{} %), {} differ", share / 10, share % 10, all - agreeing)
    }
}

/// Replays recordings against a target; `tell` is called with every outcome.
pub async fn replay(
    recordings: &mut [Recording],
    arrangements: &Arrangements,
    target: &Target,
    admin: &ApiKey,
    tell: impl FnMut(&Outcome),
) -> Result<Report, ReplayError> {
    arrangements.reorder(recordings);
    let key = Key { consumer: admin.consumer.clone(), token: admin.token.clone(), secret: admin.secret.clone() };
    Replay::new(target, arrangements, key)?.run(recordings, tell).await
}

/// The default simulator for a replay: in this process, with a driven clock.
pub fn own_simulator(version: Version) -> (Target, ApiKey) {
    let [consumer, token, secret] = ADMIN.map(str::to_owned);
    let key = ApiKey { consumer, token, secret };
    let simulator = maas_sim::Simulator::new(Config { version, ..Config::driven(key.clone()) });
    (Target::InProcess(simulator.router()), key)
}

/// The release that all recordings of a folder were made with.
pub fn recorded_version(recordings: &[Recording]) -> anyhow::Result<Version> {
    let mut versions = recordings.iter().filter_map(Recording::version);
    let first = versions.next().unwrap_or_default();
    match versions.find(|version| *version != first) {
        Some(other) => bail!("recordings of MAAS {first} and of MAAS {other} lie in one folder: give each its own"),
        None => Ok(first),
    }
}

impl ReplayArgs {
    /// Runs the command; fails if too few exchanges agree or the exceptions are wrong.
    pub async fn run(&self, out: &mut dyn Write) -> anyhow::Result<()> {
        let mut recordings = read_folder(&self.folder)?;
        let arrangements = self.arrangements(&self.folder)?;
        let exceptions = match &self.exceptions {
            Some(path) => Exceptions::read(path)?,
            None => Exceptions::default(),
        };
        let (target, key) = match (&self.endpoint, &self.api_key) {
            (Some(endpoint), Some(key)) => (endpoint_target(endpoint)?, key.clone()),
            _ => own_simulator(self.maas_version.map_or_else(|| recorded_version(&recordings), Ok)?),
        };
        let mut lines = Vec::new();
        let report = replay(&mut recordings, &arrangements, &target, &key, |outcome| {
            let shown = outcome.name.parse::<Position>().is_ok_and(|position| position.reaches(&self.from));
            if shown && !(self.quiet && outcome.agrees()) {
                lines.push(line(outcome, &exceptions));
            }
            if shown && self.drift {
                lines.extend(outcome.drift.iter().map(|drift| format!("    {}: drift: {drift}", outcome.name)));
            }
            if shown && self.verbose && !outcome.agrees() {
                lines.push(format!("    {}", outcome.answer));
            }
        })
        .await?;
        for line in lines {
            writeln!(out, "{line}")?;
        }
        // Arrangements that do not fit are only reported: they were written for fewer recordings than the folder may have.
        for what in report.refused.iter().chain(&report.forced).chain(&report.unforced) {
            writeln!(out, "{what}")?;
        }
        for name in report.idle_exceptions(&exceptions) {
            writeln!(out, "{name}: listed as an exception, but it agrees or does not exist: take it off the list")?;
        }
        writeln!(out, "{}", report.total())?;
        let surprises = report.surprises(&exceptions).count();
        if !report.suffices() {
            bail!("fewer than {REQUIRED} of a hundred exchanges agree");
        }
        if self.exceptions.is_some() && surprises > 0 {
            bail!("{surprises} exchanges differ and are not listed as exceptions");
        }
        if report.idle_exceptions(&exceptions).next().is_some() {
            bail!("the list of exceptions names exchanges that agree");
        }
        Ok(())
    }

    fn arrangements(&self, folder: &Path) -> anyhow::Result<Arrangements> {
        let beside = Arrangements::beside(folder)?;
        Ok(match &self.arrangements {
            Some(further) => beside.and(Arrangements::in_folder(further)?),
            None => beside,
        })
    }
}

fn endpoint_target(endpoint: &str) -> anyhow::Result<Target> {
    let base = endpoint.trim_end_matches('/').trim_end_matches("/MAAS").to_owned();
    let client = reqwest::Client::builder().no_proxy().build().context("cannot make an HTTP client")?;
    Ok(Target::Endpoint { base, client })
}

fn line(outcome: &Outcome, exceptions: &Exceptions) -> String {
    if outcome.agrees() {
        return format!("{}: agrees", outcome.name);
    }
    let what: Vec<_> = outcome.differences.iter().map(ToString::to_string).collect();
    let known = exceptions.reason(&outcome.name).map(|why| format!(" (known: {})", why.trim())).unwrap_or_default();
    format!("{}: {}: {}{known}", outcome.name, outcome.request, what.join("; "))
}
