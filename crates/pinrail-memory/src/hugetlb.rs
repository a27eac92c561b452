//! The hugetlb pools and the control groups that limit them.

use std::fs;
use std::io;
use std::path::Path;

use pinrail_core::{Cause, Extent, NodeId};

use crate::{Residency, cgroup, page_size_behind};

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
    pub(crate) fn free_on(node: NodeId, page_size: u64) -> io::Result<u64> {
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

/// When a control group's limit on huge pages is held against us: there are two.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub(crate) enum Charged {
    /// When they are promised (`hugetlb.*.rsvd.*`): `mmap` fails.
    Promised,
    /// When they are touched (`hugetlb.*`), whatever was promised: there is nothing better than SIGBUS then, so whoever
    /// maps asks first.
    Touched,
}

/// A control group that would not let us have so many more bytes of huge pages, as the words of an error: its file and
/// value.
pub(crate) fn refused_by_cgroup(page_size: u64, need_bytes: u64, charged: Charged) -> Option<String> {
    let groups = fs::read_to_string("/proc/self/cgroup").ok()?;
    let mounts = fs::read_to_string("/proc/self/mountinfo").ok()?;
    refusal(&groups, &mounts, page_size, need_bytes, charged)
}

/// Why the pages that are absent from a range of huge pages cannot be had; `None` for other memory.
pub(crate) fn exhausted(extent: Extent) -> Option<Cause> {
    let page_size = page_size_behind(extent).ok()?.page_size;
    let pool = HugePool::read(page_size).ok()?;
    let absent_bytes = extent.len() - Residency::new().resident(extent).unwrap_or(0);
    let need = absent_bytes.div_ceil(page_size);
    if let Some(what) = refused_by_cgroup(page_size, need * page_size, Charged::Touched) {
        return Some(Cause::Cgroup { what });
    }
    Some(Cause::Hugepages { page_size, need, free: pool.available() })
}

fn refusal(groups: &str, mounts: &str, page_size: u64, need_bytes: u64, charged: Charged) -> Option<String> {
    let size = if page_size >= 1 << 30 { format!("{}GB", page_size >> 30) } else { format!("{}MB", page_size >> 20) };
    let kind = if charged == Charged::Promised { "rsvd." } else { "" };
    for hierarchy in cgroup::hierarchies(groups, mounts, "hugetlb") {
        let (limit, usage) = if hierarchy.is_v2 { ("max", "current") } else { ("limit_in_bytes", "usage_in_bytes") };
        for folder in hierarchy.folders {
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
    None
}

#[cfg(test)]
mod tests {
    use super::*;
    use crate::tree::Tree;

    #[test]
    fn promised_pages_are_not_available_and_growth_is() {
        let folder = "hugepages-2048kB";
        let figures = [
            ("nr_hugepages", "8\n"),
            ("free_hugepages", "5\n"),
            ("resv_hugepages", "3\n"),
            ("nr_overcommit_hugepages", "4\n"),
            ("surplus_hugepages", "1\n"),
        ];
        let files: Vec<(String, &str)> = figures.iter().map(|(name, text)| (format!("{folder}/{name}"), *text)).collect();
        let files: Vec<(&str, &str)> = files.iter().map(|(name, text)| (name.as_str(), *text)).collect();
        let tree = Tree::new(&files);
        let pool = HugePool::read_at(tree.root(), 2 << 20).unwrap();
        assert_eq!(pool, HugePool { page_size: 2 << 20, total: 8, free: 5, reserved: 3, growth: 3 });
        assert_eq!(pool.available(), 5);
        assert_eq!(HugePool::read_at(tree.root(), 1 << 30).unwrap_err().kind(), io::ErrorKind::NotFound);
    }

    #[test]
    fn every_group_above_limits_too() {
        let tree = Tree::new(&[
            ("two/a/hugetlb.2MB.max", "8388608\n"),
            ("two/a/hugetlb.2MB.current", "4194304\n"),
            ("two/a/b/hugetlb.2MB.max", "max\n"),
            ("two/a/b/hugetlb.2MB.current", "4194304\n"),
            ("one/c/hugetlb.1GB.rsvd.limit_in_bytes", "1073741824\n"),
            ("one/c/hugetlb.1GB.rsvd.usage_in_bytes", "0\n"),
        ]);
        let root = tree.root().display();
        let mounts = format!(
            "1 0 0:1 / {root}/two rw,nosuid - cgroup2 cgroup2 rw\n2 0 0:2 / {root}/one rw - cgroup cgroup rw,hugetlb\n\
             3 0 0:3 / /tmp rw - tmpfs tmpfs rw\n"
        );
        let groups = "7:memory:/x\n3:hugetlb:/c\n0::/a/b\n";
        let refusal = |page_size, need, charged| refusal(groups, &mounts, page_size, need, charged);
        assert_eq!(refusal(2 << 20, 4 << 20, Charged::Touched), None);
        assert_eq!(refusal(2 << 20, 6 << 20, Charged::Promised), None);
        let what = refusal(2 << 20, 6 << 20, Charged::Touched).unwrap();
        assert!(
            what.contains("two/a/hugetlb.2MB.max is 8388608 bytes, 4194304 are in use and 6291456 more are needed"),
            "{what}"
        );
        assert_eq!(refusal(1 << 30, 1 << 30, Charged::Promised), None);
        assert!(refusal(1 << 30, 2 << 30, Charged::Promised).unwrap().contains("hugetlb.1GB.rsvd.limit_in_bytes"));
        assert_eq!(super::refusal("", "", 2 << 20, u64::MAX, Charged::Touched), None);
    }
}
