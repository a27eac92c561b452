use std::ffi::CString;
use std::ptr::{NonNull, null_mut};
use std::time::Duration;

use pinrail_core::{Access, Chunk, Memory, Mr, RailId, Registrar, Source};
use pinrail_libfabric::sys::bindgen as fi;
use pinrail_libfabric::{Borrowed, Handles, Libfabric};

use crate::ends::{Ends, Remote, close, ok};
use crate::pages::pages;

const WAIT: Duration = Duration::from_secs(20);
const UNCONNECTED: [&str; 4] = ["tcp;ofi_rxm", "shm", "sockets", "udp;ofi_rxd"];

/// A fabric and a domain that the test opened.
struct Opened {
    info: *mut fi::fi_info,
    fabric: *mut fi::fid_fabric,
    domain: *mut fi::fid_domain,
}

impl Opened {
    fn of(provider: &str) -> Opened {
        // SAFETY: no preconditions.
        let hints = unsafe { fi::fi_allocinfo() };
        // SAFETY: fresh and ours alone.
        let hints = unsafe { hints.as_mut() }.expect("memory for an entry");
        hints.caps = u64::from(fi::FI_RMA);
        // SAFETY: allocated with the entry.
        unsafe { (*hints.ep_attr).type_ = fi::fi_ep_type_FI_EP_RDM };
        let name = CString::new(provider).unwrap();
        // SAFETY: a NUL-terminated string; the copy is freed with the entry.
        let name = unsafe { libc::strdup(name.as_ptr()) };
        // SAFETY: as above.
        unsafe { (*hints.fabric_attr).prov_name = name };
        // SAFETY: as above.
        unsafe { (*hints.domain_attr).threading = fi::fi_threading_FI_THREAD_SAFE };
        let modes = fi::FI_MR_VIRT_ADDR | fi::FI_MR_PROV_KEY | fi::FI_MR_ALLOCATED | fi::FI_MR_LOCAL;
        // SAFETY: as above.
        unsafe { (*hints.domain_attr).mr_mode = modes.cast_signed() };
        // SAFETY: as above.
        unsafe { (*hints.tx_attr).op_flags = u64::from(fi::FI_DELIVERY_COMPLETE) };
        let mut opened = Opened { info: null_mut(), fabric: null_mut(), domain: null_mut() };
        let version = fi::FI_MAJOR_VERSION << 16 | fi::FI_MINOR_VERSION;
        let null = std::ptr::null();
        // SAFETY: a complete entry; valid for one result.
        ok("fi_getinfo", unsafe { fi::fi_getinfo(version, null, null, 0, hints, &raw mut opened.info) });
        // SAFETY: no longer used.
        unsafe { fi::fi_freeinfo(hints) };
        // SAFETY: an entry of the list.
        let attr = unsafe { (*opened.info).fabric_attr };
        // SAFETY: the entry's attributes; valid for one result.
        ok("fi_fabric", unsafe { fi::fi_fabric(attr, &raw mut opened.fabric, null_mut()) });
        // SAFETY: fabric and entry belong together; valid for one result.
        let returned = unsafe { fi::fi_domain(opened.fabric, opened.info, &raw mut opened.domain, null_mut()) };
        ok("fi_domain", returned);
        opened
    }

    fn handles(&self) -> Handles {
        Handles { info: self.info, domain: self.domain, fabric: Some(self.fabric) }
    }

    /// Closes the domain, which only succeeds when nobody has left anything on it, and the fabric.
    fn close(self) {
        close(self.domain.cast());
        close(self.fabric.cast());
        // SAFETY: no longer used.
        unsafe { fi::fi_freeinfo(self.info) };
    }
}

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
