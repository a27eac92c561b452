//! The system calls of this crate that have no safe wrapper: two operations of `io_uring_register(2)`, and a memfd.
//!
//! The io-uring crate's `register_buffers_update` throws the kernel's count away and wants a ring that the crate itself
//! has set up; a caller's ring is only a descriptor. So both operations are made here, and the count is looked at.

use std::fs::File;
use std::io;
use std::mem::MaybeUninit;
use std::os::fd::{AsRawFd, BorrowedFd, FromRawFd, OwnedFd};

use pinrail_core::Extent;

/// `IORING_REGISTER_BUFFERS2`, since Linux 5.13.
const REGISTER_BUFFERS2: libc::c_uint = 15;
/// `IORING_REGISTER_BUFFERS_UPDATE`, since Linux 5.13.
const REGISTER_BUFFERS_UPDATE: libc::c_uint = 16;

/// `struct io_uring_rsrc_register` of linux/io_uring.h.
#[repr(C)]
struct RsrcRegister {
    nr: u32,
    flags: u32,
    resv2: u64,
    data: u64,
    tags: u64,
}

/// `struct io_uring_rsrc_update2` of linux/io_uring.h.
#[repr(C)]
struct RsrcUpdate2 {
    offset: u32,
    resv: u32,
    data: u64,
    tags: u64,
    nr: u32,
    resv2: u32,
}

const EMPTY: libc::iovec = libc::iovec { iov_base: std::ptr::null_mut(), iov_len: 0 };

/// Gives the ring a buffer table of `slots` empty slots.
///
/// By empty vectors, which Linux 5.13 understands; the flag for a sparse table came with 5.19.
pub(crate) fn register_table(ring: BorrowedFd<'_>, slots: u32) -> io::Result<()> {
    let vectors = vec![EMPTY; slots as usize];
    let arg = RsrcRegister { nr: slots, flags: 0, resv2: 0, data: vectors.as_ptr().expose_provenance() as u64, tags: 0 };
    register(ring, REGISTER_BUFFERS2, &arg).map(drop)
}

/// Puts the range into a slot, which pins its pages, or empties the slot.
pub(crate) fn update_slot(ring: BorrowedFd<'_>, slot: u32, range: Option<Extent>) -> io::Result<()> {
    let vector = match range {
        Some(extent) => libc::iovec {
            iov_base: std::ptr::with_exposed_provenance_mut(to_usize(extent.start())),
            iov_len: to_usize(extent.len()),
        },
        None => EMPTY,
    };
    let data = (&raw const vector).expose_provenance() as u64;
    let arg = RsrcUpdate2 { offset: slot, resv: 0, data, tags: 0, nr: 1, resv2: 0 };
    match register(ring, REGISTER_BUFFERS_UPDATE, &arg)? {
        1 => Ok(()),
        updated => Err(io::Error::other(format!("the kernel reports {updated} updated slots where one was asked for"))),
    }
}

fn to_usize(n: u64) -> usize {
    usize::try_from(n).expect("the crate builds for 64 bits only")
}

/// Both operations take the size of their argument where older ones take a count.
fn register<T>(ring: BorrowedFd<'_>, operation: libc::c_uint, arg: &T) -> io::Result<libc::c_long> {
    // SAFETY: `arg` is the structure that `operation` takes, `size_of::<T>()` its size, and the vectors it points to live
    // in our callers' frames until we return. The kernel only reads them. It reads and writes no byte of the ranges they
    // name: it pins the pages, and answers with an error where it cannot.
    let result = unsafe {
        libc::syscall(libc::SYS_io_uring_register, ring.as_raw_fd(), operation, std::ptr::from_ref(arg), size_of::<T>())
    };
    if result < 0 { Err(io::Error::last_os_error()) } else { Ok(result) }
}

/// A file that is only memory, for the bytes on their way through a ring.
pub(crate) fn memory_file() -> io::Result<File> {
    // SAFETY: the name is a C string, and nothing else is handed over.
    let fd = unsafe { libc::memfd_create(c"pinrail-move".as_ptr(), libc::MFD_CLOEXEC) };
    if fd < 0 {
        return Err(io::Error::last_os_error());
    }
    // SAFETY: the call has just opened this descriptor, and nobody else knows it.
    Ok(File::from(unsafe { OwnedFd::from_raw_fd(fd) }))
}

/// The kernel's release, `6.1.0-18-amd64`; empty if it will not say.
pub(crate) fn kernel_release() -> String {
    let mut name = MaybeUninit::<libc::utsname>::zeroed();
    // SAFETY: `name` is valid for writes of the structure.
    let failed = unsafe { libc::uname(name.as_mut_ptr()) } != 0;
    if failed {
        return String::new();
    }
    // SAFETY: all its fields are arrays of characters, for which zeroes are valid too.
    let name = unsafe { name.assume_init() };
    name.release.iter().take_while(|&&c| c != 0).map(|&c| char::from(c.cast_unsigned())).collect()
}

/// The soft limit on open descriptors.
pub(crate) fn descriptors_max() -> Option<u64> {
    let mut limit = libc::rlimit { rlim_cur: 0, rlim_max: 0 };
    // SAFETY: `limit` is valid for writes of the structure.
    let failed = unsafe { libc::getrlimit(libc::RLIMIT_NOFILE, &raw mut limit) } != 0;
    (!failed).then_some(limit.rlim_cur)
}

/// Bytes of a base page.
pub(crate) fn page_size() -> u64 {
    // SAFETY: sysconf has no preconditions.
    let bytes = unsafe { libc::sysconf(libc::_SC_PAGESIZE) };
    u64::try_from(bytes).unwrap_or(4096)
}
