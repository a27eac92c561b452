//! Files of every kind that no machine at hand ships.

use pinrail_core::{NodeId, PathClass, RailState};
use pinrail_topology::{FILE_BYTES_MAX, Source, Topology, TopologyError, read, read_file};

fn hwloc(inside: &str) -> Topology {
    let machine = "<object type=\"Machine\" complete_cpuset=\"0xf\" complete_nodeset=\"0x3\">";
    read(format!("<?xml version=\"1.0\"?>\n<!-- first -->\n<!DOCTYPE topology SYSTEM \"hwloc2.dtd\">\n<topology version=\"2.0\">{machine}{inside}</object></topology>").as_bytes()).unwrap()
}

fn nccl(inside: &str) -> Topology {
    read(format!("<system version=\"1\">{inside}</system>").as_bytes()).unwrap()
}

fn message(bytes: &[u8]) -> String {
    let error = read(bytes).unwrap_err();
    assert_eq!(error.diagnosis().kind.as_str(), "usage");
    error.to_string()
}

#[test]
fn the_kind_of_file_is_told_by_its_content() {
    assert_eq!(read(b"version = 1\n").unwrap().source, Source::Toml);
    assert_eq!(read(b"\xef\xbb\xbf \n<system/>").unwrap().source, Source::NcclXml);
    assert_eq!(read(b"<topology/>").unwrap().source, Source::HwlocXml);
    assert!(message(b"<html/>").contains("root <html>: expected <topology>"), "{}", message(b"<html/>"));
    assert!(message(b"").contains("version = 1"));
    assert_eq!(message(b"\xff"), "the machine file is no text: byte 0 is no UTF-8");
    assert_eq!(message(b"<system>\n<pci>\n</system>").split(':').next(), Some("machine file, line 3"));
    assert_eq!(message(b"<system>\n<pci>\n"), "machine file, line 3: the file ends within <pci>");
    assert!(message(b"<topology version=\"3.0\"/>").contains("lstopo --export-xml-flags v2"));
}

#[test]
fn a_file_that_is_too_large_is_refused_before_it_is_parsed() {
    let bytes = vec![b' '; usize::try_from(FILE_BYTES_MAX).unwrap() + 1];
    assert!(matches!(read(&bytes), Err(TopologyError::TooLarge)));
    let path = std::env::temp_dir().join(format!("pinrail-topology-{}", std::process::id()));
    std::fs::write(&path, &bytes).unwrap();
    let answer = read_file(&path);
    std::fs::remove_file(&path).unwrap();
    assert!(matches!(answer, Err(TopologyError::TooLarge)));
    assert!(read_file("/nonexistent".as_ref()).unwrap_err().to_string().starts_with("machine file /nonexistent: No such file"));
}

#[test]
fn no_entity_is_expanded() {
    let bomb = b"<!DOCTYPE system [<!ENTITY a \"aaaa\"><!ENTITY b \"&a;&a;&a;\">]>\n<system><pci busid=\"&b;\"/></system>";
    assert!(message(bomb).starts_with("machine file, line 2: "), "{}", message(bomb));
}

#[test]
fn a_domain_of_32_bits_is_kept() {
    let topology = hwloc(
        "<object type=\"Bridge\" bridge_type=\"0-1\" bridge_pci=\"10000:[00-01]\">
           <object type=\"PCIDev\" pci_busid=\"10000:01:00.0\" pci_type=\"0207 [15b3:1021] [15b3:0000] 00\">
             <object type=\"OSDev\" name=\"mlx5_0\" osdev_type=\"3\"/>
           </object>
         </object>",
    );
    let rail = &topology.machine.rails[0];
    assert_eq!(
        (rail.pci.unwrap().to_string(), rail.bridges.as_slice()),
        ("10000:01:00.0".to_owned(), &["pci10000:00".to_owned()][..])
    );
}

#[test]
fn two_ports_of_one_device_are_one_rail_and_a_port_that_is_down_is_not_its_state() {
    let of = |first, second| {
        let topology = hwloc(&format!(
            "<object type=\"PCIDev\" pci_busid=\"0000:01:00.0\" pci_type=\"0200 [15b3:1007] [15b3:0000] 00\">
               <object type=\"OSDev\" name=\"mlx4_0\" osdev_type=\"3\">
                 <info name=\"Port1State\" value=\"{first}\"/><info name=\"Port2State\" value=\"{second}\"/>
               </object>
             </object>"
        ));
        assert_eq!(topology.machine.rails.len(), 1);
        topology.machine.rails[0].state
    };
    assert_eq!((of(1, 4), of(4, 4), of(1, 2), of(1, 9)), (RailState::Up, RailState::Up, RailState::Down, RailState::Unknown));
}

#[test]
fn virtual_functions_beside_their_physical_one_are_no_rails_of_their_own() {
    let function = |at: u8, what: &str| {
        format!(
            "<object type=\"PCIDev\" pci_busid=\"0000:01:00.{at}\" pci_type=\"0200 [15b3:1017] [15b3:0000] 00\">
               <info name=\"PCIDevice\" value=\"MT27800 Family [ConnectX-5{what}]\"/>
               <object type=\"OSDev\" name=\"mlx5_{at}\" osdev_type=\"3\"/>
             </object>"
        )
    };
    let below = |functions: &str| format!("<object type=\"Bridge\" bridge_pci=\"0000:[00-01]\">{functions}</object>");
    let (physical, first, second) = (function(0, ""), function(1, " Virtual Function"), function(2, " Virtual Function"));
    let machine = hwloc(&below(&[physical.as_str(), &first, &second].concat())).machine;
    assert_eq!(machine.rails.iter().map(|rail| rail.name.as_str()).collect::<Vec<_>>(), ["mlx5_0"]);
    let noted = "virtual function of 0000:01:00.0, which is a rail itself: mlx5_1 (0000:01:00.1) mlx5_2 (0000:01:00.2)";
    assert!(machine.notes.iter().any(|note| note.contains(noted)), "{:?}", machine.notes);
    // A guest sees its virtual function alone: a rail like any other.
    let guest = hwloc(&below(&first)).machine;
    assert_eq!((guest.rails[0].name.as_str(), guest.rails[0].vf_of), ("mlx5_1", None));
}

/// Of two memories with the same processors (HBM beside DRAM) a device is near to both, and the first is the ordinary one;
/// a package divided into nodes does not say on which of them its devices are.
#[test]
fn a_device_is_on_a_node_only_if_its_processors_are() {
    let node = |id: u8, cpus: &str| {
        format!("<object type=\"NUMANode\" os_index=\"{id}\" complete_cpuset=\"{cpus}\" complete_nodeset=\"{:#x}\"/>", 1 << id)
    };
    let rail = "<object type=\"PCIDev\" pci_busid=\"0000:01:00.0\" pci_type=\"0207 [15b3:1021] [15b3:0000] 00\">
                  <object type=\"OSDev\" name=\"mlx5_0\" osdev_type=\"3\"/>
                </object>";
    let package = |nodes: &[String]| {
        let topology = hwloc(&format!(
            "<object type=\"Package\" complete_cpuset=\"0x3\" complete_nodeset=\"0x6\">{}{rail}</object>",
            nodes.concat()
        ));
        topology.machine.rails[0].node
    };
    assert_eq!(package(&[node(2, "0x3"), node(1, "0x3")]), Some(NodeId(1)));
    assert_eq!(package(&[node(1, "0x1"), node(2, "0x2")]), None);
}

/// hwloc 1 had nodes as parents and no version.
#[test]
fn hwloc_1_is_read() {
    let topology = read(
        b"<topology>
            <object type=\"Machine\">
              <object type=\"NUMANode\" os_index=\"1\" complete_nodeset=\"0x2\">
                <object type=\"Socket\" complete_nodeset=\"0x2\">
                  <object type=\"PCIDev\" pci_busid=\"0000:01:00.0\" pci_type=\"0207 [15b3:1021] [15b3:0000] 00\">
                    <object type=\"OSDev\" name=\"mlx5_0\" osdev_type=\"3\"/>
                  </object>
                </object>
              </object>
            </object>
          </topology>",
    );
    assert_eq!(topology.unwrap().machine.rails[0].node, Some(NodeId(1)));
}

#[test]
fn nccl_draws_a_switch_as_one_device() {
    let topology = nccl(
        "<cpu numaid=\"0\">
           <pci busid=\"ffff:ff:01.0\" class=\"0x060400\">
             <pci busid=\"0000:01:00.0\" class=\"0x030200\"><gpu dev=\"0\"/></pci>
             <pci busid=\"ffff:ff:02.0\" class=\"0x060400\">
               <pci busid=\"0000:02:00.0\" class=\"0x020700\"><nic><net name=\"mlx5_0\" speed=\"200000\" port=\"1\" guid=\"0x1\"/></nic></pci>
               <pci busid=\"0000:03:00.0\" class=\"0x030200\"/>
             </pci>
             <pci busid=\"ffff:ff:02.0\" class=\"0x060400\"><pci busid=\"0000:04:00.0\" class=\"0x030200\"/></pci>
           </pci>
           <pci busid=\"0000:05:00.0\" class=\"0x030200\"/>
         </cpu>
         <cpu numaid=\"0\"><pci busid=\"0000:06:00.0\" class=\"0x030200\"/></cpu>
         <cpu numaid=\"1\"><pci busid=\"0000:07:00.0\" class=\"0x030200\"/></cpu>
         <cpu numaid=\"-1\"><pci busid=\"0000:08:00.0\" class=\"0x030200\"/></cpu>
         <pci busid=\"0000:09:00.0\" class=\"0x030200\"/>",
    );
    let machine = topology.machine;
    let rail = machine.rail_by_name("mlx5_0").unwrap();
    let classes: Vec<_> = machine.gpus.iter().map(|gpu| machine.path(rail, gpu)).collect();
    let expected = [
        Some(PathClass::Pxb),  // 01: at the switch above the rail's
        Some(PathClass::Pix),  // 03: at the rail's switch
        Some(PathClass::Pxb),  // 04: at another switch beside it, which has the same invented id
        Some(PathClass::Phb),  // 05
        Some(PathClass::Node), // 06
        Some(PathClass::Sys),  // 07
        None,                  // 08: a node that is not known
        None,                  // 09: a device without a parent
    ];
    assert_eq!(classes, expected);
    assert_eq!((machine.rails[0].mbps, machine.nodes.len()), (Some(200_000), 2));
}

#[test]
fn every_attribute_of_nccl_but_the_address_is_optional() {
    let machine = nccl(
        "<cpu>
           <pci busid=\"0000:01:00.0\"><gpu/></pci>
           <pci busid=\"0000:02:00.0\"><nic><net name=\"mlx5_0\"/></nic></pci>
           <pci busid=\"0000:03:00.0\" class=\"0x020000\"/>
           <pci/>
           <pci busid=\"nonsense\"/>
           <nic><net name=\"eth0\" port=\"0\" guid=\"0x0\"/></nic>
         </cpu>",
    )
    .machine;
    assert_eq!((machine.gpus.len(), machine.rails.len()), (1, 1));
    for part in
        ["no RDMA device: class 0200: 0000:03:00.0", "it has no busid", "\"nonsense\" is no PCI address", "without RDMA: eth0"]
    {
        assert!(machine.notes.iter().any(|note| note.contains(part)), "{part}: {:?}", machine.notes);
    }
}

#[test]
fn text_of_a_file_cannot_steer_a_terminal() {
    let machine = hwloc(
        "<object type=\"PCIDev\" pci_busid=\"0000:01:00.0\" pci_type=\"0200 [15b3:1021] [15b3:0000] 00\">
           <info name=\"PCIDevice\" value=\"evil&#27;[2J\"/>
           <object type=\"OSDev\" name=\"mlx5&#27;[2J\" osdev_type=\"3\"/>
         </object>
         <object type=\"PCIDev\" pci_busid=\"0000:02:00.0\" pci_type=\"0200 [1d0f:ec20] [15b3:0000] 00\">
           <info name=\"PCIDevice\" value=\"evil&#27;[2J\"/>
         </object>
         <object type=\"PCIDev\" pci_busid=\"evil&#27;[2J\"/>",
    )
    .machine;
    assert_eq!((machine.rails.len(), machine.notes.len()), (0, 4));
    assert!(machine.notes.iter().all(|note| !note.contains('\u{1b}')), "{:?}", machine.notes);
}
