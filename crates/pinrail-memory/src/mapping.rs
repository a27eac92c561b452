use std::fs;
use std::io;
use std::ops::Range;

use pinrail_core::{Cause, Extent, ExtentError, NodeId, StableMemory};

use crate::hugetlb::{self, Charged, HugePool};
use crate::sys::{self, Limited};
use crate::{MapCount, MapError, Pages, nodes};

/// Private anonymous memory that this value owns: mapped, untouched, and unmapped when it is dropped.
///
/// Behind it lies one page that nothing can touch. So two mappings are never neighbours, a transfer that runs over the
/// end fails, and the kernel, which joins neighbours, never has to divide one to unmap it (that can fail).
///
/// ```
/// use pinrail_core::Memory;
/// use pinrail_memory::{Mapping, Pages};
///
/// let mapping = Mapping::anonymous(1_000_000, Pages::Transparent, None)?;
/// assert_eq!(mapping.len(), 2 << 20); // whole huge pages
/// let memory = Memory::new(mapping);
/// memory.write_at(999_990, b"ten bytes.").expect("mapped until the last clone is gone");
/// # Ok::<(), pinrail_memory::MapError>(())
/// ```
#[derive(Debug)]
pub struct Mapping {
    extent: Extent,
    pages: Pages,
    notes: Vec<String>,
    // What is unmapped: the extent and the guard page behind it.
    reserved: Range<u64>,
}

impl Mapping {
    /// Maps `len` bytes, rounded up to [`Pages::alignment`]. Nothing is touched: pages come with the first use.
    ///
    /// `node` is where they shall lie. The policy is *preferred*, not *bind*: a full node then means memory of another
    /// one instead of the OOM killer or, for huge pages, SIGBUS. Where the policy cannot be set the memory is still good
    /// and [`Mapping::notes`] says why.
    ///
    /// Huge pages are promised (reserved) here, and a control group's limit is checked here, so that touching them later
    /// does not raise SIGBUS. What cannot be excluded is another process of the same *limited* control group that
    /// takes the last page in between; [`Populate`](crate::Populate) turns that into an error.
    ///
    /// # Errors
    /// [`MapError::Length`], and [`MapError::Refused`] with the pool, the control group, `vm.max_map_count`, or
    /// what else was found to be the limit.
    pub fn anonymous(len: u64, pages: Pages, node: Option<NodeId>) -> Result<Mapping, MapError> {
        // Huge pages are placed where the reservation was a moment before; another thread may be quicker.
        let taken = |error: &MapError| matches!(error, MapError::Refused { errno: Some(libc::EEXIST), .. });
        let mut mapped = Mapping::attempt(len, pages, node);
        for _ in 1..8 {
            if !mapped.as_ref().is_err_and(taken) {
                break;
            }
            mapped = Mapping::attempt(len, pages, node);
        }
        mapped
    }

    fn attempt(len: u64, pages: Pages, node: Option<NodeId>) -> Result<Mapping, MapError> {
        let bad_len = |source| MapError::Length { len, pages, source };
        if len == 0 {
            return Err(bad_len(ExtentError::ZeroLength));
        }
        let (align, guard) = (pages.alignment(), sys::base_page());
        let wrap = || bad_len(ExtentError::Wrap { start: 0, len });
        let whole = len.checked_next_multiple_of(align).ok_or_else(wrap)?;
        // Enough for an aligned start, and the page behind.
        let room = whole.checked_add(align).filter(|room| i64::try_from(*room).is_ok()).ok_or_else(wrap)?;
        let refused = |api, error: &io::Error| Refusal { len, whole, pages }.explain(api, error);

        let start = sys::reserve(room).map_err(|error| refused("mmap", &error))?;
        // From here on dropping `mapping` gives back whatever is reserved.
        let extent = Extent::new(start.next_multiple_of(align), whole).map_err(bad_len)?;
        let mut mapping = Mapping { extent, pages, notes: Vec::new(), reserved: start..start + room };
        mapping.trim(extent.end() + guard).map_err(|error| refused("munmap", &error))?;
        match pages.hugetlb() {
            None => {
                // SAFETY: the reservation is ours and nobody knows of it yet.
                unsafe { sys::allow(extent.start(), whole) }.map_err(|error| refused("mprotect", &error))?;
                mapping.choose_pages().map_err(|error| refused("madvise", &error))?;
            }
            Some(page_size) => {
                mapping.place_huge(page_size).map_err(|error| refused("mmap", &error))?;
                if let Some(what) = hugetlb::refused_by_cgroup(page_size, whole, Charged::Touched) {
                    let cause = Cause::Cgroup { what };
                    return Err(MapError::Refused { len, pages, api: "hugetlb control group", errno: None, cause });
                }
            }
        }
        if let Some(node) = node {
            mapping.prefer(node);
        }
        Ok(mapping)
    }

    /// Where the memory lies.
    #[must_use]
    pub fn extent(&self) -> Extent {
        self.extent
    }

    /// Bytes, a multiple of [`Pages::alignment`].
    #[must_use]
    #[allow(clippy::len_without_is_empty, reason = "a mapping is never empty")]
    pub fn len(&self) -> u64 {
        self.extent.len()
    }

    /// What it is made of.
    #[must_use]
    pub fn pages(&self) -> Pages {
        self.pages
    }

    /// What was wanted and could not be had, in whole sentences: a node, transparent huge pages.
    #[must_use]
    pub fn notes(&self) -> &[String] {
        &self.notes
    }

    /// Gives back what of the reservation lies before the memory or after `end`.
    fn trim(&mut self, end: u64) -> io::Result<()> {
        let first = self.extent.start();
        if self.reserved.start < first {
            // SAFETY: this head of the reservation is ours and unused.
            unsafe { sys::unmap(self.reserved.start, first - self.reserved.start) }?;
            self.reserved.start = first;
        }
        if end < self.reserved.end {
            // SAFETY: this tail of the reservation is ours and unused.
            unsafe { sys::unmap(end, self.reserved.end - end) }?;
            self.reserved.end = end;
        }
        Ok(())
    }

    /// Replaces the reservation by huge pages.
    ///
    /// Not with `MAP_FIXED` over it: where that fails for want of pages, kernels have already unmapped what was there, so
    /// that another thread may have got the place which dropping this value would then unmap.
    fn place_huge(&mut self, page_size: u64) -> io::Result<()> {
        let (whole, guard) = (self.extent, self.extent.end()..self.reserved.end);
        // SAFETY: the reservation is ours and unused; from here on only the page behind is reserved.
        unsafe { sys::unmap(whole.start(), whole.len()) }?;
        self.reserved = guard;
        sys::map_huge(whole.start(), whole.len(), page_size)?;
        self.reserved.start = whole.start();
        Ok(())
    }

    fn prefer(&mut self, node: NodeId) {
        self.notes.extend(nodes::prefer(self.extent, node).err());
        if let Some(page_size) = self.pages.hugetlb()
            && let (need, Ok(free)) = (self.extent.len() / page_size, HugePool::free_on(node, page_size))
            && free < need
        {
            self.notes.push(format!(
                "{node} has {free} free huge pages of {page_size} bytes and {need} are needed: the rest comes from other nodes"
            ));
        }
    }

    fn choose_pages(&mut self) -> io::Result<()> {
        let advice = match self.pages {
            Pages::Small => sys::Advice::NoHugePages,
            Pages::Transparent => sys::Advice::HugePages,
            Pages::Huge2M | Pages::Huge1G => return Ok(()),
        };
        match sys::advise(self.extent.start(), self.extent.len(), advice) {
            // A kernel without transparent huge pages has nothing to switch off.
            Err(error) if self.pages == Pages::Small && error.raw_os_error() == Some(libc::EINVAL) => Ok(()),
            Ok(()) if self.pages == Pages::Transparent => {
                let setting = fs::read_to_string("/sys/kernel/mm/transparent_hugepage/enabled").unwrap_or_default();
                if setting.contains("[never]") {
                    self.notes.push(
                        "transparent huge pages are switched off (/sys/kernel/mm/transparent_hugepage/enabled is never): base pages are used"
                            .to_owned(),
                    );
                }
                Ok(())
            }
            done => done,
        }
    }
}

impl Drop for Mapping {
    fn drop(&mut self) {
        let Range { start, end } = self.reserved;
        // SAFETY: the range is ours, with all that was mapped in it; the promise of `StableMemory` ends with this drop.
        let unmapped = unsafe { sys::unmap(start, end - start) };
        debug_assert!(unmapped.is_ok(), "whole mappings are unmapped, which divides none: {unmapped:?}");
    }
}

// SAFETY: the mapping is private to this value, readable and writable, and stays at its address until `drop`; no
// reference to its bytes is ever made.
unsafe impl StableMemory for Mapping {
    fn extent(&self) -> Extent {
        self.extent
    }
}

/// What was asked for, to find out why the kernel said no.
struct Refusal {
    len: u64,
    whole: u64,
    pages: Pages,
}

impl Refusal {
    fn explain(self, api: &'static str, error: &io::Error) -> MapError {
        let errno = error.raw_os_error();
        MapError::Refused { len: self.len, pages: self.pages, api, errno, cause: self.cause(error) }
    }

    fn cause(&self, error: &io::Error) -> Cause {
        if error.raw_os_error() == Some(libc::EEXIST) {
            return Cause::Busy { what: "other threads kept taking the address space that was chosen".to_owned() };
        }
        if let Some(page_size) = self.pages.hugetlb() {
            let Ok(pool) = HugePool::read(page_size) else {
                return Cause::NotSupported { what: format!("this kernel has no huge pages of {page_size} bytes") };
            };
            let need = self.whole / page_size;
            if need > pool.available() {
                return Cause::Hugepages { page_size, need, free: pool.available() };
            }
            if let Some(what) = hugetlb::refused_by_cgroup(page_size, self.whole, Charged::Promised) {
                return Cause::Cgroup { what };
            }
        }
        if self.pages == Pages::Transparent && error.raw_os_error() == Some(libc::EINVAL) {
            return Cause::NotSupported { what: "this kernel has no transparent huge pages".to_owned() };
        }
        if let Ok(MapCount { have, limit }) = MapCount::read()
            // A mapping and the page behind it are two.
            && have + 2 >= limit
        {
            return Cause::MapCount { limit, have };
        }
        Cause::Exhausted { what: self.limits() }
    }

    /// Everything that may have been the limit, with its value: the kernel does not say which it was.
    fn limits(&self) -> String {
        let limit = |of| match sys::limit(of) {
            Ok(limit) if limit.rlim_cur != libc::RLIM_INFINITY => format!("{} bytes", limit.rlim_cur),
            Ok(_) => "unlimited".to_owned(),
            Err(error) => format!("unknown ({error})"),
        };
        let overcommit = fs::read_to_string("/proc/sys/vm/overcommit_memory").unwrap_or_default();
        format!(
            "the kernel gives no {} bytes: RLIMIT_AS is {}, RLIMIT_DATA is {}, vm.overcommit_memory is {}",
            self.whole,
            limit(Limited::AddressSpace),
            limit(Limited::Data),
            overcommit.trim()
        )
    }
}
