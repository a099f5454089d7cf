//! The condition `Evacuating` of hosts and clusters.

use std::collections::BTreeMap;

use capmaas_api::{ConditionStatus, conditions, reasons};

use super::{Fate, HostOutlook, ObjectName, Outlook, Plan};
use crate::Lookup;
use crate::conditions::Verdict;
use crate::text::beginning;

/// The most bytes of the lines about VMs in a condition. The message of a condition may have 4096.
const LONGEST: usize = 3600;
/// The most bytes of one of them.
const LONGEST_LINE: usize = 900;

/// The condition for the MaasMachine of a host.
pub fn host_verdict(host: &HostOutlook) -> Verdict {
    let HostOutlook { name, cause, .. } = host;
    let guests = match &host.guests {
        Lookup::Found(guests) => guests,
        Lookup::Absent => return waiting(format!("the LXD host {name} {cause}; MAAS does not show its VMs")),
        Lookup::Unknown(why) => {
            return waiting(format!("the LXD host {name} {cause}; its VMs cannot be listed: {why}"));
        }
    };
    if guests.is_empty() {
        let message = format!("the LXD host {name} {cause} and is empty");
        return Verdict::new(conditions::EVACUATING, ConditionStatus::False, reasons::EVACUATED, message);
    }
    let lines = guests.iter().map(|guest| {
        let of = guest.cluster.as_ref().map_or(String::new(), |cluster| format!(" of cluster {cluster}"));
        format!("{}{of} {}", guest.name, words(&guest.fate))
    });
    let message = format!("the LXD host {name} {cause}; {} left:\n{}", count(guests.len()), listed(lines));
    said(guests.iter(), message)
}

/// The condition for the MaasCluster of each Cluster that has VMs on such hosts.
pub fn cluster_verdicts(plan: &Plan) -> BTreeMap<ObjectName, Verdict> {
    let mut of: BTreeMap<&ObjectName, Vec<(&str, &Outlook)>> = BTreeMap::new();
    for host in &plan.hosts {
        for guest in host.guests.found().into_iter().flatten() {
            // Two identities of one MAAS see the same VM.
            let seen =
                |all: &[(&str, &Outlook)]| all.iter().any(|(on, it)| (*on, &it.name) == (&host.name, &guest.name));
            if let Some(cluster) = &guest.cluster {
                let all = of.entry(cluster).or_default();
                if !seen(all) {
                    all.push((&host.name, guest));
                }
            }
        }
    }
    let verdict = |guests: Vec<(&str, &Outlook)>| {
        let lines = guests.iter().map(|(host, guest)| format!("{} on {host} {}", guest.name, words(&guest.fate)));
        let message = format!("{} on LXD hosts that are being evacuated:\n{}", count(guests.len()), listed(lines));
        said(guests.iter().map(|(_, guest)| *guest), message)
    };
    of.into_iter().map(|(cluster, guests)| (cluster.clone(), verdict(guests))).collect()
}

/// The condition for an object that is no longer affected.
pub fn ended() -> Verdict {
    Verdict::new(conditions::EVACUATING, ConditionStatus::False, reasons::NOT_EVACUATING, "")
}

fn said<'a>(mut guests: impl Iterator<Item = &'a Outlook>, message: String) -> Verdict {
    let moves = guests.any(|guest| match &guest.fate {
        Fate::Leaves | Fate::Goes => true,
        Fate::Waits(waiting) => waiting.passes(),
    });
    if moves {
        return Verdict::new(conditions::EVACUATING, ConditionStatus::True, reasons::EVACUATING, message);
    }
    waiting(message)
}

fn waiting(message: String) -> Verdict {
    Verdict::new(conditions::EVACUATING, ConditionStatus::True, reasons::EVACUATION_WAITING, message)
}

fn words(fate: &Fate) -> String {
    match fate {
        Fate::Leaves | Fate::Goes => "is being replaced".to_owned(),
        Fate::Waits(waiting) => waiting.to_string(),
    }
}

fn count(vms: usize) -> String {
    if vms == 1 { "1 VM".to_owned() } else { format!("{vms} VMs") }
}

/// A line for each VM, as many as fit.
fn listed(lines: impl Iterator<Item = String>) -> String {
    let all: Vec<String> = lines.map(|line| beginning(&line, LONGEST_LINE).replace(['\n', '\r'], " ")).collect();
    let mut length = 0;
    let fit = all.iter().take_while(|line| {
        length += line.len() + 1;
        length <= LONGEST
    });
    let mut shown: Vec<String> = fit.cloned().collect();
    let more = all.len() - shown.len();
    if more > 0 {
        shown.push(format!("and {more} more"));
    }
    shown.join("\n")
}
