//! pinrail-libfabric on libfabric's verbs providers, against RDMA devices. Where there is none, each test says that it is
//! skipped; `cargo xtask vm` runs them in a guest that has some, where a test that is skipped has failed.

#![allow(clippy::unwrap_used, reason = "helpers of tests fail as tests do")]

#[path = "../it/ends.rs"]
mod ends;
#[path = "../it/fixture.rs"]
mod fixture;
#[path = "../../src/tests/pages.rs"]
mod pages;

use std::fs;
use std::io::Write;
use std::path::PathBuf;
use std::sync::{Mutex, MutexGuard, Once, PoisonError};
use std::time::Duration;

use pinrail_conformance::{EXPECTED, Expected, run};
use pinrail_core::{Access, Chunk, MoveError, PinsCounted, RailId, RailState, Registrar, Source};
use pinrail_libfabric::{Libfabric, MrCache, Rails, Wanted};
use pinrail_memory::Memlock;

use crate::fixture::Provider;
use crate::pages::pages;

const RXM: &str = "verbs;ofi_rxm";

/// Devices with an address, and the process for oneself, as pins are the process's; or `None`, after saying so.
#[allow(clippy::disallowed_methods, reason = "how the command that made the guest says that this is it")]
fn devices() -> Option<(u16, MutexGuard<'static, ()>)> {
    static ALONE: Mutex<()> = Mutex::new(());
    static SETTINGS: Once = Once::new();
    let alone = ALONE.lock().unwrap_or_else(PoisonError::into_inner);
    SETTINGS.call_once(|| {
        // A queue of a soft-RoCE device has no room for the peers that rxm reckons with by itself.
        for (name, value) in [("FI_UNIVERSE_SIZE", "64"), ("FI_MR_CACHE_MONITOR", "disabled")] {
            // SAFETY: every test comes by here first, one after the other, so nobody reads the environment meanwhile.
            unsafe { std::env::set_var(name, value) };
        }
    });
    let devices = fs::read_dir("/sys/class/infiniband").into_iter().flatten().map(|device| device.unwrap().path());
    // libfabric looks for the address of a device among the interfaces, and passes the loop-back one over.
    let on_loopback = |device: &PathBuf| fs::read_to_string(device.join("parent")).is_ok_and(|name| name.trim() == "lo");
    let devices = devices.filter(|device| !on_loopback(device)).count();
    if devices == 0 {
        assert!(std::env::var_os("PINRAIL_GUEST_NODES").is_none(), "nothing may be skipped in the guest");
        std::io::stderr().write_all(b"SKIPPED: no RDMA device with an address\n").unwrap();
        return None;
    }
    Some((u16::try_from(devices).unwrap(), alone))
}

/// Registers a page and writes to it.
fn write(fabric: &Libfabric, rail: u16, bytes: &[u8]) -> Result<(), MoveError> {
    let memory = pages(1 << 12);
    let chunk = Chunk { memory: &memory, range: 10..4000, access: Access::FULL, source: &Source::Address };
    let mut mr = fabric.register(RailId(rail), &chunk).unwrap();
    let written = fabric.mover().unwrap().write(&mr, 1000, bytes, Duration::from_secs(30));
    fabric.deregister(&mut mr).unwrap();
    written?;
    let mut seen = vec![0; bytes.len()];
    memory.read_at(1010, &mut seen).unwrap();
    assert_eq!(seen, bytes);
    Ok(())
}

#[test]
#[allow(clippy::print_stdout, reason = "the table, for who asks for it with --nocapture")]
fn every_check_ends_as_the_table_says() {
    let Some((_, _alone)) = devices() else { return };
    // One rail is as good as all: they are of one kind. On an emulated machine a connection takes a good part of a second.
    let (wait, patience) = (Duration::from_secs(100), Duration::from_secs(10));
    let report = run(Provider { name: RXM, rails: 1, wait, patience }, Duration::from_secs(240));
    println!("{report}");
    let expected = Expected::column(EXPECTED, "libfabric:verbs;ofi_rxm").unwrap();
    report.against(&expected).unwrap_or_else(|unexpected| panic!("{unexpected}"));
}

#[test]
fn a_registration_pins_its_pages_until_it_is_ended() {
    let Some((_, _alone)) = devices() else { return };
    let fabric = Libfabric::open(RXM, 1).unwrap();
    assert_eq!(fabric.mr_cache(RailId(0)), Some(MrCache::Off), "or pins would stay");
    assert_eq!(fabric.rails()[0].pins, PinsCounted::Process);
    let memory = pages(64 << 12);
    let chunk = Chunk { memory: &memory, range: 100..(64 << 12) - 100, access: Access::FULL, source: &Source::Address };
    let before = Memlock::read().unwrap().pinned_bytes;
    let mut mr = fabric.register(RailId(0), &chunk).unwrap();
    assert_eq!(Memlock::read().unwrap().pinned_bytes, before + (64 << 12));
    fabric.deregister(&mut mr).unwrap();
    assert_eq!(Memlock::read().unwrap().pinned_bytes, before);
}

#[test]
fn rails_are_devices_in_their_places() {
    let Some((count, _alone)) = devices() else { return };
    let fabric = Libfabric::open(RXM, count).unwrap();
    for rail in fabric.rails() {
        assert!(fs::exists(format!("/sys/class/infiniband/{}", rail.name)).unwrap(), "{}", rail.name);
        assert_ne!(rail.state, RailState::Down);
        let node = rail.pci.map(|pci| fs::read_to_string(format!("/sys/bus/pci/devices/{pci}/numa_node")).unwrap());
        assert_eq!(rail.node.map(|node| node.0), node.and_then(|node| node.trim().parse().ok()));
    }
    // The last one alone, by its name and by its place.
    let last = fabric.rails().last().unwrap().clone();
    let wanted = [last.clone()];
    let wanted = Wanted { provider: RXM, rails: Rails::Named(&wanted), device_memory: false };
    assert_eq!(Libfabric::open_all(&[wanted]).unwrap().rails(), std::slice::from_ref(&last));
    let error = Libfabric::open(RXM, count + 1).unwrap_err();
    assert!(error.to_string().contains(&format!("{} rails", count + 1)), "{error}");
    assert!(fabric.notes().iter().all(|note| note.contains("ibv_query_device")), "{:?}", fabric.notes());
}

#[test]
fn every_rail_reaches_its_registrations() {
    let Some((rails, _alone)) = devices() else { return };
    let fabric = Libfabric::open(RXM, rails).unwrap();
    for rail in 0..rails {
        write(&fabric, rail, b"by this rail").unwrap();
    }
}

#[test]
fn connected_endpoints_move_bytes_too() {
    let Some((rails, _alone)) = devices() else { return };
    let fabric = Libfabric::open("verbs", rails).unwrap();
    for rail in 0..rails {
        write(&fabric, rail, b"connected").unwrap();
    }
}
