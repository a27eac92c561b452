//! Memory that cannot be registered, and that it is said why.

use std::fs::File;
use std::os::fd::{AsRawFd, FromRawFd, OwnedFd};
use std::ptr::NonNull;
use std::sync::Arc;

use pinrail_core::{Access, Cause, Chunk, ErrorKind, Extent, Memory, RailId, RegisterError, Registrar, Source, StableMemory};
use pinrail_memory::{Mapping, Pages};

use crate::support::{PAGE, alone, pages, register, rings, skipped};

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

fn map(at: u64, len: u64, protection: i32, flags: i32, file: Option<&File>) -> u64 {
    let fd = file.map_or(-1, AsRawFd::as_raw_fd);
    // SAFETY: a new mapping, or with MAP_FIXED one over pages that the caller has reserved.
    let start = unsafe { libc::mmap(pointer(at), size(len), protection, flags, fd, 0) };
    assert_ne!(start, libc::MAP_FAILED, "{}", std::io::Error::last_os_error());
    start.expose_provenance() as u64
}

fn unmap(start: u64, len: u64) {
    // SAFETY: the pages are the caller's, and nothing refers to them.
    assert_eq!(unsafe { libc::munmap(pointer(start), size(len)) }, 0);
}

pub(crate) fn protect(start: u64, len: u64, protection: i32) {
    // SAFETY: the pages are the caller's, and nothing refers to them.
    assert_eq!(unsafe { libc::mprotect(pointer(start), size(len), protection) }, 0);
}

/// Far from where the kernel puts mappings by itself, on every 64-bit machine.
const AFAR: u64 = 0x20_0000_0000;

const RW: i32 = libc::PROT_READ | libc::PROT_WRITE;

/// `n` anonymous pages, and what `change` does to them.
pub(crate) fn mapped(n: u64, change: impl FnOnce(u64)) -> Memory {
    let start = map(0, n * PAGE, RW, libc::MAP_PRIVATE | libc::MAP_ANONYMOUS, None);
    change(start);
    Memory::new(Pieces(Extent::new(start, n * PAGE).unwrap()))
}

/// Pages that show a file of `n` pages.
fn shown(n: u64, flags: i32, file: &File) -> Memory {
    file.set_len(n * PAGE).unwrap();
    let start = map(0, n * PAGE, RW, flags, Some(file));
    Memory::new(Pieces(Extent::new(start, n * PAGE).unwrap()))
}

fn memory_file() -> File {
    // SAFETY: the name is a C string.
    let fd = unsafe { libc::memfd_create(c"test".as_ptr(), libc::MFD_CLOEXEC) };
    assert!(fd >= 0);
    // SAFETY: just opened, and known to nobody else.
    File::from(unsafe { OwnedFd::from_raw_fd(fd) })
}

/// A file on a real file system: where tests are built there is one. It has no name any more.
fn disk_file() -> File {
    let path = std::env::current_exe().unwrap().with_extension("pages");
    let file = File::options().read(true).write(true).create(true).truncate(true).open(&path).unwrap();
    std::fs::remove_file(path).unwrap();
    file
}

fn refused(memory: &Memory) -> RegisterError {
    let uring = rings(1);
    register(&uring, 0, memory, 0..memory.len()).unwrap_err()
}

/// Five pages of which the third and the fourth are not mapped; one such memory at a time.
pub(crate) fn with_hole() -> Memory {
    // Where no thread's stack or heap will be put into the hole.
    let start = map(AFAR, 5 * PAGE, RW, libc::MAP_PRIVATE | libc::MAP_ANONYMOUS | libc::MAP_FIXED_NOREPLACE, None);
    assert_eq!(start, AFAR);
    unmap(start + 2 * PAGE, 2 * PAGE);
    Memory::new(Pieces(Extent::new(start, 5 * PAGE).unwrap()))
}

#[test]
fn a_hole_is_named_by_its_first_address() {
    let _alone = alone();
    let memory = with_hole();
    let error = refused(&memory);
    assert_eq!(error.cause, Cause::Unmapped { address: memory.extent().start() + 2 * PAGE });
    assert_eq!((error.errno, error.diagnosis().kind), (Some(libc::EFAULT), ErrorKind::Unmapped));
}

#[test]
fn protections_are_named_as_maps_writes_them() {
    let _alone = alone();
    for (protection, text) in [(libc::PROT_READ, "r--p"), (libc::PROT_NONE, "---p")] {
        let memory = mapped(3, |start| protect(start + PAGE, PAGE, protection));
        let error = refused(&memory);
        let Cause::Protection { address, protection, needs } = &error.cause else { panic!("{error}") };
        assert_eq!((*address, protection.as_str()), (memory.extent().start() + PAGE, text));
        assert!(needs.contains("io_uring pins for writing"), "{needs}");
        assert_eq!(error.diagnosis().kind, ErrorKind::Protection);
    }
}

#[test]
fn read_only_memory_is_refused_even_for_reading() {
    let _alone = alone();
    let (uring, memory) = (rings(1), mapped(1, |start| protect(start, PAGE, libc::PROT_READ)));
    let chunk = Chunk { memory: &memory, range: 0..PAGE, access: Access::REMOTE_READ, source: &Source::Address };
    let error = uring.register(RailId(0), &chunk).unwrap_err();
    assert_eq!(error.diagnosis().kind, ErrorKind::Protection, "{error}");
}

#[test]
fn of_files_only_a_shared_mapping_is_refused() {
    let _alone = alone();
    let uring = rings(1);
    let file = disk_file();
    let shared = shown(2, libc::MAP_SHARED, &file);
    let error = register(&uring, 0, &shared, 100..2 * PAGE).unwrap_err();
    let Cause::Protection { address, protection, needs } = &error.cause else { panic!("{error}") };
    assert_eq!((*address, protection.as_str()), (shared.extent().start() + 100, "rw-s"));
    assert!(needs.contains("shared mapping of a file"), "{needs}");

    for good in [shown(2, libc::MAP_PRIVATE, &file), shown(2, libc::MAP_SHARED, &memory_file())] {
        let mut mr = register(&uring, 0, &good, 0..2 * PAGE).unwrap();
        uring.deregister(&mut mr).unwrap();
    }
}

#[test]
fn what_the_kernel_would_only_call_a_fault_is_told_before_the_call() {
    let _alone = alone();
    let (uring, memory) = (rings(1), pages(2));
    let told = |range| register(&uring, 0, &memory, range).unwrap_err();
    for (range, kind) in
        [(PAGE..PAGE, ErrorKind::ZeroLength), (0..2 * PAGE + 1, ErrorKind::Batch), (u64::MAX - PAGE..u64::MAX, ErrorKind::Batch)]
    {
        let error = told(range.clone());
        assert_eq!((error.errno, error.diagnosis().kind), (None, kind), "{range:?}: {error}");
    }
    let imagined = Memory::imagined(memory.extent().start(), PAGE).unwrap();
    let error = register(&uring, 0, &imagined, 0..PAGE).unwrap_err();
    assert_eq!((error.errno, error.diagnosis().kind), (None, ErrorKind::NotSupported), "{error}");
    let source = Source::DmaBuf { fd: Arc::new(memory_file().into()), offset: 0 };
    let chunk = Chunk { memory: &memory, range: 0..PAGE, access: Access::FULL, source: &source };
    let error = uring.register(RailId(0), &chunk).unwrap_err();
    assert_eq!((error.errno, error.diagnosis().kind), (None, ErrorKind::NotSupported), "{error}");
}

#[test]
fn memory_at_the_very_end_of_the_address_space_is_only_unmapped() {
    let _alone = alone();
    // SAFETY: not kept: nothing is mapped there. Nothing here copies, and the registration is refused.
    let memory = unsafe { Memory::from_raw(NonNull::new(pointer(u64::MAX - PAGE + 1).cast()).unwrap(), PAGE - 1) }.unwrap();
    let error = refused(&memory);
    assert!(matches!(error.cause, Cause::Unmapped { .. } | Cause::Other { .. }), "{error}");
}

/// The figure's source: the kernel takes 1 GiB and refuses a page more with `EFAULT`. Two MiB shown 513 times.
#[test]
fn one_gib_is_the_kernels_limit_too() {
    const GIB: u64 = 1 << 30;
    const PIECE: u64 = 2 << 20;
    let _alone = alone();
    if crate::support::memlock_forbids(GIB) {
        return;
    }
    let file = memory_file();
    file.set_len(PIECE).unwrap();
    let start = map(0, GIB + PIECE, libc::PROT_NONE, libc::MAP_PRIVATE | libc::MAP_ANONYMOUS, None);
    for nth in 0..=GIB / PIECE {
        map(start + nth * PIECE, PIECE, RW, libc::MAP_SHARED | libc::MAP_FIXED, Some(&file));
    }
    let memory = Memory::new(Pieces(Extent::new(start, GIB + PIECE).unwrap()));
    let (uring, before) = (rings(1), crate::support::pinned_bytes());
    let error = register(&uring, 0, &memory, 0..GIB + 1).unwrap_err();
    assert_eq!(error.cause, Cause::MrSize { limit: GIB, need: GIB + 1 });

    let update = |len: u64| {
        let vector = libc::iovec { iov_base: pointer(start), iov_len: size(len) };
        // The fields of struct io_uring_rsrc_update2: offset and resv, data, tags, nr and resv2; then its size.
        let arg = [0u64, (&raw const vector).expose_provenance() as u64, 0, 1];
        let ring = uring.ring(RailId(0)).unwrap().as_raw_fd();
        // SAFETY: the kernel reads the structure and the vector, which live until the call returns.
        let updated = unsafe { libc::syscall(libc::SYS_io_uring_register, ring, 16, arg.as_ptr(), size_of_val(&arg)) };
        if updated == 1 { Ok(()) } else { Err(std::io::Error::last_os_error().raw_os_error().unwrap()) }
    };
    assert_eq!(update(GIB + PAGE), Err(libc::EFAULT));

    let mut mr = register(&uring, 0, &memory, 0..GIB).unwrap();
    assert_eq!(crate::support::pinned_bytes() - before, GIB);
    uring.deregister(&mut mr).unwrap();
    assert_eq!(crate::support::pinned_bytes(), before);
}

#[test]
fn huge_pages_are_pinned_whole() {
    let _alone = alone();
    if crate::support::memlock_forbids(4 << 20) {
        return;
    }
    let memory = Memory::new(Mapping::anonymous(4 << 20, Pages::Transparent, None).unwrap());
    memory.write_at(0, &[1]).unwrap();
    let start = memory.extent().start();
    let behind = pinrail_memory::page_size_behind(Extent::new(start, PAGE).unwrap()).unwrap();
    if behind.transparent_bytes == 0 {
        skipped("no transparent huge page could be had");
        return;
    }
    let (uring, before) = (rings(1), crate::support::pinned_bytes());
    let mut mr = register(&uring, 0, &memory, 0..320).unwrap();
    assert_eq!(crate::support::pinned_bytes() - before, 2 << 20);
    uring.deregister(&mut mr).unwrap();
    assert_eq!(crate::support::pinned_bytes(), before);
}
