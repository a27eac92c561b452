//! Where a device is, as the kernel tells it: for providers that do not say.

use std::fs;
use std::path::Path;

use pinrail_core::{NodeId, PciAddress};

/// The PCI function of an RDMA device. A software device (rxe) has none of its own; the network interface that it runs on
/// stands for it.
pub(crate) fn pci_of_rdma_device(sys: &Path, device: &str) -> Option<PciAddress> {
    let class = sys.join("class");
    let rdma = class.join("infiniband").join(device);
    function(&rdma.join("device")).or_else(|| {
        let parent = fs::read_to_string(rdma.join("parent")).ok()?;
        function(&class.join("net").join(parent.trim()).join("device"))
    })
}

/// The PCI function that a `device` link leads to: the last component that is one, as a virtio device lies below its.
fn function(link: &Path) -> Option<PciAddress> {
    let path = fs::canonicalize(link).ok()?;
    path.components().rev().find_map(|part| part.as_os_str().to_str()?.parse().ok())
}

/// Its NUMA node; the kernel's -1 is unknown.
pub(crate) fn node_of(sys: &Path, pci: PciAddress) -> Option<NodeId> {
    let node = fs::read_to_string(sys.join("bus/pci/devices").join(pci.to_string()).join("numa_node")).ok()?;
    node.trim().parse().ok().map(NodeId)
}

#[cfg(test)]
mod tests {
    use super::*;
    use std::os::unix::fs::symlink;

    #[test]
    fn a_software_device_is_where_its_interface_is() {
        let sys = std::env::temp_dir().join(format!("pinrail-libfabric-sysfs-{}", std::process::id()));
        let function = sys.join("devices/pci0000:80/0000:80:05.0");
        for folder in ["class/infiniband/rxe0", "class/infiniband/mlx5_0", "class/net/eth2", "bus/pci/devices"] {
            fs::create_dir_all(sys.join(folder)).unwrap();
        }
        fs::create_dir_all(function.join("virtio3")).unwrap();
        fs::write(function.join("numa_node"), "1\n").unwrap();
        fs::write(sys.join("class/infiniband/rxe0/parent"), "eth2\n").unwrap();
        symlink(function.join("virtio3"), sys.join("class/net/eth2/device")).unwrap();
        symlink(&function, sys.join("class/infiniband/mlx5_0/device")).unwrap();
        symlink(&function, sys.join("bus/pci/devices/0000:80:05.0")).unwrap();

        let pci = "0000:80:05.0".parse().ok();
        assert_eq!(pci_of_rdma_device(&sys, "rxe0"), pci);
        assert_eq!(pci_of_rdma_device(&sys, "mlx5_0"), pci);
        assert_eq!(pci_of_rdma_device(&sys, "siw0"), None);
        assert_eq!(node_of(&sys, pci.unwrap()), Some(NodeId(1)));
        fs::write(function.join("numa_node"), "-1\n").unwrap();
        assert_eq!(node_of(&sys, pci.unwrap()), None, "unknown is not node 0");
        fs::remove_dir_all(&sys).unwrap();
    }
}
