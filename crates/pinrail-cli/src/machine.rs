//! `--machine` and `--rails`: the rails there shall be.

use std::path::Path;

use pinrail_core::{Diagnosis, Machine};

use crate::args::MachineArgs;
use crate::error::Error;
use crate::file;

/// Most bytes of a machine file.
const FILE_BYTES_MAX: u64 = 16 << 20;

/// The rails that were asked for.
#[derive(Clone, Debug)]
pub(crate) enum Wanted {
    /// So many; a backend names them.
    Count(u16),
    /// Those of a machine that was described.
    Machine(Machine),
}

impl MachineArgs {
    /// True where rails were asked for at all.
    pub(crate) fn is_given(&self) -> bool {
        self.machine.is_some() || self.rails.is_some()
    }

    /// Reads what was asked for: without arguments one rail.
    pub(crate) fn read(&self) -> Result<Wanted, Error> {
        match &self.machine {
            Some(path) => Ok(Wanted::Machine(from_file(path)?)),
            None => Ok(Wanted::Count(self.rails.unwrap_or(1))),
        }
    }
}

impl Wanted {
    /// The machine without a backend's word on it: rails that are only counted are `rail0`, `rail1`, ….
    pub(crate) fn machine(self) -> Machine {
        match self {
            Wanted::Count(rails) => Machine::of_rails(rails),
            Wanted::Machine(machine) => machine,
        }
    }
}

/// Reads a machine from a file.
pub(crate) fn from_file(path: &Path) -> Result<Machine, Error> {
    let bytes = file::read(path, FILE_BYTES_MAX, "machine file")?;
    parse(&bytes).map_err(|error| {
        let message = format!("{}: {}", path.display(), error.diagnosis.message);
        Diagnosis { message, ..*error.diagnosis }.into()
    })
}

/// Any format, told by content.
#[cfg(feature = "topology")]
fn parse(bytes: &[u8]) -> Result<Machine, Error> {
    Ok(pinrail_topology::read(bytes)?.machine)
}

/// Our own format.
#[cfg(not(feature = "topology"))]
fn parse(bytes: &[u8]) -> Result<Machine, Error> {
    let text = std::str::from_utf8(bytes)
        .map_err(|error| Error::usage(format!("the machine file is no text: byte {} is no UTF-8", error.valid_up_to())))?;
    if text.trim_start_matches('\u{feff}').trim_start().starts_with('<') {
        return Err(Error::feature_off("a machine in XML", "topology"));
    }
    Ok(Machine::from_toml(text)?)
}
