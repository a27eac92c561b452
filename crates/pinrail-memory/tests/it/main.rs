//! The states that memory can be in, each made for real: what is said about it and what is done to it.
//!
//! What a machine does not allow (huge pages without root, a second user) is skipped, loudly.

#![allow(clippy::unwrap_used, clippy::print_stderr, reason = "tests")]
#![deny(unsafe_code)]

mod causes;
mod child;
mod mappings;
mod memlock;
mod pool;
mod populate;
#[allow(unsafe_code, reason = "mappings that the crate itself would never make")]
mod raw;
mod residency;

/// Says why a test proves nothing here.
fn skip(why: &str) {
    eprintln!("SKIPPED: {why}");
}
