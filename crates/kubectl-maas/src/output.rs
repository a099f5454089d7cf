//! How answers are printed: as a table, wider, or for programs; with colours only on a terminal; again when they
//! change.

use std::io::{IsTerminal as _, Write as _};
use std::time::Duration;

use clap::ValueEnum;
use serde_json::Value;

/// The form of an answer, as kubectl's `-o`.
#[derive(Debug, Clone, Copy, Default, PartialEq, Eq, ValueEnum)]
pub enum Format {
    /// For people.
    #[default]
    Table,
    /// For people, with more columns.
    Wide,
    /// For programs.
    Json,
    /// For programs, and for people who prefer it.
    Yaml,
}

impl Format {
    /// The text of an answer.
    pub fn text(self, words: impl FnOnce(bool) -> String, value: impl FnOnce() -> Value) -> anyhow::Result<String> {
        Ok(match self {
            Self::Table => words(false),
            Self::Wide => words(true),
            Self::Json => format!("{:#}\n", value()),
            Self::Yaml => serde_saphyr::to_string(&value())?,
        })
    }

    /// Whether colours are possible at all.
    fn is_for_people(self) -> bool {
        matches!(self, Self::Table | Self::Wide)
    }
}

/// Prints an answer. A pipe that is closed early, by `head` for instance, is not an error.
pub fn print(format: Format, text: &str) -> anyhow::Result<()> {
    write(format, text).map(drop)
}

/// Prints an answer and returns whether anybody still reads.
fn write(format: Format, text: &str) -> anyhow::Result<bool> {
    let mut out = std::io::stdout();
    let coloured =
        format.is_for_people() && out.is_terminal() && std::env::var_os("NO_COLOR").is_none_or(|it| it.is_empty());
    let text = if coloured { paint(text) } else { text.to_owned() };
    match out.write_all(text.as_bytes()).and_then(|()| out.flush()) {
        Err(error) if error.kind() == std::io::ErrorKind::BrokenPipe => Ok(false),
        answer => Ok(answer.map(|()| true)?),
    }
}

/// Prints the result of `ask` again whenever it changes, until the program is ended or nobody reads. A terminal shows only
/// the last one.
pub async fn watch<F>(format: Format, every: Duration, mut ask: impl FnMut() -> F) -> anyhow::Result<()>
where
    F: Future<Output = anyhow::Result<String>>,
{
    let clears = format.is_for_people() && std::io::stdout().is_terminal();
    let mut watched = Watched { format, clears, shown: None, failed: None };
    loop {
        match watched.next(ask().await)? {
            Next::Nothing => {}
            Next::Print(text) => {
                if !write(format, &text)? {
                    return Ok(());
                }
            }
            Next::Complain(error) => eprintln!("kubectl maas: {error}"),
        }
        tokio::time::sleep(every).await;
    }
}

/// What a watch has printed.
struct Watched {
    format: Format,
    /// Each answer replaces the one before on the terminal.
    clears: bool,
    /// The last answer.
    shown: Option<String>,
    /// The error since then.
    failed: Option<String>,
}

#[derive(Debug, PartialEq, Eq)]
enum Next {
    Nothing,
    Print(String),
    Complain(String),
}

impl Watched {
    /// What to do about an answer. An error may be temporary; only the first answer decides whether it is fatal.
    fn next(&mut self, answer: anyhow::Result<String>) -> anyhow::Result<Next> {
        let text = match answer {
            Ok(text) => text,
            Err(error) if self.shown.is_none() => return Err(error),
            Err(error) => {
                let error = format!("{error:#}");
                if self.failed.as_ref() == Some(&error) {
                    return Ok(Next::Nothing);
                }
                self.failed = Some(error.clone());
                return Ok(Next::Complain(error));
            }
        };
        // On a terminal the error is still there.
        let is_over = self.failed.take().is_some() && self.clears;
        if self.shown.as_ref() == Some(&text) && !is_over {
            return Ok(Next::Nothing);
        }
        let before = match (self.clears, self.format) {
            (true, _) => "\x1b[H\x1b[2J",
            (false, Format::Yaml) if self.shown.is_some() => "---\n",
            _ => "",
        };
        let print = format!("{before}{text}");
        self.shown = Some(text);
        Ok(Next::Print(print))
    }
}

const GREEN: &str = "\x1b[32m";
const RED: &str = "\x1b[31m";
const BOLD: &str = "\x1b[1m";
const PLAIN: &str = "\x1b[0m";

/// Colours titles, and words that distinguish good from bad.
fn paint(text: &str) -> String {
    let mut out = String::with_capacity(text.len() + 64);
    for line in text.split_inclusive('\n') {
        let (body, end) = line.strip_suffix('\n').map_or((line, ""), |body| (body, "\n"));
        let is_title = body.len() > 3 && body.chars().all(|c| c.is_ascii_uppercase() || " -GiB".contains(c));
        let painted = if is_title {
            format!("{BOLD}{body}{PLAIN}")
        } else if let Some(rest) = body.strip_prefix("[ ok ]") {
            format!("{GREEN}[ ok ]{PLAIN}{rest}")
        } else if let Some(rest) = body.strip_prefix("[FAIL]") {
            format!("{RED}[FAIL]{PLAIN}{rest}")
        } else if body == "It fits." {
            format!("{GREEN}{body}{PLAIN}")
        } else if body.starts_with("It does not fit") {
            format!("{RED}{body}{PLAIN}")
        } else {
            body.to_owned()
        };
        out.push_str(&painted);
        out.push_str(end);
    }
    out
}

#[cfg(test)]
mod tests {
    use super::*;
    use serde_json::json;

    #[test]
    fn each_form_prints_the_same_answer() {
        let text = |format: Format| format.text(|wide| format!("{wide}"), || json!({"a": [1]})).unwrap();
        assert_eq!(text(Format::Table), "false");
        assert_eq!(text(Format::Wide), "true");
        assert_eq!(text(Format::Json), "{\n  \"a\": [\n    1\n  ]\n}\n");
        assert_eq!(serde_saphyr::from_str::<Value>(&text(Format::Yaml)).unwrap(), json!({"a": [1]}));
    }

    #[test]
    fn a_watch_complains_once_about_an_error_and_keeps_the_last_answer() {
        let answers = |clears, format| {
            let mut watched = Watched { format, clears, shown: None, failed: None };
            let mut next = move |answer: Result<&str, &str>| {
                watched.next(answer.map(str::to_owned).map_err(|error| anyhow::anyhow!("{error}"))).unwrap()
            };
            let all = [Ok("a"), Ok("a"), Err("x"), Err("x"), Err("y"), Ok("a"), Err("y"), Ok("b")];
            all.map(&mut next)
        };
        let print = |text: &str| Next::Print(text.to_owned());
        let complain = |text: &str| Next::Complain(text.to_owned());
        let (x, y) = (complain("x"), complain("y"));
        let nothing = || Next::Nothing;
        let complaints = [nothing(), x, nothing(), y];
        let [first, second, third, fourth] = complaints;
        let wanted = [print("a"), first, second, third, fourth, nothing(), complain("y"), print("---\nb")];
        assert_eq!(answers(false, Format::Yaml), wanted);
        let on_terminal = answers(true, Format::Table);
        assert_eq!(on_terminal[0], print("\x1b[H\x1b[2Ja"));
        assert_eq!(on_terminal[5], print("\x1b[H\x1b[2Ja"), "the error is wiped off");
        assert_eq!(on_terminal[7], print("\x1b[H\x1b[2Jb"));
        let mut watched = Watched { format: Format::Json, clears: false, shown: None, failed: None };
        assert!(watched.next(Err(anyhow::anyhow!("no permission"))).is_err(), "the first error ends it");
    }

    #[test]
    fn colours_change_no_letter() {
        let plain =
            "NAME   STATE\nm1   Ready\n[ ok ] MAAS\n[FAIL] Clock\nIt fits.\nIt does not fit. Missing:\nzone az1";
        let painted = paint(plain);
        assert!(painted.contains("\x1b[31m[FAIL]\x1b[0m Clock") && painted.contains("\x1b[1mNAME   STATE"));
        let bare = [GREEN, RED, BOLD, PLAIN].iter().fold(painted, |text, code| text.replace(code, ""));
        assert_eq!(bare, plain);
    }
}
