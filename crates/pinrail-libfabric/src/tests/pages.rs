use std::sync::atomic::{AtomicUsize, Ordering};

use pinrail_core::{Extent, Memory, StableMemory};
use pinrail_memory::{Mapping, Pages};

const PAGE: usize = 4096;

/// Fresh memory of `len` bytes.
pub(crate) fn pages(len: u64) -> Memory {
    Memory::new(Mapping::anonymous(len, Pages::Small, None).expect("address space"))
}

/// Memory in which pages are missing, and the offset of the first missing byte.
pub(crate) fn with_hole() -> (Memory, u64) {
    let pieces = Pieces::new(5);
    // SAFETY: two pages of ours that nobody refers to. They lie where the kernel puts nothing by itself.
    assert_eq!(unsafe { libc::munmap(pieces.at(2), 2 * PAGE) }, 0);
    (Memory::new(pieces), 2 * PAGE as u64)
}

/// A page that cannot be written.
pub(crate) fn read_only() -> Memory {
    let pieces = Pieces::new(1);
    // SAFETY: a page of ours that nobody refers to.
    assert_eq!(unsafe { libc::mprotect(pieces.at(0), PAGE, libc::PROT_READ) }, 0);
    Memory::new(pieces)
}

/// Pages with whatever was done to them.
struct Pieces {
    start: usize,
    pages: usize,
}

impl Pieces {
    /// Far from where the kernel puts mappings by itself, and outside what AddressSanitizer keeps; each lot in a place of
    /// its own.
    fn new(pages: usize) -> Pieces {
        static NEXT: AtomicUsize = AtomicUsize::new(0x2000_0000_0000);
        let pieces = Pieces { start: NEXT.fetch_add(64 * PAGE, Ordering::Relaxed), pages };
        let (protection, flags) = (libc::PROT_READ | libc::PROT_WRITE, libc::MAP_PRIVATE | libc::MAP_ANONYMOUS);
        // SAFETY: a new mapping where there is none.
        let made = unsafe { libc::mmap(pieces.at(0), pages * PAGE, protection, flags | libc::MAP_FIXED_NOREPLACE, -1, 0) };
        assert_eq!(made.addr(), pieces.start);
        pieces
    }

    fn at(&self, page: usize) -> *mut libc::c_void {
        std::ptr::with_exposed_provenance_mut(self.start + page * PAGE)
    }
}

// SAFETY: not kept where there is a hole or a protection: nobody moves bytes there, and a provider that looks at the
// memory when it is registered finds out. Nobody refers to the pages.
unsafe impl StableMemory for Pieces {
    fn extent(&self) -> Extent {
        Extent::new(self.start as u64, (self.pages * PAGE) as u64).expect("pages")
    }
}

impl Drop for Pieces {
    fn drop(&mut self) {
        // SAFETY: the mapping made in `new`, or what is left of it; the place is nobody else's.
        unsafe { libc::munmap(self.at(0), self.pages * PAGE) };
    }
}
