//! YAML of the user's own files.

use serde::de::DeserializeOwned;
use serde_saphyr::{Error, Options};

/// One document.
pub(crate) fn document<T: DeserializeOwned>(text: &str) -> Result<T, Error> {
    serde_saphyr::from_str_with_options(text, options())
}

/// Several documents, separated by `---`.
pub(crate) fn documents<T: DeserializeOwned>(text: &str) -> Result<Vec<T>, Error> {
    serde_saphyr::from_multiple_with_options(text, options())
}

/// The parser's limits are for files of strangers; a data centre has more nodes. Those for aliases and depth stay.
fn options() -> Options {
    serde_saphyr::options! {
        budget: serde_saphyr::budget! {
            max_events: 100_000_000,
            max_nodes: 50_000_000,
            max_documents: 1_000_000,
            max_total_scalar_bytes: 1 << 30,
        },
    }
}
