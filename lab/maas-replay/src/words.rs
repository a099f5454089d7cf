//! Texts of errors: compared word by word, with ids, times and whatever the recording omits masked.

use crate::identity::Identities;

/// Whether the simulator's text matches the recorded one.
pub fn same(recorded: &str, simulated: &str, identities: &Identities) -> bool {
    let html = recorded.trim_start().starts_with('<');
    matches(&tokens(recorded, !html), &tokens(simulated, false), identities)
}

#[derive(Debug, PartialEq)]
enum Token<'a> {
    Word(&'a str),
    /// A number in quotes: an id in a list of choices.
    Id(&'a str),
    Sign(char),
    /// `<token-secret>` and the like: the recording omits something.
    Gap,
}

fn is_word(character: char) -> bool {
    character.is_alphanumeric() || matches!(character, '_' | '.' | ':' | '-')
}

fn tokens(text: &str, gaps: bool) -> Vec<Token<'_>> {
    let mut tokens = Vec::new();
    let mut rest = text.trim_end();
    while let Some(first) = rest.chars().next() {
        if gaps && let Some(length) = gap_length(rest) {
            tokens.push(Token::Gap);
            rest = &rest[length..];
        } else if is_word(first) {
            let end = rest.find(|character| !is_word(character)).unwrap_or(rest.len());
            // The full stop or colon after a word belongs to the sentence, not to the id before it.
            let word = rest[..end].trim_end_matches(['.', ':']);
            let word = if word.is_empty() { &rest[..end] } else { word };
            let quoted = tokens.last() == Some(&Token::Sign('\'')) && rest[word.len()..].starts_with('\'');
            let number = word.bytes().all(|byte| byte.is_ascii_digit());
            tokens.push(if quoted && number { Token::Id(word) } else { Token::Word(word) });
            rest = &rest[word.len()..];
        } else {
            tokens.push(Token::Sign(first));
            rest = &rest[first.len_utf8()..];
        }
    }
    tokens
}

/// The length of a gap at the beginning of the text: angle brackets around lower-case letters, digits, hyphens and
/// dots.
fn gap_length(text: &str) -> Option<usize> {
    let inner = text.strip_prefix('<')?;
    let end = inner.find('>')?;
    let plain =
        |character: char| character.is_ascii_lowercase() || character.is_ascii_digit() || "-.".contains(character);
    (end > 0 && inner[..end].chars().all(plain)).then_some(end + 2)
}

fn matches(recorded: &[Token<'_>], simulated: &[Token<'_>], identities: &Identities) -> bool {
    match recorded {
        [] => simulated.is_empty(),
        // A gap may begin in the middle of a word.
        [Token::Word(start), Token::Gap, rest @ ..] if matches!(simulated, [Token::Word(word), ..] if word.starts_with(start) && word != start) => {
            (1..=simulated.len()).any(|skip| matches(rest, &simulated[skip..], identities))
        }
        [Token::Gap, rest @ ..] => (0..=simulated.len()).any(|skip| matches(rest, &simulated[skip..], identities)),
        [first, rest @ ..] => simulated
            .split_first()
            .is_some_and(|(other, others)| same_token(first, other, identities) && matches(rest, others, identities)),
    }
}

fn same_token(recorded: &Token<'_>, simulated: &Token<'_>, identities: &Identities) -> bool {
    match (recorded, simulated) {
        // MAAS lists ids that no answer ever showed, such as those of addresses that it only observed.
        (Token::Id(ours), Token::Id(theirs)) => {
            ours == theirs || identities.same_word(ours, theirs) || !(identities.uses(ours) || identities.made(theirs))
        }
        (Token::Word(ours), Token::Word(theirs)) => {
            ours == theirs
                || identities.same_word(ours, theirs)
                || (is_time(ours) && is_time(theirs))
                || (is_fingerprint(ours) && is_fingerprint(theirs))
        }
        (ours, theirs) => ours == theirs,
    }
}

/// Unix seconds, dates and times of day.
fn is_time(word: &str) -> bool {
    // An escaped equals sign, as in the base string of a signature.
    let word = word.strip_prefix("3D").unwrap_or(word);
    let digits = word.bytes().filter(u8::is_ascii_digit).count();
    let seconds = word.len() >= 10 && digits == word.len();
    let stamp = digits >= 6 && (word.contains(':') || word.matches('-').count() == 2);
    seconds || (stamp && word.bytes().all(|byte| byte.is_ascii_digit() || b"-:.TZ".contains(&byte)))
}

/// Fingerprints, nonces and addresses of Python objects.
fn is_fingerprint(word: &str) -> bool {
    let digits = word.strip_prefix("0x").unwrap_or(word);
    (digits.len() >= 16 || digits.len() < word.len()) && digits.bytes().all(|byte| byte.is_ascii_hexdigit())
}

#[cfg(test)]
mod tests {
    use super::*;
    use crate::identity::Kind;

    fn agree(recorded: &str, simulated: &str) -> bool {
        let mut identities = Identities::default();
        identities.pair(Kind::VmHost, "13", "3");
        identities.pair(Kind::System, "ah4dxd", "m00001");
        same(recorded, simulated, &identities)
    }

    #[test]
    fn words_must_be_the_same_but_ids_only_mean_the_same() {
        assert!(agree("Pod 13: refused", "Pod 3: refused"));
        assert!(!agree("Pod 13: refused", "Pod 4: refused"));
        assert!(!agree("No Zone matches.", "No Pool matches."));
        assert!(agree("No machine with system ID ah4dxd available.", "No machine with system ID m00001 available."));
    }

    #[test]
    fn an_id_in_quotes_that_nobody_has_seen_may_be_any() {
        assert!(agree("should be one of: '36', '13'.", "should be one of: '29', '3'."));
        assert!(!agree("should be one of: '13'.", "should be one of: '29'."));
    }

    #[test]
    fn times_and_fingerprints_are_masked() {
        assert!(agree("given 1794766859 and now 1794767160 is", "given 1800000000 and now 1800000301 is"));
        assert!(agree("object at 0x7fa38b5d2080>", "object at 0x7f0011223344>"));
        assert!(!agree("Ensure this value is at most 2.", "Ensure this value is at most 4."));
    }

    #[test]
    fn a_gap_of_the_recording_stands_for_anything() {
        assert!(agree("base string: &<token-secret>'", "base string: &s3cr3t'"));
        assert!(!agree("base string: &<token-secret>'", "another string: &s3cr3t'"));
        assert!(agree("key%3D<consumer-key>%26nonce", "key%3Dabc%26nonce"));
    }
}
