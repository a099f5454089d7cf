//! OAuth 1.0 with the PLAINTEXT signature, which is what MAAS's own clients send.

use crate::ApiKey;

/// The value of the `Authorization` header. Pure: the caller passes what must differ between attempts.
///
/// MAAS remembers every nonce of a token and refuses a second use, so a retried request needs a new one. A timestamp
/// that is more than 300 s old is refused. The consumer secret of a MAAS key is empty, so the signature is `&secret`,
/// with the ampersand escaped.
pub fn authorization(key: &ApiKey, nonce: &str, unix_seconds: u64) -> String {
    format!(
        "OAuth oauth_version=\"1.0\", oauth_signature_method=\"PLAINTEXT\", oauth_consumer_key=\"{}\", \
         oauth_token=\"{}\", oauth_signature=\"%26{}\", oauth_timestamp=\"{unix_seconds}\", oauth_nonce=\"{nonce}\"",
        key.consumer(),
        key.token(),
        key.secret(),
    )
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn the_header_is_exactly_what_maas_reads() {
        let key = "ck:tk:ts".parse().unwrap();
        assert_eq!(
            authorization(&key, "n0nce", 1_794_767_160),
            "OAuth oauth_version=\"1.0\", oauth_signature_method=\"PLAINTEXT\", oauth_consumer_key=\"ck\", \
             oauth_token=\"tk\", oauth_signature=\"%26ts\", oauth_timestamp=\"1794767160\", oauth_nonce=\"n0nce\""
        );
    }
}
