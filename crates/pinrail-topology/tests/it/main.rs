//! Topologies of real machines, files of every kind, and limits on time.

#![allow(clippy::unwrap_used, reason = "a test fails where something is missing")]

mod formats;
mod golden;
mod speed;

use std::io::Write as _;
use std::path::PathBuf;

/// A file of `../shared/topologies`, which lie beside the project and are no part of it. Where it is absent the test that
/// asked for it proves nothing, and says so past libtest's capture.
fn shared(file: &str) -> Option<PathBuf> {
    let path = PathBuf::from(env!("CARGO_MANIFEST_DIR")).join("../../../shared/topologies").join(file);
    if !path.exists() {
        writeln!(std::io::stderr(), "SKIPPED, nothing proved: no ../shared/topologies/{file}").expect("stderr");
        return None;
    }
    Some(path)
}
