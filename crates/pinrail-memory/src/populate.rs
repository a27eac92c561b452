use std::io;
use std::sync::OnceLock;
use std::sync::atomic::{AtomicU64, Ordering};

use pinrail_core::{Access, Cause, Extent, Memory, NodeId, Place, Prepare, PrepareError, PrepareStep, Prepared};

use crate::Maps;
use crate::nodes::PreferHere;
use crate::residency::Residency;
use crate::sys::{self, Advice};

/// Makes slices of host memory resident before they are pinned: pinning faults pages in one rail at a time, this does
/// it once and in parallel.
///
/// A slice whose sample is resident is left alone (populating pages that are there costs as much as pinning them).
/// Nothing is read or written: the kernel is asked to fault the pages in, and a range that it cannot is an error and
/// never a signal. New pages lie on the node that the mapping's own policy names, else on the step's `host:NODE`.
///
/// One value serves one batch: what it has learned of the process's mappings is not read again.
#[derive(Debug)]
pub struct Populate {
    residency: Residency,
    method: Method,
    /// Read when first needed: only for slices that a registration will not write.
    maps: OnceLock<Option<Maps>>,
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
        Populate { residency: Residency::new(), method, maps: OnceLock::new(), seen: Counters::default() }
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
        let advice = if self.as_a_write(extent, access) { Advice::PopulateWrite } else { Advice::PopulateRead };
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

    /// Whether pages are to be made as a write would make them. Always if the registration may write. Otherwise still for
    /// private writable memory (a read maps the zero page there, which a pin replaces), but not for what others share:
    /// a write would make its pages dirty.
    fn as_a_write(&self, extent: Extent, access: Access) -> bool {
        access.writes()
            || self.maps.get_or_init(|| Maps::read().ok()).as_ref().is_some_and(|maps| {
                let mut regions = maps.overlapping(extent).peekable();
                regions.peek().is_some() && regions.all(|region| region.is_writable() && !region.is_shared())
            })
    }

    /// Makes a part of a slice resident; false where RLIMIT_MEMLOCK leaves no room for the only way to do it.
    fn touch(&self, part: Extent, slice: Extent, advice: Advice) -> Result<bool, PrepareError> {
        let (start, end) = sys::whole_pages(part);
        let (api, done) = match self.method {
            Method::Populate => ("madvise", sys::advise(start, end - start, advice)),
            Method::Lock => ("mlock", lock_for_a_moment(start, end - start)),
            Method::Nothing => return Ok(false),
        };
        let Err(error) = done else { return Ok(true) };
        match cause(slice, advice, &error) {
            // The range itself is good, so it was the limit.
            Cause::Exhausted { .. } if self.method == Method::Lock => Ok(false),
            cause => Err(PrepareError::new(api, error.raw_os_error(), cause)),
        }
    }
}

/// Also a lock that failed has marked what it could reach, so it is always undone.
fn lock_for_a_moment(start: u64, len: u64) -> io::Result<()> {
    let locked = sys::lock(start, len);
    let unlocked = sys::unlock(start, len);
    locked.and(unlocked)
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

/// Why a slice could not be made resident, looked up after the fact.
fn cause(slice: Extent, advice: Advice, error: &io::Error) -> Cause {
    let errno = error.raw_os_error();
    if errno == Some(libc::EHWPOISON) {
        return Cause::Other { what: format!("a page of {slice} is broken (EHWPOISON)") };
    }
    let access = if advice == Advice::PopulateWrite { Access::FULL } else { Access::REMOTE_READ };
    match Maps::read() {
        Ok(maps) => match maps.check(slice, access) {
            Err(cause) => cause,
            Ok(()) if matches!(errno, Some(libc::ENOMEM | libc::EAGAIN | libc::EPERM)) => {
                Cause::Exhausted { what: format!("no memory for {slice} (RAM, or a memory control group)") }
            }
            Ok(()) => {
                Cause::Other { what: format!("{slice}: {error}, although it is mapped and its protection allows the access") }
            }
        },
        Err(unread) => Cause::Other { what: format!("{slice}: {error}; its mappings cannot be read ({unread})") },
    }
}

#[cfg(test)]
mod tests {
    use super::*;
    use crate::{Mapping, Pages};

    fn by(method: Method) -> Populate {
        Populate { method, ..Populate::new() }
    }

    fn prepare(populate: &Populate, memory: &Memory) -> Result<Prepared, PrepareError> {
        let step = PrepareStep::Populate { memory, range: 0..memory.len(), access: Access::FULL, place: Place::Host };
        populate.prepare(&step)
    }

    #[test]
    fn an_old_kernel_locks_for_a_moment() {
        let memory = Memory::new(Mapping::anonymous(256 << 10, Pages::Small, None).unwrap());
        let populate = by(Method::Lock);
        assert!(matches!(prepare(&populate, &memory), Ok(Prepared::Resident { bytes: 0x4_0000 })));
        assert_eq!(Residency::new().resident(memory.extent()).unwrap(), 256 << 10);
        assert_eq!(crate::memlock::locked_bytes().unwrap(), 0);
        assert!(matches!(prepare(&populate, &memory), Ok(Prepared::Skipped)));
        assert_eq!(populate.report().resident, 1);
    }

    #[test]
    fn without_a_method_the_slice_is_left_to_the_registration() {
        let memory = Memory::new(Mapping::anonymous(256 << 10, Pages::Small, None).unwrap());
        let populate = by(Method::Nothing);
        assert!(matches!(prepare(&populate, &memory), Ok(Prepared::Skipped)));
        assert_eq!(populate.report(), PopulateReport { impossible: 1, ..by(Method::Nothing).report() });
        assert_eq!(Residency::new().resident(memory.extent()).unwrap(), 0);
    }

    #[test]
    fn gaps_with_little_between_them_are_one() {
        let page = sys::base_page();
        let mut gaps = Gaps::default();
        for (start, len) in [(0, 2), (6, 1), (12, 1), (100, 1)] {
            gaps.add(Extent::new(start * page, len * page).unwrap());
        }
        let ranges: Vec<_> = gaps.ranges.iter().map(|range| (range.start() / page, range.end() / page)).collect();
        assert_eq!((ranges.as_slice(), gaps.bytes / page), (&[(0, 7), (12, 13), (100, 101)][..], 5));
    }
}
