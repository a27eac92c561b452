//! `pinrail topo`: a machine's rails, GPUs and NUMA nodes.

use std::path::PathBuf;

use crate::error::Error;
use crate::output::Document;

#[derive(Debug, clap::Args)]
pub(crate) struct Args {
    /// A file that describes the machine [default: this host].
    #[arg(long, value_name = "FILE")]
    machine: Option<PathBuf>,
    /// Write the machine as TOML, for --machine.
    #[arg(long, value_name = "FILE")]
    save: Option<PathBuf>,
}

pub(crate) fn run(_: &Args) -> Result<Box<dyn Document>, Error> {
    Err(Error::feature_off("pinrail topo", "topology"))
}
