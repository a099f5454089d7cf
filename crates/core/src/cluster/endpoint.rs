//! The endpoint of the API server, and who provides it.

use capmaas_api::cluster::ControlPlaneEndpoint;

use super::journal::Source;
use super::observed::{Object, Owner};

/// Port of an API server if nothing specifies another.
pub const DEFAULT_PORT: u16 = 6443;

/// The longest label in DNS is 63 characters; a dash and six digits are added.
const LONGEST_STEM: usize = 56;

/// A name for the API server of a cluster; six hexadecimal digits distinguish it from other clusters of that name.
pub fn candidate(cluster: &str, digits: &str, domain: &str) -> String {
    let digits: String = digits.chars().take(6).collect();
    format!("{}-{digits}.{}", stem(cluster), domain.trim_matches('.'))
}

fn stem(cluster: &str) -> String {
    let stem: String = cluster.replace('.', "-").chars().take(LONGEST_STEM).collect();
    stem.trim_matches('-').to_owned()
}

/// What is wrong with a domain that no DNS can have; MAAS would answer it with an internal error.
pub fn not_a_domain(domain: &str) -> Option<String> {
    let fits = |c: char| c.is_ascii_alphanumeric() || c == '-' || c == '_';
    let label = |label: &str| (1..=63).contains(&label.len()) && label.chars().all(fits);
    let trimmed = domain.trim_matches('.');
    let fine = trimmed.len() <= 253 && trimmed.split('.').all(label);
    (!fine).then(|| {
        format!(
            "spec.dnsDomain {domain:?} is not a DNS domain: use ASCII letters, digits and dashes separated by dots, \
             such as maas or k8s.example.com; create the cluster again with a domain that MAAS has"
        )
    })
}

/// The name that the object has, whoever created it: the one in the journal, otherwise that of its endpoint, otherwise the one in
/// its status. Replacing the whole object removes the first, often the second, and never the last.
pub fn recorded<'a>(object: &'a Object, owner: &'a Owner) -> Option<&'a str> {
    object.journal.name.as_deref().or_else(|| given_host(object, owner)).or_else(|| stored_name(object))
}

/// Who provides the name: the journal decides, otherwise the form of the object.
///
/// A name that only this object's UID yields is ours, whatever became of the journal. An object with the finalizer and no journal
/// belonged to the Go provider (S24): a name that it made stays, wherever it is stored. An object without either may have
/// belonged to it too, after a restore that dropped finalizers: then the name has its form.
pub fn source(object: &Object, owner: &Owner) -> Source {
    if let Some(source) = object.journal.source {
        return source;
    }
    if object.custom_endpoint {
        return Source::User;
    }
    if object.name_is_from_uid {
        return Source::Dns;
    }
    match (given_host(object, owner), object.finalizer) {
        (Some(host), true) if is_under(host, &object.spec.dns_domain) || Some(host) == stored_name(object) => {
            Source::Adopted
        }
        (Some(host), false) if has_made_up_form(host, &owner.name, &object.spec.dns_domain) => Source::Adopted,
        (Some(_), _) => Source::User,
        (None, true) if stored_name(object).is_some() => Source::Adopted,
        (None, _) => Source::Dns,
    }
}

/// The name to look up in MAAS's DNS; `None` if there is none, or none yet.
pub fn name(object: &Object, owner: &Owner) -> Option<String> {
    match source(object, owner) {
        Source::User => None,
        Source::Dns => recorded(object, owner)
            .filter(|_| object.name_is_from_uid || object.journal.name.is_some())
            .map(str::to_owned),
        Source::Adopted => {
            let found = || given_host(object, owner).or_else(|| stored_name(object)).map(str::to_owned);
            object.journal.name.clone().or_else(found)
        }
    }
}

/// Whether the object shows our name, but the journal lost it. The record may exist, as if it had just been requested.
pub fn is_found_again(object: &Object, owner: &Owner) -> bool {
    object.journal.name.is_none() && source(object, owner) == Source::Dns && name(object, owner).is_some()
}

/// Whether a free name has to be found.
pub fn needs_name(object: &Object, owner: &Owner) -> bool {
    source(object, owner) == Source::Dns && name(object, owner).is_none()
}

/// The desired endpoint, given the name in MAAS's DNS if there is one. `None`: not known yet.
///
/// An endpoint in the spec is never replaced, because it is in every kubeconfig.
pub fn wanted(object: &Object, owner: &Owner, name: Option<&str>) -> Option<ControlPlaneEndpoint> {
    let spec = object.spec.control_plane_endpoint.as_ref();
    let given = spec.map(|spec| spec.host.as_str()).filter(|host| !host.is_empty());
    let host = given.or(name).or(owner.host.as_deref().filter(|host| !host.is_empty()))?;
    let port = spec.and_then(|spec| u16::try_from(spec.port).ok()).filter(|port| *port != 0);
    // The Cluster's port belongs to the Cluster's host.
    let of_cluster = owner.port.filter(|_| owner.host.as_deref() == Some(host));
    let port = port.or(of_cluster).or(owner.api_server_port).unwrap_or(DEFAULT_PORT);
    Some(ControlPlaneEndpoint { host: host.to_owned(), port: i64::from(port) })
}

fn given_host<'a>(object: &'a Object, owner: &'a Owner) -> Option<&'a str> {
    let spec = object.spec.control_plane_endpoint.as_ref().map(|endpoint| endpoint.host.as_str());
    spec.filter(|host| !host.is_empty()).or(owner.host.as_deref().filter(|host| !host.is_empty()))
}

fn stored_name(object: &Object) -> Option<&str> {
    let network = object.status.network.as_ref()?;
    network.dns_name.as_deref().filter(|name| !name.is_empty())
}

fn is_under(host: &str, domain: &str) -> bool {
    let domain = domain.trim_matches('.');
    !domain.is_empty() && host.strip_suffix(domain).is_some_and(|rest| rest.len() > 1 && rest.ends_with('.'))
}

/// `<cluster>-<6 hexadecimal digits>.<domain>`, the form of names that the Go provider and we generate.
fn has_made_up_form(host: &str, cluster: &str, domain: &str) -> bool {
    let label = host.strip_suffix(domain.trim_matches('.')).and_then(|rest| rest.strip_suffix('.'));
    let digits = label.and_then(|label| label.strip_prefix(&stem(cluster))).and_then(|rest| rest.strip_prefix('-'));
    digits.is_some_and(|digits| digits.len() == 6 && digits.bytes().all(|byte| byte.is_ascii_hexdigit()))
}

#[cfg(test)]
mod tests {
    use capmaas_api::cluster::NetworkStatus;

    use super::*;

    fn object(host: &str, finalizer: bool) -> Object {
        let mut object = Object { finalizer, ..Object::default() };
        object.spec.dns_domain = "k8s.example".into();
        if !host.is_empty() {
            object.spec.control_plane_endpoint = Some(ControlPlaneEndpoint { host: host.into(), port: 0 });
        }
        object
    }

    fn owner(host: Option<&str>) -> Owner {
        Owner { name: "c1".into(), host: host.map(str::to_owned), port: host.map(|_| 8443), ..Owner::default() }
    }

    #[test]
    fn a_new_cluster_gets_a_name_from_us_unless_the_user_gives_one() {
        assert_eq!(source(&object("", false), &owner(None)), Source::Dns);
        assert_eq!(source(&object("vip.example", false), &owner(None)), Source::User);
        assert_eq!(source(&object("", false), &owner(Some("vip.example"))), Source::User);
        assert_eq!(source(&object("api.k8s.example", false), &owner(None)), Source::User);
        assert_eq!(source(&Object { custom_endpoint: true, ..object("", false) }, &owner(None)), Source::User);
    }

    #[test]
    fn s24_a_name_that_the_go_provider_made_is_kept_wherever_it_stored_it() {
        assert_eq!(source(&object("c1-0abc12.k8s.example", true), &owner(None)), Source::Adopted);
        assert_eq!(source(&object("", true), &owner(Some("c1-0abc12.k8s.example"))), Source::Adopted);
        assert_eq!(source(&object("c1-0abc12.k8s.example", false), &owner(None)), Source::Adopted);
        let mut only_status = object("", true);
        only_status.status.network = Some(NetworkStatus { dns_name: Some("c1-0abc12.k8s.example".into()) });
        assert_eq!(source(&only_status, &owner(None)), Source::Adopted);
        assert_eq!(name(&only_status, &owner(None)).as_deref(), Some("c1-0abc12.k8s.example"));
    }

    #[test]
    fn s24_an_endpoint_that_the_user_gave_to_the_go_provider_stays_the_users() {
        assert_eq!(source(&object("vip.example", true), &owner(None)), Source::User);
        let custom = Object { custom_endpoint: true, ..object("api.k8s.example", true) };
        assert_eq!(source(&custom, &owner(None)), Source::User);
    }

    #[test]
    fn s18_a_name_that_the_uid_leads_to_is_ours_wherever_it_is_still_told() {
        let told = Some(NetworkStatus { dns_name: Some("c1-0abc12.k8s.example".into()) });
        let replaced = |host: &str, network: Option<NetworkStatus>| {
            let mut object = Object { name_is_from_uid: true, ..object(host, false) };
            object.status.network = network;
            object
        };
        for (object, owner) in [
            (replaced("c1-0abc12.k8s.example", None), owner(None)),
            (replaced("", None), owner(Some("c1-0abc12.k8s.example"))),
            (replaced("", told), owner(None)),
        ] {
            assert_eq!(source(&object, &owner), Source::Dns);
            assert_eq!(name(&object, &owner).as_deref(), Some("c1-0abc12.k8s.example"));
            assert!(!needs_name(&object, &owner) && is_found_again(&object, &owner));
        }
    }

    #[test]
    fn who_provides_the_name_is_decided_once() {
        let mut decided = object("vip.example", true);
        decided.journal.source = Some(Source::Dns);
        assert_eq!(source(&decided, &owner(None)), Source::Dns);
    }

    #[test]
    fn the_port_is_the_specs_or_the_endpoints_or_the_api_servers_or_6443() {
        let port = |object: &Object, owner: &Owner, name| wanted(object, owner, name).unwrap().port;
        let mut with_port = object("vip.example", false);
        with_port.spec.control_plane_endpoint.as_mut().unwrap().port = 1234;
        assert_eq!(port(&with_port, &owner(None), None), 1234);
        assert_eq!(port(&object("", false), &owner(Some("vip.example")), None), 8443);
        let with_port = Owner { api_server_port: Some(7443), ..owner(None) };
        assert_eq!(port(&object("", false), &with_port, Some("c1-abc123.k8s.example")), 7443);
        assert_eq!(port(&object("", false), &owner(None), Some("c1-abc123.k8s.example")), 6443);
        let mut only_port = object("", false);
        only_port.spec.control_plane_endpoint = Some(ControlPlaneEndpoint { host: String::new(), port: 9443 });
        assert_eq!(port(&only_port, &owner(None), Some("c1-abc123.k8s.example")), 9443);
    }

    #[test]
    fn an_endpoint_that_nobody_has_given_yet_is_awaited() {
        let custom = Object { custom_endpoint: true, ..object("", false) };
        assert_eq!(wanted(&custom, &owner(None), None), None);
    }

    #[test]
    fn a_name_fits_into_dns_whatever_the_cluster_is_called() {
        let long = "a.very-long.name-of-a-cluster".repeat(4);
        let name = candidate(&long, "0123456789", ".maas.");
        let label = name.strip_suffix(".maas").unwrap();
        assert!(label.len() <= 63 && !label.contains('.'), "{label}");
        assert_eq!(candidate("c1", "0abc12", "maas"), "c1-0abc12.maas");
    }
}
