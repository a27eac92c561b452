//! What a source says of a machine, before anything is decided about it.

use std::collections::{BTreeMap, BTreeSet};

use pinrail_core::{PciAddress, RailState};

/// PCI functions below bridges, and the RDMA devices on them.
#[derive(Debug, Default)]
pub(crate) struct Tree {
    /// NUMA nodes.
    pub(crate) nodes: BTreeSet<u32>,
    pub(crate) functions: Vec<Function>,
    pub(crate) rdma: Vec<Rdma>,
    /// Whether a function without an RDMA device has none: NCCL's files name RDMA devices or leave them out.
    pub(crate) names_rdma: bool,
    pub(crate) notes: Vec<String>,
    bridges: Vec<Bridge>,
    /// The first bridge of each name below another one, and how many there are.
    siblings: BTreeMap<(Option<BridgeId>, String), (BridgeId, u32)>,
}

/// A bridge of a [`Tree`].
#[derive(Clone, Copy, Debug, PartialEq, Eq, PartialOrd, Ord)]
pub(crate) struct BridgeId(usize);

#[derive(Debug)]
struct Bridge {
    name: String,
    above: Option<BridgeId>,
    depth: usize,
}

/// Where something is attached.
#[derive(Clone, Copy, Debug, Default, PartialEq, Eq)]
pub(crate) struct Spot {
    /// The bridge right above it.
    pub(crate) bridge: Option<BridgeId>,
    /// Its NUMA node, where known.
    pub(crate) node: Option<u32>,
}

/// A PCI function that is no bridge.
#[derive(Debug)]
pub(crate) struct Function {
    pub(crate) address: PciAddress,
    /// The PCI class: base class and subclass.
    pub(crate) class: u16,
    /// Vendor and device, where the source names them.
    pub(crate) id: Option<(u16, u16)>,
    /// What it is called, for people.
    pub(crate) label: Option<String>,
    pub(crate) spot: Spot,
    /// The speed of its PCI link in megabits a second.
    pub(crate) link_mbps: Option<u64>,
    /// Whether the operating system computes on it.
    pub(crate) computes: bool,
    /// Whether the source says that it is a virtual function.
    pub(crate) is_virtual: bool,
    /// The physical function that it is a virtual function of.
    pub(crate) physical: Option<PciAddress>,
}

/// An RDMA device of the operating system.
#[derive(Debug)]
pub(crate) struct Rdma {
    pub(crate) name: String,
    /// Its function, as a position in the tree's list.
    pub(crate) function: Option<usize>,
    /// Where it is when it has no function.
    pub(crate) spot: Spot,
    pub(crate) ports: Vec<Port>,
    /// Whether it is made of a network device instead of being one.
    pub(crate) software: bool,
}

/// A port of an RDMA device.
#[derive(Clone, Copy, Debug)]
pub(crate) struct Port {
    pub(crate) state: RailState,
    pub(crate) mbps: Option<u64>,
}

impl Function {
    pub(crate) fn new(address: PciAddress, class: u16, id: Option<(u16, u16)>, spot: Spot) -> Function {
        Function { address, class, id, label: None, spot, link_mbps: None, computes: false, is_virtual: false, physical: None }
    }
}

impl Tree {
    /// More levels than this have no PCI tree: each bridge uses up one of a domain's 256 bus numbers.
    const DEPTH_MAX: usize = 256;

    /// Adds a bridge. Two siblings of one name (invented ids, in some files) stay two bridges.
    pub(crate) fn bridge(&mut self, above: Option<BridgeId>, name: &str) -> BridgeId {
        let id = BridgeId(self.bridges.len());
        let (_, times) = self.siblings.entry((above, name.to_owned())).or_insert((id, 0));
        *times += 1;
        let name = if *times == 1 { name.to_owned() } else { format!("{name}#{times}") };
        let depth = above.map_or(0, |above| self.bridges[above.0].depth) + 1;
        self.bridges.push(Bridge { name, above, depth });
        id
    }

    /// The bridge below these bridges, outermost first, which are added where they are not there yet: for sources whose
    /// names are true.
    #[cfg(any(feature = "live", test))]
    pub(crate) fn bridge_at(&mut self, names: &[String]) -> Option<BridgeId> {
        names.iter().fold(None, |above, name| match self.siblings.get(&(above, name.clone())) {
            Some((there, _)) => Some(*there),
            None => Some(self.bridge(above, name)),
        })
    }

    /// The names of a bridge and those above it, outermost first; `None` where they are more than PCI can have.
    pub(crate) fn chain(&self, bridge: Option<BridgeId>) -> Option<Vec<String>> {
        let mut names = Vec::new();
        let mut at = bridge;
        while let Some(id) = at {
            let bridge = &self.bridges[id.0];
            if bridge.depth > Tree::DEPTH_MAX {
                return None;
            }
            names.push(bridge.name.clone());
            at = bridge.above;
        }
        names.reverse();
        Some(names)
    }
}
