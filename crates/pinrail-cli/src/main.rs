#![doc = include_str!("../README.md")]
//!
//! # Decisions
//!
//! - **One file for each thing that a buffer meets**: [`args`] → [`batch`] → [`machine`] → [`backend`] → the
//!   command ([`plan`], [`register`]) → [`output`]. Commands answer a [`Document`](output::Document); only
//!   [`output`] writes to standard output, so that `--json` is one document whatever happens.
//! - **What cannot be is refused as early as it is certain**: what is wrong with a batch as it is written before it gets
//!   memory, what cannot fit before pages are touched, and always before the first registration.
//! - **A feature that is off is an error that names it**, not a missing command: who reads the documentation meets it.
//! - **Signals become a cancel** ([`interrupt`]) and nothing else. A process that is killed needs no clean-up: pins,
//!   rings and mappings are the kernel's to take back, there is no file, and the processes of a bench end with it.
//!
//! # Not here
//!
//! Whatever a library could do: this crate reads arguments and files, calls, and prints.

#![forbid(unsafe_code)]

mod args;
mod backend;
mod batch;
mod bench;
mod clock;
mod error;
mod file;
mod interrupt;
mod machine;
mod output;
mod plan;
mod policy;
mod progress;
mod register;
mod sim;
mod topo;

use std::process::ExitCode;

use clap::Parser;

use crate::args::{Cli, Command};
use crate::output::{Answer, Form};

fn main() -> ExitCode {
    // Libraries that come with libfabric answer Ctrl-C by themselves, and before anything could be undone.
    #[cfg(feature = "libfabric")]
    pinrail_libfabric::default_signals();
    match Cli::try_parse() {
        Ok(cli) => Form::of(cli.json).show(run(cli.command)),
        Err(wrong) => Form::of(args::ask_for_json(std::env::args_os())).show_usage(&wrong),
    }
}

fn run(command: Command) -> Answer {
    Ok(match command {
        Command::Plan(args) => Box::new(plan::run(&args)?),
        Command::Register(args) => Box::new(register::run(&args)?),
        Command::Bench(args) => bench::run(&args)?,
        Command::Sim(args) => sim::run(&args)?,
        Command::Topo(args) => topo::run(&args)?,
    })
}
