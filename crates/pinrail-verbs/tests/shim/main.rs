//! pinrail-verbs on a libibverbs of the test's own, which answers what no device at hand would: see [`library`].

#![allow(clippy::unwrap_used, reason = "tests")]

mod library;
mod moving;
mod opening;
mod registering;
