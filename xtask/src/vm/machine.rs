//! The machine that QEMU makes: one rail on the loop-back interface, or several on network cards of two NUMA nodes.

use std::fmt::Write as _;
use std::path::Path;

use crate::command::Line;

/// Most rails; each is a network card behind a root port of its own.
pub(super) const RAILS_MAX: u8 = 8;

/// Emulated, always: with KVM the guest's kernel would run on a processor that nobody has tried it on.
const FIXED: &str = "-nodefaults -no-user-config -no-reboot -machine q35 -accel tcg,thread=multi -cpu max -m 2G -smp 2 \
                     -display none -serial stdio";

/// What the kernel is told; it starts faster where it mitigates nothing. On a busy host the emulated timer can be too late
/// for the kernel's check of it, which would then give up.
const KERNEL: &str = "console=ttyS0 quiet panic=-1 mitigations=off nokaslr no_timer_check";

/// Where rails lie: the NUMA node of each network card, by the last digit of the card's address.
pub(super) fn nodes(rails: u8) -> Vec<u8> {
    if rails == 1 { Vec::new() } else { (0..rails).map(|card| card * 2 / rails).collect() }
}

/// The whole command line.
pub(super) fn qemu(image: &Path, initrd: &Path, share: &Path, rails: u8) -> Line {
    let path = |path: &Path| path.to_string_lossy().into_owned();
    // A comma within an option's value is written twice.
    let shared = path(share).replace(',', ",,");
    let line = Line::new("qemu-system-x86_64").words(FIXED.split_whitespace());
    let line = line.word("-kernel").word(path(image)).word("-initrd").word(path(initrd)).word("-append").word(KERNEL);
    let line = line.words(["-virtfs", "local,path=/,mount_tag=host,security_model=none,readonly=on,multidevs=remap"]);
    let line = line.word("-virtfs").word(format!("local,path={shared},mount_tag=share,security_model=none"));
    line.words(cards(&nodes(rails)).split_whitespace())
}

/// Two nodes of one processor and half of the memory each, with a host bridge each, and the cards.
fn cards(nodes: &[u8]) -> String {
    let mut options = String::new();
    if nodes.is_empty() {
        return options;
    }
    for node in 0..2 {
        write!(
            options,
            "-object memory-backend-ram,id=memory{node},size=1G -numa node,nodeid={node},memdev=memory{node},cpus={node} \
             -device pxb-pcie,id=bridge{node},bus_nr={},numa_node={node},bus=pcie.0 ",
            64 + 64 * node
        )
        .expect("a string takes everything");
    }
    for (card, node) in nodes.iter().enumerate() {
        write!(
            options,
            "-netdev user,id=net{card},restrict=on -device pcie-root-port,id=port{card},bus=bridge{node},chassis={0},slot={0} \
             -device virtio-net-pci,bus=port{card},netdev=net{card},mac=52:54:00:00:00:0{card},romfile= ",
            card + 1
        )
        .expect("a string takes everything");
    }
    options
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn cards_are_shared_out_over_both_nodes() {
        assert_eq!(nodes(1), [0; 0], "the loop-back interface is nowhere");
        assert_eq!(nodes(2), [0, 1]);
        assert_eq!(nodes(3), [0, 0, 1]);
        assert_eq!(nodes(4), [0, 0, 1, 1]);
        assert_eq!(nodes(RAILS_MAX).iter().map(|&node| u32::from(node)).sum::<u32>(), 4);
    }

    #[test]
    fn the_machine_is_always_emulated_and_the_hosts_root_read_only() {
        for rails in 1..=RAILS_MAX {
            let line = qemu(Path::new("image"), Path::new("initrd"), Path::new("a,b"), rails).to_string();
            assert!(line.contains("-accel tcg,thread=multi") && !line.contains("kvm"), "{line}");
            assert!(line.contains("path=/,mount_tag=host,security_model=none,readonly=on"), "{line}");
            assert!(line.contains("path=a,,b,mount_tag=share"), "{line}");
            assert_eq!(line.matches("virtio-net-pci").count(), if rails == 1 { 0 } else { rails.into() });
        }
    }
}
