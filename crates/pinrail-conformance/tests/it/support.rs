use std::ops::Range;
use std::time::Duration;

use pinrail_core::{Access, Chunk, Machine, Memory, Source};
use pinrail_memory::{Mapping, Pages};
use pinrail_uring::Uring;

pub(crate) const PAGE: u64 = 4096;
pub(crate) const WAIT: Duration = Duration::from_secs(60);

pub(crate) fn rings(rails: u16) -> Uring {
    Uring::open(&Machine::of_rails(rails).rails).unwrap_or_else(|error| panic!("{error}"))
}

pub(crate) fn bytes(len: u64) -> Memory {
    Memory::new(Mapping::anonymous(len, Pages::Small, None).unwrap())
}

pub(crate) fn chunk(memory: &Memory, range: Range<u64>) -> Chunk<'_> {
    Chunk { memory, range, access: Access::FULL, source: &Source::Address }
}
