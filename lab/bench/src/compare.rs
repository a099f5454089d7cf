//! Two providers compared: measured alternately, so that other load on the machine affects both, and shown as medians
//! with their spread and the ratio.

use std::fmt::Write as _;

use serde::Serialize;

use crate::run::{Measured, Traffic, fraction};

/// One line of the table.
struct Line {
    name: &'static str,
    value: fn(&Measured) -> f64,
}

/// What is compared: smaller is always better.
const LINES: &[Line] = &[
    Line { name: "creation → all provisioned, s", value: |run| run.deployed_seconds },
    Line { name: "created → taken, added p99, s", value: |run| added(run, "created → taken in MAAS") },
    Line {
        name: "taken → deployment ordered, added p99, s", value: |run| added(run, "taken → deployment ordered")
    },
    Line {
        name: "Deployed → provisioned, added p99, s", value: |run| added(run, "Deployed in MAAS → provisioned")
    },
    Line { name: "MAAS requests a machine, until provisioned", value: |run| each(run, run.coming.requests()) },
    Line { name: "MAAS mutations a machine", value: |run| each(run, run.coming.maas_mutations) },
    Line { name: "Kubernetes writes a machine, until provisioned", value: |run| each(run, run.coming.writes()) },
    Line { name: "Kubernetes reads a machine, until provisioned", value: |run| each(run, run.coming.reads()) },
    Line { name: "CPU until provisioned, ms a machine", value: |run| cpu(run, &run.coming) },
    Line {
        name: "CPU of the API server until provisioned, ms a machine",
        value: |run| run.coming.others.api_server * 1000.0 / fraction(run.machines),
    },
    Line { name: "memory at its peak, MiB", value: |run| run.rss_peak_mib },
    Line { name: "idle: MAAS requests a minute", value: |run| fraction(run.idle.requests()) * 60.0 / run.idle.seconds },
    Line { name: "restart: MAAS requests", value: |run| fraction(run.restart.traffic.requests()) },
    Line { name: "restart: MAAS mutations", value: |run| fraction(run.restart.traffic.maas_mutations) },
    Line { name: "deletion of all, s", value: |run| run.going.seconds },
    Line { name: "deletion: MAAS requests a machine", value: |run| each(run, run.going.requests()) },
    Line { name: "deletion: Kubernetes writes a machine", value: |run| each(run, run.going.writes()) },
    Line { name: "deletion: CPU, ms a machine", value: |run| cpu(run, &run.going) },
    Line { name: "left in MAAS", value: |run| fraction(run.left_over.len()) },
];

fn each(run: &Measured, count: usize) -> f64 {
    fraction(count) / fraction(run.machines)
}

fn cpu(run: &Measured, traffic: &Traffic) -> f64 {
    traffic.cpu_seconds * 1000.0 / fraction(run.machines)
}

fn added(run: &Measured, phase: &str) -> f64 {
    run.phases.iter().find(|found| found.name == phase).map_or(f64::NAN, |found| found.added.p99)
}

/// The runs of two providers with the same number of machines.
#[derive(Debug, Serialize)]
pub struct Comparison {
    /// The command lines.
    pub providers: [String; 2],
    /// The runs of each, in order.
    pub runs: [Vec<Measured>; 2],
}

/// The median of some numbers, with minimum and maximum.
#[derive(Clone, Copy, Debug, PartialEq)]
struct Median {
    middle: f64,
    least: f64,
    most: f64,
}

impl Median {
    fn of(mut numbers: Vec<f64>) -> Self {
        numbers.sort_by(f64::total_cmp);
        let at = |index: usize| numbers.get(index).copied().unwrap_or(f64::NAN);
        let half = numbers.len() / 2;
        let middle =
            if numbers.len() % 2 == 1 { at(half) } else { f64::midpoint(at(half.saturating_sub(1)), at(half)) };
        Self { middle, least: at(0), most: at(numbers.len().saturating_sub(1)) }
    }

    fn in_words(self) -> String {
        format!("{:.2} ({:.2}–{:.2})", self.middle, self.least, self.most)
    }
}

impl Comparison {
    /// The table: the first provider, the second, and the ratio of the first to the second.
    pub fn markdown(&self) -> String {
        let first = self.runs.iter().flatten().next();
        let machines = first.map_or(0, |run| run.machines);
        let mut text = format!(
            "## {machines} machines, medians of {} and {} runs (least–most)\n\n| | `{}` | `{}` | ratio |\n|---|---|---|---|\n",
            self.runs[0].len(),
            self.runs[1].len(),
            self.providers[0],
            self.providers[1]
        );
        for line in LINES {
            let [ours, theirs] = self.runs.each_ref().map(|runs| Median::of(runs.iter().map(line.value).collect()));
            let ratio =
                if theirs.middle > 0.0 { format!("{:.2}", ours.middle / theirs.middle) } else { "–".to_owned() };
            let _ = writeln!(text, "| {} | {} | {} | {ratio} |", line.name, ours.in_words(), theirs.in_words());
        }
        text
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn a_median_is_the_middle_or_half_way_between_two_middles() {
        assert_eq!(Median::of(vec![3.0, 1.0, 2.0]), Median { middle: 2.0, least: 1.0, most: 3.0 });
        assert_eq!(Median::of(vec![4.0, 1.0, 2.0, 3.0]), Median { middle: 2.5, least: 1.0, most: 4.0 });
        assert_eq!(Median::of(vec![1.0, 3.0]).in_words(), "2.00 (1.00–3.00)");
    }
}
