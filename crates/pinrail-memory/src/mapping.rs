use std::fs;
use std::io;

use pinrail_core::{Cause, Extent, ExtentError, NodeId, StableMemory};

use crate::hugetlb::{self, HugePool};
use crate::{MapError, Maps, Pages, nodes, sys};

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
    reserved: (u64, u64),
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
        let mut mapping =
            Mapping { extent: Extent::new(start, room).map_err(bad_len)?, pages, notes: Vec::new(), reserved: (start, room) };
        let first = start.next_multiple_of(align);
        mapping.trim(first, first + whole + guard).map_err(|error| refused("munmap", &error))?;

        let flags = match pages.hugetlb() {
            None => 0,
            Some(bytes) => libc::MAP_HUGETLB | (bytes.trailing_zeros().cast_signed() << libc::MAP_HUGE_SHIFT),
        };
        // SAFETY: the range lies in the reservation made above, which nobody knows of yet.
        unsafe { sys::map_over(first, whole, flags) }.map_err(|error| refused("mmap", &error))?;
        mapping.extent = Extent::new(first, whole).map_err(bad_len)?;

        mapping.choose_pages().map_err(|error| refused("madvise", &error))?;
        if let Some(what) = pages.hugetlb().and_then(|bytes| hugetlb::refused_by_cgroup(bytes, whole)) {
            return Err(MapError::Refused {
                len,
                pages,
                api: "hugetlb control group",
                errno: None,
                cause: Cause::Cgroup { what },
            });
        }
        if let Some(node) = node {
            mapping.notes.extend(nodes::prefer(mapping.extent, node).err());
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

    /// Gives back what of the reservation lies outside of `first..end`.
    fn trim(&mut self, first: u64, end: u64) -> io::Result<()> {
        let (start, room) = self.reserved;
        if first > start {
            // SAFETY: this head of the reservation is ours and unused.
            unsafe { sys::unmap(start, first - start) }?;
            self.reserved = (first, room - (first - start));
        }
        let (start, room) = self.reserved;
        if end < start + room {
            // SAFETY: this tail of the reservation is ours and unused.
            unsafe { sys::unmap(end, start + room - end) }?;
            self.reserved.1 = end - start;
        }
        Ok(())
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
        let (start, len) = self.reserved;
        // SAFETY: the reservation is ours and includes all that was mapped over it; `StableMemory` ends with this drop.
        let unmapped = unsafe { sys::unmap(start, len) };
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
        if let Some(page_size) = self.pages.hugetlb() {
            let Ok(pool) = HugePool::read(page_size) else {
                return Cause::NotSupported { what: format!("this kernel has no huge pages of {page_size} bytes") };
            };
            let need = self.whole / page_size;
            if need > pool.available() {
                return Cause::Hugepages { page_size, need, free: pool.available() };
            }
            if let Some(what) = hugetlb::refused_by_cgroup(page_size, self.whole) {
                return Cause::Cgroup { what };
            }
        }
        if self.pages == Pages::Transparent && error.raw_os_error() == Some(libc::EINVAL) {
            return Cause::NotSupported { what: "this kernel has no transparent huge pages".to_owned() };
        }
        if let (Ok(limit), Ok(maps)) = (Maps::count_max(), Maps::read()) {
            // A mapping and the page behind it are two, and cutting a reservation makes another for a moment.
            if maps.len() as u64 + 3 > limit {
                return Cause::MapCount { limit, have: maps.len() as u64 };
            }
        }
        match sys::address_space_limit() {
            Ok(limit) if limit != libc::RLIM_INFINITY => Cause::Exhausted {
                what: format!("no address space or memory for {} bytes (RLIMIT_AS is {limit} bytes)", self.whole),
            },
            _ => Cause::Exhausted {
                what: format!(
                    "no address space or memory for {} bytes (vm.overcommit_memory, a memory control group, or RAM)",
                    self.whole
                ),
            },
        }
    }
}
