//! What a JSON text needs in memory once it is decoded: up to a hundred times its length.

/// Upper bounds of what a value and an object need, in bytes: a text of one letter is a value with an allocation of its
/// own, a map allocates eleven entries for its first one, and a machine is larger than that.
const VALUE: usize = 48;
const OBJECT: usize = 1536;

/// Adds up what the parts of a JSON text need, by the commas and brackets outside of its strings. It does not decode, and
/// any bytes will do.
#[derive(Debug, Clone, Copy, Default)]
pub struct JsonWeight {
    bytes: usize,
    in_string: bool,
    escaped: bool,
}

impl JsonWeight {
    /// Of a whole text, in bytes.
    pub fn of(json: &[u8]) -> usize {
        Self::default().add(json)
    }

    /// Adds the next part of the text. Returns what is needed so far, in bytes.
    pub fn add(&mut self, part: &[u8]) -> usize {
        for byte in part {
            match byte {
                _ if self.escaped => self.escaped = false,
                b'\\' => self.escaped = self.in_string,
                b'"' => self.in_string = !self.in_string,
                _ if self.in_string => {}
                b'{' => self.bytes = self.bytes.saturating_add(OBJECT),
                b',' | b'[' => self.bytes = self.bytes.saturating_add(VALUE),
                _ => {}
            }
        }
        self.bytes
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn commas_and_brackets_count_unless_they_are_text() {
        for (json, values, objects) in [
            ("[0,0,0]", 3, 0),
            (r#"[{"a": "[,{"}, {"b": "\"{,"}, "\\"]"#, 3, 2),
            ("  \n 7", 0, 0),
            (r#"{"a": {}, "b": [[]]}"#, 3, 2),
        ] {
            let expected = values * VALUE + objects * OBJECT;
            assert_eq!(JsonWeight::of(json.as_bytes()), expected, "{json}");
            let mut in_parts = JsonWeight::default();
            assert_eq!(json.bytes().map(|byte| in_parts.add(&[byte])).last(), Some(expected), "{json}");
        }
    }

    #[test]
    fn an_object_is_no_larger_than_it_is_counted() {
        assert!(size_of::<crate::Machine>() <= OBJECT, "{}", size_of::<crate::Machine>());
    }
}
