use std::ptr::NonNull;
use std::time::Duration;

use pinrail_core::{Access, Chunk, Memory, Mr, RailId, Registrar, Source};
use pinrail_libfabric::{Borrowed, Handles, Libfabric};

use crate::ends::{Ends, Opened, Remote};
use crate::pages::pages;

const WAIT: Duration = Duration::from_secs(20);
const UNCONNECTED: [&str; 4] = ["tcp;ofi_rxm", "shm", "sockets", "udp;ofi_rxd"];

fn register(fabric: &Libfabric, memory: &Memory) -> Mr {
    let chunk = Chunk { memory, range: 4000..60_000, access: Access::FULL, source: &Source::Address };
    fabric.register(RailId(0), &chunk).unwrap()
}

/// Bytes through the caller's endpoints, by the key that Pinrail's registration gave.
fn reaches(handles: Handles, mr: &Mr, memory: &Memory, provider: &str) {
    let key = u64::from_ne_bytes(mr.keys().remote.as_slice().try_into().unwrap());
    let remote = Remote { at: Libfabric::remote_base(mr).unwrap() + 50_000, key };
    Ends::on(handles).write(b"by the caller", remote, WAIT).unwrap_or_else(|e| panic!("{provider}: {e}"));
    let mut seen = [0; 13];
    memory.read_at(54_000, &mut seen).unwrap();
    assert_eq!(&seen, b"by the caller", "{provider}");
}

#[test]
fn a_domain_that_the_caller_opened_is_registered_on_and_left_open() {
    for provider in UNCONNECTED {
        let opened = Opened::of(provider);
        let borrowed = Borrowed {
            name: "mine".to_owned(),
            info: opened.info,
            domain: NonNull::new(opened.domain).unwrap(),
            endpoint: None,
            keys: Some(500..=600),
        };
        // SAFETY: entry and domain are open until after the registrar and its MRs are gone.
        let fabric = unsafe { Libfabric::borrow(&[borrowed]) }.unwrap();
        assert_eq!(fabric.rails()[0].name, "mine");
        assert_eq!(fabric.identity().provider, provider);
        let memory = pages(1 << 16);
        let mut mr = register(&fabric, &memory);
        reaches(opened.handles(), &mr, &memory, provider);
        fabric.deregister(&mut mr).unwrap();
        drop((fabric, mr));
        opened.close();
    }
}

#[test]
fn endpoints_are_made_on_a_domain_that_pinrail_opened() {
    for provider in UNCONNECTED.into_iter().chain(["tcp"]) {
        let fabric = Libfabric::open(provider, 1).unwrap();
        let memory = pages(1 << 16);
        let mut mr = register(&fabric, &memory);
        reaches(fabric.handles(RailId(0)).unwrap(), &mr, &memory, provider);
        fabric.deregister(&mut mr).unwrap();
    }
    assert!(Libfabric::open("tcp", 1).unwrap().handles(RailId(1)).is_none());
}
