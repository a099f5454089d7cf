//! For whom a client certificate was made, by the names in it. The manager makes one per cluster, an agent one per node.

use x509_parser::extensions::GeneralName;
use x509_parser::prelude::{FromDer as _, X509Certificate};

/// Begins the alternative name in certificates of a cluster: namespace and name follow. A common name is too short for both.
pub const SCHEME: &str = "capmaas://";
/// Begins the common name in certificates of a cluster.
pub const OF_CLUSTER: &str = "capmaas@";
/// Begins the common name in certificates of a node.
pub const OF_NODE: &str = "lxd-initializer@";

/// The names in a certificate.
#[derive(Debug, Clone, Default, PartialEq, Eq)]
pub struct Names {
    /// The common name of its subject.
    pub common: Option<String>,
    /// The alternative name that begins with [`SCHEME`]. Certificates of earlier releases and of nodes have none.
    pub cluster: Option<String>,
}

/// The names in a certificate, or `None` if it cannot be read.
pub fn names(pem: &str) -> Option<Names> {
    let der = lxd_client::certificate_der(pem).ok()?;
    let (_, certificate) = X509Certificate::from_der(&der).ok()?;
    let alternatives = certificate.subject_alternative_name().ok().flatten();
    let cluster = alternatives.iter().flat_map(|names| &names.value.general_names).find_map(|name| match name {
        GeneralName::URI(uri) if uri.starts_with(SCHEME) => Some((*uri).to_owned()),
        _ => None,
    });
    let common = certificate.subject().iter_common_name().find_map(|name| name.as_str().ok()).map(str::to_owned);
    Some(Names { common, cluster })
}

/// Whether two certificates were made for the same cluster or the same node, the first as a replacement of the second.
pub fn is_successor(now: &str, before: &str) -> bool {
    let (Some(now), Some(before)) = (names(now), names(before)) else { return false };
    if let (Some(now), Some(before)) = (&now.cluster, &before.cluster) {
        return now == before;
    }
    // A certificate of an earlier release names only the cluster, without its namespace.
    let is_ours = |name: &String| [OF_CLUSTER, OF_NODE].iter().any(|whom| name.starts_with(whom));
    now.common.is_some_and(|name| is_ours(&name) && before.common == Some(name))
}

#[cfg(test)]
mod tests {
    use rcgen::{CertificateParams, DistinguishedName, DnType, KeyPair, SanType};

    use super::*;

    fn pem(common: &str, cluster: Option<&str>) -> String {
        let mut params = CertificateParams::default();
        params.distinguished_name = DistinguishedName::new();
        params.distinguished_name.push(DnType::OrganizationName, "capmaas@decoy");
        params.distinguished_name.push(DnType::CommonName, common);
        params.subject_alt_names.extend(cluster.map(|uri| SanType::URI(uri.try_into().unwrap())));
        params.self_signed(&KeyPair::generate().unwrap()).unwrap().pem()
    }

    #[test]
    fn a_successor_was_made_for_the_same_cluster_or_node_and_nobody_else() {
        let now = pem("capmaas@c1", None);
        assert!(is_successor(&now, &pem("capmaas@c1", None)));
        assert!(is_successor(&pem("lxd-initializer@n1", None), &pem("lxd-initializer@n1", None)));
        for other in ["capmaas@c10", "capmaas@c", "lxd-initializer@c1", "person"] {
            assert!(!is_successor(&now, &pem(other, None)), "{other}");
        }
        let person = pem("person", None);
        assert!(!is_successor(&person, &pem("person", None)) && !is_successor("nonsense", "nonsense"));
    }

    #[test]
    fn s22_a_cluster_is_known_by_namespace_and_name_and_one_of_an_earlier_release_by_its_name() {
        let now = pem("capmaas@c1", Some("capmaas://a/c1"));
        assert!(is_successor(&now, &pem("capmaas@c1", Some("capmaas://a/c1"))));
        assert!(!is_successor(&now, &pem("capmaas@c1", Some("capmaas://b/c1"))), "its namesake in another namespace");
        assert!(is_successor(&now, &pem("capmaas@c1", None)), "of an earlier release");
        assert!(!is_successor(&now, &pem("capmaas@c2", None)));
    }

    #[test]
    fn only_the_subject_and_the_alternative_names_count() {
        let names = names(&pem("person", Some("https://capmaas/c1"))).unwrap();
        assert_eq!(names, Names { common: Some("person".into()), cluster: None });
        assert_eq!(super::names("nonsense"), None);
    }
}
