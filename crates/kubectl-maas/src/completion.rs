//! Shell completion: for the program by itself, and as kubectl asks its plugins for it.

use clap::Command;

/// The program that kubectl runs for completions of `kubectl maas`; it goes onto the PATH under the name `kubectl_complete-maas`.
pub const KUBECTL: &str = "#!/bin/sh\nexec kubectl maas __complete \"$@\"\n";

/// What can follow these words, the last of which is still being written. One in each line, then how kubectl shall treat them: without
/// file names, unless a file is what follows.
pub fn complete(command: &Command, words: &[String]) -> String {
    const NO_FILES: u8 = 4;
    let (last, before) = words.split_last().map_or(("", &[][..]), |(last, before)| (last.as_str(), before));
    let mut at = command;
    let mut value_of = None;
    for word in before {
        value_of = None;
        if let Some(inner) = at.find_subcommand(word) {
            at = inner;
        } else if word.starts_with('-') && !word.contains('=') {
            let is = |argument: &&clap::Arg| {
                argument.get_long().is_some_and(|long| word.strip_prefix("--") == Some(long))
                    || argument.get_short().is_some_and(|short| *word == format!("-{short}"))
            };
            let argument = at.get_arguments().chain(command.get_arguments()).find(is);
            value_of = argument.filter(|argument| argument.get_action().takes_values());
        }
    }
    let mut found: Vec<String> = Vec::new();
    let mut files = false;
    if let Some(argument) = value_of {
        found.extend(argument.get_possible_values().iter().map(|value| value.get_name().to_owned()));
        files = found.is_empty();
    } else if last.starts_with('-') {
        let all = at.get_arguments().chain(command.get_arguments()).filter(|argument| !argument.is_hide_set());
        found.extend(all.filter_map(|argument| Some(format!("--{}", argument.get_long()?))));
    } else {
        let visible = at.get_subcommands().filter(|inner| !inner.is_hide_set());
        found.extend(visible.map(|inner| match inner.get_about() {
            Some(about) => format!("{}\t{about}", inner.get_name()),
            None => inner.get_name().to_owned(),
        }));
        let positional = at.get_positionals().flat_map(clap::Arg::get_possible_values);
        found.extend(positional.map(|value| value.get_name().to_owned()));
    }
    found.retain(|candidate| candidate.starts_with(last));
    found.sort();
    found.dedup();
    found.push(format!(":{}", if files { 0 } else { NO_FILES }));
    found.join("\n") + "\n"
}

#[cfg(test)]
mod tests {
    use super::*;
    use clap::{Arg, ArgAction};

    fn command() -> Command {
        let output = Arg::new("output").long("output").short('o').value_parser(["json", "yaml"]).global(true);
        let all = Arg::new("all").long("all").action(ArgAction::SetTrue);
        let file = Arg::new("file").long("filename").short('f');
        Command::new("maas")
            .arg(output)
            .subcommand(Command::new("machines").about("All of them").arg(all))
            .subcommand(Command::new("plan").arg(file))
            .subcommand(Command::new("__complete").hide(true))
    }

    fn after(words: &[&str]) -> String {
        complete(&command(), &words.iter().map(|word| (*word).to_owned()).collect::<Vec<_>>())
    }

    #[test]
    fn commands_flags_and_values_are_offered_where_they_can_stand() {
        assert_eq!(after(&[""]), "machines\tAll of them\nplan\n:4\n");
        assert_eq!(after(&["pl"]), "plan\n:4\n");
        assert_eq!(after(&["machines", "--"]), "--all\n--output\n:4\n");
        assert_eq!(after(&["machines", "-o", "j"]), "json\n:4\n");
        assert_eq!(after(&["plan", "-f", ""]), ":0\n", "a file follows");
        assert_eq!(after(&["machines", "--all", "x"]), ":4\n");
    }
}
