use std::ops::Range;

use pinrail_core::Access;

/// What one MR per rail covers: a piece of a buffer, or of buffers that share a registration.
#[derive(Clone, Debug, PartialEq, Eq)]
pub struct PlannedChunk {
    /// Its bytes, as offsets into the memory of its buffers.
    pub range: Range<u64>,
    /// Its buffers, as a range of the plan's list of members: see [`Plan::buffers_of`](crate::Plan::buffers_of).
    pub(crate) members: (u32, u32),
    /// Its rails, as an index into [`Plan::rail_sets`](crate::Plan::rail_sets).
    pub set: u32,
    /// Pages it touches, in its own page size: what a NIC maps for it.
    pub pages: u64,
    /// Bytes of a page, as a power of two.
    pub page_shift: u8,
    /// What may be done through its registrations, with what that implies.
    pub access: Access,
}

impl PlannedChunk {
    /// Bytes; never zero.
    #[must_use]
    #[allow(clippy::len_without_is_empty, reason = "a chunk is never empty")]
    pub fn len(&self) -> u64 {
        self.range.end - self.range.start
    }

    /// Bytes of its pages.
    #[must_use]
    pub fn page_size(&self) -> u64 {
        1 << self.page_shift
    }

    /// Bytes that one registration of it pins: whole pages.
    #[must_use]
    pub fn pinned_bytes(&self) -> u64 {
        self.pages.saturating_mul(self.page_size())
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn a_chunk_is_at_most_64_bytes() {
        assert!(size_of::<PlannedChunk>() <= 64, "{}", size_of::<PlannedChunk>());
    }
}
