//! On which NUMA nodes memory lies, and on which it shall.

use std::collections::BTreeMap;
use std::io;

use pinrail_core::{Extent, NodeId, Place};

use crate::sys;

/// Prefers a node for the pages of a range that do not exist yet; the sentence that says why not otherwise.
pub(crate) fn prefer(extent: Extent, node: NodeId) -> Result<(), String> {
    let set = sys::mask_of(node.0)
        .ok_or_else(|| io::Error::from_raw_os_error(libc::EINVAL))
        .and_then(|mask| sys::bind(extent.start(), extent.len(), libc::MPOL_PREFERRED, &mask));
    set.map_err(|error| {
        format!("{node} cannot be preferred for {extent} (mbind: {error}): the thread that touches it first decides")
    })
}

/// Where the pages of a range lie, as far as they were asked.
#[derive(Clone, Debug, Default, PartialEq, Eq)]
pub struct NodeHistogram {
    /// Pages asked.
    pub asked: u64,
    /// Pages on each node.
    pub pages: BTreeMap<NodeId, u64>,
    /// Pages that do not exist: untouched, the shared zero page, or not mapped at all.
    pub absent: u64,
    /// Pages the kernel would not tell about (device memory).
    pub unknown: u64,
}

impl NodeHistogram {
    /// The node of every page that exists, if it is one and the same.
    #[must_use]
    pub fn single(&self) -> Option<NodeId> {
        match (self.pages.len(), self.pages.keys().next()) {
            (1, Some(&node)) => Some(node),
            _ => None,
        }
    }

    /// True if the pages lie on more than one node.
    #[must_use]
    pub fn is_mixed(&self) -> bool {
        self.pages.len() > 1
    }
}

/// Asks at most `pages_max` base pages of a range, evenly spread, on which node they lie (`move_pages(2)` without a
/// target, about 120 ns a page; nothing is touched or moved).
///
/// # Errors
/// What the call reported: `EPERM` or `ENOSYS` under a seccomp profile that refuses it.
pub fn node_histogram(extent: Extent, pages_max: u32) -> io::Result<NodeHistogram> {
    let page = sys::base_page();
    let (first, count) = (extent.start() / page, extent.pages(page));
    let asked = count.min(u64::from(pages_max.max(1)));
    // Not from the first on but in the middle of each share: ends are often special. 128 bits: no overflow.
    let nth = |n: u64| u64::try_from((2 * u128::from(n) + 1) * u128::from(count) / (2 * u128::from(asked))).unwrap_or(0);
    let addresses: Vec<u64> = (0..asked).map(|n| (first + nth(n)) * page).collect();
    let mut status = vec![0; addresses.len()];
    sys::nodes_of(&addresses, &mut status)?;
    let mut histogram = NodeHistogram { asked, ..NodeHistogram::default() };
    for status in status {
        match u32::try_from(status) {
            Ok(node) => *histogram.pages.entry(NodeId(node)).or_default() += 1,
            Err(_) if status == -libc::ENOENT || status == -libc::EFAULT => histogram.absent += 1,
            Err(_) => histogram.unknown += 1,
        }
    }
    Ok(histogram)
}

/// Where host memory lies, as placement asks it: by its pages and not by the thread that asks.
///
/// A sample of 64 pages is looked at. Memory that nobody has touched has no node; where the process may use one node
/// only, it will be that one.
///
/// # Errors
/// As [`node_histogram`].
pub fn host_place(extent: Extent) -> io::Result<Place> {
    let histogram = node_histogram(extent, 64)?;
    Ok(match histogram.single() {
        Some(node) => Place::HostNode(node),
        None if histogram.is_mixed() => Place::HostMixed,
        None => only_node_of(&std::fs::read_to_string("/proc/thread-self/status")?).map_or(Place::Host, Place::HostNode),
    })
}

/// The one node that memory may come from, in the kernel's own words.
fn only_node_of(status: &str) -> Option<NodeId> {
    let list = status.lines().find_map(|line| line.strip_prefix("Mems_allowed_list:"))?;
    list.trim().parse().ok().map(NodeId)
}

/// Prefers a node for what the calling thread touches, until it is dropped; a mapping's own policy is stronger.
pub(crate) struct PreferHere {
    before: (libc::c_int, sys::NodeMask),
}

impl PreferHere {
    pub(crate) fn new(node: NodeId) -> io::Result<PreferHere> {
        let mask = sys::mask_of(node.0).ok_or_else(|| io::Error::from_raw_os_error(libc::EINVAL))?;
        let before = sys::thread_policy()?;
        sys::set_thread_policy(libc::MPOL_PREFERRED, &mask)?;
        Ok(PreferHere { before })
    }
}

impl Drop for PreferHere {
    fn drop(&mut self) {
        // Refused only if the thread's allowed nodes changed meanwhile; a preference left behind harms nobody.
        sys::set_thread_policy(self.before.0, &self.before.1).ok();
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn the_threads_policy_is_put_back() {
        let before = sys::thread_policy().unwrap();
        let Ok(preferred) = PreferHere::new(NodeId(0)) else { return };
        let during = sys::thread_policy().unwrap();
        assert_eq!((during.0, during.1[0]), (libc::MPOL_PREFERRED, 1));
        drop(preferred);
        assert_eq!(sys::thread_policy().unwrap(), before);
        for nowhere in [NodeId(1023), NodeId(1024), NodeId(u32::MAX)] {
            assert!(PreferHere::new(nowhere).is_err());
            assert_eq!(sys::thread_policy().unwrap(), before);
        }
    }

    #[test]
    fn mixed_is_more_than_one_node() {
        let on =
            |nodes: &[u32]| NodeHistogram { pages: nodes.iter().map(|&n| (NodeId(n), 3)).collect(), ..NodeHistogram::default() };
        assert_eq!((on(&[]).single(), on(&[2]).single(), on(&[0, 2]).single()), (None, Some(NodeId(2)), None));
        assert_eq!([on(&[]), on(&[2]), on(&[0, 2])].map(|histogram| histogram.is_mixed()), [false, false, true]);
    }

    #[test]
    fn untouched_memory_will_lie_on_the_only_node_there_is() {
        assert_eq!(only_node_of("Name:\tx\nMems_allowed_list:\t3\n"), Some(NodeId(3)));
        assert_eq!(only_node_of("Mems_allowed_list:\t0-1\n"), None);
        assert_eq!(only_node_of("Mems_allowed_list:\t0,2\n"), None);
        assert_eq!(only_node_of(""), None);
    }
}
