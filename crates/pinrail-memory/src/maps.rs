use std::fs;
use std::io;
use std::path::Path;

use pinrail_core::{Access, Cause, Extent};

use crate::sys::{self, Advice};

/// The mappings of this process, as they were when `/proc/self/maps` was read.
///
/// One reading serves a whole batch (about 0.1 us a mapping); what is mapped or unmapped afterwards is not in it.
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
}

/// What a mapping shows, as far as its name and its file system tell.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub enum Backing {
    /// Private memory of this process.
    Anonymous,
    /// Memory that can be shared: memfd, System V, POSIX shared memory, a file on tmpfs. (A memfd of huge pages is told
    /// only by [`page_size_behind`].)
    Shared,
    /// Huge pages out of a pool.
    Hugetlb,
    /// A file.
    File,
    /// A device, or the kernel's own pages.
    Special,
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
        let name = self.name.as_str();
        let begins = |words: &[&str]| words.iter().any(|word| name.starts_with(word));
        if begins(&["/memfd:", "/SYSV", "/dev/zero", "[anon_shmem:"]) {
            Backing::Shared
        } else if begins(&["/anon_hugepage"]) {
            Backing::Hugetlb
        } else if begins(&["[vvar", "[vdso", "[vsyscall", "anon_inode:"]) {
            Backing::Special
        } else if !name.starts_with('/') {
            Backing::Anonymous
        } else {
            match sys::file_system(Path::new(name)) {
                Ok(libc::TMPFS_MAGIC) if name.starts_with("/dev/") && !name.starts_with("/dev/shm/") => Backing::Special,
                Ok(libc::TMPFS_MAGIC) => Backing::Shared,
                Ok(libc::HUGETLBFS_MAGIC) => Backing::Hugetlb,
                _ if name.starts_with("/dev/") && !name.starts_with("/dev/shm/") => Backing::Special,
                _ => Backing::File,
            }
        }
    }
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
        let regions = text.lines().map(|line| parse_line(line).ok_or_else(|| bad_line(line))).collect::<io::Result<_>>()?;
        Ok(Maps { regions })
    }

    /// How many mappings there are: what `vm.max_map_count` limits.
    #[must_use]
    #[allow(clippy::len_without_is_empty, reason = "a process without mappings does not run")]
    pub fn len(&self) -> usize {
        self.regions.len()
    }

    /// The limit on mappings of a process, `vm.max_map_count`.
    ///
    /// # Errors
    /// What reading the file reported.
    pub fn count_max() -> io::Result<u64> {
        let text = fs::read_to_string("/proc/sys/vm/max_map_count")?;
        text.trim().parse().map_err(|_| bad_line(&text))
    }

    /// The mappings that share a byte with a range, in the order of their addresses.
    pub fn overlapping(&self, extent: Extent) -> impl Iterator<Item = &Region> {
        let first = self.regions.partition_point(|region| region.extent.end() <= extent.start());
        self.regions[first..].iter().take_while(move |region| region.extent.start() < extent.end())
    }

    /// Checks that a registration of a range can find every page it needs, and names the first that it cannot.
    ///
    /// Meant for after a failure, when the errno says too little: a mapping of a file or device is asked by having its
    /// last page (for a file that ends too early: a few more) read into memory. Ask with [`Access::FULL`] where the
    /// provider pins for write whatever the access (io_uring). A shared file mapping that the kernel refuses to
    /// pin for write is told by [`Maps::shared_file`].
    ///
    /// # Errors
    /// [`Cause::Unmapped`] for a hole; [`Cause::Protection`] for a page that may not be read or written, lies beyond
    /// the end of its file, belongs to a device, or is broken.
    pub fn check(&self, extent: Extent, access: Access) -> Result<(), Cause> {
        let mut reached = extent.start();
        for region in self.overlapping(extent) {
            if region.extent.start() > reached {
                return Err(Cause::Unmapped { address: reached });
            }
            let (from, to) = (reached, region.extent.end().min(extent.end()));
            let refuse = |address: u64, needs: &str| {
                Err(Cause::Protection { address, protection: region.protection.clone(), needs: needs.to_owned() })
            };
            if access.writes() && !region.is_writable() {
                return refuse(from, "the registration needs to write there");
            }
            if !region.is_readable() {
                return refuse(from, "the registration needs to read there");
            }
            if region.backing() != Backing::Anonymous
                && let Some((address, why)) = unreadable(from, to)
            {
                return refuse(address, why);
            }
            reached = to;
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

/// The first page of a mapped range that the kernel will not produce, and why. Files end once, so the last page
/// answers for all, and where it does not exist the first such is found by halving.
fn unreadable(from: u64, to: u64) -> Option<(u64, &'static str)> {
    let page = sys::base_page();
    let ask = |nth: u64| sys::advise(nth * page, page, Advice::PopulateRead).err().and_then(|error| error.raw_os_error());
    let (mut good, mut bad) = (from / page, (to - 1) / page);
    if !sys::can_populate() {
        return None;
    }
    match ask(bad)? {
        libc::EINVAL => Some((from, "the kernel registers no device memory by its address")),
        libc::EHWPOISON => Some((bad * page, "the page there is broken (EHWPOISON)")),
        libc::EFAULT => {
            while good < bad {
                let middle = good.midpoint(bad);
                if ask(middle) == Some(libc::EFAULT) {
                    bad = middle;
                } else {
                    good = middle + 1;
                }
            }
            Some(((bad * page).max(from), "the file it shows ends before that address"))
        }
        _ => None,
    }
}

fn parse_line(line: &str) -> Option<Region> {
    // 7f64066ae000-7f64066d0000 rw-p 00000000 00:00 0                          [name, which may have spaces]
    let mut fields = line.splitn(6, ' ');
    let (start, end) = fields.next()?.split_once('-')?;
    let (start, end) = (u64::from_str_radix(start, 16).ok()?, u64::from_str_radix(end, 16).ok()?);
    let protection = fields.next()?.to_owned();
    let (_offset, _device, _inode) = (fields.next()?, fields.next()?, fields.next()?);
    let name = fields.next().unwrap_or_default().trim_start().to_owned();
    let extent = Extent::new(start, end.checked_sub(start)?).ok()?;
    Some(Region { extent, protection, name })
}

fn bad_line(line: &str) -> io::Error {
    io::Error::new(io::ErrorKind::InvalidData, format!("unexpected line {line:?}"))
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
