//! Text for people.

/// The longest prefix of a text that fits into this many bytes.
pub fn beginning(text: &str, longest: usize) -> &str {
    let end = (0..=longest.min(text.len())).rev().find(|end| text.is_char_boundary(*end)).unwrap_or(0);
    &text[..end]
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn no_letter_is_cut_in_two() {
        assert_eq!(beginning("grün", 10), "grün");
        assert_eq!(beginning("grün", 4), "grü");
        assert_eq!(beginning("grün", 3), "gr");
        assert_eq!(beginning("", 3), "");
    }
}
