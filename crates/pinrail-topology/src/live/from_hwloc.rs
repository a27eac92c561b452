//! hwloc's topology as a [`Tree`].

use std::fmt::Display;

use hwloc::Topology;
use hwloc::object::TopologyObject;
use hwloc::object::attributes::{DownstreamAttributes, ObjectAttributes, PCIDeviceAttributes, UpstreamAttributes};
use hwloc::object::depth::Depth;
use hwloc::object::types::ObjectType;
use hwloc::topology::builder::{BuildFlags, TypeFilter};
use pinrail_core::PciAddress;

use crate::TopologyError;
use crate::hwloc_xml::gigabytes_to_mbps;
use crate::tree::{Function, Spot, Tree};

pub(super) fn this_host() -> Result<Tree, TopologyError> {
    let topology = Topology::builder()
        // Nodes outside of this process's control group are still where devices are.
        .with_flags(BuildFlags::INCLUDE_DISALLOWED)
        .map_err(failed)?
        .with_type_filter(ObjectType::Bridge, TypeFilter::KeepImportant)
        .map_err(failed)?
        .with_type_filter(ObjectType::PCIDevice, TypeFilter::KeepImportant)
        .map_err(failed)?
        // Nothing of the operating system: CUDA, OpenCL and their kind would be started, for seconds, to name their devices.
        .with_type_filter(ObjectType::OSDevice, TypeFilter::KeepNone)
        .map_err(failed)?
        .build()
        .map_err(failed)?;
    Ok(tree(&topology))
}

fn failed(error: impl Display) -> TopologyError {
    TopologyError::Hwloc { what: error.to_string() }
}

pub(super) fn tree(topology: &Topology) -> Tree {
    let mut tree = Tree::default();
    tree.names_rdma = true;
    let nodes: Vec<&TopologyObject> = topology.objects_at_depth(Depth::NUMANode).collect();
    tree.nodes.extend(nodes.iter().filter_map(|node| node_id(node)));
    for object in topology.pci_devices() {
        let Some(ObjectAttributes::PCIDevice(pci)) = object.attributes() else { continue };
        let Some(address) = address(pci) else { continue };
        let mut bridges: Vec<String> = object.ancestors().filter_map(bridge_name).collect();
        bridges.reverse();
        let spot =
            Spot { bridge: tree.bridge_at(&bridges), node: object.first_non_io_ancestor().and_then(|near| node(near, &nodes)) };
        let mut function = Function::new(address, pci.class_id(), Some((pci.vendor_id(), pci.device_id())), spot);
        function.link_mbps = gigabytes_to_mbps(pci.link_speed().into());
        tree.functions.push(function);
    }
    tree
}

/// The node of I/O devices that are attached to an object, as [`hwloc_xml`](crate::hwloc_xml) finds it.
fn node(near: &TopologyObject, nodes: &[&TopologyObject]) -> Option<u32> {
    // hwloc attaches to the root what it knows no locality of.
    near.parent()?;
    let only = near.complete_nodeset().filter(|nodes| nodes.weight() == Some(1)).and_then(|nodes| nodes.first_set());
    let only = only.and_then(|index| u32::try_from(usize::from(index)).ok());
    let same_cpus = || nodes.iter().filter(|node| node.complete_cpuset() == near.complete_cpuset());
    only.or_else(|| same_cpus().filter_map(|node| node_id(node)).min())
}

fn node_id(node: &TopologyObject) -> Option<u32> {
    node.os_index().and_then(|id| u32::try_from(id).ok())
}

fn address(pci: &PCIDeviceAttributes) -> Option<PciAddress> {
    PciAddress::new(pci.domain().into(), pci.bus_id(), pci.bus_device(), pci.function())
}

/// A bridge by its PCI address; a host bridge, which has none, as sysfs calls it.
fn bridge_name(object: &TopologyObject) -> Option<String> {
    let Some(ObjectAttributes::Bridge(bridge)) = object.attributes() else { return None };
    match (bridge.upstream_attributes(), bridge.downstream_attributes()) {
        (Some(UpstreamAttributes::PCI(pci)), _) => Some(address(pci)?.to_string()),
        (None, Some(DownstreamAttributes::PCI(buses))) => {
            Some(format!("pci{:04x}:{:02x}", buses.domain(), buses.secondary_bus()))
        }
        (None, None) => None,
    }
}

#[cfg(test)]
mod tests {
    use super::*;
    use crate::{hwloc_xml, xml};
    use std::collections::BTreeSet;
    use std::io::Write as _;
    use std::path::PathBuf;

    /// What a tree says of its functions: address, class, ids, link, bridges and node.
    fn facts(tree: &Tree) -> BTreeSet<String> {
        let fact = |f: &Function| {
            format!(
                "{} {:04x} {:?} {:?} {:?} {:?}",
                f.address,
                f.class,
                f.id,
                f.link_mbps,
                tree.chain(f.spot.bridge),
                f.spot.node
            )
        };
        tree.functions.iter().map(fact).collect()
    }

    /// Our reading of a file against libhwloc's own.
    #[test]
    fn both_readings_of_a_file_are_one() {
        let shared = PathBuf::from(env!("CARGO_MANIFEST_DIR")).join("../../../shared/topologies");
        let mut files = 0;
        for folder in ["aws", "hwloc", "."] {
            let Ok(entries) = std::fs::read_dir(shared.join(folder)) else {
                writeln!(std::io::stderr(), "SKIPPED, nothing proved: no ../shared/topologies/{folder}").unwrap();
                return;
            };
            for path in entries.map(|entry| entry.unwrap().path()).filter(|path| path.extension().is_some_and(|x| x == "xml")) {
                files += 1;
                let text = std::fs::read_to_string(&path).unwrap();
                let ours = hwloc_xml::read(&xml::elements(&text).unwrap()).unwrap();
                let theirs = Topology::builder().from_xml(&with_processors(&without_comments(&text))).unwrap();
                let theirs = theirs.with_io_type_filter(TypeFilter::KeepAll).unwrap().build().unwrap();
                let theirs = tree(&theirs);
                assert_eq!(facts(&ours), facts(&theirs), "{}", path.display());
                assert_eq!(ours.nodes, theirs.nodes, "{}", path.display());
            }
        }
        assert_eq!(files, 12);
    }

    /// libhwloc's own parser knows no comments.
    fn without_comments(text: &str) -> String {
        let mut parts = text.split("<!--");
        let first = parts.next().unwrap_or_default().to_owned();
        parts.fold(first, |text, part| text + part.split_once("-->").unwrap().1.trim_start())
    }

    /// Some files name no processors, of which libhwloc's check of its own tree (in debug builds) makes an abort: gives each
    /// package one for each bit of its set.
    fn with_processors(text: &str) -> String {
        if text.contains("type=\"PU\"") {
            return text.to_owned();
        }
        let tag = |part: &str| {
            let Some((tag, rest)) = part.split_once('>').filter(|(tag, _)| tag.starts_with("object type=\"Package\"")) else {
                return format!("<{part}");
            };
            let sets = |name: &str| tag.split(&format!(" {name}=\"")).nth(1).unwrap().split('"').next().unwrap();
            let (cpus, nodes) = (sets("cpuset"), sets("nodeset"));
            let mut processors = String::new();
            for (at, word) in cpus.rsplit(',').enumerate() {
                let word = u32::from_str_radix(word.strip_prefix("0x").unwrap_or("0"), 16).unwrap();
                for bit in (0..32).filter(|bit| word >> bit & 1 == 1) {
                    let (set, id) = (format!("{:#010x}{}", 1u32 << bit, ",0x0".repeat(at)), at * 32 + bit);
                    processors += &format!(
                        "<object type=\"PU\" os_index=\"{id}\" gp_index=\"1{id:06}\" cpuset=\"{set}\" complete_cpuset=\"{set}\" nodeset=\"{nodes}\" complete_nodeset=\"{nodes}\"/>"
                    );
                }
            }
            format!("<{tag}>{processors}{rest}")
        };
        text.split('<').skip(1).map(tag).collect()
    }

    #[test]
    #[allow(clippy::disallowed_methods, reason = "a limit on time is what is tested")]
    fn this_host_is_discovered_in_200_ms() {
        let run = |_| {
            let start = std::time::Instant::now();
            let topology = crate::discover().unwrap();
            assert_eq!(topology.machine.check(), Ok(()));
            assert!(!topology.machine.nodes.is_empty(), "every Linux has a NUMA node");
            start.elapsed()
        };
        let took = (0..5).map(run).min().unwrap();
        assert!(took < std::time::Duration::from_millis(200), "{took:?}");
    }
}
