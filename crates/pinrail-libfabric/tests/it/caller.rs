use std::ptr::NonNull;
use std::time::Duration;

use pinrail_core::{Access, Chunk, Memory, Mr, RailId, Registrar, Source};
use pinrail_libfabric::{Borrowed, Libfabric};

use crate::ends::{Ended, Ends, Opened};
use crate::pages::pages;

const WAIT: Duration = Duration::from_secs(20);
const PROVIDERS: [&str; 4] = ["tcp;ofi_rxm", "shm", "sockets", "udp;ofi_rxd"];

fn register(fabric: &Libfabric, memory: &Memory) -> Mr {
    let chunk = Chunk { memory, range: 4000..60_000, access: Access::FULL, source: &Source::Address };
    fabric.register(RailId(0), &chunk).unwrap()
}

fn key(mr: &Mr) -> u64 {
    u64::from_ne_bytes(mr.keys().remote.as_slice().try_into().unwrap())
}

/// Bytes through the caller's endpoints, by the key that Pinrail's registration gave.
fn reaches(ends: &Ends, fabric: &Libfabric, mr: &Mr, memory: &Memory, provider: &str) {
    let at = fabric.remote_base(mr).unwrap() + 50_000;
    assert_eq!(ends.write(b"by the caller", at, key(mr), WAIT), Ended::Completed, "{provider}");
    let mut seen = [0; 13];
    memory.read_at(54_000, &mut seen).unwrap();
    assert_eq!(&seen, b"by the caller", "{provider}");
}

#[test]
fn a_domain_that_the_caller_opened_is_registered_on_and_left_open() {
    for provider in PROVIDERS {
        let opened = Opened::of(provider);
        let ends = Ends::on(opened.domain, opened.info);
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
        reaches(&ends, &fabric, &mr, &memory, provider);
        fabric.deregister(&mut mr).unwrap();
        drop((fabric, mr));
        ends.close();
        assert_eq!(opened.close_domain(), 0, "{provider}: the registrar neither closed it nor left anything on it");
        opened.close_fabric();
    }
}

#[test]
fn endpoints_are_made_on_a_domain_that_pinrail_opened() {
    for provider in PROVIDERS {
        let fabric = Libfabric::open(provider, 1).unwrap();
        let handles = fabric.handles(RailId(0)).unwrap();
        let ends = Ends::on(handles.domain, handles.info);
        let memory = pages(1 << 16);
        let mut mr = register(&fabric, &memory);
        reaches(&ends, &fabric, &mr, &memory, provider);
        fabric.deregister(&mut mr).unwrap();
        ends.close();
    }
    assert!(Libfabric::open("tcp", 1).unwrap().handles(RailId(1)).is_none());
}
