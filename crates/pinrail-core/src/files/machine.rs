//! A [`Machine`] as a TOML file: [`Machine::from_toml`] and [`Machine::to_toml`].
//!
//! Made to be written by hand: what is ordinary or not known is left out. Two NICs and a GPU behind one switch:
//!
//! ```
//! let machine = pinrail_core::Machine::from_toml(r#"
//!     version = 1
//!
//!     [[rail]]
//!     name = "mlx5_0"
//!     pci = "4f:00.0"
//!     node = 0
//!     bridges = ["pci0", "switch0"]
//!     mbps = 400000
//!
//!     [[rail]]
//!     name = "mlx5_1"
//!     pci = "50:00.0"
//!     node = 0
//!     bridges = ["pci0", "switch0"]
//!     mbps = 400000
//!     state = "down"
//!     max_mr_size = "2GiB"
//!
//!     [[gpu]]
//!     pci = "53:00.0"
//!     node = 0
//!     bridges = ["pci0", "switch0"]
//! "#)?;
//! assert_eq!(machine.rails.len(), 2);
//! assert_eq!(pinrail_core::Machine::from_toml(&machine.to_toml())?, machine);
//! # Ok::<(), pinrail_core::files::machine::MachineFileError>(())
//! ```
//!
//! # Keys
//!
//! | key | of | what | left out |
//! |---|---|---|---|
//! | `version` | file | the version of this format: 1 | an error |
//! | `notes` | file | list of texts: what a reader should know | none |
//! | `id` | `[[node]]` | a NUMA node's number; nodes that a rail or GPU names need no entry of their own | an error |
//! | `name` | `[[rail]]` | unique; letters, digits and `_-.:@`, at most 64 | an error |
//! | `pci` | `[[rail]]`, `[[gpu]]` | PCI address, any case and width | a rail without one; for a GPU an error |
//! | `node` | `[[rail]]`, `[[gpu]]` | NUMA node | unknown |
//! | `bridges` | `[[rail]]`, `[[gpu]]` | the bridges above it, outermost first: see [`Rail::bridges`] | unknown |
//! | `vf_of` | `[[rail]]` | PCI address of the physical function it is a virtual function of | none |
//! | `mbps` | `[[rail]]` | megabits a second | unknown |
//! | `state` | `[[rail]]` | `up` or `down` | unknown |
//! | `max_mr_size` | `[[rail]]` | bytes of one registration, as a number or as in `"2GiB"` | no limit |
//! | `max_mrs` | `[[rail]]` | live registrations | no limit |
//! | `max_pages` | `[[rail]]` | page entries over all live registrations | no limit |
//! | `max_pages_remote_write` | `[[rail]]` | page entries over all live registrations that peers may write to | no limit |
//! | `max_bytes` | `[[rail]]` | bytes over all live registrations, as a number or as in `"64GB"` | no limit |
//! | `access` | `[[rail]]` | list of `local-write`, `remote-read`, `remote-write` | all three |
//! | `pins` | `[[rail]]` | whose memlock budget pins count against: `nothing`, `process`, `user` | unknown |
//! | `device` | `[[rail]]` | how it reaches device memory: `none`, `address`, `dma-buf` | unknown |
//! | `calls_in_parallel` | `[[rail]]` | calls that make progress at once | no limit |
//!
//! A byte order mark before the text is skipped. A number beyond 2^63 - 1, which TOML has no integers for, is written as a string. An unknown key is an error:
//! a misspelt `max_mr_sise` that was silently ignored would be a limit that does not hold.

use std::fmt;
use std::num::NonZeroU32;

use serde::de::{Error as _, Visitor};
use serde::{Deserialize, Deserializer, Serialize, Serializer};
use toml::Spanned;

use crate::{
    Access, DevicePath, Diagnosis, ErrorKind, Gpu, Machine, MachineError, NodeId, NumaNode, PciAddress, PinsCounted, Rail,
    RailLimits, RailState,
};

/// The version of the format that is written, and the only one that is read.
pub const VERSION: i64 = 1;

/// A text that is no machine.
#[derive(Clone, Debug, PartialEq, Eq, thiserror::Error)]
#[non_exhaustive]
pub enum MachineFileError {
    /// It is no TOML, or a key or value is not one of the format's.
    #[error("machine file{}: {message}", at(.line))]
    Syntax {
        /// The line, counted from 1, where one is to blame.
        line: Option<usize>,
        /// What is wrong with it, on one line.
        message: String,
    },
    /// It names another version of the format, or none.
    #[error("machine file{}: this release reads version {VERSION}: the file must say `version = {VERSION}`", at(.line))]
    Version {
        /// The line, where the file names a version.
        line: Option<usize>,
    },
    /// It says what no machine can be.
    #[error("machine file{}: {problem}", at(.line))]
    Contradiction {
        /// The line of the rail or GPU, counted from 1.
        line: Option<usize>,
        /// What it contradicts.
        problem: MachineError,
    },
}

impl MachineFileError {
    /// The error as a user meets it.
    #[must_use]
    pub fn diagnosis(&self) -> Diagnosis {
        Diagnosis::new(ErrorKind::Usage, self.to_string())
    }
}

fn at(line: &Option<usize>) -> String {
    line.map_or_else(String::new, |line| format!(", line {line}"))
}

impl Machine {
    /// Reads a machine file; [`machine`](self) describes the format.
    ///
    /// # Errors
    /// [`MachineFileError`], with the line.
    pub fn from_toml(text: &str) -> Result<Machine, MachineFileError> {
        let text = text.strip_prefix('\u{feff}').unwrap_or(text);
        // The version is looked at first, so that a later format is not called misspelt.
        let Versioned { version } = parse(text)?;
        match version {
            Some(version) if *version.get_ref() == VERSION => {}
            found => return Err(MachineFileError::Version { line: found.map(|version| line(text, version.span().start)) }),
        }
        let file: MachineFile<Spanned<RailFile>, Spanned<GpuFile>> = parse(text)?;
        let MachineFile { version, notes, node, rail, gpu } = file;
        let start = |span: std::ops::Range<usize>| line(text, span.start);
        let (rail_lines, rail): (Vec<_>, Vec<_>) = rail.into_iter().map(|r| (start(r.span()), r.into_inner())).unzip();
        let (gpu_lines, gpu): (Vec<_>, Vec<_>) = gpu.into_iter().map(|g| (start(g.span()), g.into_inner())).unzip();
        let machine = MachineFile { version, notes, node, rail, gpu }.machine();
        match machine.check() {
            Ok(()) => Ok(machine),
            Err(problem) => {
                let line = blamed(&problem, &machine, &rail_lines, &gpu_lines);
                Err(MachineFileError::Contradiction { line, problem })
            }
        }
    }

    /// Writes a machine file that reads back as this machine (with an entry for every node that a device names).
    #[must_use]
    pub fn to_toml(&self) -> String {
        toml::to_string(&self.file()).expect("strings, lists, tables and numbers within 63 bits are all TOML")
    }

    /// The machine file as part of a larger document: the same keys and values.
    #[must_use]
    pub fn to_json_value(&self) -> serde_json::Value {
        serde_json::to_value(self.file()).expect("plain data has a text")
    }

    /// Reads what [`Machine::to_json_value`] wrote.
    ///
    /// # Errors
    /// [`MachineFileError`], without a line.
    pub fn from_json_value(value: serde_json::Value) -> Result<Machine, MachineFileError> {
        let file: MachineFile<RailFile, GpuFile> =
            serde_json::from_value(value).map_err(|error| MachineFileError::Syntax { line: None, message: error.to_string() })?;
        if file.version != VERSION {
            return Err(MachineFileError::Version { line: None });
        }
        let machine = file.machine();
        match machine.check() {
            Ok(()) => Ok(machine),
            Err(problem) => Err(MachineFileError::Contradiction { line: None, problem }),
        }
    }

    fn file(&self) -> MachineFile<RailFile, GpuFile> {
        MachineFile {
            version: VERSION,
            notes: self.notes.clone(),
            node: self.nodes.iter().map(|node| NodeFile { id: node.id.0 }).collect(),
            rail: self.rails.iter().map(RailFile::from).collect(),
            gpu: self.gpus.iter().map(GpuFile::from).collect(),
        }
    }

    fn name_all_nodes(&mut self) {
        let mut named: Vec<NodeId> =
            self.rails.iter().filter_map(|rail| rail.node).chain(self.gpus.iter().filter_map(|gpu| gpu.node)).collect();
        named.sort_unstable();
        named.dedup();
        named.retain(|id| self.nodes.iter().all(|node| node.id != *id));
        self.nodes.extend(named.into_iter().map(|id| NumaNode { id }));
    }
}

impl MachineFile<RailFile, GpuFile> {
    fn machine(self) -> Machine {
        let nodes = self.node.into_iter().map(|node| NumaNode { id: NodeId(node.id) }).collect();
        let (rails, gpus) = (self.rail.into_iter().map(Rail::from).collect(), self.gpu.into_iter().map(Gpu::from).collect());
        let mut machine = Machine { rails, gpus, nodes, notes: self.notes };
        machine.name_all_nodes();
        machine
    }
}

/// The line of the device that a contradiction is about: the last one, since the first was still right.
fn blamed(problem: &MachineError, machine: &Machine, rail_lines: &[usize], gpu_lines: &[usize]) -> Option<usize> {
    match problem {
        MachineError::TwoDevices { pci } => {
            machine.gpus.iter().rposition(|gpu| gpu.pci == *pci).and_then(|at| gpu_lines.get(at).copied())
        }
        MachineError::TooManyRails { max, .. } => rail_lines.get(*max).copied(),
        MachineError::TwoRails { name } | MachineError::ZeroLimit { rail: name, .. } => {
            machine.rails.iter().rposition(|rail| rail.name == *name).and_then(|at| rail_lines.get(at).copied())
        }
        // The error shortens a long name.
        MachineError::Name { name } => {
            machine.rails.iter().position(|rail| rail.name.starts_with(name)).and_then(|at| rail_lines.get(at).copied())
        }
    }
}

fn parse<T: serde::de::DeserializeOwned>(text: &str) -> Result<T, MachineFileError> {
    toml::from_str(text).map_err(|error| MachineFileError::Syntax {
        line: error.span().map(|span| line(text, span.start)),
        message: error.message().split_whitespace().collect::<Vec<_>>().join(" "),
    })
}

fn line(text: &str, offset: usize) -> usize {
    1 + text.as_bytes().iter().take(offset).filter(|byte| **byte == b'\n').count()
}

#[derive(Deserialize)]
struct Versioned {
    version: Option<Spanned<i64>>,
}

#[derive(Serialize, Deserialize)]
#[serde(deny_unknown_fields)]
struct MachineFile<R, G> {
    version: i64,
    #[serde(default, skip_serializing_if = "Vec::is_empty")]
    notes: Vec<String>,
    #[serde(default = "Vec::new", skip_serializing_if = "Vec::is_empty")]
    node: Vec<NodeFile>,
    #[serde(default = "Vec::new", skip_serializing_if = "Vec::is_empty")]
    rail: Vec<R>,
    #[serde(default = "Vec::new", skip_serializing_if = "Vec::is_empty")]
    gpu: Vec<G>,
}

#[derive(Serialize, Deserialize)]
#[serde(deny_unknown_fields)]
struct NodeFile {
    id: u32,
}

#[derive(Serialize, Deserialize)]
#[serde(deny_unknown_fields)]
struct RailFile {
    name: String,
    #[serde(default, skip_serializing_if = "Option::is_none")]
    pci: Option<Pci>,
    #[serde(default, skip_serializing_if = "Option::is_none")]
    node: Option<u32>,
    #[serde(default, skip_serializing_if = "Vec::is_empty")]
    bridges: Vec<String>,
    #[serde(default, skip_serializing_if = "Option::is_none")]
    vf_of: Option<Pci>,
    #[serde(default, skip_serializing_if = "Option::is_none")]
    mbps: Option<Count>,
    #[serde(default, skip_serializing_if = "State::is_unknown")]
    state: State,
    #[serde(default, skip_serializing_if = "Option::is_none")]
    max_mr_size: Option<Bytes>,
    #[serde(default, skip_serializing_if = "Option::is_none")]
    max_mrs: Option<Count>,
    #[serde(default, skip_serializing_if = "Option::is_none")]
    max_pages: Option<Count>,
    #[serde(default, skip_serializing_if = "Option::is_none")]
    max_pages_remote_write: Option<Count>,
    #[serde(default, skip_serializing_if = "Option::is_none")]
    max_bytes: Option<Bytes>,
    #[serde(default, skip_serializing_if = "AccessFile::is_full")]
    access: AccessFile,
    #[serde(default, skip_serializing_if = "Pins::is_unknown")]
    pins: Pins,
    #[serde(default, skip_serializing_if = "Device::is_unknown")]
    device: Device,
    #[serde(default, skip_serializing_if = "Option::is_none")]
    calls_in_parallel: Option<NonZeroU32>,
}

#[derive(Serialize, Deserialize)]
#[serde(deny_unknown_fields)]
struct GpuFile {
    pci: Pci,
    #[serde(default, skip_serializing_if = "Option::is_none")]
    node: Option<u32>,
    #[serde(default, skip_serializing_if = "Vec::is_empty")]
    bridges: Vec<String>,
}

impl From<RailFile> for Rail {
    fn from(file: RailFile) -> Rail {
        let bytes = |bytes: Bytes| bytes.0;
        let count = |count: Count| count.0;
        Rail {
            pci: file.pci.map(|pci| pci.0),
            node: file.node.map(NodeId),
            bridges: file.bridges,
            vf_of: file.vf_of.map(|pci| pci.0),
            mbps: file.mbps.map(count),
            state: file.state.into(),
            limits: RailLimits {
                max_mr_size: file.max_mr_size.map(bytes),
                max_mrs: file.max_mrs.map(count),
                max_pages: file.max_pages.map(count),
                max_pages_remote_write: file.max_pages_remote_write.map(count),
                max_bytes: file.max_bytes.map(bytes),
            },
            access: file.access.0,
            pins: file.pins.into(),
            device: file.device.into(),
            calls_in_parallel: file.calls_in_parallel.unwrap_or(NonZeroU32::MAX),
            ..Rail::named(file.name)
        }
    }
}

impl From<&Rail> for RailFile {
    fn from(rail: &Rail) -> RailFile {
        let RailLimits { max_mr_size, max_mrs, max_pages, max_pages_remote_write, max_bytes } = rail.limits;
        RailFile {
            name: rail.name.clone(),
            pci: rail.pci.map(Pci),
            node: rail.node.map(|node| node.0),
            bridges: rail.bridges.clone(),
            vf_of: rail.vf_of.map(Pci),
            mbps: rail.mbps.map(Count),
            state: rail.state.into(),
            max_mr_size: max_mr_size.map(Bytes),
            max_mrs: max_mrs.map(Count),
            max_pages: max_pages.map(Count),
            max_pages_remote_write: max_pages_remote_write.map(Count),
            max_bytes: max_bytes.map(Bytes),
            access: AccessFile(rail.access),
            pins: rail.pins.into(),
            device: rail.device.into(),
            calls_in_parallel: Some(rail.calls_in_parallel).filter(|calls| *calls != NonZeroU32::MAX),
        }
    }
}

impl From<GpuFile> for Gpu {
    fn from(file: GpuFile) -> Gpu {
        Gpu { pci: file.pci.0, node: file.node.map(NodeId), bridges: file.bridges }
    }
}

impl From<&Gpu> for GpuFile {
    fn from(gpu: &Gpu) -> GpuFile {
        GpuFile { pci: Pci(gpu.pci), node: gpu.node.map(|node| node.0), bridges: gpu.bridges.clone() }
    }
}

/// The words of an enum whose default is `unknown`, which is never written.
macro_rules! words {
    ($file:ident for $core:ident: $($word:literal $name:ident),*) => {
        #[derive(Clone, Copy, Default, PartialEq, Eq, Serialize, Deserialize)]
        enum $file {
            $(#[serde(rename = $word)] $name,)*
            #[default]
            #[serde(rename = "unknown")]
            Unknown,
        }

        impl $file {
            fn is_unknown(&self) -> bool {
                *self == $file::Unknown
            }
        }

        impl From<$file> for $core {
            fn from(file: $file) -> $core {
                match file {
                    $($file::$name => $core::$name,)*
                    $file::Unknown => $core::Unknown,
                }
            }
        }

        impl From<$core> for $file {
            fn from(core: $core) -> $file {
                match core {
                    $($core::$name => $file::$name,)*
                    $core::Unknown => $file::Unknown,
                }
            }
        }
    };
}

words!(State for RailState: "up" Up, "down" Down);
words!(Pins for PinsCounted: "nothing" Nothing, "process" Process, "user" User);
words!(Device for DevicePath: "none" None, "address" Address, "dma-buf" DmaBuf);

struct Pci(PciAddress);

impl Serialize for Pci {
    fn serialize<S: Serializer>(&self, to: S) -> Result<S::Ok, S::Error> {
        to.collect_str(&self.0)
    }
}

impl<'de> Deserialize<'de> for Pci {
    fn deserialize<D: Deserializer<'de>>(from: D) -> Result<Pci, D::Error> {
        String::deserialize(from)?.parse().map(Pci).map_err(D::Error::custom)
    }
}

struct AccessFile(Access);

impl AccessFile {
    fn is_full(&self) -> bool {
        self.0 == Access::FULL
    }
}

impl Default for AccessFile {
    fn default() -> AccessFile {
        AccessFile(Access::FULL)
    }
}

impl Serialize for AccessFile {
    fn serialize<S: Serializer>(&self, to: S) -> Result<S::Ok, S::Error> {
        to.collect_seq(self.0.names())
    }
}

impl<'de> Deserialize<'de> for AccessFile {
    fn deserialize<D: Deserializer<'de>>(from: D) -> Result<AccessFile, D::Error> {
        let flag = |name: String| {
            Access::by_name(&name).ok_or_else(|| {
                let known: Vec<_> = Access::FULL.names().collect();
                D::Error::custom(format!("{name:?} is no access; the ones there are: {}", known.join(", ")))
            })
        };
        Vec::<String>::deserialize(from)?.into_iter().map(flag).collect::<Result<Access, _>>().map(AccessFile)
    }
}

/// A number of 64 bits: an integer where TOML has one, else a string.
struct Count(u64);

/// The same in bytes, where a string may have a unit.
struct Bytes(u64);

fn write<S: Serializer>(number: u64, to: S) -> Result<S::Ok, S::Error> {
    match i64::try_from(number) {
        Ok(number) => to.serialize_i64(number),
        Err(_) => to.collect_str(&number),
    }
}

impl Serialize for Count {
    fn serialize<S: Serializer>(&self, to: S) -> Result<S::Ok, S::Error> {
        write(self.0, to)
    }
}

impl Serialize for Bytes {
    fn serialize<S: Serializer>(&self, to: S) -> Result<S::Ok, S::Error> {
        write(self.0, to)
    }
}

impl<'de> Deserialize<'de> for Count {
    fn deserialize<D: Deserializer<'de>>(from: D) -> Result<Count, D::Error> {
        from.deserialize_any(Number { text: |text| text.parse().map_err(|_| format!("{text:?} is no whole number of 64 bits")) })
            .map(Count)
    }
}

impl<'de> Deserialize<'de> for Bytes {
    fn deserialize<D: Deserializer<'de>>(from: D) -> Result<Bytes, D::Error> {
        from.deserialize_any(Number { text: |text| crate::size::parse(text).map_err(|error| error.to_string()) }).map(Bytes)
    }
}

struct Number {
    text: fn(&str) -> Result<u64, String>,
}

impl Visitor<'_> for Number {
    type Value = u64;

    fn expecting(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        f.write_str("a whole number that is not negative")
    }

    fn visit_i64<E: serde::de::Error>(self, number: i64) -> Result<u64, E> {
        u64::try_from(number).map_err(|_| E::invalid_value(serde::de::Unexpected::Signed(number), &self))
    }

    fn visit_u64<E: serde::de::Error>(self, number: u64) -> Result<u64, E> {
        Ok(number)
    }

    fn visit_str<E: serde::de::Error>(self, text: &str) -> Result<u64, E> {
        (self.text)(text).map_err(E::custom)
    }
}

#[cfg(test)]
mod tests {
    use super::*;
    use proptest::prelude::*;

    fn failure(text: &str) -> String {
        Machine::from_toml(text).expect_err(text).to_string()
    }

    #[test]
    fn what_is_ordinary_is_left_out() {
        assert_eq!(Machine::of_rails(2).to_toml(), "version = 1\n\n[[rail]]\nname = \"rail0\"\n\n[[rail]]\nname = \"rail1\"\n");
    }

    #[test]
    fn an_error_names_the_line_and_the_remedy() {
        assert_eq!(
            failure("version = 1\n[[rail]]\nname = \"a\"\nmax_mr_sise = 1\n").split(", expected").next(),
            Some("machine file, line 4: unknown field `max_mr_sise`")
        );
        assert_eq!(
            failure("version = 1\n[[gpu]]\npci = \"xx\"\n"),
            "machine file, line 3: \"xx\" is no PCI address: expected DOMAIN:BUS:DEVICE.FUNCTION in hexadecimal, as in 0000:4f:00.0"
        );
        assert_eq!(failure("version = 1\n[[rail]]\n\n[[rail]]\nname = \"b\"\n"), "machine file, line 2: missing field `name`");
        assert_eq!(
            failure("version = 1\n[[rail]]\nname = \"a\"\n[[rail]]\nname = \"a\"\n"),
            "machine file, line 4: two rails are called \"a\""
        );
        assert_eq!(
            failure("version = 1\n[[rail]]\nname = \"a\"\nmax_mrs = 0\n"),
            "machine file, line 2: rail \"a\" has max_mrs = 0; leave it out for no limit"
        );
        assert_eq!(
            failure("version = 1\n[[rail]]\nname = \"a\"\nmbps = -5\n"),
            "machine file, line 4: invalid value: integer `-5`, expected a whole number that is not negative"
        );
        assert_eq!(
            failure("version = 1\n[[rail]]\nname = \"a\"\naccess = [\"write\"]\n"),
            "machine file, line 4: \"write\" is no access; the ones there are: local-write, remote-read, remote-write"
        );
        assert_eq!(
            failure("version = 1\n[[gpu]]\npci = \"1:0.0\"\n[[gpu]]\npci = \"01:00.0\"\n"),
            "machine file, line 4: two devices are at 0000:01:00.0"
        );
    }

    #[test]
    fn another_version_is_not_called_misspelt() {
        assert_eq!(
            failure("\nversion = 2\nracks = 1\n"),
            "machine file, line 2: this release reads version 1: the file must say `version = 1`"
        );
        assert_eq!(failure(""), "machine file: this release reads version 1: the file must say `version = 1`");
    }

    #[test]
    fn sizes_have_units_and_counts_have_none() {
        let machine = Machine::from_toml("version = 1\n[[rail]]\nname = \"a\"\nmax_mr_size = \"2GiB\"\n").unwrap();
        assert_eq!(machine.rails[0].limits.max_mr_size, Some(2 << 30));
        assert_eq!(
            failure("version = 1\n[[rail]]\nname = \"a\"\nmax_mrs = \"2GiB\"\n"),
            "machine file, line 4: \"2GiB\" is no whole number of 64 bits"
        );
    }

    #[test]
    fn a_node_that_a_device_names_needs_no_entry() {
        let machine = Machine::from_toml("version = 1\n[[node]]\nid = 3\n[[gpu]]\npci = \"1:0.0\"\nnode = 1\n").unwrap();
        assert_eq!(machine.nodes, [NumaNode { id: NodeId(3) }, NumaNode { id: NodeId(1) }]);
    }

    fn text() -> impl Strategy<Value = String> {
        prop_oneof![Just("\"\\\n\r\t\u{7f}\0'''".to_owned()), any::<String>(), "[a-z0-9:.]{0,12}"]
    }

    fn number() -> impl Strategy<Value = Option<u64>> {
        prop_oneof![Just(None), Just(Some(1)), Just(Some(u64::MAX)), Just(Some(1 << 63)), (1..u64::MAX).prop_map(Some)]
    }

    prop_compose! {
        fn pci()(domain: u32, bus: u8, device in 0u8..32, function in 0u8..8) -> PciAddress {
            PciAddress::new(domain, bus, device, function).unwrap()
        }
    }

    prop_compose! {
        fn rail()(
            name in "[A-Za-z0-9_.:@-]{1,64}",
            (pci, vf_of) in (proptest::option::of(pci()), proptest::option::of(pci())),
            node in proptest::option::of(any::<u32>().prop_map(NodeId)),
            bridges in proptest::collection::vec(text(), 0..4),
            (mbps, max_mr_size, max_mrs, max_pages) in (number(), number(), number(), number()),
            (max_pages_remote_write, max_bytes) in (number(), number()),
            state in prop_oneof![Just(RailState::Up), Just(RailState::Down), Just(RailState::Unknown)],
            access in (0u8..8).prop_map(|bits| Access::from_bits(bits).unwrap()),
            pins in prop_oneof![Just(PinsCounted::Nothing), Just(PinsCounted::Process), Just(PinsCounted::User), Just(PinsCounted::Unknown)],
            device in prop_oneof![Just(DevicePath::None), Just(DevicePath::Address), Just(DevicePath::DmaBuf), Just(DevicePath::Unknown)],
            calls_in_parallel: NonZeroU32,
        ) -> Rail {
            let limits = RailLimits { max_mr_size, max_mrs, max_pages, max_pages_remote_write, max_bytes };
            Rail { pci, node, bridges, vf_of, mbps, state, limits, access, pins, device, calls_in_parallel, ..Rail::named(name) }
        }
    }

    prop_compose! {
        fn gpu()(
            pci in pci(),
            node in proptest::option::of(any::<u32>().prop_map(NodeId)),
            bridges in proptest::collection::vec(text(), 0..4),
        ) -> Gpu {
            Gpu { pci, node, bridges }
        }
    }

    proptest! {
        #[test]
        fn every_machine_reads_back_as_it_was_written(
            rails in proptest::collection::vec(rail(), 0..6),
            gpus in proptest::collection::vec(gpu(), 0..6),
            nodes in proptest::collection::vec(any::<u32>().prop_map(|id| NumaNode { id: NodeId(id) }), 0..3),
            notes in proptest::collection::vec(text(), 0..3),
        ) {
            let mut machine = Machine { rails, gpus, nodes, notes };
            prop_assume!(machine.check().is_ok());
            machine.name_all_nodes();
            let (text, value) = (machine.to_toml(), machine.to_json_value());
            prop_assert_eq!(Machine::from_toml(&format!("\u{feff}{text}")), Ok(machine.clone()), "{}", text);
            prop_assert_eq!(Machine::from_json_value(value), Ok(machine), "{}", text);
        }

        #[test]
        fn no_text_panics(text in "(version = 1\n)?(\\[\\[(rail|gpu|node)\\]\\]\n|name = \"a\"\n|(mbps|id|pci|node) = [0-9\"]{1,20}\n|.{0,20}\n){0,8}") {
            drop(Machine::from_toml(&text));
        }
    }
}
