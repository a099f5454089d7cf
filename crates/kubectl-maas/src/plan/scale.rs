//! `--scale`: other numbers of machines.

use anyhow::bail;
use capmaas_core::forecast::Group;

use super::Desired;

/// Changes the replicas of a group in one of the clusters that are asked about: `md-0=5`, or `cluster/md-0=5` if several
/// clusters have such a group.
pub(super) fn scale(desired: &mut Desired, scaling: &str, is_asked: impl Fn(&str) -> bool) -> anyhow::Result<()> {
    let Some((name, count)) = scaling.split_once('=') else {
        bail!("--scale {scaling}: write GROUP=REPLICAS, such as md-0=5")
    };
    let Ok(count) = count.parse::<usize>() else { bail!("--scale {scaling}: {count:?} is not a number of machines") };
    let Desired { groups, topology_names, .. } = desired;
    let all: Vec<String> = groups.iter().filter(|group| is_asked(&group.cluster)).map(full_name).collect();
    let in_topology = |group: &Group| topology_names.get(&full_name(group)).map(String::as_str);
    let named = |group: &Group| match_of(group, in_topology(group), name);
    // In one cluster a group's own name is meant before what another is called for short.
    let exact: Vec<String> =
        groups.iter().filter(|it| named(it) == Some(Match::Exact)).map(|it| it.cluster.clone()).collect();
    let is = |group: &Group| match named(group) {
        Some(Match::Exact) => true,
        Some(Match::Short) => !exact.contains(&group.cluster),
        None => false,
    };
    let elsewhere: Vec<String> = groups.iter().filter(|it| is(it) && !is_asked(&it.cluster)).map(full_name).collect();
    let mut found: Vec<&mut Group> = groups.iter_mut().filter(|it| is(it) && is_asked(&it.cluster)).collect();
    match found.as_mut_slice() {
        [group] => group.replicas = count,
        [] if !elsewhere.is_empty() => {
            bail!(
                "--scale {scaling}: {} is not in a cluster that is named; there are {}",
                elsewhere.join(", "),
                all.join(", ")
            )
        }
        [] => bail!("--scale {scaling}: there is no group {name}; there are {}", all.join(", ")),
        several => {
            let several: Vec<String> = several.iter().map(|group| full_name(group)).collect();
            bail!("--scale {scaling}: this can be {}; write one of them", several.join(" or "))
        }
    }
    Ok(())
}

#[derive(Clone, Copy, PartialEq, Eq)]
enum Match {
    Exact,
    Short,
}

/// Whether a name is that of a group, with or without its cluster and namespace. A group `<cluster>-NAME`, and one that a
/// topology calls NAME, are found by NAME as well.
fn match_of(group: &Group, in_topology: Option<&str>, name: &str) -> Option<Match> {
    let cluster = group.cluster.split_once('/').map_or(group.cluster.as_str(), |(_, cluster)| cluster);
    let (of, name) = name.rsplit_once('/').map_or((None, name), |(of, name)| (Some(of), name));
    if of.is_some_and(|of| of != cluster && of != group.cluster) {
        return None;
    }
    if group.name == name {
        return Some(Match::Exact);
    }
    let short = group.name.strip_prefix(cluster).and_then(|rest| rest.strip_prefix('-'));
    (short == Some(name) || in_topology == Some(name)).then_some(Match::Short)
}

/// Namespace, cluster and name of a group.
pub(super) fn full_name(group: &Group) -> String {
    format!("{}/{}", group.cluster, group.name)
}
