//! How the demo speaks: one line a step, with the time that it took.

use std::io::Write as _;
use std::time::{Duration, Instant};

/// A headline.
pub(crate) fn chapter(title: &str) {
    println!("\n\x1b[1m{title}\x1b[0m");
}

/// Plain words below a headline.
pub(crate) fn say(words: &str) {
    println!("  {words}");
}

/// What a command printed, set apart.
pub(crate) fn quote(text: &str) {
    for line in text.trim_end().lines() {
        println!("    {line}");
    }
}

/// Does `work`, with the time shown while it runs and when it is done.
pub(crate) async fn step<T>(what: &str, work: impl Future<Output = anyhow::Result<T>>) -> anyhow::Result<T> {
    let start = Instant::now();
    let mut work = std::pin::pin!(work);
    loop {
        show(&format!("  … {what} ({:.0} s)", start.elapsed().as_secs_f32()), false);
        tokio::select! {
            result = &mut work => {
                let mark = if result.is_ok() { "✓" } else { "✗" };
                show(&format!("  {mark} {what} ({:.1} s)", start.elapsed().as_secs_f32()), true);
                return result;
            }
            () = tokio::time::sleep(Duration::from_millis(500)) => {}
        }
    }
}

/// Writes over the current line on a terminal; elsewhere only what is final is printed.
fn show(line: &str, last: bool) {
    use std::io::IsTerminal as _;
    let mut out = std::io::stdout();
    // Nothing can be done about a closed terminal, and the demo goes on without it.
    if out.is_terminal() {
        let _ = write!(out, "\r\x1b[2K{line}{}", if last { "\n" } else { "" });
    } else if last {
        let _ = writeln!(out, "{line}");
    }
    let _ = out.flush();
}
