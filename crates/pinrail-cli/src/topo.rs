//! `pinrail topo`: a machine's rails, GPUs and NUMA nodes, and how near they are to each other.

use std::path::PathBuf;

use crate::error::Error;
use crate::output::Document;

#[derive(Debug, clap::Args)]
pub(crate) struct Args {
    /// A file that describes the machine: hwloc XML, NCCL topology XML or our TOML [default: this host].
    #[arg(long, value_name = "FILE")]
    machine: Option<PathBuf>,
    /// Write the machine as TOML, for --machine; - writes it to standard output and nothing else there.
    #[arg(long, value_name = "FILE|-")]
    save: Option<PathBuf>,
}

#[cfg(not(feature = "topology"))]
pub(crate) fn run(Args { machine: _, save: _ }: &Args) -> Result<Box<dyn Document>, Error> {
    Err(Error::feature_off("pinrail topo", "topology"))
}

#[cfg(feature = "topology")]
pub(crate) use shown::{Near, Topo, run};

#[cfg(feature = "topology")]
mod shown {
    use pinrail_core::{Buffer, Machine, Memory, NodeId, PciAddress, Place};
    use pinrail_policy::{DeviceLocal, PolicyError, RailLocal, SelectRails, Selection};

    use super::{Args, Document, Error};
    use crate::machine;

    /// A machine, and what placement makes of it.
    pub(crate) struct Topo {
        pub(crate) machine: Machine,
        /// Each GPU's rails, in the machine's order.
        pub(crate) gpus: Vec<(PciAddress, Near)>,
        /// Each NUMA node's rails, in the machine's order.
        pub(crate) nodes: Vec<(NodeId, Near)>,
        /// The machine file, where it goes to standard output.
        pub(crate) saved: Option<String>,
    }

    /// The rails for memory in a place, as `device-local` and `rail-local` choose them; without rails why there are none.
    pub(crate) type Near = Result<Selection, String>;

    pub(crate) fn run(args: &Args) -> Result<Box<dyn Document>, Error> {
        let machine = match &args.machine {
            Some(path) => machine::from_file(path)?,
            None => pinrail_topology::discover()?.machine,
        };
        let mut saved = None;
        match &args.save {
            Some(path) if path.as_os_str() == "-" => saved = Some(machine.to_toml()),
            Some(path) => {
                std::fs::write(path, machine.to_toml()).map_err(|error| Error::io(&path.display().to_string(), &error))?;
            }
            None => {}
        }
        let gpu = |gpu: &pinrail_core::Gpu| Ok((gpu.pci, near(&DeviceLocal::default(), Place::Gpu(gpu.pci), &machine)?));
        let gpus = machine.gpus.iter().map(gpu).collect::<Result<_, Error>>()?;
        let node =
            |node: &pinrail_core::NumaNode| Ok((node.id, near(&RailLocal::default(), Place::HostNode(node.id), &machine)?));
        let nodes = machine.nodes.iter().map(node).collect::<Result<_, Error>>()?;
        Ok(Box::new(Topo { machine, gpus, nodes, saved }))
    }

    /// Asks a policy as a plan would.
    fn near(policy: &dyn SelectRails, place: Place, machine: &Machine) -> Result<Near, Error> {
        let memory = Memory::imagined(1 << 32, 4096).map_err(|error| Error::usage(error.to_string()))?;
        let buffer = Buffer::new(place.to_string(), memory, 0..4096).map_err(|error| Error::usage(error.to_string()))?;
        match policy.select(&buffer.with_place(place), machine) {
            Ok(selection) => Ok(Ok(selection)),
            Err(PolicyError::NoRail { why, .. }) => Ok(Err(why)),
            Err(error) => Err(error.into()),
        }
    }
}
