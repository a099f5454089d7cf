//! Sizes of disks and storage pools as people write them.

/// What [`bytes`] understands, for CEL rules. A plain number is GB.
pub const PATTERN: &str = "^[0-9]+([.][0-9]+)?( ?[MGT]i?B?)?$";

/// Bytes in a GB, the unit of a plain number.
pub const GB: u64 = 1_000_000_000;

/// A text that is no size.
#[derive(Clone, Debug, PartialEq, Eq, thiserror::Error)]
#[error("{text:?} is not a size; write a number of GB such as 50, or a number with a unit such as 50GB or 50GiB")]
pub struct NotASize {
    /// The text.
    pub text: String,
}

/// Number of bytes: `50`, `50G` and `50GB` are 50·10⁹, `50Gi` and `50GiB` are 50·2³⁰. Fractions of a byte are dropped; zero
/// is no size.
pub fn bytes(text: &str) -> Result<u64, NotASize> {
    parse(text).filter(|bytes| *bytes > 0).ok_or_else(|| NotASize { text: text.to_owned() })
}

fn parse(text: &str) -> Option<u64> {
    let digits = text.find(|c: char| !c.is_ascii_digit() && c != '.').unwrap_or(text.len());
    let (number, unit) = text.split_at(digits);
    let factor: u64 = match unit.strip_prefix(' ').unwrap_or(unit) {
        "" if digits == text.len() => GB,
        "M" | "MB" => 1_000_000,
        "G" | "GB" => GB,
        "T" | "TB" => 1_000_000_000_000,
        "Mi" | "MiB" => 1 << 20,
        "Gi" | "GiB" => 1 << 30,
        "Ti" | "TiB" => 1 << 40,
        _ => return None,
    };
    let (whole, fraction) = number.split_once('.').unwrap_or((number, "0"));
    if whole.is_empty() || fraction.is_empty() || fraction.contains('.') {
        return None;
    }
    // In integers, since a binary fraction would round. Digits after the 18th are less than a byte.
    let (mut numerator, mut denominator) = (0_u128, 1_u128);
    for digit in fraction.chars().take(18) {
        numerator = numerator * 10 + u128::from(digit.to_digit(10)?);
        denominator *= 10;
    }
    let part = u64::try_from(u128::from(factor) * numerator / denominator).ok()?;
    whole.parse::<u64>().ok()?.checked_mul(factor)?.checked_add(part)
}

#[cfg(test)]
mod tests {
    use proptest::prelude::*;

    use super::*;

    #[test]
    fn a_plain_number_is_gb() {
        assert_eq!(bytes("50"), Ok(50 * GB));
        assert_eq!(bytes("0.5"), Ok(GB / 2));
    }

    #[test]
    fn units_are_understood() {
        for (text, expected) in [
            ("50GB", 50 * GB),
            ("50 GB", 50 * GB),
            ("50GiB", 50 << 30),
            ("1.5TiB", 3 << 39),
            ("20480MiB", 20 << 30),
            ("1TB", 1_000 * GB),
            ("50G", 50 * GB),
            ("50Gi", 50 << 30),
            ("2 Ti", 2 << 40),
            ("512MB", 512_000_000),
        ] {
            assert_eq!(bytes(text), Ok(expected), "{text}");
        }
    }

    #[test]
    fn everything_else_is_refused_with_what_to_write_instead() {
        for text in [
            "",
            "0",
            "0GB",
            "fifty",
            "50 ",
            "50 gb",
            "50kB",
            "50B",
            "50  GB",
            "-1",
            "1e3",
            "1.2.3",
            ".5",
            "5.",
            "99999999999999999999",
        ] {
            assert!(bytes(text).is_err(), "{text}");
        }
        let message = bytes("fifty").unwrap_err().to_string();
        assert_eq!(
            message,
            "\"fifty\" is not a size; write a number of GB such as 50, or a number with a unit such as 50GB or 50GiB"
        );
    }

    fn matching_texts() -> impl Strategy<Value = String> {
        // Shorter than PATTERN allows, so that no number is too large.
        proptest::string::string_regex(&PATTERN.trim_matches(['^', '$']).replace("[0-9]+", "[0-9]{1,6}")).unwrap()
    }

    proptest! {
        #[test]
        fn what_the_pattern_lets_through_is_a_size_unless_it_is_nothing(text in matching_texts()) {
            prop_assert_eq!(bytes(&text).is_ok(), text.contains(|digit: char| ('1'..='9').contains(&digit)), "{}", text);
        }

        #[test]
        fn no_text_makes_it_panic(text in ".*") {
            let _ = bytes(&text);
        }
    }
}
