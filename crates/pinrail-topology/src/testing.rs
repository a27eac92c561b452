//! Entry points for fuzzing (feature `testing`): each takes any bytes and panics only where a promise is broken.

use pinrail_core::{Machine, PciAddress};

use crate::tree::{BridgeId, Function, Port, Rdma, Spot, Tree};
use crate::{judge, matrix, read};

/// A file of any kind: what is read fulfils [`Machine::check`] and reads back from the machine file it is written to.
pub fn machine_file(bytes: &[u8]) {
    if let Ok(topology) = read(bytes) {
        sound(&topology.machine);
    }
}

/// The inside of an NCCL topology XML.
pub fn nccl_xml(bytes: &[u8]) {
    machine_file(&[b"<system>", bytes, b"</system>"].concat());
}

/// The inside of an hwloc XML.
pub fn hwloc_xml(bytes: &[u8]) {
    machine_file(&[b"<topology>", bytes, b"</topology>"].concat());
}

/// A machine file after its first line.
pub fn machine_toml(bytes: &[u8]) {
    machine_file(&[b"version = 1\n", bytes].concat());
}

/// A PCI address: what is read has one canonical form.
///
/// # Panics
/// Where the canonical form reads back as another address.
pub fn pci_address(bytes: &[u8]) {
    if let Some(address) = std::str::from_utf8(bytes).ok().and_then(|text| text.parse::<PciAddress>().ok()) {
        assert_eq!(address.to_string().parse(), Ok(address));
    }
}

/// What a source may say of a machine, each five bytes adding a bridge, a function or an RDMA device: every function is
/// a GPU, has a rail or is explained in the notes.
///
/// # Panics
/// Where one is not.
pub fn parsed_tree(bytes: &[u8]) {
    const CLASSES: [u16; 8] = [0x0200, 0x0207, 0x0300, 0x0302, 0x0380, 0x1200, 0x0108, 0];
    const IDS: [Option<(u16, u16)>; 8] = [
        None,
        Some((0x1d0f, 0xefa1)),
        Some((0x1d0f, 0xec20)),
        Some((0x15b3, 0x1021)),
        Some((0x10de, 0x2330)),
        Some((0x1002, 0x515e)),
        Some((0x8086, 0x1521)),
        Some((0x1d0f, 0x1111)),
    ];
    let pick = |of: usize, by: u8| usize::from(by) % of.max(1);
    let mut tree = Tree::default();
    let mut bridges: Vec<BridgeId> = Vec::new();
    for word in bytes.chunks_exact(5) {
        let &[what, a, b, c, d] = word else { continue };
        let spot = Spot { bridge: bridges.get(pick(bridges.len() + 1, a)).copied(), node: (b < 4).then_some(b.into()) };
        match what % 4 {
            0 => bridges.push(tree.bridge(spot.bridge, &format!("bridge{}", b % 3))),
            1 | 2 => {
                let address = PciAddress::new(0, b % 8, 0, c % 4).unwrap_or_else(|| unreachable!("small numbers"));
                let mut function = Function::new(address, CLASSES[pick(8, c)], IDS[pick(8, d)], spot);
                (function.computes, function.is_virtual) = (d & 8 > 0, d & 16 > 0);
                function.physical = PciAddress::new(0, d % 8, 0, 0).filter(|_| d & 32 > 0);
                function.link_mbps = (d & 64 > 0).then_some(u64::from(b) * 1000);
                tree.functions.push(function);
            }
            _ => {
                let function = (d < 200 && !tree.functions.is_empty()).then(|| pick(tree.functions.len(), b));
                let state = [pinrail_core::RailState::Up, pinrail_core::RailState::Down, pinrail_core::RailState::Unknown];
                let port = Port { state: state[pick(3, c)], mbps: (c > 9).then_some(c.into()) };
                let name = if a % 16 == 0 { String::new() } else { format!("mlx5_{}", a % 16) };
                tree.rdma.push(Rdma { name, function, spot, ports: vec![port; pick(4, d)], software: d & 128 > 0 });
            }
        }
        tree.names_rdma = d % 2 == 0;
    }
    let addresses: Vec<PciAddress> = tree.functions.iter().map(|function| function.address).collect();
    let devices: Vec<String> = tree.rdma.iter().map(|rdma| rdma.name.clone()).collect();
    let Ok(machine) = judge::machine(tree) else { return };
    sound(&machine);
    for address in addresses {
        let noted = || machine.notes.iter().any(|note| note.contains(&address.to_string()));
        let is_rail = machine.rails.iter().any(|rail| rail.pci == Some(address));
        assert!(is_rail || machine.gpu(address).is_some() || noted(), "{address} is not explained: {:?}", machine.notes);
    }
    for name in devices {
        let noted = machine.notes.iter().any(|note| note.contains(&name));
        assert!(noted || machine.rails.iter().any(|rail| rail.name == name), "{name:?} is not explained: {:?}", machine.notes);
    }
}

fn sound(machine: &Machine) {
    assert_eq!(machine.check(), Ok(()));
    let text = machine.to_toml();
    match Machine::from_toml(&text) {
        Ok(again) => assert_eq!(&again, machine),
        Err(error) => panic!("{error} in {text}"),
    }
    for columns in [0, 80, 200] {
        drop(matrix(machine, columns));
    }
}

#[cfg(test)]
mod tests {
    use super::*;
    use proptest::prelude::*;

    const WORDS: [&str; 30] = [
        "<pci busid=\"",
        "0000:4f:00.0",
        "ffff:ff:01.0",
        "\" class=\"0x0",
        "20000",
        "60400",
        "\" vendor=\"0x1d0f\" device=\"0xefa1",
        "\"/>",
        "\">",
        "</pci>",
        "<cpu numaid=\"",
        "-1",
        "0",
        "</cpu>",
        "<nic><net name=\"mlx5_0\" speed=\"200000\" port=\"1\"/></nic>",
        "<gpu dev=\"0\"/>",
        "<object type=\"Machine\">",
        "<object type=\"Bridge\" bridge_pci=\"0000:[44-54]\" pci_busid=\"0000:44:00.0\">",
        "<object type=\"PCIDev\" pci_busid=\"0000:53:00.0\" pci_type=\"0302 [10de:2330] [10de:0000] a1\" pci_link_speed=\"63.0\">",
        "<object type=\"OSDev\" name=\"mlx5_0\" osdev_type=\"3\">",
        "<info name=\"Port1State\" value=\"4\"/>",
        "<object type=\"NUMANode\" os_index=\"1\" complete_cpuset=\"0x1\" complete_nodeset=\"0x1\">",
        "</object>",
        "[[rail]]\n",
        "[[gpu]]\n",
        "name = \"a\"\n",
        "pci = \"4f:0.0\"\n",
        "node = 1\n",
        "<!-- -->",
        "&#0;",
    ];

    fn text() -> impl Strategy<Value = Vec<u8>> {
        let word = prop_oneof![
            9 => (0..WORDS.len()).prop_map(|at| WORDS[at].as_bytes().to_vec()),
            1 => proptest::collection::vec(any::<u8>(), 0..4)
        ];
        proptest::collection::vec(word, 0..40).prop_map(|words| words.concat())
    }

    proptest! {
        #[test]
        fn no_file_breaks_a_promise(bytes in text()) {
            machine_file(&bytes);
            nccl_xml(&bytes);
            hwloc_xml(&bytes);
            machine_toml(&bytes);
            pci_address(&bytes);
        }

        #[test]
        fn no_tree_breaks_a_promise(bytes in proptest::collection::vec(any::<u8>(), 0..200)) {
            parsed_tree(&bytes);
        }
    }
}
