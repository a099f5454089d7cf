//! Instruction counts: they do not depend on the load of a machine, so that an increase is real.

use std::collections::BTreeMap;
use std::path::Path;
use std::process::Command;

use anyhow::{Context as _, bail, ensure};

/// What is counted, and how many more times it runs in the second of two runs.
const HOT: [(&str, u32); 3] = [("placement", 10), ("decide", 200), ("decode", 50)];
/// The maximum growth.
const GROWTH: f64 = 1.10;

type Counts = BTreeMap<String, u64>;
/// Counts by compiler: different compilers generate different instructions.
type Baseline = BTreeMap<String, Counts>;

/// Counts with the program `hot`, compares with the recorded counts of this compiler (or records them on request), and
/// returns the table.
pub(crate) fn check(hot: &Path, baseline: &Path, record: bool) -> anyhow::Result<String> {
    let compiler = compiler()?;
    let mut counts = Counts::new();
    for (name, times) in HOT {
        // One-time costs, and the first iteration of what is counted, are in both runs.
        let (few, many) = (instructions(hot, name, 1)?, instructions(hot, name, 1 + times)?);
        counts.insert(name.to_owned(), many.saturating_sub(few) / u64::from(times));
    }
    let mut recorded: Baseline = match std::fs::read_to_string(baseline) {
        Ok(text) => serde_json::from_str(&text).with_context(|| format!("read {}", baseline.display()))?,
        Err(error) if error.kind() == std::io::ErrorKind::NotFound => Baseline::new(),
        Err(error) => return Err(error).with_context(|| format!("read {}", baseline.display())),
    };
    if record {
        let told = table(&counts, &Counts::new());
        recorded.insert(compiler.clone(), counts);
        let text = serde_json::to_string_pretty(&recorded)?;
        std::fs::write(baseline, text + "\n").with_context(|| format!("write {}", baseline.display()))?;
        return Ok(format!("{told}recorded for {compiler} in {}: commit it\n", baseline.display()));
    }
    let file = baseline.display();
    let Some(before) = recorded.remove(&compiler) else {
        let architecture = std::env::consts::ARCH;
        ensure!(
            !recorded.keys().any(|compiler| compiler.starts_with(architecture)),
            "nothing is recorded for {compiler} in {file}: run `make bench-check RECORD=1` on unchanged code and commit it"
        );
        return Ok(format!(
            "{}not recorded for this architecture ({architecture}), so nothing is compared\n",
            table(&counts, &Counts::new())
        ));
    };
    let table = table(&counts, &before);
    let grown = grown(&counts, &before);
    ensure!(
        grown.is_empty(),
        "{table}more than a tenth more instructions than recorded: {}; if that is worth it, record it with `make bench-check RECORD=1`",
        grown.join(", ")
    );
    Ok(format!("{table}none is more than a tenth above what was recorded for {compiler}\n"))
}

fn grown(counts: &Counts, before: &Counts) -> Vec<String> {
    let too_many = |(name, count): (&String, &u64)| {
        // Without a recorded count the check fails.
        let limit = before.get(name).map_or(0.0, |before| float(*before) * GROWTH);
        (float(*count) > limit).then(|| name.clone())
    };
    counts.iter().filter_map(too_many).collect()
}

fn table(counts: &Counts, before: &Counts) -> String {
    let row = |(name, count): (&String, &u64)| match before.get(name) {
        Some(before) => {
            let change = (float(*count) / float(*before) - 1.0) * 100.0;
            format!("{name:<10} {count:>10} instructions, recorded {before:>10} ({change:+.1} %)\n")
        }
        None => format!("{name:<10} {count:>10} instructions\n"),
    };
    counts.iter().map(row).collect()
}

/// Counts stay far below 2^53, so no precision is lost.
#[allow(clippy::cast_precision_loss)]
fn float(count: u64) -> f64 {
    count as f64
}

/// Architecture and version.
fn compiler() -> anyhow::Result<String> {
    let rustc = std::env::var_os("RUSTC").unwrap_or_else(|| "rustc".into());
    let output = Command::new(&rustc).arg("--version").output().context("ask rustc for its version")?;
    let version = String::from_utf8_lossy(&output.stdout).trim().to_owned();
    ensure!(output.status.success() && !version.is_empty(), "rustc does not tell its version");
    Ok(format!("{}, {version}", std::env::consts::ARCH))
}

fn instructions(hot: &Path, name: &str, times: u32) -> anyhow::Result<u64> {
    let output = Command::new("valgrind")
        .args(["--tool=callgrind", "--callgrind-out-file=/dev/null"])
        .arg(hot)
        .args([name, &times.to_string()])
        .output()
        .context("start valgrind, which counts instructions: run `make tools`, or apt-get install valgrind")?;
    let said = String::from_utf8_lossy(&output.stderr);
    if !output.status.success() {
        bail!("{} {name} {times} failed under valgrind: {said}", hot.display());
    }
    collected(&said).with_context(|| format!("valgrind did not say how many instructions {name} took: {said}"))
}

/// The number in "Collected : 123456".
fn collected(said: &str) -> Option<u64> {
    let line = said.lines().find_map(|line| line.split_once("Collected :"))?;
    line.1.trim().parse().ok()
}

#[cfg(test)]
mod tests {
    use super::*;

    fn counts(decide: u64) -> Counts {
        BTreeMap::from([("decide".to_owned(), decide)])
    }

    #[test]
    fn a_tenth_more_is_borne_and_a_little_more_than_that_is_not() {
        assert!(grown(&counts(110), &counts(100)).is_empty());
        assert_eq!(grown(&counts(111), &counts(100)), ["decide"]);
        assert_eq!(grown(&counts(111), &Counts::new()), ["decide"], "what nobody recorded is no proof");
    }

    #[test]
    fn the_count_is_found_in_what_valgrind_says() {
        let said = "==12== \n==12== Events    : Ir\n==12== Collected : 8124512\n==12== \n";
        assert_eq!(collected(said), Some(8_124_512));
        assert_eq!(collected("valgrind: no such tool"), None);
    }
}
