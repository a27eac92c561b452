//! hwloc's XML, of hwloc 1 and 2: `lstopo FILE.xml`.
//!
//! Read here and not by libhwloc: its own parser refuses a file that begins with a comment unless a plugin with libxml2 is
//! installed, drops devices in 32-bit PCI domains, and is a C parser that would see whatever somebody sent. The tests
//! hold the two against each other.

use std::collections::{BTreeMap, BTreeSet};

use pinrail_core::{PciAddress, RailState};

use crate::TopologyError;
use crate::devices;
use crate::tree::{Function, Port, Rdma, Spot, Tree};
use crate::xml::Element;

/// What lies above an element.
#[derive(Clone, Copy, Default)]
struct Context {
    spot: Spot,
    function: Option<usize>,
    rdma: Option<usize>,
}

pub(crate) fn read(elements: &[Element]) -> Result<Tree, TopologyError> {
    match elements.first().and_then(|root| root.get("version")) {
        None => {}
        Some(version) if version.starts_with("2.") => {}
        Some(found) => return Err(TopologyError::Version { found: found.chars().take(20).collect() }),
    }
    let mut tree = Tree::default();
    tree.names_rdma = true;
    let nodes = NumaNodes::of(elements);
    tree.nodes.extend(&nodes.ids);
    let mut contexts: Vec<Context> = Vec::with_capacity(elements.len());
    for element in elements {
        let above = element.parent.map(|parent| contexts[parent]).unwrap_or_default();
        let mut context = above;
        match (element.name.as_str(), element.get("type")) {
            ("object", Some("Bridge")) => context.spot.bridge = Some(tree.bridge(above.spot.bridge, &bridge_name(element))),
            ("object", Some("PCIDev")) => match function(element, above.spot) {
                Some(function) => {
                    context.function = Some(tree.functions.len());
                    tree.functions.push(function);
                }
                None => tree.notes.push(format!("left out, no PCI address: {}", shown(element.get("pci_busid")))),
            },
            ("object", Some("OSDev")) => match element.get("osdev_type") {
                Some("3") => {
                    context.rdma = Some(tree.rdma.len());
                    let name = element.get("name").unwrap_or_default().to_owned();
                    tree.rdma.push(Rdma { name, function: above.function, spot: above.spot, ports: Vec::new(), software: false });
                }
                Some("5") => above.function.into_iter().for_each(|at| tree.functions[at].computes = true),
                _ => {}
            },
            ("object", _) => context.spot.node = nodes.near(element),
            ("info", _) => info(&mut tree, above, element),
            _ => {}
        }
        contexts.push(context);
    }
    Ok(tree)
}

/// NUMA nodes, also by the processors near to them: of several with the same processors the first, which is ordinary memory.
struct NumaNodes<'x> {
    ids: BTreeSet<u32>,
    by_cpus: BTreeMap<&'x str, u32>,
}

impl NumaNodes<'_> {
    fn of(elements: &[Element]) -> NumaNodes<'_> {
        let mut nodes = NumaNodes { ids: BTreeSet::new(), by_cpus: BTreeMap::new() };
        for element in elements.iter().filter(|element| element.get("type") == Some("NUMANode")) {
            let Some(id) = element.get("os_index").and_then(|id| id.parse().ok()) else { continue };
            nodes.ids.insert(id);
            if let Some(cpus) = element.get("complete_cpuset") {
                nodes.by_cpus.entry(cpus).and_modify(|first| *first = id.min(*first)).or_insert(id);
            }
        }
        nodes
    }

    /// The node of I/O devices that are attached to an object.
    fn near(&self, object: &Element) -> Option<u32> {
        // hwloc attaches to the root what it knows no locality of.
        if matches!(object.get("type"), Some("Machine" | "System")) {
            return None;
        }
        let only = object.get("complete_nodeset").or_else(|| object.get("nodeset")).and_then(only_bit);
        only.or_else(|| self.by_cpus.get(object.get("complete_cpuset")?).copied())
    }
}

/// The one bit of a bitmap as hwloc writes it: words of 32 bits in hexadecimal, the most significant first.
fn only_bit(bitmap: &str) -> Option<u32> {
    let mut found = None;
    for (at, word) in (0u32..1024).zip(bitmap.rsplit(',')) {
        let word = if word.is_empty() { 0 } else { u32::from_str_radix(word.strip_prefix("0x")?, 16).ok()? };
        match (word.count_ones(), found) {
            (0, _) => {}
            (1, None) => found = Some(at * 32 + word.trailing_zeros()),
            _ => return None,
        }
    }
    found
}

/// A bridge by its PCI address; a host bridge, which has none, as sysfs calls it: `pci0000:44`.
fn bridge_name(element: &Element) -> String {
    match (element.get("pci_busid"), element.get("bridge_pci")) {
        (Some(address), _) => address.parse().map_or_else(|_| address.to_owned(), |address: PciAddress| address.to_string()),
        (None, Some(buses)) => format!("pci{}", buses.split('-').next().unwrap_or_default().replace('[', "")),
        (None, None) => "host bridge".to_owned(),
    }
}

fn function(element: &Element, spot: Spot) -> Option<Function> {
    let address = element.get("pci_busid")?.parse().ok()?;
    // As in `0200 [1d0f:ec20] [1d0f:ec20] 00`: class, device, subsystem, revision.
    let mut parts = element.get("pci_type").unwrap_or_default().split(' ');
    let class = parts.next().and_then(hex).unwrap_or(0);
    let id = parts.next().and_then(|id| id.strip_prefix('[')?.strip_suffix(']')?.split_once(':'));
    let id = id.and_then(|(vendor, device)| Some((hex(vendor)?, hex(device)?)));
    let link = element.get("pci_link_speed").and_then(|speed| speed.parse::<f64>().ok());
    let mut function = Function::new(address, class, id, spot);
    function.link_mbps = link.and_then(gigabytes_to_mbps);
    Some(function)
}

/// Gigabytes a second in megabits; `None` for the zero of an unknown speed, and for what no link has.
pub(crate) fn gigabytes_to_mbps(speed: f64) -> Option<u64> {
    #[allow(clippy::cast_possible_truncation, clippy::cast_sign_loss, reason = "bounded by the filter")]
    Some((speed * 8000.0).round()).filter(|mbps| (1.0..1e9).contains(mbps)).map(|mbps| mbps as u64)
}

fn hex(text: &str) -> Option<u16> {
    (text.len() == 4).then(|| u16::from_str_radix(text, 16).ok()).flatten()
}

fn info(tree: &mut Tree, of: Context, element: &Element) {
    let (Some(name), Some(value)) = (element.get("name"), element.get("value")) else { return };
    match (of.rdma, of.function) {
        (Some(rdma), _) if name.starts_with("Port") && name.ends_with("State") => {
            tree.rdma[rdma].ports.push(Port { state: port_state(value), mbps: None });
        }
        (None, Some(function)) if name == "PCIDevice" => {
            let function = &mut tree.functions[function];
            function.is_virtual = devices::is_virtual(value);
            function.label = Some(value.to_owned());
        }
        _ => {}
    }
}

/// A port's state by its number in verbs: 4 is active, 5 active with its peer's link lost for a moment.
pub(crate) fn port_state(number: &str) -> RailState {
    match number {
        "4" | "5" => RailState::Up,
        "1" | "2" | "3" => RailState::Down,
        _ => RailState::Unknown,
    }
}

fn shown(text: Option<&str>) -> String {
    text.map_or_else(|| "none".to_owned(), |text| text.chars().filter(|c| !c.is_control()).take(40).collect())
}
