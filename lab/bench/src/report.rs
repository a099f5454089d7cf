//! The results, as a table, as JSON and as plots.

use std::collections::BTreeSet;
use std::fmt::Write as _;
use std::path::Path;

use anyhow::Context as _;
use serde_json::json;

use crate::plot;
use crate::processors::Others;
use crate::run::{Measured, Traffic, fraction};
use crate::targets::{Target, judge};

/// Writes `report.md`, `report.json` and the plots, and returns the text of the first.
pub fn write(folder: &Path, provider: &str, runs: &[Measured]) -> anyhow::Result<String> {
    std::fs::create_dir_all(folder).with_context(|| format!("make the folder {}", folder.display()))?;
    let text = markdown(provider, runs);
    let targets: Vec<Vec<Target>> = runs.iter().map(judge).collect();
    let save = |name: &str, content: &str| {
        let path = folder.join(name);
        std::fs::write(&path, content).with_context(|| format!("write {}", path.display()))
    };
    save("report.md", &text)?;
    let json = json!({"provider": provider, "runs": runs, "targets": targets});
    save("report.json", &format!("{json:#}\n"))?;
    for (name, plot) in plots(runs) {
        save(name, &plot)?;
    }
    Ok(text)
}

type Cell = Box<dyn Fn(&Measured) -> String>;

pub fn markdown(provider: &str, runs: &[Measured]) -> String {
    let mut rows: Vec<(String, Cell)> = Vec::new();
    let mut row = |name: &str, cell: Cell| rows.push((name.to_owned(), cell));
    row("creation → all provisioned, s", Box::new(|run| format!("{:.1}", run.deployed_seconds)));
    for index in 0..runs.first().map_or(0, |run| run.phases.len()) {
        let name = runs[0].phases[index].name;
        row(
            &format!("{name}: added p50 / p99 (wall p99), s"),
            Box::new(move |run| {
                let phase = &run.phases[index];
                format!("{:.2} / {:.2} ({:.2})", phase.added.p50, phase.added.p99, phase.wall.p99)
            }),
        );
    }
    row("MAAS requests a machine, until provisioned", Box::new(|run| per_machine(run.coming.requests(), run)));
    for kind in kinds(runs, |run| run.coming.maas_requests.keys()) {
        let name = format!("– {kind}");
        row(&name, Box::new(move |run| per_machine(count(&run.coming.maas_requests, &kind), run)));
    }
    row(
        "MAAS mutations a machine, mean / most",
        Box::new(|run| format!("{} / {}", per_machine(run.coming.maas_mutations, run), run.most_mutations)),
    );
    row("Kubernetes writes a machine, until provisioned", Box::new(|run| per_machine(run.coming.writes(), run)));
    for kind in kinds(runs, |run| run.coming.kubernetes_writes.keys()) {
        let name = format!("– {kind}");
        row(&name, Box::new(move |run| per_machine(count(&run.coming.kubernetes_writes, &kind), run)));
    }
    row(
        "– time of one in the API server, p50 / p99, ms",
        Box::new(|run| {
            let one = run.coming.kubernetes_write;
            format!("{:.0} / {:.0}", one.p50 * 1000.0, one.p99 * 1000.0)
        }),
    );
    row("Kubernetes reads a machine, until provisioned", Box::new(|run| per_machine(run.coming.reads(), run)));
    for kind in kinds(runs, |run| run.coming.kubernetes_reads.keys()) {
        let name = format!("– {kind}");
        row(&name, Box::new(move |run| per_machine(count(&run.coming.kubernetes_reads, &kind), run)));
    }
    row("CPU until provisioned, s (ms a machine)", Box::new(|run| cpu(&run.coming, run)));
    row(&others("until provisioned"), Box::new(|run| cpu_of_others(&run.coming, run)));
    row("memory peak / idle, MiB", Box::new(|run| format!("{:.1} / {:.1}", run.rss_peak_mib, run.rss_idle_mib)));
    row("idle: CPU, mCPU", Box::new(|run| format!("{:.1}", run.idle.cpu_seconds / run.idle.seconds * 1000.0)));
    row(
        "idle: MAAS requests in a minute",
        Box::new(|run| format!("{:.1}", fraction(run.idle.requests()) * 60.0 / run.idle.seconds)),
    );
    row("idle: Kubernetes writes", Box::new(|run| run.idle.writes().to_string()));
    row("restart: until steady, s", Box::new(|run| format!("{:.1}", run.restart.steady_seconds)));
    row(
        "restart: MAAS requests / mutations / writes",
        Box::new(|run| {
            let traffic = &run.restart.traffic;
            format!("{} / {} / {}", traffic.requests(), traffic.maas_mutations, traffic.writes())
        }),
    );
    row("MAAS away: requests a second", Box::new(|run| format!("{:.2}", run.away.requests_per_second)));
    row("MAAS away: flips of Ready", Box::new(|run| run.away.flips.to_string()));
    row("MAAS away: newcomers taken after its return, s", Box::new(|run| format!("{:.1}", run.away.recovered_seconds)));
    row("deletion of all, s", Box::new(|run| format!("{:.1}", run.going.seconds)));
    row(
        "deletion: MAAS requests / writes a machine",
        Box::new(|run| {
            format!("{} / {}", per_machine(run.going.requests(), run), per_machine(run.going.writes(), run))
        }),
    );
    row("deletion: CPU, s (ms a machine)", Box::new(|run| cpu(&run.going, run)));
    row(&others("deletion"), Box::new(|run| cpu_of_others(&run.going, run)));
    row(
        "left in MAAS",
        Box::new(|run| if run.left_over.is_empty() { "nothing".into() } else { run.left_over.join(", ") }),
    );

    let mut text = format!("# {provider}\n\n");
    let head: Vec<String> = runs.iter().map(title).collect();
    let _ = writeln!(text, "| | {} |\n|---|{}", head.join(" | "), "---|".repeat(runs.len()));
    for (name, cell) in rows {
        let cells: Vec<String> = runs.iter().map(&cell).collect();
        let _ = writeln!(text, "| {name} | {} |", cells.join(" | "));
    }
    for run in runs {
        let targets = judge(run);
        if targets.is_empty() {
            continue;
        }
        let _ = writeln!(text, "\n## Targets, {}\n\n| | at most | measured | |\n|---|---|---|---|", title(run));
        for target in targets {
            let mark = if target.kept { "kept" } else { "**missed**" };
            let _ = writeln!(text, "| {} | {} | {:.2} | {mark} |", target.what, target.limit, target.measured);
        }
    }
    text
}

fn title(run: &Measured) -> String {
    let kind = format!("{:?}", run.kind).to_lowercase();
    let (speed, latency) = (format!("{:?}", run.speed).to_lowercase(), format!("{:?}", run.latency).to_lowercase());
    let pace = run.per_second.map_or_else(|| "at once".to_owned(), |pace| format!("{pace} a second"));
    format!("{} × {kind} {pace}, speed {speed}, latency {latency}", run.machines)
}

fn kinds<'a, K>(runs: &'a [Measured], of: impl Fn(&'a Measured) -> K) -> BTreeSet<String>
where
    K: Iterator<Item = &'a String>,
{
    runs.iter().flat_map(of).cloned().collect()
}

fn count(counts: &std::collections::BTreeMap<String, usize>, kind: &str) -> usize {
    counts.get(kind).copied().unwrap_or_default()
}

fn per_machine(count: usize, run: &Measured) -> String {
    format!("{:.2}", fraction(count) / fraction(run.machines))
}

fn cpu(traffic: &Traffic, run: &Measured) -> String {
    format!("{:.2} ({:.1})", traffic.cpu_seconds, traffic.cpu_seconds * 1000.0 / fraction(run.machines))
}

fn others(stretch: &str) -> String {
    format!("{stretch}: CPU of API server / etcd / MAAS / bench, ms a machine")
}

fn cpu_of_others(traffic: &Traffic, run: &Measured) -> String {
    let Others { api_server, etcd, maas, bench } = traffic.others;
    let each = [api_server, etcd, maas, bench].map(|used| format!("{:.1}", used * 1000.0 / fraction(run.machines)));
    each.join(" / ")
}

/// How the cost grows with the number of machines.
fn plots(runs: &[Measured]) -> Vec<(&'static str, String)> {
    let line = |name: &'static str, value: &dyn Fn(&Measured) -> f64| plot::Line {
        name,
        points: runs.iter().map(|run| (fraction(run.machines), value(run))).collect(),
    };
    vec![
        (
            "cpu.svg",
            plot::draw(
                "CPU seconds",
                "machines",
                &[
                    line("until provisioned", &|run| run.coming.cpu_seconds),
                    line("deletion", &|run| run.going.cpu_seconds),
                    line("restart", &|run| run.restart.traffic.cpu_seconds),
                ],
            ),
        ),
        (
            "memory.svg",
            plot::draw(
                "memory, MiB",
                "machines",
                &[line("peak", &|run| run.rss_peak_mib), line("idle", &|run| run.rss_idle_mib)],
            ),
        ),
        (
            "requests.svg",
            plot::draw(
                "MAAS requests",
                "machines",
                &[
                    line("until provisioned", &|run| fraction(run.coming.requests())),
                    line("of these mutations", &|run| fraction(run.coming.maas_mutations)),
                    line("deletion", &|run| fraction(run.going.requests())),
                    line("restart", &|run| fraction(run.restart.traffic.requests())),
                ],
            ),
        ),
        (
            "writes.svg",
            plot::draw(
                "Kubernetes writes",
                "machines",
                &[
                    line("until provisioned", &|run| fraction(run.coming.writes())),
                    line("deletion", &|run| fraction(run.going.writes())),
                ],
            ),
        ),
        (
            "seconds.svg",
            plot::draw(
                "seconds",
                "machines",
                &[
                    line("creation → all provisioned", &|run| run.deployed_seconds),
                    line("deletion of all", &|run| run.going.seconds),
                    line("restart until steady", &|run| run.restart.steady_seconds),
                ],
            ),
        ),
    ]
}
