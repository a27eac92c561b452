//! Two endpoints of the caller's own making on one domain: what an application has before it meets Pinrail.

use std::ffi::c_void;
use std::ptr::null_mut;
use std::time::{Duration, Instant};

use pinrail_core::{Cause, MoveError};
use pinrail_libfabric::Handles;
use pinrail_libfabric::sys::bindgen as fi;

/// Two endpoints, the first of which reaches the second.
pub(crate) struct Ends {
    near: End,
    far: End,
    peer: fi::fi_addr_t,
    /// Where connected endpoints report.
    events: *mut fi::fid_eq,
    domain: *mut fi::fid_domain,
    /// True where local buffers have to be registered (FI_MR_LOCAL).
    local: bool,
}

struct End {
    ep: *mut fi::fid_ep,
    cq: *mut fi::fid_cq,
    av: *mut fi::fid_av,
}

/// What a transfer names at the far end.
#[derive(Clone, Copy)]
pub(crate) struct Remote {
    pub(crate) at: u64,
    pub(crate) key: u64,
}

/// A local buffer, which is the provider's until the endpoints are closed.
struct Local<'b> {
    bytes: &'b mut [u8],
    mr: *mut fi::fid_mr,
}

pub(crate) fn ok(api: &str, returned: i32) {
    assert_eq!(returned, 0, "{api}");
}

pub(crate) fn close(fid: *mut fi::fid) {
    if !fid.is_null() {
        // SAFETY: an open object of this module, closed once.
        ok("fi_close", unsafe { fi::fi_close(fid) });
    }
}

impl Ends {
    pub(crate) fn on(handles: Handles) -> Ends {
        let Handles { info, domain, .. } = handles;
        // SAFETY: the entry the domain was opened from.
        let entry = unsafe { info.as_ref() }.expect("an entry");
        // SAFETY: part of the entry.
        let msg = unsafe { (*entry.ep_attr).type_ } == fi::fi_ep_type_FI_EP_MSG;
        // SAFETY: part of the entry.
        let local = unsafe { (*entry.domain_attr).mr_mode }.cast_unsigned() & fi::FI_MR_LOCAL != 0;
        if msg {
            let (near, far, events) = connected(&handles);
            return Ends { near, far, peer: 0, events, domain, local };
        }
        let (near, far) = (End::unconnected(domain, info), End::unconnected(domain, info));
        let name = name_of(far.ep.cast());
        let mut peer = 0;
        // SAFETY: an address of the provider's own; valid for one result.
        let inserted = unsafe { fi::fi_av_insert(near.av, name.as_ptr().cast(), 1, &raw mut peer, 0, null_mut()) };
        assert_eq!(inserted, 1);
        Ends { near, far, peer, events: null_mut(), domain, local }
    }

    /// Writes to the far end's memory. Endpoints that have met a bad key are good for nothing more, and are closed.
    pub(crate) fn write(self, from: &[u8], to: Remote, wait: Duration) -> Result<Ends, MoveError> {
        let mut bytes = from.to_vec();
        let local = self.local(&mut bytes);
        let (ep, desc) = (self.near.ep, local.desc());
        let done = self.operate("fi_write", wait, || {
            let buffer = local.bytes.as_ptr().cast();
            // SAFETY: an enabled endpoint; the buffer is not touched until the endpoint is closed.
            unsafe { fi::fi_write(ep, buffer, from.len(), desc, self.peer, to.at, to.key, null_mut()) }
        });
        self.or_close(done, &local)
    }

    /// Reads likewise.
    pub(crate) fn read(self, into: &mut [u8], from: Remote, wait: Duration) -> Result<Ends, MoveError> {
        let mut bytes = into.to_vec();
        let local = self.local(&mut bytes);
        let (ep, desc, buffer) = (self.near.ep, local.desc(), local.bytes.as_mut_ptr().cast());
        let len = into.len();
        let done = self.operate("fi_read", wait, || {
            // SAFETY: an enabled endpoint; the buffer is not touched until the endpoint is closed.
            unsafe { fi::fi_read(ep, buffer, len, desc, self.peer, from.at, from.key, null_mut()) }
        });
        let ended = self.or_close(done, &local);
        into.copy_from_slice(&bytes);
        ended
    }

    fn or_close(self, done: Result<(), MoveError>, local: &Local<'_>) -> Result<Ends, MoveError> {
        let ended = done.map(|()| self);
        // If it failed, the endpoints are closed by now.
        local.close();
        ended
    }

    fn local<'b>(&self, bytes: &'b mut [u8]) -> Local<'b> {
        let mut mr = null_mut();
        if self.local {
            let access = u64::from(fi::FI_READ | fi::FI_WRITE);
            let buffer = bytes.as_ptr().cast();
            // SAFETY: an open domain and bytes that stay where they are until the registration is closed.
            let returned = unsafe { fi::fi_mr_reg(self.domain, buffer, bytes.len(), access, 0, 77, 0, &raw mut mr, null_mut()) };
            ok("fi_mr_reg", returned);
        }
        Local { bytes, mr }
    }

    #[allow(clippy::disallowed_methods, reason = "a test waits for so long and no longer, and leaves the core to others")]
    fn operate(&self, api: &'static str, wait: Duration, post: impl Fn() -> isize) -> Result<(), MoveError> {
        let started = Instant::now();
        let over = || {
            let waited_ms = u64::try_from(wait.as_millis()).unwrap_or(u64::MAX);
            let timeout = Err(MoveError::new(api, None, Cause::Timeout { waited_ms }));
            if started.elapsed() > wait { timeout } else { Ok(()) }
        };
        let refused = |errno: i32| MoveError::new(api, Some(errno), Cause::Other { what: "refused".to_owned() });
        loop {
            match i32::try_from(-post()).unwrap() {
                0 => break,
                libc::EAGAIN => assert_eq!(self.completion(), None),
                errno => return Err(refused(errno)),
            }
            over()?;
        }
        loop {
            match self.completion() {
                Some(0) => return Ok(()),
                Some(errno) => return Err(refused(errno)),
                None => over()?,
            }
            std::thread::sleep(Duration::from_micros(50));
        }
    }

    /// The errno of the operation that has ended, 0 for a success.
    fn completion(&self) -> Option<i32> {
        self.far.completion();
        self.near.completion()
    }
}

impl Drop for Ends {
    fn drop(&mut self) {
        self.near.close();
        self.far.close();
        close(self.events.cast());
    }
}

impl Local<'_> {
    fn desc(&self) -> *mut c_void {
        if self.mr.is_null() {
            return null_mut();
        }
        // SAFETY: open.
        unsafe { fi::fi_mr_desc(self.mr) }
    }

    fn close(&self) {
        close(self.mr.cast());
    }
}

fn name_of(fid: *mut fi::fid) -> Vec<u8> {
    let mut name = vec![0u8; 512];
    let mut len = name.len();
    // SAFETY: an open endpoint; the buffer has the room it says.
    ok("fi_getname", unsafe { fi::fi_getname(fid, name.as_mut_ptr().cast(), &raw mut len) });
    name.truncate(len);
    name
}

/// Two connected endpoints, and the queue they report to.
fn connected(handles: &Handles) -> (End, End, *mut fi::fid_eq) {
    let Handles { info, domain, fabric } = *handles;
    let fabric = fabric.expect("a fabric of ours");
    let mut attr = fi::fi_eq_attr { wait_obj: fi::fi_wait_obj_FI_WAIT_NONE, ..Default::default() };
    let (mut events, mut listener) = (null_mut(), null_mut());
    // SAFETY: an open fabric, valid attributes and results.
    ok("fi_eq_open", unsafe { fi::fi_eq_open(fabric, &raw mut attr, &raw mut events, null_mut()) });
    // SAFETY: an open fabric and its entry.
    ok("fi_passive_ep", unsafe { fi::fi_passive_ep(fabric, info.cast_mut(), &raw mut listener, null_mut()) });
    // SAFETY: objects of one fabric.
    ok("fi_pep_bind", unsafe { fi::fi_pep_bind(listener, events.cast(), 0) });
    // SAFETY: bound.
    ok("fi_listen", unsafe { fi::fi_listen(listener) });
    let name = name_of(listener.cast());
    let near = End::connecting(domain, info, events);
    // SAFETY: an enabled endpoint, an address of the provider's own.
    ok("fi_connect", unsafe { fi::fi_connect(near.ep, name.as_ptr().cast(), std::ptr::null(), 0) });
    let request = event(events, fi::FI_CONNREQ, &[&near]);
    let far = End::connecting(domain, request, events);
    // SAFETY: the request's entry is ours, and no longer needed.
    unsafe { fi::fi_freeinfo(request) };
    // SAFETY: an endpoint made for the request.
    ok("fi_accept", unsafe { fi::fi_accept(far.ep, std::ptr::null(), 0) });
    for _ in 0..2 {
        event(events, fi::FI_CONNECTED, &[&near, &far]);
    }
    close(listener.cast());
    (near, far, events)
}

/// Waits for an event of that kind.
#[allow(clippy::disallowed_methods, reason = "a test that waits leaves the core to others")]
fn event(events: *mut fi::fid_eq, wanted: u32, ends: &[&End]) -> *mut fi::fi_info {
    loop {
        let (mut kind, mut entry) = (0, fi::fi_eq_cm_entry::default());
        let size = size_of::<fi::fi_eq_cm_entry>();
        // SAFETY: an open queue; valid for one result of that size.
        let read = unsafe { fi::fi_eq_read(events, &raw mut kind, (&raw mut entry).cast(), size, 0) };
        match read {
            _ if read > 0 && kind == wanted => return entry.info,
            _ if read == -(libc::EAGAIN as isize) => assert!(ends.iter().all(|end| end.completion().is_none())),
            _ => panic!("event {kind} ({read}) in the place of {wanted}"),
        }
        std::thread::sleep(Duration::from_micros(50));
    }
}

impl End {
    fn unconnected(domain: *mut fi::fid_domain, info: *const fi::fi_info) -> End {
        let mut end = End::new(domain, info);
        let mut addresses = fi::fi_av_attr { type_: fi::fi_av_type_FI_AV_TABLE, count: 4, ..Default::default() };
        // SAFETY: an open domain, valid attributes and results.
        ok("fi_av_open", unsafe { fi::fi_av_open(domain, &raw mut addresses, &raw mut end.av, null_mut()) });
        // SAFETY: objects of one domain.
        ok("fi_ep_bind", unsafe { fi::fi_ep_bind(end.ep, end.av.cast(), 0) });
        // SAFETY: bound to all it needs.
        ok("fi_enable", unsafe { fi::fi_enable(end.ep) });
        end
    }

    fn connecting(domain: *mut fi::fid_domain, info: *const fi::fi_info, events: *mut fi::fid_eq) -> End {
        let end = End::new(domain, info);
        // SAFETY: objects of one fabric.
        ok("fi_ep_bind", unsafe { fi::fi_ep_bind(end.ep, events.cast(), 0) });
        // SAFETY: bound to all it needs.
        ok("fi_enable", unsafe { fi::fi_enable(end.ep) });
        end
    }

    fn new(domain: *mut fi::fid_domain, info: *const fi::fi_info) -> End {
        let mut end = End { ep: null_mut(), cq: null_mut(), av: null_mut() };
        let mut queue = fi::fi_cq_attr { size: 16, format: fi::fi_cq_format_FI_CQ_FORMAT_CONTEXT, ..Default::default() };
        // SAFETY: an open domain, valid attributes and results.
        ok("fi_cq_open", unsafe { fi::fi_cq_open(domain, &raw mut queue, &raw mut end.cq, null_mut()) });
        // SAFETY: an open domain and an entry of it.
        ok("fi_endpoint", unsafe { fi::fi_endpoint(domain, info.cast_mut(), &raw mut end.ep, null_mut()) });
        let both = u64::from(fi::FI_TRANSMIT | fi::FI_RECV);
        // SAFETY: objects of one domain.
        ok("fi_ep_bind", unsafe { fi::fi_ep_bind(end.ep, end.cq.cast(), both) });
        end
    }

    fn completion(&self) -> Option<i32> {
        let mut entry = fi::fi_cq_entry::default();
        // SAFETY: an open queue of this format, room for one entry.
        match unsafe { fi::fi_cq_read(self.cq, (&raw mut entry).cast(), 1) } {
            1 => Some(0),
            again if again == -(libc::EAGAIN as isize) => None,
            _ => {
                let mut error = fi::fi_cq_err_entry::default();
                // SAFETY: an open queue, a valid entry.
                unsafe { fi::fi_cq_readerr(self.cq, &raw mut error, 0) };
                Some(error.err)
            }
        }
    }

    /// The endpoint before what it is bound to.
    fn close(&self) {
        close(self.ep.cast());
        close(self.av.cast());
        close(self.cq.cast());
    }
}
