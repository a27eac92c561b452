//! What the kernel says of a device: where it is, whether its ports are up, how fast they are, who drives it.

use std::fs;
use std::path::{Path, PathBuf};

use pinrail_core::{NodeId, PciAddress, Rail, RailState};

/// A device as a rail without limits: those are known when it has been opened.
pub(crate) fn rail(sys: &Path, device: &str) -> Rail {
    let mut rail = Rail::named(device);
    rail.pci = pci(sys, device);
    rail.node = rail.pci.and_then(|pci| node_of(sys, pci));
    (rail.state, rail.mbps) = ports(&folder(sys, device).join("ports"));
    rail
}

/// The kernel driver of a device. A software device has none and calls itself something (`rxe`).
pub(crate) fn driver(sys: &Path, device: &str) -> String {
    let folder = folder(sys, device);
    let of_hardware = fs::read_link(folder.join("device/driver")).ok();
    let name = of_hardware.as_deref().and_then(Path::file_name).map(|name| name.to_string_lossy().into_owned());
    name.or_else(|| read(&folder.join("node_desc"))).unwrap_or_else(|| "unknown".to_owned())
}

fn folder(sys: &Path, device: &str) -> PathBuf {
    sys.join("class/infiniband").join(device)
}

fn read(path: &Path) -> Option<String> {
    fs::read_to_string(path).ok().map(|text| text.trim().to_owned())
}

/// Its PCI function. A software device (rxe) has none of its own; the network interface that it runs on stands for it.
fn pci(sys: &Path, device: &str) -> Option<PciAddress> {
    let folder = folder(sys, device);
    function(&folder.join("device")).or_else(|| {
        let interface = read(&folder.join("parent"))?;
        function(&sys.join("class/net").join(interface).join("device"))
    })
}

/// The PCI function that a `device` link leads to: the last component that is one, as a virtio device lies below its.
fn function(link: &Path) -> Option<PciAddress> {
    let path = fs::canonicalize(link).ok()?;
    path.components().rev().find_map(|part| part.as_os_str().to_str()?.parse().ok())
}

/// Its NUMA node; the kernel's -1 is unknown.
fn node_of(sys: &Path, pci: PciAddress) -> Option<NodeId> {
    read(&sys.join("bus/pci/devices").join(pci.to_string()).join("numa_node"))?.parse().ok().map(NodeId)
}

/// Up if one of them is, and the speed of those that are, together.
fn ports(folder: &Path) -> (RailState, Option<u64>) {
    let Ok(ports) = fs::read_dir(folder) else { return (RailState::Unknown, None) };
    let ports: Vec<PathBuf> = ports.filter_map(|entry| Some(entry.ok()?.path())).collect();
    // "4: ACTIVE"
    let active = |port: &&PathBuf| read(&port.join("state")).is_some_and(|state| state.starts_with("4:"));
    let active: Vec<&PathBuf> = ports.iter().filter(active).collect();
    if active.is_empty() {
        return (RailState::Down, None);
    }
    (RailState::Up, active.iter().map(|port| read(&port.join("rate")).and_then(|rate| mbps(&rate))).sum())
}

/// `2.5 Gb/sec (1X SDR)`, `400 Gb/sec (4X NDR)`.
fn mbps(rate: &str) -> Option<u64> {
    let (whole, tenths) = match rate.split_once(" Gb/sec")?.0.split_once('.') {
        Some((whole, tenths)) if tenths.len() == 1 => (whole, tenths.parse().ok()?),
        Some(_) => return None,
        None => (rate.split(' ').next()?, 0),
    };
    Some(whole.parse::<u64>().ok()? * 1000 + tenths * 100)
}

#[cfg(test)]
mod tests {
    use super::*;
    use std::os::unix::fs::symlink;

    #[test]
    fn devices_are_described_by_what_the_kernel_says() {
        let sys = std::env::temp_dir().join(format!("pinrail-verbs-sysfs-{}", std::process::id()));
        let function = sys.join("devices/pci0000:80/0000:80:05.0");
        for folder in ["class/net/eth2", "bus/pci/devices", "drivers/mlx5_core"] {
            fs::create_dir_all(sys.join(folder)).unwrap();
        }
        fs::create_dir_all(function.join("virtio3")).unwrap();
        symlink(sys.join("drivers/mlx5_core"), function.join("driver")).unwrap();
        symlink(function.join("virtio3"), sys.join("class/net/eth2/device")).unwrap();
        symlink(&function, sys.join("bus/pci/devices/0000:80:05.0")).unwrap();
        let port = |device: &str, port: u32, state: &str, rate: &str| {
            let folder = sys.join(format!("class/infiniband/{device}/ports/{port}"));
            fs::create_dir_all(&folder).unwrap();
            fs::write(folder.join("state"), state).unwrap();
            fs::write(folder.join("rate"), rate).unwrap();
        };
        port("rxe0", 1, "4: ACTIVE\n", "2.5 Gb/sec (1X SDR)\n");
        port("mlx4_0", 1, "4: ACTIVE\n", "40 Gb/sec (4X QDR)\n");
        port("mlx4_0", 2, "4: ACTIVE\n", "10 Gb/sec (1X QDR)\n");
        port("down0", 1, "1: DOWN\n", "100 Gb/sec (4X EDR)\n");
        fs::write(sys.join("class/infiniband/rxe0/parent"), "eth2\n").unwrap();
        fs::write(sys.join("class/infiniband/rxe0/node_desc"), "rxe\n").unwrap();
        symlink(&function, sys.join("class/infiniband/mlx4_0/device")).unwrap();
        fs::write(function.join("numa_node"), "1\n").unwrap();

        let pci = "0000:80:05.0".parse().ok();
        let soft = rail(&sys, "rxe0");
        assert_eq!((soft.pci, soft.node, soft.state, soft.mbps), (pci, Some(NodeId(1)), RailState::Up, Some(2_500)));
        let hard = rail(&sys, "mlx4_0");
        assert_eq!((hard.pci, hard.state, hard.mbps), (pci, RailState::Up, Some(50_000)));
        let down = rail(&sys, "down0");
        assert_eq!((down.pci, down.node, down.state, down.mbps), (None, None, RailState::Down, None));
        assert_eq!(rail(&sys, "siw0"), Rail::named("siw0"));
        assert_eq!([driver(&sys, "rxe0"), driver(&sys, "mlx4_0"), driver(&sys, "siw0")], ["rxe", "mlx5_core", "unknown"]);

        fs::write(function.join("numa_node"), "-1\n").unwrap();
        assert_eq!(rail(&sys, "rxe0").node, None, "unknown is not node 0");
        fs::remove_dir_all(&sys).unwrap();
    }

    #[test]
    fn rates_are_read_in_the_kernels_forms_alone() {
        assert_eq!(mbps("2.5 Gb/sec (1X SDR)"), Some(2_500));
        assert_eq!(mbps("400 Gb/sec (4X NDR)"), Some(400_000));
        assert_eq!([mbps(""), mbps("fast"), mbps("1.25 Gb/sec"), mbps("x Gb/sec")], [None; 4]);
    }
}
