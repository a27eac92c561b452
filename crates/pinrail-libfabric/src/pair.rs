//! Two endpoints of one domain that move bytes through its registrations: what a peer would do, on one machine.

use std::ffi::c_void;
use std::ptr::NonNull;

use libfabric_sys::bindgen as fi;
use pinrail_core::{Cause, MoveError};

use crate::deadline::Deadline;
use crate::domain::Domain;
use crate::ffi::{Failed, Owned, check, check_count};
use crate::info::{EndpointType, Info};
use crate::keys::Key;

/// Bytes that pass through the local buffer at once.
const BOUNCE: usize = 64 << 10;

/// The local end, which reads and writes, and the peer, which only has to make progress.
///
/// It is given up after the first failure (a connection breaks, an operation may still be under way) and opened anew
/// for the next transfer.
#[derive(Debug, Default)]
pub(crate) struct Pair {
    // In this order: the bounce buffer is let go only after the endpoint that may still write to it is closed, the queue
    // of events after the endpoints that report to it.
    source: Option<Endpoint>,
    target: Option<Endpoint>,
    bounce: Option<Bounce>,
    listener: Option<Owned<fi::fid_pep>>,
    events: Option<Owned<fi::fid_eq>>,
    peer: fi::fi_addr_t,
}

/// Which way.
#[derive(Clone, Copy, Debug)]
pub(crate) enum Direction {
    Write,
    Read,
}

/// An endpoint with its own queues.
#[derive(Debug)]
pub(crate) struct Endpoint {
    ep: Owned<fi::fid_ep>,
    cq: Owned<fi::fid_cq>,
    av: Option<Owned<fi::fid_av>>,
}

/// The local buffer and the context of the one operation under way; both are the provider's until it completes.
#[derive(Debug)]
struct Bounce {
    bytes: NonNull<[u8]>,
    context: NonNull<fi::fi_context2>,
    mr: Option<(Owned<fi::fid_mr>, Option<Key>)>,
}

// SAFETY: both allocations are owned here alone; the pair that holds them is used under a lock.
unsafe impl Send for Bounce {}

impl Pair {
    pub(crate) fn open(domain: &Domain, deadline: &Deadline) -> Result<Pair, MoveError> {
        let mut pair = Pair::default();
        let opened = match domain.facts.endpoint {
            EndpointType::Msg => pair.connect(domain, deadline),
            _ => pair.unconnected(domain).map_err(MoveError::from),
        };
        pair.or_abandon(domain, opened)
    }

    /// The pair for the next transfer, unless this one has failed.
    ///
    /// One that was given up while something is under way is leaked, and its domain with it: `ofi_rxm` 1.17 over verbs was
    /// seen to crash some time after endpoints were closed that were still connecting, and not where they were left.
    fn or_abandon<T>(self, domain: &Domain, done: Result<T, MoveError>) -> Result<Pair, MoveError> {
        match done {
            Ok(_) => Ok(self),
            Err(error) => {
                if error.is_timeout() {
                    domain.abandon();
                    std::mem::forget(self);
                }
                Err(error)
            }
        }
    }

    /// Moves bytes to or from the registration's memory, in pieces, through the bounce buffer. `base` and `key` are the
    /// registration's, `at` is what the peer names. Returns the pair for the next transfer.
    pub(crate) fn transfer(
        self,
        domain: &Domain,
        base: u64,
        key: &[u8],
        at: u64,
        bytes: Bytes<'_>,
        deadline: &Deadline,
    ) -> Result<Pair, MoveError> {
        let key = RemoteKey::of(domain, base, key)?;
        let done = self.pieces(domain, key.value, at, bytes, deadline);
        self.or_abandon(domain, done)
    }

    fn pieces(&self, domain: &Domain, key: u64, mut at: u64, bytes: Bytes<'_>, deadline: &Deadline) -> Result<(), MoveError> {
        let piece_max = BOUNCE.min(domain.facts.max_msg_size.max(1));
        match bytes {
            Bytes::In(from) => {
                for piece in from.chunks(piece_max) {
                    self.bounce()?.fill(piece);
                    self.operate(domain, Direction::Write, piece.len(), at, key, deadline)?;
                    at = at.wrapping_add(piece.len() as u64);
                }
            }
            Bytes::Out(into) => {
                for piece in into.chunks_mut(piece_max) {
                    self.operate(domain, Direction::Read, piece.len(), at, key, deadline)?;
                    self.bounce()?.drain(piece);
                    at = at.wrapping_add(piece.len() as u64);
                }
            }
        }
        Ok(())
    }

    fn bounce(&self) -> Result<&Bounce, MoveError> {
        self.bounce.as_ref().ok_or_else(closed)
    }

    /// One remote operation from its call to its completion.
    fn operate(
        &self,
        domain: &Domain,
        direction: Direction,
        len: usize,
        at: u64,
        key: u64,
        deadline: &Deadline,
    ) -> Result<(), MoveError> {
        let api = match direction {
            Direction::Write => "fi_write",
            Direction::Read => "fi_read",
        };
        let source = self.source.as_ref().ok_or_else(closed)?;
        let bounce = self.bounce()?;
        let (buffer, desc, context) = (bounce.bytes.as_ptr().cast::<c_void>(), bounce.desc(), bounce.context.as_ptr().cast());
        loop {
            let ep = source.as_ptr();
            let posted = match direction {
                // SAFETY: an enabled endpoint; the buffer has at least `len` bytes, stays allocated until the operation
                // has completed or the endpoint is closed, and is not touched meanwhile; the context likewise.
                Direction::Write => unsafe { fi::fi_write(ep, buffer, len, desc, self.peer, at, key, context) },
                // SAFETY: as above.
                Direction::Read => unsafe { fi::fi_read(ep, buffer, len, desc, self.peer, at, key, context) },
            };
            match check_count(api, posted) {
                Ok(_) => break,
                Err(full) if full.errno == libc::EAGAIN => {
                    self.progress(domain, api)?;
                    deadline.pause(api)?;
                }
                Err(failed) => return Err(failed.into()),
            }
        }
        while !self.progress(domain, api)? {
            deadline.pause(api)?;
        }
        deadline.awake();
        Ok(())
    }

    /// Lets both ends make progress; true when the operation has completed.
    fn progress(&self, domain: &Domain, api: &'static str) -> Result<bool, MoveError> {
        if let Some(target) = self.target.as_ref().or(domain.target.as_ref()) {
            // Nothing completes there: the peer of a remote access takes no part in it. A failure is the connection's,
            // and the local end sees it too.
            target.completed(api).ok();
        }
        self.source.as_ref().ok_or_else(closed)?.completed(api)
    }
}

impl Drop for Pair {
    fn drop(&mut self) {
        if let Some(source) = self.source.take()
            && source.close().is_err()
        {
            // The provider may still use the buffer of the operation that did not end.
            std::mem::forget(self.bounce.take());
        }
    }
}

/// What to move.
pub(crate) enum Bytes<'b> {
    In(&'b [u8]),
    Out(&'b mut [u8]),
}

fn closed() -> MoveError {
    MoveError::new("fi_endpoint", None, Cause::Other { what: "the endpoints are closed".to_owned() })
}

impl Pair {
    /// Two endpoints, of which the local one knows the other's address.
    fn unconnected(&mut self, domain: &Domain) -> Result<(), Failed> {
        let source = self.source.insert(Endpoint::unconnected(domain)?);
        let target = match &domain.target {
            Some(target) => target,
            None => self.target.insert(Endpoint::unconnected(domain)?),
        };
        self.peer = source.insert(&target.name()?)?;
        self.bounce = Some(Bounce::new(domain)?);
        Ok(())
    }

    /// Connects two endpoints through a listener.
    fn connect(&mut self, domain: &Domain, deadline: &Deadline) -> Result<(), MoveError> {
        let no_fabric = || Failed { api: "fi_passive_ep", errno: libc::EOPNOTSUPP };
        let fabric = domain.fabric().ok_or_else(no_fabric)?;
        let mut attr = fi::fi_eq_attr { wait_obj: fi::fi_wait_obj_FI_WAIT_NONE, ..Default::default() };
        // SAFETY: an open fabric, a valid attribute structure, a context that may be null.
        let events =
            Owned::open("fi_eq_open", |made| unsafe { fi::fi_eq_open(fabric, &raw mut attr, made, std::ptr::null_mut()) })?;
        let events = &*self.events.insert(events);
        // SAFETY: an open fabric and the entry it was opened from.
        let listener = Owned::open("fi_passive_ep", |made| unsafe {
            fi::fi_passive_ep(fabric, domain.info.as_ptr(), made, std::ptr::null_mut())
        })?;
        let listener = &*self.listener.insert(listener);
        // SAFETY: both open, of one fabric.
        check("fi_pep_bind", unsafe { fi::fi_pep_bind(listener.as_ptr(), events.fid(), 0) })?;
        // SAFETY: a bound listener.
        check("fi_listen", unsafe { fi::fi_listen(listener.as_ptr()) })?;
        let address = name_of(listener.fid())?;

        let towards = domain.info.towards(&address)?;
        let source = &*self.source.insert(Endpoint::connected(domain, &towards, events)?);
        // SAFETY: an enabled endpoint; the address is of the provider's own making; no connection data.
        let returned = unsafe { fi::fi_connect(source.as_ptr(), address.as_ptr().cast(), std::ptr::null(), 0) };
        check("fi_connect", returned)?;
        let request = loop {
            match next_event(events)? {
                Some((fi::FI_CONNREQ, info)) => break info,
                Some(_) | None => deadline.pause("fi_connect")?,
            }
        };
        // SAFETY: the entry of a connection request belongs to who reads the event.
        let request = unsafe { Info::take(request) }.ok_or(Failed { api: "fi_eq_read", errno: libc::EIO })?;
        let target = &*self.target.insert(Endpoint::connected(domain, &request, events)?);
        // SAFETY: an endpoint made for the request that it accepts; no connection data.
        check("fi_accept", unsafe { fi::fi_accept(target.as_ptr(), std::ptr::null(), 0) })?;
        let mut connected = 0;
        while connected < 2 {
            // Some providers make progress on a connection only when the endpoints' own queues are read.
            source.completed("fi_connect")?;
            target.completed("fi_accept")?;
            match next_event(events)? {
                Some((fi::FI_CONNECTED, _)) => connected += 1,
                Some(_) | None => deadline.pause("fi_accept")?,
            }
        }
        self.listener = None;
        self.bounce = Some(Bounce::new(domain)?);
        Ok(())
    }
}

/// The next event of a connection: its kind and, for a request, the entry to accept it with.
fn next_event(events: &Owned<fi::fid_eq>) -> Result<Option<(u32, *mut fi::fi_info)>, Failed> {
    let mut entry = fi::fi_eq_cm_entry::default();
    let mut kind = 0;
    // SAFETY: an open queue; `kind` and `entry` are valid for writes, the latter of the size given.
    let read =
        unsafe { fi::fi_eq_read(events.as_ptr(), &raw mut kind, (&raw mut entry).cast(), size_of::<fi::fi_eq_cm_entry>(), 0) };
    match check_count("fi_eq_read", read) {
        Ok(_) => Ok(Some((kind, entry.info))),
        Err(none) if none.errno == libc::EAGAIN => Ok(None),
        Err(report) if report.errno == fi::FI_EAVAIL.cast_signed() => {
            let mut error = fi::fi_eq_err_entry::default();
            // SAFETY: an open queue and a valid entry without a buffer for provider data.
            let read = unsafe { fi::fi_eq_readerr(events.as_ptr(), &raw mut error, 0) };
            check_count("fi_eq_readerr", read)?;
            Err(Failed { api: "fi_connect", errno: error.err })
        }
        Err(failed) => Err(failed),
    }
}

/// The address of an endpoint or a listener.
fn name_of(fid: *mut fi::fid) -> Result<Vec<u8>, Failed> {
    let mut name = vec![0u8; 512];
    let mut len = name.len();
    // SAFETY: an open endpoint; the buffer has room for `len` bytes.
    check("fi_getname", unsafe { fi::fi_getname(fid, name.as_mut_ptr().cast(), &raw mut len) })?;
    name.truncate(len);
    Ok(name)
}

impl Endpoint {
    /// An endpoint that reaches peers by an address vector.
    pub(crate) fn unconnected(domain: &Domain) -> Result<Endpoint, Failed> {
        let mut attr = fi::fi_av_attr { type_: fi::fi_av_type_FI_AV_TABLE, count: 2, ..Default::default() };
        // SAFETY: an open domain and a valid attribute structure.
        let av = Owned::open("fi_av_open", |made| unsafe {
            fi::fi_av_open(domain.as_ptr(), &raw mut attr, made, std::ptr::null_mut())
        })?;
        let endpoint = Endpoint::new(domain, &domain.info, Some(av))?;
        endpoint.enable()?;
        Ok(endpoint)
    }

    /// An endpoint for one connection, which reports to `events`.
    fn connected(domain: &Domain, info: &Info, events: &Owned<fi::fid_eq>) -> Result<Endpoint, Failed> {
        let endpoint = Endpoint::new(domain, info, None)?;
        endpoint.bind(events.fid(), 0)?;
        endpoint.enable()?;
        Ok(endpoint)
    }

    fn new(domain: &Domain, info: &Info, av: Option<Owned<fi::fid_av>>) -> Result<Endpoint, Failed> {
        let mut attr = fi::fi_cq_attr {
            size: 16,
            format: fi::fi_cq_format_FI_CQ_FORMAT_CONTEXT,
            wait_obj: fi::fi_wait_obj_FI_WAIT_NONE,
            ..Default::default()
        };
        // SAFETY: an open domain and a valid attribute structure.
        let cq = Owned::open("fi_cq_open", |made| unsafe {
            fi::fi_cq_open(domain.as_ptr(), &raw mut attr, made, std::ptr::null_mut())
        })?;
        // SAFETY: an open domain and an entry of it.
        let ep = Owned::open("fi_endpoint", |made| unsafe {
            fi::fi_endpoint(domain.as_ptr(), info.as_ptr(), made, std::ptr::null_mut())
        })?;
        let endpoint = Endpoint { ep, cq, av };
        endpoint.bind(endpoint.cq.fid(), u64::from(fi::FI_TRANSMIT | fi::FI_RECV))?;
        if let Some(av) = &endpoint.av {
            endpoint.bind(av.fid(), 0)?;
        }
        Ok(endpoint)
    }

    fn bind(&self, to: *mut fi::fid, flags: u64) -> Result<(), Failed> {
        // SAFETY: both open, of one domain; what is bound is closed after the endpoint.
        check("fi_ep_bind", unsafe { fi::fi_ep_bind(self.as_ptr(), to, flags) })
    }

    fn enable(&self) -> Result<(), Failed> {
        // SAFETY: an open endpoint with everything bound.
        check("fi_enable", unsafe { fi::fi_enable(self.as_ptr()) })
    }

    pub(crate) fn as_ptr(&self) -> *mut fi::fid_ep {
        self.ep.as_ptr()
    }

    pub(crate) fn raw(&self) -> NonNull<fi::fid_ep> {
        self.ep.raw()
    }

    fn name(&self) -> Result<Vec<u8>, Failed> {
        name_of(self.ep.fid())
    }

    /// Makes a peer's address known.
    fn insert(&self, name: &[u8]) -> Result<fi::fi_addr_t, Failed> {
        let failed = Failed { api: "fi_av_insert", errno: libc::EINVAL };
        let av = self.av.as_ref().ok_or(failed)?;
        let mut peer = 0;
        // SAFETY: an open vector; one address of the provider's own making; `peer` is valid for one result.
        let inserted = unsafe { fi::fi_av_insert(av.as_ptr(), name.as_ptr().cast(), 1, &raw mut peer, 0, std::ptr::null_mut()) };
        if inserted == 1 { Ok(peer) } else { Err(failed) }
    }

    /// Makes progress; true when an operation has completed.
    fn completed(&self, api: &'static str) -> Result<bool, MoveError> {
        let mut entry = fi::fi_cq_entry::default();
        // SAFETY: an open queue of the format whose entry this is, and room for one.
        let read = unsafe { fi::fi_cq_read(self.cq.as_ptr(), (&raw mut entry).cast(), 1) };
        match check_count("fi_cq_read", read) {
            Ok(read) => Ok(read == 1),
            Err(none) if none.errno == libc::EAGAIN => Ok(false),
            Err(report) if report.errno == fi::FI_EAVAIL.cast_signed() => {
                let mut error = fi::fi_cq_err_entry::default();
                // SAFETY: an open queue and a valid entry without a buffer for provider data.
                let read = unsafe { fi::fi_cq_readerr(self.cq.as_ptr(), &raw mut error, 0) };
                check_count("fi_cq_readerr", read)?;
                let failed = Failed { api, errno: error.err };
                let what = format!("{} (provider errno {})", failed.text(), error.prov_errno);
                Err(MoveError::new(api, Some(failed.errno), Cause::Other { what }))
            }
            Err(failed) => Err(failed.into()),
        }
    }

    /// Closes the endpoint, and only if that succeeds its queues.
    fn close(self) -> Result<(), Failed> {
        let Endpoint { ep, cq, av } = self;
        let closed = ep.close();
        if closed.is_err() {
            std::mem::forget((cq, av));
        }
        closed
    }
}

impl Bounce {
    fn new(domain: &Domain) -> Result<Bounce, Failed> {
        let bytes = NonNull::from(Box::leak(vec![0u8; BOUNCE].into_boxed_slice()));
        let context = NonNull::from(Box::leak(Box::<fi::fi_context2>::default()));
        let mut bounce = Bounce { bytes, context, mr: None };
        if domain.needs(fi::FI_MR_LOCAL) {
            bounce.mr = Some(domain.register_local(bytes)?);
        }
        Ok(bounce)
    }

    /// The descriptor that local buffers need under FI_MR_LOCAL.
    fn desc(&self) -> *mut c_void {
        match &self.mr {
            // SAFETY: a live MR.
            Some((mr, _)) => unsafe { fi::fi_mr_desc(mr.as_ptr()) },
            None => std::ptr::null_mut(),
        }
    }

    /// Only while no operation is under way.
    fn fill(&self, from: &[u8]) {
        assert!(from.len() <= BOUNCE);
        // SAFETY: room for `BOUNCE` bytes; no operation is under way, and nobody else has the allocation.
        unsafe { std::ptr::copy_nonoverlapping(from.as_ptr(), self.bytes.as_ptr().cast(), from.len()) };
    }

    /// Only while no operation is under way.
    fn drain(&self, into: &mut [u8]) {
        assert!(into.len() <= BOUNCE);
        // SAFETY: as in `fill`.
        unsafe { std::ptr::copy_nonoverlapping(self.bytes.as_ptr().cast(), into.as_mut_ptr(), into.len()) };
    }
}

impl Drop for Bounce {
    fn drop(&mut self) {
        if let Some((mr, key)) = self.mr.take()
            && mr.close().is_err()
        {
            std::mem::forget(key);
            return;
        }
        // SAFETY: leaked from a box in `new`; the endpoint and the registration that could use it are closed.
        drop(unsafe { Box::from_raw(self.bytes.as_ptr()) });
        // SAFETY: as above.
        drop(unsafe { Box::from_raw(self.context.as_ptr()) });
    }
}

/// What a remote operation names: the key itself, or a raw key mapped to one for as long as it is used.
struct RemoteKey<'d> {
    domain: &'d Domain,
    value: u64,
    mapped: bool,
}

impl<'d> RemoteKey<'d> {
    fn of(domain: &'d Domain, base: u64, key: &[u8]) -> Result<RemoteKey<'d>, Failed> {
        if !domain.needs(fi::FI_MR_RAW) {
            let failed = Failed { api: "fi_mr_key", errno: libc::EINVAL };
            let value = u64::from_ne_bytes(key.try_into().map_err(|_| failed)?);
            return Ok(RemoteKey { domain, value, mapped: false });
        }
        let mut key = key.to_vec();
        let mut value = 0;
        // SAFETY: an open domain; the key's bytes are valid for their length, `value` for one result.
        let returned = unsafe { fi::fi_mr_map_raw(domain.as_ptr(), base, key.as_mut_ptr(), key.len(), &raw mut value, 0) };
        check("fi_mr_map_raw", returned)?;
        Ok(RemoteKey { domain, value, mapped: true })
    }
}

impl Drop for RemoteKey<'_> {
    fn drop(&mut self) {
        if self.mapped {
            // SAFETY: mapped on this domain in `of`, unmapped once.
            unsafe { fi::fi_mr_unmap_key(self.domain.as_ptr(), self.value) };
        }
    }
}
