//! Schedules passes over many objects: never two over the same object, a bounded number at once, and none blocked by
//! another tenant's hanging passes.
//!
//! kube's controller starts due passes in no particular order, knows no tenants, and counts a hanging pass like a
//! working one.

mod queue;

use std::panic::resume_unwind;
use std::pin::pin;
use std::time::Duration;

use futures::channel::mpsc;
use futures::stream::{Stream, StreamExt as _, select};
use kube::runtime::scheduler::{ScheduleRequest, scheduler};
use rand::RngExt as _;
use tokio::task::{JoinError, JoinSet};
use tokio::time::{Instant, sleep_until};

use self::queue::Queue;
pub(crate) use self::queue::SchedulingClass;
use crate::key::Key;

/// Runs a pass over every requested object until `stop`. Then running passes finish, and waiting objects are left to
/// the next manager.
///
/// A pass returns when it wants to be repeated if nothing else triggers it. `class` returns the scheduling class of an
/// object, or `None` if the object does not exist.
pub(super) async fn dispatch<Pass>(
    asked: impl Stream<Item = Key>,
    at_once: u16,
    class: impl Fn(&Key) -> Option<SchedulingClass>,
    pass: impl Fn(Key) -> Pass,
    stop: impl Future<Output = ()>,
) where
    Pass: Future<Output = Option<Duration>> + Send + 'static,
{
    let (repeat, repeated) = mpsc::unbounded();
    let asked = asked.map(|object| ScheduleRequest { message: object, run_at: Instant::now() });
    let mut due = pin!(scheduler(select(asked, repeated)));
    let mut stop = pin!(stop);
    let mut queue = Queue::new(at_once);
    let mut passes = JoinSet::new();
    let ask = |queue: &mut Queue, object: Key| {
        if let Some(class) = class(&object) {
            queue.ask(object, class);
        }
    };
    loop {
        while let Some(object) = queue.begin(Instant::now()) {
            let pass = pass(object.clone());
            passes.spawn(async move { (object, pass.await) });
        }
        let room = queue.room_at(Instant::now());
        tokio::select! {
            () = &mut stop => break,
            Some(object) = due.next() => ask(&mut queue, object),
            () = sleep_until(room.unwrap_or_else(Instant::now)), if room.is_some() => {}
            Some(ended) = passes.join_next() => {
                let Some((object, wait)) = outcome(ended) else { continue };
                if queue.end(&object) {
                    // The requested delay is obsolete: the next pass decides again.
                    ask(&mut queue, object);
                } else if let Some(run_at) = wait.and_then(|wait| Instant::now().checked_add(wait)) {
                    // The receiver lives in this function.
                    let _ = repeat.unbounded_send(ScheduleRequest { message: object, run_at });
                }
            }
        }
    }
    while let Some(ended) = passes.join_next().await {
        outcome(ended);
    }
}

/// When to repeat a pass that asked for this delay: not earlier, because a refused request would still be held back
/// (S26), and up to a quarter later, so that many passes do not run in lockstep.
pub(crate) fn spread(wait: Duration) -> Duration {
    wait.mul_f64(rand::rng().random_range(1.0..1.25))
}

/// The result of a pass. A panic in it is resumed here, as if there were no task in between.
fn outcome<T>(ended: Result<T, JoinError>) -> Option<T> {
    match ended.map_err(JoinError::try_into_panic) {
        Ok(answer) => Some(answer),
        Err(Ok(cause)) => resume_unwind(cause),
        // Cancelled, which happens only at shutdown.
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

    fn class(tenant: &str) -> SchedulingClass {
        SchedulingClass { tenant: tenant.to_owned(), cluster: "c".to_owned(), is_newcomer: false }
    }

    /// Starts and ends of passes, with the second in which they happened.
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

    /// Passes that take three seconds and ask to be repeated after ten, once.
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
        dispatch(asked, 4, |_| Some(class("t")), slow_passes(&diary), stop).await;
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
        tokio::join!(dispatch(asked, 4, |_| Some(class("t")), slow_passes(&diary), stop), happens);
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
        tokio::join!(dispatch(asked, 4, |_| Some(class("t")), slow_passes(&diary), stop), happens);
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
        tokio::join!(dispatch(asked, 1, |_| Some(class("t")), slow_passes(&diary), stop), happens);
        assert_eq!(diary.lines(), ["0 a begins", "3 a ends"]);
    }

    #[tokio::test(start_paused = true)]
    async fn a_machine_that_is_gone_is_not_looked_at() {
        let (diary, stop) = (Diary::new(), sleep(Duration::from_secs(60)));
        let asked = futures::stream::iter([key("gone"), key("a")]);
        dispatch(asked, 1, |machine| (machine.name != "gone").then(|| class("t")), slow_passes(&diary), stop).await;
        let begins = |name: &str| diary.lines().iter().any(|line| line.ends_with(&format!("{name} begins")));
        assert!(begins("a") && !begins("gone"), "{:?}", diary.lines());
    }

    #[tokio::test]
    async fn a_panic_in_a_pass_is_not_swallowed() {
        let asked = futures::stream::iter([key("a")]).chain(futures::stream::pending());
        let manager = tokio::spawn(dispatch(asked, 1, |_| Some(class("t")), |_| async { panic!("a bug") }, pending()));
        assert!(manager.await.unwrap_err().is_panic());
    }

    #[tokio::test(start_paused = true)]
    async fn s29_nobody_waits_long_behind_two_hundred_machines_of_a_maas_that_hangs() {
        let began = Instant::now();
        let waited = Arc::new(Mutex::new(Vec::new()));
        let (ask, asked) = mpsc::unbounded();
        for number in 0..200 {
            ask.unbounded_send(key(&format!("hangs{number}"))).unwrap();
        }
        let noted = waited.clone();
        let pass = move |machine: Key| -> futures::future::BoxFuture<'static, Option<Duration>> {
            let noted = noted.clone();
            Box::pin(async move {
                if machine.name.starts_with("quick") {
                    noted.lock().unwrap().push(began.elapsed());
                    sleep(Duration::from_millis(300)).await;
                    return None;
                }
                sleep(Duration::from_secs(120)).await;
                Some(Duration::from_secs(15))
            })
        };
        let happens = async {
            for number in 0..600 {
                sleep(Duration::from_secs(1)).await;
                ask.unbounded_send(key(&format!("quick{number}"))).unwrap();
            }
        };
        let whose = |machine: &Key| Some(class(if machine.name.starts_with("quick") { "b" } else { "a" }));
        tokio::join!(dispatch(asked, 50, whose, pass, sleep(Duration::from_secs(3600))), happens);
        let waited = waited.lock().unwrap();
        let longest = waited.iter().zip(1..).map(|(at, asked)| at.saturating_sub(Duration::from_secs(asked))).max();
        assert_eq!(waited.len(), 600);
        assert!(longest.unwrap() <= Duration::from_secs(5), "{longest:?}");
    }
}
