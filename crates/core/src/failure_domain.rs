//! The failure domain in which a control plane creates its next machine.

/// A machine of a control plane.
#[derive(Debug, Clone, Copy)]
pub struct Placed<'a> {
    pub failure_domain: Option<&'a str>,
    pub up_to_date: bool,
}

/// As KubeadmControlPlane chooses: the failure domain with the fewest up-to-date machines, then with the fewest machines, then
/// the first by name. `None`: the cluster has no failure domains.
pub fn next<'a>(failure_domains: &'a [String], machines: &[Placed<'_>]) -> Option<&'a str> {
    let count = |name: &str, only_up_to_date: bool| {
        let here = machines.iter().filter(|machine| machine.failure_domain == Some(name));
        here.filter(|machine| machine.up_to_date || !only_up_to_date).count()
    };
    let names = failure_domains.iter().map(String::as_str);
    names.min_by_key(|name| (count(name, true), count(name, false), *name))
}
