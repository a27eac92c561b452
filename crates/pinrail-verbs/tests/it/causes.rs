//! Memory that cannot be registered, and that it is said why.

use std::os::fd::{FromRawFd, OwnedFd};
use std::sync::Arc;

use pinrail_core::{
    Access, Cause, Chunk, DevicePath, ErrorKind, Extent, Memory, RailId, RegisterError, Registrar, Source, StableMemory,
};
use pinrail_verbs::Verbs;

use crate::support::{PAGE, alone, chunk, every_rail, ids, pages, register};

/// Pages of any kind, unmapped at the end. What is done to them may break `StableMemory`'s promise that they are mapped:
/// nothing here copies from where they are not.
struct Pieces(Extent);

// SAFETY: the range is reserved until `drop`, and no reference into it is ever made; see above for the rest.
unsafe impl StableMemory for Pieces {
    fn extent(&self) -> Extent {
        self.0
    }
}

impl Drop for Pieces {
    fn drop(&mut self) {
        unmap(self.0.start(), self.0.len());
    }
}

fn pointer(address: u64) -> *mut libc::c_void {
    std::ptr::with_exposed_provenance_mut(usize::try_from(address).unwrap())
}

fn size(len: u64) -> usize {
    usize::try_from(len).unwrap()
}

/// At an address, which nothing may have yet, or where the kernel likes.
fn map(at: u64, n: u64) -> u64 {
    let place = if at == 0 { 0 } else { libc::MAP_FIXED_NOREPLACE };
    let (protection, flags) = (libc::PROT_READ | libc::PROT_WRITE, libc::MAP_PRIVATE | libc::MAP_ANONYMOUS | place);
    // SAFETY: a new mapping, where nothing is mapped.
    let start = unsafe { libc::mmap(pointer(at), size(n * PAGE), protection, flags, -1, 0) };
    assert_ne!(start, libc::MAP_FAILED, "{}", std::io::Error::last_os_error());
    start.expose_provenance() as u64
}

fn unmap(start: u64, len: u64) {
    // SAFETY: the pages are the caller's, and nothing refers to them.
    assert_eq!(unsafe { libc::munmap(pointer(start), size(len)) }, 0);
}

fn protect(start: u64, len: u64, protection: i32) {
    // SAFETY: the pages are the caller's, and nothing refers to them.
    assert_eq!(unsafe { libc::mprotect(pointer(start), size(len), protection) }, 0);
}

/// Far from where the kernel puts mappings by itself, on every 64-bit machine.
const AFAR: u64 = 0x20_0000_0000;

/// `n` anonymous pages, and what `change` does to them.
fn mapped(at: u64, n: u64, change: impl FnOnce(u64)) -> Memory {
    let start = map(at, n);
    change(start);
    Memory::new(Pieces(Extent::new(start, n * PAGE).unwrap()))
}

/// Five pages with a hole of two, and where the hole begins. There is one at a time: it lies where no thread's stack or
/// heap will be put into it.
pub(crate) fn with_hole() -> (Memory, u64) {
    (mapped(AFAR, 5, |start| unmap(start + 2 * PAGE, 2 * PAGE)), 2 * PAGE)
}

/// A descriptor that is no dma-buf.
pub(crate) fn memory_file() -> Arc<OwnedFd> {
    // SAFETY: the name is a C string.
    let fd = unsafe { libc::memfd_create(c"test".as_ptr(), libc::MFD_CLOEXEC) };
    assert!(fd >= 0);
    // SAFETY: just opened, and known to nobody else.
    Arc::new(unsafe { OwnedFd::from_raw_fd(fd) })
}

/// Three pages, the middle one read-only.
pub(crate) fn read_only_in_the_middle() -> Memory {
    mapped(0, 3, |start| protect(start + PAGE, PAGE, libc::PROT_READ))
}

/// One page that may only be read.
pub(crate) fn read_only() -> Memory {
    mapped(0, 1, |start| protect(start, PAGE, libc::PROT_READ))
}

fn refused(verbs: &Verbs, rail: RailId, memory: &Memory, access: Access) -> RegisterError {
    verbs.register(rail, &Chunk { access, ..chunk(memory, 0..memory.len()) }).unwrap_err()
}

#[test]
fn a_hole_is_named_by_its_first_address() {
    let _alone = alone();
    let Some(verbs) = every_rail() else { return };
    let (memory, hole) = with_hole();
    for rail in ids(&verbs) {
        let error = refused(&verbs, rail, &memory, Access::FULL);
        assert_eq!(error.cause, Cause::Unmapped { address: memory.extent().start() + hole });
        assert_eq!((error.api, error.errno, error.diagnosis().kind), ("ibv_reg_mr", Some(libc::EFAULT), ErrorKind::Unmapped));
    }
}

#[test]
fn read_only_memory_is_registered_for_reading_and_refused_for_writing() {
    let _alone = alone();
    let Some(verbs) = every_rail() else { return };
    let memory = read_only_in_the_middle();
    for rail in ids(&verbs) {
        for access in [Access::FULL, Access::LOCAL_WRITE, Access::REMOTE_WRITE] {
            let error = refused(&verbs, rail, &memory, access);
            let Cause::Protection { address, protection, .. } = &error.cause else { panic!("{error}") };
            assert_eq!((*address, protection.as_str()), (memory.extent().start() + PAGE, "r--p"));
            assert_eq!(error.errno, Some(libc::EFAULT));
        }
        for access in [Access::REMOTE_READ, Access::empty()] {
            let mut mr = verbs.register(rail, &Chunk { access, ..chunk(&memory, 0..memory.len()) }).unwrap();
            verbs.deregister(&mut mr).unwrap();
        }
    }
}

#[test]
fn what_is_certainly_wrong_is_told_before_the_call() {
    let _alone = alone();
    let Some(verbs) = every_rail() else { return };
    let memory = pages(2);
    let imagined = Memory::imagined(memory.extent().start(), PAGE).unwrap();
    for rail in ids(&verbs) {
        let told = |memory, range| {
            let error = register(&verbs, rail, memory, range).unwrap_err();
            assert_eq!(error.errno, None, "{error}");
            error.diagnosis().kind
        };
        assert_eq!(told(&memory, PAGE..PAGE), ErrorKind::ZeroLength);
        assert_eq!(told(&memory, 0..2 * PAGE + 1), ErrorKind::Batch);
        assert_eq!(told(&imagined, 0..PAGE), ErrorKind::NotSupported);
    }
    let error = register(&verbs, RailId(99), &memory, 0..PAGE).unwrap_err();
    assert!(error.to_string().contains("there is no rail 99"), "{error}");
}

#[test]
fn a_device_without_dma_bufs_says_so() {
    let _alone = alone();
    let Some(verbs) = every_rail() else { return };
    let (memory, source) = (pages(1), Source::DmaBuf { fd: memory_file(), offset: 0 });
    for rail in ids(&verbs).filter(|rail| verbs.rails()[rail.index()].device == DevicePath::Unknown) {
        let error = verbs.register(rail, &Chunk { source: &source, ..chunk(&memory, 0..PAGE) }).unwrap_err();
        assert_eq!((error.api, error.errno), ("ibv_reg_dmabuf_mr", Some(libc::EOPNOTSUPP)));
        assert_eq!(error.diagnosis().kind, ErrorKind::NotSupported);
    }
}
