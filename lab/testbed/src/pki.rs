//! Self-signed certificates.

use std::path::Path;

use rcgen::{
    BasicConstraints, CertificateParams, DnType, ExtendedKeyUsagePurpose, IsCa, Issuer, KeyPair, KeyUsagePurpose,
};

use crate::error::{Error, Result, write_file};

pub struct CertificateAuthority {
    certificate: String,
    key: String,
    issuer: Issuer<'static, KeyPair>,
}

impl std::fmt::Debug for CertificateAuthority {
    fn fmt(&self, f: &mut std::fmt::Formatter<'_>) -> std::fmt::Result {
        f.debug_struct("CertificateAuthority").finish_non_exhaustive()
    }
}

impl CertificateAuthority {
    pub fn generate(name: &str) -> Result<Self> {
        let key = KeyPair::generate().map_err(rejected)?;
        let mut params = CertificateParams::default();
        params.distinguished_name.push(DnType::CommonName, name);
        params.is_ca = IsCa::Ca(BasicConstraints::Unconstrained);
        params.key_usages =
            vec![KeyUsagePurpose::KeyCertSign, KeyUsagePurpose::CrlSign, KeyUsagePurpose::DigitalSignature];
        let certificate = params.self_signed(&key).map_err(rejected)?.pem();
        Ok(Self { certificate, key: key.serialize_pem(), issuer: Issuer::new(params, key) })
    }

    /// The certificate, as PEM.
    pub fn certificate_pem(&self) -> &str {
        &self.certificate
    }

    /// The private key, as PEM (PKCS #8).
    pub fn key_pem(&self) -> &str {
        &self.key
    }

    /// Writes `tls.crt` and `tls.key` of a server with the given `names` (host names and addresses) into `dir`.
    pub fn write_serving_certificate(&self, dir: &Path, common_name: &str, names: Vec<String>) -> Result<()> {
        let key = KeyPair::generate().map_err(rejected)?;
        let mut params = CertificateParams::new(names).map_err(rejected)?;
        params.distinguished_name.push(DnType::CommonName, common_name);
        params.extended_key_usages = vec![ExtendedKeyUsagePurpose::ServerAuth];
        params.key_usages = vec![KeyUsagePurpose::DigitalSignature];
        let certificate = params.signed_by(&key, &self.issuer).map_err(rejected)?;
        write_file(&dir.join("tls.crt"), certificate.pem())?;
        write_file(&dir.join("tls.key"), key.serialize_pem())
    }
}

/// Writes `sa.key` and `sa.pub`, which sign and verify ServiceAccount tokens, into `dir`.
pub(crate) fn write_service_account_keys(dir: &Path) -> Result<()> {
    let key = KeyPair::generate().map_err(rejected)?;
    write_file(&dir.join("sa.key"), key.serialize_pem())?;
    write_file(&dir.join("sa.pub"), key.public_key_pem())
}

fn rejected(error: rcgen::Error) -> Error {
    Error::invalid("a self-made certificate", error)
}
