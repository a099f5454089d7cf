//! Phrases for what is missing.

use std::fmt::Write as _;

use crate::intent::Vm;
use crate::machine::Constraints;

/// "two more machines with 32 GB of memory in zone az2"
pub(super) fn machines(count: usize, constraints: &Constraints) -> String {
    if let Some(id) = &constraints.machine {
        return format!("the machine {id}, which systemID names");
    }
    let mut with = Vec::new();
    with.extend(constraints.min_cpu.map(|count| plural(count, "core")));
    with.extend(constraints.min_memory.map(|megabytes| format!("{} of memory", memory(megabytes))));
    with.extend(constraints.min_disk.map(|gigabytes| format!("a disk of {gigabytes} GB")));
    match constraints.tags.as_slice() {
        [] => {}
        [tag] => with.push(format!("the tag {tag}")),
        tags => with.push(format!("the tags {}", tags.join(", "))),
    }
    let mut text = format!("{} more machine{}", number(count), ending(count));
    if !with.is_empty() {
        let _ = write!(text, " with {}", list(&with));
    }
    text + &place(constraints.zone.as_deref(), constraints.pool.as_deref())
}

/// "room for two more VMs with 4 cores, 8 GB of memory and a disk of 60 GB in zone az2"
pub(super) fn room(count: usize, vm: &Vm, zone: Option<&str>) -> String {
    let with =
        [plural(vm.cores, "core"), format!("{} of memory", memory(vm.memory)), format!("a disk of {} GB", vm.disk)];
    let mut text = format!("room for {} more VM{} with {}", number(count), ending(count), list(&with));
    if let Some(host) = &vm.host {
        let _ = write!(text, " on the LXD host {host}");
    }
    if !vm.tags.is_empty() {
        let _ = write!(text, " on a host with the tags {}", vm.tags.join(", "));
    }
    text + &place(zone, vm.pool.as_deref())
}

fn place(zone: Option<&str>, pool: Option<&str>) -> String {
    let mut text = String::new();
    if let Some(zone) = zone {
        let _ = write!(text, " in zone {zone}");
    }
    if let Some(pool) = pool {
        let _ = write!(text, " in resource pool {pool}");
    }
    text
}

fn plural(count: u32, what: &str) -> String {
    if count == 1 { format!("1 {what}") } else { format!("{count} {what}s") }
}

fn ending(count: usize) -> &'static str {
    if count == 1 { "" } else { "s" }
}

fn memory(megabytes: u32) -> String {
    if megabytes > 0 && megabytes.is_multiple_of(1024) {
        format!("{} GB", megabytes / 1024)
    } else {
        format!("{megabytes} MB")
    }
}

/// Small numbers as words.
fn number(count: usize) -> String {
    const WORDS: [&str; 13] =
        ["no", "one", "two", "three", "four", "five", "six", "seven", "eight", "nine", "ten", "eleven", "twelve"];
    WORDS.get(count).map_or_else(|| count.to_string(), |word| (*word).to_owned())
}

fn list(words: &[String]) -> String {
    match words {
        [] => String::new(),
        [only] => only.clone(),
        [rest @ .., last] => format!("{} and {last}", rest.join(", ")),
    }
}
