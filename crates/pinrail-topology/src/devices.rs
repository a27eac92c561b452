//! What a PCI function is: a GPU, a NIC, or neither.
//!
//! Decided by class and vendor. An operating system's device on a function is evidence only where class and vendor
//! leave the question open: drivers of compute libraries have been seen attached to a neighbour's display device.

use crate::tree::Function;

/// What a PCI function is.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub(crate) enum Kind {
    /// An accelerator whose memory a NIC may reach.
    Gpu,
    /// Shows pictures (a server's management console, a hypervisor's).
    Display,
    /// An accelerator of some other kind.
    OtherAccelerator,
    /// A network function, RDMA-capable or not.
    Network,
    /// Neither, with the name of its class.
    Other(&'static str),
}

const NVIDIA: u16 = 0x10de;
const AMD: u16 = 0x1002;
const INTEL: u16 = 0x8086;
/// Intel's accelerators made by Habana.
const HABANA: u16 = 0x1da3;
const AMAZON: u16 = 0x1d0f;
const MELLANOX: u16 = 0x15b3;

/// What the function is.
pub(crate) fn kind(function: &Function) -> Kind {
    let vendor = function.id.map(|(vendor, _)| vendor);
    match (function.class >> 8, function.class & 0xff, vendor) {
        (0x03, _, Some(NVIDIA)) => Kind::Gpu,
        // AMD and Intel also make display devices (class 0300) that compute nothing a NIC could reach.
        (0x03, 0x02 | 0x80, Some(AMD | INTEL)) => Kind::Gpu,
        (0x03, _, Some(AMD | INTEL)) if function.computes => Kind::Gpu,
        (0x03, 0x02, None) => Kind::Gpu,
        (0x03, _, None) if function.computes => Kind::Gpu,
        (0x03, ..) => Kind::Display,
        (0x12, _, Some(AMD | HABANA)) => Kind::Gpu,
        (0x12, ..) => Kind::OtherAccelerator,
        (0x02, ..) | (0x0c, 0x06, _) => Kind::Network,
        (0x01, ..) => Kind::Other("storage"),
        (0x05, ..) => Kind::Other("memory"),
        (0x06, ..) => Kind::Other("bridge"),
        (0x08, ..) => Kind::Other("system peripheral"),
        (0x0c, ..) => Kind::Other("serial bus"),
        _ => Kind::Other("other"),
    }
}

/// Megabits a second that one EFA card is sold with, by generation: instance bandwidth over number of cards, as AWS
/// publishes both (c5n.18xlarge 100/1, p4d.24xlarge 400/4; p5.48xlarge 3200/32; p5en.48xlarge 3200/16; p6-b200 3200/8).
pub(crate) fn efa_mbps(function: &Function) -> Option<u64> {
    match function.id? {
        (AMAZON, 0xefa0 | 0xefa1) => Some(100_000),
        (AMAZON, 0xefa2) => Some(200_000),
        (AMAZON, 0xefa3) => Some(400_000),
        _ => None,
    }
}

/// Whether a network function is RDMA-capable by what it is: EFA (not ENA), InfiniBand, NVIDIA's ConnectX and BlueField.
pub(crate) fn is_rdma(function: &Function) -> bool {
    let by_class = matches!(function.class, 0x0207 | 0x0c06);
    by_class || matches!(function.id, Some((AMAZON, 0xefa0..=0xefaf) | (MELLANOX, _)))
}

/// Whether a name in the PCI database is that of a virtual function.
pub(crate) fn is_virtual(label: &str) -> bool {
    // Cisco's virtual functions have a name of their own.
    label.contains("Virtual Function") || label.contains("VIC Userspace NIC")
}

#[cfg(test)]
mod tests {
    use super::*;
    use crate::tree::Spot;

    fn function(class: u16, id: Option<(u16, u16)>, computes: bool) -> Function {
        Function { computes, ..Function::new("1:0.0".parse().unwrap(), class, id, Spot::default()) }
    }

    #[test]
    fn an_accelerator_is_told_from_a_display_device() {
        let gpu = |class, vendor, device, computes| kind(&function(class, Some((vendor, device)), computes));
        assert_eq!(gpu(0x0302, 0x10de, 0x2330, false), Kind::Gpu, "H100");
        assert_eq!(gpu(0x0300, 0x10de, 0x2684, false), Kind::Gpu, "GeForce RTX 4090");
        assert_eq!(gpu(0x0380, 0x1002, 0x740c, false), Kind::Gpu, "Instinct MI250X");
        assert_eq!(gpu(0x1200, 0x1002, 0x74a1, false), Kind::Gpu, "Instinct MI300X");
        assert_eq!(gpu(0x0300, 0x1002, 0x6798, true), Kind::Gpu, "Radeon R9 280X with OpenCL");
        assert_eq!(gpu(0x0380, 0x8086, 0x0bd5, false), Kind::Gpu, "Data Center GPU Max");
        assert_eq!(gpu(0x1200, 0x1da3, 0x1020, false), Kind::Gpu, "Gaudi2");
        assert_eq!(gpu(0x0300, 0x1002, 0x515e, false), Kind::Display, "ES1000, a management console");
        assert_eq!(gpu(0x0300, 0x102b, 0x0532, false), Kind::Display, "Matrox G200");
        assert_eq!(gpu(0x0300, 0x1d0f, 0x1111, true), Kind::Display, "Amazon's display, though OpenCL was seen on it");
        assert_eq!(gpu(0x1200, 0x8086, 0x09c4, false), Kind::OtherAccelerator, "a programmable card");
        assert_eq!(kind(&function(0x0302, None, false)), Kind::Gpu, "a file without vendors");
        assert_eq!(kind(&function(0x0300, None, false)), Kind::Display);
    }

    #[test]
    fn efa_is_rdma_and_ena_is_not() {
        let rdma = |class, vendor, device| is_rdma(&function(class, Some((vendor, device)), false));
        assert!(rdma(0x0200, 0x1d0f, 0xefa1) && rdma(0x0200, 0x15b3, 0x1021) && rdma(0x0207, 0x8086, 0x24f0));
        assert!(!rdma(0x0200, 0x1d0f, 0xec20) && !rdma(0x0200, 0x8086, 0x1521));
    }
}
