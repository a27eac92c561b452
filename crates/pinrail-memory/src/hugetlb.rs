//! The hugetlb pools and the control groups that limit them.

use std::fs;
use std::io;
use std::path::{Path, PathBuf};

use pinrail_core::NodeId;

/// The pages of one size that the machine has set aside.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub struct HugePool {
    /// Bytes of a page.
    pub page_size: u64,
    /// Pages in the pool.
    pub total: u64,
    /// Pages that nobody uses.
    pub free: u64,
    /// Pages that mappings have a promise for and do not use yet; part of `free`.
    pub reserved: u64,
    /// Pages the kernel may still add when the pool is empty (`nr_overcommit_hugepages`).
    pub growth: u64,
}

impl HugePool {
    /// The pool of one page size.
    ///
    /// # Errors
    /// `NotFound` where the kernel has no such pages; else what reading the files reported.
    pub fn read(page_size: u64) -> io::Result<HugePool> {
        HugePool::read_at(Path::new("/sys/kernel/mm/hugepages"), page_size)
    }

    fn read_at(root: &Path, page_size: u64) -> io::Result<HugePool> {
        let folder = root.join(format!("hugepages-{}kB", page_size >> 10));
        let figure = |name: &str| read_figure(&folder.join(name));
        let surplus = figure("surplus_hugepages")?;
        Ok(HugePool {
            page_size,
            total: figure("nr_hugepages")?,
            free: figure("free_hugepages")?,
            reserved: figure("resv_hugepages")?,
            growth: figure("nr_overcommit_hugepages")?.saturating_sub(surplus),
        })
    }

    /// Pages that a new mapping can be promised.
    #[must_use]
    pub fn available(&self) -> u64 {
        self.free.saturating_sub(self.reserved) + self.growth
    }

    /// Pages of one size that nobody uses on one node.
    ///
    /// # Errors
    /// `NotFound` without such a node or such pages.
    pub fn free_on(node: NodeId, page_size: u64) -> io::Result<u64> {
        let kib = page_size >> 10;
        let file = format!("/sys/devices/system/node/node{}/hugepages/hugepages-{kib}kB/free_hugepages", node.0);
        read_figure(Path::new(&file))
    }
}

fn read_figure(path: &Path) -> io::Result<u64> {
    let text = fs::read_to_string(path)?;
    text.trim()
        .parse()
        .map_err(|_| io::Error::new(io::ErrorKind::InvalidData, format!("{}: {text:?} is no number", path.display())))
}

/// A control group that would not let us have so many bytes of huge pages, as the words of an error: its file and value.
///
/// A pool's reservation does not cover this limit: it is charged when a page is touched, and then there is nothing
/// better than SIGBUS. So whoever maps asks first.
pub(crate) fn refused_by_cgroup(page_size: u64, need_bytes: u64) -> Option<String> {
    let groups = fs::read_to_string("/proc/self/cgroup").ok()?;
    let mounts = fs::read_to_string("/proc/self/mounts").ok()?;
    refusal(&groups, &mounts, page_size, need_bytes)
}

fn refusal(groups: &str, mounts: &str, page_size: u64, need_bytes: u64) -> Option<String> {
    let size = if page_size >= 1 << 30 { format!("{}GB", page_size >> 30) } else { format!("{}MB", page_size >> 20) };
    for (mount, ours, limit, usage) in hierarchies(groups, mounts) {
        // The group itself and every one above it count.
        for group in Path::new(&ours).ancestors() {
            let folder = mount.join(group.strip_prefix("/").unwrap_or(group));
            for kind in ["", "rsvd."] {
                let limit = folder.join(format!("hugetlb.{size}.{kind}{limit}"));
                let usage = folder.join(format!("hugetlb.{size}.{kind}{usage}"));
                // "max", or no such file: no limit here.
                let (Ok(most), Ok(used)) = (read_figure(&limit), read_figure(&usage)) else { continue };
                if used.saturating_add(need_bytes) > most {
                    return Some(format!(
                        "huge pages: {} is {most} bytes, {used} are in use and {need_bytes} more are needed",
                        limit.display()
                    ));
                }
            }
        }
    }
    None
}

/// The hugetlb hierarchies we are in: mount point, our group, and the names of the limit and usage files.
fn hierarchies(groups: &str, mounts: &str) -> Vec<(PathBuf, String, &'static str, &'static str)> {
    let mount = |fstype: &str, option: &str| {
        mounts.lines().find_map(|line| {
            let mut fields = line.split(' ');
            let (_, point, kind, options) = (fields.next()?, fields.next()?, fields.next()?, fields.next()?);
            let found = kind == fstype && (option.is_empty() || options.split(',').any(|o| o == option));
            found.then(|| PathBuf::from(point))
        })
    };
    let mut found = Vec::new();
    for line in groups.lines() {
        let mut fields = line.splitn(3, ':');
        let (Some(id), Some(controllers), Some(group)) = (fields.next(), fields.next(), fields.next()) else { continue };
        if id == "0" && controllers.is_empty() {
            found.extend(mount("cgroup2", "").map(|mount| (mount, group.to_owned(), "max", "current")));
        } else if controllers.split(',').any(|c| c == "hugetlb") {
            let mount = mount("cgroup", "hugetlb");
            found.extend(mount.map(|mount| (mount, group.to_owned(), "limit_in_bytes", "usage_in_bytes")));
        }
    }
    found
}
