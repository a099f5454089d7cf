//! Certificate fingerprints, as LXD names certificates: the SHA-256 of the DER form, in lower-case hexadecimal.

use std::{fmt, str::FromStr};

use rustls_pki_types::{CertificateDer, pem::PemObject};
use serde::{Deserialize, Serialize};
use sha2::{Digest, Sha256};

use crate::error::{Error, ErrorKind};

/// The SHA-256 fingerprint of a certificate.
#[derive(Clone, Copy, PartialEq, Eq, PartialOrd, Ord, Hash, Serialize, Deserialize)]
#[serde(try_from = "String", into = "String")]
pub struct Fingerprint([u8; 32]);

impl Fingerprint {
    /// The fingerprint of a certificate in DER form.
    pub fn of_der(der: &[u8]) -> Self {
        Self(Sha256::digest(der).into())
    }

    /// The fingerprint of the first certificate in a PEM text.
    pub fn of_pem(pem: &str) -> Result<Self, Error> {
        certificate_der(pem).map(|der| Self::of_der(&der))
    }
}

/// The first certificate of a PEM text, in DER form.
pub fn certificate_der(pem: &str) -> Result<CertificateDer<'static>, Error> {
    CertificateDer::from_pem_slice(pem.as_bytes()).map_err(|_| {
        ErrorKind::BadInput("this is no PEM certificate: it must hold a block \"BEGIN CERTIFICATE\"".into()).into()
    })
}

impl fmt::Display for Fingerprint {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        self.0.iter().try_for_each(|byte| write!(f, "{byte:02x}"))
    }
}

impl fmt::Debug for Fingerprint {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        fmt::Display::fmt(self, f)
    }
}

impl FromStr for Fingerprint {
    type Err = Error;

    fn from_str(text: &str) -> Result<Self, Error> {
        let wrong = || ErrorKind::BadInput("a certificate fingerprint has 64 hexadecimal digits".into());
        if text.len() != 64 || !text.bytes().all(|byte| byte.is_ascii_hexdigit()) {
            return Err(wrong().into());
        }
        let mut bytes = [0; 32];
        for (place, digits) in bytes.iter_mut().zip(text.as_bytes().chunks_exact(2)) {
            let digits = std::str::from_utf8(digits).map_err(|_| wrong())?;
            *place = u8::from_str_radix(digits, 16).map_err(|_| wrong())?;
        }
        Ok(Self(bytes))
    }
}

impl TryFrom<String> for Fingerprint {
    type Error = Error;

    fn try_from(text: String) -> Result<Self, Error> {
        text.parse()
    }
}

impl From<Fingerprint> for String {
    fn from(fingerprint: Fingerprint) -> Self {
        fingerprint.to_string()
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn a_fingerprint_reads_what_it_prints() {
        let printed = Fingerprint::of_der(b"anything").to_string();
        assert_eq!(printed.len(), 64);
        assert_eq!(printed.parse::<Fingerprint>().unwrap().to_string(), printed);
        assert_eq!(printed.to_uppercase().parse::<Fingerprint>().unwrap().to_string(), printed);
    }

    #[test]
    fn anything_but_sixty_four_digits_is_refused() {
        for wrong in ["", "abc", &"g".repeat(64), &"a".repeat(63), &"é".repeat(32)] {
            assert!(wrong.parse::<Fingerprint>().is_err(), "{wrong}");
        }
    }
}
