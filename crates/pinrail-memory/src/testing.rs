//! Memory in states that an owned [`Mapping`](crate::Mapping) never is in, and a fork: for tests of what registers it.
//!
//! Nothing here panics but where the host refuses what every Linux has.

use std::fs::File;
use std::io;
use std::os::fd::{AsRawFd, FromRawFd, OwnedFd};
use std::sync::atomic::{AtomicUsize, Ordering};

use pinrail_core::{Extent, Memory, StableMemory};

/// Pages of any kind, unmapped at the end. They may not be readable: bytes of a [`Memory`] are copied by system calls, which
/// then fail, and no reference to them is made.
struct Pages(Extent);

// SAFETY: the range is this value's until it is dropped, and no reference into it is ever made; see above for the rest.
unsafe impl StableMemory for Pages {
    fn extent(&self) -> Extent {
        self.0
    }
}

impl Drop for Pages {
    fn drop(&mut self) {
        let start = std::ptr::with_exposed_provenance_mut(usize::try_from(self.0.start()).expect("it is an address"));
        // SAFETY: the pages are this value's alone, and nothing refers to them.
        unsafe { libc::munmap(start, usize::try_from(self.0.len()).expect("it was mapped")) };
    }
}

fn map(len: u64, protection: i32, flags: i32, file: Option<&File>) -> io::Result<Memory> {
    let size = usize::try_from(len).expect("tests map less than the address space");
    // SAFETY: a new mapping, where the kernel chooses.
    let start = unsafe { libc::mmap(std::ptr::null_mut(), size, protection, flags, file.map_or(-1, AsRawFd::as_raw_fd), 0) };
    if start == libc::MAP_FAILED {
        return Err(io::Error::last_os_error());
    }
    let extent = Extent::new(start.expose_provenance() as u64, len).expect("a mapping has a length and does not wrap");
    Ok(Memory::new(Pages(extent)))
}

const RW: i32 = libc::PROT_READ | libc::PROT_WRITE;
const ANONYMOUS: i32 = libc::MAP_PRIVATE | libc::MAP_ANONYMOUS;

/// Pages that may not be touched (PROT_NONE).
///
/// # Errors
/// Where the kernel refuses.
pub fn no_access(len: u64) -> io::Result<Memory> {
    map(len, libc::PROT_NONE, ANONYMOUS, None)
}

/// Pages that may be read only.
///
/// # Errors
/// Where the kernel refuses.
pub fn read_only(len: u64) -> io::Result<Memory> {
    map(len, libc::PROT_READ, ANONYMOUS, None)
}

/// Five pages of 4 KiB of which the third and the fourth are not mapped, and the offset of that hole.
///
/// They lie far from where the kernel puts mappings by itself, so that no thread's stack comes to lie in the hole, and
/// outside what AddressSanitizer keeps; each five in a place of their own.
///
/// # Errors
/// Where the kernel refuses.
pub fn with_hole() -> io::Result<(Memory, u64)> {
    const PAGE: usize = 4096;
    static NEXT: AtomicUsize = AtomicUsize::new(0x2000_0000_0000);
    let start = NEXT.fetch_add(8 * PAGE, Ordering::Relaxed);
    let page = |nth| std::ptr::with_exposed_provenance_mut(start + nth * PAGE);
    // SAFETY: a new mapping, where nothing is mapped.
    let made = unsafe { libc::mmap(page(0), 5 * PAGE, RW, ANONYMOUS | libc::MAP_FIXED_NOREPLACE, -1, 0) };
    if made == libc::MAP_FAILED {
        return Err(io::Error::last_os_error());
    }
    let extent = Extent::new(start as u64, 5 * PAGE as u64).expect("five pages do not wrap");
    let memory = Memory::new(Pages(extent));
    // SAFETY: pages of ours that nobody refers to.
    if unsafe { libc::munmap(page(2), 2 * PAGE) } != 0 {
        return Err(io::Error::last_os_error());
    }
    Ok((memory, 2 * PAGE as u64))
}

/// Anonymous memory that processes share.
///
/// # Errors
/// Where the kernel refuses.
pub fn shared(len: u64) -> io::Result<Memory> {
    map(len, RW, libc::MAP_SHARED | libc::MAP_ANONYMOUS, None)
}

/// Huge pages of 2 MiB that the pool has promised nobody: where it has none, touching them is a SIGBUS.
///
/// # Errors
/// Where the kernel has no such pages.
pub fn huge_unreserved(len: u64) -> io::Result<Memory> {
    map(len, RW, ANONYMOUS | libc::MAP_HUGETLB | libc::MAP_HUGE_2MB | libc::MAP_NORESERVE, None)
}

/// The first bytes of a file, shared with it or private. The file may be shorter: touching what it does not have is a SIGBUS.
///
/// # Errors
/// Where the kernel refuses.
pub fn of_file(file: &File, len: u64, shared: bool) -> io::Result<Memory> {
    map(len, RW, if shared { libc::MAP_SHARED } else { libc::MAP_PRIVATE }, Some(file))
}

/// A file in memory (memfd).
///
/// # Errors
/// Where the kernel refuses.
pub fn memory_file() -> io::Result<File> {
    // SAFETY: the name is a C string.
    let fd = unsafe { libc::memfd_create(c"pinrail-test".as_ptr(), libc::MFD_CLOEXEC) };
    if fd < 0 {
        return Err(io::Error::last_os_error());
    }
    // SAFETY: just opened, and known to nobody else.
    Ok(File::from(unsafe { OwnedFd::from_raw_fd(fd) }))
}

/// Whether `child` answered true in a forked child, which runs nothing else and no destructor. Of what other threads hold
/// in the moment of the fork it may need nothing: it makes system calls and comparisons.
///
/// # Errors
/// Where no child can be had.
pub fn in_a_fork(child: impl FnOnce() -> bool) -> io::Result<bool> {
    // SAFETY: the child keeps to what is said above, and ends without running any destructor.
    match unsafe { libc::fork() } {
        -1 => Err(io::Error::last_os_error()),
        0 => {
            let answer = child();
            // SAFETY: ends the process.
            unsafe { libc::_exit(i32::from(!answer)) }
        }
        id => {
            let mut status = 0;
            // SAFETY: the child is ours and not waited for yet; the status is written to.
            if unsafe { libc::waitpid(id, &raw mut status, 0) } != id {
                return Err(io::Error::last_os_error());
            }
            Ok(libc::WIFEXITED(status) && libc::WEXITSTATUS(status) == 0)
        }
    }
}
