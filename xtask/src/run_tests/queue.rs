//! Which binary a free worker starts next.

use super::binary::TestBinary;

/// What the binaries of real nodes begin with, which boot up to eight machines each: two of them at the same time would
/// only make each other miss their timeouts.
const ALONE: &str = "e2e real_nodes";

fn is_alone(binary: &TestBinary) -> bool {
    binary.name.starts_with(ALONE)
}

/// The binaries that have not started yet.
pub(crate) struct Queue {
    waiting: Vec<TestBinary>,
    /// Whether one of [`ALONE`] runs.
    taken: bool,
}

impl Queue {
    pub(crate) fn new(binaries: Vec<TestBinary>) -> Self {
        Self { waiting: binaries, taken: false }
    }

    /// The first binary that may start now. `None` ends a worker: what still waits then is left to the worker whose
    /// binary it waits for.
    pub(crate) fn next(&mut self) -> Option<TestBinary> {
        let at = self.waiting.iter().position(|binary| !(self.taken && is_alone(binary)))?;
        let binary = self.waiting.remove(at);
        self.taken |= is_alone(&binary);
        Some(binary)
    }

    /// A binary that it gave out has ended.
    pub(crate) fn ended(&mut self, binary: &TestBinary) {
        self.taken &= !is_alone(binary);
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    fn queue(names: &[&str]) -> Queue {
        Queue::new(names.iter().map(|name| TestBinary::named(name)).collect())
    }

    /// The names of all that may start now.
    fn start(queue: &mut Queue) -> Vec<TestBinary> {
        std::iter::from_fn(|| queue.next()).collect()
    }

    fn names(binaries: &[TestBinary]) -> Vec<&str> {
        binaries.iter().map(|binary| binary.name.as_str()).collect()
    }

    #[test]
    fn of_the_binaries_of_real_nodes_one_runs_at_a_time_and_the_others_hold_up_nobody() {
        let mut queue = queue(&["e2e real_nodes_life", "e2e real_nodes_versions", "core core", "e2e metal_life"]);
        let begun = start(&mut queue);
        assert_eq!(names(&begun), ["e2e real_nodes_life", "core core", "e2e metal_life"]);
        queue.ended(&begun[1]);
        assert!(queue.next().is_none(), "the first binary of real nodes still runs");
        queue.ended(&begun[0]);
        assert_eq!(names(&start(&mut queue)), ["e2e real_nodes_versions"]);
    }

    #[test]
    fn every_binary_starts_once_however_few_workers_there_are() {
        let mut queue = queue(&["e2e real_nodes_life", "e2e real_nodes_versions", "core core"]);
        let mut begun = Vec::new();
        while let Some(binary) = queue.next() {
            queue.ended(&binary);
            begun.push(binary);
        }
        assert_eq!(names(&begun), ["e2e real_nodes_life", "e2e real_nodes_versions", "core core"]);
    }
}
