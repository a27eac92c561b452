//! Registration and transfer on the providers that any machine has.

#![allow(clippy::unwrap_used, reason = "helpers of tests fail as tests do")]

mod caller;
mod conformance;
mod ends;
mod fixture;
mod moving;
#[path = "../../src/tests/pages.rs"]
mod pages;
