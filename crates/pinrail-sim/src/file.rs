//! What the crate's own TOML files have in common.

use serde::Deserialize;
use serde::de::DeserializeOwned;

use crate::Error;

#[derive(Deserialize)]
struct Versioned {
    version: Option<i64>,
}

/// Reads a file of that version; the version is looked at first, so that a later format is not called misspelt.
pub(crate) fn parse<T: DeserializeOwned>(what: &'static str, name: &str, text: &str, version: i64) -> Result<T, Error> {
    let wrong = |error: toml::de::Error| Error::File {
        what,
        name: name.to_owned(),
        line: error.span().map(|span| 1 + text.as_bytes().iter().take(span.start).filter(|byte| **byte == b'\n').count()),
        message: error.message().split_whitespace().collect::<Vec<_>>().join(" "),
    };
    let Versioned { version: found } = toml::from_str(text).map_err(wrong)?;
    if found != Some(version) {
        let message = format!("this release reads version {version}: the file must say `version = {version}`");
        return Err(Error::File { what, name: name.to_owned(), line: None, message });
    }
    toml::from_str(text).map_err(wrong)
}
