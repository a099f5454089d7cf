//! The demo's output: one line per step with its duration and, below it while it runs, what each object is waiting for.

use std::io::{IsTerminal as _, Write as _};
use std::time::{Duration, Instant};

use crate::board::Lines;

const LOOK_EVERY: Duration = Duration::from_millis(500);

/// A headline, bold on a terminal.
pub(crate) fn chapter(title: &str) {
    let (bold, plain) = if std::io::stdout().is_terminal() { ("\x1b[1m", "\x1b[0m") } else { ("", "") };
    println!("\n{bold}{title}{plain}");
}

/// Plain text below a headline.
pub(crate) fn say(words: &str) {
    println!("  {words}");
}

/// The output of a command, indented.
pub(crate) fn quote(text: &str) {
    for line in text.trim_end().lines() {
        println!("    {}", line.trim_end());
    }
}

/// Runs `work` and shows the elapsed time while it runs and when it is done.
pub(crate) async fn step<T>(what: &str, work: impl Future<Output = anyhow::Result<T>>) -> anyhow::Result<T> {
    watched_step(what, async || Lines::new(), work).await
}

/// As [`step`]; meanwhile `look` reports what each object is waiting for.
pub(crate) async fn watched_step<T>(
    what: &str,
    look: impl AsyncFn() -> Lines,
    work: impl Future<Output = anyhow::Result<T>>,
) -> anyhow::Result<T> {
    let mut screen =
        Screen { start: Instant::now(), live: std::io::stdout().is_terminal(), drawn: 0, last: Lines::new() };
    // Do not print again what the previous step left.
    if !screen.live {
        screen.last = look().await;
    }
    let mut work = std::pin::pin!(work);
    loop {
        let pause = async {
            tokio::time::sleep(LOOK_EVERY).await;
            look().await
        };
        tokio::select! {
            result = &mut work => {
                let lines = look().await;
                screen.show(what, lines);
                screen.finish(if result.is_ok() { "✓" } else { "✗" }, what);
                return result;
            }
            lines = pause => screen.show(what, lines),
        }
    }
}

/// What is on the terminal now. Without a terminal, only new lines are printed, with their time.
struct Screen {
    start: Instant,
    live: bool,
    drawn: usize,
    last: Lines,
}

impl Screen {
    fn show(&mut self, what: &str, lines: Lines) {
        let seconds = self.start.elapsed().as_secs();
        if self.live {
            self.erase();
            // No line wrap, so that the number of drawn lines is known.
            let width = lines.keys().map(String::len).max().unwrap_or(0);
            put(&format!("\x1b[?7l  … {what} ({seconds} s)\n"));
            for (name, words) in &lines {
                put(&format!("      {name:<width$}  {words}\n"));
            }
            put("\x1b[?7h");
            self.drawn = lines.len() + 1;
        } else {
            for (name, words) in lines.iter().filter(|(name, words)| self.last.get(*name) != Some(words)) {
                put(&format!("      {seconds:>3} s  {name}  {words}\n"));
            }
            for name in self.last.keys().filter(|name| !lines.contains_key(*name)) {
                put(&format!("      {seconds:>3} s  {name}  is gone\n"));
            }
        }
        self.last = lines;
    }

    fn finish(&mut self, mark: &str, what: &str) {
        if self.live {
            self.erase();
        }
        put(&format!("  {mark} {what} ({:.1} s)\n", self.start.elapsed().as_secs_f32()));
    }

    fn erase(&mut self) {
        if self.drawn > 0 {
            put(&format!("\x1b[{}A\r\x1b[J", self.drawn));
            self.drawn = 0;
        }
    }
}

/// Ignores errors: the demo continues when its terminal is closed.
fn put(text: &str) {
    let mut out = std::io::stdout();
    let _ = out.write_all(text.as_bytes());
    let _ = out.flush();
}
