//! Shell completion: for the program by itself, and in kubectl's protocol for plugins.

use clap::{Arg, Command, ValueHint};

/// The program that kubectl runs for completions of `kubectl maas`; it has to be on the PATH as
/// `kubectl_complete-maas`.
pub const KUBECTL: &str = "#!/bin/sh\nexec kubectl maas __complete \"$@\"\n";

/// Names that have to be looked up, most of them in Kubernetes.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub enum Names {
    Machines,
    /// Machines that can be LXD hosts.
    Hosts,
    Clusters,
    Namespaces,
    /// Contexts of the kubeconfig.
    Contexts,
}

/// What can follow some words.
#[derive(Debug, Default, PartialEq, Eq)]
pub struct Candidates {
    /// Each with its description after a tab, if it has one.
    found: Vec<String>,
    /// Also the names of such objects.
    pub names: Option<Names>,
    /// Also files.
    files: bool,
    /// The common prefix of all candidates.
    begin: String,
}

impl Candidates {
    /// What can follow these words, the last of which is incomplete.
    pub fn after(command: &Command, words: &[String]) -> Self {
        let (last, before) = words.split_last().map_or(("", &[][..]), |(last, before)| (last.as_str(), before));
        let mut at = command;
        let mut value_of = None;
        for word in before {
            value_of = None;
            if let Some(inner) = at.find_subcommand(word) {
                at = inner;
            } else if word.starts_with('-') && !word.contains('=') {
                let is = |argument: &&Arg| {
                    argument.get_long().is_some_and(|long| word.strip_prefix("--") == Some(long))
                        || argument.get_short().is_some_and(|short| *word == format!("-{short}"))
                };
                let argument = at.get_arguments().chain(command.get_arguments()).find(is);
                value_of = argument.filter(|argument| argument.get_action().takes_values());
            }
        }
        let mut candidates = Self { begin: last.to_owned(), ..Self::default() };
        if let Some(argument) = value_of {
            candidates.add_values(argument);
            candidates.files =
                matches!(argument.get_value_hint(), ValueHint::AnyPath | ValueHint::FilePath | ValueHint::DirPath);
        } else if last.starts_with('-') {
            let all = at.get_arguments().chain(command.get_arguments()).filter(|argument| !argument.is_hide_set());
            candidates.found.extend(all.filter_map(|argument| Some(format!("--{}", argument.get_long()?))));
        } else {
            let visible = at.get_subcommands().filter(|inner| !inner.is_hide_set());
            candidates.found.extend(visible.map(|inner| match inner.get_about() {
                Some(about) => format!("{}\t{about}", inner.get_name()),
                None => inner.get_name().to_owned(),
            }));
            at.get_positionals().for_each(|argument| candidates.add_values(argument));
        }
        candidates
    }

    fn add_values(&mut self, argument: &Arg) {
        self.found.extend(argument.get_possible_values().iter().map(|value| value.get_name().to_owned()));
        self.names = match argument.get_id().as_str() {
            "machine" => Some(Names::Machines),
            "host" => Some(Names::Hosts),
            "clusters" => Some(Names::Clusters),
            "namespace" => Some(Names::Namespaces),
            "context" => Some(Names::Contexts),
            _ => self.names,
        };
    }

    /// In kubectl's format, with the names that were looked up: one per line, then a directive.
    pub fn render(mut self, names: Vec<String>) -> String {
        const NO_FILES: u8 = 4;
        self.found.extend(names);
        self.found.retain(|candidate| candidate.starts_with(&self.begin));
        self.found.sort();
        self.found.dedup();
        self.found.push(format!(":{}", if self.files { 0 } else { NO_FILES }));
        self.found.join("\n") + "\n"
    }
}

#[cfg(test)]
mod tests {
    use super::*;
    use clap::ArgAction;

    fn command() -> Command {
        let output = Arg::new("output").long("output").short('o').value_parser(["json", "yaml"]).global(true);
        let all = Arg::new("all").long("all").action(ArgAction::SetTrue);
        let file = Arg::new("file").long("filename").short('f').value_hint(ValueHint::AnyPath);
        let scale = Arg::new("scale").long("scale");
        Command::new("maas")
            .arg(output)
            .subcommand(Command::new("machines").about("All of them").arg(all))
            .subcommand(Command::new("plan").arg(file).arg(scale))
            .subcommand(Command::new("explain").arg(Arg::new("machine")))
            .subcommand(Command::new("__complete").hide(true))
    }

    fn candidates(words: &[&str]) -> Candidates {
        Candidates::after(&command(), &words.iter().map(|word| (*word).to_owned()).collect::<Vec<_>>())
    }

    fn after(words: &[&str]) -> String {
        candidates(words).render(Vec::new())
    }

    #[test]
    fn commands_flags_and_values_are_offered_where_they_can_stand() {
        assert_eq!(after(&[""]), "explain\nmachines\tAll of them\nplan\n:4\n");
        assert_eq!(after(&["pl"]), "plan\n:4\n");
        assert_eq!(after(&["machines", "--"]), "--all\n--output\n:4\n");
        assert_eq!(after(&["machines", "-o", "j"]), "json\n:4\n");
        assert_eq!(after(&["plan", "-f", ""]), ":0\n", "a file follows");
        assert_eq!(after(&["plan", "--scale", ""]), ":4\n", "no file follows");
        assert_eq!(after(&["machines", "--all", "x"]), ":4\n");
    }

    #[test]
    fn names_of_objects_are_offered_where_one_is_asked_for() {
        let asked = candidates(&["explain", "m-"]);
        assert_eq!(asked.names, Some(Names::Machines));
        assert_eq!(asked.render(vec!["m-1".into(), "n-1".into()]), "m-1\n:4\n");
        assert_eq!(candidates(&["plan", ""]).names, None);
    }
}
