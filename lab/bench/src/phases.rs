//! Where a provider's added time goes: what is left of each phase of a machine's lifecycle without the time inside MAAS
//! and the time in which MAAS had the maximum number of requests.

use std::collections::BTreeMap;

use jiff::Timestamp;
use maas_sim::ledger::Effect;
use serde::Serialize;

use crate::capi::Life;
use crate::maas::{Exchange, Moments, Seen};

/// Durations of many machines, in seconds.
#[derive(Clone, Copy, Debug, Default, Serialize)]
pub struct Spread {
    /// The median.
    pub p50: f64,
    /// The 99th percentile.
    pub p99: f64,
}

impl Spread {
    pub fn of(mut seconds: Vec<f64>) -> Self {
        seconds.sort_by(f64::total_cmp);
        let at = |percent: usize| {
            let rank = (seconds.len() * percent).div_ceil(100).max(1);
            seconds.get(rank - 1).copied().unwrap_or_default()
        };
        Self { p50: at(50), p99: at(99) }
    }
}

/// One phase of all machines.
#[derive(Clone, Debug, Serialize)]
pub struct Phase {
    /// Its start and end.
    pub name: &'static str,
    /// How many machines went through it.
    pub machines: usize,
    /// Wall-clock time.
    pub wall: Spread,
    /// What the provider added.
    pub added: Spread,
}

type Span = (Timestamp, Timestamp);

/// The times that are not attributed to the provider.
pub struct Excluded {
    saturated: Vec<Span>,
    of_machine: BTreeMap<String, Vec<Span>>,
}

impl Excluded {
    /// From all requests, given how many MAAS accepts at once.
    pub fn new(seen: &[Seen], exchanges: &[Exchange], limit: usize) -> Self {
        let mut of_machine: BTreeMap<String, Vec<Span>> = BTreeMap::new();
        for exchange in exchanges {
            for id in machines_of(exchange) {
                of_machine.entry(id).or_default().push((exchange.at, exchange.ended));
            }
        }
        Self { saturated: saturated(seen, limit), of_machine }
    }

    /// What remains of a machine's time span, in seconds.
    fn left(&self, machine: &str, (from, to): Span) -> f64 {
        let own = self.of_machine.get(machine).map(Vec::as_slice).unwrap_or_default();
        let first = self.saturated.partition_point(|(_, end)| *end <= from);
        let others = self.saturated[first..].iter().take_while(|(begin, _)| *begin < to);
        let clip = |(begin, end): &Span| ((*begin).max(from), (*end).min(to));
        let mut spans: Vec<Span> = own.iter().chain(others).map(clip).filter(|(begin, end)| begin < end).collect();
        spans.sort();
        let (mut taken, mut reached) = (0.0, from);
        for (begin, end) in spans {
            if end > reached {
                taken += seconds((begin.max(reached), end));
                reached = end;
            }
        }
        (seconds((from, to)) - taken).max(0.0)
    }
}

/// Every machine that a request concerns.
pub fn machines_of(exchange: &Exchange) -> Vec<String> {
    let entry = &exchange.entry;
    let in_query = entry.query.split('&').filter_map(|pair| pair.strip_prefix("id=")).map(str::to_owned);
    in_query.chain(entry.machine.clone()).chain(taken_by(exchange)).collect()
}

/// The machine that a request allocated.
fn taken_by(exchange: &Exchange) -> Option<String> {
    exchange.entry.effects.iter().find_map(|effect| match effect {
        Effect::Allocated { machine, .. } | Effect::Composed { machine, .. } => Some(machine.clone()),
        _ => None,
    })
}

/// When at least `limit` requests were in flight.
fn saturated(seen: &[Seen], limit: usize) -> Vec<Span> {
    let mut changes: Vec<(Timestamp, bool)> =
        seen.iter().flat_map(|seen| [(seen.at, true), (seen.ended(), false)]).collect();
    changes.sort();
    let (mut under_way, mut since, mut spans) = (0_usize, None, Vec::new());
    for (at, begins) in changes {
        under_way = if begins { under_way + 1 } else { under_way.saturating_sub(1) };
        match since {
            None if under_way >= limit => since = Some(at),
            Some(begin) if under_way < limit => {
                spans.push((begin, at));
                since = None;
            }
            _ => {}
        }
    }
    spans
}

fn seconds((from, to): Span) -> f64 {
    to.duration_since(from).as_secs_f64()
}

fn phase(name: &'static str, excluded: &Excluded, spans: Vec<(String, Span)>) -> Phase {
    Phase {
        name,
        machines: spans.len(),
        wall: Spread::of(spans.iter().map(|(_, span)| seconds(*span).max(0.0)).collect()),
        added: Spread::of(spans.iter().map(|(id, span)| excluded.left(id, *span)).collect()),
    }
}

/// The phases of machines until Deployed.
pub fn coming(lives: &[Life], exchanges: &[Exchange], moments: &Moments, excluded: &Excluded) -> Vec<Phase> {
    let first = |fits: &dyn Fn(&Exchange) -> Option<String>| {
        let mut found: BTreeMap<String, &Exchange> = BTreeMap::new();
        for exchange in exchanges {
            if let Some(id) = fits(exchange) {
                found.entry(id).or_insert(exchange);
            }
        }
        found
    };
    let taken = first(&taken_by);
    let ordered = first(&|exchange| {
        let deploys = exchange.entry.kind == "machine.deploy" && !exchange.entry.effects.is_empty();
        deploys.then(|| exchange.entry.machine.clone())?
    });
    let (mut take, mut order, mut notice) = (Vec::new(), Vec::new(), Vec::new());
    for life in lives {
        let (Some(id), Some(created)) = (&life.system_id, life.created) else { continue };
        if let Some(taken) = taken.get(id) {
            take.push((id.clone(), (created, taken.at)));
            if let Some(ordered) = ordered.get(id) {
                // A newly composed VM is commissioned first, which is MAAS's time.
                let ready = moments.freed.get(id).copied().filter(|ready| *ready < ordered.at);
                order.push((id.clone(), (ready.map_or(taken.ended, |ready| ready.max(taken.ended)), ordered.at)));
            }
        }
        if let (Some(deployed), Some(said)) = (moments.deployed.get(id), life.provisioned) {
            notice.push((id.clone(), (*deployed, said)));
        }
    }
    vec![
        phase("created → taken in MAAS", excluded, take),
        phase("taken → deployment ordered", excluded, order),
        phase("Deployed in MAAS → provisioned", excluded, notice),
    ]
}

/// The phases of machines that are deleted.
pub fn going(lives: &[Life], exchanges: &[Exchange], moments: &Moments, excluded: &Excluded) -> Vec<Phase> {
    let mut released: BTreeMap<String, Timestamp> = BTreeMap::new();
    for exchange in exchanges.iter().filter(|exchange| exchange.entry.kind.ends_with(".release")) {
        if let Some(id) = exchange.entry.machine.clone().filter(|_| !exchange.entry.effects.is_empty()) {
            released.entry(id).or_insert(exchange.at);
        }
    }
    let (mut release, mut let_go) = (Vec::new(), Vec::new());
    for life in lives {
        let (Some(id), Some(deleted)) = (&life.system_id, life.deleted) else { continue };
        if let Some(at) = released.get(id) {
            release.push((id.clone(), (deleted, *at)));
        }
        if let (Some(freed), Some(gone)) = (moments.freed.get(id), life.gone) {
            let_go.push((id.clone(), (*freed, gone)));
        }
    }
    vec![phase("deleted → release ordered", excluded, release), phase("free in MAAS → object gone", excluded, let_go)]
}

#[cfg(test)]
mod tests {
    use super::*;
    use maas_sim::model::Status;
    use std::time::Duration;

    fn at(second: i64) -> Timestamp {
        Timestamp::from_second(1_794_772_800 + second).unwrap()
    }

    fn seen(from: i64, to: i64) -> Seen {
        let took = Duration::from_secs(u64::try_from(to - from).unwrap());
        Seen { at: at(from), took, target: String::new(), status: 200 }
    }

    #[test]
    fn time_in_which_maas_had_all_it_takes_is_not_the_providers() {
        let excluded = Excluded { saturated: saturated(&[seen(1, 5), seen(3, 7)], 2), of_machine: BTreeMap::new() };
        assert_eq!(excluded.saturated, [(at(3), at(5))]);
        assert!((excluded.left("m", (at(0), at(10))) - 8.0).abs() < 1e-9);
        assert!((excluded.left("m", (at(4), at(5))) - 0.0).abs() < 1e-9);
    }

    #[test]
    fn a_machines_own_requests_are_taken_away_once_even_where_maas_is_full_too() {
        let own = BTreeMap::from([("m".to_owned(), vec![(at(4), at(6))])]);
        let excluded = Excluded { saturated: vec![(at(3), at(5))], of_machine: own };
        assert!((excluded.left("m", (at(0), at(10))) - 7.0).abs() < 1e-9);
        assert!((excluded.left("other", (at(0), at(10))) - 8.0).abs() < 1e-9);
    }

    fn exchange(from: i64, to: i64, kind: &str, effect: Effect) -> Exchange {
        let entry = maas_sim::ledger::Entry {
            number: 1,
            at: at(from),
            user: "bench".into(),
            method: "POST".into(),
            path: String::new(),
            query: String::new(),
            kind: kind.into(),
            machine: Some("v".into()),
            status: Some(200),
            effects: vec![effect],
            faults: Vec::new(),
        };
        Exchange { entry, at: at(from), ended: at(to) }
    }

    #[test]
    fn while_a_vm_is_commissioned_nothing_is_added() {
        let life = Life { created: Some(at(0)), system_id: Some("v".into()), ..Life::default() };
        let deploying = Effect::Status { machine: "v".into(), from: Status::Allocated, to: Status::Deploying };
        let exchanges = [
            exchange(2, 3, "vm-host.compose", Effect::Composed { machine: "v".into(), vm_host: 1 }),
            exchange(9, 10, "machine.deploy", deploying),
        ];
        let moments = Moments { freed: BTreeMap::from([("v".to_owned(), at(7))]), ..Moments::default() };
        let excluded = Excluded::new(&[], &exchanges, 4);
        let phases = coming(&[life], &exchanges, &moments, &excluded);
        assert!((phases[0].added.p99 - 2.0).abs() < 1e-9, "{phases:?}");
        assert!((phases[1].added.p99 - 2.0).abs() < 1e-9, "{phases:?}");
    }

    #[test]
    fn the_ninety_ninth_of_a_hundred_is_the_p99() {
        let spread = Spread::of((1..=100).map(f64::from).collect());
        assert!((spread.p50 - 50.0).abs() < 1e-9 && (spread.p99 - 99.0).abs() < 1e-9, "{spread:?}");
        assert!(Spread::of(Vec::new()).p99.abs() < 1e-9);
    }
}
