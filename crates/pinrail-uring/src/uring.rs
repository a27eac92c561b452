use std::fmt;
use std::num::NonZeroU32;
use std::ops::Range;
use std::os::fd::{AsFd, BorrowedFd};
use std::sync::Arc;

use pinrail_core::{Access, DevicePath, Mr, PinsCounted, Rail, RailId, RailLimits};
use pinrail_memory::Pages;

use crate::refused::{Facts, OpenError, diagnose, version};
use crate::ring::{Ring, SLOTS_MAX};
use crate::sys;

/// Registers memory in the fixed buffer tables of io_uring rings, one ring for each rail.
///
/// It may be dropped while MRs live; they keep their rings open, but nothing can deregister them any more.
pub struct Uring {
    pub(crate) rings: Vec<Arc<Ring>>,
    pub(crate) rails: Vec<Rail>,
    pub(crate) release: String,
    /// The process that the rings are of.
    process: u32,
}

/// A ring of the caller's, and the part of it that Pinrail may use.
#[derive(Clone, Debug)]
pub struct CallersRing<'fd> {
    /// The rail that it shall be.
    pub rail: Rail,
    /// The ring.
    pub ring: BorrowedFd<'fd>,
    /// Slots of its buffer table that are empty and that nobody else uses.
    pub slots: Range<u32>,
}

/// What an MR of this crate carries: nobody else can name the type, so nobody else can retire the MR.
pub(crate) struct Token {
    pub(crate) ring: Arc<Ring>,
    pub(crate) slot: u32,
    pub(crate) access: Access,
}

/// Bytes of one registration: the kernel's `SZ_1G` in `io_buffer_validate`, which answers `EFAULT` above it.
const MR_SIZE_MAX: u64 = 1 << 30;

/// Pages that the kernel charges for a ring of our size, whoever opened it.
const RING_PAGES: u64 = 2;

/// The first kernel that was seen to charge them. Earlier ones may: then a batch that needs all of the limit is refused by
/// the kernel and not before.
const RINGS_CHARGED_SINCE: (u32, u32) = (6, 18);

impl Uring {
    /// What a ring takes at most: 1 GiB a registration, and as many registrations as a table may have slots.
    pub const LIMITS: RailLimits = RailLimits {
        max_mr_size: Some(MR_SIZE_MAX),
        max_mrs: Some(SLOTS_MAX as u64),
        max_pages: None,
        max_pages_remote_write: None,
        max_bytes: None,
    };

    /// Opens a ring for each of the rails, in their order.
    ///
    /// Names and places of the rails are kept as given. Of their limits and the rings' own the smaller holds: 1 GiB a
    /// registration, and as many registrations as the kernel grants slots, which is tried (16384 today).
    ///
    /// A rail without `max_mrs` gets the longest table, which whoever does not know how many registrations will come needs.
    /// Who knows sets it: for every huge page that is pinned the kernel (6.18) walks the whole table, empty slots too, and
    /// 1 GiB of them takes four times as long with 16384 slots as with 64. Pages of 4 KiB do not notice.
    ///
    /// # Errors
    /// [`OpenError`] says which refusal it was, and its [`diagnosis`](OpenError::diagnosis) what to do. No ring is left open.
    pub fn open(rails: &[Rail]) -> Result<Uring, OpenError> {
        let mut uring = Uring::empty();
        for (at, rail) in rails.iter().enumerate() {
            let ring = Ring::open(rail.limits.max_mrs)
                .map_err(|(call, error)| diagnose(call, &error, &Facts::read(), at + 1, rails.len()))?;
            uring.push(rail, ring);
        }
        Ok(uring)
    }

    /// Registers on rings that the caller has, so that the caller's own `READ_FIXED` and `WRITE_FIXED` can name the
    /// slots ([`Keys::local`](pinrail_core::Keys::local)). The caller's descriptor is never closed: it is duplicated,
    /// and the ring stays open until both the caller and the last MR have let it go.
    ///
    /// Such a registrar has no [`mover`](pinrail_core::Registrar::mover), since the queues are the caller's.
    ///
    /// # Errors
    /// [`OpenError::CallersRing`] if the first or the last of the slots cannot be emptied: then it is no ring, or its
    /// table is missing or too small. [`OpenError::Descriptors`] if no descriptor is left for the duplicate.
    ///
    /// # Safety
    /// Until the `Uring` and all its MRs are gone, nothing but Pinrail puts anything into the slots, empties them, or
    /// unregisters the table; and no request names one of the slots except through an MR that is live while the request
    /// runs. Otherwise a request meant for one buffer reads or writes another, or one that is freed already.
    pub unsafe fn over(rings: &[CallersRing<'_>]) -> Result<Uring, OpenError> {
        let mut uring = Uring::empty();
        for (at, CallersRing { rail, ring, slots }) in rings.iter().enumerate() {
            let duplicate = ring.try_clone_to_owned().map_err(|_| OpenError::Descriptors {
                ring: at + 1,
                rings: rings.len(),
                limit: sys::descriptors_max(),
            })?;
            let refused = |slot, what: String| OpenError::CallersRing { rail: rail.name.clone(), slot, what };
            if slots.is_empty() {
                return Err(refused(slots.start, "the range of slots is empty".into()));
            }
            let ring = Ring::over(duplicate, slots.clone());
            for slot in [slots.start, slots.end - 1] {
                ring.clear(slot).map_err(|error| refused(slot, error.to_string()))?;
            }
            uring.push(rail, ring);
        }
        Ok(uring)
    }

    /// The ring of a rail, for the caller's own requests.
    ///
    /// The best use is a ring of the caller's with the table taken over (`IORING_REGISTER_CLONE_BUFFERS`, Linux 6.12): it
    /// holds the pages by itself, so they stay pinned after a deregistration until the copy is given up as well.
    /// Who maps this ring's queues must not have requests there while the [`mover`](pinrail_core::Registrar::mover) is
    /// used: it takes every completion off. Emptying or filling slots is Pinrail's alone.
    #[must_use]
    pub fn ring(&self, rail: RailId) -> Option<BorrowedFd<'_>> {
        Some(self.rings.get(rail.index())?.as_fd())
    }

    /// True in a child that was forked off: it shares the slots, and would empty or fill its parent's.
    pub(crate) fn is_inherited(&self) -> bool {
        self.process != std::process::id()
    }

    /// The state of an MR that this registrar made, in this process, and that is live.
    pub(crate) fn token<'m>(&self, mr: &'m Mr) -> Option<&'m Token> {
        if self.is_inherited() {
            return None;
        }
        let ring = self.rings.get(mr.rail().index())?;
        mr.token::<Token>().filter(|token| Arc::ptr_eq(&token.ring, ring))
    }

    fn empty() -> Uring {
        Uring { rings: Vec::new(), rails: Vec::new(), release: sys::kernel_release(), process: std::process::id() }
    }

    fn push(&mut self, rail: &Rail, ring: Ring) {
        let mut offered = Rail::named("");
        offered.limits = RailLimits { max_mrs: Some(ring.slots.total().into()), ..Uring::LIMITS };
        let is_charged = version(&self.release).is_some_and(|running| running >= RINGS_CHARGED_SINCE);
        if is_charged && ring.queue().is_some() {
            offered.own_pinned_bytes = RING_PAGES * Pages::Small.page_size();
        }
        offered.pins = PinsCounted::User;
        offered.device = DevicePath::None;
        offered.calls_in_parallel = NonZeroU32::MIN;
        let mut rail = rail.clone();
        rail.tighten(&offered);
        self.rails.push(rail);
        self.rings.push(Arc::new(ring));
    }
}

impl fmt::Debug for Uring {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        let names = self.rails.iter().map(|rail| &rail.name);
        f.write_str("Uring ")?;
        f.debug_list().entries(names).finish()
    }
}
