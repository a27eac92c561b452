//! pinrail-uring against the running kernel.

#![allow(clippy::unwrap_used, reason = "tests")]

mod bytes;
mod callers_ring;
mod causes;
mod conformance;
mod limits;
mod overlap;
mod pins;
mod seccomp;
mod support;
