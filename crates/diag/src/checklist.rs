//! The checklist that each program prints: for people line by line while it runs, for programs as one JSON document at
//! the end.

use std::io::{self, Write};

use serde::Serialize;

/// The outcome of one check.
#[derive(Debug, Clone, Copy, PartialEq, Eq, Serialize)]
#[serde(rename_all = "kebab-case")]
pub enum Outcome {
    /// It was already right.
    Good,
    /// It was just fixed, or reverted as intended.
    Done,
    /// It would be done without `--dry-run`.
    WouldDo,
    /// It is wrong.
    Failed,
    /// It was not checked, because an earlier check failed.
    Open,
}

impl Outcome {
    fn mark(self) -> &'static str {
        match self {
            Self::Good => "[ ok ]",
            Self::Done => "[done]",
            Self::WouldDo => "[plan]",
            Self::Failed => "[FAIL]",
            Self::Open => "[ -- ]",
        }
    }
}

/// One line of the list.
#[derive(Debug, Clone, PartialEq, Eq, Serialize)]
pub struct Check {
    /// What was checked.
    pub subject: &'static str,
    pub outcome: Outcome,
    /// What was found or done.
    pub found: String,
    /// How to fix it, if it is wrong.
    #[serde(skip_serializing_if = "Option::is_none")]
    pub mend: Option<String>,
}

/// The checklist of one run.
#[derive(Debug, Serialize)]
pub struct Checklist {
    tool: &'static str,
    checks: Vec<Check>,
    /// What is left behind on purpose.
    leaves: Vec<String>,
    #[serde(skip)]
    json: bool,
}

impl Checklist {
    pub fn new(tool: &'static str, json: bool) -> Self {
        Self { tool, checks: Vec::new(), leaves: Vec::new(), json }
    }

    /// It is right.
    pub fn good(&mut self, subject: &'static str, found: impl Into<String>) {
        self.add(subject, Outcome::Good, found.into(), None);
    }

    pub fn done(&mut self, subject: &'static str, what: impl Into<String>) {
        self.add(subject, Outcome::Done, what.into(), None);
    }

    /// It would be done.
    pub fn would(&mut self, subject: &'static str, what: impl Into<String>) {
        self.add(subject, Outcome::WouldDo, what.into(), None);
    }

    /// It is wrong, with the fix.
    pub fn failed(&mut self, subject: &'static str, found: impl Into<String>, mend: impl Into<String>) {
        self.add(subject, Outcome::Failed, found.into(), Some(mend.into()));
    }

    /// It was not checked.
    pub fn open(&mut self, subject: &'static str, why: impl Into<String>) {
        self.add(subject, Outcome::Open, why.into(), None);
    }

    /// Something is left behind on purpose.
    pub fn leaves(&mut self, what: impl Into<String>) {
        self.leaves.push(what.into());
    }

    /// Whether nothing is wrong so far.
    pub fn is_good(&self) -> bool {
        !self.checks.is_empty() && !self.checks.iter().any(|check| check.outcome == Outcome::Failed)
    }

    fn add(&mut self, subject: &'static str, outcome: Outcome, found: String, mend: Option<String>) {
        let check = Check { subject, outcome, found, mend };
        if !self.json {
            // If the pipe is closed, nobody reads this; the exit code still reports the result.
            let _ = print(&check);
        }
        self.checks.push(check);
    }

    /// Prints the rest; returns whether everything is right.
    pub fn finish(self) -> io::Result<bool> {
        let good = self.is_good();
        let mut out = io::stdout().lock();
        if self.json {
            #[derive(Serialize)]
            struct Whole<'a> {
                ok: bool,
                #[serde(flatten)]
                list: &'a Checklist,
            }
            serde_json::to_writer_pretty(&mut out, &Whole { ok: good, list: &self })?;
            writeln!(out)?;
            return Ok(good);
        }
        for left in &self.leaves {
            writeln!(out, "leaves: {left}")?;
        }
        writeln!(out, "{}: {}", self.tool, self.verdict())?;
        Ok(good)
    }

    /// The last line. Steps that would still have to be done do not count as right.
    fn verdict(&self) -> String {
        let count = |outcome| self.checks.iter().filter(|check| check.outcome == outcome).count();
        match (self.is_good(), count(Outcome::WouldDo)) {
            (true, 0) => "everything is in order".to_owned(),
            (true, 1) => "nothing is wrong, and 1 step is left to do: run it without --dry-run".to_owned(),
            (true, steps) => format!("nothing is wrong, and {steps} steps are left to do: run it without --dry-run"),
            (false, _) => format!("{} of {} checks failed", count(Outcome::Failed), self.checks.len()),
        }
    }
}

fn print(check: &Check) -> io::Result<()> {
    let mut out = io::stdout().lock();
    writeln!(out, "{} {:<18} {}", check.outcome.mark(), check.subject, check.found)?;
    if let Some(mend) = &check.mend {
        writeln!(out, "       {:<18} fix: {mend}", "")?;
    }
    out.flush()
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn a_list_is_good_only_if_something_was_checked_and_nothing_is_wrong() {
        let mut list = Checklist::new("t", true);
        assert!(!list.is_good(), "nothing was checked");
        list.good("a", "is there");
        list.open("b", "waits");
        assert!(list.is_good());
        list.failed("c", "is missing", "make it");
        assert!(!list.is_good());
    }

    #[test]
    fn a_dry_run_that_leaves_something_to_do_does_not_say_that_all_is_right() {
        let mut list = Checklist::new("t", true);
        list.good("a", "is there");
        assert_eq!(list.verdict(), "everything is in order");
        list.would("b", "would make it");
        assert_eq!(list.verdict(), "nothing is wrong, and 1 step is left to do: run it without --dry-run");
        list.would("c", "would make it");
        assert!(list.verdict().contains("2 steps are left"), "{}", list.verdict());
        list.failed("d", "is missing", "make it");
        assert_eq!(list.verdict(), "1 of 4 checks failed");
    }
}
