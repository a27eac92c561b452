//! One domain: registration as its provider wants it done.

use std::os::fd::AsRawFd;
use std::ptr::NonNull;
use std::sync::atomic::{AtomicBool, AtomicU64, Ordering};
use std::sync::{Arc, Mutex};

use libfabric_sys::bindgen as fi;
use pinrail_core::{Access, Cause, Chunk, Extent, PinsCounted, RegisterError, Source};
use smallvec::SmallVec;

use crate::ffi::{Failed, Owned, check, native};
use crate::info::{EndpointType, Facts, Info, MR_MODE};
use crate::keys::{Key, Keys};
use crate::limits::MaxMrSize;
use crate::pair::{Endpoint, Pair};
use crate::{Borrowed, OpenError, cause, rails};

/// One domain and what was opened for it. Fields are dropped in the order in which libfabric lets them be closed.
#[derive(Debug)]
pub(crate) struct Domain {
    /// Pairs of endpoints that move bytes, opened when needed: as many as transfers were ever under way at once.
    pub(crate) pairs: Mutex<Vec<Pair>>,
    /// Where registrations are bound to an endpoint (FI_MR_ENDPOINT) and the domain is ours: that endpoint.
    pub(crate) target: Option<Endpoint>,
    /// The endpoint that registrations are bound to, ours or the caller's.
    endpoint: Option<NonNull<fi::fid_ep>>,
    handle: NonNull<fi::fid_domain>,
    opened: Option<Opened>,
    pub(crate) info: Info,
    pub(crate) facts: Facts,
    pub(crate) max_mr_size: MaxMrSize,
    pub(crate) pins: PinsCounted,
    /// Where the provider leaves the choice of keys to us.
    keys: Option<Arc<Keys>>,
    live: AtomicU64,
    /// True when something was left open that is still under way.
    abandoned: AtomicBool,
}

// SAFETY: the handles belong to a domain opened with FI_THREAD_SAFE (checked when a `Domain` is made), on which any
// thread may call at any time.
unsafe impl Send for Domain {}
// SAFETY: as above.
unsafe impl Sync for Domain {}

/// What is closed at the end: the domain before its fabric.
#[derive(Debug)]
struct Opened {
    _domain: Owned<fi::fid_domain>,
    fabric: Owned<fi::fid_fabric>,
}

/// The token of a live MR. Dropped, it frees the MR's key and its place among the live ones; that happens only after the
/// provider has deregistered.
#[derive(Debug)]
pub(crate) struct Registered {
    mr: NonNull<fi::fid_mr>,
    _key: Option<Key>,
    slot: Slot,
    /// What a peer adds to an offset to address the memory.
    pub(crate) base: u64,
    /// What its users may do.
    pub(crate) access: Access,
}

// SAFETY: an MR of a domain opened with FI_THREAD_SAFE.
unsafe impl Send for Registered {}
// SAFETY: as above.
unsafe impl Sync for Registered {}

impl Registered {
    pub(crate) fn domain(&self) -> &Arc<Domain> {
        &self.slot.0
    }
}

/// What registering one range yields.
pub(crate) struct Made {
    pub(crate) token: Registered,
    pub(crate) keys: pinrail_core::Keys,
}

/// Keys tried when the provider says that one is in use: others may choose keys on the same domain.
const KEYS_TRIED: usize = 16;

impl Domain {
    /// Opens fabric and domain.
    pub(crate) fn open(info: Info) -> Result<Domain, OpenError> {
        // SAFETY: a complete entry from fi_getinfo.
        let attr = unsafe { (*info.as_ptr()).fabric_attr };
        // SAFETY: the entry's own fabric attributes; the context may be null.
        let fabric = Owned::open("fi_fabric", |made| unsafe { fi::fi_fabric(attr, made, std::ptr::null_mut()) })?;
        Domain::on_fabric(fabric, info)
    }

    /// Opens a domain of an open fabric.
    pub(crate) fn on_fabric(fabric: Owned<fi::fid_fabric>, info: Info) -> Result<Domain, OpenError> {
        let facts = info.facts();
        check_facts(&facts)?;
        // SAFETY: the fabric was opened from the same entry; the context may be null.
        let domain = Owned::open("fi_domain", |made| unsafe {
            fi::fi_domain(fabric.as_ptr(), info.as_ptr(), made, std::ptr::null_mut())
        })?;
        let handle = domain.raw();
        let opened = Opened { _domain: domain, fabric };
        let keys = keys_of_ours(&facts).then(|| Keys::new(Keys::of_size(facts.mr_key_size)));
        let mut domain = Domain::over(handle, info, facts);
        domain.opened = Some(opened);
        domain.keys = keys;
        if domain.needs(fi::FI_MR_ENDPOINT) {
            let target = Endpoint::unconnected(&domain)?;
            domain.endpoint = Some(target.raw());
            domain.target = Some(target);
        }
        Ok(domain)
    }

    /// A domain that the caller opened.
    ///
    /// # Safety
    /// The conditions of [`crate::Libfabric::borrow`].
    pub(crate) unsafe fn borrow(borrowed: &Borrowed) -> Result<Domain, OpenError> {
        // SAFETY: the caller's promise.
        let info = unsafe { Info::copy(borrowed.info) }?;
        let facts = info.facts();
        check_facts(&facts)?;
        let refuse = |what: &str| {
            let (provider, domain) = (facts.provider.clone(), facts.domain.clone());
            Err(OpenError::NotSupported { provider, domain, what: what.to_owned() })
        };
        let keys = match &borrowed.keys {
            _ if !keys_of_ours(&facts) => None,
            None => return refuse("its user chooses the keys (no FI_MR_PROV_KEY): say which ones are left to Pinrail"),
            Some(keys) if keys.is_empty() || keys.end() > Keys::of_size(facts.mr_key_size).end() => {
                return refuse("the keys left to Pinrail are none, or do not fit in mr_key_size");
            }
            Some(keys) => Some(Keys::new(keys.clone())),
        };
        let endpoint = borrowed.endpoint.filter(|_| facts.mr_mode & fi::FI_MR_ENDPOINT != 0);
        if facts.mr_mode & fi::FI_MR_ENDPOINT != 0 && endpoint.is_none() {
            return refuse("it binds registrations to an endpoint (FI_MR_ENDPOINT): say to which");
        }
        let mut domain = Domain::over(borrowed.domain, info, facts);
        domain.endpoint = endpoint;
        domain.keys = keys;
        Ok(domain)
    }

    fn over(handle: NonNull<fi::fid_domain>, info: Info, facts: Facts) -> Domain {
        Domain {
            pairs: Mutex::new(Vec::new()),
            target: None,
            endpoint: None,
            handle,
            opened: None,
            max_mr_size: MaxMrSize::of(&facts),
            pins: rails::pins(&facts.provider),
            info,
            facts,
            keys: None,
            live: AtomicU64::new(0),
            abandoned: AtomicBool::new(false),
        }
    }

    pub(crate) fn as_ptr(&self) -> *mut fi::fid_domain {
        self.handle.as_ptr()
    }

    pub(crate) fn fabric(&self) -> Option<*mut fi::fid_fabric> {
        self.opened.as_ref().map(|opened| opened.fabric.as_ptr())
    }

    /// Keeps the domain open for ever: something on it is still under way.
    pub(crate) fn abandon(&self) {
        self.abandoned.store(true, Ordering::Relaxed);
    }

    pub(crate) fn needs(&self, mr_mode: u32) -> bool {
        self.facts.mr_mode & mr_mode != 0
    }

    /// True where two endpoints of our own can reach the registrations: not where they are bound to the caller's
    /// endpoint, nor where connecting takes a fabric that we do not have.
    pub(crate) fn moves(&self) -> bool {
        match self.facts.endpoint {
            EndpointType::Rdm => self.endpoint.is_none() || self.target.is_some(),
            EndpointType::Msg => self.opened.is_some(),
            EndpointType::Other => false,
        }
    }

    /// Registers a chunk.
    pub(crate) fn register(self: &Arc<Domain>, chunk: &Chunk<'_>) -> Result<Made, RegisterError> {
        let refused = |cause| RegisterError::new(API, None, cause);
        let extent = cause::check_chunk(chunk).map_err(refused)?;
        if let Some(limit) = self.max_mr_size.of_access(chunk.access).filter(|&limit| extent.len() > limit) {
            return Err(refused(Cause::MrSize { limit, need: extent.len() }));
        }
        if matches!(chunk.source, Source::DmaBuf { .. }) && !self.facts.device_memory {
            let what = format!("domain {} of provider {} was opened without FI_HMEM", self.facts.domain, self.facts.provider);
            return Err(refused(Cause::NoDevicePath { what }));
        }
        let slot = Slot::take(self).map_err(|limit| refused(Cause::MrCount { limit }))?;
        let failed = |failed: Failed| cause::of_register(failed, self, chunk);
        let (mr, key) = match &self.keys {
            None => (self.call_regattr(extent, chunk, 0).map_err(failed)?, None),
            Some(keys) => {
                let mut in_use = Vec::new();
                loop {
                    let key = keys.take().ok_or_else(|| refused(Cause::MrCount { limit: keys.count() }))?;
                    match self.call_regattr(extent, chunk, key.value()) {
                        Ok(mr) => break (mr, Some(key)),
                        Err(why) if why.errno == ENOKEY && in_use.len() < KEYS_TRIED => in_use.push(key),
                        Err(why) => return Err(failed(why)),
                    }
                }
            }
        };
        match self.complete(&mr, extent) {
            Ok((base, remote)) => {
                // SAFETY: a live MR of ours.
                let local = unsafe { fi::fi_mr_desc(mr.as_ptr()) }.expose_provenance() as u64;
                let token = Registered { mr: mr.into_raw(), _key: key, slot, base, access: chunk.access };
                Ok(Made { token, keys: pinrail_core::Keys { local, remote } })
            }
            Err(why) => {
                if mr.close().is_err() {
                    // Still registered, without anybody who could ever end it: its memory must not be unmapped, nor its
                    // key and its place be given to others.
                    std::mem::forget((chunk.memory.clone(), chunk.source.clone(), key, slot));
                }
                Err(failed(why))
            }
        }
    }

    /// Deregisters; on failure the MR is as it was.
    ///
    /// # Safety
    /// Nobody has deregistered it yet: the caller drops `registered` after a success.
    pub(crate) unsafe fn deregister(&self, registered: &Registered) -> Result<(), Failed> {
        // SAFETY: a live MR of this domain by the caller's promise.
        check("fi_close", unsafe { fi::fi_close(registered.mr.as_ptr().cast()) })
    }

    fn call_regattr(&self, extent: Extent, chunk: &Chunk<'_>, key: u64) -> Result<Owned<fi::fid_mr>, Failed> {
        let address = std::ptr::with_exposed_provenance_mut(native(extent.start()));
        let iov = libc::iovec { iov_base: address, iov_len: native(extent.len()) };
        let mut attr = fi::fi_mr_attr { iov_count: 1, access: access_flags(chunk.access), ..Default::default() };
        attr.requested_key = key;
        attr.iface = fi::fi_hmem_iface_FI_HMEM_SYSTEM;
        if let Source::DmaBuf { fd, offset } = chunk.source {
            return self.dma_buf(attr, extent, fd.as_raw_fd(), *offset);
        }
        set_iov(&mut attr, &raw const iov);
        // SAFETY: an open domain; `attr` and the vector it points to live through the call. The memory stays mapped while
        // the MR lives: the `Mr` with its token holds it (or it is leaked).
        Owned::open(API, |made| unsafe { fi::fi_mr_regattr(self.as_ptr(), &raw const attr, 0, made) })
    }

    /// Registers memory of our own for local use: what transfers need under FI_MR_LOCAL. The caller keeps the bytes
    /// allocated until the MR is closed, and the key until then.
    pub(crate) fn register_local(&self, bytes: NonNull<[u8]>) -> Result<(Owned<fi::fid_mr>, Option<Key>), Failed> {
        let iov = libc::iovec { iov_base: bytes.as_ptr().cast(), iov_len: bytes.len() };
        let access = u64::from(fi::FI_SEND | fi::FI_RECV | fi::FI_READ | fi::FI_WRITE);
        let mut attr = fi::fi_mr_attr { iov_count: 1, access, ..Default::default() };
        let key = self.keys.as_ref().and_then(Keys::take);
        attr.requested_key = key.as_ref().map_or(0, Key::value);
        attr.iface = fi::fi_hmem_iface_FI_HMEM_SYSTEM;
        set_iov(&mut attr, &raw const iov);
        // SAFETY: an open domain; `attr` and the vector it points to live through the call.
        let mr = Owned::open(API, |made| unsafe { fi::fi_mr_regattr(self.as_ptr(), &raw const attr, 0, made) })?;
        Ok((mr, key))
    }

    /// The steps between registration and the key, and what a peer names: the base of addresses and the key.
    fn complete(&self, mr: &Owned<fi::fid_mr>, extent: Extent) -> Result<(u64, SmallVec<[u8; 16]>), Failed> {
        if let Some(endpoint) = self.endpoint {
            // SAFETY: an MR and an endpoint of one domain, both live.
            check("fi_mr_bind", unsafe { fi::fi_mr_bind(mr.as_ptr(), endpoint.as_ptr().cast(), 0) })?;
            // SAFETY: a live, bound MR.
            check("fi_mr_enable", unsafe { fi::fi_mr_enable(mr.as_ptr()) })?;
        }
        if self.needs(fi::FI_MR_RAW) {
            return self.raw_key(mr);
        }
        // SAFETY: a live, enabled MR.
        let key = unsafe { fi::fi_mr_key(mr.as_ptr()) };
        if key == KEY_NOTAVAIL {
            return Err(Failed { api: "fi_mr_key", errno: ENOKEY });
        }
        let base = if self.needs(fi::FI_MR_VIRT_ADDR) { extent.start() } else { 0 };
        Ok((base, SmallVec::from_slice(&key.to_ne_bytes())))
    }

    /// A key of more than 64 bits, and the address that goes with it.
    fn raw_key(&self, mr: &Owned<fi::fid_mr>) -> Result<(u64, SmallVec<[u8; 16]>), Failed> {
        let mut base = 0;
        let mut size = self.facts.mr_key_size;
        let mut key: SmallVec<[u8; 16]> = SmallVec::from_elem(0, size);
        // SAFETY: a live, enabled MR; base and size are valid for writes and the key has room for `size` bytes.
        let returned = unsafe { fi::fi_mr_raw_attr(mr.as_ptr(), &raw mut base, key.as_mut_ptr(), &raw mut size, 0) };
        check("fi_mr_raw_attr", returned)?;
        key.truncate(size);
        Ok((base, key))
    }

    #[cfg(fi_mr_dmabuf)]
    fn dma_buf(&self, mut attr: fi::fi_mr_attr, extent: Extent, fd: i32, offset: u64) -> Result<Owned<fi::fid_mr>, Failed> {
        let dmabuf = fi::fi_mr_dmabuf {
            fd,
            offset,
            len: native(extent.len()),
            // libfabric adds the offset to it again.
            base_addr: std::ptr::with_exposed_provenance_mut(native(extent.start().wrapping_sub(offset))),
        };
        attr.__bindgen_anon_1.dmabuf = &raw const dmabuf;
        let flags = u64::from(fi::FI_MR_DMABUF);
        // SAFETY: an open domain; `attr` and the dma-buf it points to live through the call, and so does the descriptor.
        Owned::open(API, |made| unsafe { fi::fi_mr_regattr(self.as_ptr(), &raw const attr, flags, made) })
    }

    #[cfg(not(fi_mr_dmabuf))]
    fn dma_buf(&self, _: fi::fi_mr_attr, _: Extent, _: i32, _: u64) -> Result<Owned<fi::fid_mr>, Failed> {
        Err(Failed { api: API, errno: libc::EOPNOTSUPP })
    }
}

impl Drop for Domain {
    fn drop(&mut self) {
        if *self.abandoned.get_mut() {
            std::mem::forget((self.target.take(), self.opened.take()));
        }
    }
}

const API: &str = "fi_mr_regattr";

pub(crate) const ENOKEY: i32 = fi::FI_ENOKEY.cast_signed();

/// FI_KEY_NOTAVAIL: the key cannot be read, or does not fit in 64 bits.
const KEY_NOTAVAIL: u64 = u64::MAX;

#[cfg(fi_mr_dmabuf)]
fn set_iov(attr: &mut fi::fi_mr_attr, iov: *const libc::iovec) {
    attr.__bindgen_anon_1.mr_iov = iov;
}

#[cfg(not(fi_mr_dmabuf))]
fn set_iov(attr: &mut fi::fi_mr_attr, iov: *const libc::iovec) {
    attr.mr_iov = iov;
}

/// What a registration must allow. Reading out of memory, for its own sends and writes, is always part of it.
fn access_flags(access: Access) -> u64 {
    let flag = |on: Access, bits: u32| if access.effective().contains(on) { u64::from(bits) } else { 0 };
    u64::from(fi::FI_SEND | fi::FI_WRITE)
        | flag(Access::LOCAL_WRITE, fi::FI_RECV | fi::FI_READ)
        | flag(Access::REMOTE_READ, fi::FI_REMOTE_READ)
        | flag(Access::REMOTE_WRITE, fi::FI_REMOTE_WRITE)
}

/// True where we choose the keys.
fn keys_of_ours(facts: &Facts) -> bool {
    facts.mr_mode & fi::FI_MR_PROV_KEY == 0
}

/// What every domain must fulfil, ours or borrowed.
fn check_facts(facts: &Facts) -> Result<(), OpenError> {
    let (provider, domain) = (facts.provider.clone(), facts.domain.clone());
    if !facts.thread_safe {
        return Err(OpenError::NotThreadSafe { provider, domain });
    }
    let unknown = facts.mr_mode & !MR_MODE;
    if unknown != 0 {
        let what = format!("it needs registration mode {unknown:#x}, which is not implemented");
        return Err(OpenError::NotSupported { provider, domain, what });
    }
    if facts.mr_mode & fi::FI_MR_ENDPOINT != 0 && facts.endpoint == EndpointType::Msg {
        let what = "it binds registrations to endpoints (FI_MR_ENDPOINT) of one connection each".to_owned();
        return Err(OpenError::NotSupported { provider, domain, what });
    }
    Ok(())
}

/// One of the registrations a domain may have; free again when dropped.
#[derive(Debug)]
struct Slot(Arc<Domain>);

impl Slot {
    /// On failure the limit.
    fn take(domain: &Arc<Domain>) -> Result<Slot, u64> {
        let max = domain.facts.mr_cnt.unwrap_or(u64::MAX);
        let more = |live| (live < max).then_some(live + 1);
        match domain.live.fetch_update(Ordering::Relaxed, Ordering::Relaxed, more) {
            Ok(_) => Ok(Slot(Arc::clone(domain))),
            Err(_) => Err(max),
        }
    }
}

impl Drop for Slot {
    fn drop(&mut self) {
        self.0.live.fetch_sub(1, Ordering::Relaxed);
    }
}
