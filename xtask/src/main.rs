//! The project's own commands, run as `cargo xtask COMMAND`.
//!
//! # Decisions
//!
//! - **Programs, not a shell script.** What installs packages and judges a tree is worth types and unit tests.
//! - **No crate of ours is a dependency**, so that the commands build in seconds and still run while the rest does not.
//! - **A step is a command line.** `cargo xtask test` prints each one as it can be pasted, and does nothing a person
//!   could not do by hand; [`tidy`] is the only step with logic of its own.
//!
//! # Not here
//!
//! No measuring: `cargo xtask bench` only chooses the arguments of `pinrail bench`. No test of the product: those lie
//! in the crates.

#![forbid(unsafe_code)]
#![allow(clippy::print_stdout, clippy::print_stderr, reason = "a command line speaks to its user")]

mod bench;
mod calibrate;
mod clock;
mod command;
mod deep;
mod fidelity;
mod guards;
mod install;
mod sim;
mod steps;
mod test;
mod tidy;
mod vm;
mod workspace;

use std::process::ExitCode;

use workspace::Workspace;

/// Why a command could not go on, in one line for its user.
type Result<T> = std::result::Result<T, String>;

const USAGE: &str = "\
usage: cargo xtask COMMAND

  bench [-- ARGS]      builds the release and compares every policy on real pinned pages; an option in ARGS goes to
                       `pinrail bench` and replaces the default of its name
  calibrate            measures this machine with `pinrail bench` and writes the simulator's profile `uring`
  deep [STEP[=N]]…     runs the checks that take long, all or those named: loom asan miri tsan soak guards fuzz=MINUTES
                       mutants
  fidelity             writes the simulator's table of published figures into docs/SIMULATION.md
  guards               takes ten guards against reported faults away, one at a time, and shows each one's test failing
  sim --seeds N [--from SEED]
                       runs the engine in virtual time, N worlds of things that go wrong, on all cores
  test [--no-install]  runs all that CI runs, after installing what is missing and saying what
  tidy                 checks the rules of the tree that no compiler knows
  vm [--rails N] [--no-install] [-- COMMAND]
                       boots a kernel with N soft-RoCE devices, installing what that takes, and runs COMMAND there; without
                       one, the tests that need RDMA devices, on one rail and on four (on N only, if given)
";

fn main() -> ExitCode {
    let arguments: Vec<String> = std::env::args().skip(1).collect();
    let arguments: Vec<&str> = arguments.iter().map(String::as_str).collect();
    let done = match arguments.as_slice() {
        ["bench"] => Workspace::load().and_then(|workspace| bench::run(&workspace, &[])),
        ["bench", "--", given @ ..] => Workspace::load().and_then(|workspace| bench::run(&workspace, given)),
        ["calibrate"] => Workspace::load().and_then(|workspace| calibrate::run(&workspace)),
        ["deep", named @ ..] => Workspace::load().and_then(|workspace| deep::run(&workspace, named)),
        ["fidelity"] => Workspace::load().and_then(|workspace| fidelity::run(&workspace)),
        ["guards"] => Workspace::load().and_then(|workspace| guards::run(&workspace)),
        ["sim", given @ ..] => match sim::Asked::parse(given) {
            Some(asked) => Workspace::load().and_then(|workspace| sim::run(&workspace, &asked)),
            None => return misused(),
        },
        ["test"] => Workspace::load().and_then(|workspace| test::run(&workspace, true)),
        ["test", "--no-install"] => Workspace::load().and_then(|workspace| test::run(&workspace, false)),
        ["tidy"] => Workspace::load().and_then(|workspace| tidy::run(&workspace)),
        ["vm", given @ ..] => match vm::Asked::parse(given) {
            Some(asked) => Workspace::load().and_then(|workspace| vm::run(&workspace, &asked)),
            None => return misused(),
        },
        ["help" | "--help" | "-h"] => {
            print!("{USAGE}");
            return ExitCode::SUCCESS;
        }
        _ => return misused(),
    };
    match done {
        Ok(code) => code,
        Err(why) => {
            eprintln!("error: {why}");
            ExitCode::FAILURE
        }
    }
}

fn misused() -> ExitCode {
    eprint!("{USAGE}");
    ExitCode::from(2)
}
