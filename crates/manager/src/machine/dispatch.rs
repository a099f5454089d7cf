//! Passes over many machines: one machine's never at the same time, and not too many at once.
//!
//! kube's controller does this as well, but keeps a future and an object for each machine that waits, and asks all of these futures
//! whenever one of them goes on, so that the time for a machine grows with their number. Here only a name waits.

use std::panic::resume_unwind;
use std::pin::pin;
use std::time::Duration;

use futures::channel::mpsc;
use futures::stream::{Stream, StreamExt as _, select};
use kube::runtime::scheduler::{ScheduleRequest, scheduler};
use tokio::task::{JoinError, JoinSet};
use tokio::time::Instant;

use super::queue::Queue;
use crate::port::Key;

/// Passes over every machine that is asked for, until `stop`; then those under way come to their end, and whoever still waits is
/// left to the next manager.
///
/// A pass answers when it wants to be repeated, if nothing happens before. `is_newcomer` tells whether MAAS holds nothing for a
/// machine yet; `None` if there is no such machine.
pub(super) async fn dispatch<Pass>(
    asked: impl Stream<Item = Key>,
    at_once: u16,
    is_newcomer: impl Fn(&Key) -> Option<bool>,
    pass: impl Fn(Key) -> Pass,
    stop: impl Future<Output = ()>,
) where
    Pass: Future<Output = Option<Duration>> + Send + 'static,
{
    let (repeat, repeated) = mpsc::unbounded();
    let asked = asked.map(|machine| ScheduleRequest { message: machine, run_at: Instant::now() });
    let mut due = pin!(scheduler(select(asked, repeated)));
    let mut stop = pin!(stop);
    let mut queue = Queue::new(at_once);
    let mut passes = JoinSet::new();
    let ask = |queue: &mut Queue, machine: Key| {
        if let Some(is_newcomer) = is_newcomer(&machine) {
            queue.ask(machine, is_newcomer);
        }
    };
    loop {
        while let Some(machine) = queue.begin() {
            let pass = pass(machine.clone());
            passes.spawn(async move { (machine, pass.await) });
        }
        tokio::select! {
            () = &mut stop => break,
            Some(machine) = due.next() => ask(&mut queue, machine),
            Some(ended) = passes.join_next() => {
                let Some((machine, wait)) = outcome(ended) else { continue };
                if queue.end(&machine) {
                    // What it asked for is superseded: the pass to come will know better.
                    ask(&mut queue, machine);
                } else if let Some(run_at) = wait.and_then(|wait| Instant::now().checked_add(wait)) {
                    // The other end is in this function.
                    let _ = repeat.unbounded_send(ScheduleRequest { message: machine, run_at });
                }
            }
        }
    }
    while let Some(ended) = passes.join_next().await {
        outcome(ended);
    }
}

/// What a pass has answered. A panic in it goes on here, as if there were no task in between.
fn outcome<T>(ended: Result<T, JoinError>) -> Option<T> {
    match ended.map_err(JoinError::try_into_panic) {
        Ok(answer) => Some(answer),
        Err(Ok(cause)) => resume_unwind(cause),
        // Cancelled, which happens only when everything ends.
        Err(Err(_)) => None,
    }
}

#[cfg(test)]
mod tests {
    use std::future::pending;
    use std::sync::{Arc, Mutex};

    use tokio::time::sleep;

    use super::*;

    fn key(name: &str) -> Key {
        Key::new("team", name)
    }

    /// Begins and ends of passes, with the second in which they happened.
    #[derive(Clone)]
    struct Diary {
        began: Instant,
        lines: Arc<Mutex<Vec<String>>>,
    }

    impl Diary {
        fn new() -> Self {
            Self { began: Instant::now(), lines: Arc::default() }
        }

        fn note(&self, what: &str) {
            self.lines.lock().unwrap().push(format!("{} {what}", self.began.elapsed().as_secs()));
        }

        fn lines(&self) -> Vec<String> {
            self.lines.lock().unwrap().clone()
        }
    }

    /// Passes of three seconds that want to be repeated after ten, once.
    fn slow_passes(diary: &Diary) -> impl Fn(Key) -> futures::future::BoxFuture<'static, Option<Duration>> + use<> {
        let diary = diary.clone();
        move |machine| {
            let diary = diary.clone();
            Box::pin(async move {
                let first = !diary.lines().iter().any(|line| line.ends_with(&format!("{} ends", machine.name)));
                diary.note(&format!("{} begins", machine.name));
                sleep(Duration::from_secs(3)).await;
                diary.note(&format!("{} ends", machine.name));
                first.then_some(Duration::from_secs(10))
            })
        }
    }

    #[tokio::test(start_paused = true)]
    async fn a_machine_is_passed_over_again_when_it_wants_to_be() {
        let (diary, stop) = (Diary::new(), sleep(Duration::from_secs(60)));
        let asked = futures::stream::iter([key("a"), key("a")]);
        dispatch(asked, 4, |_| Some(true), slow_passes(&diary), stop).await;
        assert_eq!(diary.lines(), ["0 a begins", "3 a ends", "13 a begins", "16 a ends"]);
    }

    #[tokio::test(start_paused = true)]
    async fn what_happens_during_a_pass_calls_for_another_one_right_after_it_and_never_beside_it() {
        let (diary, stop) = (Diary::new(), sleep(Duration::from_secs(60)));
        let (ask, asked) = mpsc::unbounded();
        ask.unbounded_send(key("a")).unwrap();
        let happens = async {
            sleep(Duration::from_secs(1)).await;
            ask.unbounded_send(key("a")).unwrap();
            ask.unbounded_send(key("b")).unwrap();
        };
        tokio::join!(dispatch(asked, 4, |_| Some(false), slow_passes(&diary), stop), happens);
        let expected =
            ["0 a begins", "1 b begins", "3 a ends", "3 a begins", "4 b ends", "6 a ends", "14 b begins", "17 b ends"];
        assert_eq!(diary.lines(), expected);
    }

    #[tokio::test(start_paused = true)]
    async fn something_that_happens_earlier_comes_before_the_time_that_was_asked_for_and_instead_of_it() {
        let (diary, stop) = (Diary::new(), sleep(Duration::from_secs(60)));
        let (ask, asked) = mpsc::unbounded();
        ask.unbounded_send(key("a")).unwrap();
        let happens = async {
            sleep(Duration::from_secs(8)).await;
            ask.unbounded_send(key("a")).unwrap();
        };
        tokio::join!(dispatch(asked, 4, |_| Some(false), slow_passes(&diary), stop), happens);
        assert_eq!(diary.lines(), ["0 a begins", "3 a ends", "8 a begins", "11 a ends"]);
    }

    #[tokio::test(start_paused = true)]
    async fn when_the_manager_stops_what_is_under_way_ends_and_nobody_begins() {
        let (diary, stop) = (Diary::new(), sleep(Duration::from_secs(2)));
        let (ask, asked) = mpsc::unbounded();
        ask.unbounded_send(key("a")).unwrap();
        let happens = async {
            sleep(Duration::from_secs(1)).await;
            ask.unbounded_send(key("b")).unwrap();
        };
        tokio::join!(dispatch(asked, 1, |_| Some(false), slow_passes(&diary), stop), happens);
        assert_eq!(diary.lines(), ["0 a begins", "3 a ends"]);
    }

    #[tokio::test(start_paused = true)]
    async fn a_machine_that_is_gone_is_not_looked_at() {
        let (diary, stop) = (Diary::new(), sleep(Duration::from_secs(60)));
        let asked = futures::stream::iter([key("gone"), key("a")]);
        dispatch(asked, 1, |machine| (machine.name != "gone").then_some(false), slow_passes(&diary), stop).await;
        let begins = |name: &str| diary.lines().iter().any(|line| line.ends_with(&format!("{name} begins")));
        assert!(begins("a") && !begins("gone"), "{:?}", diary.lines());
    }

    #[tokio::test]
    async fn a_panic_in_a_pass_is_not_swallowed() {
        let asked = futures::stream::iter([key("a")]).chain(futures::stream::pending());
        let manager = tokio::spawn(dispatch(asked, 1, |_| Some(false), |_| async { panic!("a bug") }, pending()));
        assert!(manager.await.unwrap_err().is_panic());
    }
}
