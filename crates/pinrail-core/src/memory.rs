//! Memory as a value: an address range that stays mapped, copied from and to without ever making a reference to it.
//!
//! While a NIC may write to memory, a `&[u8]` to it would be undefined behaviour in waiting. So a [`Memory`] hands out
//! no slice; [`Memory::read_at`] and [`Memory::write_at`] copy through the kernel (`process_vm_readv(2)` on ourselves,
//! 1.7 us a call), which answers `EFAULT` for an unmapped page instead of raising a signal, and is no data race.

use std::fmt;
use std::io;
use std::ptr::NonNull;
use std::sync::Arc;
use std::sync::atomic::{AtomicU8, Ordering};

use crate::{Extent, ExtentError};

/// Memory that a [`Memory`] may keep: host mappings, a driver's device allocation, another library's pool.
///
/// # Safety
/// The implementor upholds, from construction until `drop` begins:
/// - `extent()` never changes, and every byte of it stays mapped at that address;
/// - for host memory each byte is readable, and writable if a registration with write access is ever asked for;
/// - no `&[u8]` or `&mut [u8]` to these bytes exists while an [`Mr`](crate::Mr) with write access over them lives.
pub unsafe trait StableMemory: Send + Sync + 'static {
    /// Where the memory lies.
    fn extent(&self) -> Extent;

    /// Copies bytes out, from `at` bytes after the start; the range was checked. Device memory overrides this.
    ///
    /// # Errors
    /// What the copy reported, `EFAULT` for a page that cannot be read.
    fn read_at(&self, at: u64, into: &mut [u8]) -> io::Result<()> {
        read_host(self.extent().start() + at, into)
    }

    /// Copies bytes in, to `at` bytes after the start; the range was checked. Device memory overrides this.
    ///
    /// # Errors
    /// What the copy reported, `EFAULT` for a page that cannot be written.
    fn write_at(&self, at: u64, from: &[u8]) -> io::Result<()> {
        write_host(self.extent().start() + at, from)
    }
}

/// One allocation (a mapping, a driver's allocation), cheap to clone; the bytes live as long as the last clone.
#[derive(Clone)]
pub struct Memory(Arc<Inner>);

enum Inner {
    /// Addresses without bytes.
    Imagined(Extent),
    Stable(Extent, Box<dyn StableMemory>),
}

impl Memory {
    /// Takes an allocation over.
    pub fn new(memory: impl StableMemory) -> Memory {
        Memory(Arc::new(Inner::Stable(memory.extent(), Box::new(memory))))
    }

    /// An address range without bytes, for plans and simulations; a real [`Registrar`](crate::Registrar) refuses it.
    ///
    /// # Errors
    /// As [`Extent::new`].
    pub fn imagined(address: u64, len: u64) -> Result<Memory, ExtentError> {
        Ok(Memory(Arc::new(Inner::Imagined(Extent::new(address, len)?))))
    }

    /// Memory the caller owns and frees itself.
    ///
    /// # Errors
    /// As [`Extent::new`].
    ///
    /// # Safety
    /// The `len` bytes at `address` must keep the promises of [`StableMemory`] until the last clone of the returned
    /// value is gone, and that includes the clones that live [`Mr`](crate::Mr)s hold: deregister before freeing.
    pub unsafe fn from_raw(address: NonNull<u8>, len: u64) -> Result<Memory, ExtentError> {
        let extent = Extent::new(address.addr().get() as u64, len)?;
        Ok(Memory::new(Borrowed(extent)))
    }

    /// Where the memory lies.
    #[must_use]
    pub fn extent(&self) -> Extent {
        match *self.0 {
            Inner::Imagined(extent) | Inner::Stable(extent, _) => extent,
        }
    }

    /// Bytes; never zero.
    #[must_use]
    #[allow(clippy::len_without_is_empty, reason = "an extent is never empty")]
    pub fn len(&self) -> u64 {
        self.extent().len()
    }

    /// True for [`Memory::imagined`].
    #[must_use]
    pub fn is_imagined(&self) -> bool {
        matches!(*self.0, Inner::Imagined(_))
    }

    /// True if both are clones of one allocation.
    #[must_use]
    pub fn same(&self, other: &Memory) -> bool {
        Arc::ptr_eq(&self.0, &other.0)
    }

    #[cfg(test)]
    pub(crate) fn clones(&self) -> usize {
        Arc::strong_count(&self.0)
    }

    /// Copies bytes out, from `at` bytes after the start.
    ///
    /// # Errors
    /// `InvalidInput` outside the memory, `Unsupported` for imagined memory, else what the copy reported.
    pub fn read_at(&self, at: u64, into: &mut [u8]) -> io::Result<()> {
        self.bytes(at, into.len())?.read_at(at, into)
    }

    /// Copies bytes in, to `at` bytes after the start.
    ///
    /// # Errors
    /// `InvalidInput` outside the memory, `Unsupported` for imagined memory, else what the copy reported.
    pub fn write_at(&self, at: u64, from: &[u8]) -> io::Result<()> {
        self.bytes(at, from.len())?.write_at(at, from)
    }

    fn bytes(&self, at: u64, len: usize) -> io::Result<&dyn StableMemory> {
        let Inner::Stable(extent, memory) = &*self.0 else {
            return Err(io::Error::new(io::ErrorKind::Unsupported, "imagined memory has no bytes"));
        };
        match at.checked_add(len as u64) {
            Some(end) if end <= extent.len() => Ok(memory.as_ref()),
            _ => Err(io::Error::new(
                io::ErrorKind::InvalidInput,
                format!("{len} bytes at offset {at} are outside the memory of {} bytes", extent.len()),
            )),
        }
    }
}

impl fmt::Debug for Memory {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        write!(f, "Memory({}{})", if self.is_imagined() { "imagined " } else { "" }, self.extent())
    }
}

struct Borrowed(Extent);

// SAFETY: the caller of `Memory::from_raw` promised exactly this trait's conditions for the range.
unsafe impl StableMemory for Borrowed {
    fn extent(&self) -> Extent {
        self.0
    }
}

fn read_host(address: u64, into: &mut [u8]) -> io::Result<()> {
    match copy_by_kernel(address, into.as_mut_ptr(), into.len(), Direction::Out) {
        Err(refused) if is_refusal(&refused) => {
            for (at, byte) in into.iter_mut().enumerate() {
                *byte = atomic(address + at as u64).load(Ordering::Relaxed);
            }
            Ok(())
        }
        done => done,
    }
}

fn write_host(address: u64, from: &[u8]) -> io::Result<()> {
    match copy_by_kernel(address, from.as_ptr().cast_mut(), from.len(), Direction::In) {
        Err(refused) if is_refusal(&refused) => {
            for (at, byte) in from.iter().enumerate() {
                atomic(address + at as u64).store(*byte, Ordering::Relaxed);
            }
            Ok(())
        }
        done => done,
    }
}

#[derive(Clone, Copy)]
enum Direction {
    /// From the memory into `local`, which is written.
    Out,
    /// From `local`, which is only read, into the memory.
    In,
}

/// seccomp profiles of containers refuse the calls as a whole; a bad address is `EFAULT` and not a refusal.
fn is_refusal(error: &io::Error) -> bool {
    matches!(error.raw_os_error(), Some(libc::ENOSYS | libc::EPERM))
}

fn copy_by_kernel(address: u64, local: *mut u8, len: usize, direction: Direction) -> io::Result<()> {
    if cfg!(miri) {
        // The interpreter has no such call: it checks the copies that are made where a kernel refuses.
        return Err(io::Error::from_raw_os_error(libc::ENOSYS));
    }
    let mut done = 0;
    while done < len {
        let ours = libc::iovec { iov_base: local.wrapping_add(done).cast(), iov_len: len - done };
        let theirs = libc::iovec {
            iov_base: std::ptr::with_exposed_provenance_mut(
                usize::try_from(address).map_err(|_| io::ErrorKind::InvalidInput)? + done,
            ),
            iov_len: len - done,
        };
        // SAFETY: getpid has no preconditions.
        let pid = unsafe { libc::getpid() };
        // The kernel reads or writes only the bytes named by the two vectors. `ours` lies inside the slice our caller
        // borrowed (mutably for `Out`); `theirs` is checked by the kernel page by page and reported as EFAULT.
        let moved = match direction {
            // SAFETY: both vectors are valid for the call, as said above.
            Direction::Out => unsafe { libc::process_vm_readv(pid, &raw const ours, 1, &raw const theirs, 1, 0) },
            // SAFETY: both vectors are valid for the call, as said above.
            Direction::In => unsafe { libc::process_vm_writev(pid, &raw const ours, 1, &raw const theirs, 1, 0) },
        };
        match usize::try_from(moved) {
            Ok(0) => return Err(io::Error::from_raw_os_error(libc::EFAULT)),
            // A short count means that a later page failed; the next round says how.
            Ok(moved) => done += moved,
            Err(_) => return Err(io::Error::last_os_error()),
        }
    }
    Ok(())
}

fn atomic(address: u64) -> &'static AtomicU8 {
    let pointer = std::ptr::with_exposed_provenance_mut::<u8>(usize::try_from(address).unwrap_or_default());
    // SAFETY: `StableMemory` promises the byte mapped, readable and (for writes) writable while its owner lives, and our
    // callers hold the owner for as long as they use the reference. No non-atomic access races with it: the trait
    // forbids references, and a NIC's writes are outside the memory model, as for any device memory.
    unsafe { AtomicU8::from_ptr(pointer) }
}

#[cfg(test)]
mod tests {
    use super::*;

    struct Leaked(Extent);

    // SAFETY: the bytes are leaked, never referenced again, and never freed.
    unsafe impl StableMemory for Leaked {
        fn extent(&self) -> Extent {
            self.0
        }
    }

    fn leaked(len: usize) -> Memory {
        let bytes = Box::leak(vec![0u8; len].into_boxed_slice()).as_mut_ptr();
        Memory::new(Leaked(Extent::new(bytes.expose_provenance() as u64, len as u64).unwrap()))
    }

    #[test]
    fn bytes_written_are_read_back_at_any_offset() {
        let memory = leaked(10_000);
        memory.write_at(4_090, b"across a page").unwrap();
        let mut seen = [0; 13];
        memory.read_at(4_090, &mut seen).unwrap();
        assert_eq!(&seen, b"across a page");
    }

    #[test]
    fn a_copy_may_not_leave_the_memory() {
        let memory = leaked(100);
        for (at, len) in [(99, 2), (101, 0), (u64::MAX, 2)] {
            let error = memory.read_at(at, &mut vec![0; len]).unwrap_err();
            assert_eq!(error.kind(), io::ErrorKind::InvalidInput, "{at}+{len}: {error}");
        }
        memory.read_at(100, &mut []).unwrap();
    }

    #[test]
    #[cfg_attr(miri, ignore = "only the kernel's copy reports it")]
    fn an_unmapped_page_is_an_error_and_no_signal() {
        let error = read_host(4096, &mut [0; 8]).unwrap_err();
        assert_eq!(error.raw_os_error(), Some(libc::EFAULT));
        assert_eq!(write_host(4096, &[0; 8]).unwrap_err().raw_os_error(), Some(libc::EFAULT));
    }

    #[test]
    fn the_fallback_copies_the_same_bytes() {
        let memory = leaked(64);
        memory.write_at(0, b"kernel").unwrap();
        let start = memory.extent().start();
        let seen: Vec<u8> = (0..6).map(|at| atomic(start + at).load(Ordering::Relaxed)).collect();
        assert_eq!(seen, b"kernel");
    }

    #[test]
    fn imagined_memory_has_addresses_and_no_bytes() {
        let memory = Memory::imagined(0x1000, 8192).unwrap();
        assert_eq!(memory.extent().range(), 0x1000..0x3000);
        assert_eq!(memory.read_at(0, &mut [0]).unwrap_err().kind(), io::ErrorKind::Unsupported);
        assert!(memory.same(&memory.clone()) && !memory.same(&Memory::imagined(0x1000, 8192).unwrap()));
    }
}
