//! The key pair with which MAAS connects to the hosts of one cluster. It stays in the manager's namespace, which no
//! tenant can read; nodes get only the certificate (S22). A pair that `clusterctl move` leaves behind is replaced by a
//! new one.

use std::collections::BTreeMap;

use capmaas_api::MaasCluster;
use capmaas_core::Lookup;
use capmaas_core::hosts::observed::Pair;
use jiff::Timestamp;
use kube::ResourceExt as _;
use lxd_client::Fingerprint;
use lxd_initializer::issued::{self, Names, OF_CLUSTER, SCHEME};
use lxd_initializer::registering;
use rcgen::{
    CertificateParams, DistinguishedName, DnType, KeyPair, PKCS_ECDSA_P384_SHA384, PublicKeyData as _, SanType,
};
use secrecy::{ExposeSecret as _, SecretString};
use x509_parser::prelude::{FromDer as _, X509Certificate};

use super::{PAIR_LABEL, PAIR_OF};
use crate::identity::{HOST_KEYS, name_for};
use crate::kubernetes::{Key, Kubernetes, NewSecret, SecretValues};

const CERTIFICATE: &str = "tls.crt";
const KEY: &str = "tls.key";
const VALID_YEARS: i16 = 10;
/// A common name has at most 64 characters.
const LONGEST: usize = 64;

/// For whom a certificate was made.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub(super) enum MadeFor {
    ThisCluster,
    /// A cluster of this name in any namespace: certificates of earlier releases carry only the name.
    Namesake,
    Another,
}

/// The common name in the certificates of a cluster. Agents recognize the predecessor of a certificate by it.
fn common_name(object: &MaasCluster) -> String {
    let name = format!("{OF_CLUSTER}{}", object.name_any());
    name.chars().take(LONGEST).collect()
}

/// The alternative name that identifies the certificates of a cluster even if the key is lost. A common name is too
/// short for namespace and name.
fn identifier(object: &MaasCluster) -> String {
    format!("{SCHEME}{}/{}", object.namespace().unwrap_or_default(), object.name_any())
}

/// For whom a certificate was made, by the names in it.
pub(super) fn made_for(pem: &str, object: &MaasCluster) -> MadeFor {
    match issued::names(pem).unwrap_or_default() {
        Names { cluster: Some(whom), .. } if whom == identifier(object) => MadeFor::ThisCluster,
        Names { cluster: None, common: Some(name) } if name == common_name(object) => MadeFor::Namesake,
        _ => MadeFor::Another,
    }
}

/// Whether the two halves of a pair belong together. Certificates are public: anybody can lay one next to another key.
fn fit(certificate: &str, private: &SecretString) -> bool {
    let Ok(der) = lxd_client::certificate_der(certificate) else { return false };
    let Ok((_, certificate)) = X509Certificate::from_der(&der) else { return false };
    let key = KeyPair::from_pem(private.expose_secret());
    key.is_ok_and(|key| key.subject_public_key_info() == certificate.public_key().raw)
}

/// The Secret with the pair of a MaasCluster.
fn place(home: &str, key: &Key) -> Key {
    Key::new(home, name_for(HOST_KEYS, key))
}

/// The public half of the pair.
pub(super) async fn read(kubernetes: &dyn Kubernetes, home: &str, key: &Key) -> Lookup<Pair> {
    let place = place(home, key);
    match kubernetes.secret(&place).await {
        Ok(Some(secret)) => match public(&secret) {
            Some(pair) => Lookup::Found(pair),
            None => Lookup::Unknown(format!(
                "the Secret {place} contains no certificate with its key; delete it, and a new pair is created"
            )),
        },
        Ok(None) => Lookup::Absent,
        Err(error) => Lookup::Unknown(error.to_string()),
    }
}

fn public(secret: &SecretValues) -> Option<Pair> {
    let certificate = secret.text(CERTIFICATE)?.to_owned();
    secret.text(KEY).filter(|key| key.contains("PRIVATE KEY"))?;
    let fingerprint = Fingerprint::of_pem(&certificate).ok()?.to_string();
    Some(Pair { certificate, fingerprint })
}

/// The whole pair, to be sent to MAAS.
pub(super) async fn whole(kubernetes: &dyn Kubernetes, home: &str, key: &Key) -> Result<registering::KeyPair, String> {
    let place = place(home, key);
    let secret = kubernetes.secret(&place).await.map_err(|error| error.to_string())?;
    let secret = secret.ok_or_else(|| format!("the Secret {place} is gone"))?;
    let (certificate, key) =
        halves(&secret).ok_or_else(|| format!("the Secret {place} contains no certificate with its key"))?;
    Ok(registering::KeyPair { certificate, key })
}

fn halves(secret: &SecretValues) -> Option<(String, SecretString)> {
    Some((secret.text(CERTIFICATE)?.to_owned(), secret.text(KEY)?.to_owned().into()))
}

/// The pair that an earlier release kept next to the MaasCluster, if it is usable and was made for this cluster.
async fn earlier(
    kubernetes: &dyn Kubernetes,
    key: &Key,
    object: &MaasCluster,
) -> Result<Option<(String, SecretString)>, String> {
    let name = format!("{}-lxd-hosts", object.name_any());
    let secret = kubernetes.secret(&key.beside(name)).await.map_err(|error| error.to_string())?;
    let ours = |(certificate, private): &(String, SecretString)| {
        made_for(certificate, object) != MadeFor::Another && fit(certificate, private)
    };
    Ok(secret.as_ref().and_then(halves).filter(ours))
}

/// Creates a pair, or takes over what an earlier release created, and stores it in the manager's namespace.
pub(super) async fn make(
    kubernetes: &dyn Kubernetes,
    home: &str,
    key: &Key,
    object: &MaasCluster,
    now: Timestamp,
) -> Result<(), String> {
    let (certificate, private) = match earlier(kubernetes, key, object).await? {
        Some(pair) => pair,
        None => generate(object, now).map_err(|error| error.to_string())?,
    };
    let secret = NewSecret {
        key: place(home, key),
        labels: BTreeMap::from([(PAIR_LABEL.to_owned(), String::new())]),
        annotations: BTreeMap::from([(PAIR_OF.to_owned(), key.to_string())]),
        values: BTreeMap::from([(CERTIFICATE.to_owned(), certificate.into()), (KEY.to_owned(), private)]),
    };
    match kubernetes.create_secret(&secret).await {
        // Another writer was faster: its pair is as good.
        Err(error) if error.kind == crate::kubernetes::ErrorKind::Conflict => Ok(()),
        result => result.map_err(|error| error.to_string()),
    }
}

fn generate(object: &MaasCluster, now: Timestamp) -> Result<(String, SecretString), rcgen::Error> {
    let key = KeyPair::generate_for(&PKCS_ECDSA_P384_SHA384)?;
    let mut params = CertificateParams::default();
    params.distinguished_name = DistinguishedName::new();
    params.distinguished_name.push(DnType::CommonName, common_name(object));
    params.subject_alt_names.push(SanType::URI(identifier(object).try_into()?));
    let today = now.to_zoned(jiff::tz::TimeZone::UTC).date();
    // A day of slack, because the clocks of manager, node and MAAS may differ.
    let start = today.yesterday().unwrap_or(today);
    let date = |years: i16| {
        // 29 February does not exist in every year.
        let day = start.day().unsigned_abs().min(28);
        rcgen::date_time_ymd(i32::from(start.year() + years), start.month().unsigned_abs(), day)
    };
    params.not_before = date(0);
    params.not_after = date(VALID_YEARS);
    let certificate = params.self_signed(&key)?.pem().replace("\r\n", "\n");
    Ok((certificate, key.serialize_pem().into()))
}

#[cfg(test)]
mod tests {
    use super::*;

    fn cluster(namespace: &str, name: &str) -> MaasCluster {
        let mut cluster = MaasCluster::default();
        cluster.metadata.namespace = Some(namespace.into());
        cluster.metadata.name = Some(name.into());
        cluster
    }

    #[test]
    fn s22_a_certificate_is_known_by_the_namespace_and_name_in_it() {
        let now = Timestamp::from_second(1_800_000_000).unwrap();
        for name in ["c1", &"long".repeat(60)] {
            let (pem, key) = generate(&cluster("a", name), now).unwrap();
            assert_eq!(made_for(&pem, &cluster("a", name)), MadeFor::ThisCluster);
            for (namespace, other) in [("b", name), ("a", "c"), ("a", "c10"), ("a", "C1"), ("a", ""), ("", "a/c1")] {
                assert_eq!(made_for(&pem, &cluster(namespace, other)), MadeFor::Another, "{namespace}/{other}");
            }
            assert!(fit(&pem, &key));
            assert!(!fit(&pem, &generate(&cluster("a", name), now).unwrap().1), "another key");
        }
        assert_eq!(made_for("nonsense", &cluster("a", "c1")), MadeFor::Another);
    }

    #[test]
    fn s22_a_certificate_of_an_earlier_release_names_no_namespace() {
        let mut params = CertificateParams::default();
        params.distinguished_name = DistinguishedName::new();
        params.distinguished_name.push(DnType::OrganizationName, "capmaas@c2");
        params.distinguished_name.push(DnType::CommonName, "capmaas@c1");
        let pem = params.self_signed(&KeyPair::generate().unwrap()).unwrap().pem();
        assert_eq!(made_for(&pem, &cluster("a", "c1")), MadeFor::Namesake);
        assert_eq!(made_for(&pem, &cluster("b", "c1")), MadeFor::Namesake);
        for other in ["c", "c10", "c2", ""] {
            assert_eq!(made_for(&pem, &cluster("a", other)), MadeFor::Another, "{other}");
        }
    }

    #[test]
    fn s21_a_pair_prints_no_key_and_the_fact_holds_none() {
        let now = Timestamp::from_second(1_800_000_000).unwrap();
        let (pem, key) = generate(&cluster("default", "c1"), now).unwrap();
        assert!(!format!("{key:?}").contains("PRIVATE"));
        let private = secrecy::ExposeSecret::expose_secret(&key).as_bytes().to_vec();
        let values = [(CERTIFICATE.to_owned(), pem.clone().into_bytes()), (KEY.to_owned(), private)];
        let pair = public(&SecretValues::new("u".into(), "1".into(), values)).unwrap();
        assert_eq!(pair.certificate, pem);
        assert!(!format!("{pair:?}").contains("PRIVATE KEY"));
        let without = SecretValues::new("u".into(), "1".into(), [(CERTIFICATE.to_owned(), pem.into_bytes())]);
        assert_eq!(public(&without), None);
    }
}
