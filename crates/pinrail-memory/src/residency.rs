use std::fs::File;
use std::io;
use std::os::fd::AsFd;

use pinrail_core::Extent;

use crate::sys::{self, PageRegion};

/// Tells which pages of a range are there, without touching any.
///
/// The shared zero page, which a read of untouched memory maps, counts as absent: the first write, and so a pin,
/// replaces it. A page that only others have mapped (shared memory, a cached file) counts as absent too: a pin would
/// fault. A forked child must make its own; the parent's tells about the parent.
#[derive(Debug)]
pub struct Residency {
    source: Source,
}

#[derive(Debug)]
enum Source {
    /// `PAGEMAP_SCAN`: exact, 6 to 15 ns a page that is there, next to nothing for the others.
    Scan(File),
    /// `mincore`: 6 to 8 ns a page, with `move_pages` to tell the zero page.
    Mincore,
}

impl Residency {
    /// Uses `PAGEMAP_SCAN` where the kernel has it (Linux 6.7) and `/proc/self/pagemap` can be opened, else `mincore`.
    #[must_use]
    pub fn new() -> Residency {
        let scan = File::open("/proc/self/pagemap")
            .ok()
            .filter(|pagemap| sys::scan_present(pagemap.as_fd(), 0, 0, &mut [PageRegion::default()]).is_ok());
        Residency { source: scan.map_or(Source::Mincore, Source::Scan) }
    }

    /// Bytes of a range that are there.
    ///
    /// # Errors
    /// What the call reported.
    pub fn resident(&self, extent: Extent) -> io::Result<u64> {
        let mut absent = 0;
        self.absent(extent, &mut |gap| absent += gap.len())?;
        Ok(extent.len() - absent)
    }

    /// True if every page of a sample is there: a run of 64 pages out of every 512, which takes 1 to 2 ns for each page of
    /// the range, one to two hundredths of what pinning it does.
    ///
    /// # Errors
    /// As [`Residency::resident`].
    pub fn sample_is_resident(&self, extent: Extent) -> io::Result<bool> {
        let page = sys::base_page();
        let (window, run) = (512 * page, 64 * page);
        for nth in extent.start() / window..=(extent.end() - 1) / window {
            // The run wanders through the windows, so that no regular pattern of use hides from it. Where the range has
            // only a part of a window, the nearest run of the range is asked.
            let wanted = nth * window + nth * 3 % 8 * run;
            let last = extent.end().saturating_sub(run).max(extent.start());
            let from = wanted.clamp(extent.start(), last);
            let mut absent = false;
            if let Some(piece) = clip(from, from.saturating_add(run), extent) {
                self.absent(piece, &mut |_| absent = true)?;
            }
            if absent {
                return Ok(false);
            }
        }
        Ok(true)
    }

    /// Calls `found` with each part of a range that is not there, in order. What is not mapped at all is not there.
    ///
    /// # Errors
    /// As [`Residency::resident`].
    pub fn absent(&self, extent: Extent, found: &mut dyn FnMut(Extent)) -> io::Result<()> {
        match &self.source {
            Source::Scan(pagemap) => absent_by_scan(pagemap, extent, found),
            Source::Mincore => absent_by_mincore(extent, found),
        }
    }
}

impl Default for Residency {
    fn default() -> Residency {
        Residency::new()
    }
}

fn absent_by_scan(pagemap: &File, extent: Extent, found: &mut dyn FnMut(Extent)) -> io::Result<()> {
    let (mut from, end) = sys::whole_pages(extent);
    let mut regions = [PageRegion::default(); 64];
    // The end of what was found to be there.
    let mut known = from;
    while from < end {
        let (filled, walked) = sys::scan_present(pagemap.as_fd(), from, end, &mut regions)?;
        for there in &regions[..filled] {
            clip(known, there.start, extent).into_iter().for_each(&mut *found);
            known = there.end;
        }
        if walked <= from {
            return Err(io::Error::other(format!("PAGEMAP_SCAN stopped at {walked:#x}")));
        }
        from = walked;
    }
    clip(known, end, extent).into_iter().for_each(found);
    Ok(())
}

/// `mincore` counts the zero page as there. So of each run of 64 pages the first that is there is asked again, by
/// `move_pages`, which knows it; if that one is the zero page the whole run counts as absent, and so does a run with
/// a hole.
fn absent_by_mincore(extent: Extent, found: &mut dyn FnMut(Extent)) -> io::Result<()> {
    let page = sys::base_page();
    let (mut from, end) = sys::whole_pages(extent);
    while from < end {
        let mut there = [0u8; 64];
        let pages = sys::word((end - from) / page).min(there.len());
        let there = &mut there[..pages];
        match sys::in_core(from, there) {
            Err(hole) if hole.raw_os_error() == Some(libc::ENOMEM) => there.fill(0),
            done => done?,
        }
        if let Some(first) = there.iter().position(|page| page & 1 == 1) {
            let mut status = [0];
            // Where move_pages is refused (seccomp) mincore's word stands.
            if sys::nodes_of(&[from + first as u64 * page], &mut status).is_ok() && status[0] == -libc::EFAULT {
                there.fill(0);
            }
        }
        for run in there.chunk_by(|a, b| a & 1 == b & 1) {
            let next = from + run.len() as u64 * page;
            if run[0] & 1 == 0 {
                clip(from, next, extent).into_iter().for_each(&mut *found);
            }
            from = next;
        }
    }
    Ok(())
}

/// What of `start..end` lies in a range.
pub(crate) fn clip(start: u64, end: u64, extent: Extent) -> Option<Extent> {
    let start = start.max(extent.start());
    Extent::new(start, end.min(extent.end()).checked_sub(start)?).ok()
}

#[cfg(test)]
mod tests {
    use pinrail_core::Memory;

    use super::*;
    use crate::{Mapping, Pages};

    /// Both sources over the same memory: what an old kernel would say beside what this one says.
    #[test]
    fn an_old_kernel_says_the_same_of_whole_runs() {
        let mapping = Mapping::anonymous(4 << 20, Pages::Small, None).unwrap();
        let (extent, start) = (mapping.extent(), mapping.extent().start());
        let memory = Memory::new(mapping);
        // Untouched, then 1 MiB of the zero page, then 1 MiB of pages, then a page here and there.
        memory.read_at(1 << 20, &mut vec![1; 1 << 20]).unwrap();
        memory.write_at(2 << 20, &vec![1; 1 << 20]).unwrap();
        for at in (3 << 20..4 << 20).step_by(12_288) {
            memory.write_at(at, &[1]).unwrap();
        }
        let gaps = |source: Source| {
            let mut gaps = Vec::new();
            Residency { source }.absent(extent, &mut |gap| gaps.push(gap)).unwrap();
            // One finds a long gap in pieces, the other as a whole.
            let mut joined: Vec<Extent> = Vec::new();
            for gap in gaps {
                match joined.last_mut().filter(|last| last.end() == gap.start()) {
                    Some(last) => *last = Extent::new(last.start(), gap.end() - last.start()).unwrap(),
                    None => joined.push(gap),
                }
            }
            joined
        };
        let old = gaps(Source::Mincore);
        assert_eq!(old[0], Extent::new(start, 2 << 20).unwrap(), "the zero page is absent");
        assert_eq!(old.len(), 1 + 85);
        match Residency::new().source {
            Source::Scan(pagemap) => assert_eq!(gaps(Source::Scan(pagemap)), old),
            Source::Mincore => {}
        }
        assert!(!Residency { source: Source::Mincore }.sample_is_resident(extent).unwrap());
        let written = Extent::new(start + (2 << 20), 1 << 20).unwrap();
        assert!(Residency { source: Source::Mincore }.sample_is_resident(written).unwrap());
    }

    #[test]
    fn whatever_eighth_of_eight_windows_is_absent_a_sample_sees_it() {
        let (window, run) = (2u64 << 20, 256u64 << 10);
        for missing in 0..8 {
            let mapping = Mapping::anonymous(18 << 20, Pages::Small, None).unwrap();
            let start = mapping.extent().start();
            let first = start.next_multiple_of(window);
            let extent = Extent::new(first, 16 << 20).unwrap();
            let memory = Memory::new(mapping);
            for at in (first - start..first - start + (16 << 20)).step_by(256 << 10) {
                if (start + at) % window / run != missing {
                    memory.write_at(at, &vec![1; 256 << 10]).unwrap();
                }
            }
            let residency = Residency::new();
            assert_eq!(residency.resident(extent).unwrap(), 14 << 20);
            assert!(!residency.sample_is_resident(extent).unwrap(), "run {missing} of each window");
        }
    }

    #[test]
    fn a_sample_is_clipped_to_the_range() {
        let mapping = Mapping::anonymous(4 << 20, Pages::Small, None).unwrap();
        let start = mapping.extent().start();
        let memory = Memory::new(mapping);
        let residency = Residency::new();
        // Ranges of every size and place relative to windows and runs, all of them there, and nothing around them.
        for (at, len) in [(5, 1), (4090, 4100), (1 << 20, 300 << 10), ((2 << 20) - 7, 20), (100, 3 << 20)] {
            memory.write_at(at, &vec![1; usize::try_from(len).unwrap()]).unwrap();
            assert!(residency.sample_is_resident(Extent::new(start + at, len).unwrap()).unwrap(), "{at}+{len}");
        }
    }
}
