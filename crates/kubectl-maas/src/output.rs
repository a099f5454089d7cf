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
    let mut out = std::io::stdout();
    let coloured =
        format.is_for_people() && out.is_terminal() && std::env::var_os("NO_COLOR").is_none_or(|it| it.is_empty());
    let text = if coloured { paint(text) } else { text.to_owned() };
    match out.write_all(text.as_bytes()).and_then(|()| out.flush()) {
        Err(error) if error.kind() == std::io::ErrorKind::BrokenPipe => Ok(()),
        answer => Ok(answer?),
    }
}

/// Prints the result of `ask` again whenever it changes, until the program is ended. A terminal shows only the last
/// one.
pub async fn watch<F>(format: Format, every: Duration, mut ask: impl FnMut() -> F) -> anyhow::Result<()>
where
    F: Future<Output = anyhow::Result<String>>,
{
    let mut shown = None;
    loop {
        // An error may be temporary; only the first answer decides whether it is fatal.
        let text = match ask().await {
            Ok(text) => text,
            Err(error) if shown.is_none() => return Err(error),
            Err(error) => format!("{}\nkubectl maas: {error:#}\n", shown.clone().unwrap_or_default()),
        };
        if shown.as_ref() != Some(&text) {
            if std::io::stdout().is_terminal() && format.is_for_people() {
                print!("\x1b[H\x1b[2J");
            }
            print(format, &text)?;
            shown = Some(text);
        }
        tokio::time::sleep(every).await;
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
    fn colours_change_no_letter() {
        let plain =
            "NAME   STATE\nm1   Ready\n[ ok ] MAAS\n[FAIL] Clock\nIt fits.\nIt does not fit. Missing:\nzone az1";
        let painted = paint(plain);
        assert!(painted.contains("\x1b[31m[FAIL]\x1b[0m Clock") && painted.contains("\x1b[1mNAME   STATE"));
        let bare = [GREEN, RED, BOLD, PLAIN].iter().fold(painted, |text, code| text.replace(code, ""));
        assert_eq!(bare, plain);
    }
}
