//! What each file must come out as, argued from the machine's facts and not from what the code answered.

use std::collections::{BTreeMap, BTreeSet};

use pinrail_core::{Buffer, Machine, Memory, NodeId, PciAddress, Place, RailState};
use pinrail_policy::{Local, RailLocal, SelectRails, Selection, Share};
use pinrail_topology::{Source, read_file};

use crate::shared;

fn machine(file: &str, source: Source) -> Option<Machine> {
    let topology = read_file(&shared(file)?).expect(file);
    assert_eq!(topology.source, source, "{file}");
    assert_eq!(Machine::from_toml(&topology.machine.to_toml()).as_ref(), Ok(&topology.machine), "{file}");
    Some(topology.machine)
}

fn select(machine: &Machine, place: Place, local: Local) -> Selection {
    let buffer = Buffer::new("b", Memory::imagined(4096, 4096).unwrap(), 0..4096).unwrap().with_place(place);
    RailLocal(local).select(&buffer, machine).unwrap()
}

/// Bus and device of each GPU, and of each of its rails.
fn shares(machine: &Machine, share: Share) -> BTreeMap<String, Vec<String>> {
    let short = |pci: PciAddress| pci.to_string()[5..].trim_end_matches(".0").to_owned();
    let rails_of = |gpu: PciAddress| {
        let selection = select(machine, Place::Gpu(gpu), Local { share, max: None });
        selection.rails.iter().map(|rail| short(machine.rails[rail.index()].pci.unwrap())).collect()
    };
    machine.gpus.iter().map(|gpu| (short(gpu.pci), rails_of(gpu.pci))).collect()
}

/// The class and the fallback of each GPU's choice, in the order of their addresses.
fn answers(machine: &Machine) -> Vec<(String, Option<&'static str>, bool)> {
    let answer = |gpu: PciAddress| {
        let selection = select(machine, Place::Gpu(gpu), Local::default());
        (gpu.to_string(), selection.path.map(|path| path.as_str()), selection.fallback.is_some())
    };
    machine.gpus.iter().map(|gpu| answer(gpu.pci)).collect()
}

fn nodes_of_rails(machine: &Machine) -> Vec<Option<u32>> {
    machine.rails.iter().map(|rail| rail.node.map(|node| node.0)).collect()
}

fn total_mbps(machine: &Machine) -> Option<u64> {
    machine.mbps(&machine.usable().collect::<Vec<_>>())
}

fn has_note(machine: &Machine, parts: &[&str]) -> bool {
    machine.notes.iter().any(|note| parts.iter().all(|part| note.contains(part)))
}

fn strings<const N: usize>(texts: [&str; N]) -> Vec<String> {
    texts.map(str::to_owned).to_vec()
}

/// EC2 p5.48xlarge: 8 H100 and 32 EFA cards, 3200 Gb/s. Each GPU's PCIe switch (upstream port xx:00.0 below a host bridge
/// of its own) has four EFA cards, four ENA cards, an NVMe disk and the GPU at its downstream ports, in that order of bus
/// numbers: so a GPU's rails are the four buses right below its own. Buses 44 to 87 are on node 0, 88 to cb on node 1.
#[test]
fn p5_has_four_rails_in_each_switch() {
    let Some(machine) = machine("aws/p5.48xl-topo.xml", Source::HwlocXml) else { return };
    let mut expected = BTreeMap::new();
    for gpu in [0x53u8, 0x64, 0x75, 0x86, 0x97, 0xa8, 0xb9, 0xca] {
        expected.insert(format!("{gpu:02x}:00"), (gpu - 4..gpu).map(|rail| format!("{rail:02x}:00")).collect::<Vec<_>>());
    }
    assert_eq!(expected["53:00"], ["4f:00", "50:00", "51:00", "52:00"]);
    // Every switch has one GPU, so there is nobody to share with.
    assert_eq!(shares(&machine, Share::Fair), expected);
    assert_eq!(shares(&machine, Share::All), expected);
    assert!(answers(&machine).iter().all(|(_, path, fallback)| *path == Some("PIX") && !fallback));
    assert_eq!((machine.rails.len(), total_mbps(&machine)), (32, Some(3_200_000)));
    let gpu = select(&machine, Place::Gpu("53:0.0".parse().unwrap()), Local::default());
    assert_eq!(machine.mbps(&gpu.rails), Some(400_000), "a GPU's local rails are an eighth of the machine");
    let host = select(&machine, Place::HostNode(NodeId(1)), Local::default());
    assert_eq!(host.rails.len(), 16);
    assert!(host.rails.iter().all(|rail| machine.rails[rail.index()].node == Some(NodeId(1))));
    // 32 ENA cards: they have no RDMA device and are no rails.
    let ena = machine.notes.iter().find(|note| note.contains("[1d0f:ec20]")).unwrap();
    assert_eq!(ena.matches("0000:").count(), 32);
    assert!(has_note(&machine, &["display device", "0000:00:03.0"]));
}

/// EC2 p5en.48xlarge: 8 H200 and 16 EFA cards of 200 Gb/s. Four switches, each with two GPUs and four EFA cards. All four
/// are equally near to both GPUs, so they are shared out: dealt by address, two each.
#[test]
fn p5en_shares_out_four_rails_to_two_gpus() {
    let Some(machine) = machine("aws/p5en.48xl-topo.xml", Source::HwlocXml) else { return };
    let (fair, all) = (shares(&machine, Share::Fair), shares(&machine, Share::All));
    for (first, second, rails) in [
        ("59:00", "5a:00", ["55:00", "56:00", "57:00", "58:00"]),
        ("72:00", "73:00", ["6e:00", "6f:00", "70:00", "71:00"]),
        ("8b:00", "8c:00", ["87:00", "88:00", "89:00", "8a:00"]),
        ("a4:00", "a5:00", ["a0:00", "a1:00", "a2:00", "a3:00"]),
    ] {
        assert_eq!((&fair[first], &fair[second]), (&strings([rails[0], rails[2]]), &strings([rails[1], rails[3]])));
        assert_eq!((&all[first], &all[second]), (&strings(rails), &strings(rails)));
    }
    assert_eq!(fair.len(), 8);
    assert_eq!((machine.rails.len(), total_mbps(&machine)), (16, Some(3_200_000)));
    assert!(answers(&machine).iter().all(|(_, path, fallback)| *path == Some("PIX") && !fallback));
}

/// EC2 p4d.24xlarge: 8 A100 and 4 EFA cards, 400 Gb/s. The VM shows no switches: two GPUs and one EFA card are functions
/// right below one host bridge, which is PHB; NCCL's file (below) knows the switch. One rail is shared by its pair.
#[test]
fn p4d_has_one_rail_for_each_pair_of_gpus() {
    let Some(machine) = machine("aws/p4d.24xl-topo.xml", Source::HwlocXml) else { return };
    let fair = shares(&machine, Share::Fair);
    for bus in ["10", "20", "90", "a0"] {
        for gpu in ["1c", "1d"] {
            assert_eq!(fair[&format!("{bus}:{gpu}")], [format!("{bus}:1b")]);
        }
    }
    assert_eq!((fair.len(), total_mbps(&machine)), (8, Some(400_000)));
    assert!(answers(&machine).iter().all(|(_, path, fallback)| *path == Some("PHB") && !fallback));
    assert_eq!(nodes_of_rails(&machine), [Some(0), Some(0), Some(1), Some(1)]);
}

/// EC2 g6.48xlarge: 8 L4, each below a host bridge of its own, and one EFA card below another one of node 0. The four GPUs
/// of node 0 reach it within the node; for the others it is across the sockets, which is no locality, and said.
#[test]
fn g6_has_one_rail_on_one_node() {
    let Some(machine) = machine("aws/g6.48xl-topo.xml", Source::HwlocXml) else { return };
    let mut expected = Vec::new();
    for gpu in ["9f", "a1", "a3", "a5"] {
        expected.push((format!("0000:{gpu}:00.0"), Some("NODE"), false));
    }
    for gpu in ["ae", "b0", "b2", "b4"] {
        expected.push((format!("0000:{gpu}:00.0"), Some("SYS"), true));
    }
    assert_eq!(answers(&machine), expected);
    assert!(shares(&machine, Share::Fair).values().all(|rails| *rails == ["96:00"]));
    assert_eq!(nodes_of_rails(&machine), [Some(0)]);
}

/// EC2 g5.48xlarge: a flat VM. 8 A10G and one EFA card below one host bridge of which hwloc knows no node. Four OpenCL
/// devices hang where they do not belong, one of them on the hypervisor's display: it is no GPU.
#[test]
fn g5_is_flat() {
    let Some(machine) = machine("aws/g5.48xl-topo.xml", Source::HwlocXml) else { return };
    let gpus: Vec<String> = machine.gpus.iter().map(|gpu| gpu.pci.to_string()).collect();
    assert_eq!(gpus, (0x16..=0x1d).map(|device| format!("0000:00:{device:02x}.0")).collect::<Vec<_>>());
    assert!(shares(&machine, Share::Fair).values().all(|rails| *rails == ["00:15"]));
    assert!(answers(&machine).iter().all(|(_, path, fallback)| *path == Some("PHB") && !fallback));
    assert!(machine.gpus.iter().all(|gpu| gpu.node.is_none()) && nodes_of_rails(&machine) == [None]);
    assert!(has_note(&machine, &["NUMA node not known", "0000:00:16.0", "rdmap0s21"]));
    let host = select(&machine, Place::HostNode(NodeId(0)), Local::default());
    assert_eq!(host.fallback.as_deref(), Some("no rail's distance to node 0 is known"));
}

/// EC2 c5n.18xlarge: no GPU, one EFA card (100 Gb/s) beside an ENA card, flat. Its port is stated to be active.
#[test]
fn c5n_has_no_gpu() {
    let Some(machine) = machine("aws/c5n.18xl-topo.xml", Source::HwlocXml) else { return };
    assert_eq!((machine.rails.len(), machine.gpus.len(), machine.nodes.len()), (1, 0, 2));
    let rail = &machine.rails[0];
    assert_eq!((rail.name.as_str(), rail.pci), ("rdmap0s31", Some("00:1f.0".parse().unwrap())));
    assert_eq!((rail.state, rail.node, rail.mbps), (RailState::Up, None, Some(100_000)));
    assert!(has_note(&machine, &["no RDMA device", "[1d0f:ec20]", "0000:00:05.0"]));
}

/// A VM with two H200, a virtio network device without RDMA, and NUMA nodes of -1: hwloc hangs it all at the root. There
/// is one node, and still nothing says that the GPUs are on it.
#[test]
fn h200_x2_has_no_rail_and_no_known_node() {
    let Some(machine) = machine("h200-x2.xml", Source::HwlocXml) else { return };
    assert_eq!((machine.rails.len(), machine.gpus.len(), machine.nodes.len()), (0, 2, 1));
    assert!(machine.gpus.iter().all(|gpu| gpu.node.is_none()));
    assert!(has_note(&machine, &["no rail: no PCI function has an RDMA device"]));
    assert!(has_note(&machine, &["no RDMA device", "[1af4:1041]", "0000:00:03.0"]));
    assert!(has_note(&machine, &["NUMA node not known", "0000:00:06.0 0000:00:07.0"]));
}

/// One machine exported with no, the usual and all I/O objects. It has three NIC functions: two ports of an I350 without
/// RDMA, and a ConnectX-4, which its maker hung (edited by hand, at the address of a disk controller elsewhere) below the
/// root port of bus 84 beside two GPUs; PIX, since below one port. The third GPU of node 1 is at another root port of the
/// same host bridge, the fourth on node 0. The Matrox is a management console.
#[test]
fn what_was_filtered_is_said() {
    let Some(none) = machine("hwloc/32em64t-2n8c2t-pci-noio.xml", Source::HwlocXml) else { return };
    assert_eq!((none.rails.len(), none.gpus.len()), (0, 0));
    assert!(has_note(&none, &["I/O devices are absent or were filtered"]));
    for file in ["hwloc/32em64t-2n8c2t-pci-normalio.xml", "hwloc/32em64t-2n8c2t-pci-wholeio.xml"] {
        let Some(machine) = machine(file, Source::HwlocXml) else { return };
        assert_eq!((machine.rails.len(), machine.rails[0].name.as_str()), (1, "mlx5_0"), "{file}");
        assert_eq!((machine.rails[0].state, machine.rails[0].node), (RailState::Up, Some(NodeId(1))), "{file}");
        assert!(has_note(&machine, &["no RDMA device: I350", "0000:81:00.0 0000:81:00.1"]), "{file}");
        let classes: Vec<_> = answers(&machine).into_iter().map(|(gpu, path, _)| (gpu[5..].to_owned(), path.unwrap())).collect();
        let expected = [("03:00.0", "SYS"), ("83:00.0", "PHB"), ("84:00.0", "PIX"), ("84:00.1", "PIX")];
        assert_eq!(classes, expected.map(|(gpu, path)| (gpu.to_owned(), path)), "{file}");
        assert!(has_note(&machine, &["display device, no GPU: MGA G200eW", "0000:05:03.0"]), "{file}");
    }
}

/// A Cisco server: VIC adapters, each a PF with an RDMA device (usNIC) and userspace VFs without one. The two PFs of node 0
/// are at sibling ports of one switch, below another switch. The PF at 89:00.0 has lost its RDMA device.
#[test]
fn virtual_functions_are_told_from_physical_ones() {
    let Some(machine) = machine("hwloc/16intel64-manyVFs.xml", Source::HwlocXml) else { return };
    let rails: Vec<_> = machine.rails.iter().map(|rail| (rail.name.as_str(), rail.pci.unwrap().to_string(), rail.node)).collect();
    assert_eq!(
        rails,
        [
            ("usnic_0", "0000:0b:00.0".to_owned(), Some(NodeId(0))),
            ("usnic_1", "0000:0c:00.0".to_owned(), Some(NodeId(0))),
            ("usnic_2", "0000:88:00.0".to_owned(), Some(NodeId(1))),
        ]
    );
    assert!(machine.rails.iter().all(|rail| rail.state == RailState::Up && rail.vf_of.is_none()));
    let path = |a: usize, b: usize| {
        pinrail_core::PathClass::between(machine.rails[a].attachment(), machine.rails[b].attachment()).unwrap().as_str()
    };
    assert_eq!((path(0, 1), path(0, 2)), ("PIX", "SYS"));
    for (physical, virtuals) in [("0b", 3), ("0c", 4), ("88", 5)] {
        let listed: Vec<String> = (1..=virtuals).map(|function| format!("0000:{physical}:00.{function}")).collect();
        assert!(has_note(&machine, &[&format!("virtual function of 0000:{physical}:00.0"), &listed.join(" ")]));
    }
    assert!(has_note(&machine, &["no RDMA device: VIC Ethernet NIC", "0000:89:00.0"]));
}

/// Four nodes with Broadcom NICs without RDMA, and an ES1000: AMD's vendor id, and still a management console.
#[test]
fn a_machine_without_rails_has_its_nodes() {
    let Some(machine) = machine("hwloc/96em64t-4n4d3ca2co-pci.xml", Source::HwlocXml) else { return };
    assert_eq!((machine.rails.len(), machine.gpus.len()), (0, 0));
    assert_eq!(machine.nodes.iter().map(|node| node.id.0).collect::<Vec<_>>(), [0, 1, 2, 3]);
    assert!(has_note(&machine, &["display device, no GPU: ES1000", "0000:01:00.0"]));
    assert_eq!(machine.notes.iter().find(|note| note.contains("BCM5709")).unwrap().matches("0000:").count(), 8);
}

/// NCCL's file for p4d: the same devices as hwloc's, now with the switches the VM hides (ids invented by AWS). The card is
/// at the switch of its pair of GPUs: PIX where hwloc could only say PHB.
#[test]
fn nccl_p4d_knows_the_switches() {
    let Some(machine) = machine("nccl/p4d-24xl-topo.xml", Source::NcclXml) else { return };
    let fair = shares(&machine, Share::Fair);
    for bus in ["10", "20", "90", "a0"] {
        for gpu in ["1c", "1d"] {
            assert_eq!(fair[&format!("{bus}:{gpu}")], [format!("{bus}:1b")]);
        }
    }
    assert_eq!((fair.len(), total_mbps(&machine)), (8, Some(400_000)));
    assert!(answers(&machine).iter().all(|(_, path, fallback)| *path == Some("PIX") && !fallback));
    assert_eq!(nodes_of_rails(&machine), [Some(0), Some(0), Some(1), Some(1)]);
}

/// Azure NDv4: 8 A100 and 8 InfiniBand HDR ports passed into a VM, each in a PCI domain of its own without any parent there;
/// no vendor is given, so class alone tells them (0302 and 0207). Azure's file draws one invented switch for each of four
/// nodes, with two GPUs and two ports: one each.
#[test]
fn nccl_ndv4_has_devices_without_a_parent() {
    let Some(machine) = machine("nccl/ndv4-topo.xml", Source::NcclXml) else { return };
    assert_eq!((machine.gpus.len(), machine.rails.len(), machine.nodes.len()), (8, 8, 4));
    for (node, gpus, rails) in [
        (0, ["0003:00:00.0", "0004:00:00.0"], ["0103:00:00.0", "0104:00:00.0"]),
        (1, ["0001:00:00.0", "0002:00:00.0"], ["0101:00:00.0", "0102:00:00.0"]),
        (2, ["000d:00:00.0", "000e:00:00.0"], ["0107:00:00.0", "0108:00:00.0"]),
        (3, ["000b:00:00.0", "000c:00:00.0"], ["0105:00:00.0", "0106:00:00.0"]),
    ] {
        for (gpu, rail) in gpus.iter().zip(rails) {
            let selection = select(&machine, Place::Gpu(gpu.parse().unwrap()), Local::default());
            assert_eq!(selection.path.map(|path| path.as_str()), Some("PIX"));
            assert_eq!(selection.rails, [machine.rail_by_name(rail).unwrap()]);
            assert_eq!(machine.rails[selection.rails[0].index()].node, Some(NodeId(node)));
        }
    }
    // The file has only the PCI link: 16 GT/s on 16 lanes, less 2 of 130 bits. The port (HDR, 200 Gb/s) is slower.
    assert!(machine.rails.iter().all(|rail| rail.mbps == Some(252_062)));
    assert!(has_note(&machine, &["speeds not stated", "PCI link", "0101:00:00.0"]));
}

/// Nothing is dropped in silence: every PCI address of a device (bridges have `bridge_pci`) is in the machine or its notes.
#[test]
fn every_device_of_every_file_is_in_the_machine_or_explained() {
    let mut files = 0;
    for folder in ["aws", "hwloc", "nccl", "."] {
        let Some(folder) = shared(folder) else { return };
        for entry in std::fs::read_dir(folder).unwrap() {
            let path = entry.unwrap().path();
            if path.extension().is_none_or(|extension| extension != "xml") {
                continue;
            }
            files += 1;
            let machine = read_file(&path).unwrap().machine;
            let text = std::fs::read_to_string(&path).unwrap();
            let tags = text.split('<').filter(|tag| !tag.contains("bridge_pci=") && !tag.contains("class=\"0x0604"));
            let addresses: BTreeSet<PciAddress> =
                tags.filter_map(|tag| tag.split("busid=\"").nth(1)?.split('"').next()?.parse().ok()).collect();
            for pci in addresses {
                let listed = machine.gpu(pci).is_some() || machine.rails.iter().any(|rail| rail.pci == Some(pci));
                assert!(listed || has_note(&machine, &[&pci.to_string()]), "{}: {pci} is unexplained", path.display());
            }
        }
    }
    assert_eq!(files, 14, "files of ../shared/topologies");
}
