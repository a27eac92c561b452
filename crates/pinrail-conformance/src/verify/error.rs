use std::fmt;
use std::io;

use pinrail_core::{ChunkId, Diagnosis, ErrorKind, MoveError, RailId};

use super::Target;

/// Whose registration it was.
#[derive(Clone, Debug, PartialEq, Eq)]
pub struct Place {
    /// The buffer's name.
    pub buffer: String,
    /// The chunk.
    pub chunk: ChunkId,
    /// The rail.
    pub rail: RailId,
}

/// Which way bytes went, seen from the fabric.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub enum Direction {
    /// Into the registered memory.
    Write,
    /// Out of the registered memory.
    Read,
}

/// A registration that was not proved. Bytes are shown, keys never.
#[derive(Debug, thiserror::Error)]
#[non_exhaustive]
pub enum VerifyError {
    /// The MR reaches other bytes than the chunk's.
    #[error("{place}: the MR does not reach its chunk: at byte {at} of it a {direction} should show {} and shows {}", hex(.expected), hex(.seen))]
    Differs {
        /// Whose.
        place: Place,
        /// Which way the bytes went.
        direction: Direction,
        /// The first byte that differs, counted from the chunk's first.
        at: u64,
        /// What should be there: at most eight bytes.
        expected: Vec<u8>,
        /// What is there: as many.
        seen: Vec<u8>,
    },
    /// The transfer failed.
    #[error("{place}: a {direction} of {len} bytes at byte {at} of the chunk failed")]
    Move {
        /// Whose.
        place: Place,
        /// Which way.
        direction: Direction,
        /// The transfer's first byte, counted from the chunk's first.
        at: u64,
        /// Bytes of the transfer.
        len: u64,
        /// What the mover said.
        source: Box<MoveError>,
    },
    /// The memory itself could not be copied from or to.
    #[error("{place}: the memory cannot be copied {} at byte {at} of it", match .direction { Direction::Write => "to", Direction::Read => "from" })]
    Memory {
        /// Whose.
        place: Place,
        /// Which way.
        direction: Direction,
        /// The copy's first byte, counted from the memory's first.
        at: u64,
        /// What the copy said.
        source: io::Error,
    },
}

impl VerifyError {
    /// Whose registration it was.
    #[must_use]
    pub fn place(&self) -> &Place {
        match self {
            VerifyError::Differs { place, .. } | VerifyError::Move { place, .. } | VerifyError::Memory { place, .. } => place,
        }
    }

    /// The failure as a user meets it. The rail is named by its number; who knows its name puts that there.
    #[must_use]
    pub fn diagnosis(&self) -> Diagnosis {
        let diagnosis = match self {
            VerifyError::Differs { .. } => Diagnosis::new(ErrorKind::Backend, self.to_string())
                .hint("the registrar gave a key that reaches other memory: a bug of the backend or its provider"),
            VerifyError::Move { source, .. } => Diagnosis { message: format!("{self}: {source}"), ..source.diagnosis() },
            VerifyError::Memory { source, .. } => {
                Diagnosis { errno: source.raw_os_error(), ..Diagnosis::new(ErrorKind::Io, format!("{self}: {source}")) }
            }
        };
        let place = self.place();
        diagnosis.buffer(place.buffer.as_str()).rail(place.rail.to_string())
    }
}

impl Target<'_> {
    pub(super) fn place(&self) -> Place {
        Place { buffer: self.buffer.to_owned(), chunk: self.id, rail: self.mr.rail() }
    }
}

/// Bytes of a difference that are shown.
const SHOWN: usize = 8;

impl Place {
    pub(super) fn differing(self, direction: Direction, at: u64, expected: &[u8], seen: &[u8]) -> VerifyError {
        let shown = |bytes: &[u8]| bytes[..bytes.len().min(SHOWN)].to_vec();
        VerifyError::Differs { place: self, direction, at, expected: shown(expected), seen: shown(seen) }
    }

    pub(super) fn moving(self, direction: Direction, at: u64, len: u64, source: MoveError) -> VerifyError {
        VerifyError::Move { place: self, direction, at, len, source: Box::new(source) }
    }

    pub(super) fn copying(self, direction: Direction, at: u64, source: io::Error) -> VerifyError {
        VerifyError::Memory { place: self, direction, at, source }
    }
}

impl fmt::Display for Place {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        write!(f, "buffer {:?}, {}, {}", self.buffer, self.chunk, self.rail)
    }
}

impl fmt::Display for Direction {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        f.write_str(match self {
            Direction::Write => "write",
            Direction::Read => "read",
        })
    }
}

fn hex(bytes: &[u8]) -> String {
    bytes.iter().map(|byte| format!("{byte:02x}")).collect::<Vec<_>>().join(" ")
}
