//! Keeps the secrets of a request out of all messages about it.

use secrecy::{ExposeSecret, SecretString};

use crate::ApiKey;

/// The texts that no message may contain. Servers and proxies often repeat what they were sent.
#[derive(Default)]
pub(crate) struct Redaction {
    words: Vec<SecretString>,
}

const REPLACEMENT: &str = "[redacted]";

/// Parts of real keys have 18 or more characters. Redacting a stand-in's key of a few letters would only garble every
/// message.
const SHORTEST_KEY_PART: usize = 6;

impl Redaction {
    pub(crate) fn of_key(&mut self, key: &ApiKey) {
        for part in
            [key.secret(), key.token(), key.consumer()].into_iter().filter(|part| part.len() >= SHORTEST_KEY_PART)
        {
            self.word(part);
        }
    }

    /// Hides a secret as it is, form-encoded, and each longer line of it: a private key is often repeated in part.
    pub(crate) fn secret(&mut self, secret: &str) {
        self.word(secret);
        self.word(secret.trim());
        self.word(&form_urlencoded::byte_serialize(secret.as_bytes()).collect::<String>());
        if secret.trim().contains('\n') {
            for line in secret.lines().map(str::trim).filter(|line| line.len() >= 16) {
                self.word(line);
            }
        }
    }

    fn word(&mut self, word: &str) {
        if !word.is_empty() && !self.words.iter().any(|known| known.expose_secret() == word) {
            self.words.push(word.into());
        }
    }

    /// The text without secrets, at most `limit` bytes long.
    pub(crate) fn text(&self, text: &str, limit: usize) -> String {
        let mut text = text.to_owned();
        // Longest first, so that a part never breaks up the whole that contains it.
        let mut words: Vec<&str> = self.words.iter().map(ExposeSecret::expose_secret).collect();
        words.sort_by_key(|word| std::cmp::Reverse(word.len()));
        for word in words {
            if text.contains(word) {
                text = text.replace(word, REPLACEMENT);
            }
        }
        // Truncate last: a truncated secret would no longer be found.
        if text.len() > limit {
            let end = (0..=limit).rev().find(|&at| text.is_char_boundary(at)).unwrap_or(0);
            text.truncate(end);
            text.push('…');
        }
        text
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn a_secret_is_hidden_as_it_is_and_as_it_looks_in_a_form() {
        let mut redaction = Redaction::default();
        redaction.secret("pass word&more");
        assert_eq!(redaction.text("x pass word&more y pass+word%26more z", 100), "x [redacted] y [redacted] z");
    }

    #[test]
    fn a_line_of_a_private_key_is_hidden_too() {
        let mut redaction = Redaction::default();
        redaction.secret("-----BEGIN KEY-----\nAAAABBBBCCCCDDDDEEEE\n-----END KEY-----\n");
        assert_eq!(redaction.text("bad line AAAABBBBCCCCDDDDEEEE", 100), "bad line [redacted]");
    }

    #[test]
    fn a_text_is_cut_between_characters_and_after_hiding() {
        let mut redaction = Redaction::default();
        redaction.secret("canary");
        assert_eq!(redaction.text("ééécanary", 5), "éé…");
        assert_eq!(redaction.text("abcanary", 4), "ab[r…");
    }
}
