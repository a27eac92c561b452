//! Two endpoints of the caller's own making on one domain: what an application has before it meets Pinrail.

use std::ffi::{CString, c_void};
use std::time::{Duration, Instant};

use pinrail_libfabric::sys::bindgen as fi;

/// A fabric and a domain that the test opened.
pub(crate) struct Opened {
    pub(crate) info: *mut fi::fi_info,
    pub(crate) fabric: *mut fi::fid_fabric,
    pub(crate) domain: *mut fi::fid_domain,
}

/// Two endpoints, the first of which can reach the second.
pub(crate) struct Ends {
    near: End,
    far: End,
    peer: fi::fi_addr_t,
}

struct End {
    ep: *mut fi::fid_ep,
    cq: *mut fi::fid_cq,
    av: *mut fi::fid_av,
}

/// How a transfer ended.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub(crate) enum Ended {
    Completed,
    Refused(i32),
    Never,
}

fn ok(api: &str, returned: i32) {
    assert_eq!(returned, 0, "{api}");
}

impl Opened {
    pub(crate) fn of(provider: &str) -> Opened {
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
        // SAFETY: as above.
        unsafe { (*hints.domain_attr).mr_mode = (fi::FI_MR_VIRT_ADDR | fi::FI_MR_PROV_KEY | fi::FI_MR_LOCAL).cast_signed() };
        // SAFETY: as above.
        unsafe { (*hints.tx_attr).op_flags = u64::from(fi::FI_DELIVERY_COMPLETE) };
        let mut opened = Opened { info: std::ptr::null_mut(), fabric: std::ptr::null_mut(), domain: std::ptr::null_mut() };
        let version = fi::FI_MAJOR_VERSION << 16 | fi::FI_MINOR_VERSION;
        let null = std::ptr::null();
        // SAFETY: a complete entry; valid for one result.
        ok("fi_getinfo", unsafe { fi::fi_getinfo(version, null, null, 0, hints, &raw mut opened.info) });
        // SAFETY: no longer used.
        unsafe { fi::fi_freeinfo(hints) };
        // SAFETY: an entry of the list.
        let attr = unsafe { (*opened.info).fabric_attr };
        // SAFETY: the entry's attributes; valid for one result.
        ok("fi_fabric", unsafe { fi::fi_fabric(attr, &raw mut opened.fabric, std::ptr::null_mut()) });
        // SAFETY: fabric and entry belong together; valid for one result.
        let returned = unsafe { fi::fi_domain(opened.fabric, opened.info, &raw mut opened.domain, std::ptr::null_mut()) };
        ok("fi_domain", returned);
        opened
    }

    /// Closes the domain; what `fi_close` says.
    pub(crate) fn close_domain(&self) -> i32 {
        // SAFETY: open, and nobody uses it any more if this succeeds.
        unsafe { fi::fi_close(self.domain.cast()) }
    }

    /// After the domain.
    pub(crate) fn close_fabric(self) {
        // SAFETY: open, closed once.
        ok("fi_close", unsafe { fi::fi_close(self.fabric.cast()) });
        // SAFETY: no longer used.
        unsafe { fi::fi_freeinfo(self.info) };
    }
}

impl Ends {
    pub(crate) fn on(domain: *mut fi::fid_domain, info: *const fi::fi_info) -> Ends {
        let (near, far) = (End::on(domain, info), End::on(domain, info));
        let mut name = [0u8; 512];
        let mut len = name.len();
        // SAFETY: an enabled endpoint; the buffer has the room it says.
        ok("fi_getname", unsafe { fi::fi_getname(far.ep.cast(), name.as_mut_ptr().cast(), &raw mut len) });
        let mut peer = 0;
        // SAFETY: an address of the provider's own; valid for one result.
        let inserted = unsafe { fi::fi_av_insert(near.av, name.as_ptr().cast(), 1, &raw mut peer, 0, std::ptr::null_mut()) };
        assert_eq!(inserted, 1);
        Ends { near, far, peer }
    }

    /// Writes `bytes` to the far end's memory: `at` and `key` are the remote ones.
    #[allow(clippy::disallowed_methods, reason = "a test waits for so long and no longer")]
    pub(crate) fn write(&self, bytes: &'static [u8], at: u64, key: u64, wait: Duration) -> Ended {
        let started = Instant::now();
        let (ep, context) = (self.near.ep, std::ptr::null_mut::<c_void>());
        loop {
            // SAFETY: an enabled endpoint; the bytes are static, so that they outlive an operation that never ends.
            let posted = unsafe {
                fi::fi_write(ep, bytes.as_ptr().cast(), bytes.len(), context, self.peer, at, key, std::ptr::null_mut())
            };
            match posted {
                0 => break,
                again if again == -(libc::EAGAIN as isize) => self.progress(),
                refused => return Ended::Refused(i32::try_from(-refused).unwrap()),
            };
            if started.elapsed() > wait {
                return Ended::Never;
            }
        }
        loop {
            if let Some(ended) = self.progress() {
                return ended;
            }
            if started.elapsed() > wait {
                return Ended::Never;
            }
            std::thread::yield_now();
        }
    }

    fn progress(&self) -> Option<Ended> {
        self.far.completion();
        self.near.completion()
    }

    pub(crate) fn close(self) {
        self.near.close();
        self.far.close();
    }
}

impl End {
    fn on(domain: *mut fi::fid_domain, info: *const fi::fi_info) -> End {
        let null = std::ptr::null_mut::<c_void>();
        let mut end = End { ep: null.cast(), cq: null.cast(), av: null.cast() };
        let mut queue = fi::fi_cq_attr { size: 16, format: fi::fi_cq_format_FI_CQ_FORMAT_CONTEXT, ..Default::default() };
        // SAFETY: an open domain, valid attributes and results.
        ok("fi_cq_open", unsafe { fi::fi_cq_open(domain, &raw mut queue, &raw mut end.cq, null) });
        let mut addresses = fi::fi_av_attr { type_: fi::fi_av_type_FI_AV_TABLE, count: 4, ..Default::default() };
        // SAFETY: as above.
        ok("fi_av_open", unsafe { fi::fi_av_open(domain, &raw mut addresses, &raw mut end.av, null) });
        // SAFETY: an open domain and the entry it was opened from.
        ok("fi_endpoint", unsafe { fi::fi_endpoint(domain, info.cast_mut(), &raw mut end.ep, null) });
        let both = u64::from(fi::FI_TRANSMIT | fi::FI_RECV);
        // SAFETY: objects of one domain.
        ok("fi_ep_bind", unsafe { fi::fi_ep_bind(end.ep, end.cq.cast(), both) });
        // SAFETY: as above.
        ok("fi_ep_bind", unsafe { fi::fi_ep_bind(end.ep, end.av.cast(), 0) });
        // SAFETY: bound to all it needs.
        ok("fi_enable", unsafe { fi::fi_enable(end.ep) });
        end
    }

    fn completion(&self) -> Option<Ended> {
        let mut entry = fi::fi_cq_entry::default();
        // SAFETY: an open queue of this format, room for one entry.
        match unsafe { fi::fi_cq_read(self.cq, (&raw mut entry).cast(), 1) } {
            1 => Some(Ended::Completed),
            again if again == -(libc::EAGAIN as isize) => None,
            _ => {
                let mut error = fi::fi_cq_err_entry::default();
                // SAFETY: an open queue, a valid entry.
                unsafe { fi::fi_cq_readerr(self.cq, &raw mut error, 0) };
                Some(Ended::Refused(error.err))
            }
        }
    }

    fn close(self) {
        for object in [self.ep.cast::<fi::fid>(), self.av.cast(), self.cq.cast()] {
            // SAFETY: open, closed once, the endpoint before what it is bound to.
            ok("fi_close", unsafe { fi::fi_close(object) });
        }
    }
}
