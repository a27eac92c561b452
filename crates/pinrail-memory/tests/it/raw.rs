//! Mappings in states that only raw calls produce.

use std::fs::File;
use std::os::fd::{AsRawFd, FromRawFd};
use std::ptr::NonNull;

use pinrail_core::{Extent, Memory};

/// A mapping that is unmapped when dropped, holes and all.
pub(crate) struct Raw {
    address: NonNull<u8>,
    len: usize,
}

pub(crate) const RW: i32 = libc::PROT_READ | libc::PROT_WRITE;

impl Raw {
    pub(crate) fn map(len: usize, protection: i32, flags: i32, file: Option<&File>) -> Option<Raw> {
        let fd = file.map_or(-1, AsRawFd::as_raw_fd);
        // SAFETY: a new mapping at an address of the kernel's choice.
        let address = unsafe { libc::mmap(std::ptr::null_mut(), len, protection, flags, fd, 0) };
        if address == libc::MAP_FAILED {
            return None;
        }
        Some(Raw { address: NonNull::new(address.cast()).unwrap(), len })
    }

    /// Private memory of base pages.
    pub(crate) fn anonymous(len: usize) -> Raw {
        let raw = Raw::map(len, RW, libc::MAP_PRIVATE | libc::MAP_ANONYMOUS, None).unwrap();
        // SAFETY: the advice changes no contents.
        unsafe { libc::madvise(raw.address.as_ptr().cast(), len, libc::MADV_NOHUGEPAGE) };
        raw
    }

    pub(crate) fn shared(file: &File, len: usize) -> Raw {
        Raw::map(len, RW, libc::MAP_SHARED, Some(file)).unwrap()
    }

    pub(crate) fn extent(&self) -> Extent {
        Extent::new(self.address.as_ptr().expose_provenance() as u64, self.len as u64).unwrap()
    }

    /// The memory as a value; it may not be used after `self` is gone, and no test does.
    pub(crate) fn memory(&self) -> Memory {
        // SAFETY: the tests keep `self` until they are through and make no references to the bytes; where they take pages
        // away, they ask only what the kernel answers with an error.
        unsafe { Memory::from_raw(self.address, self.len as u64) }.unwrap()
    }

    pub(crate) fn protect(&self, at: usize, len: usize, protection: i32) {
        assert!(at + len <= self.len);
        // SAFETY: the pages are ours and nothing refers to them.
        let rc = unsafe { libc::mprotect(self.address.as_ptr().wrapping_add(at).cast(), len, protection) };
        assert_eq!(rc, 0);
    }

    pub(crate) fn punch(&self, at: usize, len: usize) {
        assert!(at + len <= self.len);
        // SAFETY: the pages are ours and nothing refers to them.
        let rc = unsafe { libc::munmap(self.address.as_ptr().wrapping_add(at).cast(), len) };
        assert_eq!(rc, 0);
    }
}

impl Drop for Raw {
    fn drop(&mut self) {
        // SAFETY: the range is ours; a hole in it is no error.
        unsafe { libc::munmap(self.address.as_ptr().cast(), self.len) };
    }
}

pub(crate) fn memfd(len: u64, flags: u32) -> Option<File> {
    // SAFETY: the name is a C string.
    let fd = unsafe { libc::memfd_create(c"pinrail-test".as_ptr(), flags) };
    if fd < 0 {
        return None;
    }
    // SAFETY: the descriptor was just made and is nobody else's.
    let file = unsafe { File::from_raw_fd(fd) };
    file.set_len(len).unwrap();
    Some(file)
}

/// Sets this process's RLIMIT_MEMLOCK.
pub(crate) fn set_memlock(soft_bytes: u64, hard_bytes: u64) {
    let limit = libc::rlimit { rlim_cur: soft_bytes, rlim_max: hard_bytes };
    // SAFETY: the kernel reads the one struct.
    assert_eq!(unsafe { libc::setrlimit(libc::RLIMIT_MEMLOCK, &raw const limit) }, 0);
}

pub(crate) fn is_root() -> bool {
    // SAFETY: geteuid has no preconditions.
    unsafe { libc::geteuid() == 0 }
}
