use std::ops::Range;

use crate::{Access, Memory, Place, PrepareError, Source};

/// What makes memory ready for its registrations: called by the engine's workers, between other steps.
///
/// `pinrail-memory` populates slices, a GPU crate exports chunks, a simulator charges time. An error drops the chunk's
/// registrations (they are listed as not attempted).
pub trait Prepare: Send + Sync {
    /// Does one step; may be called from many threads, never twice at once for the same step.
    ///
    /// # Errors
    /// Only for what would also make the registration fail; a preparation that merely does not help is
    /// [`Prepared::Skipped`].
    fn prepare(&self, step: &PrepareStep<'_>) -> Result<Prepared, PrepareError>;
}

/// One preparation.
#[derive(Clone, Debug)]
#[non_exhaustive]
pub enum PrepareStep<'p> {
    /// Make a slice of host memory resident, on the node its place or its mapping's policy names.
    Populate {
        /// The allocation.
        memory: &'p Memory,
        /// The slice: page boundaries, except where the buffer itself begins or ends.
        range: Range<u64>,
        /// A slice that nobody may write is not dirtied.
        access: Access,
        /// Where the caller wants it.
        place: Place,
    },
    /// Export a chunk of device memory as a dma-buf.
    Export {
        /// The allocation.
        memory: &'p Memory,
        /// The chunk.
        range: Range<u64>,
        /// The device.
        place: Place,
    },
}

/// What a preparation did.
#[derive(Clone, Debug)]
#[non_exhaustive]
pub enum Prepared {
    /// The slice is resident now; `bytes` of it were not before.
    Resident {
        /// Bytes made resident.
        bytes: u64,
    },
    /// Nothing to do, or nothing that can be done here.
    Skipped,
    /// The export to register instead of the address.
    Exported(Source),
}
