//! From what a source says to a [`Machine`]: which functions are rails, which are GPUs, and why the others are neither.

use std::collections::{BTreeMap, BTreeSet};

use pinrail_core::{Gpu, Machine, NodeId, NumaNode, PciAddress, Rail, RailState};

use crate::TopologyError;
use crate::devices::{self, Kind};
use crate::tree::{BridgeId, Function, Port, Rdma, Spot, Tree};

/// The machine; what is left out of it is in its notes. The order of the source plays no part in the answer.
pub(crate) fn machine(mut tree: Tree) -> Result<Machine, TopologyError> {
    name_unnamed_rdma(&mut tree);
    let notes = std::mem::take(&mut tree.notes);
    let mut left_out = LeftOut::default();
    let (gpus, rails) = (gpus(&tree, &mut left_out), rails(&tree, &mut left_out));
    for (what, count) in [("GPUs", gpus.len()), ("rails", rails.len())] {
        if count > Rail::MAX {
            return Err(TopologyError::TooMany { what, count, max: Rail::MAX });
        }
    }
    left_out.the_rest(&tree);
    let mut machine = Machine::default();
    let mut nodes = tree.nodes.clone();
    let mut deep = Vec::new();
    let mut attach = |spot: Spot, what: &str| {
        nodes.extend(spot.node);
        tree.chain(spot.bridge).or_else(|| {
            deep.push(what.to_owned());
            None
        })
    };
    for gpu in &gpus {
        if let Some(bridges) = attach(gpu.spot, &gpu.address.to_string()) {
            machine.gpus.push(Gpu { pci: gpu.address, node: gpu.spot.node.map(NodeId), bridges });
        }
    }
    for rail in &rails {
        if let Some(bridges) = attach(rail.spot, &rail.shown()) {
            machine.rails.push(rail.rail(bridges));
        }
    }
    for name in deep {
        left_out.add("more bridges above it than PCI has bus numbers".to_owned(), name);
    }
    machine.nodes = nodes.into_iter().map(|id| NumaNode { id: NodeId(id) }).collect();
    machine.notes = notes;
    machine.notes.extend(speeds_inferred(&rails));
    machine.notes.extend(nothing_found(&machine, tree.functions.len()));
    machine.notes.extend(nodes_unknown(&machine));
    machine.notes.extend(left_out.notes());
    machine.check()?;
    Ok(machine)
}

/// A source that does not name RDMA devices still says which functions are RDMA-capable: those are named by address.
fn name_unnamed_rdma(tree: &mut Tree) {
    if tree.names_rdma {
        return;
    }
    let named: BTreeSet<usize> = tree.rdma.iter().filter_map(|rdma| rdma.function).collect();
    let unnamed =
        tree.functions.iter().enumerate().filter(|(at, function)| {
            devices::kind(function) == Kind::Network && devices::is_rdma(function) && !named.contains(at)
        });
    let rdma: Vec<Rdma> = unnamed
        .map(|(at, function)| Rdma {
            name: function.address.to_string(),
            function: Some(at),
            spot: function.spot,
            ports: Vec::new(),
            software: false,
        })
        .collect();
    tree.rdma.extend(rdma);
}

fn gpus<'t>(tree: &'t Tree, left_out: &mut LeftOut) -> Vec<&'t Function> {
    let mut gpus: Vec<&Function> = tree.functions.iter().filter(|function| devices::kind(function) == Kind::Gpu).collect();
    gpus.sort_by_key(|gpu| (gpu.address, gpu.spot.bridge));
    gpus.retain(|gpu| {
        let guest = gpu.physical.is_some();
        if guest {
            left_out.add("virtual function of a GPU, for a guest".to_owned(), gpu.address.to_string());
        }
        !guest
    });
    gpus.dedup_by(|again, first| {
        let same = again.address == first.address;
        if same {
            left_out.add("second GPU at the same PCI address".to_owned(), again.address.to_string());
        }
        same
    });
    gpus
}

/// A rail in the making.
struct Candidate<'t> {
    rdma: &'t Rdma,
    function: Option<&'t Function>,
    spot: Spot,
    vf_of: Option<PciAddress>,
}

fn rails<'t>(tree: &'t Tree, left_out: &mut LeftOut) -> Vec<Candidate<'t>> {
    let physical = PhysicalFunctions::of(tree);
    let gpus: BTreeSet<PciAddress> =
        tree.functions.iter().filter(|function| devices::kind(function) == Kind::Gpu).map(|gpu| gpu.address).collect();
    let with_rdma: BTreeSet<PciAddress> =
        tree.rdma.iter().filter_map(|rdma| Some(tree.functions[rdma.function?].address)).collect();
    let mut candidates: Vec<Candidate> = tree
        .rdma
        .iter()
        .map(|rdma| {
            let function = rdma.function.map(|at| &tree.functions[at]);
            let vf_of = function.and_then(|function| physical.function_of(function));
            Candidate { rdma, function, spot: function.map_or(rdma.spot, |function| function.spot), vf_of }
        })
        .collect();
    // By address, those without one last, and hardware before software: of two that contradict each other the first stays.
    candidates.sort_by_key(|rail| {
        let address = rail.function.map(|function| function.address);
        (address.is_none(), address, rail.rdma.software, &rail.rdma.name)
    });
    let mut names = BTreeSet::new();
    candidates.retain(|rail| {
        let reason = if !Rail::is_name(&rail.rdma.name) {
            "RDMA device whose name could not be written in a policy".to_owned()
        } else if rail.function.is_some_and(|function| gpus.contains(&function.address)) {
            "RDMA device on a GPU's own function".to_owned()
        } else if let Some(physical) = rail.vf_of.filter(|physical| with_rdma.contains(physical)) {
            format!("virtual function of {physical}, which is a rail itself")
        } else if !names.insert(&rail.rdma.name) {
            "second RDMA device of that name".to_owned()
        } else {
            return true;
        };
        left_out.add(reason, rail.shown());
        false
    });
    candidates
}

impl Candidate<'_> {
    fn shown(&self) -> String {
        let name = plain(&self.rdma.name);
        self.function.map_or_else(|| name.clone(), |function| format!("{name} ({})", function.address))
    }

    fn rail(&self, bridges: Vec<String>) -> Rail {
        Rail {
            pci: self.function.map(|function| function.address),
            node: self.spot.node.map(NodeId),
            bridges,
            vf_of: self.vf_of,
            mbps: self.mbps().or_else(|| self.inferred().map(|(mbps, _)| mbps)),
            state: self.state(),
            ..Rail::named(self.rdma.name.clone())
        }
    }

    /// Up if any port is, down if all are known to be down.
    fn state(&self) -> RailState {
        let is = |state| move |port: &Port| port.state == state;
        match self.rdma.ports.as_slice() {
            ports if ports.iter().any(is(RailState::Up)) => RailState::Up,
            ports if !ports.is_empty() && ports.iter().all(is(RailState::Down)) => RailState::Down,
            _ => RailState::Unknown,
        }
    }

    /// The fastest port's speed: ports of one device share its bandwidth. Ports that are down count only where all are.
    fn mbps(&self) -> Option<u64> {
        let usable = self.state() != RailState::Down;
        let ports = self.rdma.ports.iter().filter(|port| !usable || port.state != RailState::Down);
        ports.filter_map(|port| port.mbps).max()
    }

    /// What the speed must be where no port's is known, and where that is from.
    fn inferred(&self) -> Option<(u64, &'static str)> {
        // The link of a network device says nothing of what software makes of it.
        let function = self.function.filter(|_| self.mbps().is_none() && !self.rdma.software)?;
        match (devices::efa_mbps(function), function.link_mbps) {
            (Some(card), link) => Some((card.min(link.unwrap_or(card)), "the rated speed of an EFA card of their generation")),
            (None, Some(link)) => Some((link, "that of their PCI link, which the port may not reach")),
            (None, None) => None,
        }
    }
}

/// Which physical function a virtual one belongs to, where the source does not say it: the only physical network
/// function below the same bridge.
struct PhysicalFunctions(BTreeMap<Option<BridgeId>, Option<PciAddress>>);

impl PhysicalFunctions {
    fn of(tree: &Tree) -> PhysicalFunctions {
        let mut only = BTreeMap::new();
        for function in &tree.functions {
            if devices::kind(function) == Kind::Network && !function.is_virtual {
                let first = !only.contains_key(&function.spot.bridge);
                only.insert(function.spot.bridge, first.then_some(function.address));
            }
        }
        PhysicalFunctions(only)
    }

    fn function_of(&self, function: &Function) -> Option<PciAddress> {
        let inferred = || self.0.get(&function.spot.bridge).copied().flatten().filter(|_| function.is_virtual);
        function.physical.or_else(inferred)
    }
}

/// Devices that are no part of the machine, by reason.
#[derive(Default)]
struct LeftOut(BTreeMap<String, Vec<String>>);

impl LeftOut {
    fn add(&mut self, reason: String, device: String) {
        self.0.entry(reason).or_default().push(device);
    }

    /// Every function that is neither GPU nor rail and of which nothing has been said yet.
    fn the_rest(&mut self, tree: &Tree) {
        let physical = PhysicalFunctions::of(tree);
        let with_rdma: BTreeSet<usize> = tree.rdma.iter().filter_map(|rdma| rdma.function).collect();
        for (at, function) in tree.functions.iter().enumerate() {
            let address = function.address.to_string();
            let reason = match devices::kind(function) {
                _ if with_rdma.contains(&at) => continue,
                Kind::Gpu => continue,
                Kind::Network if function.is_virtual => match physical.function_of(function) {
                    Some(physical) => format!("virtual function of {physical} without an RDMA device"),
                    None => "virtual function without an RDMA device".to_owned(),
                },
                Kind::Network if devices::is_rdma(function) => {
                    format!("no RDMA device (is its driver loaded?): {}", described(function))
                }
                Kind::Network => format!("no RDMA device: {}", described(function)),
                Kind::Display => format!("display device, no GPU: {}", described(function)),
                Kind::OtherAccelerator => format!("accelerator, no GPU: {}", described(function)),
                Kind::Other(class) => format!("neither NIC nor GPU ({class})"),
            };
            self.add(reason, address);
        }
    }

    fn notes(self) -> impl Iterator<Item = String> {
        self.0.into_iter().map(|(reason, mut devices)| {
            devices.sort();
            format!("left out, {reason}: {}", devices.join(" "))
        })
    }
}

fn described(function: &Function) -> String {
    let id = function.id.map(|(vendor, device)| format!("[{vendor:04x}:{device:04x}]"));
    let class = || format!("class {:04x}", function.class);
    let label = function.label.as_deref().map(plain);
    [label, id].into_iter().flatten().reduce(|label, id| format!("{label} {id}")).unwrap_or_else(class)
}

/// Text of a file, as it may reach a terminal.
fn plain(text: &str) -> String {
    text.chars().filter(|c| !c.is_control()).take(80).collect()
}

fn speeds_inferred(rails: &[Candidate]) -> impl Iterator<Item = String> {
    let mut by_source: BTreeMap<&str, Vec<&str>> = BTreeMap::new();
    for rail in rails {
        if let Some((_, source)) = rail.inferred() {
            by_source.entry(source).or_default().push(&rail.rdma.name);
        }
    }
    by_source.into_iter().map(|(source, rails)| format!("speeds not stated, taken for {source}: {}", rails.join(" ")))
}

fn nothing_found(machine: &Machine, functions: usize) -> Option<String> {
    match (machine.rails.len(), functions) {
        (0, 0) => {
            Some("no rail and no PCI device: I/O devices are absent or were filtered when the topology was made".to_owned())
        }
        (0, _) => Some("no rail: no PCI function has an RDMA device".to_owned()),
        _ => None,
    }
}

fn nodes_unknown(machine: &Machine) -> Option<String> {
    let rails = machine.rails.iter().filter(|rail| rail.node.is_none()).map(|rail| rail.name.clone());
    let gpus = machine.gpus.iter().filter(|gpu| gpu.node.is_none()).map(|gpu| gpu.pci.to_string());
    let unknown: Vec<String> = gpus.chain(rails).collect();
    (!unknown.is_empty()).then(|| format!("NUMA node not known (it is not taken for node 0): {}", unknown.join(" ")))
}

#[cfg(test)]
mod tests {
    use super::*;
    use proptest::prelude::*;

    /// A function below one of some bridges, with RDMA devices of these names.
    type Device = (u8, u16, Option<(u16, u16)>, Vec<String>);

    fn device() -> impl Strategy<Value = Device> {
        let class = prop_oneof![Just(0x0200u16), Just(0x0207), Just(0x0302), Just(0x0300), Just(0x0108)];
        let id = prop_oneof![Just((0x15b3, 0x1021)), Just((0x1d0f, 0xefa1)), Just((0x10de, 0x2330)), Just((0x1002, 0x515e))];
        (0u8..6, class, proptest::option::of(id), proptest::collection::vec("[a-e][0-3]", 0..3))
    }

    fn tree(devices: &[(usize, Device)]) -> Tree {
        let mut tree = Tree::default();
        tree.names_rdma = true;
        for (at, (bridge, class, id, names)) in devices {
            let bridges: Vec<String> = ["host", "root", "up"].iter().map(|name| format!("{name}{}", bridge % 3)).collect();
            let spot =
                Spot { bridge: tree.bridge_at(&bridges[..usize::from(*bridge) / 2 + 1]), node: Some(u32::from(bridge % 3)) };
            let address = PciAddress::new(0, u8::try_from(*at).unwrap(), 0, 0).unwrap();
            let function = tree.functions.len();
            tree.functions.push(Function::new(address, *class, *id, spot));
            for name in names {
                let rdma = Rdma { name: name.clone(), function: Some(function), spot, ports: Vec::new(), software: false };
                tree.rdma.push(rdma);
            }
        }
        tree
    }

    proptest! {
        #[test]
        fn the_order_of_the_source_changes_nothing((devices, shuffled) in proptest::collection::vec(device(), 0..12).prop_flat_map(|devices| {
            let devices: Vec<_> = devices.into_iter().enumerate().collect();
            (Just(devices.clone()), Just(devices).prop_shuffle())
        })) {
            prop_assert_eq!(machine(tree(&devices)).unwrap(), machine(tree(&shuffled)).unwrap());
        }
    }

    #[test]
    fn a_stated_speed_is_kept_and_one_that_is_not_is_inferred_and_noted() {
        let mut tree = tree(&[
            (1, (0, 0x0200, Some((0x1d0f, 0xefa2)), vec!["efa".to_owned()])),
            (2, (0, 0x0207, Some((0x15b3, 0x1021)), vec!["mlx5_0".to_owned()])),
        ]);
        let speeds = |tree: Tree| {
            let machine = machine(tree).unwrap();
            (machine.rails.iter().map(|rail| rail.mbps).collect::<Vec<_>>(), machine.notes)
        };
        tree.rdma[1].ports =
            vec![Port { state: RailState::Up, mbps: Some(400_000) }, Port { state: RailState::Down, mbps: Some(800_000) }];
        tree.functions[0].link_mbps = Some(126_031);
        tree.functions[1].link_mbps = Some(504_123);
        let (mbps, notes) = speeds(tree);
        assert_eq!(
            mbps,
            [Some(126_031), Some(400_000)],
            "a card is no faster than its link, and a port that is down is not used"
        );
        assert_eq!(
            notes.iter().filter(|note| note.contains("speeds not stated")).collect::<Vec<_>>(),
            ["speeds not stated, taken for the rated speed of an EFA card of their generation: efa"]
        );
    }
}
