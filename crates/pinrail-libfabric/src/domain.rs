//! One domain: registration as its provider wants it done.

use std::os::fd::AsRawFd;
use std::ptr::NonNull;
use std::sync::atomic::{AtomicU64, Ordering};
use std::sync::{Arc, Mutex};

use libfabric_sys::bindgen as fi;
use pinrail_core::{Access, Cause, Chunk, Extent, RegisterError, Source};
use smallvec::SmallVec;

use crate::ffi::{Failed, Owned, check, native};
use crate::info::{EndpointType, Facts, Info};
use crate::keys::Keys;
use crate::pair::{Endpoint, Pair};
use crate::{OpenError, cause};

/// One domain and what was opened for it. Fields are dropped in the order in which libfabric lets them be closed.
#[derive(Debug)]
pub(crate) struct Domain {
    /// Two endpoints that move bytes, opened when first needed.
    pub(crate) pair: Mutex<Option<Pair>>,
    /// Where FI_MR_ENDPOINT asks for it, and the domain is ours: the endpoint that registrations are bound to.
    pub(crate) target: Option<Endpoint>,
    handle: NonNull<fi::fid_domain>,
    /// The endpoint that registrations are bound to.
    endpoint: Option<NonNull<fi::fid_ep>>,
    opened: Option<Opened>,
    pub(crate) info: Info,
    pub(crate) facts: Facts,
    /// Where the provider leaves the choice of keys to us.
    keys: Option<Keys>,
    live: AtomicU64,
    max_mr_size: Option<u64>,
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

/// The token of a live MR.
#[derive(Debug)]
pub(crate) struct Registered {
    mr: NonNull<fi::fid_mr>,
    pub(crate) domain: Arc<Domain>,
    /// The key to give back.
    key: Option<u64>,
    /// What a peer adds to an offset to address the memory.
    pub(crate) base: u64,
}

// SAFETY: an MR of a domain opened with FI_THREAD_SAFE.
unsafe impl Send for Registered {}
// SAFETY: as above.
unsafe impl Sync for Registered {}

/// What registering one range yields.
pub(crate) struct Made {
    pub(crate) token: Registered,
    pub(crate) local: u64,
    pub(crate) remote: SmallVec<[u8; 16]>,
}

impl Domain {
    /// Opens fabric and domain.
    pub(crate) fn open(info: Info, max_mr_size: Option<u64>) -> Result<Domain, OpenError> {
        let facts = info.facts();
        check_facts(&facts)?;
        // SAFETY: a complete entry from fi_getinfo.
        let attr = unsafe { (*info.as_ptr()).fabric_attr };
        // SAFETY: the entry's own fabric attributes; the context may be null.
        let fabric = Owned::open("fi_fabric", |made| unsafe { fi::fi_fabric(attr, made, std::ptr::null_mut()) })?;
        // SAFETY: the fabric was just opened from the same entry; the context may be null.
        let domain = Owned::open("fi_domain", |made| unsafe {
            fi::fi_domain(fabric.as_ptr(), info.as_ptr(), made, std::ptr::null_mut())
        })?;
        let handle = NonNull::new(domain.as_ptr()).ok_or(Failed { api: "fi_domain", errno: libc::EIO })?;
        let mut domain = Domain {
            pair: Mutex::new(None),
            target: None,
            handle,
            endpoint: None,
            opened: Some(Opened { _domain: domain, fabric }),
            keys: keys_of(&facts, Keys::of_size(facts.mr_key_size)),
            info,
            facts,
            live: AtomicU64::new(0),
            max_mr_size,
        };
        if domain.needs(fi::FI_MR_ENDPOINT) {
            let target = Endpoint::unconnected(&domain)?;
            domain.endpoint = NonNull::new(target.as_ptr());
            domain.target = Some(target);
        }
        Ok(domain)
    }

    pub(crate) fn as_ptr(&self) -> *mut fi::fid_domain {
        self.handle.as_ptr()
    }

    pub(crate) fn fabric(&self) -> Option<*mut fi::fid_fabric> {
        self.opened.as_ref().map(|opened| opened.fabric.as_ptr())
    }

    pub(crate) fn needs(&self, mr_mode: u32) -> bool {
        self.facts.mr_mode & mr_mode != 0
    }

    /// Registers a chunk.
    pub(crate) fn register(self: &Arc<Domain>, chunk: &Chunk<'_>) -> Result<Made, RegisterError> {
        const API: &str = "fi_mr_regattr";
        let extent = cause::check_chunk(API, chunk)?;
        if let Some(limit) = self.max_mr_size.filter(|&limit| extent.len() > limit) {
            return Err(RegisterError::new(API, None, Cause::MrSize { limit, need: extent.len() }));
        }
        let full = |limit| RegisterError::new(API, None, Cause::MrCount { limit });
        let slot = Slot::take(self).map_err(full)?;
        let key = match &self.keys {
            None => None,
            Some(keys) => Some(KeyInUse { keys, key: keys.take().ok_or_else(|| full(keys.count()))? }),
        };
        let requested = key.as_ref().map_or(0, |key| key.key);
        let failed = |failed: Failed| cause::of_register(failed, self, chunk);
        let mr = self.call_regattr(extent, chunk, requested).map_err(failed)?;
        match self.complete(&mr, extent) {
            Ok((base, remote)) => {
                // SAFETY: a live MR of ours.
                let local = unsafe { fi::fi_mr_desc(mr.as_ptr()) };
                let key = key.map(KeyInUse::keep);
                slot.keep();
                let token = Registered { mr: mr.into_raw(), domain: Arc::clone(self), key, base };
                Ok(Made { token, local: local.expose_provenance() as u64, remote })
            }
            Err(why) => {
                if mr.close().is_err() {
                    // Still registered, without anybody who could ever end it: its memory must not be unmapped.
                    std::mem::forget((chunk.memory.clone(), chunk.source.clone()));
                    key.map(KeyInUse::keep);
                    slot.keep();
                }
                Err(failed(why))
            }
        }
    }

    /// Deregisters; on failure the MR is as it was.
    pub(crate) fn deregister(&self, registered: &Registered) -> Result<(), Failed> {
        // SAFETY: a live MR of this domain. The caller retires its token on success, so it is closed once.
        check("fi_close", unsafe { fi::fi_close(registered.mr.as_ptr().cast()) })?;
        if let (Some(keys), Some(key)) = (&self.keys, registered.key) {
            keys.give_back(key);
        }
        self.live.fetch_sub(1, Ordering::Relaxed);
        Ok(())
    }

    fn call_regattr(&self, extent: Extent, chunk: &Chunk<'_>, key: u64) -> Result<Owned<fi::fid_mr>, Failed> {
        let iov = libc::iovec {
            iov_base: std::ptr::with_exposed_provenance_mut(native(extent.start())),
            iov_len: native(extent.len()),
        };
        let mut attr = fi::fi_mr_attr { iov_count: 1, access: access_flags(chunk.access), ..Default::default() };
        attr.requested_key = key;
        attr.iface = fi::fi_hmem_iface_FI_HMEM_SYSTEM;
        match chunk.source {
            Source::DmaBuf { fd, offset } => self.dma_buf(attr, extent, fd.as_raw_fd(), *offset),
            _ => {
                set_iov(&mut attr, &raw const iov);
                // SAFETY: an open domain; `attr` and the vector it points to live through the call. The memory stays
                // mapped while the MR lives: the token's `Mr` holds it (or it is leaked).
                Owned::open("fi_mr_regattr", |made| unsafe { fi::fi_mr_regattr(self.as_ptr(), &raw const attr, 0, made) })
            }
        }
    }

    /// Registers memory of our own for local use: what transfers need under FI_MR_LOCAL. The caller keeps the bytes
    /// allocated until the MR is closed.
    pub(crate) fn register_local(&self, bytes: NonNull<[u8]>) -> Result<Owned<fi::fid_mr>, Failed> {
        let iov = libc::iovec { iov_base: bytes.as_ptr().cast(), iov_len: bytes.len() };
        let access = u64::from(fi::FI_SEND | fi::FI_RECV | fi::FI_READ | fi::FI_WRITE);
        let mut attr = fi::fi_mr_attr { iov_count: 1, access, ..Default::default() };
        attr.requested_key = self.keys.as_ref().and_then(Keys::take).unwrap_or(0);
        attr.iface = fi::fi_hmem_iface_FI_HMEM_SYSTEM;
        set_iov(&mut attr, &raw const iov);
        // SAFETY: an open domain; `attr` and the vector it points to live through the call.
        Owned::open("fi_mr_regattr", |made| unsafe { fi::fi_mr_regattr(self.as_ptr(), &raw const attr, 0, made) })
    }

    /// The steps between registration and the key, and the key.
    fn complete(&self, mr: &Owned<fi::fid_mr>, extent: Extent) -> Result<(u64, SmallVec<[u8; 16]>), Failed> {
        if self.needs(fi::FI_MR_ENDPOINT) {
            let endpoint = self.endpoint.ok_or(Failed { api: "fi_mr_bind", errno: libc::EINVAL })?;
            // SAFETY: an MR and an endpoint of one domain, both live.
            check("fi_mr_bind", unsafe { fi::fi_mr_bind(mr.as_ptr(), endpoint.as_ptr().cast(), 0) })?;
            // SAFETY: a live, bound MR.
            check("fi_mr_enable", unsafe { fi::fi_mr_enable(mr.as_ptr()) })?;
        }
        let virtual_base = if self.needs(fi::FI_MR_VIRT_ADDR) { extent.start() } else { 0 };
        if self.needs(fi::FI_MR_RAW) {
            return self.raw_key(mr);
        }
        // SAFETY: a live, enabled MR.
        let key = unsafe { fi::fi_mr_key(mr.as_ptr()) };
        if key == KEY_NOTAVAIL {
            return Err(Failed { api: "fi_mr_key", errno: fi::FI_ENOKEY.cast_signed() });
        }
        Ok((virtual_base, SmallVec::from_slice(&key.to_ne_bytes())))
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
            base_addr: std::ptr::with_exposed_provenance_mut(native(extent.start().wrapping_sub(offset))),
        };
        attr.__bindgen_anon_1.dmabuf = &raw const dmabuf;
        let flags = u64::from(fi::FI_MR_DMABUF);
        // SAFETY: an open domain; `attr` and the dma-buf it points to live through the call, and so does the descriptor.
        Owned::open("fi_mr_regattr", |made| unsafe { fi::fi_mr_regattr(self.as_ptr(), &raw const attr, flags, made) })
    }

    #[cfg(not(fi_mr_dmabuf))]
    fn dma_buf(&self, _: fi::fi_mr_attr, _: Extent, _: i32, _: u64) -> Result<Owned<fi::fid_mr>, Failed> {
        Err(Failed { api: "fi_mr_regattr", errno: libc::EOPNOTSUPP })
    }
}

#[cfg(fi_mr_dmabuf)]
fn set_iov(attr: &mut fi::fi_mr_attr, iov: *const libc::iovec) {
    attr.__bindgen_anon_1.mr_iov = iov;
}

#[cfg(not(fi_mr_dmabuf))]
fn set_iov(attr: &mut fi::fi_mr_attr, iov: *const libc::iovec) {
    attr.mr_iov = iov;
}

/// FI_KEY_NOTAVAIL: the provider's key does not fit in 64 bits.
const KEY_NOTAVAIL: u64 = u64::MAX;

/// What a registration must allow. Reading out of memory, for its own sends and writes, is always part of it.
fn access_flags(access: Access) -> u64 {
    let flag = |on: Access, bits: u32| if access.effective().contains(on) { u64::from(bits) } else { 0 };
    u64::from(fi::FI_SEND | fi::FI_WRITE)
        | flag(Access::LOCAL_WRITE, fi::FI_RECV | fi::FI_READ)
        | flag(Access::REMOTE_READ, fi::FI_REMOTE_READ)
        | flag(Access::REMOTE_WRITE, fi::FI_REMOTE_WRITE)
}

fn keys_of(facts: &Facts, range: std::ops::RangeInclusive<u64>) -> Option<Keys> {
    (facts.mr_mode & fi::FI_MR_PROV_KEY == 0).then(|| Keys::new(range))
}

/// What every domain must fulfil, ours or borrowed.
fn check_facts(facts: &Facts) -> Result<(), OpenError> {
    let (provider, domain) = (facts.provider.clone(), facts.domain.clone());
    if !facts.thread_safe {
        return Err(OpenError::NotThreadSafe { provider, domain });
    }
    let unknown = facts.mr_mode & !crate::info::MR_MODE;
    if unknown != 0 {
        let what = format!("it needs registration mode {unknown:#x}, which is not implemented");
        return Err(OpenError::NotSupported { provider, domain, what });
    }
    if facts.mr_mode & fi::FI_MR_ENDPOINT != 0 && facts.endpoint != EndpointType::Rdm {
        let what = "it binds registrations to endpoints (FI_MR_ENDPOINT) that are connected one by one".to_owned();
        return Err(OpenError::NotSupported { provider, domain, what });
    }
    Ok(())
}

/// One of the registrations a rail may have; given back when dropped.
struct Slot<'d>(&'d Domain);

impl Slot<'_> {
    fn take(domain: &Domain) -> Result<Slot<'_>, u64> {
        let max = domain.facts.mr_cnt.unwrap_or(u64::MAX);
        let more = |live| (live < max).then_some(live + 1);
        match domain.live.fetch_update(Ordering::Relaxed, Ordering::Relaxed, more) {
            Ok(_) => Ok(Slot(domain)),
            Err(_) => Err(max),
        }
    }

    fn keep(self) {
        std::mem::forget(self);
    }
}

impl Drop for Slot<'_> {
    fn drop(&mut self) {
        self.0.live.fetch_sub(1, Ordering::Relaxed);
    }
}

/// A key taken for a registration; given back when dropped.
struct KeyInUse<'d> {
    keys: &'d Keys,
    key: u64,
}

impl KeyInUse<'_> {
    fn keep(self) -> u64 {
        let key = self.key;
        std::mem::forget(self);
        key
    }
}

impl Drop for KeyInUse<'_> {
    fn drop(&mut self) {
        self.keys.give_back(self.key);
    }
}
