//! The API key of a MAAS user.

use std::fmt;
use std::str::FromStr;

use secrecy::{ExposeSecret, SecretString};

/// The three parts of a MAAS API key. None of them is ever printed: with a leaked secret, the other two make up the
/// whole key.
#[derive(Clone)]
pub struct ApiKey {
    consumer: SecretString,
    token: SecretString,
    secret: SecretString,
}

/// Why a text is not an API key. Never contains the text itself.
#[derive(Debug, Clone, Copy, PartialEq, Eq, thiserror::Error)]
#[non_exhaustive]
pub enum ApiKeyError {
    /// The text is empty.
    #[error("the MAAS API key is empty; copy it from the MAAS web page of the user, under \"API keys\"")]
    Empty,
    /// Not three parts.
    #[error(
        "a MAAS API key is three parts joined by colons (consumer:token:secret), this one has {0}; copy the whole key"
    )]
    Parts(usize),
    /// A part is empty.
    #[error("a MAAS API key is three parts joined by colons (consumer:token:secret), here part {0} is empty")]
    EmptyPart(usize),
    /// A character that no key contains.
    #[error(
        "part {0} of the MAAS API key holds a character that keys never have (letters and digits only); look for a \
         stray space, quote or line break"
    )]
    Character(usize),
}

impl ApiKey {
    pub(crate) fn consumer(&self) -> &str {
        self.consumer.expose_secret()
    }

    pub(crate) fn token(&self) -> &str {
        self.token.expose_secret()
    }

    pub(crate) fn secret(&self) -> &str {
        self.secret.expose_secret()
    }
}

impl FromStr for ApiKey {
    type Err = ApiKeyError;

    /// Parses `consumer:token:secret`. Surrounding white space is ignored, because keys come from files that end in a
    /// line break.
    fn from_str(text: &str) -> Result<Self, ApiKeyError> {
        let text = text.trim();
        if text.is_empty() {
            return Err(ApiKeyError::Empty);
        }
        let parts: Vec<&str> = text.split(':').collect();
        let [consumer, token, secret] = parts[..] else {
            return Err(ApiKeyError::Parts(parts.len()));
        };
        for (part, number) in [consumer, token, secret].into_iter().zip(1..) {
            if part.is_empty() {
                return Err(ApiKeyError::EmptyPart(number));
            }
            // MAAS generates keys of letters and digits; the few other characters are for less strict stand-ins.
            if !part.bytes().all(|byte| byte.is_ascii_alphanumeric() || matches!(byte, b'-' | b'_' | b'.' | b'~')) {
                return Err(ApiKeyError::Character(number));
            }
        }
        Ok(Self { consumer: consumer.into(), token: token.into(), secret: secret.into() })
    }
}

impl fmt::Debug for ApiKey {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        f.write_str("ApiKey([redacted])")
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn a_key_has_three_parts_and_may_end_in_a_line_break() {
        let key: ApiKey = " c0nsumer:t0ken:s3cret\n".parse().unwrap();
        assert_eq!((key.consumer(), key.token(), key.secret()), ("c0nsumer", "t0ken", "s3cret"));
    }

    #[test]
    fn go26_what_is_wrong_is_said_without_printing_the_key() {
        for (text, expected) in [
            ("", ApiKeyError::Empty),
            ("  \n", ApiKeyError::Empty),
            ("canary", ApiKeyError::Parts(1)),
            ("canary:canary", ApiKeyError::Parts(2)),
            ("canary:canary:canary:canary", ApiKeyError::Parts(4)),
            ("canary::canary", ApiKeyError::EmptyPart(2)),
            ("canary:canary:", ApiKeyError::EmptyPart(3)),
            ("canary:can ary:canary", ApiKeyError::Character(2)),
            ("\"canary:canary:canary\"", ApiKeyError::Character(1)),
        ] {
            let error = text.parse::<ApiKey>().unwrap_err();
            assert_eq!(error, expected, "{text:?}");
            assert!(!format!("{error} {error:?}").contains("canary"), "{error}");
        }
    }

    #[test]
    fn debug_shows_no_part_of_the_key() {
        let key: ApiKey = "canary1:canary2:canary3".parse().unwrap();
        assert_eq!(format!("{key:?}"), "ApiKey([redacted])");
    }
}
