//! What can be typed: the commands, and the arguments that several of them take.

use std::ffi::OsString;
use std::path::PathBuf;

use clap::{Args, Parser, Subcommand};

use crate::{bench, plan, register, sim, topo};

/// Registers memory with RDMA NICs: plans buffers x rails as one schedule, runs it, and says where the time went.
#[derive(Debug, Parser)]
#[command(name = "pinrail", version, arg_required_else_help = false)]
pub(crate) struct Cli {
    #[command(subcommand)]
    pub(crate) command: Command,
    /// Print one JSON document on standard output and nothing else there, errors included.
    #[arg(long, global = true)]
    pub(crate) json: bool,
}

#[derive(Debug, Subcommand)]
pub(crate) enum Command {
    /// Show what would be registered where, and why; nothing is touched.
    Plan(plan::Args),
    /// Register a batch in memory of its own, deregister it, and say where the time went.
    Register(register::Args),
    /// Compare policies, and what others do, on real registrations.
    Bench(bench::Args),
    /// Run policies in virtual time on a machine that one does not have, and say how sure that is.
    Sim(sim::Args),
    /// Show a machine's rails, GPUs and NUMA nodes and how near they are to each other.
    Topo(topo::Args),
}

/// The buffers.
#[derive(Debug, Args)]
pub(crate) struct BatchArgs {
    /// A shape (kimi-k3, kimi-k3/N for every size divided by N, COUNTxSIZE as in 48x391MiB) or a batch file (JSON).
    #[arg(long, value_name = "SHAPE|FILE")]
    pub(crate) batch: OsString,
}

/// The rails.
#[derive(Debug, Args)]
pub(crate) struct MachineArgs {
    /// A file that describes the machine: our TOML; with feature `topology` also hwloc XML and NCCL topology XML.
    #[arg(long, value_name = "FILE", conflicts_with = "rails")]
    pub(crate) machine: Option<PathBuf>,
    /// That many rails and nothing known about where they are [without both: 1].
    #[arg(long, value_name = "N", value_parser = clap::value_parser!(u16).range(1..=4096))]
    pub(crate) rails: Option<u16>,
}

/// The policy.
#[derive(Debug, Args)]
pub(crate) struct PolicyArgs {
    /// Terms joined by +, as in ascending+capped=16; what is not named keeps its default.
    #[arg(long, value_name = "SPEC", default_value = "", hide_default_value = true)]
    pub(crate) policy: String,
}

/// Where and by what policy a batch is planned: what `plan` and `register` have in common.
#[derive(Debug, Args)]
pub(crate) struct TermsArgs {
    #[command(flatten)]
    pub(crate) machine: MachineArgs,
    #[command(flatten)]
    pub(crate) policy: PolicyArgs,
}

/// Whether JSON was asked for, where the arguments could not be parsed; also in a way that is none, as in `--json=true`.
pub(crate) fn ask_for_json(arguments: impl Iterator<Item = OsString>) -> bool {
    let asks = |argument: OsString| argument == "--json" || argument.as_encoded_bytes().starts_with(b"--json=");
    arguments.skip(1).take_while(|argument| argument != "--").any(asks)
}

#[cfg(test)]
mod tests {
    use clap::CommandFactory;
    use pinrail_core::Rail;

    use super::*;

    #[test]
    fn the_arguments_contradict_each_other_nowhere() {
        Cli::command().debug_assert();
    }

    #[test]
    fn there_are_as_many_rails_as_a_machine_may_have() {
        let rails = |n: usize| Cli::try_parse_from(["pinrail", "plan", "--batch", "1x1", "--rails", &n.to_string()]);
        assert!(rails(1).is_ok() && rails(Rail::MAX).is_ok());
        assert!(rails(0).is_err() && rails(Rail::MAX + 1).is_err());
    }

    #[test]
    fn json_is_asked_for_wherever_it_stands_before_the_end_of_options() {
        let asks = |line: &str| ask_for_json(line.split(' ').map(OsString::from));
        assert!(asks("pinrail --json") && asks("pinrail plan --rails 0 --json") && asks("pinrail plan --json=true"));
        assert!(!asks("pinrail plan --jsonx") && !asks("pinrail plan -- --json") && !asks("--json plan"));
    }
}
