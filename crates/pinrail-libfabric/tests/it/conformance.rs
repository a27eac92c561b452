//! The suite for any registrar, on the providers that any machine has.

use std::time::Duration;

use pinrail_conformance::{EXPECTED, Expected, run};
use pinrail_core::Registrar;
use pinrail_libfabric::Libfabric;

use crate::fixture::Provider;

const LIMIT: Duration = Duration::from_secs(240);

#[allow(clippy::print_stdout, reason = "the table, for who asks for it with --nocapture")]
fn every_check_ends_as_the_table_says(name: &'static str) {
    let mut expected = Expected::column(EXPECTED, &format!("libfabric:{name}")).unwrap();
    if name == "tcp" && Libfabric::open(name, 1).unwrap().identity().library.starts_with("libfabric 1.") {
        for check in ["wrong-key-write", "stale-key-write", "out-of-range-write"] {
            expected = expected.with(check, "completes");
        }
    }
    // Two providers never answer a transfer by a bad key; on a busy machine the others may take their time.
    let never = ["shm", "udp;ofi_rxd"].contains(&name);
    let (wait, patience) = (Duration::from_secs(60), Duration::from_millis(if never { 500 } else { 20_000 }));
    let report = run(Provider { name, rails: 2, wait, patience }, LIMIT);
    println!("{name}\n{report}");
    report.against(&expected).unwrap_or_else(|unexpected| panic!("{name}: {unexpected}"));
}

#[test]
fn tcp() {
    every_check_ends_as_the_table_says("tcp");
}

#[test]
fn tcp_over_rxm() {
    every_check_ends_as_the_table_says("tcp;ofi_rxm");
}

#[test]
fn shm() {
    every_check_ends_as_the_table_says("shm");
}

#[test]
fn sockets() {
    every_check_ends_as_the_table_says("sockets");
}

#[test]
fn udp_over_rxd() {
    every_check_ends_as_the_table_says("udp;ofi_rxd");
}
