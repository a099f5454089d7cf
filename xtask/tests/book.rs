//! The book and all other documentation: each page is reachable, each link is valid, and each make target and metric
//! that is named exists.
#![allow(clippy::unwrap_used, clippy::expect_used, clippy::panic)]

use std::collections::BTreeSet;
use std::path::{Path, PathBuf};

fn docs() -> PathBuf {
    Path::new(env!("CARGO_MANIFEST_DIR")).join("../docs")
}

/// The Markdown files of the book, by their path in it.
fn pages() -> BTreeSet<PathBuf> {
    let mut all = BTreeSet::new();
    let mut folders = vec![docs()];
    while let Some(folder) = folders.pop() {
        for entry in std::fs::read_dir(folder).unwrap() {
            let path = entry.unwrap().path();
            if path.is_dir() {
                folders.push(path);
            } else if path.extension().is_some_and(|extension| extension == "md") {
                all.insert(path.strip_prefix(docs()).unwrap().to_owned());
            }
        }
    }
    all
}

fn repository() -> PathBuf {
    docs().join("..").canonicalize().unwrap()
}

/// The Markdown files of the repository that are not in the book.
fn others() -> Vec<PathBuf> {
    let (mut all, mut folders) = (Vec::new(), vec![repository()]);
    while let Some(folder) = folders.pop() {
        for entry in std::fs::read_dir(folder).unwrap() {
            let path = entry.unwrap().path();
            let name = path.file_name().unwrap().to_string_lossy().into_owned();
            if path.is_dir() && !name.starts_with('.') && !["target", "dist", "docs"].contains(&name.as_str()) {
                folders.push(path);
            } else if path.extension().is_some_and(|extension| extension == "md") {
                all.push(path);
            }
        }
    }
    all
}

/// The targets in `make one two VARIABLE=x`, in code blocks and between backticks.
fn targets(text: &str) -> BTreeSet<String> {
    let (mut found, mut code) = (BTreeSet::new(), false);
    for line in text.lines() {
        if line.trim_start().starts_with("```") {
            code = !code;
        }
        let commands: Vec<&str> = if code {
            line.trim_start().strip_prefix("make ").into_iter().collect()
        } else {
            line.split("`make ").skip(1).filter_map(|rest| Some(rest.split_once('`')?.0)).collect()
        };
        let is_target = |word: &&str| word.chars().all(|c| c.is_ascii_lowercase() || c.is_ascii_digit() || c == '-');
        for command in commands {
            found.extend(command.split_whitespace().take_while(is_target).map(str::to_owned));
        }
    }
    found
}

/// The targets of `[text](target)` outside code blocks.
fn links(text: &str) -> Vec<String> {
    let mut found = Vec::new();
    let mut code = false;
    for line in text.lines() {
        if line.trim_start().starts_with("```") {
            code = !code;
        }
        if !code {
            found.extend(line.split("](").skip(1).filter_map(|rest| Some(rest.split_once(')')?.0.to_owned())));
        }
    }
    found
}

/// mdBook's anchor of a heading.
fn anchor(heading: &str) -> String {
    let kept = heading.trim().to_lowercase();
    kept.chars()
        .filter_map(|c| if c == ' ' { Some('-') } else { (c.is_alphanumeric() || c == '-' || c == '_').then_some(c) })
        .collect()
}

#[test]
fn every_page_is_in_the_table_of_contents_and_every_entry_is_a_page() {
    let summary = std::fs::read_to_string(docs().join("SUMMARY.md")).unwrap();
    let listed: BTreeSet<PathBuf> = links(&summary).into_iter().map(PathBuf::from).collect();
    let mut there = pages();
    there.remove(Path::new("SUMMARY.md"));
    assert_eq!(listed, there);
}

#[test]
fn every_link_leads_somewhere() {
    let mut wrong = Vec::new();
    for page in pages() {
        let text = std::fs::read_to_string(docs().join(&page)).unwrap();
        for link in links(&text) {
            if link.starts_with("https://") || link.starts_with("http://") {
                continue;
            }
            let (file, fragment) = link.split_once('#').unwrap_or((&link, ""));
            let target =
                if file.is_empty() { docs().join(&page) } else { docs().join(&page).parent().unwrap().join(file) };
            let outside = !target.canonicalize().is_ok_and(|path| path.starts_with(docs().canonicalize().unwrap()));
            let there = std::fs::read_to_string(&target).unwrap_or_default();
            let headings: Vec<String> = there
                .lines()
                .filter(|line| line.starts_with('#'))
                .map(|line| anchor(line.trim_start_matches('#')))
                .collect();
            if outside || (!fragment.is_empty() && !headings.iter().any(|heading| heading == fragment)) {
                wrong.push(format!("{}: {link}", page.display()));
            }
        }
        for file in text.split("{{#include ").skip(1).filter_map(|rest| rest.split_once("}}")) {
            if !docs().join(&page).parent().unwrap().join(file.0).exists() {
                wrong.push(format!("{} includes {}", page.display(), file.0));
            }
        }
    }
    assert_eq!(wrong, Vec::<String>::new());
}

#[test]
fn every_link_of_the_other_texts_leads_somewhere() {
    let mut wrong = Vec::new();
    for page in others() {
        for link in links(&std::fs::read_to_string(&page).unwrap()) {
            let file = link.split('#').next().unwrap();
            if !file.contains("://") && !page.parent().unwrap().join(file).exists() {
                wrong.push(format!("{}: {link}", page.display()));
            }
        }
    }
    assert_eq!(wrong, Vec::<String>::new());
}

#[test]
fn every_make_target_that_is_named_is_there() {
    let rules = |folder: &Path| -> BTreeSet<String> {
        let text = std::fs::read_to_string(folder.join("Makefile")).unwrap_or_default();
        text.lines().filter_map(|line| Some(line.split_once(':')?.0.to_owned())).collect()
    };
    let (mut seen, mut wrong) = (BTreeSet::new(), Vec::new());
    for page in pages().into_iter().map(|page| docs().join(page)).chain(others()) {
        // Text in a folder with its own Makefile refers to that one.
        let mut there = rules(&repository());
        there.extend(rules(page.parent().unwrap()));
        for target in targets(&std::fs::read_to_string(&page).unwrap()) {
            if !there.contains(&target) {
                wrong.push(format!("{}: make {target}", page.display()));
            }
            seen.insert(target);
        }
    }
    assert_eq!(wrong, Vec::<String>::new());
    // The targets in the design documents.
    for target in ["demo", "deploy", "undeploy", "test", "release", "images", "install"] {
        assert!(seen.contains(target), "no text tells about make {target}");
    }
    for target in ["docker-build", "docker-push", "manifests"] {
        assert!(rules(&repository()).contains(target), "there is no make {target}");
    }
}

#[test]
fn every_metric_of_dashboard_and_book_is_one_that_the_manager_counts() {
    let counted = std::fs::read_to_string(docs().join("../crates/manager/src/metrics.rs")).unwrap();
    for file in ["../config/prometheus/dashboard.json", "metrics.md"] {
        let text = std::fs::read_to_string(docs().join(file)).unwrap();
        let names: BTreeSet<&str> = text
            .split("capmaas_")
            .skip(1)
            .map(|rest| &rest[..rest.find(|c: char| !c.is_ascii_lowercase() && c != '_').unwrap_or(rest.len())])
            .collect();
        assert!(names.len() >= 8, "{file}: {names:?}");
        for name in names {
            let name = name.trim_end_matches("_bucket").trim_end_matches("_total");
            assert!(counted.contains(&format!("\"{name}\"")), "{file} names capmaas_{name}");
        }
    }
}

/// Every Rust file below a folder.
fn sources(folder: &Path) -> Vec<PathBuf> {
    let (mut all, mut folders) = (Vec::new(), vec![folder.to_owned()]);
    while let Some(folder) = folders.pop() {
        for entry in std::fs::read_dir(folder).unwrap() {
            let path = entry.unwrap().path();
            if path.is_dir() {
                folders.push(path);
            } else if path.extension().is_some_and(|extension| extension == "rs") {
                all.push(path);
            }
        }
    }
    all
}

#[test]
fn every_sentence_of_the_security_model_and_the_upgrades_names_tests_that_are_there() {
    let text = |page: &str| std::fs::read_to_string(docs().join(page)).unwrap();
    let (security, upgrade) = (text("security.md"), text("upgrade.md"));
    let (_, table) = security.split_once("## What a writer of each kind can do").unwrap();
    let rows = [table, &upgrade].into_iter().flat_map(|page| {
        let rows = page.lines().skip_while(|line| !line.starts_with("|---")).skip(1);
        rows.take_while(|line| line.starts_with('|'))
    });
    let folders = ["crates", "lab"].map(|folder| sources(&repository().join(folder)));
    let code: String = folders.iter().flatten().map(|path| std::fs::read_to_string(path).unwrap()).collect();
    let mut named = BTreeSet::new();
    for row in rows {
        let last = row.trim_end_matches('|').rsplit('|').next().unwrap();
        let tests: Vec<&str> = last.split('`').skip(1).step_by(2).collect();
        assert!(!tests.is_empty(), "no test holds: {row}");
        for test in tests {
            assert!(code.contains(&format!("fn {test}(")), "there is no test {test}");
            named.insert(test);
        }
    }
    assert!(named.len() >= 15, "{named:?}");
}

/// The first and the last cell of each row of the table below a heading of the generated reference.
fn reference(heading: &str) -> Vec<(String, String)> {
    let text = std::fs::read_to_string(docs().join("reference/conditions.md")).unwrap();
    let (_, below) = text.split_once(heading).unwrap();
    let rows =
        below.lines().skip_while(|line| !line.starts_with("|---")).skip(1).take_while(|line| line.starts_with('|'));
    let cells = |row: &str| row.trim_matches('|').split(" | ").map(|cell| cell.trim().to_owned()).collect::<Vec<_>>();
    rows.map(cells).map(|row| (row[0].trim_matches('`').to_owned(), row.last().unwrap().clone())).collect()
}

#[test]
fn every_condition_has_a_page_and_every_reason_that_can_last_tells_what_to_do() {
    let folder = docs().join("stuck");
    let texts: Vec<String> = std::fs::read_dir(folder)
        .unwrap()
        .map(|entry| std::fs::read_to_string(entry.unwrap().path()).unwrap())
        .collect();
    let all = texts.join("\n");
    let headings = |mark: &str| -> Vec<&str> {
        all.lines().filter_map(|line| line.strip_prefix(mark)?.strip_prefix('`')?.strip_suffix('`')).collect()
    };
    let conditions: BTreeSet<String> = reference("## Conditions").into_iter().map(|(name, _)| name).collect();
    assert_eq!(headings("# ").into_iter().map(str::to_owned).collect::<BTreeSet<_>>(), conditions);

    let lasting = reference("## Reasons").into_iter().filter(|(_, action)| !action.starts_with("Nothing"));
    let lasting: BTreeSet<String> = lasting.map(|(name, _)| name).collect();
    assert!(lasting.len() > 40, "{lasting:?}");
    let told = headings("## ");
    assert_eq!(told.iter().map(|name| (*name).to_owned()).collect::<BTreeSet<_>>(), lasting);
    assert_eq!(told.len(), lasting.len(), "each reason is on one page");
    for name in told {
        let (_, section) = all.split_once(&format!("\n## `{name}`\n")).unwrap();
        let section = section.split("\n#").next().unwrap();
        for part in ["- **Known:** ", "- **Look:** ", "- **Do:** "] {
            assert_eq!(section.matches(part).count(), 1, "{name}: {part}");
        }
    }
}

#[test]
fn the_specs_of_cluster_api_that_the_book_says_run_are_those_of_the_suite() {
    let page = std::fs::read_to_string(docs().join("cluster-api-specs.md")).unwrap();
    let told: BTreeSet<&str> = page
        .lines()
        .filter_map(|line| {
            let (name, rest) = line.strip_prefix("| ")?.split_once(" | ")?;
            (rest.starts_with("green |") || rest.starts_with("not green yet |")).then_some(name)
        })
        .collect();
    let files = std::fs::read_dir(repository().join("lab/capi-specs")).unwrap().map(|entry| entry.unwrap().path());
    let suite: String = files
        .filter(|path| path.to_string_lossy().ends_with("_test.go"))
        .map(|path| std::fs::read_to_string(path).unwrap())
        .collect();
    let run: BTreeSet<&str> =
        suite.split("Describe(\"").skip(1).filter_map(|rest| rest.split_once('"')).map(|(name, _)| name).collect();
    assert_eq!(told, run);
    assert!(!run.is_empty());
}
