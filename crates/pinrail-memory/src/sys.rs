//! Every system call of the crate, each with its safety argument; the rest of the crate is safe code on top.
//!
//! Addresses are `u64` and lengths bytes, as everywhere in Pinrail. What is safe to call from outside of this room can
//! at worst be refused by the kernel: no function here reads or writes the bytes of memory that it does not own.

use std::ffi::CString;
use std::io;
use std::mem::MaybeUninit;
use std::os::fd::{AsRawFd, BorrowedFd};
use std::os::unix::ffi::OsStrExt;
use std::path::Path;
use std::ptr;
use std::sync::OnceLock;

use libc::{c_int, c_long, c_ulong, c_void};
use pinrail_core::Extent;

/// A 64-bit quantity as the machine word it is here.
#[allow(clippy::cast_possible_truncation, reason = "the crate refuses to build where a word has not 64 bits")]
pub(crate) const fn word(x: u64) -> usize {
    x as usize
}

fn at(address: u64) -> *mut c_void {
    ptr::with_exposed_provenance_mut(word(address))
}

fn check(rc: c_int) -> io::Result<()> {
    if rc == 0 { Ok(()) } else { Err(io::Error::last_os_error()) }
}

/// Bytes of the system's base page: 4096 on x86.
pub(crate) fn base_page() -> u64 {
    static BYTES: OnceLock<u64> = OnceLock::new();
    *BYTES.get_or_init(|| {
        // SAFETY: sysconf has no preconditions.
        let bytes = unsafe { libc::sysconf(libc::_SC_PAGESIZE) };
        u64::try_from(bytes).ok().filter(|bytes| bytes.is_power_of_two()).unwrap_or(4096)
    })
}

/// The addresses of the whole pages that a range touches.
pub(crate) fn whole_pages(extent: Extent) -> (u64, u64) {
    let page = base_page();
    // Only the last page of the address space has no address behind it. No memory lies there, nor in the page before.
    let end = extent.end().checked_next_multiple_of(page).unwrap_or(u64::MAX / page * page);
    (extent.start().min(end - page) / page * page, end)
}

/// Takes `len` bytes of address space that nothing can touch and nothing else will be placed in.
pub(crate) fn reserve(len: u64) -> io::Result<u64> {
    let flags = libc::MAP_PRIVATE | libc::MAP_ANONYMOUS;
    // SAFETY: a new anonymous mapping at an address of the kernel's choice replaces nothing.
    let address = unsafe { libc::mmap(ptr::null_mut(), word(len), libc::PROT_NONE, flags, -1, 0) };
    if address == libc::MAP_FAILED { Err(io::Error::last_os_error()) } else { Ok(address.expose_provenance() as u64) }
}

/// Makes reserved address space readable and writable memory, which counts as committed from then on.
///
/// # Safety
/// The caller owns the range, and no reference says that it holds nothing.
pub(crate) unsafe fn allow(address: u64, len: u64) -> io::Result<()> {
    // SAFETY: the caller owns the range; a failure leaves it mapped.
    check(unsafe { libc::mprotect(at(address), word(len), libc::PROT_READ | libc::PROT_WRITE) })
}

/// Maps `len` bytes of huge pages of `page_size` bytes where nothing is mapped yet; `EEXIST` where something is.
pub(crate) fn map_huge(address: u64, len: u64, page_size: u64) -> io::Result<()> {
    let size = page_size.trailing_zeros().cast_signed() << libc::MAP_HUGE_SHIFT;
    let flags = libc::MAP_PRIVATE | libc::MAP_ANONYMOUS | libc::MAP_FIXED_NOREPLACE | libc::MAP_HUGETLB | size;
    // SAFETY: a new anonymous mapping that replaces nothing.
    let got = unsafe { libc::mmap(at(address), word(len), libc::PROT_READ | libc::PROT_WRITE, flags, -1, 0) };
    if got == libc::MAP_FAILED {
        return Err(io::Error::last_os_error());
    }
    let got = got.expose_provenance() as u64;
    if got == address {
        return Ok(());
    }
    // Before Linux 4.17 the flag was unknown and the address a wish.
    // SAFETY: the mapping was made in this call and nobody knows of it.
    unsafe { unmap(got, len) }?;
    Err(io::Error::from_raw_os_error(libc::EEXIST))
}

/// Gives a range of the address space back.
///
/// # Safety
/// The caller owns the range and nothing uses it any more.
pub(crate) unsafe fn unmap(address: u64, len: u64) -> io::Result<()> {
    // SAFETY: as our caller promised.
    check(unsafe { libc::munmap(at(address), word(len)) })
}

/// Advice that changes how pages come to be, never what they hold.
#[derive(Clone, Copy, PartialEq, Eq)]
pub(crate) enum Advice {
    HugePages,
    NoHugePages,
    PopulateRead,
    PopulateWrite,
}

/// Gives one of the harmless advices; the range must begin on a page.
pub(crate) fn advise(address: u64, len: u64, advice: Advice) -> io::Result<()> {
    let advice = match advice {
        Advice::HugePages => libc::MADV_HUGEPAGE,
        Advice::NoHugePages => libc::MADV_NOHUGEPAGE,
        Advice::PopulateRead => libc::MADV_POPULATE_READ,
        Advice::PopulateWrite => libc::MADV_POPULATE_WRITE,
    };
    // SAFETY: none of the four changes the contents of memory or unmaps it; a range that is not mapped is an error.
    check(unsafe { libc::madvise(at(address), word(len), advice) })
}

/// True since Linux 5.14. An advice the kernel does not know is refused even for an empty range.
pub(crate) fn can_populate() -> bool {
    advise(0, 0, Advice::PopulateWrite).is_ok()
}

/// Locks the pages of a range, which makes them resident.
pub(crate) fn lock(address: u64, len: u64) -> io::Result<()> {
    // SAFETY: locking changes no contents; a range that is not mapped is an error.
    check(unsafe { libc::mlock(at(address), word(len)) })
}

/// Unlocks the pages of a range.
pub(crate) fn unlock(address: u64, len: u64) -> io::Result<()> {
    // SAFETY: unlocking changes no contents.
    check(unsafe { libc::munlock(at(address), word(len)) })
}

/// For each page from `address` on, whether a page is there (bit 0). The shared zero page counts as there.
pub(crate) fn in_core(address: u64, pages: &mut [u8]) -> io::Result<()> {
    let len = pages.len() * word(base_page());
    // SAFETY: the kernel writes one byte for each page of the range, and `pages` has that many.
    check(unsafe { libc::mincore(at(address), len, pages.as_mut_ptr()) })
}

/// The node of each page, or a negative errno: `ENOENT` where there is no page, `EFAULT` for the shared zero page and
/// where nothing is mapped.
pub(crate) fn nodes_of(addresses: &[u64], status: &mut [c_int]) -> io::Result<()> {
    assert_eq!(addresses.len(), status.len(), "one answer for each page");
    let pages: Vec<*mut c_void> = addresses.iter().map(|&address| at(address)).collect();
    let (nodes, flags): (*const c_int, c_int) = (ptr::null(), 0);
    // SAFETY: without target nodes the call moves nothing; it reads `pages` and writes as many entries of `status`.
    let rc = unsafe { libc::syscall(libc::SYS_move_pages, 0, pages.len(), pages.as_ptr(), nodes, status.as_mut_ptr(), flags) };
    if rc < 0 { Err(io::Error::last_os_error()) } else { Ok(()) }
}

/// A set of NUMA nodes as the kernel takes it.
pub(crate) type NodeMask = [c_ulong; NODE_WORDS];
const NODE_WORDS: usize = 16;
/// Nodes that a [`NodeMask`] can name; Linux is built for at most this many.
pub(crate) const NODES_MAX: u32 = 1024;

/// The mask of one node, or `None` beyond [`NODES_MAX`].
pub(crate) fn mask_of(node: u32) -> Option<NodeMask> {
    let mut mask = [0; NODE_WORDS];
    *mask.get_mut(node as usize / 64)? |= 1 << (node % 64);
    Some(mask)
}

/// Sets the policy by which the pages of a range will be placed; pages that exist stay where they are.
pub(crate) fn bind(address: u64, len: u64, mode: c_int, mask: &NodeMask) -> io::Result<()> {
    // The kernel reads one bit less than it is told.
    let bits = c_long::from(NODES_MAX) + 1;
    // SAFETY: the policy of a range changes no contents; the kernel reads `NODES_MAX` bits of `mask`, which it has.
    let rc = unsafe { libc::syscall(libc::SYS_mbind, address, len, mode, mask.as_ptr(), bits, 0) };
    if rc < 0 { Err(io::Error::last_os_error()) } else { Ok(()) }
}

/// The calling thread's policy for new pages: mode and nodes.
pub(crate) fn thread_policy() -> io::Result<(c_int, NodeMask)> {
    let (mut mode, mut mask): (c_int, NodeMask) = (0, [0; NODE_WORDS]);
    let bits = c_long::from(NODES_MAX);
    // SAFETY: without flags the kernel writes the mode and at most `NODES_MAX` bits, which `mask` has.
    let rc = unsafe { libc::syscall(libc::SYS_get_mempolicy, &raw mut mode, mask.as_mut_ptr(), bits, 0, 0) };
    if rc < 0 { Err(io::Error::last_os_error()) } else { Ok((mode, mask)) }
}

/// Sets the calling thread's policy for new pages.
pub(crate) fn set_thread_policy(mode: c_int, mask: &NodeMask) -> io::Result<()> {
    let bits = c_long::from(NODES_MAX) + 1;
    // SAFETY: the policy changes no memory; the kernel reads `NODES_MAX` bits of `mask`.
    let rc = unsafe { libc::syscall(libc::SYS_set_mempolicy, mode, mask.as_ptr(), bits) };
    if rc < 0 { Err(io::Error::last_os_error()) } else { Ok(()) }
}

/// Which of a process's limits.
#[derive(Clone, Copy)]
pub(crate) enum Limited {
    Memlock,
    AddressSpace,
    Data,
}

/// Soft and hard limit in bytes; `RLIM_INFINITY` is none.
pub(crate) fn limit(of: Limited) -> io::Result<libc::rlimit> {
    let resource = match of {
        Limited::Memlock => libc::RLIMIT_MEMLOCK,
        Limited::AddressSpace => libc::RLIMIT_AS,
        Limited::Data => libc::RLIMIT_DATA,
    };
    let mut limit = libc::rlimit { rlim_cur: 0, rlim_max: 0 };
    // SAFETY: the kernel writes the one struct it is given.
    check(unsafe { libc::getrlimit(resource, &raw mut limit) })?;
    Ok(limit)
}

/// Sets RLIMIT_MEMLOCK of this process.
pub(crate) fn set_memlock(limit: &libc::rlimit) -> io::Result<()> {
    // SAFETY: the kernel reads the one struct it is given.
    check(unsafe { libc::setrlimit(libc::RLIMIT_MEMLOCK, limit) })
}

/// What `PAGEMAP_SCAN` (Linux 6.7) is asked: `struct pm_scan_arg` of linux/fs.h.
#[repr(C)]
#[derive(Default)]
struct PmScanArg {
    size: u64,
    flags: u64,
    start: u64,
    end: u64,
    walk_end: u64,
    vec: u64,
    vec_len: u64,
    max_pages: u64,
    category_inverted: u64,
    category_mask: u64,
    category_anyof_mask: u64,
    return_mask: u64,
}

/// What it answers: `struct page_region`.
#[repr(C)]
#[derive(Clone, Copy, Default)]
pub(crate) struct PageRegion {
    pub(crate) start: u64,
    pub(crate) end: u64,
    categories: u64,
}

const PAGE_IS_PRESENT: u64 = 1 << 3;
const PAGE_IS_PFNZERO: u64 = 1 << 5;
/// `_IOWR('f', 16, struct pm_scan_arg)`; the encoding is that of every architecture but a few that Pinrail has no NICs on.
#[allow(clippy::cast_possible_truncation, reason = "96 bytes")]
const PAGEMAP_SCAN: c_ulong = (3 << 30) | ((size_of::<PmScanArg>() as c_ulong) << 16) | ((b'f' as c_ulong) << 8) | 16;

/// Fills `regions` with the parts of `start..end` (page boundaries) where a page of the memory's own is mapped: the
/// shared zero page is none. Returns how many it filled and where it stopped.
pub(crate) fn scan_present(
    pagemap: BorrowedFd<'_>,
    start: u64,
    end: u64,
    regions: &mut [PageRegion],
) -> io::Result<(usize, u64)> {
    let mut arg = PmScanArg {
        size: size_of::<PmScanArg>() as u64,
        start,
        end,
        vec: regions.as_mut_ptr().expose_provenance() as u64,
        vec_len: regions.len() as u64,
        category_inverted: PAGE_IS_PFNZERO,
        category_mask: PAGE_IS_PRESENT | PAGE_IS_PFNZERO,
        return_mask: PAGE_IS_PRESENT,
        ..PmScanArg::default()
    };
    // SAFETY: the kernel reads and writes `arg`, and writes at most `vec_len` entries at `vec`, which `regions` has.
    let filled = unsafe { libc::ioctl(pagemap.as_raw_fd(), PAGEMAP_SCAN, &raw mut arg) };
    match usize::try_from(filled) {
        Ok(filled) => Ok((filled, arg.walk_end)),
        Err(_) => Err(io::Error::last_os_error()),
    }
}

/// The file system that a path lies on: its type (`TMPFS_MAGIC` and the like) and its free space.
pub(crate) fn file_system(path: &Path) -> io::Result<libc::statfs> {
    let path = CString::new(path.as_os_str().as_bytes())?;
    let mut found = MaybeUninit::<libc::statfs>::zeroed();
    // SAFETY: `path` is a C string and the kernel writes the one struct.
    check(unsafe { libc::statfs(path.as_ptr(), found.as_mut_ptr()) })?;
    // SAFETY: all bits zero are a valid value, and the call has filled it in.
    Ok(unsafe { found.assume_init() })
}
