//! A [`Descriptor`] in any of serde's formats, and as JSON: [`Descriptor::from_json`] and [`Descriptor::to_json`].
//!
//! ```
//! use pinrail_core::descriptor::Descriptor;
//! let text = r#"{"version":1,"rails":["rdmap0","rdmap1"],
//!     "ranges":[{"addr":"0x7f0000000000","len":4096,"keys":["0000a1b2",null]}]}"#;
//! let descriptor = Descriptor::from_json(text)?;
//! assert_eq!(Descriptor::from_json(&descriptor.to_json())?, descriptor);
//! # Ok::<(), pinrail_core::files::descriptor::DescriptorFileError>(())
//! ```
//!
//! | key | what | left out |
//! |---|---|---|
//! | `version` | 1 | an error |
//! | `rails` | the names | an error |
//! | `ranges` | list of those below | an error |
//! | `addr` | `0x…`, as text: JSON numbers lose bits | an error |
//! | `len` | bytes | an error |
//! | `at` | the first byte, counted from the registration's first | 0 |
//! | `keys` | for each rail the key in hexadecimal, or `null` where there is none | an error |
//!
//! What comes from a peer is not trusted: a text may have [`TEXT_BYTES_MAX`] bytes, what it says is checked as
//! [`Descriptor::new`] checks it, an unknown key is an error, and no text takes more memory than a few times its length.

use std::fmt::Write as _;

use serde::de::Error as _;
use serde::{Deserialize, Deserializer, Serialize, Serializer};

use crate::Extent;
use crate::descriptor::{Descriptor, DescriptorError, RemoteKey, RemoteRange};

/// Most bytes of a text.
pub const TEXT_BYTES_MAX: usize = 256 << 20;

/// The version that is written, and the only one that is read.
pub const VERSION: u32 = 1;

/// A text that is no descriptor.
#[derive(Clone, Debug, PartialEq, Eq, thiserror::Error)]
#[non_exhaustive]
pub enum DescriptorFileError {
    /// It is too long.
    #[error("the descriptor has {have} bytes and may have {TEXT_BYTES_MAX}")]
    TooLong {
        /// Its bytes.
        have: usize,
    },
    /// It is no JSON, or what it says is no descriptor.
    #[error("descriptor: {message}")]
    Syntax {
        /// What is wrong, with line and column.
        message: String,
    },
}

#[derive(Serialize, Deserialize)]
#[serde(deny_unknown_fields)]
struct Document {
    version: u32,
    rails: Vec<String>,
    ranges: Vec<Range>,
}

#[derive(Serialize, Deserialize)]
#[serde(deny_unknown_fields)]
struct Range {
    addr: String,
    len: u64,
    #[serde(default)]
    at: u64,
    keys: Vec<Option<String>>,
}

/// What is wrong with a document.
#[derive(Debug, thiserror::Error)]
enum Wrong {
    #[error("version {0} is not known: this reads version {VERSION}, so both sides need the same release")]
    Version(u32),
    #[error("addr {0:?} is no 0x… of at most 16 digits")]
    Addr(String),
    #[error("a key has {0} digits: two hexadecimal ones (0-9, a-f) make a byte")]
    Key(usize),
    #[error(transparent)]
    Extent(#[from] crate::ExtentError),
    #[error(transparent)]
    Descriptor(#[from] DescriptorError),
}

impl Descriptor {
    /// Reads a descriptor.
    ///
    /// # Errors
    /// [`DescriptorFileError`].
    pub fn from_json(text: &str) -> Result<Descriptor, DescriptorFileError> {
        if text.len() > TEXT_BYTES_MAX {
            return Err(DescriptorFileError::TooLong { have: text.len() });
        }
        serde_json::from_str(text).map_err(|error| DescriptorFileError::Syntax { message: error.to_string() })
    }

    /// Writes it, keys included: the text is for the peer alone.
    #[must_use]
    pub fn to_json(&self) -> String {
        serde_json::to_string(self).expect("plain data has a text")
    }
}

impl Serialize for Descriptor {
    fn serialize<S: Serializer>(&self, serializer: S) -> Result<S::Ok, S::Error> {
        let range = |range: &RemoteRange| Range {
            addr: format!("{:#x}", range.extent.start()),
            len: range.extent.len(),
            at: range.at,
            keys: range.keys.iter().map(|key| key.as_deref().map(hexadecimal)).collect(),
        };
        let ranges = self.ranges().iter().map(range).collect();
        Document { version: VERSION, rails: self.rails().to_vec(), ranges }.serialize(serializer)
    }
}

impl<'de> Deserialize<'de> for Descriptor {
    fn deserialize<D: Deserializer<'de>>(deserializer: D) -> Result<Descriptor, D::Error> {
        Document::deserialize(deserializer)?.read().map_err(D::Error::custom)
    }
}

impl Document {
    fn read(self) -> Result<Descriptor, Wrong> {
        if self.version != VERSION {
            return Err(Wrong::Version(self.version));
        }
        let ranges = self.ranges.into_iter().map(Range::read).collect::<Result<_, _>>()?;
        Ok(Descriptor::new(self.rails, ranges)?)
    }
}

impl Range {
    fn read(self) -> Result<RemoteRange, Wrong> {
        let digits = self.addr.strip_prefix("0x").filter(|digits| digits.bytes().all(|digit| digit.is_ascii_hexdigit()));
        let start = digits.and_then(|digits| u64::from_str_radix(digits, 16).ok()).ok_or(Wrong::Addr(self.addr))?;
        let key = |key: Option<String>| key.map(|digits| bytes(&digits).ok_or(Wrong::Key(digits.len()))).transpose();
        let keys = self.keys.into_iter().map(key).collect::<Result<_, _>>()?;
        Ok(RemoteRange { extent: Extent::new(start, self.len)?, at: self.at, keys })
    }
}

fn hexadecimal(key: &[u8]) -> String {
    key.iter().fold(String::with_capacity(2 * key.len()), |mut text, byte| {
        write!(text, "{byte:02x}").expect("a string takes all");
        text
    })
}

fn bytes(digits: &str) -> Option<RemoteKey> {
    let digit = |digit: u8| match digit {
        b'0'..=b'9' => Some(digit - b'0'),
        b'a'..=b'f' => Some(digit - b'a' + 10),
        _ => None,
    };
    let (pairs, rest) = digits.as_bytes().as_chunks::<2>();
    let bytes = pairs.iter().map(|&[high, low]| Some(digit(high)? << 4 | digit(low)?)).collect::<Option<_>>();
    bytes.filter(|_| rest.is_empty())
}

#[cfg(test)]
mod tests {
    use proptest::prelude::*;

    use super::*;

    fn descriptors() -> impl Strategy<Value = Descriptor> {
        let keys = prop::collection::vec(prop::option::of(prop::collection::vec(any::<u8>(), 0..40)), 5);
        let gap = prop_oneof![Just(0u64), 1..100u64, 1..1u64 << 40];
        let range = (gap, 1..1u64 << 40, any::<u64>(), keys);
        (0..=5usize, prop::collection::vec(range, 0..20)).prop_map(|(rails, drawn)| {
            let (mut ranges, mut end) = (Vec::new(), 0);
            for (gap, len, at, keys) in drawn {
                let extent = Extent::new(end + gap, len).unwrap();
                end = extent.end();
                let keys = keys.into_iter().take(rails).map(|key| key.map(RemoteKey::from_vec)).collect();
                ranges.push(RemoteRange { extent, at: at % (extent.start() + 1), keys });
            }
            Descriptor::new((0..rails).map(|at| format!("rail \"{at}\"\u{fc}")).collect(), ranges).unwrap()
        })
    }

    proptest! {
        #[test]
        fn what_is_written_is_read_back(descriptor in descriptors()) {
            prop_assert_eq!(Descriptor::from_json(&descriptor.to_json()).unwrap(), descriptor);
        }
    }

    #[test]
    fn what_a_peer_may_not_say_is_told() {
        let wrong = |text: &str| Descriptor::from_json(text).unwrap_err().to_string();
        let with = |range: &str| format!(r#"{{"version":1,"rails":["a"],"ranges":[{range}]}}"#);
        for (text, part) in [
            (r#"{"version":2,"rails":[],"ranges":[]}"#.to_owned(), "version 2 is not known"),
            (r#"{"rails":[],"ranges":[]}"#.to_owned(), "missing field `version`"),
            (r#"{"version":1,"rails":[],"ranges":[],"more":1}"#.to_owned(), "unknown field `more`"),
            (with(r#"{"addr":"16","len":1,"keys":[null]}"#), "is no 0x"),
            (with(r#"{"addr":"0x+1","len":1,"keys":[null]}"#), "is no 0x"),
            (with(r#"{"addr":"0x10000000000000000","len":1,"keys":[null]}"#), "is no 0x"),
            (with(r#"{"addr":"0x1","len":0,"keys":[null]}"#), "zero"),
            (with(r#"{"addr":"0xffffffffffffffff","len":1,"keys":[null]}"#), "0xffffffffffffffff"),
            (with(r#"{"addr":"0x1","len":1,"keys":["abc"]}"#), "3 digits"),
            (with(r#"{"addr":"0x1","len":1,"keys":["AB"]}"#), "2 digits"),
            (with(r#"{"addr":"0x1","len":1,"keys":[]}"#), "0 keys for 1 rails"),
            (with(r#"{"addr":"0x1","len":1,"at":2,"keys":[null]}"#), "2 bytes after"),
            (with(&format!(r#"{{"addr":"0x1","len":1,"keys":["{}"]}}"#, "00".repeat(255))), "255 bytes in a remote key"),
        ] {
            assert!(wrong(&text).contains(part), "{text}: {}", wrong(&text));
        }
        let long = " ".repeat(TEXT_BYTES_MAX + 1);
        assert_eq!(Descriptor::from_json(&long), Err(DescriptorFileError::TooLong { have: TEXT_BYTES_MAX + 1 }));
    }

    #[test]
    fn no_key_reaches_an_error() {
        let text = r#"{"version":1,"rails":["a"],"ranges":[{"addr":"0x1","len":1,"keys":["deadbeefx"]}]}"#;
        let error = Descriptor::from_json(text).unwrap_err();
        assert!(!format!("{error} {error:?}").contains("dead"), "{error}");
    }
}
