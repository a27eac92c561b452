//! pinrail-verbs against RDMA devices. Where there is none, each test says that it is skipped; `cargo xtask vm` runs them
//! in a guest that has some, where a test that is skipped has failed.

#![allow(clippy::unwrap_used, reason = "tests")]

mod bytes;
mod callers_pd;
mod causes;
mod conformance;
mod fork;
mod limits;
mod peer;
mod pins;
mod places;
mod support;
