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
use rcgen::{CertificateParams, DistinguishedName, DnType, KeyPair, PKCS_ECDSA_P384_SHA384};
use secrecy::SecretString;

use super::{PAIR_LABEL, PAIR_OF};
use crate::identity::{HOST_KEYS, name_for};
use crate::kubernetes::{Key, Kubernetes, NewSecret, SecretValues};

const CERTIFICATE: &str = "tls.crt";
const KEY: &str = "tls.key";
const VALID_YEARS: i16 = 10;
/// A common name has at most 64 characters.
const LONGEST: usize = 64;

/// The common name in the certificates of a cluster. It identifies them even if the key is lost.
pub(super) fn common_name(object: &MaasCluster) -> String {
    let name = format!("capmaas@{}", object.name_any());
    name.chars().take(LONGEST).collect()
}

/// Whether a certificate was made for this cluster. The name is ASCII, so it appears verbatim in the DER form, after
/// its length.
pub(super) fn is_ours(pem: &str, object: &MaasCluster) -> bool {
    let Ok(der) = lxd_client::certificate_der(pem) else { return false };
    let name = common_name(object);
    let mut whole = vec![u8::try_from(name.len()).unwrap_or(u8::MAX)];
    whole.extend(name.as_bytes());
    der.windows(whole.len()).any(|window| window == whole)
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
pub(super) async fn whole(
    kubernetes: &dyn Kubernetes,
    home: &str,
    key: &Key,
) -> Result<(String, SecretString), String> {
    let place = place(home, key);
    let secret = kubernetes.secret(&place).await.map_err(|error| error.to_string())?;
    let secret = secret.ok_or_else(|| format!("the Secret {place} is gone"))?;
    halves(&secret).ok_or_else(|| format!("the Secret {place} contains no certificate with its key"))
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
    let fit = |secret: &SecretValues| public(secret).is_some_and(|pair| is_ours(&pair.certificate, object));
    Ok(secret.filter(fit).as_ref().and_then(halves))
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
        None => generate(&common_name(object), now).map_err(|error| error.to_string())?,
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

fn generate(name: &str, now: Timestamp) -> Result<(String, SecretString), rcgen::Error> {
    let key = KeyPair::generate_for(&PKCS_ECDSA_P384_SHA384)?;
    let mut params = CertificateParams::default();
    params.distinguished_name = DistinguishedName::new();
    params.distinguished_name.push(DnType::CommonName, name);
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

    fn cluster(name: &str) -> MaasCluster {
        let mut cluster = MaasCluster::default();
        cluster.metadata.name = Some(name.into());
        cluster
    }

    #[test]
    fn a_certificate_is_known_again_by_its_cluster_and_by_no_other() {
        let now = Timestamp::from_second(1_800_000_000).unwrap();
        let (pem, _) = generate(&common_name(&cluster("c1")), now).unwrap();
        assert!(is_ours(&pem, &cluster("c1")));
        for other in ["c", "c10", "C1", ""] {
            assert!(!is_ours(&pem, &cluster(other)), "{other}");
        }
        assert!(!is_ours("nonsense", &cluster("c1")));
    }

    #[test]
    fn s21_a_pair_prints_no_key_and_the_fact_holds_none() {
        let now = Timestamp::from_second(1_800_000_000).unwrap();
        let (pem, key) = generate("capmaas@c1", now).unwrap();
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
