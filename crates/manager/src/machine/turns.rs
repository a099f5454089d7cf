//! Whose turn it is. When a thousand machines are asked for at once, those that are half way must not wait behind all that have
//! not begun: MAAS has deployed them, or given them back, and somebody waits for that.

use capmaas_api::MaasMachine;
use capmaas_core::machine::Record;
use tokio::sync::{Semaphore, SemaphorePermit};

/// So many passes are under way at once, and at most half of them are over machines for which MAAS holds nothing yet: the other half
/// of the places is always open to everybody else.
#[derive(Debug)]
pub(super) struct Turns {
    all: Semaphore,
    newcomers: Semaphore,
}

/// Lasts until it is dropped.
#[derive(Debug)]
pub(super) struct Turn<'a> {
    _place: SemaphorePermit<'a>,
    _as_newcomer: Option<SemaphorePermit<'a>>,
}

impl Turns {
    /// For so many at once.
    pub(super) fn new(at_once: u16) -> Self {
        let at_once = usize::from(at_once.max(1));
        Self { all: Semaphore::new(at_once), newcomers: Semaphore::new(at_once.div_ceil(2)) }
    }

    /// Waits for the machine's turn; `None` if there are no more.
    pub(super) async fn of(&self, machine: &MaasMachine) -> Option<Turn<'_>> {
        let as_newcomer = if is_newcomer(machine) { Some(self.newcomers.acquire().await.ok()?) } else { None };
        Some(Turn { _place: self.all.acquire().await.ok()?, _as_newcomer: as_newcomer })
    }

    /// The manager stops: what is under way comes to its end, and whoever still waits is left to the next manager.
    pub(super) fn end(&self) {
        self.newcomers.close();
        self.all.close();
    }
}

/// MAAS holds nothing for it yet.
fn is_newcomer(machine: &MaasMachine) -> bool {
    let record = Record::read(machine.metadata.annotations.as_ref()).ok().flatten();
    machine.spec.provider_id().is_none() && record.is_none_or(|record| record.machine.is_none())
}

#[cfg(test)]
mod tests {
    use futures::FutureExt as _;

    use super::super::fixture::remembering;
    use super::*;

    fn machine(record: &Record) -> MaasMachine {
        serde_json::from_value(remembering("m", record)).unwrap()
    }

    #[tokio::test]
    async fn a_machine_that_is_half_way_does_not_wait_behind_those_that_have_not_begun() {
        let newcomer = machine(&Record::new("u"));
        let half_way = machine(&Record { machine: Some("abc123".into()), ..Record::new("u") });
        let turns = Turns::new(4);
        let under_way = [turns.of(&newcomer).await, turns.of(&newcomer).await];
        assert!(turns.of(&newcomer).now_or_never().is_none(), "half of all are newcomers already");
        let (one, two) = (turns.of(&half_way).await, turns.of(&half_way).await);
        assert!(one.is_some() && two.is_some());
        assert!(turns.of(&half_way).now_or_never().is_none(), "there are no more than four at once");
        drop((one, two));
        drop(under_way);
        assert!(turns.of(&newcomer).now_or_never().is_some());
    }

    #[tokio::test]
    async fn where_only_one_is_allowed_at_once_nobody_is_locked_out() {
        let turns = Turns::new(0);
        let newcomer = machine(&Record::new("u"));
        drop(turns.of(&newcomer).await);
        assert!(turns.of(&newcomer).now_or_never().is_some());
    }

    #[tokio::test]
    async fn who_waits_when_the_manager_stops_gets_no_turn() {
        let (turns, newcomer) = (Turns::new(1), machine(&Record::new("u")));
        let under_way = turns.of(&newcomer).await;
        let waits = turns.of(&newcomer);
        turns.end();
        assert!(waits.await.is_none());
        assert!(under_way.is_some());
    }
}
