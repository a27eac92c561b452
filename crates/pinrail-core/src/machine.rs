use std::collections::BTreeMap;
use std::num::NonZeroU32;

use crate::{Access, NodeId, PciAddress, RailId};

/// A machine as placement sees it: plain data, from discovery, from a file (feature `files`) or invented by a test.
#[derive(Clone, Debug, Default, PartialEq, Eq)]
pub struct Machine {
    /// Its rails; [`RailId`] indexes this list.
    pub rails: Vec<Rail>,
    /// Its GPUs.
    pub gpus: Vec<Gpu>,
    /// Its NUMA nodes.
    pub nodes: Vec<NumaNode>,
    /// What a reader of the topology should know: devices left out, and why.
    pub notes: Vec<String>,
}

/// One NIC domain that can register.
#[derive(Clone, Debug, PartialEq, Eq)]
pub struct Rail {
    /// Its name, unique on the machine.
    pub name: String,
    /// Its PCI function; of a software rail that of the network device below it, where there is one.
    pub pci: Option<PciAddress>,
    /// Its NUMA node; `None` when unknown (the operating system's -1 is unknown, never node 0).
    pub node: Option<NodeId>,
    /// The PCI bridges above it, outermost first, named as one likes: the host bridge, the root port and, for each switch
    /// on the way, its upstream and its downstream port, as `lspci -t` and sysfs show them. Devices whose bridges are the
    /// same are at one switch or one port, so a file written by hand may name a switch once and leave out its ports,
    /// unless another switch is below it.
    pub bridges: Vec<String>,
    /// The physical function that this is a virtual function of, where it is one: they share a port.
    pub vf_of: Option<PciAddress>,
    /// Its speed in megabits a second, where known; ports of one device and virtual functions state the whole.
    pub mbps: Option<u64>,
    /// Whether its port is up.
    pub state: RailState,
    /// What it can hold.
    pub limits: RailLimits,
    /// The access it can grant.
    pub access: Access,
    /// Whose memlock budget its pins count against.
    pub pins: PinsCounted,
    /// How it reaches device memory.
    pub device: DevicePath,
    /// Calls that make progress at once; more would only wait inside the driver.
    pub calls_in_parallel: NonZeroU32,
    /// Bytes that the open rail has pinned for itself, counted as its registrations' are.
    pub own_pinned_bytes: u64,
}

/// Whether a rail's port is up.
#[derive(Clone, Copy, Debug, Default, PartialEq, Eq)]
pub enum RailState {
    /// Up.
    Up,
    /// Down: listed, never chosen.
    Down,
    /// Not known; chosen like one that is up.
    #[default]
    Unknown,
}

/// What a rail can hold; `None` is no known limit. All but the first count over everything that is live on it.
#[derive(Clone, Copy, Debug, Default, PartialEq, Eq)]
pub struct RailLimits {
    /// Bytes of one registration.
    pub max_mr_size: Option<u64>,
    /// Registrations.
    pub max_mrs: Option<u64>,
    /// Page entries, each registration's counted in its own page size.
    pub max_pages: Option<u64>,
    /// Page entries of registrations that peers may write to: some devices have fewer of these.
    pub max_pages_remote_write: Option<u64>,
    /// Bytes (erdma: 64 GB in all).
    pub max_bytes: Option<u64>,
}

impl RailLimits {
    /// These, and where one is not set that of `other`.
    #[must_use]
    pub fn or(self, other: RailLimits) -> RailLimits {
        self.with(other, Option::or)
    }

    /// The smaller of the two, limit by limit.
    #[must_use]
    pub fn least(self, other: RailLimits) -> RailLimits {
        self.with(other, |a, b| a.into_iter().chain(b).min())
    }

    /// Each limit by its name in batch, machine and plan files.
    #[must_use]
    pub fn named(self) -> [(&'static str, Option<u64>); 5] {
        let RailLimits { max_mr_size, max_mrs, max_pages, max_pages_remote_write, max_bytes } = self;
        [
            ("max_mr_size", max_mr_size),
            ("max_mrs", max_mrs),
            ("max_pages", max_pages),
            ("max_pages_remote_write", max_pages_remote_write),
            ("max_bytes", max_bytes),
        ]
    }

    /// The name of a limit of zero, with which a rail could hold nothing.
    #[must_use]
    pub fn zero(self) -> Option<&'static str> {
        self.named().into_iter().find(|(_, value)| *value == Some(0)).map(|(name, _)| name)
    }

    fn with(self, other: RailLimits, choose: impl Fn(Option<u64>, Option<u64>) -> Option<u64>) -> RailLimits {
        RailLimits {
            max_mr_size: choose(self.max_mr_size, other.max_mr_size),
            max_mrs: choose(self.max_mrs, other.max_mrs),
            max_pages: choose(self.max_pages, other.max_pages),
            max_pages_remote_write: choose(self.max_pages_remote_write, other.max_pages_remote_write),
            max_bytes: choose(self.max_bytes, other.max_bytes),
        }
    }
}

/// Whose memlock budget a rail's pins count against.
#[derive(Clone, Copy, Debug, Default, PartialEq, Eq)]
pub enum PinsCounted {
    /// Nothing is pinned.
    Nothing,
    /// The process (`ibv_reg_mr`).
    Process,
    /// The user: other processes of the same uid count too (io_uring).
    User,
    /// Not known.
    #[default]
    Unknown,
}

/// How a rail reaches device memory.
#[derive(Clone, Copy, Debug, Default, PartialEq, Eq)]
pub enum DevicePath {
    /// It does not.
    None,
    /// By address, through a peer-memory driver.
    Address,
    /// By dma-buf.
    DmaBuf,
    /// Not known until it is tried.
    #[default]
    Unknown,
}

/// A GPU.
#[derive(Clone, Debug, PartialEq, Eq)]
pub struct Gpu {
    /// Its identity.
    pub pci: PciAddress,
    /// Its NUMA node; `None` when unknown.
    pub node: Option<NodeId>,
    /// The PCI bridges above it, outermost first: see [`Rail::bridges`].
    pub bridges: Vec<String>,
}

/// A NUMA node.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub struct NumaNode {
    /// Its number.
    pub id: NodeId,
}

/// Where a device is attached.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub struct Attachment<'m> {
    /// The PCI bridges above it, outermost first.
    pub bridges: &'m [String],
    /// Its NUMA node; `None` when unknown.
    pub node: Option<NodeId>,
}

/// How near two devices are, as `nvidia-smi topo -m` defines it; nearer is less.
#[derive(Clone, Copy, Debug, PartialEq, Eq, PartialOrd, Ord, Hash)]
pub enum PathClass {
    /// Through one PCI switch, or below one port.
    Pix,
    /// Through several PCI switches, without the host bridge.
    Pxb,
    /// Through one host bridge.
    Phb,
    /// Between host bridges of one NUMA node.
    Node,
    /// Between NUMA nodes.
    Sys,
}

impl<'m> Attachment<'m> {
    /// The bridges up to the upstream port of its switch, without the downstream port it is at. Right below the host
    /// bridge a bridge is a root port, or a switch whose ports are not named: nothing to leave out.
    fn switch(self) -> &'m [String] {
        match self.bridges {
            [above @ .., _port] if above.len() >= 2 => above,
            bridges => bridges,
        }
    }
}

impl PathClass {
    /// Walks up from both devices to the bridge they share, however deep the tree is; `None` where they share none and
    /// not both nodes are known.
    ///
    /// Of a switch they share the upstream port, and each is at a downstream port of its own: the same bridges but for
    /// the last. So being within one class of each other is transitive, and no device is near to two groups.
    #[must_use]
    pub fn between(a: Attachment<'_>, b: Attachment<'_>) -> Option<PathClass> {
        let shared = a.bridges.iter().zip(b.bridges).take_while(|(a, b)| a == b).count();
        match shared {
            0 => match (a.node, b.node) {
                (Some(a), Some(b)) => Some(if a == b { PathClass::Node } else { PathClass::Sys }),
                _ => None,
            },
            1 => Some(PathClass::Phb),
            _ if a.switch() == b.switch() => Some(PathClass::Pix),
            _ => Some(PathClass::Pxb),
        }
    }

    /// The class by its name in `nvidia-smi topo -m`.
    #[must_use]
    pub fn as_str(self) -> &'static str {
        match self {
            PathClass::Pix => "PIX",
            PathClass::Pxb => "PXB",
            PathClass::Phb => "PHB",
            PathClass::Node => "NODE",
            PathClass::Sys => "SYS",
        }
    }
}

/// A machine that contradicts itself.
#[derive(Clone, Debug, PartialEq, Eq, thiserror::Error)]
#[non_exhaustive]
pub enum MachineError {
    /// Two rails have one name.
    #[error("two rails are called {name:?}")]
    TwoRails {
        /// The name.
        name: String,
    },
    /// Two devices have one PCI address.
    #[error("two devices are at {pci}")]
    TwoDevices {
        /// The address.
        pci: PciAddress,
    },
    /// More rails than a [`RailId`] counts.
    #[error("{rails} rails are more than the {max} a machine may have")]
    TooManyRails {
        /// Rails given.
        rails: usize,
        /// The limit.
        max: usize,
    },
    /// A name is empty, or would not survive a policy spec or a table.
    #[error("rail name {name:?} may have only letters, digits, '_', '-', '.', ':' and '@', at least one and at most 64")]
    Name {
        /// The name.
        name: String,
    },
    /// A rail can hold nothing: a limit of zero.
    #[error("rail {rail:?} has {limit} = 0; leave it out for no limit")]
    ZeroLimit {
        /// The rail.
        rail: String,
        /// The limit's name.
        limit: &'static str,
    },
}

impl Rail {
    /// Most rails a machine may have.
    pub const MAX: usize = 4096;

    /// A rail about which nothing but its name is known, without limits.
    pub fn named(name: impl Into<String>) -> Rail {
        Rail {
            name: name.into(),
            pci: None,
            node: None,
            bridges: Vec::new(),
            vf_of: None,
            mbps: None,
            state: RailState::Unknown,
            limits: RailLimits::default(),
            access: Access::FULL,
            pins: PinsCounted::Unknown,
            device: DevicePath::Unknown,
            calls_in_parallel: NonZeroU32::MAX,
            own_pinned_bytes: 0,
        }
    }

    /// Whether a rail may have this name: it survives a policy spec and a table.
    #[must_use]
    pub fn is_name(name: &str) -> bool {
        let plain = |c: char| c.is_ascii_alphanumeric() || "_-.:@".contains(c);
        !name.is_empty() && name.len() <= 64 && name.chars().all(plain)
    }

    /// Where it is attached.
    #[must_use]
    pub fn attachment(&self) -> Attachment<'_> {
        Attachment { bridges: &self.bridges, node: self.node }
    }

    /// The device whose bandwidth it shares with its other ports and with virtual functions: the domain, bus and device
    /// number of its physical function. `None` without a PCI function: then it shares nothing.
    #[must_use]
    pub fn card(&self) -> Option<(u32, u8, u8)> {
        self.vf_of.or(self.pci).map(PciAddress::card)
    }

    /// Takes over what a provider says of the same rail; of two limits the smaller holds.
    pub fn tighten(&mut self, provider: &Rail) {
        self.limits = self.limits.least(provider.limits);
        self.access &= provider.access;
        self.pins = provider.pins;
        self.device = provider.device;
        self.calls_in_parallel = self.calls_in_parallel.min(provider.calls_in_parallel);
        self.own_pinned_bytes = provider.own_pinned_bytes;
    }
}

impl Gpu {
    /// Where it is attached.
    #[must_use]
    pub fn attachment(&self) -> Attachment<'_> {
        Attachment { bridges: &self.bridges, node: self.node }
    }
}

impl Machine {
    /// `n` software rails `rail0`, `rail1`, … and nothing else.
    #[must_use]
    pub fn of_rails(n: u16) -> Machine {
        Machine { rails: (0..n).map(|at| Rail::named(format!("rail{at}"))).collect(), ..Machine::default() }
    }

    /// Checks what every machine must fulfil, wherever it comes from.
    ///
    /// # Errors
    /// The first contradiction.
    pub fn check(&self) -> Result<(), MachineError> {
        if self.rails.len() > Rail::MAX {
            return Err(MachineError::TooManyRails { rails: self.rails.len(), max: Rail::MAX });
        }
        let mut names = std::collections::BTreeSet::new();
        let mut addresses = std::collections::BTreeSet::new();
        for rail in &self.rails {
            if !Rail::is_name(&rail.name) {
                return Err(MachineError::Name { name: rail.name.chars().take(80).collect() });
            }
            if !names.insert(&rail.name) {
                return Err(MachineError::TwoRails { name: rail.name.clone() });
            }
            if let Some(limit) = rail.limits.zero() {
                return Err(MachineError::ZeroLimit { rail: rail.name.clone(), limit });
            }
        }
        // Two rails may share a PCI function (two ports of one device), a rail and a GPU may not.
        let rails: std::collections::BTreeSet<_> = self.rails.iter().filter_map(|rail| rail.pci).collect();
        match self.gpus.iter().find(|gpu| !addresses.insert(gpu.pci) || rails.contains(&gpu.pci)) {
            Some(gpu) => Err(MachineError::TwoDevices { pci: gpu.pci }),
            None => Ok(()),
        }
    }

    /// The rail of that name, or at that PCI address (the first of several ports).
    #[must_use]
    pub fn rail_by_name(&self, name: &str) -> Option<RailId> {
        let pci = name.parse::<PciAddress>().ok();
        let by_name = self.rails.iter().position(|rail| rail.name == name);
        let at = by_name.or_else(|| self.rails.iter().position(|rail| pci.is_some() && rail.pci == pci))?;
        u16::try_from(at).ok().map(RailId)
    }

    /// The names of its rails, for a person who named another.
    #[must_use]
    pub fn rail_names(&self) -> String {
        let names: Vec<&str> = self.rails.iter().map(|rail| rail.name.as_str()).collect();
        if names.is_empty() { "no rail".to_owned() } else { names.join(", ") }
    }

    /// The rails that may be chosen: all whose port is not known to be down.
    pub fn usable(&self) -> impl Iterator<Item = RailId> {
        self.ids().filter(|rail| self.rails[rail.index()].state != RailState::Down)
    }

    /// All rails.
    pub fn ids(&self) -> impl Iterator<Item = RailId> + use<> {
        (0..u16::try_from(self.rails.len()).unwrap_or(u16::MAX)).map(RailId)
    }

    /// The GPU at that address.
    #[must_use]
    pub fn gpu(&self, pci: PciAddress) -> Option<&Gpu> {
        self.gpus.iter().find(|gpu| gpu.pci == pci)
    }

    /// How near a rail and a GPU are; `None` where neither a common bridge nor both nodes are known.
    #[must_use]
    pub fn path(&self, rail: RailId, gpu: &Gpu) -> Option<PathClass> {
        PathClass::between(self.rails[rail.index()].attachment(), gpu.attachment())
    }

    /// How near a rail and a NUMA node are: `Node` or `Sys`; `None` where the rail's node is unknown.
    #[must_use]
    pub fn path_to_node(&self, rail: RailId, node: NodeId) -> Option<PathClass> {
        let at = self.rails[rail.index()].node?;
        Some(if at == node { PathClass::Node } else { PathClass::Sys })
    }

    /// Megabits a second that these rails reach together, a device with several ports or functions counted once, at its
    /// fastest. `None` where the speed of one is not known: a sum without it would be too small.
    #[must_use]
    pub fn mbps(&self, rails: &[RailId]) -> Option<u64> {
        let mut devices = BTreeMap::new();
        for &rail in rails {
            let Rail { mbps, .. } = self.rails[rail.index()];
            // Rails without a PCI function are devices of their own.
            let device = self.rails[rail.index()].card().ok_or(rail);
            let fastest = devices.entry(device).or_insert(0);
            *fastest = mbps?.max(*fastest);
        }
        devices.values().try_fold(0, |sum: u64, mbps| sum.checked_add(*mbps))
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    fn gpu(node: Option<u32>, bridges: &[&str]) -> Gpu {
        Gpu {
            pci: "53:00.0".parse().unwrap(),
            node: node.map(NodeId),
            bridges: bridges.iter().map(|b| (*b).to_owned()).collect(),
        }
    }

    fn machine(node: Option<u32>, bridges: &[&str]) -> Machine {
        let mut rail = Rail::named("mlx5_0");
        rail.node = node.map(NodeId);
        rail.bridges = bridges.iter().map(|b| (*b).to_owned()).collect();
        Machine { rails: vec![rail], ..Machine::default() }
    }

    #[test]
    fn path_classes_are_found_by_walking_up() {
        let near =
            |rail: (Option<u32>, &[&str]), to: (Option<u32>, &[&str])| machine(rail.0, rail.1).path(RailId(0), &gpu(to.0, to.1));
        let at: &[&str] = &["hb0", "sw0"];
        assert_eq!(near((Some(0), at), (Some(0), at)), Some(PathClass::Pix));
        let port: &[&str] = &["hb0", "root", "sw0", "sw0.1"];
        assert_eq!(
            near((Some(0), port), (Some(0), &["hb0", "root", "sw0", "sw0.2"])),
            Some(PathClass::Pix),
            "two ports of one switch"
        );
        assert_eq!(near((Some(0), port), (Some(0), &["hb0", "root", "sw0", "sw0.2", "sw1", "sw1.1"])), Some(PathClass::Pxb));
        // A device on the very bus of a switch is no nearer to what is at its ports than to what is above it.
        let within: &[&str] = &["hb0", "root", "sw0"];
        assert_eq!(near((Some(0), within), (Some(0), &["hb0", "root"])), Some(PathClass::Pix));
        assert_eq!(near((Some(0), within), (Some(0), port)), Some(PathClass::Pxb));
        let no_root_port = near((Some(0), &["hb0", "b9:00.0", "ba:00.0"]), (Some(0), &["hb0", "b9:00.0", "ba:01.0"]));
        assert_eq!(no_root_port, Some(PathClass::Pix), "a VM may hide the root port");
        assert_eq!(near((Some(0), port), (Some(0), &["hb0", "root2", "sw0", "sw0.1"])), Some(PathClass::Phb));
        assert_eq!(near((Some(0), at), (Some(0), &["hb0", "sw9"])), Some(PathClass::Phb));
        assert_eq!(near((Some(0), at), (Some(0), &["hb1", "sw0"])), Some(PathClass::Node));
        assert_eq!(near((Some(0), at), (Some(1), &["hb1"])), Some(PathClass::Sys));
        assert_eq!(near((None, at), (Some(0), &["hb1"])), None, "an unknown node is not node 0");
        assert_eq!(near((None, at), (None, at)), Some(PathClass::Pix));
    }

    #[test]
    fn a_machine_that_contradicts_itself_is_refused() {
        let mut machine = Machine::of_rails(2);
        assert_eq!(machine.check(), Ok(()));
        machine.rails[1].name = "rail0".into();
        assert_eq!(machine.check(), Err(MachineError::TwoRails { name: "rail0".into() }));
        machine.rails[1].name = "a+b".into();
        assert!(matches!(machine.check(), Err(MachineError::Name { .. })));
        machine.rails[1].name = "rail1".into();
        machine.rails[1].limits.max_mrs = Some(0);
        assert!(matches!(machine.check(), Err(MachineError::ZeroLimit { limit: "max_mrs", .. })));
    }

    #[test]
    fn a_rail_is_found_by_name_and_by_address_of_any_spelling() {
        let mut machine = Machine::of_rails(3);
        machine.rails[2].pci = Some("0000:4f:00.0".parse().unwrap());
        assert_eq!(machine.rail_by_name("rail1"), Some(RailId(1)));
        assert_eq!(machine.rail_by_name("4F:00.0"), Some(RailId(2)));
        assert_eq!(machine.rail_by_name("rail3"), None);
    }

    #[test]
    fn the_bandwidth_of_a_device_is_counted_once() {
        let mut machine = Machine::of_rails(4);
        for (rail, pci) in machine.rails.iter_mut().zip(["4f:00.0", "4f:00.1", "50:00.0", "50:02.3"]) {
            rail.pci = Some(pci.parse().unwrap());
            rail.mbps = Some(100_000);
        }
        let all: Vec<RailId> = machine.ids().collect();
        assert_eq!(machine.mbps(&all), Some(300_000), "two ports of 4f:00");
        machine.rails[3].vf_of = machine.rails[2].pci;
        assert_eq!(machine.mbps(&all), Some(200_000), "50:02.3 is a virtual function of 50:00.0");
        machine.rails[0].mbps = None;
        assert_eq!(machine.mbps(&all), None);
        assert_eq!(machine.mbps(&all[1..]), Some(200_000));
        assert_eq!(machine.mbps(&[]), Some(0));
        let mut software = Machine::of_rails(2);
        software.rails.iter_mut().for_each(|rail| rail.mbps = Some(10));
        assert_eq!(software.mbps(&[RailId(0), RailId(1)]), Some(20));
    }

    #[test]
    fn of_two_limits_the_smaller_holds() {
        let mut ours = Rail::named("a");
        ours.limits.max_mr_size = Some(10);
        let mut theirs = Rail::named("b");
        theirs.limits = RailLimits { max_mr_size: Some(20), max_mrs: Some(5), ..RailLimits::default() };
        ours.tighten(&theirs);
        assert_eq!(ours.limits, RailLimits { max_mr_size: Some(10), max_mrs: Some(5), ..RailLimits::default() });
        assert_eq!(ours.name, "a");
    }
}
