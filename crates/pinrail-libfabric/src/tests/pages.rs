use pinrail_core::{Extent, Memory, StableMemory};

/// Anonymous pages, unmapped with their last user.
struct Pages {
    address: *mut libc::c_void,
    len: usize,
}

// SAFETY: an address and a length; the mapping belongs to no thread.
unsafe impl Send for Pages {}
// SAFETY: as above.
unsafe impl Sync for Pages {}

// SAFETY: a private mapping of this value, readable and writable, unmapped by drop alone and never referred to.
unsafe impl StableMemory for Pages {
    fn extent(&self) -> Extent {
        Extent::new(self.address.expose_provenance() as u64, self.len as u64).expect("a mapping is not empty")
    }
}

impl Drop for Pages {
    fn drop(&mut self) {
        // SAFETY: the mapping made in `pages`; nobody refers to it any more.
        unsafe { libc::munmap(self.address, self.len) };
    }
}

/// Fresh memory of `len` bytes.
pub(crate) fn pages(len: usize) -> Memory {
    let (protection, flags) = (libc::PROT_READ | libc::PROT_WRITE, libc::MAP_PRIVATE | libc::MAP_ANONYMOUS);
    // SAFETY: a new mapping at an address of the kernel's choice.
    let address = unsafe { libc::mmap(std::ptr::null_mut(), len, protection, flags, -1, 0) };
    assert_ne!(address, libc::MAP_FAILED, "{}", std::io::Error::last_os_error());
    Memory::new(Pages { address, len })
}
