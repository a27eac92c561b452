//! The command as its users meet it: the built binary, its output, its exit codes.

#![allow(clippy::unwrap_used, clippy::print_stderr, reason = "tests")]

mod arguments;
mod bench;
mod documents;
#[cfg(feature = "libfabric")]
mod libfabric;
mod limits;
mod plan;
mod plan_files;
mod register;
mod signals;
mod sim;
mod support;
mod topo;
#[cfg(feature = "verbs")]
mod verbs;
