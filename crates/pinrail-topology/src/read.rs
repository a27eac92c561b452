use std::fmt;
use std::fs::File;
use std::io::Read as _;
use std::path::Path;

use pinrail_core::Machine;

use crate::{TopologyError, hwloc_xml, judge, nccl_xml, xml};

/// Most bytes of a machine file: a host of a thousand cores fills two or three million.
pub const FILE_BYTES_MAX: u64 = 16 << 20;

/// A machine and what described it.
#[derive(Clone, Debug, PartialEq, Eq)]
pub struct Topology {
    /// The machine.
    pub machine: Machine,
    /// What described it.
    pub source: Source,
}

/// What described a machine.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
#[non_exhaustive]
pub enum Source {
    /// A file of our own format.
    Toml,
    /// hwloc's XML.
    HwlocXml,
    /// NCCL's topology XML.
    NcclXml,
    /// The host that this runs on.
    Host,
}

impl fmt::Display for Source {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        f.write_str(match self {
            Source::Toml => "machine file",
            Source::HwlocXml => "hwloc XML",
            Source::NcclXml => "NCCL topology XML",
            Source::Host => "this host",
        })
    }
}

/// Reads a machine from a file of any of the formats, told by content: [`read`].
///
/// # Errors
/// [`TopologyError::File`] where the file cannot be read, and those of [`read`].
pub fn read_file(path: &Path) -> Result<Topology, TopologyError> {
    let failed = |source| TopologyError::File { path: path.to_owned(), source };
    let file = File::open(path).map_err(failed)?;
    if file.metadata().map_err(failed)?.len() > FILE_BYTES_MAX {
        return Err(TopologyError::TooLarge);
    }
    // A pipe has no length: one byte more than is allowed is enough to know.
    let mut bytes = Vec::new();
    file.take(FILE_BYTES_MAX + 1).read_to_end(&mut bytes).map_err(failed)?;
    read(&bytes)
}

/// Reads a machine from the bytes of a file: a machine file (TOML), hwloc's XML or NCCL's topology XML, told by content.
///
/// # Errors
/// [`TopologyError`], with the line where one is to blame.
pub fn read(bytes: &[u8]) -> Result<Topology, TopologyError> {
    if bytes.len() as u64 > FILE_BYTES_MAX {
        return Err(TopologyError::TooLarge);
    }
    let text = std::str::from_utf8(bytes).map_err(|error| TopologyError::NotText { at: error.valid_up_to() })?;
    let text = text.strip_prefix('\u{feff}').unwrap_or(text);
    if !text.trim_start().starts_with('<') {
        return Ok(Topology { machine: Machine::from_toml(text)?, source: Source::Toml });
    }
    let elements = xml::elements(text)?;
    let root = elements.first().map_or("", |root| root.name.as_str());
    let (tree, source) = match root {
        "topology" => (hwloc_xml::read(&elements)?, Source::HwlocXml),
        "system" => (nccl_xml::read(&elements)?, Source::NcclXml),
        _ => return Err(TopologyError::UnknownRoot { root: root.chars().take(40).collect() }),
    };
    Ok(Topology { machine: judge::machine(tree)?, source })
}
