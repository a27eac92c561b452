use std::sync::atomic::{AtomicU64, Ordering};

use pinrail_core::{Access, Cause, Extent, Memory, NodeId, Place, Prepare, PrepareError, PrepareStep, Prepared};

use crate::hugetlb::{self, HugePool};
use crate::nodes::PreferHere;
use crate::residency::Residency;
use crate::sys::{self, Advice};
use crate::{Backing, Maps};

/// Makes slices of host memory resident before they are pinned: pinning faults pages in one rail at a time, this does
/// it once and in parallel.
///
/// A slice whose sample is resident is left alone (populating pages that are there costs as much as pinning them).
/// Nothing is read or written: the kernel is asked to fault the pages in, and a range that it cannot is an error and
/// never a signal. New pages lie on the node that the mapping's own policy names, else on the step's `host:NODE`.
#[derive(Debug)]
pub struct Populate {
    residency: Residency,
    method: Method,
    seen: Counters,
}

/// How pages are made resident here.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
#[non_exhaustive]
pub enum Method {
    /// `MADV_POPULATE_READ` and `MADV_POPULATE_WRITE` (Linux 5.14).
    Populate,
    /// `mlock` and `munlock`, within RLIMIT_MEMLOCK.
    Lock,
    /// None: the kernel is older than 5.14, and this process has locked memory that `munlock` might release.
    Nothing,
}

/// What a [`Populate`] has done so far.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub struct PopulateReport {
    /// How.
    pub method: Method,
    /// Slices of which pages were made resident.
    pub populated: u64,
    /// Bytes made resident.
    pub populated_bytes: u64,
    /// Slices found resident, by a sample of their pages.
    pub resident: u64,
    /// Slices of device memory, which has no pages to fault in.
    pub device: u64,
    /// Slices left to the registration because there is no method, or RLIMIT_MEMLOCK leaves no room for it.
    pub impossible: u64,
    /// Slices whose `host:NODE` could not be preferred: the thread's own policy decided.
    pub node_ignored: u64,
}

#[derive(Debug, Default)]
struct Counters {
    populated: AtomicU64,
    populated_bytes: AtomicU64,
    resident: AtomicU64,
    device: AtomicU64,
    impossible: AtomicU64,
    node_ignored: AtomicU64,
}

fn count(counter: &AtomicU64, by: u64) {
    // Statistics: nothing is ordered by them.
    counter.fetch_add(by, Ordering::Relaxed);
}

impl Populate {
    /// Finds out what this kernel offers.
    #[must_use]
    pub fn new() -> Populate {
        let method = if sys::can_populate() {
            Method::Populate
        } else if crate::memlock::locked_bytes().is_ok_and(|bytes| bytes == 0) {
            Method::Lock
        } else {
            Method::Nothing
        };
        Populate { residency: Residency::new(), method, seen: Counters::default() }
    }

    /// What was done since [`Populate::new`].
    #[must_use]
    pub fn report(&self) -> PopulateReport {
        let read = |counter: &AtomicU64| counter.load(Ordering::Relaxed);
        PopulateReport {
            method: self.method,
            populated: read(&self.seen.populated),
            populated_bytes: read(&self.seen.populated_bytes),
            resident: read(&self.seen.resident),
            device: read(&self.seen.device),
            impossible: read(&self.seen.impossible),
            node_ignored: read(&self.seen.node_ignored),
        }
    }

    fn populate(&self, extent: Extent, access: Access, node: Option<NodeId>) -> Result<Prepared, PrepareError> {
        if self.method == Method::Nothing {
            count(&self.seen.impossible, 1);
            return Ok(Prepared::Skipped);
        }
        // Where residency cannot be told (a hole, a file system that will not say) populating tells.
        if self.residency.sample_is_resident(extent).unwrap_or(false) {
            count(&self.seen.resident, 1);
            return Ok(Prepared::Skipped);
        }
        let advice = if needs_write(extent, access) { Advice::PopulateWrite } else { Advice::PopulateRead };
        let preferred = node.map(PreferHere::new);
        if matches!(preferred, Some(Err(_))) {
            count(&self.seen.node_ignored, 1);
        }
        let mut missing = Gaps::default();
        if self.residency.absent(extent, &mut |gap| missing.add(gap)).is_err() {
            missing = Gaps { bytes: extent.len(), ranges: vec![extent] };
        }
        for &range in &missing.ranges {
            if !self.touch(range, extent, advice)? {
                count(&self.seen.impossible, 1);
                return Ok(Prepared::Skipped);
            }
        }
        count(&self.seen.populated, 1);
        count(&self.seen.populated_bytes, missing.bytes);
        Ok(Prepared::Resident { bytes: missing.bytes })
    }

    /// Makes a range resident; false where nothing allows it.
    fn touch(&self, range: Extent, slice: Extent, advice: Advice) -> Result<bool, PrepareError> {
        let page = sys::base_page();
        let start = range.start() / page * page;
        let len = range.end().next_multiple_of(page) - start;
        let (api, done) = match self.method {
            Method::Populate => ("madvise", sys::advise(start, len, advice)),
            Method::Lock => ("mlock", sys::lock(start, len).and_then(|()| sys::unlock(start, len))),
            Method::Nothing => return Ok(false),
        };
        let Err(error) = done else { return Ok(true) };
        let errno = error.raw_os_error();
        match cause(slice, advice, errno, &error.to_string()) {
            // The range itself is good, so it was the limit.
            Cause::Exhausted { .. } if self.method == Method::Lock => Ok(false),
            cause => Err(PrepareError::new(api, errno, cause)),
        }
    }
}

impl Default for Populate {
    fn default() -> Populate {
        Populate::new()
    }
}

impl Prepare for Populate {
    fn prepare(&self, step: &PrepareStep<'_>) -> Result<Prepared, PrepareError> {
        let unsupported = |what: &str| Err(PrepareError::new("populate", None, Cause::NotSupported { what: what.to_owned() }));
        let PrepareStep::Populate { memory, range, access, place } = step else {
            return unsupported("host memory is populated here and nothing is exported");
        };
        if memory.is_imagined() {
            return unsupported("imagined memory has no pages");
        }
        let node = match *place {
            Place::Host => None,
            Place::HostNode(node) => Some(node),
            _ => {
                count(&self.seen.device, 1);
                return Ok(Prepared::Skipped);
            }
        };
        match slice(memory, range) {
            Some(extent) => self.populate(extent, *access, node),
            None => Err(PrepareError::new(
                "populate",
                None,
                Cause::Other { what: format!("slice {}..{} is not in {memory:?}", range.start, range.end) },
            )),
        }
    }
}

fn slice(memory: &Memory, range: &std::ops::Range<u64>) -> Option<Extent> {
    let all = memory.extent();
    let extent = Extent::new(all.start().checked_add(range.start)?, range.end.checked_sub(range.start)?).ok()?;
    (extent.end() <= all.end()).then_some(extent)
}

/// The absent parts of a slice, those with little between them joined: a page more costs less than a call more.
#[derive(Default)]
struct Gaps {
    ranges: Vec<Extent>,
    bytes: u64,
}

impl Gaps {
    fn add(&mut self, gap: Extent) {
        self.bytes += gap.len();
        if let Some(last) = self.ranges.last_mut()
            && gap.start() - last.end() <= 4 * sys::base_page()
            && let Ok(joined) = Extent::new(last.start(), gap.end() - last.start())
        {
            *last = joined;
        } else {
            self.ranges.push(gap);
        }
    }
}

/// Whether pages are to be made as a write would make them. Always if the registration may write. Otherwise still for
/// private writable memory (a read maps the zero page there, which a pin replaces), but not for what others share: a
/// write would make its pages dirty.
fn needs_write(extent: Extent, access: Access) -> bool {
    access.writes()
        || Maps::read().is_ok_and(|maps| maps.overlapping(extent).all(|region| region.is_writable() && !region.is_shared()))
}

/// Why a slice could not be made resident, looked up after the fact.
fn cause(slice: Extent, advice: Advice, errno: Option<i32>, text: &str) -> Cause {
    if errno == Some(libc::EHWPOISON) {
        return Cause::Other { what: format!("a page of {slice} is broken (EHWPOISON)") };
    }
    let access = if advice == Advice::PopulateWrite { Access::FULL } else { Access::REMOTE_READ };
    let Ok(maps) = Maps::read() else { return Cause::Other { what: format!("{slice}: {text}") } };
    if let Err(cause) = maps.check(slice, access) {
        return cause;
    }
    if maps.overlapping(slice).any(|region| region.backing() == Backing::Hugetlb)
        && let Ok(behind) = crate::page_size_behind(slice)
    {
        if let Some(what) = hugetlb::refused_by_cgroup(behind.page_size, slice.len()) {
            return Cause::Cgroup { what };
        }
        if let Ok(pool) = HugePool::read(behind.page_size) {
            return Cause::Hugepages { page_size: behind.page_size, need: slice.pages(behind.page_size), free: pool.available() };
        }
    }
    match errno {
        Some(libc::ENOMEM | libc::EAGAIN) => {
            Cause::Exhausted { what: format!("no memory for {slice} (RAM, a memory control group, or RLIMIT_MEMLOCK)") }
        }
        _ => Cause::Other { what: format!("{slice}: {text}; it is mapped and its protection allows the access") },
    }
}
