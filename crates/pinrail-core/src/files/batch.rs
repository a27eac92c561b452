//! A [`BatchSpec`] as a JSON file: [`BatchSpec::from_json`] and [`BatchSpec::to_json`].
//!
//! Sizes are bytes; only `len` is required.
//!
//! ```
//! use pinrail_core::batch::BatchSpec;
//! let batch = BatchSpec::from_json(r#"
//!     {"buffers": [{"name": "layer0.k", "len": 409993216, "memory": "gpu:0000:53:00.0", "page_size": 2097152,
//!                   "allocation": "kv", "addr": "0x7f0000000000", "unit": 3145728, "access": ["remote-read"]},
//!                  {"len": 4096}],
//!      "rail_limits": {"*": {"max_mr_size": 2147483648, "max_mrs": 16384, "max_pages": 23068672}}}
//! "#)?;
//! assert_eq!(batch.buffers[1].name, "buffer1");
//! assert_eq!(BatchSpec::from_json(&batch.to_json())?, batch);
//! # Ok::<(), pinrail_core::files::batch::BatchFileError>(())
//! ```
//!
//! | key of a buffer | what | left out |
//! |---|---|---|
//! | `name` | unique in the batch | `buffer` and its position |
//! | `len` | bytes | an error |
//! | `memory` | `host`, `host:NODE` or `gpu:PCI` | `host` |
//! | `page_size` | bytes of its pages, a power of two | 4096 |
//! | `allocation` | a name; buffers with the same lie in one allocation | one of its own |
//! | `addr` | `0x…`, as text: JSON numbers lose bits | end to end with the others of its allocation, in file order |
//! | `unit` | bytes that no seam may divide | none |
//! | `access` | list of `local-write`, `remote-read`, `remote-write` | all three |
//!
//! `rail_limits` are by rail name, those of `*` for every rail that does not set the same limit itself: `max_mr_size`,
//! `max_mrs`, `max_pages`, `max_pages_remote_write` and `max_bytes`, in whole numbers above zero; see
//! [`RailLimits`]. They only ever narrow: of what a rail says of itself and what is written here the
//! smaller holds, because the rail refuses what exceeds its own word whatever a file says.
//!
//! A misspelt key is an error. A byte order mark before the text is skipped.

use std::collections::BTreeMap;
use std::fmt;
use std::marker::PhantomData;

use serde::de::value::MapAccessDeserializer;
use serde::de::{Error as _, MapAccess, Visitor};
use serde::{Deserialize, Deserializer, Serialize, Serializer};

use crate::batch::{BatchSpec, BufferSpec, PAGE_SIZE_DEFAULT};
use crate::{Access, Diagnosis, ErrorKind, NodeId, Place, RailLimits};

/// A text that is no batch.
#[derive(Clone, Debug, PartialEq, Eq, thiserror::Error)]
#[non_exhaustive]
pub enum BatchFileError {
    /// It is no JSON, or a key or value is not one of the format's.
    #[error("batch file: {message}")]
    Syntax {
        /// What is wrong, with line and column.
        message: String,
    },
    /// A value that means nothing.
    #[error("batch file: {buffer:?}: {what}")]
    Value {
        /// The buffer.
        buffer: String,
        /// What is wrong.
        what: String,
    },
    /// A limit of zero.
    #[error("batch file: rail_limits of {rail:?}: {limit} is zero; leave it out for no limit")]
    ZeroLimit {
        /// The rail.
        rail: String,
        /// The limit.
        limit: &'static str,
    },
}

impl BatchFileError {
    /// The error as a user meets it.
    #[must_use]
    pub fn diagnosis(&self) -> Diagnosis {
        let diagnosis = Diagnosis::new(ErrorKind::Batch, self.to_string());
        match self {
            BatchFileError::Syntax { .. } => {
                diagnosis.hint("a batch is {\"buffers\":[{\"len\":BYTES},…]}, or a shape such as kimi-k3/8 or 48x391MiB; sizes are whole bytes below 2^64")
            }
            BatchFileError::Value { buffer, .. } => diagnosis.buffer(buffer),
            BatchFileError::ZeroLimit { rail, .. } => diagnosis.rail(rail),
        }
    }
}

#[derive(Serialize, Deserialize)]
#[serde(deny_unknown_fields)]
struct File {
    buffers: Vec<Object<RawBuffer>>,
    #[serde(default, skip_serializing_if = "ByRail::is_empty")]
    rail_limits: ByRail,
}

/// A JSON object and nothing else: what serde derives would also take a list of the values in the order of the fields.
struct Object<T>(T);

impl<T: Serialize> Serialize for Object<T> {
    fn serialize<S: Serializer>(&self, serializer: S) -> Result<S::Ok, S::Error> {
        self.0.serialize(serializer)
    }
}

impl<'de, T: Deserialize<'de>> Deserialize<'de> for Object<T> {
    fn deserialize<D: Deserializer<'de>>(deserializer: D) -> Result<Object<T>, D::Error> {
        struct Fields<T>(PhantomData<T>);
        impl<'de, T: Deserialize<'de>> Visitor<'de> for Fields<T> {
            type Value = Object<T>;
            fn expecting(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
                f.write_str("an object")
            }
            fn visit_map<A: MapAccess<'de>>(self, map: A) -> Result<Object<T>, A::Error> {
                T::deserialize(MapAccessDeserializer::new(map)).map(Object)
            }
        }
        deserializer.deserialize_map(Fields(PhantomData))
    }
}

/// Limits by rail; a rail that comes twice is an error, not the last one's word.
#[derive(Default, Serialize)]
#[serde(transparent)]
struct ByRail(BTreeMap<String, Object<RawLimits>>);

impl ByRail {
    fn is_empty(&self) -> bool {
        self.0.is_empty()
    }
}

impl<'de> Deserialize<'de> for ByRail {
    fn deserialize<D: Deserializer<'de>>(deserializer: D) -> Result<ByRail, D::Error> {
        struct Rails;
        impl<'de> Visitor<'de> for Rails {
            type Value = ByRail;
            fn expecting(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
                f.write_str("an object with a key for each rail, or *")
            }
            fn visit_map<A: MapAccess<'de>>(self, mut map: A) -> Result<ByRail, A::Error> {
                let mut by_rail = BTreeMap::new();
                while let Some((rail, limits)) = map.next_entry::<String, Object<RawLimits>>()? {
                    if by_rail.contains_key(&rail) {
                        return Err(A::Error::custom(format!("rail_limits of {rail:?} come twice")));
                    }
                    by_rail.insert(rail, limits);
                }
                Ok(ByRail(by_rail))
            }
        }
        deserializer.deserialize_map(Rails)
    }
}

#[derive(Serialize, Deserialize)]
#[serde(deny_unknown_fields)]
struct RawBuffer {
    #[serde(skip_serializing_if = "Option::is_none")]
    name: Option<String>,
    len: u64,
    #[serde(skip_serializing_if = "Option::is_none")]
    memory: Option<String>,
    #[serde(skip_serializing_if = "Option::is_none")]
    page_size: Option<u64>,
    #[serde(skip_serializing_if = "Option::is_none")]
    allocation: Option<String>,
    #[serde(skip_serializing_if = "Option::is_none")]
    addr: Option<String>,
    #[serde(skip_serializing_if = "Option::is_none")]
    unit: Option<u64>,
    #[serde(skip_serializing_if = "Option::is_none")]
    access: Option<Vec<String>>,
}

#[derive(Serialize, Deserialize)]
#[serde(deny_unknown_fields)]
struct RawLimits {
    #[serde(skip_serializing_if = "Option::is_none")]
    max_mr_size: Option<u64>,
    #[serde(skip_serializing_if = "Option::is_none")]
    max_mrs: Option<u64>,
    #[serde(skip_serializing_if = "Option::is_none")]
    max_pages: Option<u64>,
    #[serde(skip_serializing_if = "Option::is_none")]
    max_pages_remote_write: Option<u64>,
    #[serde(skip_serializing_if = "Option::is_none")]
    max_bytes: Option<u64>,
}

impl BatchSpec {
    /// Reads a batch file.
    ///
    /// # Errors
    /// [`BatchFileError`]; what is wrong with a buffer as such is [`BatchSpec::layout`]'s to say.
    pub fn from_json(text: &str) -> Result<BatchSpec, BatchFileError> {
        let text = text.strip_prefix('\u{feff}').unwrap_or(text);
        let Object(file): Object<File> =
            serde_json::from_str(text).map_err(|error| BatchFileError::Syntax { message: error.to_string() })?;
        let buffers = file.buffers.into_iter().enumerate().map(|(at, Object(raw))| raw.read(at)).collect::<Result<_, _>>()?;
        let limits = file.rail_limits.0.into_iter().map(|(rail, Object(raw))| raw.read(&rail).map(|limits| (rail, limits)));
        Ok(BatchSpec { buffers, rail_limits: limits.collect::<Result<_, _>>()? })
    }

    /// Writes a batch file: what is a default is left out.
    #[must_use]
    pub fn to_json(&self) -> String {
        serde_json::to_string(&File::of(self)).expect("plain data has a text")
    }

    /// The batch with every default written, as part of a larger document.
    #[must_use]
    pub fn to_json_value(&self) -> serde_json::Value {
        let mut file = File::of(self);
        for (Object(raw), spec) in file.buffers.iter_mut().zip(&self.buffers) {
            raw.name = Some(spec.name.clone());
            raw.memory = Some(spec.place.to_string());
            raw.page_size = Some(spec.page_size);
            raw.access = Some(spec.access.names().map(str::to_owned).collect());
        }
        serde_json::to_value(file).expect("plain data has a text")
    }
}

impl File {
    fn of(spec: &BatchSpec) -> File {
        let buffers = spec.buffers.iter().enumerate().map(|(at, buffer)| Object(RawBuffer::of(at, buffer))).collect();
        let limits = spec.rail_limits.iter().map(|(rail, &limits)| (rail.clone(), Object(RawLimits::of(limits))));
        File { buffers, rail_limits: ByRail(limits.collect()) }
    }
}

impl RawBuffer {
    fn read(self, at: usize) -> Result<BufferSpec, BatchFileError> {
        let name = self.name.unwrap_or_else(|| BufferSpec::default_name(at));
        let wrong = |what: String| BatchFileError::Value { buffer: name.clone(), what };
        let place = match self.memory.as_deref() {
            None => Place::Host,
            Some(text) => place(text)
                .ok_or_else(|| wrong(format!("memory {text:?} is none of host, host:NODE, gpu:PCI (gpu:0000:53:00.0)")))?,
        };
        let addr = match self.addr.as_deref() {
            None => None,
            Some(text) => Some(
                address(text)
                    .ok_or_else(|| wrong(format!("addr {text:?} is no address: 0x and at most 16 hexadecimal digits")))?,
            ),
        };
        let mut access = if self.access.is_some() { Access::empty() } else { Access::FULL };
        for flag in self.access.unwrap_or_default() {
            access |= Access::by_name(&flag)
                .ok_or_else(|| wrong(format!("access {flag:?} is none of local-write, remote-read, remote-write")))?;
        }
        let page_size = self.page_size.unwrap_or(PAGE_SIZE_DEFAULT);
        Ok(BufferSpec { len: self.len, place, page_size, allocation: self.allocation, addr, unit: self.unit, access, name })
    }

    fn of(at: usize, spec: &BufferSpec) -> RawBuffer {
        let unless = |default: bool| if default { None } else { Some(()) };
        RawBuffer {
            name: unless(spec.name == BufferSpec::default_name(at)).map(|()| spec.name.clone()),
            len: spec.len,
            memory: unless(spec.place == Place::Host).map(|()| spec.place.to_string()),
            page_size: unless(spec.page_size == PAGE_SIZE_DEFAULT).map(|()| spec.page_size),
            allocation: spec.allocation.clone(),
            addr: spec.addr.map(|addr| format!("{addr:#x}")),
            unit: spec.unit,
            access: unless(spec.access == Access::FULL).map(|()| spec.access.names().map(str::to_owned).collect()),
        }
    }
}

impl RawLimits {
    fn read(self, rail: &str) -> Result<RailLimits, BatchFileError> {
        let RawLimits { max_mr_size, max_mrs, max_pages, max_pages_remote_write, max_bytes } = self;
        let limits = RailLimits { max_mr_size, max_mrs, max_pages, max_pages_remote_write, max_bytes };
        match limits.zero() {
            Some(limit) => Err(BatchFileError::ZeroLimit { rail: rail.to_owned(), limit }),
            None => Ok(limits),
        }
    }

    fn of(limits: RailLimits) -> RawLimits {
        let RailLimits { max_mr_size, max_mrs, max_pages, max_pages_remote_write, max_bytes } = limits;
        RawLimits { max_mr_size, max_mrs, max_pages, max_pages_remote_write, max_bytes }
    }
}

fn place(text: &str) -> Option<Place> {
    match text.split_once(':') {
        None => (text == "host").then_some(Place::Host),
        Some(("host", "mixed")) => Some(Place::HostMixed),
        Some(("host", node)) if node.bytes().all(|b| b.is_ascii_digit()) => Some(Place::HostNode(NodeId(node.parse().ok()?))),
        Some(("gpu", pci)) => Some(Place::Gpu(pci.parse().ok()?)),
        Some(_) => None,
    }
}

fn address(text: &str) -> Option<u64> {
    let digits = text.strip_prefix("0x")?;
    let plain = !digits.is_empty() && digits.bytes().all(|b| b.is_ascii_hexdigit());
    if plain { u64::from_str_radix(digits, 16).ok() } else { None }
}

#[cfg(test)]
mod tests {
    use super::*;
    use proptest::prelude::*;

    fn kind_and_text(json: &str) -> (ErrorKind, String) {
        let diagnosis = BatchSpec::from_json(json).unwrap_err().diagnosis();
        (diagnosis.kind, diagnosis.message)
    }

    #[test]
    fn what_is_left_out_has_its_default() {
        let batch =
            BatchSpec::from_json(r#"{"buffers":[{"len":5},{"name":"b","len":6,"memory":"host:3","access":[]}]}"#).unwrap();
        assert_eq!(batch.buffers[0], BufferSpec::new("buffer0", 5));
        assert_eq!((batch.buffers[1].place, batch.buffers[1].access), (Place::HostNode(NodeId(3)), Access::empty()));
        assert_eq!(batch.to_json_value()["buffers"][0]["page_size"], 4096);
    }

    #[test]
    fn malformed_files_name_what_is_wrong() {
        for (json, part) in [
            ("", "EOF"),
            ("#!/usr/bin/env python3", "line 1"),
            ("[]", "line 1"),
            ("{}", "buffers"),
            (r#"{"buffers":[{}]}"#, "len"),
            (r#"{"buffers":[{"len":18446744073709551616}]}"#, "e+19"),
            (r#"{"buffers":[{"len":-1}]}"#, "-1"),
            (r#"{"buffers":[{"len":1.5}]}"#, "1.5"),
            (r#"{"buffers":[{"len":"4096"}]}"#, "4096"),
            (r#"{"buffers":[{"len":1,"lenght":2}]}"#, "lenght"),
            (r#"{"buffers":[{"len":1,"memory":"gpu:1"}]}"#, "gpu:1"),
            (r#"{"buffers":[{"len":1,"memory":"host:-1"}]}"#, "host:-1"),
            (r#"{"buffers":[{"len":1,"addr":"1000"}]}"#, "1000"),
            (r#"{"buffers":[{"len":1,"addr":"0x10000000000000000"}]}"#, "0x1"),
            (r#"{"buffers":[{"len":1,"access":["write"]}]}"#, "write"),
            (r#"{"buffers":[],"rail_limits":{"*":{"max_mrs":0}}}"#, "max_mrs"),
            (r#"{"buffers":[],"rail_limits":{"*":{"max_bytes":0}}}"#, "max_bytes is zero"),
            (r#"{"buffers":[],"rail_limits":{"*":{"max_mr_size":"4294967296"}}}"#, "4294967296"),
            (r#"{"buffers":[],"rail_limits":{"*":{"max_mr_size":"4G"}}}"#, "4G"),
            (r#"{"buffers":[],"rail_limits":{"*":{"max_mr_size":-1}}}"#, "-1"),
            (r#"{"buffers":[],"rail_limits":{"*":{"max_mr_size":18446744073709551616}}}"#, "e+19"),
            (r#"{"buffers":[]} x"#, "trailing"),
            (r#"[[["n",5,"host",4096,null,null,null,null]],{}]"#, "an object"),
            (r#"{"buffers":[["n",5]]}"#, "an object"),
            (r#"{"buffers":[],"rail_limits":{"*":[]}}"#, "an object"),
            (r#"{"buffers":[],"rail_limits":{"*":{"max_mrs":1},"*":{"max_mrs":2}}}"#, "twice"),
        ] {
            let (kind, text) = kind_and_text(json);
            assert_eq!(kind, ErrorKind::Batch, "{json}");
            assert!(text.contains(part), "{json}: {text}");
        }
    }

    #[test]
    fn a_deep_nesting_is_an_error_and_no_overflow() {
        assert_eq!(kind_and_text(&"[".repeat(100_000)).0, ErrorKind::Batch);
    }

    proptest! {
        #[test]
        fn what_is_written_reads_back(lens in prop::collection::vec((any::<u64>(), prop::option::of(any::<u64>()), 0u8..8, prop::option::of("[a-z]{1,3}")), 0..8)) {
            let batch = BatchSpec::of(lens.into_iter().enumerate().map(|(at, (len, addr, access, allocation))| BufferSpec {
                addr,
                allocation,
                access: Access::from_bits_truncate(access),
                ..BufferSpec::new(BufferSpec::default_name(at), len)
            }));
            prop_assert_eq!(BatchSpec::from_json(&batch.to_json()).unwrap(), batch.clone());
            prop_assert_eq!(BatchSpec::from_json(&batch.to_json_value().to_string()).unwrap(), batch);
        }

        #[test]
        fn no_text_panics(text in "\\PC{0,60}") {
            drop(BatchSpec::from_json(&text));
        }
    }
}
