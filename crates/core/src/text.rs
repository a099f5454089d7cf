//! Text for people.

/// The longest prefix of a text that fits into this many bytes.
pub fn beginning(text: &str, longest: usize) -> &str {
    let end = (0..=longest.min(text.len())).rev().find(|end| text.is_char_boundary(*end)).unwrap_or(0);
    &text[..end]
}

/// The same; of a text with several lines, whole lines if at least one fits.
pub fn first_lines(text: &str, longest: usize) -> &str {
    let cut = beginning(text, longest);
    if cut.len() == text.len() || text[cut.len()..].starts_with('\n') {
        return cut;
    }
    cut.rsplit_once('\n').map_or(cut, |(whole, _)| whole)
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

    #[test]
    fn no_line_is_cut_in_two_unless_it_is_the_only_one() {
        assert_eq!(first_lines("one\ntwo", 7), "one\ntwo");
        assert_eq!(first_lines("one\ntwo\nthree", 9), "one\ntwo");
        assert_eq!(first_lines("one\ntwo\nthree", 7), "one\ntwo");
        assert_eq!(first_lines("one\ntwo", 6), "one");
        assert_eq!(first_lines("one", 2), "on");
    }
}
