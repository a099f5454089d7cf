//! The longest first, so that no long binary runs alone at the end. The durations are stored next to the binaries.

use std::collections::BTreeMap;
use std::path::PathBuf;
use std::time::Duration;

use super::binary::TestBinary;

fn memory() -> PathBuf {
    let target = std::env::var_os("CARGO_TARGET_DIR").map_or_else(|| "target".into(), PathBuf::from);
    target.join("test-durations.json")
}

/// Sorts by the last duration. What never ran comes first: it may be long.
pub(crate) fn longest_first(binaries: &mut [TestBinary]) {
    let known = remembered();
    binaries.sort_by_key(|binary| std::cmp::Reverse(known.get(&binary.name).copied().unwrap_or(u64::MAX)));
}

fn remembered() -> BTreeMap<String, u64> {
    std::fs::read(memory()).ok().and_then(|text| serde_json::from_slice(&text).ok()).unwrap_or_default()
}

/// Stores the durations and ignores errors: without them the next run is only slower.
pub(crate) fn remember(durations: &[(String, Duration)]) {
    let mut known = remembered();
    known.extend(durations.iter().map(|(name, took)| (name.clone(), took.as_secs())));
    if let Ok(text) = serde_json::to_vec_pretty(&known) {
        let _ = std::fs::write(memory(), text);
    }
}
