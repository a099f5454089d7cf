//! CPU usage by component. All components share one machine, and what one uses the others wait for: elapsed time can
//! only be understood together with who used the CPU.

use std::path::Path;

use anyhow::{Context as _, bail};
use capmaas_testbed::Testbed;
use maas_sim::serve::THREADS;
use serde::Serialize;

/// The unit of CPU time in /proc, on every architecture that we know.
const TICKS_PER_SECOND: f64 = 100.0;

/// CPU time of everything except the provider, in seconds.
#[derive(Clone, Copy, Debug, Default, Serialize)]
pub struct Others {
    pub api_server: f64,
    /// The API server's etcd.
    pub etcd: f64,
    /// The simulated MAAS.
    pub maas: f64,
    /// The benchmark itself, which also simulates Cluster API.
    pub bench: f64,
}

impl Others {
    /// Since each was started.
    pub fn now(testbed: &Testbed) -> anyhow::Result<Self> {
        let mut others = Self::default();
        for process in testbed.processes() {
            let used = seconds(&Path::new("/proc").join(process.id().to_string()))?;
            match process.name() {
                "kube-apiserver" => others.api_server += used,
                "etcd" => others.etcd += used,
                _ => {}
            }
        }
        for thread in std::fs::read_dir("/proc/self/task").context("list the threads of this process")? {
            let thread = thread?.path();
            let name = std::fs::read_to_string(thread.join("comm")).unwrap_or_default();
            if name.trim_end() == THREADS {
                // A thread that has just ended has used nothing worth an error.
                others.maas += seconds(&thread).unwrap_or_default();
            }
        }
        others.bench = seconds(Path::new("/proc/self"))? - others.maas;
        Ok(others)
    }

    /// Since an earlier measurement.
    #[must_use]
    pub fn since(self, before: Self) -> Self {
        Self {
            api_server: self.api_server - before.api_server,
            etcd: self.etcd - before.etcd,
            maas: self.maas - before.maas,
            bench: self.bench - before.bench,
        }
    }
}

/// CPU time, user and system, of a process or thread, by its folder in /proc.
pub fn seconds(folder: &Path) -> anyhow::Result<f64> {
    let path = folder.join("stat");
    let stat = std::fs::read_to_string(&path).with_context(|| format!("read {}", path.display()))?;
    let Some(ticks) = ticks(&stat) else { bail!("{} holds no times", path.display()) };
    Ok(ticks / TICKS_PER_SECOND)
}

fn ticks(stat: &str) -> Option<f64> {
    // The program name, in parentheses, may contain anything; numbers follow it.
    let (_, numbers) = stat.rsplit_once(')')?;
    let mut numbers = numbers.split_whitespace().skip(11).map(str::parse::<f64>);
    Some(numbers.next()?.ok()? + numbers.next()?.ok()?)
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn user_and_system_time_are_found_behind_whatever_name_a_program_has() {
        let stat = "4711 (an odd) name) S 1 2 3 0 -1 4194560 100 0 5 0 250 50 0 0 20 0 1 0 9 1 2 3";
        assert_eq!(ticks(stat), Some(300.0));
        assert_eq!(ticks("4711 (short) S 1"), None);
    }
}
