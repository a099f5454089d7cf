//! The key pair of this node, in one file of a host directory: complete, or absent.

use std::{
    fs, io,
    io::Write,
    os::unix::fs::{DirBuilderExt, MetadataExt},
    path::{Path, PathBuf},
};

use lxd_client::{Fingerprint, Identity};
use rcgen::{CertificateParams, DistinguishedName, DnType, KeyPair, PKCS_ECDSA_P384_SHA384};
use secrecy::{ExposeSecret, SecretString};

use crate::{
    issued, names,
    observed::{Certificate, Lookup},
};

const FILE: &str = "client.pem";
const VALID_YEARS: i32 = 10;

fn path(state_dir: &Path) -> PathBuf {
    state_dir.join(FILE)
}

/// The key pair, if it exists and is usable. An existing but unusable one is never replaced: `Unknown`.
pub fn load(state_dir: &Path) -> Lookup<Identity> {
    let path = path(state_dir);
    let metadata = match fs::metadata(&path) {
        Ok(metadata) => metadata,
        Err(error) if error.kind() == io::ErrorKind::NotFound => return Lookup::Absent,
        Err(error) => return Lookup::Unknown(format!("{}: {error}", path.display())),
    };
    if metadata.mode() & 0o077 != 0 {
        return Lookup::Unknown(format!(
            "{} can be read by others (mode {:o}): remove it, and a new one is created, or set its mode to 600",
            path.display(),
            metadata.mode() & 0o777
        ));
    }
    let text = match fs::read_to_string(&path) {
        Ok(text) => SecretString::from(text),
        Err(error) => return Lookup::Unknown(format!("{}: {error}", path.display())),
    };
    let (certificate, key) = halves(text.expose_secret());
    let identity = Identity::new(certificate, key.into());
    // The content is not quoted: it is, or was, a private key.
    let fits = lxd_client::Client::tls("https://localhost", Fingerprint::of_der(&[]), Some(&identity)).is_ok();
    if fits {
        Lookup::Found(identity)
    } else {
        Lookup::Unknown(format!(
            "{} contains no certificate with its key: remove it, and a new one is created",
            path.display()
        ))
    }
}

/// Splits the file into its certificate and the rest.
fn halves(text: &str) -> (String, String) {
    const END: &str = "-----END CERTIFICATE-----\n";
    match text.find(END) {
        Some(at) => (text[..at + END.len()].to_owned(), text[at + END.len()..].to_owned()),
        None => (String::new(), String::new()),
    }
}

/// The certificate of a key pair, as a fact.
pub fn fact(identity: &Identity) -> Lookup<Certificate> {
    match identity.fingerprint() {
        Ok(fingerprint) => Lookup::Found(Certificate { fingerprint, pem: identity.certificate_pem().to_owned() }),
        Err(error) => Lookup::Unknown(error.to_string()),
    }
}

/// Whether this node's agent made a certificate, by the common name in it.
pub fn is_own(pem: &str, node_name: &str) -> bool {
    issued::names(pem).and_then(|names| names.common) == Some(names::common_name(node_name))
}

/// Generates and stores a key pair, unless one exists.
pub fn make(state_dir: &Path, node_name: &str) -> anyhow::Result<()> {
    fs::DirBuilder::new().recursive(true).mode(0o700).create(state_dir)?;
    let key = KeyPair::generate_for(&PKCS_ECDSA_P384_SHA384)?;
    let mut params = CertificateParams::default();
    params.distinguished_name = DistinguishedName::new();
    params.distinguished_name.push(DnType::CommonName, names::common_name(node_name));
    let today = jiff::Timestamp::now().to_zoned(jiff::tz::TimeZone::UTC).date();
    // A day of slack, because the clocks of node and MAAS may differ.
    let start = today.yesterday()?;
    let date = |date: jiff::civil::Date, years: i32| {
        // 29 February does not exist in every year.
        rcgen::date_time_ymd(
            i32::from(date.year()) + years,
            date.month().unsigned_abs(),
            date.day().unsigned_abs().min(28),
        )
    };
    params.not_before = date(start, 0);
    params.not_after = date(start, VALID_YEARS);
    let certificate = params.self_signed(&key)?;
    let text = SecretString::from(format!("{}{}", certificate.pem().replace("\r\n", "\n"), key.serialize_pem()));

    // Mode 600 from the start, and complete before it gets its name; the first of two agents wins.
    let mut file = tempfile::Builder::new().prefix(".client-").tempfile_in(state_dir)?;
    file.write_all(text.expose_secret().as_bytes())?;
    file.as_file().sync_all()?;
    match file.persist_noclobber(path(state_dir)) {
        Ok(_) => {}
        Err(error) if error.error.kind() == io::ErrorKind::AlreadyExists => return Ok(()),
        Err(error) => return Err(error.error.into()),
    }
    fs::File::open(state_dir)?.sync_all()?;
    Ok(())
}

#[cfg(test)]
mod tests {
    use std::os::unix::fs::PermissionsExt;

    use super::*;

    #[test]
    fn a_key_pair_is_made_once_kept_for_root_alone_and_found_again() {
        let folder = tempfile::tempdir().unwrap();
        let state = folder.path().join("state");
        assert!(matches!(load(&state), Lookup::Absent));
        make(&state, "n1").unwrap();
        let Lookup::Found(first) = load(&state) else { panic!("{:?}", load(&state)) };
        assert_eq!(fs::metadata(state.join(FILE)).unwrap().mode() & 0o777, 0o600);
        assert_eq!(fs::metadata(&state).unwrap().mode() & 0o777, 0o700);
        make(&state, "n1").unwrap();
        let Lookup::Found(second) = load(&state) else { panic!() };
        assert_eq!(first.fingerprint().unwrap(), second.fingerprint().unwrap(), "the first one stays");
        assert_eq!(fs::read_dir(&state).unwrap().count(), 1, "nothing is left beside it");
    }

    #[test]
    fn the_agent_knows_its_own_certificates_again_and_no_others() {
        let folder = tempfile::tempdir().unwrap();
        make(folder.path(), "n1").unwrap();
        let Lookup::Found(identity) = load(folder.path()) else { panic!() };
        let own = identity.certificate_pem();
        let other = rcgen::generate_simple_self_signed(["lxd-initializer".to_owned()]).unwrap().cert.pem();
        assert!(is_own(own, "n1"));
        for (pem, node) in [(own, "n10"), (own, "n"), (other.as_str(), "n1"), ("", "n1")] {
            assert!(!is_own(pem, node), "{node}");
        }
    }

    #[test]
    fn a_file_that_is_no_key_pair_is_neither_used_nor_replaced_nor_quoted() {
        let folder = tempfile::tempdir().unwrap();
        let file = folder.path().join(FILE);
        fs::write(&file, "CANARY").unwrap();
        fs::set_permissions(&file, fs::Permissions::from_mode(0o600)).unwrap();
        let Lookup::Unknown(why) = load(folder.path()) else { panic!() };
        assert!(!why.contains("CANARY"), "{why}");
        make(folder.path(), "n1").unwrap();
        assert_eq!(fs::read_to_string(&file).unwrap(), "CANARY");
    }

    #[test]
    fn a_key_that_others_can_read_is_not_used() {
        let folder = tempfile::tempdir().unwrap();
        make(folder.path(), "n1").unwrap();
        fs::set_permissions(folder.path().join(FILE), fs::Permissions::from_mode(0o644)).unwrap();
        let Lookup::Unknown(why) = load(folder.path()) else { panic!() };
        assert!(why.contains("mode 644"), "{why}");
    }
}
