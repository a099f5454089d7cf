//! The output for users and CI: each binary's own output when it ends, and one line for all.

use std::time::Duration;

use super::binary::Ended;
use super::binary::TestBinary;

/// The total of all binaries.
#[derive(Default)]
pub(crate) struct Summary {
    passed: u64,
    failed: u64,
    /// Names of failed tests, and of binaries that failed without naming one.
    failures: Vec<String>,
    pub(crate) durations: Vec<(String, Duration)>,
}

impl Summary {
    /// Prints a binary's output, and counts its results.
    pub(crate) fn add(&mut self, binary: &TestBinary, ended: &Ended) {
        println!("\n     Running {} ({} s)", binary.name, ended.took.as_secs());
        self.durations.push((binary.name.clone(), ended.took));
        self.count(&binary.name, ended);
    }

    /// The same for the examples in the documentation.
    pub(crate) fn add_documentation(&mut self, ended: &Ended) {
        println!("\n     Running the examples in the documentation ({} s)", ended.took.as_secs());
        self.count("examples in the documentation", ended);
    }

    fn count(&mut self, name: &str, ended: &Ended) {
        print!("{}", ended.output);
        let mut named = false;
        for line in ended.output.lines() {
            if let Some(result) = line.strip_prefix("test result:") {
                self.passed += number_before(result, "passed");
                self.failed += number_before(result, "failed");
            } else if let Some(test) = line.strip_prefix("test ").and_then(|line| line.strip_suffix(" ... FAILED")) {
                self.failures.push(format!("{name}: {test}"));
                named = true;
            }
        }
        if !ended.good && !named {
            self.failed += 1;
            self.failures.push(format!("{name}: it ended badly and named no test"));
        }
    }

    pub(crate) fn is_good(&self) -> bool {
        self.failed == 0 && self.failures.is_empty()
    }

    pub(crate) fn print(&self) {
        println!();
        for failure in &self.failures {
            println!("failed: {failure}");
        }
        println!("\n{} passed, {} failed", self.passed, self.failed);
    }
}

/// The number before a word, as in "12 passed; 0 failed".
fn number_before(text: &str, word: &str) -> u64 {
    let words: Vec<&str> = text.split([' ', ';', '.']).filter(|word| !word.is_empty()).collect();
    words.windows(2).find(|pair| pair[1] == word).and_then(|pair| pair[0].parse().ok()).unwrap_or(0)
}

#[cfg(test)]
mod tests {
    use super::*;

    fn counted(output: &str, good: bool) -> Summary {
        let mut summary = Summary::default();
        summary.count("a", &Ended { output: output.to_owned(), good, took: Duration::ZERO });
        summary
    }

    #[test]
    fn numbers_are_added_up_and_failures_named() {
        let output = "test one ... ok\ntest two ... FAILED\ntest result: FAILED. 1 passed; 1 failed; 0 ignored\n";
        let summary = counted(output, false);
        assert_eq!((summary.passed, summary.failed, summary.is_good()), (1, 1, false));
        assert_eq!(summary.failures, ["a: two"]);
    }

    #[test]
    fn a_binary_that_dies_is_a_failure_even_if_it_names_none() {
        let summary = counted("signal: killed\n", false);
        assert_eq!((summary.failed, summary.is_good()), (1, false));
    }

    #[test]
    fn all_good_is_good() {
        let summary = counted("test result: ok. 12 passed; 0 failed; 0 ignored; finished in 1.2s\n", true);
        assert_eq!((summary.passed, summary.failed, summary.is_good()), (12, 0, true));
    }
}
