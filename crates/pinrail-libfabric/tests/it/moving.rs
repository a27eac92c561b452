use std::collections::BTreeSet;
use std::time::Duration;

use pinrail_core::{Access, Cause, Chunk, ErrorKind, Memory, PinsCounted, Rail, RailId, Registrar, Source};
use pinrail_libfabric::{Libfabric, OpenError, Rails, Wanted};

use crate::pages::pages;

const WAIT: Duration = Duration::from_secs(20);
const PROVIDERS: [&str; 5] = ["tcp", "tcp;ofi_rxm", "shm", "sockets", "udp;ofi_rxd"];

fn chunk(memory: &Memory, range: std::ops::Range<u64>) -> Chunk<'_> {
    Chunk { memory, range, access: Access::FULL, source: &Source::Address }
}

#[test]
fn bytes_arrive_at_both_ends_of_a_registration_on_every_provider() {
    for provider in PROVIDERS {
        let fabric = Libfabric::open(provider, 2).unwrap();
        assert_eq!(fabric.identity().provider, provider);
        let memory = pages(1 << 20);
        // Neither end on a page: offsets within the registration differ from those within the memory.
        let (start, end) = (1000, (1 << 20) - 77);
        for rail in [RailId(0), RailId(1)] {
            let mut mr = fabric.register(rail, &chunk(&memory, start..end)).unwrap();
            let mover = fabric.mover().unwrap();
            let last = mr.extent().len() - 5;
            for (at, text) in [(0, b"first"), (last, b"last.")] {
                mover.write(&mr, at, text, WAIT).unwrap_or_else(|e| panic!("{provider}: {e}"));
                let mut seen = [0; 5];
                memory.read_at(start + at, &mut seen).unwrap();
                assert_eq!(&seen, text, "{provider} {rail} at {at}");
            }
            // More than one piece, and what lies around it stays as it was.
            let long: Vec<u8> = (0..300_000u32).map(|n| (n % 251) as u8).collect();
            memory.write_at(start + 10_000, &long).unwrap();
            let mut seen = vec![0; long.len()];
            mover.read(&mr, 10_000, &mut seen, WAIT).unwrap();
            assert!(seen == long, "{provider}");
            let mut first = [0; 5];
            mover.read(&mr, 0, &mut first, WAIT).unwrap();
            assert_eq!(&first, b"first");
            let mut before = [1; 8];
            memory.read_at(start - 8, &mut before).unwrap();
            assert_eq!(before, [0; 8], "{provider}: nothing is written outside the registration");
            fabric.deregister(&mut mr).unwrap();
            assert!(!mr.is_live());
            assert_eq!(mover.read(&mr, 0, &mut first, WAIT).unwrap_err().cause, Cause::NotOurs);
        }
    }
}

#[test]
fn a_transfer_may_not_leave_its_registration() {
    let fabric = Libfabric::open("shm", 1).unwrap();
    let memory = pages(8192);
    let mut mr = fabric.register(RailId(0), &chunk(&memory, 0..4096)).unwrap();
    let mover = fabric.mover().unwrap();
    for (at, len) in [(4095, 2), (4097, 0), (u64::MAX, 1)] {
        let error = mover.write(&mr, at, &vec![0; len], WAIT).unwrap_err();
        assert!(error.to_string().contains("outside the registration"), "{error}");
    }
    fabric.deregister(&mut mr).unwrap();
}

#[test]
fn live_keys_are_unique_on_a_domain_and_say_nothing_of_the_memory() {
    for provider in PROVIDERS {
        let fabric = Libfabric::open(provider, 1).unwrap();
        let memory = pages(64 * 4096);
        let mut live: Vec<_> =
            (0..64).map(|at| fabric.register(RailId(0), &chunk(&memory, at * 4096..(at + 1) * 4096)).unwrap()).collect();
        let keys: BTreeSet<_> = live.iter().map(|mr| mr.keys().remote.clone()).collect();
        assert_eq!(keys.len(), live.len(), "{provider}");
        for mr in &mut live {
            fabric.deregister(mr).unwrap();
        }
    }
}

#[test]
fn what_cannot_be_registered_is_refused_before_the_call() {
    let fabric = Libfabric::open("tcp", 1).unwrap();
    let (memory, imagined) = (pages(4096), Memory::imagined(0x1000, 4096).unwrap());
    for (refused, kind) in [
        (chunk(&memory, 5..5), ErrorKind::ZeroLength),
        (chunk(&memory, 0..4097), ErrorKind::Batch),
        (chunk(&imagined, 0..4096), ErrorKind::NotSupported),
    ] {
        let error = fabric.register(RailId(0), &refused).unwrap_err();
        assert_eq!((error.errno, error.cause.kind()), (None, kind), "{error}");
    }
    let error = fabric.register(RailId(1), &chunk(&memory, 0..4096)).unwrap_err();
    assert!(error.to_string().contains("rail 1"), "{error}");
}

#[test]
fn an_mr_belongs_to_the_registrar_that_made_it() {
    let (ours, theirs) = (Libfabric::open("tcp", 1).unwrap(), Libfabric::open("tcp", 1).unwrap());
    let memory = pages(4096);
    let mut mr = ours.register(RailId(0), &chunk(&memory, 0..4096)).unwrap();
    assert_eq!(theirs.deregister(&mut mr).unwrap_err().cause, Cause::NotOurs);
    assert!(mr.is_live());
    ours.deregister(&mut mr).unwrap();
    assert_eq!(ours.deregister(&mut mr).unwrap_err().cause, Cause::NotOurs);
}

#[test]
fn a_leaked_mr_outlives_its_registrar_and_keeps_the_domain() {
    let fabric = Libfabric::open("tcp", 1).unwrap();
    let memory = pages(4096);
    let mr = fabric.register(RailId(0), &chunk(&memory, 0..4096)).unwrap();
    drop(fabric);
    assert!(mr.is_live());
    drop(mr);
    // Leaked with its memory, as the contract says.
    memory.write_at(0, b"still mapped").unwrap();
}

#[test]
fn several_providers_and_named_rails_make_one_registrar() {
    let named = [Rail::named("lo"), Rail::named("left"), Rail::named("left")];
    let wanted = |provider, rails| Wanted { provider, rails, device_memory: false };
    let wanted = [wanted("sockets", Rails::Named(&named)), wanted("shm", Rails::Count(1))];
    let fabric = Libfabric::open_all(&wanted).unwrap();
    let names: Vec<&str> = fabric.rails().iter().map(|rail| rail.name.as_str()).collect();
    assert_eq!(names, ["lo", "left", "left.1", "shm"]);
    assert_eq!(fabric.identity().provider, "sockets,shm");
    assert_eq!(fabric.rails()[0].limits.max_mrs, Some(65_535), "what sockets says of itself");
    let memory = pages(4096);
    for rail in (0..4).map(RailId) {
        let mut mr = fabric.register(rail, &chunk(&memory, 0..4096)).unwrap();
        fabric.mover().unwrap().write(&mr, 10, b"here", WAIT).unwrap();
        fabric.deregister(&mut mr).unwrap();
    }
    let error = Libfabric::open("shm", 5000).unwrap_err();
    assert!(matches!(error, OpenError::TooManyRails { rails: 5000, .. }), "{error}");
}

#[test]
fn transfers_of_eight_threads_on_one_rail_do_not_mix() {
    for provider in ["tcp", "shm", "sockets"] {
        let fabric = Libfabric::open(provider, 1).unwrap();
        let memory = pages(8 << 16);
        std::thread::scope(|scope| {
            for at in 0..8u64 {
                let (fabric, memory) = (&fabric, &memory);
                scope.spawn(move || {
                    let mut mr = fabric.register(RailId(0), &chunk(memory, at << 16..(at + 1) << 16)).unwrap();
                    let pattern = vec![u8::try_from(at).unwrap() + 1; 1 << 16];
                    for _ in 0..5 {
                        fabric.mover().unwrap().write(&mr, 0, &pattern, WAIT).unwrap();
                    }
                    let mut seen = vec![0; 1 << 16];
                    memory.read_at(at << 16, &mut seen).unwrap();
                    assert!(seen == pattern, "{provider}");
                    fabric.deregister(&mut mr).unwrap();
                });
            }
        });
    }
}

#[test]
fn software_providers_pin_nothing_and_say_so() {
    for provider in PROVIDERS {
        let fabric = Libfabric::open(provider, 2).unwrap();
        assert!(fabric.rails().iter().all(|rail| rail.pins == PinsCounted::Nothing), "{provider}");
        let names: BTreeSet<_> = fabric.rails().iter().map(|rail| rail.name.clone()).collect();
        assert_eq!(names.len(), 2, "{provider}");
    }
}
