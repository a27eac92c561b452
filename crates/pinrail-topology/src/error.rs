use std::path::PathBuf;

use pinrail_core::files::machine::MachineFileError;
use pinrail_core::{Diagnosis, ErrorKind, MachineError};

use crate::FILE_BYTES_MAX;

/// A machine that could not be read or discovered.
#[derive(Debug, thiserror::Error)]
#[non_exhaustive]
pub enum TopologyError {
    /// The file could not be read.
    #[error("machine file {}: {source}", path.display())]
    File {
        /// The file.
        path: PathBuf,
        /// Why.
        source: std::io::Error,
    },
    /// More bytes than any machine's description has; refused before anything is parsed.
    #[error("a machine file may have {FILE_BYTES_MAX} bytes and this one has more")]
    TooLarge,
    /// Bytes that are no UTF-8.
    #[error("the machine file is no text: byte {at} is no UTF-8")]
    NotText {
        /// The position of the first such byte.
        at: usize,
    },
    /// XML that is no topology.
    #[error(
        "the machine file is XML with the root <{root}>: expected <topology> (hwloc: `lstopo FILE.xml`) or <system> (NCCL: \
         NCCL_TOPO_DUMP_FILE)"
    )]
    UnknownRoot {
        /// The root element.
        root: String,
    },
    /// XML that is broken, or does not say what its kind must say.
    #[error("machine file, line {line}: {what}")]
    Xml {
        /// The line, counted from 1.
        line: usize,
        /// What is wrong with it.
        what: String,
    },
    /// hwloc XML of a version that is not read.
    #[error("hwloc XML of version {found} is not read: export it with `lstopo --export-xml-flags v2 FILE.xml`")]
    Version {
        /// The version the file names.
        found: String,
    },
    /// Our own format.
    #[error(transparent)]
    Toml(#[from] MachineFileError),
    /// More devices of a kind than a machine may have.
    #[error("{count} {what} are more than the {max} a machine may have")]
    TooMany {
        /// The kind of device.
        what: &'static str,
        /// Devices found.
        count: usize,
        /// The limit.
        max: usize,
    },
    /// What was found contradicts itself.
    #[error(transparent)]
    Contradiction(#[from] MachineError),
    /// hwloc could not describe this host.
    #[error("hwloc cannot describe this host: {what}")]
    Hwloc {
        /// What it said.
        what: String,
    },
}

impl TopologyError {
    /// The error as a user meets it.
    #[must_use]
    pub fn diagnosis(&self) -> Diagnosis {
        match self {
            TopologyError::Toml(error) => error.diagnosis(),
            TopologyError::Hwloc { .. } => Diagnosis::new(ErrorKind::Backend, self.to_string()),
            _ => Diagnosis::new(ErrorKind::Usage, self.to_string()),
        }
    }
}
