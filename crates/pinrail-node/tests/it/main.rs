//! Processes of a node, each a real one: what they share, what they refuse to share, and what is left when one is killed.
//!
//! What a machine does not allow (a /dev/shm in memory, root, namespaces) is skipped, loudly.

#![forbid(unsafe_code)]
#![allow(clippy::unwrap_used, clippy::print_stderr, clippy::disallowed_methods, reason = "tests, which wait and measure")]

mod child;
mod files;
mod killed;
mod node;
mod peers;
mod stress;
mod tokens;

/// Says why a test proves nothing here.
fn skip(why: &str) {
    eprintln!("SKIPPED: {why}");
}
