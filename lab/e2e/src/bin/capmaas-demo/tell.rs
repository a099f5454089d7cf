//! How the demo speaks: one line a step with the time that it took, and below it, while it runs, what everything waits for.

use std::io::{IsTerminal as _, Write as _};
use std::time::{Duration, Instant};

use crate::board::Lines;

const LOOK_EVERY: Duration = Duration::from_millis(500);

/// A headline, bold on a terminal.
pub(crate) fn chapter(title: &str) {
    let (bold, plain) = if std::io::stdout().is_terminal() { ("\x1b[1m", "\x1b[0m") } else { ("", "") };
    println!("\n{bold}{title}{plain}");
}

/// Plain words below a headline.
pub(crate) fn say(words: &str) {
    println!("  {words}");
}

/// What a command printed, set apart.
pub(crate) fn quote(text: &str) {
    for line in text.trim_end().lines() {
        println!("    {}", line.trim_end());
    }
}

/// Does `work`, with the time shown while it runs and when it is done.
pub(crate) async fn step<T>(what: &str, work: impl Future<Output = anyhow::Result<T>>) -> anyhow::Result<T> {
    watched_step(what, async || Lines::new(), work).await
}

/// The same; `look` says what everything waits for meanwhile.
pub(crate) async fn watched_step<T>(
    what: &str,
    look: impl AsyncFn() -> Lines,
    work: impl Future<Output = anyhow::Result<T>>,
) -> anyhow::Result<T> {
    let mut screen =
        Screen { start: Instant::now(), live: std::io::stdout().is_terminal(), drawn: 0, last: Lines::new() };
    // What the step before has left is known already.
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

/// What is on the terminal now. Elsewhere only what is new is printed, with its time.
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
            // Without line wrap, so that what was drawn can be counted.
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

/// Nothing can be done about a closed terminal, and the demo goes on without it.
fn put(text: &str) {
    let mut out = std::io::stdout();
    let _ = out.write_all(text.as_bytes());
    let _ = out.flush();
}
