//! One protection domain: registration as libibverbs does it.

use std::os::fd::AsRawFd;
use std::ptr::NonNull;
use std::sync::Arc;
use std::sync::atomic::{AtomicU64, Ordering};

use pinrail_core::{
    Access, Cause, Chunk, DevicePath, Extent, Keys, MoveError, PinsCounted, Rail, RailLimits, RegisterError, Source,
};
use rdma_sys as sys;
use smallvec::SmallVec;

use crate::cause::{self, Refused};
use crate::turns::Turns;
use crate::{OpenError, access, device, ffi};

/// The header's macros of these names call what is called here.
pub(crate) const REG: &str = "ibv_reg_mr";
const REG_DMABUF: &str = "ibv_reg_dmabuf_mr";

/// One protection domain, ours or the caller's, and what moves bytes on it.
pub(crate) struct Domain {
    /// What moves bytes, made when first needed. Dropped before the PD, as the fields are dropped in this order.
    pub(crate) turns: Turns,
    pd: NonNull<sys::ibv_pd>,
    context: NonNull<sys::ibv_context>,
    pub(crate) device: String,
    live: AtomicU64,
    _opened: Option<Opened>,
}

// SAFETY: libibverbs may be called by any thread at any time, on any object.
unsafe impl Send for Domain {}
// SAFETY: as above.
unsafe impl Sync for Domain {}

/// What we opened and close again.
struct Opened {
    pd: NonNull<sys::ibv_pd>,
    context: NonNull<sys::ibv_context>,
}

impl Drop for Opened {
    fn drop(&mut self) {
        // SAFETY: allocated in `Domain::open`, freed once. Each of our MRs holds the domain, so none is left.
        let freed = unsafe { sys::ibv_dealloc_pd(self.pd.as_ptr()) };
        if freed == 0 {
            // SAFETY: opened in `Domain::open`, closed once; the last object on it was the PD.
            unsafe { sys::ibv_close_device(self.context.as_ptr()) };
        }
        // Otherwise the caller has queue pairs on it (EBUSY). Closing the device would end these too: both stay open.
    }
}

/// The token of a live MR. Dropped, it frees the MR's place among the live ones; that happens only after it was
/// deregistered.
pub(crate) struct Registered {
    mr: NonNull<sys::ibv_mr>,
    slot: Slot,
}

// SAFETY: an MR may be deregistered by any thread.
unsafe impl Send for Registered {}
// SAFETY: as above.
unsafe impl Sync for Registered {}

impl Registered {
    pub(crate) fn domain(&self) -> &Arc<Domain> {
        &self.slot.0
    }

    /// As the caller's work requests need them.
    pub(crate) fn keys(&self) -> Keys {
        // SAFETY: a live MR; its keys never change.
        let mr = unsafe { self.mr.as_ref() };
        Keys { local: mr.lkey.into(), remote: SmallVec::from_slice(&mr.rkey.to_ne_bytes()) }
    }

    /// What a peer names.
    pub(crate) fn rkey(&self) -> u32 {
        // SAFETY: a live MR; its keys never change.
        unsafe { self.mr.as_ref() }.rkey
    }

    /// Deregisters; on failure the MR is as it was.
    ///
    /// # Safety
    /// It was not deregistered yet: after a success the caller lets the token go.
    pub(crate) unsafe fn deregister(&self) -> Result<(), i32> {
        // SAFETY: a live MR by the caller's promise.
        ffi::status(unsafe { sys::ibv_dereg_mr(self.mr.as_ptr()) })
    }
}

impl Domain {
    /// Opens a device and allocates a PD on it; says what the device offers.
    ///
    /// # Safety
    /// `device` is one of a list that is not yet freed.
    pub(crate) unsafe fn open(device: *mut sys::ibv_device) -> Result<(Domain, Rail), OpenError> {
        // SAFETY: the caller's promise.
        let name = unsafe { device::name(device) };
        let failed = |api| {
            let device = name.clone();
            move |errno| OpenError::Call { api, device, errno }
        };
        // SAFETY: the caller's promise.
        let context = ffi::pointer(unsafe { sys::ibv_open_device(device) }).map_err(failed("ibv_open_device"))?;
        // SAFETY: an open device.
        let pd = ffi::pointer(unsafe { sys::ibv_alloc_pd(context.as_ptr()) }).map_err(|errno| {
            // SAFETY: opened above, with nothing on it, closed once.
            unsafe { sys::ibv_close_device(context.as_ptr()) };
            failed("ibv_alloc_pd")(errno)
        })?;
        let domain = Domain { _opened: Some(Opened { pd, context }), ..Domain::of(pd, context, name) };
        let offered = domain.offered()?;
        Ok((domain, offered))
    }

    /// A PD of the caller's.
    ///
    /// # Safety
    /// It is open, and stays so until the domain is dropped.
    pub(crate) unsafe fn over(pd: NonNull<sys::ibv_pd>) -> Result<(Domain, Rail), OpenError> {
        // SAFETY: an open PD by the caller's promise; its context never changes.
        let context = unsafe { pd.as_ref() }.context;
        // SAFETY: an open PD's context is an open device.
        let device = unsafe { (*context).device };
        // SAFETY: as above.
        let name = unsafe { device::name(device) };
        let context = NonNull::new(context).expect("an open PD has a context");
        let domain = Domain::of(pd, context, name);
        let offered = domain.offered()?;
        Ok((domain, offered))
    }

    fn of(pd: NonNull<sys::ibv_pd>, context: NonNull<sys::ibv_context>, device: String) -> Domain {
        Domain { turns: Turns::default(), pd, context, device, live: AtomicU64::new(0), _opened: None }
    }

    pub(crate) fn pd(&self) -> NonNull<sys::ibv_pd> {
        self.pd
    }

    pub(crate) fn context(&self) -> NonNull<sys::ibv_context> {
        self.context
    }

    /// The device as the kernel describes it, with the limits that it states.
    fn offered(&self) -> Result<Rail, OpenError> {
        // SAFETY: a structure of integers, for which zero is a value.
        let mut attr: sys::ibv_device_attr = unsafe { std::mem::zeroed() };
        // SAFETY: an open device, and room for the structure.
        let queried = ffi::status(unsafe { sys::ibv_query_device(self.context.as_ptr(), &raw mut attr) });
        queried.map_err(|errno| OpenError::Call { api: "ibv_query_device", device: self.device.clone(), errno })?;
        let mut rail = device::described(&self.device);
        rail.limits = RailLimits {
            // All ones is how a device says that it has no limit (rxe).
            max_mr_size: Some(attr.max_mr_size).filter(|&bytes| bytes > 0 && bytes < u64::MAX),
            max_mrs: u64::try_from(attr.max_mr).ok().filter(|&mrs| mrs > 0),
            ..RailLimits::default()
        };
        rail.pins = PinsCounted::Process;
        // Without dma-buf, whether a peer-memory driver takes a device's addresses is known only when it is tried.
        rail.device = if self.takes_dma_bufs() { DevicePath::DmaBuf } else { DevicePath::Unknown };
        Ok(rail)
    }

    /// Asks for a registration of nothing out of no descriptor: where there is such a call, it is the descriptor that is
    /// wrong.
    fn takes_dma_bufs(&self) -> bool {
        // SAFETY: an open PD; there is nothing that could be registered.
        match ffi::pointer(unsafe { sys::ibv_reg_dmabuf_mr(self.pd.as_ptr(), 0, 0, 0, -1, 0) }) {
            Ok(mr) => {
                // SAFETY: the MR just made, which nobody knows.
                unsafe { sys::ibv_dereg_mr(mr.as_ptr()) };
                true
            }
            Err(errno) => errno == libc::EBADF,
        }
    }

    /// Registers a chunk whose range, memory and length were checked, as one of at most `max_mrs`.
    pub(crate) fn register(
        self: &Arc<Domain>,
        chunk: &Chunk<'_>,
        max_mrs: Option<u64>,
        relaxed_ordering: bool,
    ) -> Result<Registered, RegisterError> {
        let api = api_of(chunk.source);
        let slot = Slot::take(self, max_mrs).map_err(|limit| RegisterError::new(api, None, Cause::MrCount { limit }))?;
        let (extent, flags) = (chunk.extent(), access::flags(chunk.access, relaxed_ordering));
        match self.call(extent, chunk.source, flags) {
            Ok(mr) => Ok(Registered { mr, slot }),
            Err(errno) => {
                let live = self.live.load(Ordering::Relaxed).saturating_sub(1);
                let refused =
                    Refused { errno, extent, access: chunk.access, source: chunk.source, device: &self.device, live, max_mrs };
                Err(RegisterError::new(api, Some(errno), cause::of_register(&refused)))
            }
        }
    }

    /// Registers memory of our own for local use: what transfers pass through. The caller keeps it mapped until the MR is
    /// deregistered.
    pub(crate) fn register_local(&self, extent: Extent) -> Result<NonNull<sys::ibv_mr>, MoveError> {
        let (access, source) = (Access::LOCAL_WRITE, &Source::Address);
        self.call(extent, source, access::flags(access, false)).map_err(|errno| {
            let live = self.live.load(Ordering::Relaxed);
            let refused = Refused { errno, extent, access, source, device: &self.device, live, max_mrs: None };
            MoveError::new(REG, Some(errno), cause::of_register(&refused))
        })
    }

    fn call(&self, extent: Extent, source: &Source, flags: u32) -> Result<NonNull<sys::ibv_mr>, i32> {
        let len = usize::try_from(extent.len()).map_err(|_| libc::EOVERFLOW)?;
        match source {
            Source::Address => {
                let address = usize::try_from(extent.start()).map_err(|_| libc::EOVERFLOW)?;
                let address = std::ptr::with_exposed_provenance_mut(address);
                // SAFETY: an open PD. The memory stays mapped while the MR lives: whoever keeps the MR keeps it, or leaks
                // both. What a NIC may do there by these flags is what the memory's owner has allowed.
                ffi::pointer(unsafe { sys::ibv_reg_mr_iova2(self.pd.as_ptr(), address, len, extent.start(), flags) })
            }
            Source::DmaBuf { fd, offset } => {
                let flags = flags.cast_signed();
                // SAFETY: an open PD and an open descriptor, which the MR's owner keeps as it keeps the memory.
                ffi::pointer(unsafe {
                    sys::ibv_reg_dmabuf_mr(self.pd.as_ptr(), *offset, len, extent.start(), fd.as_raw_fd(), flags)
                })
            }
            // A source of a kind that this crate does not know.
            _ => Err(libc::EOPNOTSUPP),
        }
    }
}

pub(crate) fn api_of(source: &Source) -> &'static str {
    if matches!(source, Source::DmaBuf { .. }) { REG_DMABUF } else { REG }
}

/// One of the registrations that a rail may have; free again when dropped.
struct Slot(Arc<Domain>);

impl Slot {
    /// On failure the limit.
    fn take(domain: &Arc<Domain>, max: Option<u64>) -> Result<Slot, u64> {
        let max = max.unwrap_or(u64::MAX);
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
