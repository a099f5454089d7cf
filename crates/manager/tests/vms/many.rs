//! Many VMs at the same time.

use std::collections::BTreeMap;

use capmaas_core::plan::Requeue;
use futures::future::join_all;

use crate::stage::Stage;

/// Cores and memory of a host, and of a VM on this stage.
const HOST: (u32, u32) = (16, 65536);
const CORES: u32 = 2;

#[tokio::test]
async fn go22_fifty_vms_that_are_made_at_once_on_seven_hosts_all_run_and_none_holds_too_many() {
    let stage = Stage::bare();
    for number in 1..=7 {
        stage.host_in(number, &format!("az{}", number % 3), HOST);
    }
    let names: Vec<String> = (0..50).map(|number| format!("cp-{number}")).collect();
    for name in &names {
        stage.vm(name);
    }
    for round in 0.. {
        let asked = join_all(names.iter().map(|name| stage.pass(name))).await;
        if names.iter().all(|name| stage.object(name)["status"]["ready"] == true) {
            break;
        }
        assert!(round < 60, "not all of them run: {:?}", stage.mutations());
        let soonest = asked.iter().filter_map(|requeue| match requeue {
            Requeue::After(wait) => Some(wait.as_secs()),
            Requeue::OnChange => None,
        });
        stage.advance(soonest.min().unwrap_or(30).max(1));
    }
    let (mut on_host, mut in_zone) = (BTreeMap::<String, u32>::new(), BTreeMap::<String, u32>::new());
    for name in &names {
        let object = stage.object(name);
        *on_host.entry(object["status"]["lxdHost"].to_string()).or_default() += CORES;
        *in_zone.entry(object["status"]["failureDomain"].to_string()).or_default() += 1;
    }
    assert!(on_host.len() == 7 && on_host.values().all(|cores| *cores <= HOST.0), "{on_host:?}");
    // Two zones have two hosts and one has three: only 16, 16 and 18 fit.
    let mut counts: Vec<u32> = in_zone.into_values().collect();
    counts.sort_unstable();
    assert_eq!(counts, [16, 16, 18]);
    // The ledger kept the claims apart, MAAS did not have to refuse any: no request was wasted.
    assert_eq!((stage.maas.control().effective("compose"), stage.in_lxd().len()), (50, 50));
}
