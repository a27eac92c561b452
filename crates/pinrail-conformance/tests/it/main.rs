//! The proofs against the running kernel, and against registrars that are wrong on purpose.

#![allow(clippy::unwrap_used, reason = "tests")]

mod fake;
mod suite;
mod support;
mod verify;
