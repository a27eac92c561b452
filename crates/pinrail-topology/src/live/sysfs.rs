//! What hwloc does not say, from sysfs: the RDMA devices with their ports, virtual functions, and NUMA nodes as the
//! kernel knows them. Whatever cannot be read is not known; nothing here fails.

use std::collections::BTreeMap;
use std::fs;
use std::path::{Path, PathBuf};

use pinrail_core::{PciAddress, RailState};

use crate::devices::{self, Kind};
use crate::hwloc_xml::{gigabytes_to_mbps, port_state};
use crate::tree::{Function, Port, Rdma, Spot, Tree};

/// Completes the tree from the sysfs at `root`.
pub(super) fn complete(tree: &mut Tree, root: &Path) {
    let mut known: BTreeMap<PciAddress, usize> =
        tree.functions.iter().enumerate().map(|(at, function)| (function.address, at)).collect();
    for (name, path) in entries(&root.join("bus/pci/devices")) {
        let Ok(address) = name.parse::<PciAddress>() else { continue };
        let is_new = !known.contains_key(&address);
        let function = || Function::new(address, class(&path), id(&path), Spot::default());
        // hwloc leaves out what it takes to be unimportant, and 32-bit domains where it was built without them.
        if is_new && !matches!(devices::kind(&function()), Kind::Other(_)) {
            add(tree, &mut known, &path);
        }
    }
    for function in &mut tree.functions {
        let path = root.join("bus/pci/devices").join(function.address.to_string());
        // Only the kernel tells node 0 from unknown: hwloc guesses from processors.
        if let Some(node) = text(&path.join("numa_node")) {
            // -1 is the kernel's unknown.
            function.spot.node = node.parse().ok();
        }
        function.physical = fs::read_link(path.join("physfn")).ok().and_then(|link| last_address(&link));
        function.is_virtual = function.physical.is_some();
        let driver = fs::read_link(path.join("driver")).ok();
        function.computes = driver.is_some_and(|driver| driver.ends_with("amdgpu") || driver.ends_with("xe"));
    }
    for (name, path) in entries(&root.join("class/infiniband")) {
        let rdma = rdma(tree, &mut known, root, name, &path);
        tree.rdma.push(rdma);
    }
}

fn rdma(tree: &mut Tree, known: &mut BTreeMap<PciAddress, usize>, root: &Path, name: String, path: &Path) -> Rdma {
    let own = fs::canonicalize(path.join("device")).ok().filter(|device| last_address(device).is_some());
    // Soft-RoCE and its kind have no device, but a network device below them.
    let netdev = if own.is_none() { netdev(path).map(|netdev| root.join("class/net").join(netdev)) } else { None };
    let device = own.or_else(|| device_below(netdev.as_deref()?, 4));
    let function = device.and_then(|device| {
        let address = last_address(&device)?;
        known.get(&address).copied().or_else(|| add(tree, known, &root.join("bus/pci/devices").join(address.to_string())))
    });
    let port = |(_, port): (String, PathBuf)| {
        let number = text(&port.join("state")).and_then(|state| Some(state.split(':').next()?.to_owned()));
        let mbps = match &netdev {
            None => rate(&port),
            // A software port's rate is made up where its network device states none.
            Some(netdev) => text(&netdev.join("speed")).and_then(|speed| speed.parse().ok()),
        };
        Port { state: number.map_or(RailState::Unknown, |number| port_state(&number)), mbps: mbps.filter(|mbps| *mbps > 0) }
    };
    let ports = entries(&path.join("ports")).into_iter().map(port).collect();
    Rdma { name, function, spot: Spot::default(), ports, software: netdev.is_some() }
}

/// The network device that a software RDMA device is made of: soft-RoCE names it, others have an address on it.
fn netdev(rdma: &Path) -> Option<String> {
    let by_address = || entries(&rdma.join("ports")).iter().find_map(|(_, port)| text(&port.join("gid_attrs/ndevs/0")));
    text(&rdma.join("parent")).or_else(by_address).filter(|name| !name.contains('/'))
}

/// The device of a network device; of a virtual one (VLAN, bond, bridge) that of the only one below it.
fn device_below(netdev: &Path, levels: u8) -> Option<PathBuf> {
    if let Some(device) = fs::canonicalize(netdev.join("device")).ok().filter(|device| last_address(device).is_some()) {
        return Some(device);
    }
    let mut lower = entries(netdev).into_iter().filter(|(name, _)| name.starts_with("lower_"));
    match (lower.next(), lower.next()) {
        (Some((_, only)), None) if levels > 0 => device_below(&only, levels - 1),
        _ => None,
    }
}

/// A port's rate, as in `100 Gb/sec (4X EDR)`, in megabits a second.
fn rate(port: &Path) -> Option<u64> {
    let rate = text(&port.join("rate"))?;
    let (number, _) = rate.split_once(" Gb/sec")?;
    gigabytes_to_mbps(number.parse::<f64>().ok()? / 8.0)
}

/// Adds the function at a path of sysfs below its bridges, which are the path.
fn add(tree: &mut Tree, known: &mut BTreeMap<PciAddress, usize>, path: &Path) -> Option<usize> {
    let path = fs::canonicalize(path).ok()?;
    let mut names: Vec<String> = path.iter().filter_map(|part| bridge_name(part.to_str()?)).collect();
    let address = names.pop()?.parse().ok()?;
    let spot = Spot { bridge: tree.bridge_at(&names), node: None };
    tree.functions.push(Function::new(address, class(&path), id(&path), spot));
    known.insert(address, tree.functions.len() - 1);
    Some(tree.functions.len() - 1)
}

/// A part of a path that is a PCI function or a host bridge (`pci0000:44`), in canonical form.
fn bridge_name(part: &str) -> Option<String> {
    let is_host = part.strip_prefix("pci").is_some_and(|bus| bus.contains(':'));
    if is_host { Some(part.to_owned()) } else { part.parse::<PciAddress>().ok().map(|address| address.to_string()) }
}

fn last_address(path: &Path) -> Option<PciAddress> {
    path.iter().rev().find_map(|part| part.to_str()?.parse().ok())
}

/// The class and subclass of three bytes, as in `0x020000`.
fn class(path: &Path) -> u16 {
    number(&path.join("class")).and_then(|class| u16::try_from(class >> 8).ok()).unwrap_or(0)
}

fn id(path: &Path) -> Option<(u16, u16)> {
    let part = |name| number(&path.join(name)).and_then(|id| u16::try_from(id).ok());
    Some((part("vendor")?, part("device")?))
}

fn number(path: &Path) -> Option<u32> {
    u32::from_str_radix(text(path)?.strip_prefix("0x")?, 16).ok()
}

fn text(path: &Path) -> Option<String> {
    fs::read_to_string(path).ok().map(|text| text.trim().to_owned())
}

/// What is in a directory, by name.
fn entries(path: &Path) -> Vec<(String, PathBuf)> {
    let entry = |entry: fs::DirEntry| Some((entry.file_name().into_string().ok()?, entry.path()));
    let mut entries: Vec<_> = fs::read_dir(path).into_iter().flatten().filter_map(|e| entry(e.ok()?)).collect();
    entries.sort();
    entries
}

#[cfg(test)]
mod tests {
    use super::*;
    use crate::judge;
    use pinrail_core::{Machine, NodeId, Rail};
    use std::os::unix::fs::symlink;

    /// A sysfs in a folder of its own, removed with this value.
    struct Fake(PathBuf);

    impl Fake {
        fn new(test: &str) -> Fake {
            let root = std::env::temp_dir().join(format!("pinrail-sysfs-{}-{test}", std::process::id()));
            fs::create_dir_all(&root).unwrap();
            Fake(root)
        }

        fn file(&self, path: &str, text: &str) -> &Fake {
            let path = self.0.join(path);
            fs::create_dir_all(path.parent().unwrap()).unwrap();
            fs::write(path, text).unwrap();
            self
        }

        fn link(&self, path: &str, to: &str) -> &Fake {
            let path = self.0.join(path);
            fs::create_dir_all(path.parent().unwrap()).unwrap();
            symlink(self.0.join(to), path).unwrap();
            self
        }

        /// A PCI function at a path of devices, with its class, ids and node.
        fn function(&self, path: &str, class: &str, vendor: &str, device: &str, node: &str) -> &Fake {
            let files = [("class", class), ("vendor", vendor), ("device", device), ("numa_node", node)];
            for (name, text) in files {
                self.file(&format!("devices/{path}/{name}"), &format!("{text}\n"));
            }
            let address = path.rsplit('/').next().unwrap();
            self.link(&format!("bus/pci/devices/{address}"), &format!("devices/{path}"))
        }

        fn port(&self, rdma: &str, port: u8, state: &str, rate: &str) -> &Fake {
            let path = format!("class/infiniband/{rdma}/ports/{port}");
            self.file(&format!("{path}/state"), &format!("{state}\n")).file(&format!("{path}/rate"), &format!("{rate}\n"))
        }

        fn machine(&self) -> Machine {
            let mut tree = Tree::default();
            tree.names_rdma = true;
            complete(&mut tree, &self.0);
            judge::machine(tree).unwrap()
        }
    }

    impl Drop for Fake {
        fn drop(&mut self) {
            fs::remove_dir_all(&self.0).unwrap();
        }
    }

    fn rail<'m>(machine: &'m Machine, name: &str) -> &'m Rail {
        &machine.rails[machine.rail_by_name(name).unwrap_or_else(|| panic!("{name}: {machine:?}")).index()]
    }

    #[test]
    fn ports_have_their_state_and_speed() {
        let fake = Fake::new("ports");
        fake.function("pci0000:40/0000:40:01.0/0000:41:00.0", "0x020700", "0x15b3", "0x1021", "1")
            .function("pci0000:40/0000:40:02.0/0000:42:00.0", "0x020000", "0x15b3", "0x1007", "-1")
            .link("class/infiniband/mlx5_0/device", "devices/pci0000:40/0000:40:01.0/0000:41:00.0")
            .port("mlx5_0", 1, "4: ACTIVE", "400 Gb/sec (4X NDR)")
            .link("class/infiniband/mlx4_0/device", "devices/pci0000:40/0000:40:02.0/0000:42:00.0")
            .port("mlx4_0", 1, "1: DOWN", "2.5 Gb/sec (1X SDR)")
            .port("mlx4_0", 2, "1: DOWN", "40 Gb/sec (4X QDR)");
        let machine = fake.machine();
        let (ndr, old) = (rail(&machine, "mlx5_0"), rail(&machine, "mlx4_0"));
        assert_eq!((ndr.state, ndr.mbps, ndr.node), (RailState::Up, Some(400_000), Some(NodeId(1))));
        assert_eq!(ndr.bridges, ["pci0000:40", "0000:40:01.0"]);
        assert_eq!((old.state, old.mbps, old.node), (RailState::Down, Some(40_000), None), "-1 is unknown");
        assert_eq!(machine.usable().count(), 1, "a port that is down is listed and not chosen");
    }

    /// Two pairs of network devices on the host bridges of two nodes, numbered against the order of the nodes, with
    /// soft-RoCE on top: what a VM with `pxb-pcie` shows. Its `device` is missing, `parent` names the network device.
    #[test]
    fn software_rails_are_where_their_network_device_is() {
        let fake = Fake::new("rxe");
        for (at, (root, bus, node)) in [("80", "81", 1), ("80", "82", 1), ("40", "41", 0), ("40", "42", 0)].iter().enumerate() {
            let path = format!("pci0000:{root}/0000:{root}:0{at}.0/0000:{bus}:00.0");
            fake.function(&path, "0x020000", "0x1af4", "0x1041", &node.to_string())
                .link(&format!("class/net/eth{at}/device"), &format!("devices/{path}"))
                .file(&format!("class/net/eth{at}/speed"), if at == 0 { "-1\n" } else { "10000\n" })
                .file(&format!("class/infiniband/rxe{at}/parent"), &format!("eth{at}\n"))
                .port(&format!("rxe{at}"), 1, "4: ACTIVE", "2.5 Gb/sec (1X SDR)");
        }
        // siw names its network device only by an address on it; this one is on a VLAN of eth1. Another is on lo.
        fake.link("class/net/eth1.5/lower_eth1", "class/net/eth1")
            .file("class/infiniband/siw0/ports/1/gid_attrs/ndevs/0", "eth1.5\n")
            .file("class/net/lo/speed", "")
            .file("class/infiniband/siw1/ports/1/gid_attrs/ndevs/0", "lo\n");
        let machine = fake.machine();
        let nodes = ["rxe0", "rxe1", "rxe2", "rxe3", "siw0", "siw1"].map(|name| rail(&machine, name).node.map(|node| node.0));
        assert_eq!(nodes, [Some(1), Some(1), Some(0), Some(0), Some(1), None]);
        assert_eq!(rail(&machine, "rxe1").mbps, Some(10_000));
        assert_eq!(rail(&machine, "rxe0").mbps, None, "a rate that is made up is none");
        assert_eq!(rail(&machine, "siw0").pci, rail(&machine, "rxe1").pci);
        assert_eq!((rail(&machine, "siw1").pci, rail(&machine, "siw1").state), (None, RailState::Unknown));
    }

    #[test]
    fn a_virtual_function_names_its_physical_one() {
        let fake = Fake::new("vf");
        fake.function("pci0000:40/0000:40:01.0/0000:41:00.0", "0x020700", "0x15b3", "0x1021", "0")
            .function("pci0000:40/0000:40:01.0/0000:41:01.2", "0x020700", "0x15b3", "0x1022", "0")
            .link("devices/pci0000:40/0000:40:01.0/0000:41:01.2/physfn", "devices/pci0000:40/0000:40:01.0/0000:41:00.0")
            .link("class/infiniband/mlx5_1/device", "devices/pci0000:40/0000:40:01.0/0000:41:01.2")
            .function("pci0000:50/0000:50:00.0", "0x038000", "0x1002", "0x74b5", "0")
            .function("pci0000:50/0000:50:02.0", "0x038000", "0x1002", "0x74b6", "0")
            .link("devices/pci0000:50/0000:50:02.0/physfn", "devices/pci0000:50/0000:50:00.0");
        let machine = fake.machine();
        assert_eq!(rail(&machine, "mlx5_1").vf_of, Some("41:0.0".parse().unwrap()));
        assert_eq!(machine.gpus.len(), 1);
        assert!(machine.notes.iter().any(|note| note.contains("virtual function of a GPU, for a guest: 0000:50:02.0")));
        // Once the physical function has an RDMA device of its own, the virtual one is its guest's.
        fake.link("class/infiniband/mlx5_0/device", "devices/pci0000:40/0000:40:01.0/0000:41:00.0");
        let machine = fake.machine();
        assert_eq!(machine.rails.iter().map(|rail| rail.name.as_str()).collect::<Vec<_>>(), ["mlx5_0"]);
    }

    /// The tree that hwloc gave is kept, and a domain it cannot express is found in sysfs.
    #[test]
    fn what_hwloc_leaves_out_is_added_below_the_bridges_that_it_gave() {
        let fake = Fake::new("vmd");
        let vmd = "pci0000:64/0000:64:00.5/pci10000:00/10000:00:02.0/10000:01:00.0";
        fake.function("pci0000:64/0000:64:02.0/0000:65:00.0", "0x030200", "0x10de", "0x2330", "0")
            .function(vmd, "0x020700", "0x15b3", "0x1021", "0")
            .link("class/infiniband/mlx5_0/device", &format!("devices/{vmd}"));
        let mut tree = Tree::default();
        tree.names_rdma = true;
        let spot = Spot { bridge: tree.bridge_at(&["pci0000:64".to_owned(), "0000:64:02.0".to_owned()]), node: Some(9) };
        tree.functions.push(Function::new("65:0.0".parse().unwrap(), 0x0302, Some((0x10de, 0x2330)), spot));
        complete(&mut tree, &fake.0);
        let machine = judge::machine(tree).unwrap();
        assert_eq!(rail(&machine, "mlx5_0").bridges, ["pci0000:64", "0000:64:00.5", "pci10000:00", "10000:00:02.0"]);
        assert_eq!(machine.gpus[0].node, Some(NodeId(0)), "the kernel's node, not hwloc's");
        assert_eq!(machine.path(pinrail_core::RailId(0), &machine.gpus[0]), Some(pinrail_core::PathClass::Phb));
    }

    #[test]
    fn an_empty_sysfs_is_a_machine_without_devices() {
        let machine = Fake::new("empty").machine();
        assert_eq!((machine.rails.len(), machine.gpus.len(), machine.notes.len()), (0, 0, 1));
    }
}
