use pinrail_core::Memory;
use pinrail_memory::{Mapping, Pages, testing};

/// Fresh memory of `len` bytes.
pub(crate) fn pages(len: u64) -> Memory {
    Memory::new(Mapping::anonymous(len, Pages::Small, None).expect("address space"))
}

/// Memory in which pages are missing, and the offset of the first missing byte.
pub(crate) fn with_hole() -> (Memory, u64) {
    testing::with_hole().expect("address space")
}

/// A page that cannot be written.
pub(crate) fn read_only() -> Memory {
    testing::read_only(4096).expect("address space")
}
