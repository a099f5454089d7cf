//! No two top-level modules of a crate depend on each other: either can be read without the other.

use std::collections::{BTreeMap, BTreeSet};
use std::fs;
use std::path::{Path, PathBuf};

type Needs = BTreeMap<String, BTreeSet<String>>;

fn sources(folder: &Path) -> Vec<PathBuf> {
    let entries = fs::read_dir(folder).into_iter().flatten().flatten().map(|entry| entry.path());
    entries.flat_map(|path| if path.is_dir() { sources(&path) } else { vec![path] }).collect()
}

/// The top-level modules that a text names after `crate::`, also in braces. Comments and tests do not count.
fn named(text: &str) -> BTreeSet<String> {
    let text = text.split("#[cfg(test)]\nmod ").next().unwrap_or_default();
    let lines = text.lines().map(|line| line.split("//").next().unwrap_or_default());
    let text: String = lines.collect::<Vec<_>>().join("\n");
    let mut named = BTreeSet::new();
    for after in text.split("crate::").skip(1) {
        match after.strip_prefix('{') {
            None => named.extend(word(after)),
            Some(list) => {
                let (mut depth, mut begins) = (1, true);
                for (at, letter) in list.char_indices() {
                    if begins && depth == 1 && letter.is_ascii_lowercase() {
                        named.extend(word(&list[at..]));
                    }
                    begins = matches!(letter, ',' | '{') || begins && letter.is_whitespace();
                    depth += i32::from(letter == '{') - i32::from(letter == '}');
                    if depth == 0 {
                        break;
                    }
                }
            }
        }
    }
    named
}

fn word(text: &str) -> Option<String> {
    let word: String = text.chars().take_while(|letter| letter.is_ascii_lowercase() || *letter == '_').collect();
    (!word.is_empty()).then_some(word)
}

fn needs(source: &Path) -> Needs {
    let mut needs = Needs::new();
    for path in sources(source) {
        let inside = path.strip_prefix(source).unwrap_or(&path).with_extension("");
        let parts: Vec<&str> = inside.iter().filter_map(|part| part.to_str()).collect();
        if parts.iter().any(|part| ["tests", "lib", "main", "bin"].contains(part)) {
            continue;
        }
        needs.entry(parts[0].to_owned()).or_default().extend(named(&fs::read_to_string(&path).unwrap_or_default()));
    }
    let modules: BTreeSet<String> = needs.keys().cloned().collect();
    for (module, needed) in &mut needs {
        needed.retain(|other| other != module && modules.contains(other));
    }
    needs
}

/// What is left after repeatedly removing modules without remaining dependencies: the cycles, and the modules that
/// depend on them.
fn knot(mut needs: Needs) -> Needs {
    loop {
        let left: BTreeSet<String> = needs.keys().cloned().collect();
        needs.retain(|_, needed| needed.iter().any(|other| left.contains(other)));
        if needs.len() == left.len() {
            return needs;
        }
    }
}

#[test]
fn no_two_top_modules_need_each_other() {
    for of in ["core", "manager"] {
        let source = Path::new(env!("CARGO_MANIFEST_DIR")).join("../crates").join(of).join("src");
        let needs = needs(&source);
        assert!(needs.values().map(BTreeSet::len).sum::<usize>() > 20, "{of}: the modules are found");
        assert_eq!(knot(needs), Needs::new(), "{of}");
    }
}

#[test]
fn a_cycle_is_noticed_also_where_names_are_in_braces() {
    let text = "use crate::{Lookup, hosts::{self, plan}, maas};\n// crate::no\nfn f(_: crate::lease::Fence) {}\n";
    assert_eq!(named(text), ["hosts", "lease", "maas"].map(str::to_owned).into());
    let of = |pairs: &[(&str, &str)]| -> Needs {
        pairs.iter().map(|(from, to)| ((*from).to_owned(), BTreeSet::from([(*to).to_owned()]))).collect()
    };
    assert!(knot(of(&[("a", "b"), ("b", "c")])).is_empty());
    assert_eq!(knot(of(&[("a", "b"), ("b", "a"), ("c", "d")])).len(), 2);
}
