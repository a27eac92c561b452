use std::fs::{self, File};
use std::io::{self, Read};
use std::path::Path;

use pinrail_core::{Access, Cause, Extent};

use crate::residency::clip;
use crate::{faults, sys};

/// The mappings of this process, as they were when `/proc/self/maps` was read.
///
/// One reading serves a whole batch; what is mapped or unmapped afterwards is not in it.
#[derive(Clone, Debug)]
pub struct Maps {
    regions: Vec<Region>,
}

/// One mapping.
#[derive(Clone, Debug, PartialEq, Eq)]
pub struct Region {
    /// Its addresses.
    pub extent: Extent,
    /// Protection and sharing as the file writes them: `rw-p`.
    pub protection: String,
    /// What is mapped: a path, a name in brackets, or nothing.
    pub name: String,
    /// Where in the file it begins, bytes.
    pub offset: u64,
}

/// What a mapping shows, as far as its name and its file system tell.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub enum Backing {
    /// Private memory of this process.
    Anonymous,
    /// Memory that can be shared: memfd (also of huge pages), System V, POSIX shared memory, a file on tmpfs.
    Shared,
    /// Huge pages out of a pool.
    Hugetlb,
    /// A file.
    File,
    /// A device, or the kernel's own pages.
    Special,
}

impl Maps {
    /// Reads them.
    ///
    /// # Errors
    /// What reading `/proc/self/maps` reported; `InvalidData` for a line of another form.
    pub fn read() -> io::Result<Maps> {
        Maps::parse(&fs::read_to_string("/proc/self/maps")?)
    }

    fn parse(text: &str) -> io::Result<Maps> {
        let regions = text.lines().map(|line| parse_line(line).ok_or_else(|| unexpected(line))).collect::<io::Result<_>>()?;
        Ok(Maps { regions })
    }

    /// The mappings that share a byte with a range, in the order of their addresses.
    pub fn overlapping(&self, extent: Extent) -> impl Iterator<Item = &Region> {
        let first = self.regions.partition_point(|region| region.extent.end() <= extent.start());
        self.regions[first..].iter().take_while(move |region| region.extent.start() < extent.end())
    }

    /// Checks that a registration of a range can find every page it needs, and names the first that it cannot.
    ///
    /// Meant for after a failure, when the errno says too little. A mapping of a file or device is asked by having the
    /// kernel produce one or two of its pages (since Linux 5.14; before, only mapping and protection are checked).
    /// Anonymous memory is not touched. Ask with [`Access::FULL`] where the provider pins for write whatever the
    /// access (io_uring). A shared file mapping is not refused here: see [`Maps::shared_file`].
    ///
    /// # Errors
    /// [`Cause::Unmapped`] for a hole; [`Cause::Protection`] for a page that may not be read or written, lies beyond
    /// the end of its file or belongs to a device; [`Cause::Hugepages`], [`Cause::Cgroup`] and [`Cause::Exhausted`] for
    /// a page that the pool or the file system cannot produce.
    pub fn check(&self, extent: Extent, access: Access) -> Result<(), Cause> {
        let mut reached = extent.start();
        for region in self.overlapping(extent) {
            if region.extent.start() > reached {
                break;
            }
            if let Some(part) = clip(reached, region.extent.end(), extent) {
                region.check(part, access)?;
                reached = part.end();
            }
        }
        if reached < extent.end() { Err(Cause::Unmapped { address: reached }) } else { Ok(()) }
    }

    /// The first mapping in a range that shares a real file (not tmpfs, memfd or huge pages) with others. Since Linux 6.5
    /// the kernel pins such pages for read only; io_uring always pins for write and answers `EFAULT`.
    #[must_use]
    pub fn shared_file(&self, extent: Extent) -> Option<&Region> {
        self.overlapping(extent).find(|region| region.is_shared() && region.backing() == Backing::File)
    }
}

impl Region {
    /// True if it may be read.
    #[must_use]
    pub fn is_readable(&self) -> bool {
        self.protection.starts_with('r')
    }

    /// True if it may be written.
    #[must_use]
    pub fn is_writable(&self) -> bool {
        self.protection.as_bytes().get(1) == Some(&b'w')
    }

    /// True if writes are seen by others who map the same (`MAP_SHARED`).
    #[must_use]
    pub fn is_shared(&self) -> bool {
        self.protection.ends_with('s')
    }

    /// What it shows. May ask the file system (`statfs`).
    #[must_use]
    pub fn backing(&self) -> Backing {
        let begins = |words: &[&str]| words.iter().any(|word| self.name.starts_with(word));
        if begins(&["/memfd:", "/SYSV", "/dev/zero", "/dev/shm/", "[anon_shmem:"]) {
            return Backing::Shared;
        }
        if begins(&["[vvar", "[vdso", "[vsyscall", "anon_inode:"]) {
            return Backing::Special;
        }
        if begins(&["/anon_hugepage"]) {
            return Backing::Hugetlb;
        }
        if !begins(&["/"]) {
            return Backing::Anonymous;
        }
        match sys::file_system(Path::new(&self.name)).map(|found| found.f_type) {
            Ok(libc::HUGETLBFS_MAGIC) => Backing::Hugetlb,
            Ok(libc::SYSFS_MAGIC) => Backing::Special,
            _ if begins(&["/dev/"]) => Backing::Special,
            Ok(libc::TMPFS_MAGIC) => Backing::Shared,
            _ => Backing::File,
        }
    }

    fn check(&self, part: Extent, access: Access) -> Result<(), Cause> {
        let needs = if access.writes() && !self.is_writable() {
            "the registration needs to write there"
        } else if !self.is_readable() {
            "the registration needs to read there"
        } else if self.backing() == Backing::Anonymous {
            return Ok(());
        } else {
            return faults::refused(self, part).map_or(Ok(()), Err);
        };
        Err(Cause::Protection { address: part.start(), protection: self.protection.clone(), needs: needs.to_owned() })
    }
}

fn parse_line(line: &str) -> Option<Region> {
    // 7f64066ae000-7f64066d0000 rw-p 00000000 00:00 0                          [name, which may have spaces]
    let mut fields = line.splitn(6, ' ');
    let (start, end) = fields.next()?.split_once('-')?;
    let (start, end) = (u64::from_str_radix(start, 16).ok()?, u64::from_str_radix(end, 16).ok()?);
    let protection = fields.next()?.to_owned();
    let offset = u64::from_str_radix(fields.next()?, 16).ok()?;
    let (_device, _inode) = (fields.next()?, fields.next()?);
    let name = fields.next().unwrap_or_default().trim_start().to_owned();
    Some(Region { extent: Extent::new(start, end.checked_sub(start)?).ok()?, protection, name, offset })
}

fn unexpected(text: &str) -> io::Error {
    io::Error::new(io::ErrorKind::InvalidData, format!("unexpected text {text:?}"))
}

/// How many mappings the process has, and may have.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub struct MapCount {
    /// Mappings now.
    pub have: u64,
    /// `vm.max_map_count`.
    pub limit: u64,
}

impl MapCount {
    /// Counts them, in little memory: where the limit is reached there may be no more to be had.
    ///
    /// # Errors
    /// What reading `/proc/self/maps` or the sysctl reported.
    pub fn read() -> io::Result<MapCount> {
        let limit = fs::read_to_string("/proc/sys/vm/max_map_count")?;
        let limit = limit.trim().parse().map_err(|_| unexpected(&limit))?;
        let (mut maps, mut piece, mut have) = (File::open("/proc/self/maps")?, [0; 4096], 0);
        loop {
            let len = maps.read(&mut piece)?;
            if len == 0 {
                return Ok(MapCount { have, limit });
            }
            have += piece[..len].iter().filter(|&&byte| byte == b'\n').count() as u64;
        }
    }
}

/// The pages behind a range.
#[derive(Clone, Copy, Debug, Default, PartialEq, Eq)]
pub struct PagesBehind {
    /// Bytes of the smallest page that the range's mappings are made of.
    pub page_size: u64,
    /// Resident bytes of transparent huge pages in those mappings.
    pub transparent_bytes: u64,
}

/// Asks for the pages behind a range. **Dear**: the kernel walks every page of every mapping of the process (8.5 ms for
/// each resident GiB of base pages), so this is for a diagnosis, not for a batch.
///
/// # Errors
/// What reading `/proc/self/smaps` reported; `NotFound` where nothing of the range is mapped.
pub fn page_size_behind(extent: Extent) -> io::Result<PagesBehind> {
    behind(&fs::read_to_string("/proc/self/smaps")?, extent)
        .ok_or_else(|| io::Error::new(io::ErrorKind::NotFound, format!("nothing is mapped at {extent}")))
}

fn behind(smaps: &str, extent: Extent) -> Option<PagesBehind> {
    let (mut inside, mut found) = (false, None::<PagesBehind>);
    for line in smaps.lines() {
        let mut words = line.split_ascii_whitespace();
        let (key, value) = (words.next().unwrap_or_default(), words.next().unwrap_or_default());
        if !key.ends_with(':') {
            inside = parse_line(line).is_some_and(|region| region.extent.overlaps(extent));
            continue;
        }
        let Some(bytes) = value.parse::<u64>().ok().filter(|_| inside).and_then(|kib| kib.checked_mul(1024)) else { continue };
        let sum = found.get_or_insert_default();
        match key {
            "KernelPageSize:" if sum.page_size == 0 || bytes < sum.page_size => sum.page_size = bytes,
            "AnonHugePages:" | "ShmemPmdMapped:" | "FilePmdMapped:" => sum.transparent_bytes += bytes,
            _ => {}
        }
    }
    found
}

#[cfg(test)]
mod tests {
    use super::*;

    const TEXT: &str = "\
1000-3000 r--p 00000000 fe:00 316534                     /usr/lib/with space.so
3000-4000 rw-p 00002000 00:00 0 
6000-7000 ---p 00000000 00:00 0                          [anon:guard]
7000-8000 rw-s 00001000 00:01 5                          /memfd:x (deleted)
";

    fn extent(start: u64, end: u64) -> Extent {
        Extent::new(start, end - start).unwrap()
    }

    #[test]
    fn lines_are_read_with_names_that_have_spaces() {
        let maps = Maps::parse(TEXT).unwrap();
        let names: Vec<_> = maps.overlapping(extent(0, 0x8000)).map(|region| region.name.as_str()).collect();
        assert_eq!(names, ["/usr/lib/with space.so", "", "[anon:guard]", "/memfd:x (deleted)"]);
        let last = maps.overlapping(extent(0x7fff, 0x9000)).next().unwrap();
        assert_eq!((last.extent, last.offset, last.is_shared()), (extent(0x7000, 0x8000), 0x1000, true));
        assert_eq!(last.backing(), Backing::Shared);
        assert!(Maps::parse("what is this\n").is_err());
    }

    #[test]
    fn the_first_hole_and_the_first_bad_protection_are_named() {
        let maps = Maps::parse(TEXT).unwrap();
        let unmapped = |address| Err(Cause::Unmapped { address });
        assert_eq!(maps.check(extent(0x3800, 0x3900), Access::FULL), Ok(()));
        assert_eq!(maps.check(extent(0x3800, 0x6100), Access::FULL), unmapped(0x4000));
        assert_eq!(maps.check(extent(0x5123, 0x6100), Access::FULL), unmapped(0x5123));
        assert_eq!(maps.check(extent(0x9000, 0x9001), Access::FULL), unmapped(0x9000));
        let Err(Cause::Protection { address, protection, .. }) = maps.check(extent(0x2004, 0x3500), Access::FULL) else {
            panic!("a read-only mapping was found good for writing");
        };
        assert_eq!((address, protection.as_str()), (0x2004, "r--p"));
        assert!(matches!(maps.check(extent(0x6000, 0x6001), Access::REMOTE_READ), Err(Cause::Protection { .. })));
    }

    #[test]
    fn smaps_are_summed_over_the_range_alone() {
        let smaps = "\
1000-3000 rw-p 00000000 00:00 0 
KernelPageSize:        4 kB
AnonHugePages:      2048 kB
VmFlags: rd wr mr mw me ac sd 
200000-400000 rw-p 00000000 00:0f 7                      /anon_hugepage (deleted)
KernelPageSize:     2048 kB
AnonHugePages:         0 kB
";
        let pages = |page_size, transparent_bytes| Some(PagesBehind { page_size, transparent_bytes });
        assert_eq!(behind(smaps, extent(0x200000, 0x200001)), pages(2 << 20, 0));
        assert_eq!(behind(smaps, extent(0x2000, 0x200001)), pages(4096, 2 << 20));
        assert_eq!(behind(smaps, extent(0x4000, 0x5000)), None);
    }
}
