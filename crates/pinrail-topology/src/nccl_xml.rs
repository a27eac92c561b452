//! NCCL's topology XML: what it dumps (`NCCL_TOPO_DUMP_FILE`), and what clouds ship for VMs that hide the PCI tree.
//!
//! Every attribute but the address is optional: NCCL fills in what is missing from sysfs, hand-written files rely on it.

use std::collections::BTreeMap;

use pinrail_core::{PciAddress, RailState};

use crate::TopologyError;
use crate::tree::{BridgeId, Function, Port, Rdma, Spot, Tree};
use crate::xml::Element;

/// What lies above an element.
#[derive(Clone, Copy, Default)]
struct Context {
    spot: Spot,
    /// Whether the bridge is a switch: below a switch another one is at one of its ports.
    in_switch: bool,
    function: Option<usize>,
}

pub(crate) fn read(elements: &[Element]) -> Result<Tree, TopologyError> {
    let mut tree = Tree::default();
    let mut has_pci_below = vec![false; elements.len()];
    for element in elements.iter().filter(|element| element.name == "pci") {
        if let Some(parent) = element.parent {
            has_pci_below[parent] = true;
        }
    }
    let mut devices = BTreeMap::new();
    let mut contexts: Vec<Context> = Vec::with_capacity(elements.len());
    for (at, element) in elements.iter().enumerate() {
        let mut context = element.parent.map(|parent| contexts[parent]).unwrap_or_default();
        match element.name.as_str() {
            "cpu" => {
                // A negative number is the operating system's "not known".
                let node = element.get("numaid").and_then(|id| id.parse::<u32>().ok());
                tree.nodes.extend(node);
                let name = format!("cpu{}", element.get("numaid").unwrap_or_default());
                context.spot = Spot { bridge: Some(tree.bridge(None, &name)), node };
            }
            "pci" => match (element.get("busid").map(str::parse::<PciAddress>), class(element)) {
                (address, class) if class >> 8 == 0x06 || has_pci_below[at] => {
                    let name = address.and_then(Result::ok).map_or_else(|| "switch".to_owned(), |address| address.to_string());
                    context.spot.bridge = Some(switch(&mut tree, context, &name));
                    context.in_switch = true;
                }
                (Some(Ok(address)), class) => {
                    context.function = Some(tree.functions.len());
                    let mut function = Function::new(address, class, id(element), context.spot);
                    function.link_mbps = link_mbps(element);
                    tree.functions.push(function);
                }
                (busid, _) => {
                    let reason = match busid {
                        None => "it has no busid".to_owned(),
                        Some(error) => error.expect_err("the other case is above").to_string(),
                    };
                    tree.notes.push(format!("left out, a device without an address: {reason}"));
                }
            },
            "gpu" => {
                if let Some(function) = context.function.map(|at| &mut tree.functions[at]) {
                    function.computes = true;
                    // A 3D controller, where the file leaves out the class.
                    function.class = if function.class == 0 { 0x0302 } else { function.class };
                }
            }
            "net" => net(&mut tree, &mut devices, context, element),
            _ => {}
        }
        contexts.push(context);
    }
    Ok(tree)
}

/// NCCL draws a switch as one device, [`Rail::bridges`](pinrail_core::Rail::bridges) are its ports: a switch below
/// another is at a port of its own.
fn switch(tree: &mut Tree, above: Context, name: &str) -> BridgeId {
    let port = if above.in_switch { Some(tree.bridge(above.spot.bridge, &format!("port of {name}"))) } else { above.spot.bridge };
    tree.bridge(port, name)
}

/// A network device that NCCL opened; several of one name on one function are ports of one device.
fn net(tree: &mut Tree, devices: &mut BTreeMap<(Option<usize>, String), usize>, context: Context, element: &Element) {
    let name = element.get("name").unwrap_or_default();
    let zero = |attribute| matches!(element.get(attribute), Some("0" | "0x0"));
    if zero("port") && zero("guid") {
        tree.notes.push(format!("left out, a network interface without RDMA: {:.80}", name.escape_debug().to_string()));
        return;
    }
    let at = *devices.entry((context.function, name.to_owned())).or_insert_with(|| {
        let rdma =
            Rdma { name: name.to_owned(), function: context.function, spot: context.spot, ports: Vec::new(), software: false };
        tree.rdma.push(rdma);
        tree.rdma.len() - 1
    });
    let mbps = element.get("speed").and_then(|speed| speed.parse().ok()).filter(|mbps| *mbps > 0);
    tree.rdma[at].ports.push(Port { state: RailState::Unknown, mbps });
}

/// The class and subclass: NCCL writes sysfs's three bytes, as in `0x030200`.
fn class(element: &Element) -> u16 {
    element.get("class").and_then(hex).and_then(|class| u16::try_from(class >> 8).ok()).unwrap_or(0)
}

fn id(element: &Element) -> Option<(u16, u16)> {
    let part = |attribute| element.get(attribute).and_then(hex).and_then(|id| u16::try_from(id).ok());
    Some((part("vendor")?, part("device")?))
}

fn hex(text: &str) -> Option<u32> {
    u32::from_str_radix(text.strip_prefix("0x")?, 16).ok()
}

/// Lanes times the rate of one, less the line code: 8 of 10 bits up to 5 GT/s, 128 of 130 above.
fn link_mbps(element: &Element) -> Option<u64> {
    let rate: f64 = element.get("link_speed")?.split(' ').next()?.parse().ok()?;
    let lanes: u8 = element.get("link_width")?.parse().ok()?;
    let code = if rate <= 5.0 { 0.8 } else { 128.0 / 130.0 };
    crate::hwloc_xml::gigabytes_to_mbps(rate * code * f64::from(lanes) / 8.0)
}
