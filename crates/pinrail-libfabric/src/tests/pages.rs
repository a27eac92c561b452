use pinrail_core::Memory;
use pinrail_memory::{Mapping, Pages};

/// Fresh memory of `len` bytes.
pub(crate) fn pages(len: u64) -> Memory {
    Memory::new(Mapping::anonymous(len, Pages::Small, None).expect("address space"))
}
